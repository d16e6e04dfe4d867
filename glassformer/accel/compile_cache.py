"""Where compiled code is kept: torch.compile's and Triton's, in the user's cache folder, so that the next process need not
compile the same again. torch's own place is a temporary folder, which may be gone after a restart.

Each processor (with its torch) has a folder of its own, since a home may be shared by several; torch and Triton keep apart what
is of another GPU. What lies there is run, so it must be the user's alone: a folder that belongs to someone else, or that others
may write into or replace, is not used. No code is ever read from a run.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import torch

from glassformer import machine
from glassformer.files.cache import CacheEntry, cache_folder, is_private
from glassformer.language import _, localized
from glassformer.screen import say

VARIABLES = {"TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton"}


def bytes_in(folder: Path) -> int:
    """The size of all that lies in a folder, in which others may be writing."""
    total = 0
    for path in folder.rglob("*"):
        with suppress(OSError):
            total += path.lstat().st_size
    return total


def compiled_entries() -> list[CacheEntry]:
    """The compiled code that is kept, as one entry."""
    home, entries = cache_folder(), []
    with suppress(OSError):  # none there, or a name that the system refuses
        if home is not None:
            folder = home / "compiled"
            used = folder.stat().st_mtime
            entries.append(CacheEntry(folder, localized(_("compiled code")), bytes_in(folder), used))
    return entries


def compile_cache() -> Path | None:
    """The folder for compiled code, made if need be; None where nothing is to be kept, or where it would not be safe there,
    which is said."""
    home = cache_folder()
    if home is None:
        return None
    folder = home.absolute() / "compiled"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not is_private(folder):
            say(
                _(
                    "{folder} is not yours alone, so no compiled code is kept there; torch keeps it where it usually does",
                    folder,
                )
            )
            return None
        entry = folder / machine.processor_identity()
        entry.mkdir(mode=0o700, exist_ok=True)
        os.utime(folder)
    except OSError as error:
        say(_("compiled code is not kept in {folder}: {why}", folder, error.strerror))
        return None
    return entry


@functools.cache
def use_compile_cache() -> None:
    """From now on this process keeps its compiled code in the user's cache folder; whoever has said where torch or Triton are to
    keep theirs is heard. Before anything is compiled, once a process."""
    wanted = [name for name in VARIABLES if not os.environ.get(name)]
    folder = compile_cache() if wanted else None
    for name in wanted if folder is not None else ():
        os.environ[name] = str(folder / VARIABLES[name])  # type: ignore[operator]


@contextmanager
def compiler_loading(device: torch.device) -> Iterator[None]:
    """While the block runs, a thread of its own imports torch's compiler and starts the GPU: seconds that the first step would
    take otherwise."""
    use_compile_cache()

    def load() -> None:
        with suppress(Exception):  # whatever is wrong is told where it is needed
            torch.empty(0, device=device)
            import torch._dynamo
            import torch._inductor.compile_fx  # noqa: F401

    thread = threading.Thread(target=load, name="loading the compiler")
    thread.start()
    try:
        yield
    finally:
        thread.join()
