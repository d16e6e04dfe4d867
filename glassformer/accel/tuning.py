"""What is taken where: every fast path of the package, what it needs, and what it brought.

A path is taken where the machine has what it needs (instructions, multiprocessors, an installed library) or where a trial of a
second on this machine found it at least a tenth faster (trials.py); never by the name of a processor. What brings less than a
tenth is not worth its lines: so went GELU by a sigmoid (1.01 times on an H200), the kernel of the loss in bfloat16 (1.03; 8-bit
training cannot do without it) and our own 4-bit products (0.65 to 1.19 times CTranslate2's 8 bits).

`PATHS` is the list, with the machine, the day and the gain of a measurement; `choices` says what was chosen here
(`glassformer info --machine`).
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from glassformer import machine
from glassformer.accel import trials
from glassformer.accel.short_attention import ShortAttentionKernel
from glassformer.errors import install_hint
from glassformer.language import _
from glassformer.nn.attention import fused_attention
from glassformer.nn.masks import AttentionMask

KEYS = (8, 12, 20, 24)  # lengths of rows at which short attention is tried


@dataclass(frozen=True)
class Measured:
    """What a path brought: times as fast as the plain way, on a machine, on a day."""

    gain: float
    machine: str
    day: str


@dataclass(frozen=True)
class PathChoice:
    """What was chosen on this machine, and why; `gain` where a trial was made here."""

    taken: bool
    why: str
    gain: float | None = None


@dataclass(frozen=True)
class FastPath:
    """A special way of computing something, beside the plain one."""

    name: str
    what: str
    choose: Callable[[], PathChoice]
    measured: tuple[Measured, ...] = ()


def try_short_rows() -> dict[str, float]:
    """How many times as fast as torch's kernel `ShortAttention` is, forward and backward on a small batch, by length of rows."""
    generator = torch.Generator().manual_seed(1)
    short, found = ShortAttentionKernel(KEYS[-1]), {}
    for keys in KEYS:
        shape = (64, 4, keys, 16)
        q, k, v = (torch.randn(shape, generator=generator).requires_grad_() for _ in range(3))
        grad = torch.randn(shape, generator=generator)
        mask = AttentionMask(torch.ones(64, 1, keys, keys, dtype=torch.bool).tril())

        def forward_backward(
            attend: Callable[..., Tensor],
            inputs: tuple[Tensor, ...] = (q, k, v),
            mask: AttentionMask = mask,
            grad: Tensor = grad,
        ) -> None:
            torch.autograd.grad(attend(*inputs, mask), inputs, grad)

        with torch.enable_grad():
            found[str(keys)] = trials.speedup(
                partial(forward_backward, short), partial(forward_backward, fused_attention)
            )
    return found


def short_rows() -> int:
    """Up to so many keys, attention in training on this CPU is `ShortAttention` (short_attention.py); 0: never."""
    return trials.largest_size_worth(trials.gains("short rows", try_short_rows))


def choose_short_rows() -> PathChoice:
    """Whether short rows are worth it on this CPU, and up to how many keys: by a trial, whose result is kept."""
    limit = short_rows()
    found = trials.gains("short rows", try_short_rows)
    told = ", ".join(f"{gain:.2f} with {keys}" for keys, gain in found.items())
    if not limit:
        return PathChoice(False, f"a trial here: times as fast {told} keys", max(found.values()))
    return PathChoice(True, f"up to {limit} keys; a trial here: times as fast {told} keys", max(found.values()))


def choose_int8() -> PathChoice:
    """Whether 8-bit decoding can be had: by what CTranslate2 says of this processor."""
    if importlib.util.find_spec("ctranslate2") is None:
        return PathChoice(False, _("CTranslate2 is not installed: {command}", command=install_hint("ct2")))
    import ctranslate2

    types = sorted(ctranslate2.get_supported_compute_types("cpu"))
    return PathChoice("int8" in types, f"with engine=int8; CTranslate2 computes here in {', '.join(types)}")


def choose_on_gpu(able: Callable[[machine.Gpu], bool], otherwise: str) -> Callable[[], PathChoice]:
    """By what the GPU says of itself."""

    def choose() -> PathChoice:
        device = machine.gpu()
        if device is None:
            return PathChoice(False, "no GPU that torch can use")
        if not able(device):
            return PathChoice(False, otherwise)
        return PathChoice(True, "the GPU has what it needs")

    return choose


XEON, NEOVERSE, H200 = "two cores of a Xeon with AVX-512 and AMX", "two cores of a Neoverse N1", "one H200"
PATHS = (
    FastPath(
        "short rows",
        "training on a CPU: attention over few keys by a few products over all heads",
        choose_short_rows,
        (Measured(1.3, XEON, "2026-11-15"), Measured(0.58, NEOVERSE, "2026-11-15")),
    ),
    FastPath(
        "packed weights",
        "decoding on a CPU: matrices laid out once as the product wants them",
        lambda: PathChoice(True, "on every CPU"),
        (Measured(1.44, XEON, "2026-11-15"),),
    ),
    FastPath(
        "8 bits",
        "decoding on a CPU by CTranslate2, weights in 8 bits",
        choose_int8,
        (Measured(2.0, XEON, "2026-11-15"), Measured(1.8, NEOVERSE, "2026-11-15")),
    ),
    FastPath(
        "captured step",
        "decoding and training on a GPU: a whole step recorded once and replayed",
        choose_on_gpu(lambda gpu: True, ""),
        (Measured(6.9, H200, "2026-11-15"),),
    ),
    FastPath(
        "decoding kernels",
        "decoding on a GPU: norm, product, attention and the beam's choice as kernels of ours",
        choose_on_gpu(lambda gpu: machine.has_triton() and gpu.capability >= (8, 0), "needs Triton and capability 8.0"),
        (Measured(1.27, H200, "2026-11-15"),),  # the beam's choice alone: the device busy 191 ms in place of 242
    ),
    FastPath(
        "early start",
        "decoding on a GPU: a kernel fetches its weights while the one before it still runs",
        choose_on_gpu(lambda gpu: gpu.overlaps_launches and machine.has_triton(), "needs capability 9.0"),
        (Measured(1.2, H200, "2026-11-15"),),
    ),
    FastPath(
        "8-bit training",
        "train.precision=fp8: products of the blocks and of the output layer in 8-bit floats",
        choose_on_gpu(lambda gpu: gpu.has_float8 and machine.has_triton(), "needs capability 8.9"),
        (Measured(1.19, H200, "2026-11-15"),),
    ),
)


def choices() -> list[tuple[FastPath, PathChoice]]:
    """Every path with what was chosen on this machine. Trials that were never made here are made now."""
    return [(path, path.choose()) for path in PATHS]
