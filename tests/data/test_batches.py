"""Batches of sentences: what is in them, and in what order."""

import itertools
import random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.config import DataConfig, ModelConfig
from glassformer.data.batches import BlockBatches, SentenceBatches, make_batches
from glassformer.data.examples import IGNORE
from glassformer.data.stream import Position
from glassformer.data.tokens import TokenFile
from glassformer.models.gpt import GPT
from glassformer.models.transformer import Transformer
from glassformer.text.tokenizer import BOS, EOS
from tests.counts import count
from tests.read_batches import VOCABULARY, one_epoch, pairs_of, random_lists, same, unpack

# Order -----------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_each_epoch_sees_every_pair_exactly_once():
    """200 random orders. Broken variants: the last batch dropped; sampling with replacement."""
    draw = random.Random(1)
    for trial in range(200):
        n, seed, count = draw.randint(1, 60), draw.randrange(2**32), draw.randint(1, 4)
        epoch, layout = draw.randrange(5), draw.choice(["padded", "packed"])
        _, _, pairs = pairs_of(n, trial)
        options = {
            "budget": draw.choice([8, 32, 64, 200]),
            "limit": 40,
            "layout": layout,
            "row_width": 32,
            "seed": seed,
        }
        batches = one_epoch(SentenceBatches(pairs, **options), epoch)
        seen = [e for batch in batches for piece in batch.pieces(count) for e in unpack(piece)]
        assert sorted(seen) == list(range(n)), (trial, n, seed, count, epoch, layout)


def streams(kind: str, seed: int, **options):
    if kind == "text":
        text = TokenFile.of(random_lists(30, 5), VOCABULARY)
        return BlockBatches(text, block_size=8, budget=24, task="masked", seed=seed, **options)
    _, _, pairs = pairs_of(37)
    return SentenceBatches(pairs, budget=100, limit=40, layout=kind, row_width=24, seed=seed, **options)


@pytest.mark.slow
@settings(max_examples=count(fast=30, soak=400), deadline=None)
@given(
    st.sampled_from(["padded", "packed", "text"]), st.integers(0, 2**32), st.integers(0, 60), st.sampled_from([0, 2])
)
def test_a_stream_restarted_anywhere_goes_on_as_if_never_stopped(kind, seed, taken, workers):
    """Broken variants: the order of epoch 0 replayed in each epoch; a generator whose state is not part of the position."""
    through = streams(kind, seed).starting_at(Position())
    position = Position()
    for _ in range(taken):
        _, position = next(through)
    again = streams(kind, seed, workers=workers).starting_at(position)
    for _ in range(12):
        (expected, after), (batch, after_again) = next(through), next(again)
        assert same(expected, batch) and after == after_again
    again.close()


@pytest.mark.parametrize("kind", ["padded", "packed", "text"])
def test_workers_give_the_same_stream(kind):
    """Broken variant: handing batches over in the order in which workers finish."""
    plain = list(itertools.islice(streams(kind, 1).starting_at(), 60))
    stream = streams(kind, 1, workers=3).starting_at()
    for (a, p), (b, q) in zip(plain, stream, strict=False):
        assert same(a, b) and p == q
    stream.close()


def test_positions_count_batches():
    batches = streams("padded", 1)
    positions = [position for _, position in itertools.islice(batches.starting_at(), 40)]
    length = batches.epoch_length()
    expected = [Position(0, i) for i in range(1, length)] + [Position(1, 0)]
    assert length < 40 and positions[:length] == expected


@pytest.mark.parametrize("kind", ["padded", "packed", "text"])
def test_epochs_and_seeds_differ(kind):
    """Broken variant: batches made once and only shuffled, or not even that."""
    made = [
        frozenset(tuple(sorted(b.examples)) for b in one_epoch(streams(kind, seed), epoch))
        for seed, epoch in [(1, 0), (1, 1), (1, 2), (2, 0)]
    ]
    assert len(set(made)) == 4


# Contents --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["padded", "packed"])
@pytest.mark.parametrize("budget", [30, 100, 1000])
def test_pairs_unpack_to_themselves_in_every_layout(layout, budget):
    """Broken variants: labels not moved by one; EOS missing on the source; segments numbered differently on both sides."""
    source, target, pairs = pairs_of(120)
    batches = SentenceBatches(pairs, budget=budget, limit=40, layout=layout, row_width=32, seed=1)
    found = {}
    for batch in one_epoch(batches, 2):
        found |= unpack(batch)
    assert found == {i: ([*source[i], EOS], [BOS, *target[i]], [*target[i], EOS]) for i in range(120)}


@pytest.mark.parametrize("layout", ["padded", "packed"])
def test_prompt_and_answer(layout):
    """Broken variant: the loss also on the prompt, or the answer's first token not asked for."""
    source, target = random_lists(50, 1), random_lists(50, 2)
    files = {"source": TokenFile.of(source, VOCABULARY), "target": TokenFile.of(target, VOCABULARY)}
    config = DataConfig(prompt_answer=True, batch_tokens=90)
    batches = make_batches(config, "gpt", "mlm", files, 64, 1, layout=layout)
    found = {}
    for batch in one_epoch(batches):
        assert batch.source is None
        found |= unpack(batch)
    for i in range(50):
        row = [BOS, *source[i], EOS, *target[i]]
        following = [*row[1:], EOS]
        learned = [IGNORE] * (len(source[i]) + 1) + following[len(source[i]) + 1 :]
        assert found[i] == (None, row, learned)
    assert len(found) == 50


