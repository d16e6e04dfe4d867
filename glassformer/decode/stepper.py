"""Where the search meets a model: two ways to get the scores of what may follow, for slots that come and go.

    enter(start, jobs, texts)   sources or prompts take the slots from `start` on; `strict`: in rows of one width
    logits(state)               what may follow every row, (n * K, V)
    follow(parents, tokens)     row k of a slot goes on from what row parents[n, k] was, with this token
    move(rows, places, n)       slots take the places of those that have left; n stay

`CachedSteps` is the decoder on the cache (decoder.py). `PlainSteps` is the model itself, one token at a time: the reference that
nobody has to optimise, and what runs while someone listens to the model. It starts with a full batch and lets nobody join.

A GPT that learned its positions, or was only ever shown so many (sinusoidal), cannot go on past `block_size`. When its context
is full, the last half of it is kept and read in again from position 0, with and without a cache; which tokens those are
depends on the row's own length alone. The other position schemes have no end.
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
from glassformer.decode.cache import Cache, on_device
from glassformer.decode.decoder import Decoder
from glassformer.decode.slots import Job, Slots
from glassformer.nn.rows import Rows

Texts = Sequence[Sequence[int]]


def has_window(model: ModelConfig) -> bool:
    """Does a GPT's context have to be cut at block_size?"""
    return model.positions in ("learned", "sinusoidal")


