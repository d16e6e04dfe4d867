"""A tokenizer a side, and the symbols of features as tokens of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import glassformer
from glassformer.config import Recipe
from glassformer.errors import ConfigError
from glassformer.tasks.labels import unknown

SMALL = {"n_layer": 1, "n_head": 2, "n_embd": 16, "n_hidden": 16, "block_size": 64}
TRAIN = {"steps": 2, "validate_every": 2, "save_every": 2, "device": "cpu"}
LEMMAS = ["singen", "lachen", "sehen", "gehen", "machen"]


def trained(tmp_path: Path, text: str, **data: object) -> Any:
    """A small model of these lines."""
    file = tmp_path / "pairs.tsv"
    file.write_text(text, encoding="utf-8")
    values = {
        "model": SMALL,
        "train": TRAIN,
        "data": {"task": "pairs", "train": str(file), "val_fraction": 0.2, **data},
    }
    return glassformer.train(values, out=tmp_path / "run")


def test_each_side_has_its_own_kind(tmp_path: Path) -> None:
    """Letters in, sounds out: a sound is one token, and its blank comes back. Broken variant: the source's kind on both sides."""
    text = "".join(f"{word}\t{' '.join(word)} AA{number % 3}\n" for number, word in enumerate(LEMMAS * 8))
    model = trained(tmp_path, text, tokenizer="char", target_tokenizer="word")
    source, target = model.tokenizers.source, model.tokenizers.target
    assert (source.kind, target.kind) == ("char", "word") and not model.tokenizers.shared
    assert len(source.encode("sehen")) == 5 and len(target.encode("e n AA1")) == 3
    assert target.decode(target.encode("e n AA1")) == "e n AA1"


def test_a_feature_is_one_token_and_a_tab_asks_for_it(tmp_path: Path) -> None:
    """Broken variants: features spelled by their letters, which are the lemma's too; a tab read as a character."""
    text = "".join(f"{w}\t{w}te\tV;PST;{n % 3}\n" for n, w in enumerate(LEMMAS * 8))
    model = trained(tmp_path, text, tokenizer="char", features_field="3")
    pieces = model.tokenizers.source.pieces(model.tokenizers.source.encode("<V> <PST> <1> sehen"))
    assert pieces == ["<V> ", "<PST> ", "<1> ", *"sehen"]
    asked = [model.translate(text) for text in ("sehen\tV;PST;1", "<V> <PST> <1> sehen")]
    assert asked[0] == asked[1]
    assert unknown(model, "sehen\tV;PST;1") == [] and unknown(model, "sehen\tV;PST;9") == ["<9>"]


@pytest.mark.parametrize(
    ("data", "told"),
    [
        ({"pattern": "Cl", "tokenizer": "bpe"}, "data.tokenizer=char"),
        ({"pattern": "(", "tokenizer": "char"}, "regular expression"),
        ({"pattern": "a*", "tokenizer": "char"}, "at least one character"),
        ({"decompose": True}, "data.tokenizer=char"),
        ({"task": "text", "target_tokenizer": "word"}, "for pairs"),
    ],
)
def test_what_does_not_go_together_is_refused(data: dict[str, object], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        Recipe.from_dict({"data": data})
