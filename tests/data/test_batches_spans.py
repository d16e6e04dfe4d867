"""Running text with gaps, for an encoder-decoder (T5's span corruption)."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import glassformer
from glassformer.config import DataConfig
from glassformer.data.batches import make_batches
from glassformer.data.block_batches import SpanBatches
from glassformer.data.encoding import open_files
from glassformer.data.examples import IGNORE
from glassformer.errors import ConfigError, UserError
from glassformer.text.tokenizer import BOS, EOS, MASK
from tests.counts import count
from tests.read_batches import numbered, one_epoch, unpack


def spans(n: int, **how: object) -> SpanBatches:
    return SpanBatches(numbered(n), **({"block_size": 24, "budget": 72, "seed": 1} | how))


def filled(source: list[int], labels: list[int]) -> list[int]:
    """The text again: each gap of the source with the words that the target has behind its mark."""
    assert labels[0] == MASK and labels[-1] == EOS and source[-1] == EOS
    gaps = [list(words) for mark, words in itertools.groupby(labels[:-1], lambda t: t == MASK) if not mark]
    assert len(gaps) == source.count(MASK) == labels.count(MASK), "a gap is never empty, and none touches another"
    assert not any(a == b == MASK for a, b in itertools.pairwise(source))
    rest = iter(gaps)
    return [t for token in source[:-1] for t in (next(rest) if token == MASK else [token])]


@settings(max_examples=count(fast=60, soak=600), deadline=None)
@given(
    size=st.integers(3, 30), extra=st.integers(0, 150), fraction=st.floats(0.01, 0.99), length=st.floats(1, 9),
    epoch=st.integers(0, 3), fixed=st.booleans(),
)  # fmt: skip
def test_gaps_filled_in_are_the_text_exactly_once(
    size: int, extra: int, fraction: float, length: float, epoch: int, fixed: bool
) -> None:
    """Whatever the share and the length of gaps, of which every block has as many. Broken variants: a mark a token, not a gap;
    the words of a gap in the source, too; a target whose input is not its labels one place later."""
    batches = spans(
        size + extra, block_size=size, budget=3 * size, mask_fraction=fraction, span_length=length, one_shape=fixed
    )
    n, found = size - 1, []
    for batch in one_epoch(batches, epoch):
        for source, row, labels in unpack(batch).values():
            assert source is not None and row == [BOS, *labels[:-1]]
            text = filled(source, labels)
            gone, gaps = len(labels) - 1 - labels.count(MASK), labels.count(MASK)
            assert gone == min(max(1, round(fraction * n)), n - 1)
            assert gaps == min(max(1, round(gone / length)), gone, n - gone)
            assert len(text) == n and max(len(source), len(labels)) <= size
            found += text
        if fixed:
            assert batch.source is not None and batches.shape == (*batch.source.shape, batch.rows.shape[1])
    assert sorted(found) == list(range(min(found), min(found) + len(found))), "a stretch, each token once"


def test_the_end_of_a_text_is_evaluated_too() -> None:
    """Blocks of 23: two whole ones and one that is shorter, down to a single token."""
    for n in range(47, 70):
        read = [text for b in spans(n).in_order() for text in unpack(b).values()]
        assert len(read) == 3
        tokens = [t for source, _, labels in read for t in (filled(source or [], labels) if MASK in labels else source[:-1])]  # type: ignore[index]  # fmt: skip
        assert tokens == numbered(n).tokens.tolist()


def test_every_division_into_gaps_is_as_likely() -> None:
    """Seven tokens of which three go in two gaps: 3 x 2 ways. Broken variants: cuts drawn with repetition; a gap that never
    has the last place it could have."""
    batches = spans(100, block_size=8, mask_fraction=3 / 7, span_length=1.5)
    draws = 600
    ways = Counter(tuple(batches.gaps(block, 7, 0).tolist()) for block in range(draws))
    assert len(ways) == 6 and all(sum(way) == 3 and not way[0] and way[-1] for way in ways)
    assert all(abs(n - draws / 6) < 4.5 * math.sqrt(draws / 6) for n in ways.values())


def test_gaps_follow_from_seed_epoch_and_block() -> None:
    """Broken variants: the same gaps in every epoch; gaps that depend on which blocks share a batch."""

    def gaps(seed: int, epoch: int, budget: int) -> dict[int, object]:
        batches = spans(240, seed=seed, budget=budget)
        return {e: read for b in one_epoch(batches, epoch) for e, read in unpack(b).items()}

    assert gaps(1, 0, 48) == gaps(1, 0, 120)
    assert gaps(1, 0, 48) != gaps(1, 1, 48)
    assert gaps(1, 0, 48) != gaps(2, 0, 48)


@pytest.mark.parametrize(
    ("task", "family", "more", "words"),
    [
        ("text", "transformer", {}, "learns from pairs"),
        ("text", "gpt", {"span_length": 3.0}, "data.span_length"),
        ("pairs", "transformer", {"span_length": 3.0}, "data.span_length"),
        ("text", "transformer", {"span_length": 3.0, "respect_documents": True}, "respect_documents"),
    ],
)
def test_gaps_are_asked_for_and_for_a_text_alone(task: str, family: str, more: dict[str, object], words: str) -> None:
    config = DataConfig(task=task, **more)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=words):
        make_batches(config, family, "mlm", {"text": numbered(50)}, 10, 1, layout="padded")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="block_size must be at least 3"):
        spans(50, block_size=2)


@pytest.mark.slow
def test_a_small_t5_learns_to_fill_gaps_and_is_fine_tuned(tmp_path: Path) -> None:
    """On runs of numbers its loss falls far below that of a table of how often each label is wanted; then pairs are
    learned from its weights. Broken variant: a source whose gaps are not those of its target."""
    names = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
    draw = random.Random(0)
    runs = [(draw.randrange(10), draw.randint(6, 20)) for _ in range(460)]
    words = [names[(first + i) % 10] for first, length in runs for i in range(length)]
    (tmp_path / "text.txt").write_text(" ".join(words), encoding="utf-8")
    recipe = {
        "model": {"n_layer": 1, "n_head": 2, "n_embd": 32, "block_size": 16, "dropout": 0.0, "positions": "relative",
                  "norm": "rms", "bias": False, "scaled_attention": False, "activation": "geglu_tanh", "init": "xavier"},
        "data": {"task": "text", "train": str(tmp_path / "text.txt"), "tokenizer": "word", "span_length": 3,
                 "batch_tokens": 512},
        "train": {"steps": 60, "validate_every": 60, "learning_rate": 1e-2, "warmup": 10, "device": "cpu"},
    }  # fmt: skip
    model = glassformer.train(recipe, out=tmp_path / "run")
    data = DataConfig(task="text", span_length=3.0)
    files = open_files(data, "train", tmp_path / "run" / "data")
    batches = make_batches(data, "transformer", "mlm", files, 16, 1, layout="padded")
    wanted = Counter(t for b in batches.in_order() for t in b.labels.flatten().tolist() if t != IGNORE)
    total = wanted.total()
    table = -sum(n / total * math.log(n / total) for n in wanted.values())
    loss = glassformer.evaluate(tmp_path / "run", split="val")["loss"]
    assert loss < table / 2, (loss, table)
    with pytest.raises(UserError, match="fill gaps"):
        model.translate("one two")
    pairs = [(" ".join(names[i : i + 3]), " ".join(reversed(names[i : i + 3]))) for i in range(8)] * 4
    tuned = {
        "data": {"task": "pairs", "tokenizer": "word", "val_fraction": 0.3},
        "train": {"steps": 2, "validate_every": 2, "device": "cpu"},
    }
    again = glassformer.train(tuned, pairs, from_run=tmp_path / "run", out=tmp_path / "tuned")
    assert again.config == model.config and again.translate("one two").best.text is not None
