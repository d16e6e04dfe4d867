"""Where the search meets a model: two ways to get the logits of what may follow, for slots that come and go.

`Stepper` says what a driver asks of one. `ModelStepper` is a model on its cache: the model itself, or its copy for decoding
(engines.py). `ExternalStepper` runs a program of somebody else's that has the model's calls; it starts with a full batch and lets
nobody join.

A GPT that learned its positions, or was only ever shown so many (sinusoidal), cannot go on past `block_size`. When its
context is full, the last half of it is kept and its keys and values are recomputed from position 0;
which tokens those are depends on the row's own length alone. The other position schemes have no end.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from itertools import chain
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from glassformer.config import ModelConfig
from glassformer.decode.slots import Job, Slots
from glassformer.errors import Notice
from glassformer.language import _
from glassformer.nn.cache import KVCache
from glassformer.nn.rows import Rows, on_device

SLOT_STEP = 256  # slots from bucket to bucket, where there are many


def slot_bucket(number: int) -> int:
    """The bucket of a number of slots. There are few, since each is captured anew; of few slots one more costs little."""
    return next_power_of_2(number, least=1) if number <= 2 * SLOT_STEP else -(-number // SLOT_STEP) * SLOT_STEP


def next_power_of_2(number: int, *, least: int = 16) -> int:
    """The power of two that is at least so large."""
    return max(least, 1 << (number - 1).bit_length())


def width_bucket(number: int, *, least: int = 8) -> int:
    """The bucket of a width: steps of an eighth to a quarter of it, so that there are few and little is wasted."""
    step = least
    while number > 8 * step:
        step *= 2
    return -(-number // step) * step


Texts = Sequence[Sequence[int]]


def has_bounded_context(model: ModelConfig) -> bool:
    """Must a GPT's context be cut at block_size?"""
    return model.positions in ("learned", "sinusoidal")


