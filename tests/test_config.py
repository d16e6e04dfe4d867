"""Recipes, overrides, and every mistake a person can make in one: refused in one sentence, before anything is built."""

from __future__ import annotations

import dataclasses
import json
import tomllib
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jaxtyping
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.api.training import make_recipe
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
from glassformer.errors import ConfigError, UserError
from glassformer.files import structured
from glassformer.files.durable import to_json
from glassformer.models import BERT, PRESETS, build_model
from glassformer.nn import Rows, cross_mask
from tests.counts import count


@pytest.fixture(autouse=True)
def _as_in_production() -> Iterator[None]:
    """Without the tests' own type checks, which would refuse a wrong word before the config can say its sentence."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


def one_sentence(error: pytest.ExceptionInfo[Exception]) -> str:
    """What the person reads: one line, not a traceback's worth."""
    message = str(error.value)
    assert message and "\n" not in message and len(message) < 250
    return message


CONTRADICTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "width and heads": ({"n_embd": 10, "n_head": 4}, "n_embd 10 is not divisible by model.n_head 4"),
    "heads and key heads": ({"n_head": 8, "n_kv_head": 3}, "n_head 8 is not divisible by model.n_kv_head 3"),
    "more key heads than heads": ({"n_head": 4, "n_kv_head": 8}, "n_head 4 is not divisible by model.n_kv_head 8"),
    "odd rotary": ({"positions": "rotary", "head_size": 7}, "the head size must be even, not 7"),
    "odd sinusoids": ({"n_embd": 9, "n_head": 3}, "n_embd must be even, not 9"),
    "an encoder in a gpt": ({"family": "gpt", "n_encoder_layer": 2}, "gpt has n_layer alone"),
    "a source in a bert": ({"family": "bert", "source_vocab_size": 9}, "bert has one vocabulary"),
    "two vocabularies, one table": ({"source_vocab_size": 9}, "cannot share an embedding table"),
    "a tagging gpt": ({"family": "gpt", "head": "tag"}, "belong to family bert"),
    "labels in a transformer": ({"n_label": 3}, "belong to family bert"),
    "no norm, but one": ({"norm": "none", "embedding_norm": True}, 'model.norm="none" rules out'),
    "no layer": ({"n_layer": 0}, "model.n_layer must be at least 1, not 0"),
    "no window": ({"window": 0}, "model.window must be at least 1, not 0"),
    "no hidden": ({"n_hidden": -1}, "model.n_hidden must be at least 1, not -1"),
    "all dropped": ({"dropout": 1.0}, "model.dropout must be at least 0 and below 1, not 1.0"),
    "less than none dropped": ({"attention_dropout": -0.1}, "model.attention_dropout must be at least 0"),
    "fewer than no words": ({"vocab_size": -1}, "model.vocab_size cannot be negative"),
    "an unknown family": ({"family": "gtp"}, "did you mean 'gpt'?"),
    "an unknown activation": ({"activation": "swigl"}, "did you mean 'swiglu'?"),
    "an unknown norm": ({"norm": "layernorm"}, "must be one of layer, rms, batch, none"),
}


