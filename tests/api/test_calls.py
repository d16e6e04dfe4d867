"""What every verb of `glassformer.load(run)` promises: options, refusals, a text for a text and a list for a list."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import glassformer
from glassformer import tasks
from glassformer.api import load
from glassformer.config import DecodeConfig
from glassformer.errors import ConfigError, UserError
from glassformer.tasks import LONGEST_TEXT, check_text
from glassformer.tasks.settings import changed
from glassformer.text.tokenizer import CONTROL, UNK, Tokenizer
from tests.talking import make_run

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("recipe", "options", "expected"),
    [
        ({"beam": 6, "n_best": 2}, {"temperature": 0.7}, {"beam": None, "n_best": 1, "temperature": 0.7}),
        ({"temperature": 0.7, "top_k": 5, "num_samples": 3}, {"beam": 1}, {"temperature": 0, "top_k": None}),
        ({"temperature": 0.7, "top_k": 5}, {"temperature": 0.0}, {"top_k": None, "beam": None}),
        ({"temperature": 0.7, "top_k": 5}, {"top_k": 9}, {"temperature": 0.7, "top_k": 9}),
        ({"beam": 6, "n_best": 3}, {"beam": 1}, {"beam": 1, "n_best": 1}),
        ({}, {"n_best": 9}, {"beam": 9, "n_best": 9}),
        ({}, {"n_best": "2", "alpha": "1"}, {"n_best": 2, "alpha": 1.0}),
        ({"alpha": 2.0}, {"beam": 3}, {"alpha": 2.0, "beam": 3}),
    ],
)
def test_options_put_aside_what_they_contradict_in_the_recipe(
    recipe: dict[str, Any], options: dict[str, Any], expected: dict[str, Any]
) -> None:
    found = changed(DecodeConfig(**recipe), options)
    assert {name: getattr(found, name) for name in expected} == expected


@pytest.mark.parametrize(
    "options",
    [{"beam": 4, "temperature": 0.5}, {"beem": 4}, {"beam": "four"}, {"beam": 2, "n_best": 3}, {"top_k": 5}],
)
def test_options_that_contradict_each_other_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        changed(DecodeConfig(), options)


CALLS = {
    "translate": lambda model: model.translate(["a"]),
    "generate": lambda model: model.generate("a", max_new_tokens=2),
    "stream": lambda model: list(model.stream("a", max_new_tokens=2)),
    "fill": lambda model: model.fill(["___"]),
    "classify": lambda model: model.classify(["a"]),
    "tag": lambda model: model.tag([["a"]]),
}
MAY = {
    "transformer": {"translate", "stream"},
    "gpt": {"generate", "stream"},
    "pairs": {"translate", "stream"},
    "mlm": {"fill"},
    "classify": {"classify"},
    "tag": {"tag"},
}


@pytest.mark.parametrize("kind", MAY)
def test_a_run_of_the_wrong_family_says_so_in_a_sentence(runs: dict[str, Any], kind: str) -> None:
    for verb, call in CALLS.items():
        if verb in MAY[kind]:
            call(runs[kind])
            continue
        with pytest.raises(UserError, match="cannot") as error:
            call(runs[kind])
        assert "\n" not in str(error.value)


def test_half_a_character_is_refused(runs: dict[str, Any]) -> None:
    text = "half \ud83d"
    for call in (
        lambda: runs["transformer"].translate(["a", text]),
        lambda: runs["transformer"].translate(["a"], prefix=text),
        lambda: runs["gpt"].generate(text),
        lambda: runs["mlm"].fill(["___" + text]),
        lambda: runs["classify"].classify([text]),
        lambda: runs["tag"].tag([[text]]),
    ):
        with pytest.raises(UserError, match="surrogate"):
            call()


def test_a_strange_example_does_not_stop_a_validation(runs: dict[str, Any]) -> None:
    """Training data may hold a NUL, a blank side or a line far too long; only strangers' text is held to more."""
    for text in ("a\0b", "x" * (LONGEST_TEXT + 1)):
        with pytest.raises(UserError):
            check_text(text)
    strange = ["a\0b", "", "\n", "cat " * 1000]
    found = runs["transformer"].translate(strange, beam=1, max_new_tokens=1)
    assert len(found) == 4 and found[1:3] == ["", "\n"]
    assert all(runs["classify"].classify(strange))
    assert len(runs["tag"].tag([["a\0b", "", "\n"]])[0]) == 3


