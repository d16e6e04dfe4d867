"""Recipes and overrides: what a file lists, what comes last, the way to disk and back, and every mistake in one sentence."""

from __future__ import annotations

import json
import tomllib
import typing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from glassformer.config import (
    PARTS,
    DataConfig,
    DecodeConfig,
    ModelConfig,
    Recipe,
    TrainConfig,
    read_recipe,
    recipe_names,
)
from glassformer.config.recipe import apply_override
from glassformer.errors import ConfigError
from glassformer.files import structured
from glassformer.files.durable import to_json
from glassformer.models import PRESETS
from tests.counts import count
from tests.sentences import one_sentence

pytestmark = pytest.mark.usefixtures("as_in_production")


def write(folder: Path, text: str) -> str:
    path = folder / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_a_recipe_lists_only_what_differs(tmp_path: Path) -> None:
    text = """
about = "a test"
[model]
preset = "transformer-tiny"
dropout = 0.5
[train]
betas = [0.8, 0.9]
clip = "none"
"""
    recipe = read_recipe(write(tmp_path, text))
    assert recipe.name == "mine" and recipe.about == "a test"
    assert recipe.model == ModelConfig(**{**PRESETS["transformer-tiny"], "dropout": 0.5})
    assert recipe.train == TrainConfig(betas=(0.8, 0.9), clip=None)
    assert recipe.data == DataConfig() and recipe.decode == DecodeConfig()


def test_overrides_come_last_and_speak_every_type(tmp_path: Path) -> None:
    path = write(tmp_path, '[model]\npreset = "gpt2"\nn_layer = 3\n[train]\nsteps = 5\n')
    overrides = [
        "model.n_layer=2",
        "model.bias=false",
        "model.window=none",
        "model.dropout=0",
        "train.steps = 1e3",
        "train.betas=0.5,0.75",
        "train.clip=None",
        "data.builtin=dates",
        "decode.alpha=0.9",
    ]
    recipe = read_recipe(path, overrides)
    assert (recipe.model.n_layer, recipe.model.bias, recipe.model.window, recipe.model.dropout) == (2, False, None, 0.0)
    assert (recipe.train.steps, recipe.train.betas, recipe.train.clip) == (1000, (0.5, 0.75), None)
    assert (recipe.data.builtin, recipe.decode.alpha, recipe.model.n_embd) == ("dates", 0.9, 768)
    assert isinstance(recipe.train.steps, int) and isinstance(recipe.model.dropout, float)


def test_a_seed_that_no_float_can_hold(tmp_path: Path) -> None:
    """2^53 + 1, from a file, from an override, through run.json and back. Caught: a number that went through a float."""
    seed = 9007199254740993
    for changes in ([f"train.seed={seed}", f"decode.seed={seed}"], []):
        path = write(tmp_path, "" if changes else f"[train]\nseed = {seed}\n[decode]\nseed = {seed}\n")
        recipe = read_recipe(path, changes)
        again = Recipe.from_dict(structured.decode(to_json(recipe.to_dict()), dict[str, Any], "run.json"))
        for own in (recipe, again):
            assert str(own.train.seed) == str(own.decode.seed) == "9007199254740993"


WRONG_OVERRIDES = {
    "steps=3": "not of the form key.sub=value",
    "train.steps": "not of the form key.sub=value",
    "train.=3": "not of the form key.sub=value",
    "trian.steps=3": "did you mean 'train'?",
    "train.step=3": "did you mean 'steps'?",
    "model.n_heads=3": "did you mean 'n_head'?",
    "train.steps=many": "train.steps must be a whole number, not 'many'",
    "train.steps=2.5": "train.steps must be a whole number, not '2.5'",
    "train.learning_rate=nan": "train.learning_rate must be a number, not 'nan'",
    "model.bias=yes": "model.bias must be true or false, not 'yes'",
    "train.betas=0.9": "train.betas must be 2 numbers, not '0.9'",
    "model.positions=rotery": "did you mean 'rotary'?",
    "model.preset=gpt-2": "did you mean 'gpt2'?",
}


WRONG_RECIPES = {
    "[modle]\nn_head = 2": "there is no setting 'modle' in a recipe (did you mean 'model'?)",
    "[model]\nn_haed = 2": "there is no setting 'n_haed' in [model] (did you mean 'n_head'?)",
    '[model]\npreset = "gpt3"': "there is no preset 'gpt3' (did you mean 'gpt2'?)",
    "[model]\nn_head = true": "model.n_head must be a whole number, not True",
    "[data]\nbuiltin = 3": "data.builtin must be text, not 3",
    "train = 3": "[train] must be a table of settings, not 3",
    "[model\n": "is not valid TOML",
}


@pytest.mark.parametrize(("text", "words"), [*WRONG_RECIPES.items(), *WRONG_OVERRIDES.items()])
def test_a_wrong_recipe_or_override(text: str, words: str, tmp_path: Path) -> None:
    is_override = text in WRONG_OVERRIDES
    with pytest.raises(ConfigError) as error:
        read_recipe(write(tmp_path, "" if is_override else text), [text] if is_override else [])
    assert words in one_sentence(error)


def test_a_recipe_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no recipe file"):
        read_recipe(str(tmp_path / "none.toml"))
    with pytest.raises(ConfigError, match=r"there is no recipe 'date' \(did you mean 'dates'\?\)"):
        read_recipe("date")


