"""Batches of running text: blocks, documents, masks."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.data.batches import BlockBatches
from glassformer.data.examples import IGNORE
from glassformer.data.tokens import TokenFile
from glassformer.text.tokenizer import BOS, CONTROL, EOS, MASK
from tests.counts import count
from tests.read_batches import numbered, one_epoch, sentences_of


@settings(max_examples=count(fast=60, soak=600), deadline=None)
@given(st.integers(2, 12), st.integers(0, 150), st.integers(0, 9), st.booleans(), st.sampled_from(["next", "masked"]))
def test_an_epoch_of_text_reads_one_stretch_exactly_once(size, extra, epoch, fixed, task):
    """Broken variants: blocks that overlap by the token that is only a label; a phase that pushes the last block out;
    more than 2L - 1 tokens lost."""
    text = numbered(size + 1 + extra)
    stride = size if task == "next" else size - 1
    batches = BlockBatches(text, block_size=size, budget=3 * size, task=task, seed=1, one_shape=fixed)
    inputs: list[int] = []
    for batch in one_epoch(batches, epoch):
        assert batch.rows.layout == "whole" and batch.rows.shape[1] == size
        real = batch.rows.real
        assert (real.all(dim=1) | ~real.any(dim=1)).all()
        if task == "next":
            assert torch.equal(batch.labels[real], batch.rows.tokens[real] + 1), "the label is the next token"
            assert batch.target_tokens == int(real.sum())
            inputs += batch.rows.tokens[real].tolist()
        else:
            assert (batch.rows.tokens[real.any(dim=1), 0] == BOS).all() and (batch.labels[:, 0] == IGNORE).all()
            shown = torch.where(
                batch.labels == IGNORE, batch.rows.tokens, batch.labels
            )  # what was there before masking
            inputs += shown[:, 1:][real[:, 1:]].tolist()
        if fixed:
            assert batch.rows.shape[0] * size <= 3 * size and batches.shape == (batch.rows.shape[0], 0, size)
    assert sorted(inputs) == list(range(min(inputs), min(inputs) + len(inputs))), "a stretch, each token once"
    assert len(inputs) % stride == 0 and len(text.tokens) - len(inputs) <= 2 * stride - 1 + (task == "next")


def test_the_phase_moves_and_reaches_every_token():
    """Broken variants: phase 0 in every epoch, so that the same tokens always stand at a block's end; phases below
    the block size only, so that the last tokens of most texts are never read."""
    batches = BlockBatches(numbered(103), block_size=10, budget=50, task="next", seed=1)
    firsts, seen = set(), set()
    for epoch in range(150):
        tokens = [t for b in one_epoch(batches, epoch) for t in b.rows.tokens.flatten().tolist()]
        firsts.add(min(tokens))
        seen |= set(tokens)
    assert len(firsts) == 13
    assert seen == set(range(CONTROL, CONTROL + 102))  # the last token is only ever a label


def test_fixed_shape_blocks_have_one_shape():
    batches = BlockBatches(numbered(305), block_size=10, budget=80, task="next", seed=1, one_shape=True)
    assert len({b.rows.shape for epoch in range(3) for b in one_epoch(batches, epoch)}) == 1


@pytest.mark.parametrize("task", ["next", "masked"])
def test_documents_are_segments(task):
    """Each document in a block is a segment, with positions from 0 and no label from the next document. Broken variants:
    a segment that joins two documents; the last token of one asked for the first of the next; an empty document
    that breaks the count."""
    lengths = [5, 0, 1, 30, 2, 2, 0, 17, 9]
    starts = np.cumsum([0, *lengths])
    document_of = {CONTROL + i: d for d, (a, b) in enumerate(itertools.pairwise(starts)) for i in range(a, b)}
    documents = [list(range(CONTROL + a, CONTROL + b)) for a, b in itertools.pairwise(starts)]
    text = TokenFile.of(documents, CONTROL + sum(lengths))
    batches = BlockBatches(text, block_size=8, budget=30, task=task, seed=1, respect_documents=True)
    for epoch in range(5):
        for batch in one_epoch(batches, epoch):
            assert batch.rows.layout == "packed"
            before = batch.rows.tokens
            if task == "masked":
                before = torch.where(batch.labels == IGNORE, before, batch.labels)
            sentences = sentences_of(batch.rows, before)
            for sentence in sentences:
                inside = [t for t in sentence if t != BOS]
                assert len({document_of[t] for t in inside}) <= 1
                assert inside == list(range(inside[0], inside[0] + len(inside))) if inside else True
            for row, labels in zip(before.tolist(), batch.labels.tolist(), strict=True):
                firsts = [
                    b for a, b in itertools.pairwise(row) if BOS not in (a, b) and document_of[a] != document_of[b]
                ]
                count_of_segments = 1 + len(firsts)
                assert len({document_of[t] for t in row if t != BOS}) == count_of_segments
                if task == "next":
                    for token, label in zip(row, labels, strict=True):
                        last = document_of.get(token + 1) != document_of[token]
                        assert label == (IGNORE if last else token + 1)


def test_text_in_order_covers_every_token():
    """Evaluation asks for each token after the first exactly once. Broken variant: dropping the last, short block."""
    for n in (4, 10, 11, 57):
        made = list(BlockBatches(numbered(n), block_size=10, budget=30, task="next", seed=1, one_shape=True).in_order())
        asked = [label for b in made for label in b.labels.flatten().tolist() if label != IGNORE]
        assert asked == list(range(CONTROL + 1, CONTROL + n))
        assert sum(b.target_tokens for b in made) == n - 1
        for batch in made:
            assert (batch.labels[~batch.rows.real] == IGNORE).all()
            assert batch.rows.layout == "padded" or batch.rows.real.all()


def test_masking_is_80_10_10():
    """15% of the ordinary tokens are asked for: 80% hidden, 10% replaced by a random ordinary token, 10% left; nothing
    else is touched. Broken variants: all hidden; a random token that may be a control token; labels everywhere."""
    size, n = 101, 120_000
    draw = np.random.default_rng(0)
    tokens = draw.integers(CONTROL, 1000, n)
    tokens[draw.random(n) < 0.05] = EOS
    text = TokenFile.of([tokens], 1000)
    batches = BlockBatches(text, block_size=size, budget=20 * size, task="masked", seed=1)
    ordinary = asked = hidden = left = replaced = 0
    random_tokens = []
    for batch in one_epoch(batches, 3):
        before = torch.where(batch.labels == IGNORE, batch.rows.tokens, batch.labels)
        chosen = batch.labels != IGNORE
        assert (batch.labels[chosen] >= CONTROL).all()
        available = (before >= CONTROL).sum(dim=1)
        assert torch.equal(chosen.sum(dim=1), (0.15 * available.double()).round().long())
        ordinary += int(available.sum())
        asked += int(chosen.sum())
        shown, was = batch.rows.tokens[chosen], before[chosen]
        hidden += int((shown == MASK).sum())
        left += int((shown == was).sum())
        other = shown[(shown != MASK) & (shown != was)]
        replaced += len(other)
        random_tokens.append(other)
    values = torch.cat(random_tokens)
    assert values.min() >= CONTROL and values.max() < 1000 and len(values.unique()) > 700
    assert asked / ordinary == pytest.approx(0.15, abs=0.002)
    deviation = 4.5 * (0.25 / asked) ** 0.5
    assert hidden / asked == pytest.approx(0.8, abs=deviation)
    assert left / asked == pytest.approx(0.1, abs=deviation)
    assert replaced / asked == pytest.approx(0.1, abs=deviation)


def test_masks_follow_from_seed_epoch_and_block():
    """Broken variant: the same masks in every epoch; masks that depend on which blocks share a batch."""
    text = numbered(120)

    def masks(seed: int, epoch: int, budget: int) -> dict[int, list[bool]]:
        batches = BlockBatches(text, block_size=13, budget=budget, task="masked", seed=seed)
        return {e: label for b in one_epoch(batches, epoch)
                for e, label in zip(b.examples, (b.labels != IGNORE).tolist(), strict=True)}  # fmt: skip

    assert masks(1, 0, 26) == masks(1, 0, 65)
    assert masks(1, 0, 26) != masks(1, 1, 26)
    assert masks(1, 0, 26) != masks(2, 0, 26)
