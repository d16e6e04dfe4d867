"""Words and characters that a vocabulary does not have: found by the tokenizer, told on stderr once, and named in the JSON."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers import models, pre_tokenizers

from glassformer import tasks
from glassformer.api import load
from glassformer.cli import generate, translate
from glassformer.text.imported import ImportedTokenizer
from glassformer.text.tokenizer import CONTROL_NAMES, UNK, Tokenizer
from tests.talking import SENTENCES, make_run

BERT = {"family": "bert"}
RUNS: dict[str, dict[str, Any]] = {
    "translate": {"tokenizer": "word"},
    "generate": {"tokenizer": "word", "model": {"family": "gpt"}, "data": {"task": "text"}},
    "fill": {"tokenizer": "word", "model": BERT, "data": {"task": "text"}},
    "classify": {"labels": ["a", "b"], "model": BERT | {"head": "classify"}, "data": {"task": "classify"}},
    "tag": {"tokenizer": "word", "labels": ["a", "b"], "model": BERT | {"head": "tag"}, "data": {"task": "tag"}},
}
VERBS: dict[str, Any] = {
    "translate": translate.translate,
    "generate": generate.generate,
    "fill": generate.fill,
    "classify": generate.classify,
    "tag": generate.tag,
}


@pytest.mark.parametrize("kind", ["char", "word"])
@pytest.mark.parametrize("lowercase", [False, True])
def test_what_is_found_is_what_becomes_unknown(kind: str, lowercase: bool) -> None:
    """The rest of the text is known, and each piece alone is not; broken variants: a piece's space, a letter that lower case
    turns into two, Chinese words."""
    learned, draw = Tokenizer.train(kind, SENTENCES, 300, lowercase), random.Random(3)
    for _ in range(60):
        words = draw.choices(["the", "cat", "Zebra", "quiz", "İs", "日语", "x9", "river;", "\u200b"], k=6)
        text = " ".join(words)
        found = learned.unknown_pieces(text)
        assert bool(found) == (UNK in learned.encode(text))
        assert all(piece in text and UNK in learned.encode(piece) for piece in found)
        assert len(found) == len(set(found))
        rest = text
        for piece in sorted(found, key=len, reverse=True):
            rest = rest.replace(piece, "the" if kind == "word" else "t")
        assert UNK not in learned.encode(rest)


def test_bytes_know_everything() -> None:
    for kind in ("bpe", "unigram"):
        assert Tokenizer.train(kind, SENTENCES, 300).unknown_pieces("Ω 日语 \u200b") == []


def test_an_imported_vocabulary_names_the_word() -> None:
    """Of one with an id that begins every text, too."""
    vocabulary = {name: i for i, name in enumerate([*CONTROL_NAMES, "the", "cat", "[UNK]"])}
    library = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    library.pre_tokenizer = pre_tokenizers.Whitespace()
    assert ImportedTokenizer(library, 7, before=[5]).unknown_pieces("the  dog and the cat") == ["dog", "and"]


@pytest.mark.parametrize("verb", RUNS)
def test_every_verb_tells(verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One line on stderr for all texts, and a field for those alone that have any; the mask of `fill` is no word."""
    run = make_run(tmp_path / "run", **RUNS[verb])
    mask = " ___" if verb == "fill" else ""
    strange = "Ω" if verb == "classify" else "zebra"
    texts = [f"the cat{mask}", f"the {strange}{mask}", f"{strange} a dog{mask}"]
    VERBS[verb](run, texts, as_json=True, device="cpu")
    shown = capsys.readouterr()
    found = [json.loads(line).get("unknown") for line in shown.out.splitlines()]
    assert found == [None, [strange], [strange]]
    assert shown.err == f"not in this model's vocabulary, and read as unknown: {strange!r}\n"
    VERBS[verb](run, texts[:1], device="cpu")
    assert capsys.readouterr().err == ""


def test_the_first_few_are_named_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of a file of several groups, and of a text that is shown as it is written."""
    run, file = make_run(tmp_path / "run", **RUNS["translate"]), tmp_path / "in.txt"
    file.write_text("the cat\n" * 8 + "one two three four five six seven\n" + "\n" * 7 + "eight\n")
    translate.translate(run, file=file, device="cpu", batch_size=1, max_new_tokens=1)
    told = [line for line in capsys.readouterr().err.splitlines() if "unknown" in line]
    assert len(told) == 1 and told[0].endswith(": 'one', 'two', 'three', 'four', 'five' and 2 more")
    run = make_run(tmp_path / "gpt", **RUNS["generate"])
    generate.generate(run, ["the zebra"], stream=True, device="cpu")
    assert "unknown: 'zebra'" in capsys.readouterr().err
    assert tasks.unknown(load(run, device="cpu"), "the zebra") == ["zebra"]
