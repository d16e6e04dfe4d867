"""What makes the API kind: a repr that says what a model is, options that complete, answers that print well, scores and
vectors of texts, training and evaluation from memory."""

from __future__ import annotations

import copy
import dataclasses
import inspect
from pathlib import Path
from typing import Any

import pytest
import torch

import glassformer
from glassformer.config import DecodeConfig
from glassformer.errors import ConfigError, UserError
from glassformer.models.costs import count_parameters
from glassformer.nn.rows import Rows
from glassformer.text.tokenizer import BOS, EOS
from tests.programs import run_program
from tests.talking import SENTENCES

ROOT = Path(__file__).parents[1]

KINDS = {"Translator": "transformer", "Generator": "gpt", "Filler": "mlm", "Classifier": "classify", "Tagger": "tag"}


@pytest.fixture
def loaded(runs: dict[str, Any]) -> dict[str, Any]:
    return {name: runs[kind] for name, kind in KINDS.items()} | {"pairs": runs["pairs"]}


@pytest.mark.parametrize("name", KINDS)
def test_a_run_is_loaded_as_what_it_is_for(loaded: dict[str, Any], name: str) -> None:
    model = loaded[name]
    assert type(model) is getattr(glassformer, name)
    assert isinstance(model.model, torch.nn.Module) and model.config is model.model.config
    shown = repr(model)
    for part in (name, "parameters", "tokenizer", model.tokenizer.kind, str(model.origin.path)):
        assert part in shown
    assert model.tokenizer.decode(model.tokenizer.encode("the cat")) == "the cat"
    assert model.metrics == {} and model.to("cpu") is model


def test_options_are_those_of_the_config_and_complete() -> None:
    theirs = {field.name for field in dataclasses.fields(DecodeConfig)}
    for verb in (glassformer.Translator.translate, glassformer.Generator.generate, glassformer.Translator.stream):
        names = set(inspect.signature(verb).parameters)
        assert theirs | {"terms", "prefix", "stops"} <= names and "options" not in names


def test_answers_are_what_they_are_and_know_more(loaded: dict[str, Any]) -> None:
    best = loaded["Translator"].translate("the cat", n_best=3, align=True)
    assert best.texts[0] == best and best.alignment and best.score >= best.alternatives[0].score
    others = [
        loaded["Generator"].generate("the", max_new_tokens=5, num_samples=2),
        loaded["Filler"].fill("the ___ sat"),
        loaded["Classifier"].classify("the cat"),
        loaded["Tagger"].tag("Anna lives"),
    ]
    assert all(copy.copy(answer) == answer for answer in (best, *others))


@torch.no_grad()
def test_a_score_is_the_sum_over_tokens_read_by_hand(loaded: dict[str, Any]) -> None:
    """Against the model straight. Caught: labels one place off, the end left out, padding counted."""
    texts = [("the cat", "a dog"), ("Anna lives in Rome", "the"), ("a", "")]
    for name in ("Translator", "pairs", "Generator"):
        model = loaded[name]
        encode = model.tokenizer.encode
        found = model.score([s for s, _ in texts], [t for _, t in texts])
        for (source, target), own in zip(texts, found, strict=True):
            ids = encode(target) + ([] if name == "Generator" else [EOS])
            begin = {"Translator": [BOS], "Generator": encode(source)}.get(name, [BOS, *encode(source), EOS])
            row = Rows.from_lists([[*begin, *ids[:-1]] if ids else begin])
            inputs = (Rows.from_lists([[*encode(source), EOS]]), row) if name == "Translator" else (row,)
            chances = model.model(*inputs)[0].log_softmax(-1)
            expected = [float(chances[len(begin) - 1 + i, token]) for i, token in enumerate(ids)]
            assert own.token_logprobs == pytest.approx(expected, abs=1e-4)
            assert float(own) == pytest.approx(sum(expected), abs=1e-3)
        answer = model.translate("the cat", beam=1) if name != "Generator" else model.generate("the", temperature=0)
        if answer.best.ended == "eos" and name != "Generator":
            assert float(model.score("the cat", str(answer))) == pytest.approx(answer.logprob, abs=1e-3)
    generator = loaded["Generator"]
    assert generator.score("the cat") == generator.score("", "the cat") == generator.score(["the cat"])[0]
    with pytest.raises(UserError, match="beside its source"):
        loaded["Translator"].score("the cat")
    with pytest.raises(UserError):
        loaded["Translator"].score(["a"], "b")
    with pytest.raises(UserError, match="cannot score"):
        loaded["Filler"].score("a", "b")


