"""Names that nobody has, asked of everything that takes one: a sentence with the nearest, never a bare KeyError. And texts in a
list, through the model with every activation kept."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
import torch

import glassformer
from glassformer.api.training import make_recipe
from glassformer.cli.recipes import with_data
from glassformer.config import PRESETS, Recipe, read_recipe
from glassformer.errors import UserError
from glassformer.probe import effect_map, mean_outputs


def entered(block: AbstractContextManager[Any]) -> Any:
    with block as found:
        return found


Call = Callable[[dict[str, Any]], Any]
WRONG: dict[str, tuple[Call, str]] = {
    "recorded": (
        lambda runs: entered(glassformer.record(runs["gpt"], "decoder.0.atention.weights")),
        "(did you mean 'decoder.0.attention.weights'?)",
    ),
    "replaced": (
        lambda runs: entered(glassformer.replace(runs["transformer"], "decoder.0.cros.out", abs)),
        "(did you mean 'decoder.0.cross.out'?)",
    ),
    "kept": (lambda runs: runs["mlm"].run_with_cache("a", names=["logits", "nope"]), "'nope' matches no activation"),
    "in a cache": (lambda runs: runs["gpt"].run_with_cache("a")[1]["logit"], "(did you mean 'logits'?)"),
    "mapped": (lambda runs: effect_map(runs["gpt"], [], [], abs, names=["nope"]), "'nope' matches no activation"),
    "without a mean": (
        lambda runs: entered(glassformer.ablate(runs["gpt"], "decoder.0.mlp", mode="mean", means={})),
        "means has nothing for decoder.0.mlp.out; mean_outputs",
    ),
    "a verb": (lambda runs: runs["transformer"].translat("a"), "(did you mean 'translate'?)"),
    "a task": (lambda runs: glassformer.load(runs["gpt"].origin.path, task="tagg"), "(did you mean 'tag'?)"),
    "another task": (lambda runs: glassformer.load(runs["gpt"].origin.path, task="tag"), "made to generate"),
    "a device": (lambda runs: runs["gpt"].to("abacus"), "there is no device 'abacus'"),
    "a token": (lambda runs: runs["gpt"].tokenizer.decode([9999]), "there is no token 9999; the ids"),
    "no text": (lambda runs: runs["gpt"].generate(3), "a text or a list of texts is needed, not int"),
    "no sentence": (lambda runs: runs["tag"].tag([3]), "a sentence is a line or a list of words, not int"),
    "no glossary": (lambda runs: runs["transformer"].translate("a", glossary=["b"]), "glossary is a dictionary"),
    "settings of data": (
        lambda runs: glassformer.train("dates", data={"tokeniser": "bpe"}),
        "(did you mean 'tokenizer'?)",
    ),
    "two kinds of data": (
        lambda runs: glassformer.train("dates", [("a", "b")], out=runs["gpt"].origin.path.parent / "two", quiet=True),
        "say builtin=None",
    ),
    "data of a run": (
        lambda runs: glassformer.train(runs["gpt"].origin.path, [("a", "b")], resume=True, out="elsewhere"),
        "leave data, out out",
    ),
    "both": (lambda runs: glassformer.train("dates", resume=True, overwrite=True), "leave one of them out"),
    "a split of one's own": (
        lambda runs: glassformer.evaluate(runs["transformer"], [("a", "b")], split="nonsense"),
        "no split of the run",
    ),
    "an argument of evaluate": (
        lambda runs: glassformer.evaluate(runs["transformer"], splitt="val"),
        "evaluate takes no 'splitt' (did you mean 'split'?)",
    ),
    "a file that is not there": (lambda runs: glassformer.evaluate(runs["transformer"], file="x.tsv"), "x.tsv"),
    "a method of the package's": (
        lambda runs: runs["transformer"].evaluate([("a", "b")]),
        "glassformer.evaluate(model) scores it",
    ),
    "a model elsewhere": (lambda runs: glassformer.evaluate(runs["transformer"], device="abacus"), ".to('abacus')"),
    "a glossary for a GPT": (lambda runs: runs["gpt"].generate("a", glossary={"a": "b"}), "as terms"),
    "a target of a GPT": (lambda runs: runs["gpt"].run_with_cache("a", target="b"), "translates none"),
    "no callbacks": (lambda runs: glassformer.train("dates", callbacks=print), "callbacks is a list of functions"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_name_that_nobody_has(what: str, runs: dict[str, Any], as_in_production: None) -> None:
    call, said = WRONG[what]
    with pytest.raises((UserError, AttributeError)) as error:
        call(runs)
    assert said in str(error.value) and "\n" not in str(error.value)


def test_whoever_looks_names_up_may_still_catch_a_key_error(runs: dict[str, Any]) -> None:
    _, cache = runs["gpt"].run_with_cache("a")
    assert cache.get("nope") is None and "nope" not in cache
    with pytest.raises(KeyError, match=r"^there is no activation 'nope'"):
        cache["nope"]


def test_one_name_may_stand_by_itself(runs: dict[str, Any], as_in_production: None) -> None:
    """Broken variant: a text taken for a list of its letters."""
    model = runs["transformer"]
    with glassformer.ablate(model, "decoder.0.mlp"):
        alone = model.translate("the cat", beam=1)
    with glassformer.ablate(model, ["decoder.0.mlp"]):
        assert model.translate("the cat", beam=1) == alone
    assert model.translate("a", banned="ab", beam=1) == model.translate("a", banned=["ab"], beam=1)
    assert mean_outputs(model, []) == {}


def test_a_gpt_on_pairs_is_loaded_as_either(runs: dict[str, Any]) -> None:
    generator = glassformer.load(runs["pairs"].origin.path, task="generate")
    assert isinstance(runs["pairs"], glassformer.Translator) and isinstance(generator, glassformer.Generator)
    assert isinstance(generator.generate("a", max_new_tokens=2, seed=1), str)


@pytest.mark.parametrize("kind", ["transformer", "gpt", "pairs", "mlm", "classify", "tag"])
def test_a_list_runs_as_its_texts_do_alone(kind: str, runs: dict[str, Any]) -> None:
    """Row for row, up to where padding begins; broken variants: rows exchanged, tokens of the padded row."""
    model, texts = runs[kind], ["the cat sat on the mat", "a", "Anna lives"]
    logits, cache = model.run_with_cache(texts)
    again, same = glassformer.run_with_cache(model, texts, names="*logits")
    assert logits.shape == again.shape and 0 < len(same) < len(cache) and "3 texts" in repr(cache)
    for row, text in enumerate(texts):
        own, alone = model.run_with_cache(text)
        length = len(alone.tokens)
        assert cache.tokens[row] == alone.tokens and cache.source_tokens[row] == alone.source_tokens
        torch.testing.assert_close(logits[row, :length], own[0], atol=1e-5, rtol=1e-4)
        weights = next(name for name in alone if name.endswith("weights"))
        have = alone[weights][0]
        got = cache[weights][row, :, : have.shape[1], : have.shape[2]]
        torch.testing.assert_close(got, have, atol=1e-5, rtol=1e-4)
    if kind in ("transformer", "pairs"):
        _, given = model.run_with_cache(texts, ["x", "yz", ""])
        assert given.tokens[1] == model.run_with_cache("a", "yz")[1].tokens


def test_lists_that_do_not_go_together(runs: dict[str, Any], as_in_production: None) -> None:
    model = runs["transformer"]
    for texts, target, said in (
        ([], None, "no text"),
        (["a"], ["b", "c"], "1 texts and 2 targets"),
        (["a"], "b", "a list and a list"),
        (3, None, "a list and a list"),
    ):
        with pytest.raises(UserError, match=said):
            model.run_with_cache(texts, target)


def test_a_preset_changes_all_that_it_says() -> None:
    """And what is said beside it, in whatever order, changes that. Broken variant: what the recipe says stays, so that a model
    of another size is trained in silence."""
    base = PRESETS["transformer-base"]
    for changes in ({"preset": "transformer-base", "n_layer": 1}, {"n_layer": 1, "preset": "transformer-base"}):
        model = make_recipe("copy", {"model": changes}).model
        assert (model.n_embd, model.n_head, model.n_layer) == (base["n_embd"], base["n_head"], 1)
        words = [f"model.{name}={value}" for name, value in changes.items()]
        assert read_recipe("copy", words).model == model
        values, _name = with_data("copy", [], words)
        assert Recipe.from_dict(values).model == model
    other = read_recipe("gpt2-124m", ["model.preset=gpt2-xl"]).model
    assert (other.n_layer, other.dropout) == (48, 0.0), "what the recipe changes of one preset it changes of another"
    assert make_recipe(read_recipe("copy"), {"model": {"preset": "gpt2"}}).model.family == "gpt"
