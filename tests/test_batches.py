"""Batches: what is in them, in what order, and how full they are.

`unpack` reads a batch back the slow way, token by token, from segments and positions alone. It is the reference for all
that is said here about contents, whatever the layout."""

import itertools
import random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.config import DataConfig, ModelConfig
from glassformer.data.batches import Batch, BlockBatches, SentenceBatches, make_batches, waste
from glassformer.data.examples import IGNORE, Pairs
from glassformer.data.packing import Shape, pack
from glassformer.data.stream import Position, prefetch
from glassformer.data.tokens import TokenFile
from glassformer.errors import ConfigError, UserError
from glassformer.models.gpt import GPT
from glassformer.models.transformer import Transformer
from glassformer.nn.rows import Rows
from glassformer.text.tokenizer import BOS, CONTROL, EOS, MASK, PAD
from tests.counts import count

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


# Order -----------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_each_epoch_sees_every_pair_exactly_once():
    """200 random orders. Broken variants: the last batch dropped; sampling with replacement."""
    draw = random.Random(1)
    for trial in range(200):
        n, seed, parts = draw.randint(1, 60), draw.randrange(2**32), draw.randint(1, 4)
        epoch, layout = draw.randrange(5), draw.choice(["padded", "packed"])
        _, _, pairs = pairs_of(n, trial)
        options = {
            "budget": draw.choice([8, 32, 64, 200]),
            "limit": 40,
            "layout": layout,
            "row_width": 32,
            "seed": seed,
        }
        batches = one_epoch(SentenceBatches(pairs, **options, parts=parts), epoch)
        seen = [e for batch in batches for e in batch.examples]
        assert sorted(seen) == list(range(n)), (trial, n, seed, parts, epoch, layout)


def streams(kind: str, seed: int, **options):
    if kind == "text":
        text = TokenFile.of(random_lists(30, 5), VOCABULARY)
        return BlockBatches(text, block_size=8, budget=24, task="masked", seed=seed, **options)
    _, _, pairs = pairs_of(37)
    return SentenceBatches(pairs, budget=100, limit=40, layout=kind, row_width=24, seed=seed, **options)