@torch.no_grad()
def test_a_vector_of_a_text_does_not_depend_on_its_neighbours(loaded: dict[str, Any]) -> None:
    for name in (*KINDS, "pairs"):
        model = loaded[name]
        for pool in ("mean", "max", "first", "last"):
            many = model.embed([*SENTENCES[:2], "a"], pool=pool)
            assert many.shape == (3, model.config.n_embd) and torch.isfinite(many).all()
            torch.testing.assert_close(model.embed("a", pool=pool), many[2], atol=1e-4, rtol=1e-4)
    model = loaded["Translator"]
    row = Rows.from_lists([[*model.tokenizer.encode("the cat"), EOS]])
    torch.testing.assert_close(model.embed("the cat"), model.model.encode(row)[0].mean(0), atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_every_activation_of_a_text_in_one_line(loaded: dict[str, Any]) -> None:
    """By the method and by the function. Caught: a function that takes ids alone and dies of a text."""
    for name in (*KINDS, "pairs"):
        model = loaded[name]
        logits, found = model.run_with_cache("the cat")
        again, same = glassformer.run_with_cache(model, "the cat", names="*.weights")
        assert torch.equal(logits, again) and set(same) == {own for own in found if own.endswith(".weights")} != set()
        assert all(torch.equal(same[own], found[own]) for own in same)


@pytest.mark.usefixtures("as_in_production")
def test_data_in_the_place_of_a_recipe_is_refused_in_a_sentence(tmp_path: Path) -> None:
    """Caught: a list of pairs taken for the name of a file, which is then too long; data sets by split for a recipe's tables."""
    import datasets
    import pandas

    pairs = [("eins", "one"), ("zwei", "two")] * 60
    frame = pandas.DataFrame(pairs, columns=["source", "target"])
    by_split = datasets.DatasetDict({"train": datasets.Dataset.from_pandas(frame)})
    for data in (pairs, frame, by_split, {"train": pairs}, iter(pairs), 5, None):
        with pytest.raises(UserError, match="data in memory comes second") as error:
            glassformer.train(data, out=tmp_path / "run")
        assert "\n" not in str(error.value)
    with pytest.raises(UserError, match="no recipe"):
        glassformer.train("a" * 5000, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


RECIPE = {
    "model": {"n_layer": 1, "n_head": 2, "n_embd": 32, "n_hidden": 64, "dropout": 0.0, "block_size": 32},
    "data": {"tokenizer": "char", "batch_tokens": 256, "val_fraction": 0.2},
    "decode": {"max_ratio": 1.0, "max_extra": 4},
}


@pytest.mark.slow
def test_training_and_evaluating_from_memory(tmp_path: Path) -> None:
    """A list, a Hugging Face Dataset, a pandas and a polars frame are the same data; str paths; callbacks; settings by name."""
    import datasets
    import pandas
    import polars

    pairs = [(f"{a}{b}", f"{b}{a}") for a in "abcdefgh" for b in "abcdefghij"]
    columns = {"source": [a for a, _ in pairs], "target": [b for _, b in pairs]}
    losses: dict[str, list[float]] = {}
    for name, data in {
        "list": pairs,
        "dataset": datasets.Dataset.from_dict(columns),
        "pandas": pandas.DataFrame(columns),
        "polars": polars.DataFrame(columns),
    }.items():
        losses[name] = []
        model = glassformer.train(
            RECIPE,
            data,
            out=str(tmp_path / name),
            callbacks=[lambda report, own=losses[name]: own.append(report.loss)],
            steps=30,
            learning_rate=5e-3,
            train={"warmup": 5, "validate_every": 30, "device": "cpu"},
        )
    assert all(own == losses["list"] for own in losses.values()) and len(losses["list"]) >= 2
    assert isinstance(model, glassformer.Translator) and model.recipe.train.steps == 30
    assert "exact_match" in model.metrics
    found = glassformer.evaluate(str(tmp_path / "list"), split="val")
    assert found["loss"] == pytest.approx(model.metrics["loss"], rel=1e-4)
    own = glassformer.evaluate(model, pairs[:7])
    assert own.examples == 7 and "exact_match" in own
    with pytest.raises(UserError, match="resume"):
        glassformer.train(tmp_path / "list")
    with glassformer.ablate(model, ["decoder.0.cross", "decoder.0.mlp"]):
        changed = glassformer.evaluate(model, split="val")
    assert changed["loss"] != pytest.approx(found["loss"], rel=1e-3), "the model in memory, not the weights on disk"
    with pytest.raises(UserError, match="holds a run already; go on with it by resume=True"):
        glassformer.train(RECIPE, pairs, out=tmp_path / "list")
    with pytest.raises(UserError, match="the data in memory holds no example to learn from"):
        glassformer.train(RECIPE, [], out=tmp_path / "nothing")


@pytest.mark.slow
@pytest.mark.parametrize(
    "first",
    [
        "import glassformer",
        "from glassformer.training import trainer; from glassformer.evaluation.metrics import Scores",
        "import glassformer.inspection, glassformer.evaluation.metrics; from glassformer import evaluate, look",
        "from glassformer import train; from glassformer.training.trainer import Trainer",
    ],
)
def test_verbs_are_functions_whatever_is_imported_first(first: str) -> None:
    """train, evaluate and look are plain functions, and the rooms can be imported from. Caught: a room of a verb's name,
    which hides the verb once it is imported."""
    run_program("verbs_and_rooms", first)


def test_settings_that_are_not_there_or_are_two(tmp_path: Path) -> None:
    for wrong, match in (
        ({"stepps": 3}, "steps"),
        ({"train": {"stepps": 3}}, "steps"),
        ({"precision": "bf16"}, "decode"),
    ):
        with pytest.raises(ConfigError, match=match):
            glassformer.train("dates", out=tmp_path / "run", **wrong)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_gpt_classifies_by_its_last_token(tmp_path: Path) -> None:
    """The first letter decides, so only a token that has seen it knows. Caught: a class read off the first token, which under
    a causal mask has seen nothing."""
    letters = "abcdefgh"
    data = [(f"{a}{b}{c}", "early" if a < "e" else "late") for a in letters for b in letters for c in letters[:4]]
    recipe = {
        "model": RECIPE["model"] | {"family": "gpt", "head": "classify"},
        "data": {"task": "classify", "tokenizer": "char", "batch_tokens": 512, "val_fraction": 0.2},
    }
    model = glassformer.train(
        recipe, data, out=tmp_path / "run", steps=60, learning_rate=5e-3, validate_every=60, warmup=5, device="cpu"
    )
    assert isinstance(model, glassformer.Classifier) and model.metrics["accuracy"] > 90
    found = model.classify(["abc", "hbc"])
    assert found == ["early", "late"] and found[0].probability > 0.5
    row = Rows.from_lists([[BOS, *model.tokenizer.encode("abc")]])
    chances = model.model(row)[0, -1].softmax(-1)
    assert found[0].labels[0].probability == pytest.approx(float(chances.max()), abs=1e-5)
    assert model.model.num_params() == count_parameters(model.config)