@pytest.mark.parametrize("layout", ["padded", "packed"])
def test_classes_and_tags(layout):
    """Broken variants: the class at every place; tags shifted by the BOS that stands before the text."""
    text = random_lists(50, 1)
    classes = np.arange(50) % 7
    tags = [[(t % 5) if c % 2 == 0 else IGNORE for c, t in enumerate(line)] for line in text]
    file = TokenFile.of(text, VOCABULARY)
    config = DataConfig(task="classify", batch_tokens=90)
    found = {}
    for batch in one_epoch(
        make_batches(config, "bert", "classify", {"text": file, "labels": classes}, 64, 1, layout=layout)
    ):
        found |= unpack(batch)
    assert found == {i: (None, [BOS, *text[i]], [i % 7] + [IGNORE] * len(text[i])) for i in range(50)}
    found = {}
    files = {"text": file, "labels": TokenFile.of(tags)}
    config = DataConfig(task="tag", batch_tokens=90)
    for batch in one_epoch(make_batches(config, "bert", "tag", files, 64, 1, layout=layout)):
        found |= unpack(batch)
    assert found == {i: (None, [BOS, *text[i]], [IGNORE, *tags[i]]) for i in range(50)}


def test_too_long_examples_are_left_out_and_counted():
    """Broken variants: cutting them short; leaving them out without a word; a limit that forgets control tokens."""
    source, target, pairs = pairs_of(200)
    fits = [i for i in range(200) if len(source[i]) + 1 <= 10 and len(target[i]) + 1 <= 10]
    for layout in ("padded", "packed"):
        batches = SentenceBatches(pairs, budget=60, limit=10, layout=layout, seed=1)
        assert batches.dropped == 200 - len(fits) > 0
        assert sorted(e for b in one_epoch(batches) for e in b.examples) == fits
        assert sorted(e for b in batches.in_order() for e in b.examples) == fits


@pytest.mark.parametrize("layout", ["padded", "packed"])
def test_in_order_is_the_file_in_order_one_a_row(layout):
    """Broken variant: evaluating on the shuffled stream."""
    source, target, pairs = pairs_of(60)
    batches = SentenceBatches(pairs, budget=50, limit=40, layout=layout, seed=1)
    made = list(batches.in_order())
    assert [e for b in made for e in b.examples] == list(range(60))
    assert all(b.rows.layout in ("padded", "whole") and b.rows.shape[0] == len(b.examples) for b in made)
    assert all(b.rows.tokens.numel() <= 50 or len(b.examples) == 1 for b in made)
    found = {}
    for batch in made:
        found |= unpack(batch)
    assert found[7] == ([*source[7], EOS], [BOS, *target[7]], [*target[7], EOS])
    assert [e for b in batches.in_order(limit=13) for e in b.examples] == list(range(13))


def test_a_layout_is_a_fact_about_the_rows():
    """Broken variant: calling rows with padding whole, which would let sentences look at padding."""
    _, _, pairs = pairs_of(300)
    for budget in (20, 60, 3000):
        for batch in one_epoch(SentenceBatches(pairs, budget=budget, limit=40, layout="padded", seed=1)):
            for rows in (batch.source, batch.rows):
                assert rows is not None
                if rows.layout == "whole":
                    assert rows.real.all() and (rows.segments == 1).all()
                elif rows.layout == "padded":
                    assert (rows.segments <= 1).all() and (rows.segments.diff(dim=1) <= 0).all()


@pytest.mark.parametrize("family", ["transformer", "gpt"])
def test_packed_and_padded_batches_give_one_loss_and_one_gradient(family):
    """Over an epoch, in float64. Broken variants: source and target segments that do not match; a position that goes on
    counting through the row."""
    source, target = random_lists(60, 1), random_lists(60, 2)
    files = {"source": TokenFile.of(source, VOCABULARY), "target": TokenFile.of(target, VOCABULARY)}
    config = DataConfig(prompt_answer=True, batch_tokens=200, row_width=64)
    shape = ModelConfig(
        family=family, vocab_size=VOCABULARY, block_size=64, n_layer=1, n_head=2, n_embd=16, dropout=0.0
    )
    torch.manual_seed(0)
    model = (Transformer(shape) if family == "transformer" else GPT(shape)).double()
    results = []
    for layout in ("padded", "packed"):
        model.zero_grad()
        total = torch.zeros((), dtype=torch.float64)
        batches = make_batches(config, family, "mlm", files, 64, 1, layout=layout)
        for batch in one_epoch(batches):
            inputs = (batch.rows,) if batch.source is None else (batch.source, batch.rows)
            total = total + model.loss(*inputs, batch.labels)
        total.backward()
        results.append([total.detach(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


def test_moving_a_batch_moves_all_of_it():
    _, _, pairs = pairs_of(3)
    batch = next(SentenceBatches(pairs, budget=50, limit=40, layout="padded", seed=1).in_order()).to("meta")
    assert batch.source is not None
    assert {t.device.type for t in (batch.labels, batch.rows.tokens, batch.source.positions)} == {"meta"}
