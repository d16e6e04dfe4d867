"""A process of a training that hangs, rather than ends, is noticed by the others, which would wait for it for ever.

Each rank has a thread that writes down how often it has beaten, in the store by which torch.distributed's processes meet; rank 0
looks at the beats of all, the others at those of rank 0. Beats that cease are those of a process that was stopped, or whose
machine is gone. A process may also hang and beat (two that wait for each other): then rank 0 does not come out of a step.
Between steps rank 0 may validate, save or draw for as long as it takes.

Time is counted in looks, so that a machine that sleeps, or a job that is stopped and continued as a whole, is not taken for a
process that hangs.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from shlex import quote

import torch

from glassformer.language import _, localized
from glassformer.screen import warn

LOST = 71  # exit code
LOOKS = 20  # in the time that is allowed


class Watch:
    """What one rank knows of the others: for how many looks each has not beaten, and for how many the step lasts."""

    def __init__(self, others: range, looks: int = LOOKS) -> None:
        self.looks = looks
        self.silent = dict.fromkeys(others, 0)
        self.seen: dict[int, bytes] = {}
        self.step_looks: int | None = None
        self.longest = 0

    def note(self, rank: int, beats: bytes) -> None:
        """So often has a rank beaten."""
        if self.seen.get(rank) != beats:
            self.seen[rank], self.silent[rank] = beats, 0

    @contextmanager
    def step(self) -> Iterator[None]:
        """Inside, all ranks take part, and none works for itself."""
        self.step_looks = 0
        try:
            yield
        finally:
            self.longest, self.step_looks = max(self.longest, self.step_looks), None

    def look(self) -> str | None:
        """What is wrong now, in words; None where all is well."""
        for rank in self.silent:
            self.silent[rank] += 1
            if self.silent[rank] > self.looks:
                return _("rank {rank} of this training does not answer: it was stopped, or its machine is gone", rank)
        if self.step_looks is not None:
            self.step_looks += 1
            if self.step_looks > self.looks + self.longest:
                return _("a step of this training does not end: one of its processes hangs")
        return None


class Heart:
    """The threads that beat and look, from `start` to `stop`."""

    def __init__(self, rank: int, size: int, seconds: float, run: str) -> None:
        self.rank, self.seconds, self.run = rank, seconds, run
        self.interval = seconds / LOOKS
        self.watch = Watch(range(1, size) if rank == 0 else range(1))
        self.ended = threading.Event()
        self.threads = [threading.Thread(target=work, daemon=True) for work in (self.beat, self.look)]

    def start(self) -> None:
        """Begins both."""
        for thread in self.threads:
            thread.start()

    def stop(self) -> None:
        """Ends both: one that waits for a process that hangs is not waited for."""
        self.ended.set()
        for thread in self.threads:
            thread.join(2.0)

    def beat(self) -> None:
        """Writes and reads beats. Asking a process that hangs may take for ever, so that somebody else looks; where the store is
        gone, whoever held it is."""
        host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        start = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        try:
            client = torch.distributed.TCPStore(
                host, port, is_master=False, wait_for_workers=False, timeout=timedelta(seconds=max(1.0, self.interval))
            )
            store, count = torch.distributed.PrefixStore(f"beats-{start}", client), 0
            while not self.ended.wait(self.interval):
                count += 1
                store.set(str(self.rank), str(count))
                for rank in self.watch.silent:
                    with suppress(torch.distributed.DistStoreError):  # it has not begun
                        self.watch.note(rank, store.get(str(rank)))
        except RuntimeError:
            return

    def look(self) -> None:
        """Ends this process where another hangs; the others are ended by that, or by whoever has started them."""
        while not self.ended.wait(self.interval):
            if (wrong := self.watch.look()) is not None and not self.ended.is_set():
                if self.rank <= 1:
                    sentence = _(
                        "{wrong} (waited for {seconds:,.0f} seconds: train.hang_seconds). All processes end, and what was saved "
                        "before is untouched; go on with: glassformer train {path} --resume",
                        wrong,
                        self.seconds,
                        quote(self.run),
                    )
                    warn(localized(_("glassformer, rank {rank}: {sentence}", self.rank, sentence)))
                os._exit(LOST)
