"""What happens inside somebody's model: every submodule's inputs and output, the first place where two runs part, and the weights
of every attention, as its softmax leaves them and as they multiply the values (a row adds up to 1)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from glassformer_lab.audit.making import AuditResult, calling_line
from glassformer_lab.audit.subject import Subject, find_output

PRODUCTS = ("matmul", "__matmul__", "bmm", "einsum")
SOURCE, TARGET = 13, 11
"""Lengths that no other size of a model is likely to have."""


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


@dataclass
class Weights:
    """(..., T, S) of one attention: what the softmax gives, where it is called, and the factor of the values."""

    softmax: Tensor
    where: str
    factor: Tensor | None = None

    @property
    def mistake(self) -> str:
        """The mistake that these weights show, or nothing."""
        if bool(((self.softmax.sum(-1) - 1).abs() > 1e-3).any()):
            return "softmax over the queries"
        if self.factor is None:
            return ""
        rows, hidden = self.factor.sum(-1), (self.factor == 0) & (self.softmax != 0)
        kept = (self.factor - self.softmax)[~hidden].abs().sum() < 1e-3
        return "masked after the softmax" if kept and bool(((rows > 0) & (rows < 1 - 1e-3)).any()) else ""


class WeightsWatch(TorchFunctionMode):
    """Inside, every softmax over positions is noted, and the product of matrices that follows it."""

    def __init__(self) -> None:
        super().__init__()
        self.attentions: list[Weights] = []

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """What torch returns, noted."""
        out, name = func(*args, **(kwargs or {})), getattr(func, "__name__", "")
        if name == "softmax" and {SOURCE, TARGET}.issuperset(out.shape[-2:]) and out.dim() > 1:
            self.attentions.append(Weights(out.clone(), calling_line()))
        elif name in PRODUCTS and self.attentions and (last := self.attentions[-1]).factor is None:
            factors = (one for one in args if isinstance(one, Tensor) and one.shape[-2:] == last.softmax.shape[-2:])
            last.factor = next((f.view_as(last.softmax) for f in factors if f.numel() == last.softmax.numel()), None)
        return out


def weights(subject: Subject) -> Iterator[AuditResult]:
    """The rows of every attention's weights add up to 1, where they can be seen."""
    with WeightsWatch() as watch:
        subject.logits(subject.texts(2, SOURCE, TARGET))
    wrong = [(one.mistake, one.where) for one in watch.attentions if one.mistake]
    for mistake, where in wrong[:1] or [("", "")] * bool(watch.attentions):
        yield AuditResult("weights", not mistake, mistake, "", where)
