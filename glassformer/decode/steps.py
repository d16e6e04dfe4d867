"""Where search meets a model: `scores(written)` for the next token of every row, `reorder(rows)` as hypotheses come and go.

Search hands over all that has been written since the start, the same number of tokens in every row. The cached readers
feed the model the last of them and keep the rest in its cache. The uncached ones read everything again, the way most
tutorials do it: they are the reference the cached ones are held to, and the slow side of the comparison.

Rows of one sentence (its beams or samples) stand together; `reorder` keeps them together, and only whole sentences leave.

A GPT with learned positions has no row for what comes after `block_size`. When its context is full, the last half of it
is kept and read in again from position 0, with and without a cache; which tokens those are depends on the row's own length
alone. Every other position scheme has no end and simply goes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from glassformer.config import ModelConfig
from glassformer.nn.rows import Rows


@runtime_checkable
class EncoderDecoder(Protocol):
    """A model that reads a source and writes a target."""

    @property
    def config(self) -> ModelConfig: ...
    def start(self, source: Rows, capacity: int, *, beams: int = 1) -> Any: ...
    def step(self, tokens: Tensor, state: Any, lengths: Sequence[int] | None = None) -> Tensor: ...
    def parameters(self) -> Any: ...


@runtime_checkable
class LanguageModel(Protocol):
    """A model that continues a text."""

    @property
    def config(self) -> ModelConfig: ...
    def start(self, rows: int, capacity: int) -> Any: ...
    def step(self, tokens: Tensor, state: Any, lengths: Sequence[int] | None = None) -> Tensor: ...
    def parameters(self) -> Any: ...


@runtime_checkable
class Steps(Protocol):
    """All that a search knows of a model."""

    def scores(self, written: Int[Tensor, "R T"]) -> Float[Tensor, "R V"]: ...
    def reorder(self, rows: Int[Tensor, "N"]) -> None: ...


def device_of(model: Any) -> torch.device:
    return next(model.parameters()).device


class SourceSteps:
    """An encoder-decoder with a cache. The source is read once a sentence, whatever the number of beams."""

    def __init__(self, model: EncoderDecoder, source: Rows, *, beams: int, capacity: int, bos: int) -> None:
        self.model, self.bos = model, bos
        self.state = model.start(source.to(device_of(model)), capacity, beams=beams)

    def scores(self, written: Int[Tensor, "R T"]) -> Float[Tensor, "R V"]:
        last = written[:, -1:] if written.size(1) else written.new_full((written.size(0), 1), self.bos)
        return self.model.step(last, self.state)[:, -1]

    def reorder(self, rows: Int[Tensor, "N"]) -> None:
        self.state.reorder(rows)


def context_start(length: int, model: ModelConfig) -> int:
    """Where the context of a text of so many tokens begins: 0, until learned positions run out."""
    if model.positions != "learned" or length <= model.block_size:
        return 0
    stride = model.block_size - model.block_size // 2 + 1
    return -(-(length - model.block_size) // stride) * stride


class PromptSteps:
    """A GPT with a cache. Prompts of different lengths are read together, padded on the right, to `width` if given."""

    def __init__(
        self,
        model: LanguageModel,
        prompts: Sequence[Sequence[int]],
        *,
        beams: int,
        most: int,
        width: int | None = None,
    ) -> None:
        self.model, self.beams = model, beams
        self.prompts = [list(prompt) for prompt in prompts]
        self.most = most
        self.width = width
        self.state: Any = None
        self.room = 0

    def scores(self, written: Int[Tensor, "R T"]) -> Float[Tensor, "R V"]:
        if self.state is None:
            scores = self.read(self.prompts, self.width, self.most)
            if self.beams == 1:
                return scores
            rows = torch.arange(len(self.prompts), device=scores.device).repeat_interleave(self.beams)
            self.reorder(rows)
            return scores.index_select(0, rows)
        lengths = [len(prompt) + written.size(1) for prompt in self.prompts]
        moved = any(context_start(n, self.model.config) != context_start(n - 1, self.model.config) for n in lengths)
        if moved or self.room < 1:
            texts = [prompt + new for prompt, new in zip(self.prompts, written.tolist())]
            return self.read(texts, None, self.most - written.size(1))
        self.room -= 1
        return self.model.step(written[:, -1:], self.state)[:, -1]

    def read(self, texts: Sequence[Sequence[int]], width: int | None, most: int) -> Float[Tensor, "R V"]:
        """Read the context of every text into a fresh cache, with room for `most` further tokens where there is any."""
        contexts = [text[context_start(len(text), self.model.config) :] for text in texts]
        lengths = [len(context) for context in contexts]
        width = max(lengths) if width is None else width
        capacity = width + most
        if self.model.config.positions == "learned":
            capacity = min(capacity, self.model.config.block_size)
        tokens = torch.tensor([[*context, *[0] * (width - len(context))] for context in contexts])
        tokens = tokens.to(device_of(self.model))
        self.state = self.model.start(len(contexts), capacity)
        self.room = capacity - width
        logits = self.model.step(tokens, self.state, lengths)
        return logits[torch.arange(len(contexts)), torch.tensor(lengths) - 1]

    def reorder(self, rows: Int[Tensor, "N"]) -> None:
        self.state.reorder(rows)
        self.prompts = [self.prompts[i] for i in rows.tolist()]


class UncachedSourceSteps:
    """An encoder-decoder that reads source and target anew for every token. `model(source, target)` gives logits."""

    def __init__(self, model: Any, source: Rows, *, beams: int, bos: int) -> None:
        self.model, self.bos = model, bos
        self.source = select(source.to(device_of(model)), torch.arange(source.shape[0]).repeat_interleave(beams))

    def scores(self, written: Int[Tensor, "R T"]) -> Float[Tensor, "R V"]:
        start = written.new_full((written.size(0), 1), self.bos)
        return self.model(self.source, Rows.whole(torch.cat([start, written], dim=1)))[:, -1]

    def reorder(self, rows: Int[Tensor, "N"]) -> None:
        self.source = select(self.source, rows)


class UncachedPromptSteps:
    """A GPT that reads the whole context anew for every token. `model(rows)` gives logits."""

    def __init__(self, model: Any, prompts: Sequence[Sequence[int]], *, beams: int) -> None:
        self.model = model
        self.prompts = [list(prompt) for prompt in prompts for _ in range(beams)]

    def scores(self, written: Int[Tensor, "R T"]) -> Float[Tensor, "R V"]:
        texts = [prompt + new for prompt, new in zip(self.prompts, written.tolist())]
        contexts = [text[context_start(len(text), self.model.config) :] for text in texts]
        logits = self.model(Rows.from_lists(contexts).to(device_of(self.model)))
        return logits[torch.arange(len(contexts)), torch.tensor([len(context) - 1 for context in contexts])]

    def reorder(self, rows: Int[Tensor, "N"]) -> None:
        self.prompts = [self.prompts[i] for i in rows.tolist()]


def select(rows: Rows, which: Int[Tensor, "N"]) -> Rows:
    which = which.to(rows.tokens.device)
    return Rows(rows.tokens[which], rows.segments[which], rows.positions[which], rows.layout)