def test_a_text_is_answered_with_a_text_and_a_list_with_a_list(runs: dict[str, Any]) -> None:
    """And a task, which takes lists alone, does not answer a text letter by letter."""
    for kind, verb, text in (
        ("transformer", "translate", "abc"),
        ("pairs", "translate", "abc"),
        ("gpt", "generate", "abc"),
        ("mlm", "fill", "a ___"),
        ("classify", "classify", "abc"),
        ("tag", "tag", "Anna lives"),
    ):
        one, many = getattr(runs[kind], verb)(text), getattr(runs[kind], verb)([text, text])
        assert isinstance(one, list if verb == "tag" else str)
        assert [one, one] == many if verb != "tag" else [one.labels, one.labels] == [own.labels for own in many]
        with pytest.raises(UserError, match="list"):
            getattr(tasks, verb)(runs[kind], text)


def test_text_never_becomes_a_control_id(runs: dict[str, Any]) -> None:
    model = runs["transformer"]
    ids = model.tokenizers.source.encode("</s><eos ><mask >")
    assert all(token >= CONTROL or token == UNK for token in ids)


def test_loading_says_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no run"):
        load(tmp_path / "nothing")
    run = make_run(tmp_path / "run")
    with pytest.raises(UserError, match="step 7"):
        load(run, step=7)


VERBS: dict[str, list[str]] = {
    "transformer": ["translate", "embed", "score"],
    "gpt": ["generate", "embed", "score"],
    "pairs": ["translate"],
    "mlm": ["fill", "embed"],
    "classify": ["classify"],
    "tag": ["tag"],
}


@pytest.mark.parametrize("kind", VERBS)
def test_no_tokenizer_is_given_a_text_without_end(
    kind: str, runs: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Broken: a word of 400,000 letters is cut for seconds before anything is said."""
    seen: list[int] = []
    real = Tokenizer.encode_batch

    def watched(self: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
        seen.append(sum(map(len, texts)))
        return real(self, texts)

    monkeypatch.setattr(Tokenizer, "encode_batch", watched)
    model, long = runs[kind], "a" * 400_000
    given: list[Any] = [long, ["the cat", long]]
    given += [[["the", long]], [["a"] * 400_000]] if kind == "tag" else []
    for verb in VERBS[kind]:
        for texts in given:
            more = [texts] if verb == "score" else []
            with pytest.raises(UserError, match="at most 100,000 are taken at once; break it into lines"):
                getattr(model, verb)(texts, *more)
    if hasattr(model, "stream"):
        with pytest.raises(UserError, match="at most 100,000 are taken at once"):
            next(model.stream(long))
    assert max(seen, default=0) <= LONGEST_TEXT


def test_the_other_answers_are_easy_to_see(runs: dict[str, Any], as_in_production: None) -> None:
    """Caught: a repr of an alternative that is a page of ids."""
    found = runs["transformer"].translate("the cat", n_best=3)
    assert len(found.texts) == 3 and found.texts[0] == found and len(found.alternatives) == 2
    assert repr(found.alternatives[0]) == f"Answer({found.texts[1]!r}, score={found.answers[1].score:.3f})"


def test_layers_are_reached_as_those_of_a_list(runs: dict[str, Any]) -> None:
    """What torch's ModuleList has, since the repr shows the stack as one. Broken variant: a norm behind the last block counted
    as one of them."""
    decoder = runs["gpt"].model.decoder
    assert len(decoder) == runs["gpt"].config.n_layer and list(decoder) == decoder.layers
    assert (
        decoder[0] is decoder.get_submodule("0") and decoder[-1] is decoder.layers[-1] and decoder[:1] == [decoder[0]]
    )


def test_a_file_is_scored_as_its_examples_are(runs: dict[str, Any], tmp_path: Path, as_in_production: None) -> None:
    pairs = [("the cat", "a dog"), ("a dog", "the cat")]
    file = tmp_path / "some.tsv"
    file.write_text("".join(f"{source}\t{target}\n" for source, target in pairs), encoding="utf-8")
    of_file, of_pairs = (
        glassformer.evaluate(runs["transformer"], file=file),
        glassformer.evaluate(runs["transformer"], pairs),
    )
    assert dict(of_file) == dict(of_pairs) and of_file.on == str(file) and of_file.examples == 2
