"""Writing while training goes on: one write at a time, in the order in which they were asked for.

What is to be written is copied first, so that the steps that follow cannot change it. A file is on the disk no earlier than
those asked for before it; a kill loses the write under way and nothing else. A write that fails is told at the next step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress

import torch
from torch import Tensor

from glassformer.runs.stop import Stopped


def copied(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors as they are now, in the memory of the host."""
    return {name: t.detach().to("cpu", copy=True, memory_format=torch.contiguous_format) for name, t in tensors.items()}


class BackgroundWriter:
    """`with writer:` … `writer.submit(function)`; at the end of the block all is written."""

    def __init__(self) -> None:
        self.pool = ThreadPoolExecutor(1, thread_name_prefix="saving")
        self.pending: Future[None] | None = None

    def submit(self, write: Callable[[], None]) -> None:
        """Has this called in the background, once the write before it has ended: no more than one copy is held."""
        self.wait()
        self.pending = self.pool.submit(write)

    def check(self) -> None:
        """Raises what a write has failed with."""
        if self.pending is not None and self.pending.done():
            self.wait()

    def wait(self) -> None:
        """Until all is written; raises what the write has failed with."""
        pending, self.pending = self.pending, None
        if pending is not None:
            pending.result()

    def __enter__(self) -> BackgroundWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *unused: object) -> None:
        # A stop says that all is saved, so a failed write comes before it; another error has its own cause, which is told.
        with suppress(*() if kind is None or issubclass(kind, Stopped) else (Exception,)):
            self.wait()
        self.pool.shutdown()
