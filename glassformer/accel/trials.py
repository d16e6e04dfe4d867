"""Trials of a second: which of two ways of computing is faster here, measured once and kept (what compilers call autotuning).

A processor's name does not tell which way is faster; a short trial does. Its result lies in the user's cache folder, one
small file a trial, under a name made of all that it depends on (`machine.identity`), so that another processor, another torch
or another version of this package measures again. A damaged file is made anew; where nothing can be written, the trial is
made once a process. Of two processes that try at the same time, both take what the first has written. A training keeps its
answers in its run, and keeps to them when it is gone on with (runs/setup.py).
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import torch

from glassformer import machine
from glassformer.files import structured
from glassformer.files.cache import CacheEntry, cache_folder
from glassformer.files.durable import write_bytes
from glassformer.language import _, localized

MAX_BYTES = 1 << 16  # of a file that could be one of ours
MIN_GAIN = 1.1  # times as fast, or a special way is not worth taking

Gains = dict[str, float]
"""How many times as fast the special way was, by the size it was tried at."""

KNOWN: dict[tuple[str, str], Gains] = {}


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """torch computes on the calling thread alone."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def speedup(
    candidate: Callable[[], object], baseline: Callable[[], object], *, seconds: float = 0.1, rounds: int = 20
) -> float:
    """How many times as fast the candidate is, on one thread and by that thread's own clock, so that a busy machine
    answers as an idle one: the quickest of many turns each, taken alternately."""
    best = [math.inf, math.inf]
    with one_thread():
        candidate(), baseline()  # the first call sets things up
        end, done = time.thread_time() + seconds, 0
        while done < rounds or time.thread_time() < end:
            for i, way in enumerate((candidate, baseline)):
                start = time.thread_time()
                way()
                best[i] = min(best[i], time.thread_time() - start)
            done += 1
    return best[1] / max(best[0], 1e-9)


def read_gains(path: Path) -> Gains | None:
    """The result in a file; None where there is none, or where it is damaged."""
    try:
        found = json.loads(structured.read_regular(path, MAX_BYTES))
    except (OSError, ValueError, RecursionError):
        return None
    gains = found.get("gains") if isinstance(found, dict) else None
    if not isinstance(gains, dict) or not gains:
        return None
    if not all(type(g) in (int, float) and math.isfinite(g) and g > 0 for g in gains.values()):
        return None
    return {size: float(gain) for size, gain in gains.items()}


def write_gains(path: Path, gains: Mapping[str, float]) -> Gains:
    """Leave the result for others; what another process has left meanwhile counts instead."""
    content = json.dumps({"gains": gains, "measured": time.strftime("%Y-%m-%d")}, indent=1).encode()
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".tmp-{os.getpid()}-{path.name}")
        try:
            write_bytes(temporary, content)
            if path.exists() and read_gains(path) is None:
                path.unlink(missing_ok=True)
            os.link(temporary, path)  # refuses where there is one
        except FileExistsError:
            pass
        except OSError:  # a file system without links
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
    return read_gains(path) or dict(gains)


def trial_entries() -> list[CacheEntry]:
    """The results that are kept, the oldest first."""
    home, found = cache_folder(), []
    with contextlib.suppress(OSError):  # no such folder, or another process has removed one
        for path in (home / "trials").glob("*.json") if home is not None else ():
            if read_gains(path):
                about = localized(_("a trial of what is faster here: {name}", path.stem))
                found.append(CacheEntry(path, about, path.stat().st_size, path.stat().st_mtime))
    return sorted(found, key=lambda entry: (entry.used, entry.path.name))


def gains(name: str, measure: Callable[[], Mapping[str, float]]) -> Gains:
    """The gains of a special way on this machine: as they were measured before, or measured now."""
    key = (name, machine.identity())
    if key not in KNOWN:
        folder, rounded = cache_folder(), lambda: {size: round(gain, 4) for size, gain in measure().items()}
        if folder is None:
            KNOWN[key] = rounded()
        else:
            path = folder / "trials" / f"{name.replace(' ', '-')}-{key[1]}.json"
            KNOWN[key] = read_gains(path) or write_gains(path, rounded())
    return KNOWN[key]


def known_gains() -> dict[str, Gains]:
    """The gains by which this process has chosen so far, by the name of the trial."""
    return {name: gains for (name, identity), gains in KNOWN.items() if identity == machine.identity()}


def keep_to(known: Mapping[str, Mapping[str, float]]) -> None:
    """From now on these are the gains, whatever was measured or is in the cache: those of a run that is gone on with."""
    KNOWN.update({(name, machine.identity()): dict(gains) for name, gains in known.items()})


def largest_size_worth(found: Mapping[str, float], least: float = MIN_GAIN) -> int:
    """The largest size up to which the special way was worth taking at every size that was tried; 0: nowhere."""
    taken = 0
    for size in sorted(map(int, found)):
        if found[str(size)] < least:
            break
        taken = size
    return taken
