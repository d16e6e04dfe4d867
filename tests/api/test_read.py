"""Encoders alone: masks filled, texts classified, words tagged, against models read by hand."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch

from glassformer.api import load
from glassformer.errors import UserError
from glassformer.nn.rows import Rows
from glassformer.tasks.labels import masked_ids
from glassformer.text.tokenizer import BOS, CONTROL, MASK
from tests.api.conftest import LABELS
from tests.talking import make_run

pytestmark = pytest.mark.slow


@torch.no_grad()
def test_masks_are_filled_with_what_the_model_finds_likeliest(runs: dict[str, Any]) -> None:
    """Caught: BOS left out, the space before the mask read as a token, a control id as an answer."""
    model = runs["mlm"]
    encode = model.tokenizers.target.encode
    ids = [BOS, *encode("the cat sat on the"), MASK, *encode(" and"), MASK, *encode(".")]
    chances = model.model(Rows.from_lists([ids]))[0].softmax(-1)
    chances[:, :CONTROL] = 0
    for text in ("the cat sat on the [MASK] and ___.", "the cat sat on the ____ and [MASK]."):
        (filled,) = model.fill([text], top=3)
        whole = list(ids)
        for place, mask in zip((i for i, token in enumerate(ids) if token == MASK), filled.masks, strict=True):
            best = chances[place].topk(3)
            assert [word.label for word in mask] == model.tokenizers.target.pieces(best.indices.tolist())
            assert [word.probability for word in mask] == pytest.approx(best.values.tolist(), abs=1e-5)
            whole[place] = int(best.indices[0])
        assert filled == model.tokenizers.target.decode(whole)


def test_only_the_marker_is_a_mask(runs: dict[str, Any]) -> None:
    model = runs["mlm"]
    assert masked_ids(model, "<mask > ___ <mask> __").count(MASK) == 1
    with pytest.raises(UserError):
        model.fill(["no mask here"])


@torch.no_grad()
def test_classes_are_read_off_the_first_place(runs: dict[str, Any]) -> None:
    model = runs["classify"]
    texts = ["the cat sat", "Anna", ""]
    for text, found in zip(texts, model.classify(texts), strict=True):
        row = [BOS, *model.tokenizers.target.encode(text)][: model.model.config.block_size]
        chances = model.model(Rows.from_lists([row]))[0, 0].softmax(-1)
        assert [label.label for label in found.labels] == [LABELS[i] for i in chances.argsort(descending=True).tolist()]
        assert [label.probability for label in found.labels] == pytest.approx(
            sorted(chances.tolist(), reverse=True), abs=1e-5
        )


@torch.no_grad()
def test_words_are_tagged_at_their_first_piece(runs: dict[str, Any]) -> None:
    """Caught: a word that loses its place."""
    model = runs["tag"]
    words = ["Anna", "lives", "in", "Paris"]
    pieces = [model.tokenizers.target.encode(word) for word in words]
    chances = model.model(Rows.from_lists([[BOS, *chain(*pieces)]]))[0].softmax(-1)
    place = 1
    found = model.tag([words, "Anna lives in Paris", [], "丂"])
    assert found[0] == found[1] and found[2] == []
    for word, own, tagged in zip(words, pieces, found[0], strict=True):
        assert tagged.word == word and tagged.label == LABELS[int(chances[place].argmax())]
        assert tagged.probability == pytest.approx(float(chances[place].max()), abs=1e-5)
        place += len(own)
    assert found[3][0].word == "丂"


def test_a_date_line_is_cut_as_its_training_lines_were(tmp_path: Path) -> None:
    data = {"task": "tag", "builtin": "date-parts"}
    model = load(make_run(tmp_path / "run", labels=LABELS, model={"family": "bert", "head": "tag"}, data=data))
    assert [t.word for t in model.tag(["3 mai, 1979年"])[0]] == ["3", "mai", ",", "1979", "年"]
