"""Decoding without a cache, the reference that nobody has to optimise: the model reads the whole text again for every token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from glassformer.config import DecodeConfig
from glassformer.decode.driver import Driver
from glassformer.decode.generate import answers_of
from glassformer.decode.request import Hypothesis, Request, SpecialTokens
from glassformer.decode.search import SearchState
from glassformer.decode.slots import Job, Slots
from glassformer.decode.stepper import Stepper, Texts, context_start
from glassformer.nn.rows import Rows


class UncachedStepper:
    """The logits of what may follow, from the whole texts."""

    may_join = False

    def __init__(self, model: Any, special: SpecialTokens) -> None:
        self.model, self.special = model, special

    def prefill(self, start: int, jobs: Sequence[Job], texts: Texts, copies: int) -> None:
        assert start == 0
        self.texts = [list(text) for text in texts for _ in range(copies)]

    def logits(self, state: Slots, n: int) -> Tensor:
        written = state.ids[:n, :, : state.written_host[0]].tolist()
        rows = [(text, own) for text, beams in zip(self.texts, written, strict=True) for own in beams]
        if self.model.config.family == "transformer":
            target = Rows.from_lists([[self.special.bos, *own] for _, own in rows])
            logits = self.model(Rows.from_lists([text for text, _ in rows]), target)
            return logits[:, -1]  # type: ignore[no-any-return]
        contexts = [[*text, *own] for text, own in rows]
        contexts = [context[context_start(len(context), self.model.config) :] for context in contexts]
        ends = torch.tensor([len(context) - 1 for context in contexts])
        return self.model(Rows.from_lists(contexts))[torch.arange(len(ends)), ends]  # type: ignore[no-any-return]

    def reorder(self, parents: Tensor, tokens: Tensor) -> None:
        pass

    def move(self, from_slots: Sequence[int], to_slots: Sequence[int], n: int) -> None:
        for source, target in zip(from_slots, to_slots, strict=True):
            self.texts[target] = self.texts[source]
        self.texts = self.texts[:n]


class UncachedDriver(Driver):
    """A driver with that stepper."""

    def start(self) -> tuple[Stepper, SearchState]:
        return UncachedStepper(self.model, self.special), super().start()[1]


def uncached_batch(model: Any, texts: Texts, config: DecodeConfig) -> list[list[Hypothesis]]:
    """As `translate_batch`."""
    requests = [Request(list(text)) for text in texts]
    return [hypotheses for _, hypotheses in answers_of(UncachedDriver(model, config), requests, in_order=True)]
