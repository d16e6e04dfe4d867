"""Texts longer than a model has learned to read: overlapping windows, of which no one is longer than it knows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from glassformer.api import load
from glassformer.data.examples import causal_windows
from glassformer.data.tokens import TokenFile
from glassformer.errors import UserError
from glassformer.nn.rows import Rows
from glassformer.tasks.embed import embed
from glassformer.tasks.score import token_scores
from glassformer.text.tokenizer import BOS, MASK
from tests.api.conftest import LABELS
from tests.talking import make_run

LONGEST = 24


def widths_of(model: Any) -> list[int]:
    """The lengths of the rows that a model reads from now on."""
    found: list[int] = []

    def note(_module: Any, args: tuple[Any, ...]) -> None:
        found.extend(args[0].real.sum(1).tolist())

    model.model.register_forward_pre_hook(note)
    return found


@pytest.fixture
def widths_of_hidden(runs: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The widths of the rows whose hidden states a GPT is asked for."""
    found: list[int] = []
    hidden = runs["gpt"].model.hidden

    def noted(rows: Rows) -> Any:
        found.append(rows.tokens.size(1))
        return hidden(rows)

    monkeypatch.setattr(runs["gpt"].model, "hidden", noted)
    return found


@pytest.fixture
def taggers(tmp_path: Path) -> tuple[Any, Any]:
    """The same tagger twice: it has learned from 24 tokens at most, or that is not known."""
    made = []
    for name in ("known", "unknown"):
        folder = make_run(tmp_path / name, labels=LABELS, model={"family": "bert", "head": "tag"}, data={"task": "tag"})
        if name == "known":
            TokenFile.write(folder / "data" / "train.text", [[7] * (LONGEST - 1), [7, 8]], 40)
        made.append(load(folder))
    return made[0], made[1]


def test_a_text_that_fits_is_answered_as_ever(taggers: tuple[Any, Any]) -> None:
    """To the last bit. Broken variant: windows from the first token on."""
    words = ["Anna", "lives", "in", "Paris", "now"]
    assert taggers[0].tag([words]) == taggers[1].tag([words])


def test_each_word_gets_the_tag_of_the_window_it_is_deepest_in(taggers: tuple[Any, Any]) -> None:
    """Broken variants: rows as long as the block, at positions that were never learned; words tagged twice, or at an edge."""
    model = taggers[0]
    widths = widths_of(model)
    words = ("the cat sat on the mat and Anna ran to the cold river in Paris " * 6).split()
    tags = model.tag([words, words[:3]])
    assert [tag.word for tag in tags[0]] == words and [tag.word for tag in tags[1]] == words[:3]
    assert max(widths) == LONGEST
    most = LONGEST - 1
    ids = [token for word in words for token in model.tokenizers.target.encode(word)]
    starts = [
        k * (len(ids) - most) // (c - 1) for c in [-(-(len(ids) - most) // (most - most // 2)) + 1] for k in range(c)
    ]
    place = 0
    for word, tagged in zip(words, tags[0], strict=True):
        answers = {}
        for start in starts:
            if start <= place < start + most:
                edge = min(place - start if start else 99, start + most - place - 1 if start + most < len(ids) else 99)
                with torch.no_grad():
                    logits = model.model(Rows.from_lists([[BOS, *ids[start : start + most]]]))[0, place - start + 1]
                answers.setdefault(edge, []).append(float(logits.softmax(-1).max()))
        assert any(
            tagged.probability == pytest.approx(p, abs=1e-5) for edge in sorted(answers)[-1:] for p in answers[edge]
        ) or (len(answers) > 1 and sorted(answers)[-1] - sorted(answers)[-2] <= 1)
        place += len(model.tokenizers.target.encode(word))


def test_a_word_of_more_pieces_than_a_window_has_one_tag(taggers: tuple[Any, Any]) -> None:
    """Broken variant: its later pieces taken for words."""
    tags = taggers[0].tag([["Anna", "x" * 300, "in", "Paris"]])[0]
    assert [len(tag.word) for tag in tags] == [4, 300, 2, 5]


def test_a_long_text_has_the_mean_of_its_windows(runs: dict[str, Any]) -> None:
    """Broken variant: its beginning alone, so that what stands at the end changes nothing."""
    model = runs["classify"]
    (long,) = model.classify(["a" * 200])
    assert sum(label.probability for label in long.labels) == pytest.approx(1)
    ends = model.classify(
        ["the cat sat on the mat. " * 6 + end for end in ("Anna lives in Paris", "3 mai 1979, 12 june")]
    )
    assert ends[0].labels != ends[1].labels


def test_masks_of_a_long_text_are_each_filled(runs: dict[str, Any]) -> None:
    """Broken variants: a refusal; a mask answered by two windows, or out of its order."""
    model = runs["mlm"]
    text = " ".join(["the cat sat on the [MASK] and a dog ran"] * 12)
    (filled,) = model.fill([text], top=2)
    assert len(filled.masks) == 12 and "[MASK]" not in str(filled)
    ids = [
        token
        for i, part in enumerate(text.split("[MASK]"))
        for token in [*([MASK] if i else []), *model.tokenizers.target.encode(part.removesuffix(" "))]
    ]
    assert len(ids) > model.max_text_tokens


@pytest.mark.parametrize("kind", ["transformer", "gpt", "mlm", "classify"])
def test_the_vector_of_a_long_text_knows_its_end(runs: dict[str, Any], kind: str) -> None:
    """Broken variants: the beginning alone; windows of other texts counted in."""
    model, body = runs[kind], "the cat sat on the mat. " * 12
    for pool in ("mean", "last"):
        first, second, short, again = embed(
            model, [body + "Anna.", body + "3 mai 1979!", "the cat", body + "Anna."], pool=pool
        )  # type: ignore[arg-type]
        assert not torch.equal(first, second)
        torch.testing.assert_close(first, again)
        torch.testing.assert_close(short, embed(model, ["the cat"], pool=pool)[0], atol=1e-5, rtol=1e-5)  # type: ignore[arg-type]


def test_the_score_of_a_long_text_has_every_token_once(runs: dict[str, Any], widths_of_hidden: list[int]) -> None:
    """In rows no longer than the block, what fits as ever, and each token after the prompt once; a pair that is too long is
    refused. Broken variants: one long row, at positions never learned; tokens of the overlap counted twice."""
    model = runs["gpt"]
    block, body = model.model.config.block_size, "the cat sat on the mat. " * 20
    ids = model.tokenizers.target.encode(body)
    assert len(ids) > 2 * block
    (long,), (short,) = token_scores(model, ["the"], [body]), token_scores(model, ["the"], [body[:20]])
    assert len(long.token_logprobs) == len(long.tokens) == len(ids)
    assert max(widths_of_hidden) <= block
    n = len(short.token_logprobs) - 1  # the last piece may be another where the text goes on
    assert long.token_logprobs[:n] == pytest.approx(short.token_logprobs[:n], abs=1e-5)
    with pytest.raises(UserError, match="sentence by sentence"):
        token_scores(runs["transformer"], [body], ["the cat"])


@pytest.mark.parametrize("most", [1, 2, 3, 8])
def test_causal_windows_answer_each_token_once(most: int) -> None:
    """Broken variants: a gap, an overlap, a window longer than `most`, a token with less than half a window before it."""
    for length in range(1, 40):
        cut = causal_windows(length, most)
        assert [w.first for w in cut] == [0, *(w.last for w in cut[:-1])] and cut[-1].last == length
        assert all(w.start <= w.first < w.last == w.end <= w.start + most for w in cut)
        assert all(w.first - w.start >= most // 2 for w in cut[1:])
