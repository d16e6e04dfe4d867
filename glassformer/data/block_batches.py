"""A text cut into blocks of equal length, from another first token (the phase) each epoch.

With N tokens and blocks of L, an epoch reads K = max(1, (N - L) // L) blocks end to end: every token of that stretch exactly
once, and the at most 2L - 1 tokens before and after it not at all, which are different ones each epoch.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Bool, Int

from glassformer.data.batch import Batch, Batches, EpochPlan
from glassformer.data.examples import IGNORE
from glassformer.data.packing import even_batches, share_out
from glassformer.data.stream import Stream, epoch_order, random_bits, uniform
from glassformer.data.tokens import TokenFile
from glassformer.errors import ConfigError, UserError
from glassformer.nn.rows import Rows
from glassformer.text.tokenizer import BOS, CONTROL, EOS, MASK, PAD


def close_rows(
    tokens: Int[np.ndarray, "n L"],
    labels: Int[np.ndarray, "n L"],
    segments: Int[np.ndarray, "n L"],
    positions: Int[np.ndarray, "n L"],
) -> tuple[Int[np.ndarray, "n M"], Int[np.ndarray, "n M"], Int[np.ndarray, "n M"], Int[np.ndarray, "n M"]]:
    """Rows with one place more, and EOS behind the last real token of each, as the last of its document."""
    rows, lengths = np.arange(len(tokens)), (segments > 0).sum(axis=1)
    wider = [np.pad(a, ((0, 0), (0, 1)), constant_values=v) for a, v in ((tokens, PAD), (labels, IGNORE))]
    wider += [np.pad(a, ((0, 0), (0, 1))) for a in (segments, positions)]
    wider[0][rows, lengths] = EOS
    wider[2][rows, lengths] = segments[rows, lengths - 1]
    wider[3][rows, lengths] = positions[rows, lengths - 1] + 1
    return wider[0], wider[1], wider[2], wider[3]


class BlockBatches(Batches):
    """A text in blocks of `block_size` tokens.

    next token (GPT)    row = tokens i … i+L-1, labels = tokens i+1 … i+L
    masked (BERT)       row = BOS and L-1 tokens; `mask_fraction` of the ordinary tokens are to be guessed, at least one
                        a row: 80% of them are replaced by MASK, 10% by a random token, 10% left (Devlin et al., 2019);
                        `closed`: one token fewer, and EOS at the end
    respect_documents   each document in a block is a segment of its own, its positions begin at 0, and its last token
                        is not asked for the first of the next

    one_shape           every batch has as many rows, the last of them empty where need be; else as they come

    What separates documents (an EOS, say) must be in the file already."""

    def __init__(
        self,
        text: TokenFile,
        *,
        block_size: int,
        budget: int,
        task: Literal["next", "masked"],
        seed: int,
        respect_documents: bool = False,
        mask_fraction: float = 0.15,
        closed: bool = False,
        one_shape: bool = False,
        workers: int = 0,
    ) -> None:
        super().__init__(seed=seed, workers=workers)
        self.text, self.block_size, self.budget, self.task = text, block_size, budget, task
        self.one_shape, self.respect_documents, self.mask_fraction = one_shape, respect_documents, mask_fraction
        self.beyond = 1 if task == "next" else 0  # tokens needed after a block
        self.closed = closed  # rows end with EOS
        self.stride = block_size if task == "next" else block_size - 1 - closed
        self.size = len(text.tokens)
        if task == "masked" and (text.vocab_size is None or text.vocab_size <= CONTROL):
            raise ValueError("masking draws random tokens, so the token file must know its vocabulary")
        if self.stride < 1:
            raise ConfigError("model.block_size must be at least {closed} to learn from masked text", 2 + closed)

    def check_long_enough(self) -> None:
        """Refuses a text that is shorter than one block."""
        if self.size < self.stride + self.beyond:
            raise UserError(
                "the text has {size} tokens, which is less than one block of {block_size}; "
                "set a smaller model.block_size or give more text",
                self.size,
                self.block_size,
            )

    @cached_property
    def blocks(self) -> int:
        """As many as fit whatever the phase."""
        self.check_long_enough()
        return max(1, (self.size - self.beyond - self.stride + 1) // self.stride)

    @cached_property
    def phases(self) -> int:
        """How many first tokens an epoch may begin with: all that leave room for its blocks, so none is never read."""
        return self.size - self.beyond - self.blocks * self.stride + 1

    @cached_property
    def batches_in_epoch(self) -> int:
        """Batches that one pass over the text makes."""
        most = max(1, self.budget // self.block_size)
        return even_batches(self.blocks, most) if self.one_shape else -(-self.blocks // most)

    @cached_property
    def rows_in_batch(self) -> int:
        """At most; where the shape is fixed, in every batch."""
        return -(-self.blocks // self.batches_in_epoch)

    @property
    def shape(self) -> tuple[int, int, int] | None:
        """Rows, 0 and block size, where every batch has one shape."""
        return (self.rows_in_batch, 0, self.block_size) if self.one_shape else None

    def plan(self, epoch: int) -> EpochPlan:
        """The blocks of an epoch: where the first begins (its phase) and in what order they come."""
        phase = int(random_bits(1, self.seed, epoch, Stream.PHASE)[0] % np.uint64(self.phases))
        order = epoch_order(self.blocks, self.seed, epoch)
        starts = share_out(self.blocks, self.batches_in_epoch)

        def build(number: int) -> Batch:
            blocks = order[starts[number] : starts[number + 1]]
            height = self.rows_in_batch if self.one_shape else len(blocks)
            return self.batch_of(blocks, phase + blocks * self.stride, epoch, height)

        return EpochPlan(self.batches_in_epoch, build)

    def batch_of(self, blocks: Int[np.ndarray, " n"], first: Int[np.ndarray, " n"], epoch: int, height: int) -> Batch:
        """Blocks by the place of their first token. A block may end with the text."""
        ends = np.minimum(first + self.stride, self.size - self.beyond)
        width = int((ends - first).max(initial=0)) + 1 - self.beyond if len(blocks) else self.block_size
        at = np.minimum(first[:, None] + np.arange(self.stride), self.size - 1)[:, : width - (1 - self.beyond)]
        real = at < ends[:, None]
        tokens = np.where(real, self.text.tokens[at].astype(np.int64), PAD)
        segments, positions = real.astype(np.int64), np.broadcast_to(np.arange(at.shape[1]), at.shape)
        following = np.minimum(at + 1, self.size - 1)
        document = following_document = None
        if self.respect_documents:
            document = np.searchsorted(self.text.offsets, at, side="right")
            following_document = np.searchsorted(self.text.offsets, following, side="right")
            begins = np.diff(document, axis=1, prepend=document[:, :1]) > 0
            segments = np.where(real, 1 + np.cumsum(begins, axis=1), 0)
            begun = np.maximum.accumulate(np.where(begins, positions, 0), axis=1)
            positions = positions - begun
        if self.task == "next":
            learned = real if document is None else real & (document == following_document)
            labels = np.where(learned, self.text.tokens[following].astype(np.int64), IGNORE)
        else:
            tokens, labels = self.masked(blocks, tokens, real, epoch)
            # The first place of a row is BOS; it belongs to the first document.
            positions = np.where(segments == 1, positions + 1, positions) if self.respect_documents else positions + 1
            tokens, labels, segments, positions = (
                np.pad(a, ((0, 0), (1, 0)), constant_values=v)
                for a, v in ((tokens, BOS), (labels, IGNORE), (segments, 1), (positions, 0))
            )
            if self.closed:
                tokens, labels, segments, positions = close_rows(tokens, labels, segments, positions)
                width += 1
        rows = self.as_rows(tokens, segments, positions, height, width)
        out = np.full((height, width), IGNORE, np.int64)
        out[: len(blocks)] = labels
        return Batch(None, rows, torch.from_numpy(out), int((labels != IGNORE).sum()), tuple(blocks.tolist()))

    def as_rows(self, tokens: np.ndarray, segments: np.ndarray, positions: np.ndarray, height: int, width: int) -> Rows:
        """Blocks as rows, filled up to `height`; packed where documents are segments of their own."""
        full = bool(segments.all())
        empty = np.zeros((height - len(tokens), width), np.int64)
        padded = [torch.from_numpy(np.concatenate([a, empty])) for a in (tokens, segments, positions)]
        if self.respect_documents:
            return Rows(padded[0], padded[1], padded[2], "packed")
        return Rows(padded[0], padded[1], padded[2], "whole" if full else "padded")

    def masked(
        self, blocks: Int[np.ndarray, " n"], tokens: Int[np.ndarray, "n L"], real: Bool[np.ndarray, "n L"], epoch: int
    ) -> tuple[Int[np.ndarray, "n L"], Int[np.ndarray, "n L"]]:
        """The tokens with some hidden, and those some as labels. The choice follows from seed, epoch and block."""
        width = tokens.shape[1]
        drawn = [random_bits(3 * width, self.seed, epoch, Stream.MASK, int(b)).reshape(3, width) for b in blocks]
        lot, fate, other = np.stack(drawn, axis=1) if drawn else np.empty((3, 0, width), np.uint64)
        ordinary = real & (tokens >= CONTROL)
        available = ordinary.sum(axis=1)
        count = np.where(available > 0, np.maximum(1, np.rint(self.mask_fraction * available)), 0)
        # Ordinary tokens first, in the order of their lots; the first so many of a row are chosen.
        ranks = np.lexsort((lot, ~ordinary), axis=1).argsort(axis=1)
        chosen = ranks < count[:, None]
        labels = np.where(chosen, tokens, IGNORE)
        share = uniform(fate)
        vocab_size = self.text.vocab_size or 0
        random_tokens = (CONTROL + other % np.uint64(max(1, vocab_size - CONTROL))).astype(np.int64)
        hidden = np.where(share < 0.8, MASK, np.where(share < 0.9, random_tokens, tokens))
        return np.where(chosen, hidden, tokens), labels

    def in_order(self, budget: int | None = None, *, limit: int | None = None) -> Iterator[Batch]:
        """The whole text from its first token; the last block is as short as it happens to be."""
        rows = max(1, (budget or self.budget) // self.block_size)
        count = -(-max(0, self.size - self.beyond) // self.stride)
        blocks = np.arange(count if limit is None else min(count, limit), dtype=np.int64)
        for start in range(0, len(blocks), rows):
            chosen = blocks[start : start + rows]
            yield self.batch_of(chosen, chosen * self.stride, 0, len(chosen))


class SpanBatches(BlockBatches):
    """A text with gaps, for an encoder-decoder: T5's span corruption (Raffel et al. 2020).

        text      the cat sat on the mat today
        source    the cat MASK the mat MASK EOS
        target    BOS MASK sat on MASK today EOS

    `mask_fraction` of a block's tokens are gone, in gaps of `span_length` on average. Where they lie is drawn as T5 draws it: the
    tokens that stay and those that go are each divided into as many stretches, every division as likely, and stretches of the two
    kinds take turns. T5 numbers the marks of its gaps; here all are MASK, and their order says which is which.

    The text comes in blocks of `block_size` - 1 tokens."""

    def __init__(self, text: TokenFile, *, span_length: float = 3.0, **how: Any) -> None:
        super().__init__(text, task="masked", **how)
        self.span_length = span_length
        if self.stride < 2:  # one token stays, one goes
            raise ConfigError("model.block_size must be at least {closed} to learn from masked text", 3)

    def counts(self, n: int) -> tuple[int, int]:
        """How many of n tokens go, and in how many gaps."""
        gone = min(max(1, round(self.mask_fraction * n)), n - 1)
        return gone, min(max(1, round(gone / self.span_length)), gone, n - gone)

    @property
    def widths(self) -> tuple[int, int]:
        """Of the sources and the targets of whole blocks: all have as many gaps."""
        gone, gaps = self.counts(self.stride)
        return self.stride - gone + gaps + 1, gone + gaps + 1

    @property
    def shape(self) -> tuple[int, int, int] | None:
        """Rows, width of the source and of the target, where every batch has one shape."""
        return (self.rows_in_batch, *self.widths) if self.one_shape else None

    def gaps(self, block: int, n: int, epoch: int) -> Bool[np.ndarray, " n"]:
        """Which of a block's n tokens are gone; it follows from seed, epoch and block."""
        gone, count = self.counts(n)
        lots = random_bits(n, self.seed, epoch, Stream.MASK, block)

        def lengths(lots: np.ndarray) -> np.ndarray:
            """So many lots divided into `count` stretches, none of them empty."""
            cuts = np.sort(np.argsort(lots[1:])[: count - 1]) + 1
            return np.diff(np.array([0, *cuts, len(lots)]))

        stretches = np.stack([lengths(lots[gone:]), lengths(lots[:gone])], axis=1).ravel()
        return np.repeat(np.tile([False, True], count), stretches)

    def sides(self, tokens: Int[np.ndarray, " n"], block: int, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """A block as source and target, both with EOS. Of a single token, at the end of a text, nothing is gone."""
        gone = self.gaps(block, len(tokens), epoch) if len(tokens) > 1 else np.zeros(len(tokens), bool)
        first = gone & ~np.concatenate([[False], gone[:-1]])
        source = np.where(first, MASK, tokens)[~gone | first]
        target = np.insert(tokens[gone], np.flatnonzero(first[gone]), MASK)
        return np.append(source, EOS), np.append(target, EOS)

    def batch_of(self, blocks: Int[np.ndarray, " n"], first: Int[np.ndarray, " n"], epoch: int, height: int) -> Batch:
        """Blocks by the place of their first token. A block may end with the text."""
        cut = [self.text.tokens[at : at + self.stride].astype(np.int64) for at in first]
        both = [self.sides(tokens, int(block), epoch) for tokens, block in zip(cut, blocks, strict=True)]
        placed = []
        for side, width in enumerate(self.widths):
            tokens = np.full((len(both), width), PAD)
            for row, pair in enumerate(both):
                tokens[row, : len(pair[side])] = pair[side]
            lengths = np.array([len(pair[side]) for pair in both], np.int64)
            placed.append((tokens, (np.arange(width) < lengths[:, None]).astype(np.int64)))
        (source, there), (target, wanted) = placed
        labels = np.full((height, target.shape[1]), IGNORE)
        labels[: len(both)] = np.where(wanted, target, IGNORE)
        read = np.pad(target[:, :-1], ((0, 0), (1, 0)), constant_values=BOS)
        rows = [
            self.as_rows(tokens, real, np.broadcast_to(np.arange(real.shape[1]), real.shape), height, real.shape[1])
            for tokens, real in ((source, there), (read, wanted))
        ]
        return Batch(rows[0], rows[1], torch.from_numpy(labels), int(wanted.sum()), tuple(blocks.tolist()))