@pytest.mark.slow
@settings(max_examples=count(fast=30, soak=400), deadline=None)
@given(
    st.sampled_from(["padded", "packed", "text"]),
    st.integers(0, 2**32),
    st.integers(0, 60),
    st.sampled_from([0, 2]),
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
def test_workers_and_prefetch_give_the_same_stream(kind):
    """Broken variant: handing batches over in the order in which workers finish."""
    plain = list(itertools.islice(streams(kind, 1).starting_at(), 60))
    for stream in (streams(kind, 1, workers=3).starting_at(), prefetch(streams(kind, 1).starting_at(), 4)):
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


# Shape and waste -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parts", [1, 2])
def test_packed_batches_have_one_shape_for_the_whole_run(parts):
    """Broken variant: a last batch cut to what is left, which makes a compiled step compile again."""
    for n in (1, 7, 150):
        _, _, pairs = pairs_of(n)
        batches = SentenceBatches(pairs, budget=128, limit=40, layout="packed", row_width=32, seed=1, parts=parts)
        shapes = set()
        for batch, position in batches.starting_at():
            assert batch.source is not None and batch.rows.layout == "packed"
            shapes.add((batch.rows.shape[0], batch.source.shape[1], batch.rows.shape[1]))
            if position.epoch == 3:
                break
        assert shapes == {batches.shape}
        height, source_width, target_width = next(iter(shapes))
        assert height * target_width <= 128 and source_width % 8 == 0 and target_width % 8 == 0


def test_a_batch_keeps_within_its_budget():
    """Broken variant: counting real tokens instead of positions."""
    _, _, pairs = pairs_of(400)
    for layout, budget in itertools.product(("padded", "packed"), (30, 100, 500)):
        batches = SentenceBatches(pairs, budget=budget, limit=40, layout=layout, row_width=24, seed=1)
        for batch in one_epoch(batches, 1):
            assert batch.rows.tokens.numel() <= budget


def lognormal(n: int, seed: int) -> Pairs:
    """Lengths as sentences have them: about 15 tokens, the other side within a fifth of it."""
    draw = np.random.default_rng(seed)
    target = np.exp(draw.normal(2.6, 0.45, n)).round().clip(1, 120)
    source = (target * np.exp(draw.normal(0, 0.2, n))).round().clip(1, 120)
    return with_lengths(source.astype(np.int64), target.astype(np.int64))


def like_dates(n: int, seed: int) -> Pairs:
    draw = np.random.default_rng(seed)
    return with_lengths(draw.integers(8, 40, n), np.full(n, 10))


@pytest.mark.slow
@pytest.mark.parametrize("pairs", [lognormal, like_dates])
@pytest.mark.parametrize("n", [1000, 5000, 30000])
@pytest.mark.parametrize("budget", [1024, 4096])
def test_padding_waste_is_bounded(pairs, n, budget):
    """Padded below 5% of all positions, packed below 3%; where an epoch has but a dozen packed batches, one empty row a
    batch is allowed for on top. Broken variants: random batches (about 40%); sorting by the target's length alone
    (about 10%); packing by size without balancing the two sides (12% on dates)."""
    examples = pairs(n, 1)
    for epoch in (0, 1):
        padded = SentenceBatches(examples, budget=budget, limit=256, layout="padded", seed=1)
        assert waste(one_epoch(padded, epoch)) < 0.05
    packed = SentenceBatches(examples, budget=budget, limit=256, layout="packed", seed=1)
    made = one_epoch(packed)
    assert packed.shape is not None
    assert waste(made) < 0.03 + (1 / packed.shape[0] if len(made) < 16 else 0)
    assert sum(b.rows.real.any(dim=1).sum() for b in made) > (packed.shape[0] - 1) * len(made)


def test_waste_is_padding_over_positions():
    rows = Rows.padded(torch.ones(2, 10, dtype=torch.long), [10, 5])
    batch = Batch(Rows.whole(torch.ones(2, 5, dtype=torch.long)), rows, torch.ones(2, 10, dtype=torch.long), 20, (0, 1))
    assert waste([batch]) == pytest.approx(5 / 30)
    assert waste([]) == 0


@settings(max_examples=count(fast=40, soak=500), deadline=None)
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 20)), min_size=1, max_size=80), st.booleans())
def test_packing_places_every_sentence_and_overfills_no_row(lengths, two_shapes):
    """Broken variants: counts not reduced (a sentence twice); the second of a closing pair added without looking."""
    source, target = np.array([s for s, _ in lengths]), np.array([t for _, t in lengths])
    shapes = ([Shape(16, 10)] if two_shapes else []) + [Shape(32, 24)]
    packing = pack(source, target, shapes)
    assigned = packing.assign(1, 0)
    assert sorted(assigned.tolist()) == list(range(len(lengths)))
    for row, (a, b) in enumerate(itertools.pairwise(packing.row_starts)):
        shape = shapes[packing.shape_of[row]]
        assert b > a and source[assigned[a:b]].sum() <= shape.source and target[assigned[a:b]].sum() <= shape.target


# Text ------------------------------------------------------------------------------------------------------------------


def numbered(n: int) -> TokenFile:
    """A text whose token i is CONTROL + i: every token tells its place."""
    return TokenFile.of([list(range(CONTROL, CONTROL + n))], CONTROL + n)


@settings(max_examples=count(fast=60, soak=600), deadline=None)
@given(st.integers(2, 12), st.integers(0, 150), st.integers(0, 9), st.booleans(), st.sampled_from(["next", "masked"]))
def test_an_epoch_of_text_reads_one_stretch_exactly_once(size, extra, epoch, fixed, task):
    """Broken variants: blocks that overlap by the token that is only a label; a phase that pushes the last block out;
    more than 2L - 1 tokens lost."""
    text = numbered(size + 1 + extra)
    stride = size if task == "next" else size - 1
    batches = BlockBatches(text, block_size=size, budget=3 * size, task=task, seed=1, parts=1 if fixed else None)
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
    batches = BlockBatches(numbered(305), block_size=10, budget=80, task="next", seed=1, parts=1)
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
        made = list(BlockBatches(numbered(n), block_size=10, budget=30, task="next", seed=1, parts=1).in_order())
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


