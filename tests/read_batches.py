"""Batches read back the slow way, token by token, from segments and positions alone: the reference for all that is said about
their contents, whatever the layout."""

import itertools
import random
from collections.abc import Iterable

import numpy as np
import torch

from glassformer.data.batches import Batch
from glassformer.data.examples import IGNORE, Pairs
from glassformer.data.stream import Position
from glassformer.data.tokens import TokenFile
from glassformer.nn.rows import Rows
from glassformer.text.tokenizer import CONTROL

VOCABULARY = 60


def sentences_of(rows: Rows, values: torch.Tensor) -> list[list[int]]:
    """The values at each segment's places, row by row; checks that segments and positions are well formed."""
    found = []
    for segments, positions, line in zip(rows.segments.tolist(), rows.positions.tolist(), values.tolist(), strict=True):
        numbers = [number for number, _ in itertools.groupby(segments) if number]
        assert numbers == list(range(1, len(numbers) + 1)), "segments count 1, 2, 3 and do not come back"
        for number in numbers:
            columns = [c for c, s in enumerate(segments) if s == number]
            assert [positions[c] for c in columns] == list(range(len(columns)))
            found.append([line[c] for c in columns])
    return found


def unpack(batch: Batch) -> dict[int, tuple[list[int] | None, list[int], list[int]]]:
    """example -> (source, row, labels)"""
    rows = sentences_of(batch.rows, batch.rows.tokens)
    labels = sentences_of(batch.rows, batch.labels)
    sources: list = [None] * len(rows)
    if batch.source is not None:
        sources = sentences_of(batch.source, batch.source.tokens)
        for s, t in zip(batch.source.segments.tolist(), batch.rows.segments.tolist(), strict=True):
            assert set(s) - {0} == set(t) - {0}, "source and target rows hold the same sentences"
    assert (batch.labels[~batch.rows.real] == IGNORE).all(), "padding is never learned"
    assert batch.target_tokens == int((batch.labels != IGNORE).sum())
    assert isinstance(batch.target_tokens, int)
    return dict(zip(batch.examples, zip(sources, rows, labels, strict=True), strict=True))


def same(a: Batch, b: Batch) -> bool:
    def tensors(batch: Batch) -> list[torch.Tensor]:
        sides = [batch.rows] + ([batch.source] if batch.source is not None else [])
        return [batch.labels] + [t for r in sides for t in (r.tokens, r.segments, r.positions)]

    return (
        a.examples == b.examples
        and a.target_tokens == b.target_tokens
        and a.rows.layout == b.rows.layout
        and len(tensors(a)) == len(tensors(b))
        and all(torch.equal(x, y) for x, y in zip(tensors(a), tensors(b), strict=True))
    )


def random_lists(n: int, seed: int, longest: int = 14) -> list[list[int]]:
    draw = random.Random(seed)
    return [[draw.randrange(CONTROL, VOCABULARY) for _ in range(draw.randint(0, longest))] for _ in range(n)]


def pairs_of(n: int, seed: int = 0) -> tuple[list[list[int]], list[list[int]], Pairs]:
    source, target = random_lists(n, seed), random_lists(n, seed + 1)
    return source, target, Pairs(TokenFile.of(source, VOCABULARY), TokenFile.of(target, VOCABULARY))


def with_lengths(source: np.ndarray, target: np.ndarray) -> Pairs:
    """Pairs of these lengths; what the tokens are does not matter."""

    def file(lengths: np.ndarray) -> TokenFile:
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        return TokenFile(np.full(offsets[-1], CONTROL, np.uint16), offsets, VOCABULARY)

    return Pairs(file(source), file(target))


def one_epoch(batches, epoch: int = 0) -> list[Batch]:
    """The batches of one epoch."""
    taken = []
    for batch, position in batches.starting_at(Position(epoch, 0)):
        taken.append(batch)
        if position.epoch > epoch:
            return taken
    raise AssertionError("a stream never ends")


def numbered(n: int) -> TokenFile:
    """A text whose token i is CONTROL + i: every token tells its place."""
    return TokenFile.of([list(range(CONTROL, CONTROL + n))], CONTROL + n)


def waste(batches: Iterable[Batch]) -> float:
    """The part of all positions, source and target, that is padding."""
    real = total = 0
    for batch in batches:
        for rows in (batch.source, batch.rows):
            if rows is not None:
                real += int(rows.real.sum())
                total += rows.tokens.numel()
    return 1 - real / total if total else 0.0
