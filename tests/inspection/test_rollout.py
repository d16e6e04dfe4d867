"""What follows from the weights: rollout beside sums over paths, alignment, and tokens merged to characters and words."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassformer.inspection.activations import alignment, rollout
from glassformer.inspection.inspection import Inspection
from glassformer.text.tokenizer import Tokenizer
from glassformer.text.units import reading
from tests.talking import SENTENCES

pytestmark = pytest.mark.slow


def flow(inside: Inspection) -> np.ndarray:
    """Rollout of an encoder-decoder as one walk over all tokens, target and source: a matrix for each attention."""
    seen = inside.activations
    s, t = len(inside.input.source), len(inside.input.row)
    whole = np.eye(s + t)
    for weights in seen.weights("encoder"):
        step = np.eye(s + t)
        step[:s, :s] = 0.5 * np.eye(s) + 0.5 * weights.mean(0)
        whole = step @ whole
    for own, cross in zip(seen.weights("decoder"), seen.weights("cross")):
        for place, weights in ((slice(s, None), own), (slice(0, s), cross)):
            step = np.eye(s + t)
            step[s:] *= 0.5
            step[s:, place] += 0.5 * weights.mean(0)
            whole = step @ whole
    return whole


def test_rollout_of_an_encoder_decoder(insides: dict[str, Inspection]) -> None:
    """Caught: the encoder's part forgotten, cross before self, the halves mixed up."""
    inside = insides["transformer"]
    found, whole, s = rollout(inside.activations), flow(inside), len(inside.input.source)
    np.testing.assert_allclose(found["encoder"][-1], whole[:s, :s], atol=1e-6)
    np.testing.assert_allclose(found["decoder"][-1], whole[s:, s:], atol=1e-6)
    np.testing.assert_allclose(found["cross"][-1], whole[s:, :s], atol=1e-6)
    np.testing.assert_allclose(found["decoder"].sum(-1) + found["cross"].sum(-1), 1.0, atol=1e-6)


@pytest.mark.parametrize("name", ["gpt", "mlm"])
def test_rollout_counts_every_path(insides: dict[str, Inspection], name: str) -> None:
    """For a few pairs of positions, the sum over all ways from one to the other through three layers, one by one."""
    inside = insides[name]
    kind = "decoder" if name == "gpt" else "encoder"
    layers = [0.5 * np.eye(w.shape[-1]) + 0.5 * w.mean(0) for w in inside.activations.weights(kind)]
    found = rollout(inside.activations)[kind]
    size = found.shape[-1]
    for i, j in ((size - 1, 0), (size - 1, size - 1), (2, 1)):
        ways = sum(layers[2][i, a] * layers[1][a, b] * layers[0][b, j] for a in range(size) for b in range(size))
        assert found[-1][i, j] == pytest.approx(ways, abs=1e-6)
    np.testing.assert_allclose(found.sum(-1), 1.0, atol=1e-5)
    # Without residuals nothing stays.
    bare = rollout(inside.activations, residual=False)[kind][0]
    np.testing.assert_allclose(bare, inside.activations.weights(kind)[0].mean(0), atol=1e-6)


def test_alignment_is_the_mean_of_all_heads(insides: dict[str, Inspection]) -> None:
    seen = insides["transformer"].activations
    heads = np.concatenate(seen.weights("cross"))
    np.testing.assert_allclose(alignment(seen), heads.mean(0), atol=1e-6)
    assert alignment(insides["gpt"].activations) is None


# ---- characters and words


@cache
def tokenizer_of(kind: str) -> Tokenizer:
    return Tokenizer.train(kind, [*SENTENCES * 3, "我喜欢你的猫。天气很好"], 330)


@given(st.text(max_size=24), st.sampled_from(["bpe", "unigram"]))
def test_units_are_whole_characters(text: str, kind: str) -> None:
    """Any text: the units stand in order and spell it, and no unit ends inside a character, though byte pieces do. Caught:
    a piece that begins in one character and ends in the next counted to one of them."""
    tokenizer = tokenizer_of(kind)
    ids = tokenizer.encode(text)
    found = reading(tokenizer, ids)
    for units in (found.characters, found.words):
        assert "".join(units.labels) == text
        assert units.starts == sorted(set(units.starts)) and units.starts[:1] == ([0] if ids else [])
        for number, label in enumerate(units.labels):
            end = units.starts[number + 1] if number + 1 < len(units.starts) else len(ids)
            assert tokenizer.decode(ids[units.starts[number] : end]) == label


def test_a_character_of_several_pieces_is_one_unit() -> None:
    tokenizer = tokenizer_of("bpe")
    ids = [1, *tokenizer.encode("雪 ok"), 2]
    found = reading(tokenizer, ids)
    assert len(tokenizer.encode("雪")) == 3
    assert found.characters.labels[:2] == ["<bos>", "雪"] and found.characters.starts[:3] == [0, 1, 4]
    assert found.words.labels == ["<bos>", "雪", " ok", "<eos>"]


def test_words_in_chinese_and_letters_with_marks() -> None:
    assert reading(tokenizer_of("char"), tokenizer_of("char").encode("我喜欢你")).words.labels == ["我", "喜欢", "你"]
    tokenizer = tokenizer_of("bpe")
    family = "👩\u200d👧"
    found = reading(tokenizer, tokenizer.encode(f"e\u0301{family}🇩🇪👍🏽"))
    assert found.characters.labels == ["e\u0301", family, "🇩🇪", "👍🏽"]
    assert reading(tokenizer_of("word"), tokenizer_of("word").encode("the cat sat.")).words.labels == [
        "the",
        " cat",
        " sat",
        ".",
    ]


def test_bytes_that_spell_nothing() -> None:
    """A model may write half a character. Caught: the letter behind it swallowed."""
    tokenizer = tokenizer_of("bpe")
    snow, a = tokenizer.encode("雪"), tokenizer.encode("q")
    found = reading(tokenizer, [snow[0], *a, snow[0], snow[1]])
    assert found.characters.labels == ["\ufffd", "q", "\ufffd"] and found.characters.starts == [0, 1, 2]
