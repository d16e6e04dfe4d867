"""The weights of every attention, as its softmax leaves them and as they multiply the values: a row adds up to 1."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.overrides import TorchFunctionMode

from glassformer_lab.audit.result import AuditResult, calling_line
from glassformer_lab.audit.subject import Subject

PRODUCTS = ("matmul", "__matmul__", "bmm", "einsum")
SOURCE, TARGET = 13, 11
"""Lengths that no other size of a model is likely to have."""


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