def context_start(length: int, model: ModelConfig) -> int:
    """Where the context of a text of so many tokens begins: 0, until positions run out."""
    if not has_window(model) or length <= model.block_size:
        return 0
    stride = model.block_size - model.block_size // 2 + 1
    return -(-(length - model.block_size) // stride) * stride


def in_rows(texts: Texts, width: int | None, device: torch.device) -> Rows:
    """One text a row, padded to `width` or the longest, on a device."""
    lengths = np.fromiter(map(len, texts), dtype=np.int64, count=len(texts))
    wide = int(lengths.max()) if width is None else width
    tokens = np.zeros((len(texts), wide), dtype=np.int64)
    real = np.arange(wide) < lengths[:, None]
    tokens[real] = np.fromiter(chain.from_iterable(texts), dtype=np.int64, count=int(lengths.sum()))
    if real.all():
        return Rows.whole(on_device(tokens, device))
    positions = torch.arange(wide, device=device).expand(len(texts), -1)
    segments = (positions < on_device(lengths, device)[:, None]).long()
    return Rows(on_device(tokens, device), segments, positions, "padded")


@runtime_checkable
class Steps(Protocol):
    """All that a driver knows of a model."""

    may_join: bool  # may texts enter while others are being answered?

    def enter(self, start: int, jobs: Sequence[Job], texts: Texts, copies: int, width: int | None) -> None:
        """Texts take the slots from `start` on, each for `copies` jobs; `width`: in rows as wide as this."""

    def logits(self, state: Slots, n: int) -> Float[Tensor, "R V"]:
        """What may follow each row of the first n slots."""

    def follow(self, parents: Int[Tensor, "n K"], tokens: Int[Tensor, "n K"]) -> None:
        """Row k of a slot goes on from what row parents[n, k] was, with this token."""

    def move(self, rows: Sequence[int], places: Sequence[int], n: int) -> None:
        """Slots `rows` take the places of those that have left; n stay."""


class CachedSteps:
    """The decoder on the cache."""

    may_join = True

    def __init__(self, decoder: Decoder, slots: int, beams: int, bos: int, *, strict: bool = False) -> None:
        self.decoder, self.slots, self.beams, self.bos, self.strict = decoder, slots, beams, bos, strict
        self.cache: Cache | None = None
        self.texts: list[Sequence[int]] = []  # of a GPT: the prompt of each slot
        self.said = False  # that a text has outgrown its positions
        self.whole_rows = strict  # sources are computed with their padding

    def enter(self, start: int, jobs: Sequence[Job], texts: Texts, copies: int, width: int | None) -> None:
        """`texts` are read once each, for `copies` slots."""
        decoder, end, limit = self.decoder, start + len(jobs), max(job.limit for job in jobs)
        source = max(map(len, texts)) if width is None else width
        contexts: Texts = ()
        if not decoder.has_source:
            contexts = [text[context_start(len(text), decoder.config) :] for text in texts]
        prompt = 0 if decoder.has_source else max(map(len, contexts)) if width is None else width
        columns = prompt + limit * self.beams
        if self.cache is None:
            self.cache = decoder.make_cache(self.slots, self.beams, columns, source if decoder.has_source else 0)
        self.cache.grow(columns, source if decoder.has_source else 0)
        longest = prompt + limit
        # A decoder with a source never reads its own text again, so a table that can grow must hold all of it.
        bounded = has_window(decoder.config) and not (decoder.has_source and decoder.config.positions == "sinusoidal")
        decoder.grow_tables(min(longest, decoder.config.block_size) if bounded else longest)
        self.texts[start:] = [text for text in texts for _ in range(copies)]
        device = self.cache.tokens.device
        first = [self.bos if decoder.has_source else text[-1] for text in self.texts[start:]]
        self.cache.begin(start, end, on_device(first, device)[:, None])
        if decoder.has_source:
            rows = in_rows(texts, width, device)
            decoder.read_sources(self.cache, start, rows, copies=copies, whole_rows=self.whole_rows)
        else:
            before = [context[:-1] for context in contexts]
            wide = None if width is None else width - 1
            decoder.read_prompts(self.cache, range(start, end), before, copies=copies, width=wide)

    def logits(self, state: Slots, n: int) -> Float[Tensor, "R V"]:
        """A step of the decoder; before it, contexts that are full are read again."""
        assert self.cache is not None
        cache, decoder = self.cache, self.decoder
        if not decoder.has_source and has_window(decoder.config):
            self.read_again(state, n)
        n_keys = cache.filled(n) + self.beams
        if n_keys > cache.capacity:  # who joined beside longer ones stands further right than its own text needs
            cache.grow(n_keys + n_keys // 2)
        return decoder.step(cache, n, n_keys, cache.source_width(n))

    def read_again(self, state: Slots, n: int) -> None:
        """Slots whose context is full read the last half of it anew, each beam its own."""
        assert self.cache is not None
        config, slots, contexts = self.decoder.config, [], []
        for slot, (text, age) in enumerate(zip(self.texts[:n], state.ages)):
            length = len(text) + int(age)
            if (
                age
                and length > config.block_size
                and context_start(length, config) != context_start(length - 1, config)
            ):
                slots.append(slot)
                for ids in state.ids[slot, :, :age].tolist():
                    contexts.append([*text, *ids][context_start(length, config) : -1])
        if slots and not self.said:
            self.said = True
            warnings.warn(
                f"a text has grown past the {config.block_size} tokens this model reads at once: from there on it sees the "
                "last of them only",
                stacklevel=2,
            )
        if slots:
            self.cache.grow(self.beams * (config.block_size + 1))
            self.decoder.read_prompts(self.cache, slots, contexts)

    def follow(self, parents: Int[Tensor, "n K"], tokens: Int[Tensor, "n K"]) -> None:
        """The cache's beams go on from their parents."""
        assert self.cache is not None
        n, cache = tokens.size(0), self.cache
        cache.tokens[:n] = tokens
        if self.beams > 1:
            cache.reorder(parents, cache.filled(n))
            if not self.strict and not cache.static:
                cache.compact(n)

    def move(self, rows: Sequence[int], places: Sequence[int], n: int) -> None:
        """The cache's slots change places."""
        assert self.cache is not None
        self.cache.move(rows, places)
        for row, place in zip(rows, places, strict=True):
            self.texts[place] = self.texts[row]
        self.texts = self.texts[:n]


class PlainSteps:
    """The model's own `start` and `step`; or, not `cached`, everything read anew for every token."""

    may_join = False

    def __init__(self, model: Any, beams: int, bos: int, *, cached: bool = True) -> None:
        self.model, self.beams, self.bos, self.cached = model, beams, bos, cached
        self.device = next(model.parameters()).device
        self.has_source = model.config.family == "transformer"
        self.state: Any = None
        self.room = 0  # tokens that the state can still take

    def enter(self, start: int, jobs: Sequence[Job], texts: Texts, copies: int, width: int | None) -> None:
        """The sources are encoded; prompts are read with the first scores."""
        assert start == 0
        self.texts = [list(text) for text in texts for _ in range(copies)]
        self.limit, self.state = max(job.limit for job in jobs), None
        if self.has_source:
            self.rows = in_rows(self.texts, width, self.device)
            if self.cached:
                self.state = self.model.start(self.rows, self.limit, beams=self.beams)
        self.tokens = torch.tensor([[self.bos if self.has_source else text[-1]] for text in self.texts])
        self.tokens = self.tokens.expand(-1, self.beams).to(self.device)
        self.width = width

    def written(self, state: Slots, n: int) -> list[list[int]]:
        """Every row's text so far, prompt or source before it."""
        ids = state.ids[:n, :, : state.ages[0]].flatten(0, 1).tolist()
        return [[*self.texts[row // self.beams], *own] for row, own in enumerate(ids)]

    def logits(self, state: Slots, n: int) -> Float[Tensor, "R V"]:
        """A step of the model on its own cache."""
        if not self.cached:
            return self.read_everything(state, n)
        if not self.has_source:
            config = self.model.config
            lengths = [len(text) + int(age) for text, age in zip(self.texts, state.ages)]
            moved = any(context_start(x, config) != context_start(x - 1, config) for x in lengths)
            if self.state is None or moved or self.room < 1:
                self.read(state, n)
            self.room -= 1
        return self.model.step(self.tokens.reshape(-1, 1), self.state)[:, -1]  # type: ignore[no-any-return]

    def read(self, state: Slots, n: int) -> None:
        """All but the last token of every row's context, into a fresh cache."""
        config, texts = self.model.config, self.written(state, n)
        contexts = [text[context_start(len(text), config) : -1] for text in texts]
        lengths = [len(context) for context in contexts]
        first = self.width is not None and not state.ages[0]
        width = self.width - 1 if first and self.width is not None else max(lengths)
        most = width + self.limit
        most = min(most, config.block_size) if has_window(config) else most
        self.state, self.room = self.model.start(len(contexts), most), most - width
        if width:
            tokens = torch.tensor([[*context, *[0] * (width - len(context))] for context in contexts])
            self.model.step(tokens.to(self.device), self.state, lengths)

    def read_everything(self, state: Slots, n: int) -> Float[Tensor, "R V"]:
        """The scores of the last places, nothing remembered."""
        texts = self.written(state, n)
        if self.has_source:
            # The source is not part of what was written.
            targets = [[self.bos, *text[len(self.texts[row // self.beams]) :]] for row, text in enumerate(texts)]
            which = torch.arange(n).repeat_interleave(self.beams).to(self.device)
            rows = self.rows
            source = Rows(rows.tokens[which], rows.segments[which], rows.positions[which], rows.layout)
            return self.model(source, Rows.from_lists(targets).to(self.device))[:, -1]  # type: ignore[no-any-return]
        contexts = [text[context_start(len(text), self.model.config) :] for text in texts]
        logits = self.model(Rows.from_lists(contexts).to(self.device))
        return logits[torch.arange(len(contexts)), torch.tensor([len(c) - 1 for c in contexts])]  # type: ignore[no-any-return]

    def follow(self, parents: Int[Tensor, "n K"], tokens: Int[Tensor, "n K"]) -> None:
        """The model's cache goes on from the parents."""
        self.tokens = tokens
        rows = (torch.arange(parents.size(0), device=parents.device)[:, None] * self.beams + parents).flatten()
        if self.cached and not torch.equal(rows, torch.arange(rows.size(0), device=rows.device)):
            self.state.reorder(rows)

    def move(self, rows: Sequence[int], places: Sequence[int], n: int) -> None:
        """The rows of the slots that stay."""
        order = list(range(len(self.texts)))
        for row, place in zip(rows, places, strict=True):
            order[place] = row
        which = torch.tensor(order[:n], device=self.device)
        kept = (which[:, None] * self.beams + torch.arange(self.beams, device=self.device)).flatten()
        self.texts = [self.texts[i] for i in order[:n]]
        self.tokens = self.tokens[which]
        if self.cached and self.state is not None:
            self.state.reorder(kept)
        if self.has_source:
            rows_ = self.rows
            self.rows = Rows(rows_.tokens[which], rows_.segments[which], rows_.positions[which], rows_.layout)