@pytest.mark.parametrize(("settings", "words"), CONTRADICTIONS.values(), ids=CONTRADICTIONS)
def test_a_model_that_cannot_be(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as error:
        ModelConfig(**settings)
    assert words in one_sentence(error)


@pytest.mark.parametrize(
    "settings",
    [
        {"n_embd": 10, "n_head": 4, "head_size": 3},
        {"n_embd": 9, "n_head": 3, "positions": "learned"},
        {"source_vocab_size": 9, "share_source_target": False},
        {"positions": "rotary", "head_size": 6, "value_size": 7},
        {"window": 1},
        {"family": "bert", "head": "tag", "n_label": 3, "n_token_type": 2},
    ],
)
def test_what_the_sentence_advises_is_accepted(settings: dict[str, Any]) -> None:
    """So that the refusals above are not merely strict; and the model of it builds."""
    build_model(ModelConfig(vocab_size=11, n_layer=1, **settings))


OTHER_MISTAKES: dict[str, tuple[type, dict[str, Any], str]] = {
    "two sources of data": (DataConfig, {"builtin": "dates", "train": "x.tsv"}, "both set"),
    "everything masked": (DataConfig, {"mask_fraction": 1.0}, "mask_fraction must lie between 0 and 1"),
    "all for validation": (DataConfig, {"val_fraction": 1.0}, "val_fraction must be at least 0 and below 1"),
    "no tokens": (DataConfig, {"batch_tokens": 0}, "batch_tokens must be at least 1"),
    "no steps": (TrainConfig, {"steps": 0}, "train.steps must be at least 1"),
    "all smooth": (TrainConfig, {"label_smoothing": 1.0}, "label_smoothing must be at least 0 and below 1"),
    "a warm-up backwards": (TrainConfig, {"warmup": -1}, "warmup cannot be negative"),
    "an average of nothing": (TrainConfig, {"ema": 1.0}, "ema must lie between 0 and 1"),
    "clipped to nothing": (TrainConfig, {"clip": 0.0}, "clip must be above 0"),
    "an unknown schedule": (TrainConfig, {"schedule": "cosin"}, "did you mean 'cosine'?"),
    "no beam": (DecodeConfig, {"beam": 0}, "beam must be at least 1"),
    "no results": (DecodeConfig, {"n_best": 0}, "n_best must be at least 1"),
    "below absolute zero": (DecodeConfig, {"temperature": -1.0}, "temperature cannot be negative"),
}


@pytest.mark.parametrize(("kind", "settings", "words"), OTHER_MISTAKES.values(), ids=OTHER_MISTAKES)
def test_a_run_that_cannot_be(kind: type, settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as error:
        kind(**settings)
    assert words in one_sentence(error)


def test_configs_are_frozen() -> None:
    for part in PARTS.values():
        with pytest.raises(dataclasses.FrozenInstanceError):
            part().seed = 3


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


@pytest.mark.parametrize(("override", "words"), WRONG_OVERRIDES.items())
def test_a_wrong_override(override: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        read_recipe(write(tmp_path, ""), [override])
    assert words in one_sentence(error)


WRONG_RECIPES = {
    "[modle]\nn_head = 2": "there is no setting 'modle' in a recipe (did you mean 'model'?)",
    "[model]\nn_haed = 2": "there is no setting 'n_haed' in [model] (did you mean 'n_head'?)",
    '[model]\npreset = "gpt3"': "there is no preset 'gpt3' (did you mean 'gpt2'?)",
    "[model]\nn_head = true": "model.n_head must be a whole number, not True",
    "[data]\nbuiltin = 3": "data.builtin must be text, not 3",
    "train = 3": "[train] must be a table of settings, not 3",
    "[model\n": "is not valid TOML",
}


@pytest.mark.parametrize(("text", "words"), WRONG_RECIPES.items())
def test_a_wrong_recipe(text: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        read_recipe(write(tmp_path, text))
    assert words in one_sentence(error)


def test_a_recipe_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no recipe file"):
        read_recipe(str(tmp_path / "none.toml"))
    with pytest.raises(ConfigError, match=r"there is no recipe 'date' \(did you mean 'dates'\?\)"):
        read_recipe("date")


PATH_OF_RECIPES = Path(__file__).parents[1] / "glassformer" / "recipes"


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
    recipe = Recipe(**parts)
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


def test_other_names_of_residuals_and_positions(tmp_path: Path) -> None:
    """no_res and no_pos in a file, over a file that says otherwise, over a preset, and in Python."""
    file = tmp_path / "mine.toml"
    file.write_text('[model]\nno_res = true\nno_pos = true\n[data]\nbuiltin = "dates"\n')
    for model in (
        read_recipe(str(file)).model,
        read_recipe("dates", ["model.no_res=true", "model.no_pos=true"]).model,
        Recipe.from_dict({"model": {"preset": "transformer-tiny", "no_res": True, "no_pos": "true"}}).model,
        Recipe().with_model(no_res=True, no_pos=True).model,
        ModelConfig(no_res=True, no_pos=True),  # type: ignore[call-arg]
        make_recipe("dates", {"no_res": True, "model": {"no_pos": True}}).model,
    ):
        assert (model.residual, model.positions) == (False, "none")
    assert read_recipe(str(file), ["model.residual=true", "model.positions=rotary"]).model.positions == "rotary"
    assert read_recipe("dates", ["model.no_res=false", "model.no_pos=false"]) == read_recipe("dates")
    assert Recipe.from_dict(read_recipe(str(file)).to_dict()).model == read_recipe(str(file)).model


def test_two_names_that_contradict_each_other_are_refused() -> None:
    for values in (
        {"no_res": True, "residual": True},
        {"no_res": False, "residual": False},
        {"no_pos": True, "positions": "rotary"},
        {"no_pos": False, "positions": "none"},
    ):
        for make in (lambda v: ModelConfig(**v), lambda v: Recipe.from_dict({"model": v})):
            with pytest.raises(ConfigError, match="contradict each other"):
                make(values)
    with pytest.raises(ConfigError, match=r"model\.no_pos=true and model\.positions=alibi contradict"):
        read_recipe("dates", ["model.positions=alibi", "model.no_pos=true"])
    with pytest.raises(ConfigError, match=r"model\.no_pos=false and model\.positions=none contradict"):
        Recipe.from_dict({"model": {"positions": "none", "no_pos": "false"}})
    with pytest.raises(ConfigError, match="contradict each other"):
        make_recipe("dates", {"no_res": True, "residual": True})
    with pytest.raises(ConfigError, match=r"model\.no_res must be true or false"):
        read_recipe("dates", ["model.no_res=perhaps"])


@pytest.mark.parametrize("family", ["transformer", "gpt", "bert"])
@pytest.mark.parametrize("wrong", [11, 999, -1])
def test_ids_out_of_range(family: str, wrong: int) -> None:
    model: Any = build_model(ModelConfig(family=family, vocab_size=11, n_layer=1, n_head=2, n_embd=8))  # type: ignore[arg-type]
    good, bad = Rows.whole(torch.tensor([[1, 10]])), Rows.whole(torch.tensor([[1, wrong]]))
    calls = [(good, bad), (bad, good)] if family == "transformer" else [(bad,)]
    for call in calls:
        with pytest.raises(
            ValueError, match=f"token id {wrong} is not in the vocabulary, whose ids run from 0 to 10"
        ) as error:
            model(*call)
        one_sentence(error)


@pytest.mark.parametrize("family", ["transformer", "gpt", "bert"])
def test_rows_past_the_learned_positions(family: str) -> None:
    """A row of block_size runs; one token more is refused; so is a cached step past the end."""
    config = ModelConfig(family=family, vocab_size=11, n_layer=1, n_head=2, n_embd=8, block_size=5, positions="learned")  # type: ignore[arg-type]
    model: Any = build_model(config)
    fits, too_long = Rows.whole(torch.ones(1, 5, dtype=torch.long)), Rows.whole(torch.ones(1, 6, dtype=torch.long))
    model(*([fits, fits] if family == "transformer" else [fits]))
    for call in [(fits, too_long), (too_long, fits)] if family == "transformer" else [(too_long,)]:
        with pytest.raises(ValueError, match="a row of 6 tokens is longer than the 5 positions this model has learned"):
            model(*call)
    if family != "bert":
        state = model.start(fits, 9) if family == "transformer" else model.start(1, 9)
        model.step(torch.ones(1, 5, dtype=torch.long), state)
        with pytest.raises(ValueError, match="a row of 6 tokens"):
            model.step(torch.ones(1, 1, dtype=torch.long), state)


def test_what_only_the_builder_can_refuse() -> None:
    with pytest.raises(ValueError, match="vocab_size is not known yet"):
        build_model(ModelConfig())
    with pytest.raises(ConfigError, match=r"needs model\.n_label of at least 2"):
        BERT(ModelConfig(family="bert", vocab_size=9, head="classify"))
    rows = Rows.whole(torch.ones(1, 2, dtype=torch.long))
    with pytest.raises(ValueError, match="a window on cross-attention has no meaning"):
        cross_mask(rows, rows, window=3)
    assert issubclass(ConfigError, UserError) and issubclass(UserError, ValueError)


def test_lengths_that_cannot_be() -> None:
    tokens = torch.ones(2, 3, dtype=torch.long)
    with pytest.raises(ValueError, match="2 rows came with 1 lengths"):
        Rows.padded(tokens, [3])
    with pytest.raises(ValueError, match="lengths must lie between 0 and the row width 3"):
        Rows.padded(tokens, [3, 4])
    with pytest.raises(ValueError, match="row 0 holds more than its 3 tokens"):
        Rows.pack([[[1, 2], [3, 4]]], 3)