def context_start(length: int, model: ModelConfig) -> int:
    """Where the context of a text of `length` tokens begins: 0, until positions run out."""
    if not has_bounded_context(model) or length <= model.block_size:
        return 0
    stride = model.block_size - model.block_size // 2 + 1
    return -(-(length - model.block_size) // stride) * stride


def padded_rows(texts: Texts, device: torch.device, width: int = 0) -> Rows:
    """One text a row, padded to the longest, or to `width`, on a device."""
    lengths = np.fromiter(map(len, texts), dtype=np.int64, count=len(texts))
    width = max(width, int(lengths.max()))
    tokens = np.zeros((len(texts), width), dtype=np.int64)
    real = np.arange(width) < lengths[:, None]
    tokens[real] = np.fromiter(chain.from_iterable(texts), dtype=np.int64, count=int(lengths.sum()))
    if real.all():
        return Rows.whole(on_device(tokens, device))
    positions = torch.arange(width, device=device).expand(len(texts), -1)
    segments = (positions < on_device(lengths, device)[:, None]).long()
    return Rows(on_device(tokens, device), segments, positions, "padded")


@runtime_checkable
class Stepper(Protocol):
    """All that a driver knows of a model."""

    may_join: bool  # may texts be prefilled while others are being answered?

    def prefill(self, start: int, jobs: Sequence[Job], texts: Texts, copies: int) -> None:
        """Texts take the slots from `start` on, each for `copies` jobs."""

    def logits(self, state: Slots, n: int) -> Float[Tensor, "R V"]:
        """The logits of what may follow each row of the first n slots."""

    def reorder(self, parents: Int[Tensor, "n K"], tokens: Int[Tensor, "n K"]) -> None:
        """Row k of a slot continues row parents[n, k], with this token."""

    def move(self, from_slots: Sequence[int], to_slots: Sequence[int], n: int) -> None:
        """Slots `from_slots` move to the places of those that have left; n stay."""


class ModelStepper:
    """A model, or its copy for decoding, on its cache."""

    may_join = True

    def __init__(self, model: Any, n_slots: int, beams: int, bos: int) -> None:
        self.model, self.n_slots, self.beams, self.bos = model, n_slots, beams, bos
        self.config: ModelConfig = model.config
        self.has_source = self.config.family == "transformer"
        self.cache: KVCache | None = None
        self.texts: list[Sequence[int]] = []  # of a GPT: the prompt of each slot
        self.warned = False  # that a text has outgrown its positions

    def source_width(self, texts: Texts) -> int:
        """The width of the rows in which these sources are encoded."""
        return max(map(len, texts))

    def prefill(self, start: int, jobs: Sequence[Job], texts: Texts, copies: int) -> None:
        """`texts` are encoded or prefilled once each, for `copies` slots."""
        model, config, end, limit = self.model, self.config, start + len(jobs), max(job.limit for job in jobs)
        contexts = texts if self.has_source else [text[context_start(len(text), config) :] for text in texts]
        source, prompt = (self.source_width(texts), 0) if self.has_source else (0, max(map(len, contexts)))
        columns = prompt + limit * self.beams
        if self.cache is None:
            self.cache = model.make_cache(self.n_slots, columns, beams=self.beams, source=source)
        self.cache.grow(columns, source)
        # A decoder with a source never reads its own text again, so a table that can grow must hold all of it.
        bounded = has_bounded_context(config) and not (self.has_source and config.positions == "sinusoidal")
        model.grow_tables(min(prompt + limit, config.block_size) if bounded else prompt + limit)
        self.texts[start:] = [text for text in texts for _ in range(copies)]
        device = self.cache.tokens.device
        first = [self.bos if self.has_source else text[-1] for text in self.texts[start:]]
        if self.has_source:
            model.prefill(padded_rows(texts, device, source), self.cache, start, copies=copies)
        else:
            self.cache.begin(start, end)
            self.read_prompts(range(start, end), [context[:-1] for context in contexts], copies)
        self.cache.tokens[start:end] = on_device(first, device)[:, None]

    def read_prompts(self, slots: Sequence[int], contexts: Texts, copies: int = 1) -> None:
        """A GPT reads contexts into slots."""
        assert self.cache is not None
        rows = padded_rows(contexts, self.cache.tokens.device)
        self.model.prefill(rows.tokens, list(map(len, contexts)), self.cache, slots, copies=copies)

    def logits(self, state: Slots, n: int) -> Float[Tensor, "R V"]:
        """A step of the model; before it, contexts that are full are recomputed."""
        assert self.cache is not None
        cache = self.cache
        if not self.has_source and has_bounded_context(self.config):
            self.recompute_contexts(state, n)
        n_keys = cache.filled(n) + self.beams
        if n_keys > cache.capacity:  # who joined beside longer ones stands further right than its own text needs
            cache.grow(n_keys + n_keys // 2)
        tokens = cache.tokens[:n].view(-1, 1)
        logits = self.model.step(tokens, cache, n_keys=n_keys, n_source=cache.source_width(n))
        return logits[:, -1]  # type: ignore[no-any-return]

    def recompute_contexts(self, state: Slots, n: int) -> None:
        """Prefills the last half of every context that is full anew, one for each beam."""
        assert self.cache is not None
        config, slots, contexts = self.config, [], []
        for slot, (text, written) in enumerate(zip(self.texts[:n], state.written_host)):
            length = len(text) + int(written)
            if (
                written
                and length > config.block_size
                and context_start(length, config) != context_start(length - 1, config)
            ):
                slots.append(slot)
                for ids in state.ids[slot, :, :written].tolist():
                    contexts.append([*text, *ids][context_start(length, config) : -1])
        if slots and not self.warned:
            self.warned = True
            sentence = _(
                "a text has grown past the {block_size} tokens this model reads at once: from there on it sees the "
                "last of them only",
                block_size=config.block_size,
            )
            warnings.warn(Notice(sentence), stacklevel=2)
        if slots:
            self.cache.grow(self.beams * (config.block_size + 1))
            self.read_prompts(slots, contexts)

    def reorder(self, parents: Int[Tensor, "n K"], tokens: Int[Tensor, "n K"]) -> None:
        """The cache's beams continue their parents."""
        assert self.cache is not None
        n, cache = tokens.size(0), self.cache
        cache.tokens[:n] = tokens
        if self.beams > 1:
            cache.reorder(parents)
            if not cache.static and cache.tokens.device.type == "cpu":
                cache.compact(n)

    def move(self, from_slots: Sequence[int], to_slots: Sequence[int], n: int) -> None:
        """The cache's slots move."""
        assert self.cache is not None
        self.cache.move(from_slots, to_slots)
        for source, target in zip(from_slots, to_slots, strict=True):
            self.texts[target] = self.texts[source]
        self.texts = self.texts[:n]


class ExternalStepper:
    """The `start` and `step` of somebody else's program."""

    may_join = False

    def __init__(self, model: Any, beams: int, bos: int) -> None:
        self.model, self.beams, self.bos = model, beams, bos
        self.has_source = model.config.family == "transformer"
        self.state: Any = None

    def prefill(self, start: int, jobs: Sequence[Job], texts: Texts, copies: int) -> None:
        """The sources are encoded; prompts are read with the first logits."""
        assert start == 0
        self.texts = [list(text) for text in texts for _ in range(copies)]
        self.state = None
        if self.has_source:
            sources = padded_rows(self.texts, torch.device("cpu"))
            self.state = self.model.start(sources, max(job.limit for job in jobs), beams=self.beams)
        first = [[self.bos if self.has_source else text[-1]] for text in self.texts]
        self.tokens = torch.tensor(first).expand(-1, self.beams)

    def logits(self, state: Slots, n: int) -> Float[Tensor, "R V"]:
        """A step of the model on its own cache; before it, where a context begins further right, all are read again."""
        config = self.model.config
        lengths = [len(text) + int(written) for text, written in zip(self.texts, state.written_host)]
        moved = any(context_start(x, config) != context_start(x - 1, config) for x in lengths)
        if not self.has_source and (self.state is None or moved):
            ids = state.ids[:n, :, : state.written_host[0]].flatten(0, 1).tolist()
            texts = [[*self.texts[row // self.beams], *written] for row, written in enumerate(ids)]
            contexts = [text[context_start(len(text), config) : -1] for text in texts]
            self.state = self.model.start(len(contexts))
            if any(contexts):
                self.model.step(padded_rows(contexts, torch.device("cpu")).tokens, self.state, list(map(len, contexts)))
        return self.model.step(self.tokens.reshape(-1, 1), self.state)[:, -1]  # type: ignore[no-any-return]

    def reorder(self, parents: Int[Tensor, "n K"], tokens: Int[Tensor, "n K"]) -> None:
        """The model's cache continues the parents."""
        self.tokens = tokens
        rows = (torch.arange(parents.size(0))[:, None] * self.beams + parents).flatten()
        if not torch.equal(rows, torch.arange(rows.size(0))):
            self.state.reorder(rows)

    def move(self, from_slots: Sequence[int], to_slots: Sequence[int], n: int) -> None:
        """The rows of the slots that stay."""
        order = list(range(len(self.texts)))
        for source, target in zip(from_slots, to_slots, strict=True):
            order[target] = source
        which = torch.tensor(order[:n])
        kept = (which[:, None] * self.beams + torch.arange(self.beams)).flatten()
        self.texts = [self.texts[i] for i in order[:n]]
        self.tokens = self.tokens[which]
        if self.state is not None:
            self.state.reorder(kept)