PATH_OF_RECIPES = Path(__file__).parents[2] / "glassformer" / "recipes"


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_in_the_box_reads(name: str) -> None:
    """Each builds its configs, says what it is about, and repeats nothing that its preset already says."""
    recipe = read_recipe(name)
    assert recipe.name == name and recipe.about
    written = tomllib.loads(Path(PATH_OF_RECIPES, f"{name}.toml").read_text(encoding="utf-8"))
    for part in PARTS:
        preset = PRESETS.get(written.get(part, {}).get("preset", ""), {})
        for key, value in written.get(part, {}).items():
            if key in preset:
                assert preset[key] != value, f"{name}: {part}.{key} repeats the preset"


THE_MACHINES_CHOICE = {
    "data": ("workers", "layout"),
    "train": ("device", "precision", "compile", "capture", "threads"),
    "decode": ("batch_size", "engine", "precision"),
}


@pytest.mark.parametrize("name", recipe_names())
def test_no_recipe_sets_what_the_machine_chooses(name: str) -> None:
    """A number that suited the machine of whoever wrote the recipe would hold back another."""
    recipe = read_recipe(name)
    for part, names in THE_MACHINES_CHOICE.items():
        found, usual = getattr(recipe, part), PARTS[part]
        for key in names:
            assert getattr(found, key) == usual.__dataclass_fields__[key].default, f"{part}.{key}"


def a_value(hint: Any) -> st.SearchStrategy[Any]:
    options = typing.get_args(hint)
    if type(None) in options:
        return st.none() | a_value(next(o for o in options if o is not type(None)))
    if typing.get_origin(hint) is typing.Literal:
        return st.sampled_from(options)
    if typing.get_origin(hint) is tuple:
        if options[-1] is Ellipsis:
            heads = st.builds(
                "{}.{}.attention:{}".format, st.sampled_from(["encoder", "decoder"]), *[st.integers(0, 2)] * 2
            )
            one = heads | a_value(str) if options[0] is str else a_value(options[0])
            return st.lists(one, max_size=3).map(tuple)
        return st.tuples(*map(a_value, options))
    simple: dict[Any, st.SearchStrategy[Any]] = {
        bool: st.booleans(),
        int: st.integers(1, 10**9),
        float: st.floats(0.001, 0.999),
        str: st.text("abc/. é中", min_size=1).filter(lambda s: s.lower() not in ("none", "null")),
    }
    return simple[hint]


@settings(max_examples=count(fast=30, soak=2000), deadline=None)
@given(data=st.data())
def test_a_recipe_survives_the_way_to_disk_and_back(data: st.DataObject) -> None:
    """to_dict, JSON, from_dict: the same recipe. Caught: a None that comes back as a default that is not None."""
    parts = {}
    for part, kind in PARTS.items():
        chosen = {}
        for name, hint in typing.get_type_hints(kind).items():
            if data.draw(st.integers(0, 5)) == 0:
                chosen[name] = data.draw(a_value(hint), label=name)
        try:
            parts[part] = kind(**chosen)
        except ConfigError:
            parts[part] = kind()
    try:
        recipe = Recipe(**parts)
    except ConfigError:
        reject()  # parts that do not go together, such as R-Drop and a BERT
    assert Recipe.from_dict(json.loads(json.dumps(recipe.to_dict()))) == recipe


@settings(max_examples=count(fast=100, soak=5000), deadline=None)
@given(
    override=st.text(max_size=30) | st.from_regex(r"(model|train|data|decode)\.[a-z_]{1,12}=.{0,12}", fullmatch=True)
)
def test_any_override_is_taken_or_refused_in_a_sentence(override: str) -> None:
    """Never a traceback: what is wrong with an override is always a ConfigError."""
    values: dict[str, Any] = {}
    try:
        apply_override(values, override)
        Recipe.from_dict(values)
    except ConfigError:
        pass


def test_settings_that_are_gone_are_passed_over_in_a_run_alone() -> None:
    """Broken variants: an older run that cannot be opened; a recipe or a run whose wish silently has no effect."""
    judged = {"metric": "comet", "comet": "runs/comet"}
    older = {"decode": {"strict": False, "beam": 3}, "train": {"optimizer": "soap", "steps": 7, **judged}}
    recipe = Recipe.from_dict(older, stored=True)
    assert recipe.decode == DecodeConfig(beam=3) and recipe.train == TrainConfig(steps=7)
    for values, stored, message in (
        ({"decode": {"strict": True}}, True, "there is no setting 'strict' in"),
        ({"decode": {"strict": False}}, False, "there is no setting 'strict' in"),
        ({"train": {"optimizer": "soap"}}, False, r"train\.optimizer must be"),
        ({"train": {"metric": "comet"}}, False, r"train\.metric must be"),
        ({"train": {"comet": "runs/comet"}}, False, "there is no setting 'comet' in"),
    ):
        with pytest.raises(ConfigError, match=message):
            Recipe.from_dict(values, stored=stored)


def test_a_planted_mistake_is_no_setting_any_more_and_none_asks_for_nothing() -> None:
    """Runs and recipes that say so load as those that say nothing. Broken variants: an older run that is refused; the run of
    a mistake, opened as a right one."""
    for stored in (True, False):
        assert Recipe.from_dict({"model": {"mistake": "none", "n_layer": 2}}, stored=stored).model == ModelConfig(
            n_layer=2
        )
        with pytest.raises(ConfigError, match="there is no setting 'mistake' in"):
            Recipe.from_dict({"model": {"mistake": "softmax-twice"}}, stored=stored)
