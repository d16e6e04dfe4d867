"""What happens inside somebody's model: every submodule's inputs and output, and the first place where two runs part."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from glassformer_lab.audit.subject import Subject, find_output


def apart(a: Tensor, b: Tensor) -> float:
    """The largest difference, as a share of the largest number."""
    return float((a - b).abs().max() / a.abs().max().clamp(min=1e-30)) if a.numel() else 0.0


@dataclass(frozen=True)
class Passed:
    """One call of a submodule: the tensors that went in, and what came out."""

    name: str
    module: nn.Module
    inputs: list[Tensor]
    output: Tensor


def watch(subject: Subject, texts: Sequence[Tensor]) -> list[Passed]:
    """Every call of a submodule, in the order in which they end, so that parts come before the whole."""
    found: list[Passed] = []

    def note(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: Any, words: Any, out: Any) -> None:
            with contextlib.suppress(TypeError):
                inputs = [a for a in (*args, *words.values()) if isinstance(a, Tensor)]
                found.append(Passed(name, module, inputs, find_output(out).detach()))

        return hook

    hooks = [m.register_forward_hook(note(n), with_kwargs=True) for n, m in subject.model.named_modules() if n]
    try:
        subject.logits(texts)
    finally:
        for handle in hooks:
            handle.remove()
    return found


def place_of(
    subject: Subject, one: Sequence[Tensor], other: Sequence[Tensor], part: Callable[[Tensor], Tensor | None]
) -> tuple[int, Passed | None]:
    """The first and innermost submodule whose inputs are the same in this part of two runs, and whose output is not."""
    calls, others = watch(subject, one), watch(subject, other)

    def moved(a: Tensor, b: Tensor) -> bool:
        x, y = part(a), part(b)
        return x is not None and y is not None and apart(x.double(), y.double()) > subject.tolerance

    for number, (a, b) in enumerate(zip(calls, others)):
        inputs = [(x, y) for x, y in zip(a.inputs, b.inputs) if part(x) is not None]
        if inputs and moved(a.output, b.output) and not any(moved(*pair) for pair in inputs):
            return number, a
    return -1, None


def in_text(subject: Subject, length: int, places: slice) -> Callable[[Tensor], Tensor | None]:
    """Of an activation (B, T, ...) of this length the given places; None for any other tensor."""
    axis = 0 if subject.time_first else 1
    return lambda x: x.movedim(axis, 0)[places] if 1 < x.dim() < 4 and x.size(axis) == length else None