# What cannot be --------------------------------------------------------------------------------------------------------


def test_a_text_shorter_than_a_block_is_refused_with_the_remedy():
    files = {"text": numbered(10)}
    config = DataConfig(task="text")
    with pytest.raises(UserError, match=r"10 tokens.*smaller model.block_size or give more text"):
        make_batches(config, "gpt", "mlm", files, 10, 1, layout="padded")
    make_batches(config, "gpt", "mlm", {"text": numbered(11)}, 10, 1, layout="padded")
    evaluated = make_batches(config, "gpt", "mlm", files, 10, 1, layout="padded", training=False)
    assert sum(b.target_tokens for b in evaluated.in_order()) == 9


def test_settings_that_do_not_fit_together_are_refused():
    pairs = {"source": TokenFile.of([[5]], 9), "target": TokenFile.of([[5]], 9)}
    text = {"text": numbered(50), "labels": np.array([1])}
    for task, family, head, files, words in [
        ("pairs", "gpt", "mlm", pairs, "prompt_answer"),
        ("pairs", "bert", "mlm", pairs, "does not learn from pairs"),
        ("text", "transformer", "mlm", text, "learns from pairs"),
        ("text", "bert", "tag", text, "labelled lines"),
        ("classify", "bert", "mlm", text, "model.head"),
        ("tag", "gpt", "tag", text, "model.family"),
    ]:
        with pytest.raises(ConfigError, match=words):
            make_batches(DataConfig(task=task), family, head, files, 10, 1, layout="padded")


def test_files_that_disagree_are_refused():
    one, two = TokenFile.of([[5]], 9), TokenFile.of([[5], [6]], 9)
    with pytest.raises(UserError, match="source has 1 examples and target has 2"):
        make_batches(DataConfig(), "transformer", "mlm", {"source": one, "target": two}, 10, 1, layout="padded")
    files = {"text": one, "labels": TokenFile.of([[1, 1]])}
    with pytest.raises(UserError, match="1 tokens and 2 tags"):
        make_batches(DataConfig(task="tag"), "bert", "tag", files, 10, 1, layout="padded")
    files = {"source": TokenFile.of([[5] * 9], 9), "target": one}
    with pytest.raises(UserError, match="longer than 4 tokens"):
        make_batches(DataConfig(max_length=4), "transformer", "mlm", files, 10, 1, layout="padded")
    empty = TokenFile.of([], 9)
    with pytest.raises(UserError, match="not a single example"):
        make_batches(DataConfig(), "transformer", "mlm", {"source": empty, "target": empty}, 10, 1, layout="padded")


def test_the_budget_is_shared_by_micro_batches_and_devices():
    """Broken variant: batch_tokens for each micro-batch, so that accumulating makes a step larger."""
    source, target, _ = pairs_of(300)
    files = {"source": TokenFile.of(source, VOCABULARY), "target": TokenFile.of(target, VOCABULARY)}
    config = DataConfig(batch_tokens=400, row_width=32)
    for layout in ("padded", "packed"):
        shared = make_batches(config, "transformer", "mlm", files, 32, 1, layout=layout, accumulate=4)
        assert all(b.rows.tokens.numel() <= 100 for b in one_epoch(shared))
        if layout == "packed":
            assert len(shared.planned(0)) % 4 == 0, "an epoch is a whole number of steps"


def test_padding_is_the_padding_id():
    _, _, pairs = pairs_of(30)
    for batch in one_epoch(SentenceBatches(pairs, budget=300, limit=40, layout="packed", row_width=32, seed=1)):
        assert (batch.rows.tokens[~batch.rows.real] == PAD).all()
