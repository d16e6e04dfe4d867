"""A text with gaps, for an encoder-decoder: T5's span corruption (Raffel et al. 2020).

    text      the cat sat on the mat today
    source    the cat MASK the mat MASK EOS
    target    BOS MASK sat on MASK today EOS

`mask_fraction` of a block's tokens are gone, in gaps of `span_length` on average. Where they lie is drawn as T5 draws it: the
tokens that stay and those that go are each divided into as many stretches, every division as likely, and stretches of the two
kinds take turns. T5 numbers the marks of its gaps; here all are MASK, and their order says which is which."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Int

from glassformer.data.batch import Batch
from glassformer.data.block_batches import BlockBatches
from glassformer.data.examples import IGNORE
from glassformer.data.stream import Stream, random_bits
from glassformer.data.tokens import TokenFile
from glassformer.errors import ConfigError
from glassformer.text.tokenizer import BOS, EOS, MASK, PAD


class SpanBatches(BlockBatches):
    """A text in blocks of `block_size` - 1 tokens: what is left of each as the source, its gaps as the target."""

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
