"""An external vocabulary in our order: control ids first, then every other word as it was.

Everywhere here ids 0 to 4 are PAD, BOS, EOS, UNK and MASK, and no text can spell them. An external model has such ids
elsewhere, shares one between two jobs (GPT-2's end of text, Marian's padding that also starts the decoder), or lacks some.
So its words are put in our order: rows of its tables are permuted with them, and an id it lacks is a row of zeros whose
score is pushed down so far that it takes no probability. Nothing a model says changes: every real word keeps its row.

>>> Vocabulary(6, {2: 5, 3: 0}).order
(-1, -1, 5, 0, -1, 1, 2, 3, 4)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from glassformer.errors import UserError
from glassformer.text.tokenizer import CONTROL

NEVER = -1e4
"""Added to the score of an id that stands for nothing: its probability is exactly 0 in float32, and the
number still fits into 16 bits."""


@dataclass(frozen=True)
class Vocabulary:
    """`size` external ids, of which `control` says what each of ours is called there."""

    size: int
    control: Mapping[int, int]
    copies: Mapping[int, int] = field(default_factory=dict)  # ours that read as one of theirs and are never written

    def __post_init__(self) -> None:
        used = list(self.control.values())
        if len(set(used)) < len(used) or not all(0 <= i < self.size for i in used):
            raise UserError("the special ids {used} do not fit a vocabulary of {size:,} words", used, self.size)

    @cached_property
    def order(self) -> tuple[int, ...]:
        """Our id to theirs; -1 where they have none."""
        first = [self.control.get(i, -1) for i in range(CONTROL)]
        taken = set(first)
        return (*first, *(i for i in range(self.size) if i not in taken))

    @cached_property
    def ours(self) -> dict[int, int]:
        """The ids of the other vocabulary to ours."""
        return {theirs: ours for ours, theirs in enumerate(self.order) if theirs >= 0}

    @staticmethod
    def ours_alone(size: int) -> Vocabulary:
        """That of a model whose ids are ours."""
        return Vocabulary(size, {i: i for i in range(CONTROL)})

    @property
    def never(self) -> list[int]:
        """Our ids that are never written: those that stand for nothing there, and copies (which are in both lists)."""
        return [*(ours for ours, theirs in enumerate(self.order) if theirs < 0), *self.copies]

    @cached_property
    def reads_as(self) -> np.ndarray:
        """Our id to theirs as it is read: copies included; -1 where they have none."""
        return np.array([self.copies.get(ours, theirs) for ours, theirs in enumerate(self.order)])

    def theirs(self, ids: Iterable[int]) -> tuple[int, ...]:
        """Ids of ours as theirs."""
        return tuple(int(self.reads_as[i]) for i in ids)

    def scores(self, theirs: np.ndarray) -> np.ndarray:
        """Scores (T, V) with a column a word in our order; what is never written has none."""
        out = theirs[:, np.maximum(self.reads_as, 0)]
        out[:, self.never] = NEVER
        return out

    def rows(self, table: Float[Tensor, "V *C"]) -> Float[Tensor, "W *C"]:
        """A table with a row a word, in our order; zeros for what they lack. A table may have more rows than words."""
        order = torch.tensor(self.order)
        out = table.new_zeros(len(self.order), *table.shape[1:])
        out[order >= 0] = table[order[order >= 0]]
        for ours, theirs in self.copies.items():
            out[ours] = table[theirs]
        return out

    def back(self, table: Float[Tensor, "W *C"]) -> Float[Tensor, "V *C"]:
        """The way back: a table of ours in their order, without what they lack."""
        return table[torch.tensor([self.ours[theirs] for theirs in range(self.size)], device=table.device)]
