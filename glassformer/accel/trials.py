"""The trial by which attention over short rows is chosen on a CPU: which of two ways of computing is faster on this machine.

A processor's name does not tell; a trial of half a second does (what compilers call autotuning). What is not a tenth faster is
not taken. The result lies in the user's cache folder, under a name made of all that it depends on (`machine.identity`), so that
another processor, another torch or another version of this package measures again. A damaged file is made anew; where nothing can
be written, the trial is made once a process. A training keeps its answers in its run, and keeps to them when it is gone on with
(runs/setup.py).
"""

from __future__ import annotations

import contextlib
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from glassformer import machine
from glassformer.accel.short_attention import ShortAttentionKernel
from glassformer.files import structured
from glassformer.files.cache import CacheEntry, cache_folder
from glassformer.files.durable import write_atomically
from glassformer.language import _, localized
from glassformer.nn.attention import fused_attention
from glassformer.nn.masks import AttentionMask

MAX_BYTES = 1 << 16  # of a file that could be one of ours
MIN_GAIN = 1.1  # times as fast, or a special way is not worth taking
KEYS = (8, 12, 20, 24)  # lengths of rows at which short attention is tried
SHORT_ROWS = "short rows"

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
        gains = json.loads(structured.read_regular(path, MAX_BYTES))["gains"]
        numbers = {size: float(gain) for size, gain in gains.items() if type(gain) in (int, float)}
    except (OSError, ValueError, RecursionError, KeyError, TypeError, AttributeError):
        return None
    usable = len(numbers) == len(gains) > 0 and all(math.isfinite(g) and g > 0 for g in numbers.values())
    return numbers if usable else None


def write_gains(path: Path, gains: Mapping[str, float]) -> None:
    """Leave the result for others, where that can be done."""
    content = json.dumps({"gains": gains, "measured": time.strftime("%Y-%m-%d")}, indent=1).encode()
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, content)


def trial_entries() -> list[CacheEntry]:
    """The results that are kept, the oldest first."""
    home, entries = cache_folder(), []
    with contextlib.suppress(OSError):  # no such folder, or another process has removed one
        for path in (home / "trials").glob("*.json") if home is not None else ():
            if read_gains(path):
                about = localized(_("a trial of what is faster here: {name}", path.stem))
                entries.append(CacheEntry(path, about, path.stat().st_size, path.stat().st_mtime))
    return sorted(entries, key=lambda entry: (entry.used, entry.path.name))


def gains(name: str, measure: Callable[[], Mapping[str, float]]) -> Gains:
    """The gains of a special way on this machine: as they were measured before, or measured now. What another process has left
    while this one measured counts instead."""
    key = (name, machine.identity())
    if key not in KNOWN:
        folder = cache_folder()
        path = Path() if folder is None else folder / "trials" / f"{name.replace(' ', '-')}-{key[1]}.json"
        kept = read_gains(path)
        if kept is None:
            measured = {size: round(gain, 4) for size, gain in measure().items()}
            kept = read_gains(path) or measured
            if folder is not None and kept is measured:
                write_gains(path, measured)
        KNOWN[key] = kept
    return KNOWN[key]


def known_gains() -> dict[str, Gains]:
    """The gains by which this process has chosen so far, by the name of the trial."""
    return {name: gains for (name, identity), gains in KNOWN.items() if identity == machine.identity()}


def keep_to(known: Mapping[str, Mapping[str, float]]) -> None:
    """From now on these are the gains, whatever was measured or is in the cache: those of a run that is gone on with."""
    KNOWN.update({(name, machine.identity()): dict(gains) for name, gains in known.items()})


def largest_size_worth(gains: Mapping[str, float]) -> int:
    """The largest size up to which the special way was worth taking at every size that was tried; 0: nowhere."""
    taken = 0
    for size in sorted(map(int, gains)):
        if gains[str(size)] < MIN_GAIN:
            break
        taken = size
    return taken


def try_short_rows() -> Gains:
    """How many times as fast as torch's kernel `ShortAttention` is, forward and backward on a small batch, by length of rows."""
    generator = torch.Generator().manual_seed(1)
    gains: Gains = {}

    def forward_backward(attend: Callable[..., Tensor], inputs: list[Tensor], mask: AttentionMask) -> None:
        torch.autograd.grad(attend(*inputs, mask), inputs, torch.ones_like(inputs[0]))

    for keys in KEYS:
        inputs = [torch.randn(64, 4, keys, 16, generator=generator).requires_grad_() for _ in range(3)]
        mask = AttentionMask(torch.ones(64, 1, keys, keys, dtype=torch.bool).tril())
        with torch.enable_grad():
            gains[str(keys)] = speedup(
                partial(forward_backward, ShortAttentionKernel(KEYS[-1]), inputs, mask),
                partial(forward_backward, fused_attention, inputs, mask),
            )
    return gains


def short_rows() -> int:
    """Up to so many keys, attention in training on this CPU is `ShortAttention` (short_attention.py); 0: never."""
    return largest_size_worth(gains(SHORT_ROWS, try_short_rows))
