"""Windows of long texts: every token answered once, with room on either side, never more read than a model learned to."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from glassformer.config import DataConfig, Recipe
from glassformer.data.batches import SentenceBatches, make_batches
from glassformer.data.encoding import trained_length
from glassformer.data.examples import IGNORE, Tag, windows
from glassformer.data.tokens import TokenFile
from glassformer.evaluation.teacher_forced import example_losses, teacher_forced
from glassformer.models import BERT
from glassformer.runs.overview import too_long
from glassformer.text.tokenizer import BOS, EOS
from tests.read_batches import one_epoch


def test_each_token_is_answered_once_where_it_sees_most() -> None:
    """Broken variants: windows side by side, so that a border cuts what belongs together; a last window that is shorter; a token
    answered twice or never; the owner of a token not the window in which it is farthest from an edge."""
    for most in (1, 2, 3, 7, 16):
        for length in (0, 1, most - 1, most, most + 1, 2 * most, 5 * most + 3):
            cut = windows(length, most)
            assert [token for window in cut for token in range(window.first, window.last)] == list(range(length))
            assert len(cut) == 1 or {window.end - window.start for window in cut} == {most}
            assert (len(cut) == 1) == (length <= most)
            ends = {0: -length, length - 1: -length}  # the ends of the text are no edges

            def room(token: int, window: tuple[int, int, int, int], length: int = length) -> int:
                left = length if window[0] == 0 else token - window[0]
                right = length if window[1] == length else window[1] - 1 - token
                return min(left, right)

            for window in cut:
                for token in range(window.first, window.last):
                    if token not in ends:
                        holds = [other for other in cut if other.start <= token < other.end]
                        assert room(token, window) >= max(room(token, other) for other in holds) - 1
                        assert most < 4 or room(token, window) >= most // 4 - 1


def files_of(lengths: list[int], tags: int = 3) -> dict[str, TokenFile]:
    draw = np.random.default_rng(1)
    text = [draw.integers(5, 40, size=n) for n in lengths]
    labels = [[IGNORE if token % 4 == 0 else int(token) % tags for token in own] for own in text]
    return {"text": TokenFile.of(text, 40), "labels": TokenFile.of(labels)}


@pytest.mark.parametrize("layout", ["padded", "packed"])
@pytest.mark.parametrize("closed", [False, True])
def test_long_tagged_sentences_are_learned_in_windows(layout: str, closed: bool) -> None:
    """Broken variants: long sentences left out, which hold the most words; a tag learned in two windows; rows of more than the
    limit; an end token that pushes the last word out."""
    files = files_of([5, 30, 12, 100, 9, 10])
    config = DataConfig(task="tag", batch_tokens=40, close_texts=closed, max_length=10)
    batches = make_batches(config, "bert", "tag", files, 16, 1, layout=layout)  # type: ignore[arg-type]
    assert isinstance(batches, SentenceBatches)
    assert batches.dropped == 0 and batches.distinct.tolist() == list(range(6))
    learned: dict[int, list[tuple[int, int]]] = {}
    for batch in one_epoch(batches):
        numbers = iter(batch.examples)
        for row in range(len(batch.labels)):
            for segment in range(1, int(batch.rows.segments[row].max()) + 1):
                inside = batch.rows.segments[row] == segment
                tokens, labels = batch.rows.tokens[row][inside], batch.labels[row][inside]
                assert tokens[0] == BOS and (tokens[-1] == EOS) == closed and len(tokens) <= 10
                found = learned.setdefault(next(numbers), [])
                found += [(int(t), int(y)) for t, y in zip(tokens, labels, strict=True) if y != IGNORE]
    for number in range(6):
        text, tags = files["text"][number].tolist(), files["labels"][number].tolist()
        assert sorted(learned[number]) == sorted((t, y) for t, y in zip(text, tags, strict=True) if y != IGNORE)


def test_what_fits_is_learned_as_ever() -> None:
    """Broken variant: rows or labels of short sentences that are other ones where a limit is given."""
    files = files_of([5, 3, 9])
    ids = np.array([2, 0, 1])
    for closed in (False, True):
        free, limited = (Tag(files["text"], files["labels"], closed=closed, limit=limit) for limit in (None, 12))
        assert all((a == b).all() for a, b in zip(free.rows(ids), limited.rows(ids), strict=True))
        assert limited.numbers(ids).tolist() == ids.tolist()


def test_a_long_sentence_is_measured_as_one_example() -> None:
    """Broken variants: the loss of its last window taken for its loss; a `limit` that counts windows."""
    files = files_of([5, 30, 12, 100])
    config = DataConfig(task="tag", batch_tokens=40)
    batches = make_batches(config, "bert", "tag", files, 10, 1, layout="padded", training=False)
    net = BERT(n_layer=1, n_head=2, n_embd=16, vocab_size=40, block_size=10, head="tag", n_label=3).eval()
    with torch.no_grad():
        losses = example_losses(net, list(batches.in_order(40)))
    counts = [int((own != IGNORE).sum()) for own in map(files["labels"].__getitem__, range(4))]
    assert [losses[number].labels for number in range(4)] == counts
    scores = teacher_forced(net, batches.in_order(40))
    assert scores.values["loss"] == pytest.approx(sum(own.nats for own in losses.values()) / sum(counts))
    assert {e for batch in batches.in_order(40, limit=2) for e in batch.examples} == {0, 1}


def test_the_trained_length_is_that_of_the_rows(tmp_path: Path) -> None:
    """Broken variants: the block's size where nothing so long was learned; control tokens forgotten; sentences of a class counted
    that were left out."""

    def length(task: str, lengths: list[int], **data: object) -> int | None:
        for name, file in files_of(lengths).items():
            TokenFile.write(tmp_path / f"train.{name}", [file[i] for i in range(len(file))], file.vocab_size)
        recipe = Recipe.from_dict(
            {"model": {"family": "bert", "head": task, "block_size": 64}, "data": {"task": task, **data}}
        )
        return trained_length(recipe, tmp_path)

    assert length("tag", [5, 20]) == 21 and length("tag", [5, 20], close_texts=True) == 22
    assert length("tag", [5, 200]) == 64 and length("tag", [5, 200], max_length=32) == 32
    assert length("classify", [5, 200]) == 6
    assert (
        trained_length(
            Recipe.from_dict({"model": {"family": "bert", "head": "tag"}, "data": {"task": "tag"}}), tmp_path / "no"
        )
        is None
    )


def test_how_many_are_read_in_windows_is_told() -> None:
    """Broken variants: said to be left out, which they are not; windows counted for sentences; nothing said."""
    recipe = Recipe.from_dict({"model": {"family": "bert", "head": "tag", "block_size": 10}, "data": {"task": "tag"}})
    for lengths, count in (([5, 30, 12, 100], 3), ([5, 9], 0)):
        batches = make_batches(recipe.data, "bert", "tag", files_of(lengths), 10, 1, layout="padded")
        said = list(too_long(batches, "train", recipe))
        assert len(said) == (count > 0)
        assert not said or (said[0].startswith("3 of 4 train examples (75.0%)") and "overlapping windows" in said[0])
