"""What a run is made of, as plain frozen data: the model, its data, its training, its decoding.

A recipe is a TOML file that lists only what differs from the defaults below; `key.sub=value` on the command line changes
one thing more. A name nobody knows is an error with a suggestion, and settings that contradict each other are refused
here, in a sentence, before anything is built.

    [model]
    preset = "transformer-tiny"     # optional: start from a named size
    dropout = 0.3
    [data]
    builtin = "dates"
    [train]
    steps = 2000

For those who look settings up (`glassformer info --settings`, docs/settings.md) every one is here with its type, its default
and its explanation, read from the configs themselves; and a recipe is written as a TOML file again. This file knows nothing of
tensors.
"""

from __future__ import annotations

import dataclasses
import json
import os
import tomllib
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from glassformer.config.data import DataConfig
from glassformer.config.decode import DecodeConfig
from glassformer.config.fields import check_name, coerce, did_you_mean, explanations, shortened, type_hints
from glassformer.config.model import PRESETS, ModelConfig, preset_settings
from glassformer.config.train import TrainConfig
from glassformer.errors import ConfigError
from glassformer.language import _, in_language, language


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A whole training in numbers: model, data, train and decode, under a name.

    >>> Recipe.from_dict({"data": {"builtin": "dates"}, "train": {"steps": 200}}).train.steps
    200
    """

    name: str = "recipe"
    about: str = ""
    model: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    decode: DecodeConfig = field(default_factory=DecodeConfig)

    def __post_init__(self) -> None:
        check_name(self.name, "a recipe's name")
        if self.train.r_drop and self.model.family == "bert":
            raise ConfigError(
                "train.r_drop compares the next words that two passes expect, and a BERT expects none; leave it out"
            )
        if self.train.r_drop and not (self.model.dropout or self.model.attention_dropout):
            raise ConfigError(
                "train.r_drop compares passes that drop different numbers, and nothing is dropped; set model.dropout"
            )

    @staticmethod
    def from_dict(values: Mapping[str, Any], *, name: str = "recipe", stored: bool = False) -> Recipe:
        """From the tables of a TOML file; an unknown key is an error with a suggestion. `stored`: they are those of a run or an
        export, where settings that are gone today (RETIRED) are passed over."""
        values = {k: dict(v) if isinstance(v, Mapping) else v for k, v in values.items()}
        refuse_unknown(values, [f.name for f in dataclasses.fields(Recipe)], "recipe")
        for part, retired in (RETIRED if stored else WITHOUT_EFFECT).items():
            if isinstance(values.get(part), dict):
                values[part] = {k: v for k, v in values[part].items() if not is_retired(retired, k, v)}
        model = values.get("model", {})
        if isinstance(model, dict) and "preset" in model:
            values["model"] = {**preset_settings(model.pop("preset")), **model}
        parts: dict[str, Any] = {
            "name": coerce(values.get("name", name), str, "name"),
            "about": coerce(values.get("about", ""), str, "about"),
        }
        for part, kind in PARTS.items():
            parts[part] = build(kind, section_of(values, part), part)
        return Recipe(**parts)

    def to_dict(self) -> dict[str, Any]:
        """Everything that differs from nothing: None is left out, since TOML and JSON readers then see the default."""
        out: dict[str, Any] = {"name": self.name, "about": self.about}
        for part in PARTS:
            values = dataclasses.asdict(getattr(self, part))
            out[part] = {k: plain(v) for k, v in values.items() if v is not None}
            # A None that is not the default must be said, or it would come back as the default.
            for f in dataclasses.fields(PARTS[part]):
                if getattr(getattr(self, part), f.name) is None and f.default is not None:
                    out[part][f.name] = "none"
        return out

    def with_model(self, **changes: Any) -> Recipe:
        """The same recipe with these fields of its model changed."""
        return dataclasses.replace(self, model=dataclasses.replace(self.model, **changes))


def section_of(values: dict[str, Any], part: str) -> dict[str, Any]:
    """The table of a part, made where it is missing."""
    section = values.setdefault(part, {})
    if not isinstance(section, dict):
        raise ConfigError("[{part}] must be a table of settings, not {section}", part, shortened(section))
    return section


def is_retired(retired: Mapping[str, tuple[Any, ...]], name: str, value: Any) -> bool:
    """Whether a setting of an older run is passed over (RETIRED)."""
    return name in retired and (not retired[name] or value in retired[name])


def plain(value: Any) -> Any:
    """The value as JSON and TOML have it: lists, and tables without what is not set."""
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items() if item is not None}
    return value


PARTS: dict[str, type] = {"model": ModelConfig, "data": DataConfig, "train": TrainConfig, "decode": DecodeConfig}
WITHOUT_EFFECT: dict[str, dict[str, tuple[Any, ...]]] = {"model": {"mistake": ("none",)}}
"""Settings that are gone, with the values at which they asked for nothing: passed over in any recipe."""
RETIRED: dict[str, dict[str, tuple[Any, ...]]] = {
    **WITHOUT_EFFECT,
    "decode": {"strict": (False,), "groups": (), "diversity": (), "batch_invariant": ()},
    "train": {"optimizer": ("soap", "schedule-free"), "metric": ("comet",), "comet": ()},
}
"""Settings in the files of older runs that are gone today, with the values at which the run answers without them as it did; none
named: at every value. (A training by an optimizer that is gone does not go on: `load_optimizer_tensors` refuses its state. The
best by a metric that is gone is looked for again.)"""
LARGEST = 1 << 20  # bytes of a recipe
RECIPE_FOLDER = Path(__file__).parents[1] / "recipes"

T = TypeVar("T")


def recipe_names() -> list[str]:
    """The recipes that come with the package."""
    return sorted(p.stem for p in RECIPE_FOLDER.glob("*.toml"))


def read_values(name_or_file: str, overrides: Sequence[str] = ()) -> tuple[dict[str, Any], str]:
    """The tables of a recipe as they are written, with `key.sub=value` changes applied on top; and its name."""
    path = Path(name_or_file)
    if path.suffix != ".toml" or not os.path.exists(path):
        built_in = RECIPE_FOLDER / f"{name_or_file}.toml"
        if not os.path.exists(built_in):
            if path.suffix == ".toml":
                raise ConfigError("there is no recipe file {name_or_file}", name_or_file)
            raise ConfigError(
                "there is no recipe {name_or_file!r}{suggestion}; give a recipe's name or the path of a .toml file",
                name_or_file,
                did_you_mean(name_or_file, recipe_names()),
            )
        path = built_in
    if not path.is_file() or path.stat().st_size > LARGEST:
        raise ConfigError("{path} is no recipe: it is not a file of at most {largest:,} bytes", path, LARGEST)
    try:
        values = tomllib.loads(path.read_bytes().decode("utf-8"))
    except (ValueError, RecursionError) as error:  # of TOML, of UTF-8, of a number with thousands of digits
        raise ConfigError("{path} is not valid TOML: {error}", path, error) from None
    except OSError as error:
        raise ConfigError("{path} cannot be read: {reason}", path, error.strerror) from None
    if path.parent != RECIPE_FOLDER:
        place_in(values, path.parent)
    apply_overrides(values, overrides)
    return values, path.stem


def read_recipe(name_or_file: str, overrides: Sequence[str] = ()) -> Recipe:
    """A built-in recipe by its name, or a TOML file by its path, with `key.sub=value` changes applied on top."""
    values, name = read_values(name_or_file, overrides)
    return Recipe.from_dict(values, name=name)


FILE_KEYS = ("train", "val", "test", "train_target", "val_target", "test_target")


def is_none(value: Any) -> bool:
    """Whether a setting of a recipe is written as not set."""
    return isinstance(value, str) and value.lower() in ("none", "null")


def place_in(values: dict[str, Any], folder: Path) -> None:
    """Paths in a recipe belong to the recipe's folder, wherever the command is given. Anything that is no path is left as it
    is, to be refused with its own sentence; so is the name of a data set that is no folder here."""
    data = values.get("data")
    if not isinstance(data, dict):
        return

    def located(name: Any) -> Any:
        if isinstance(name, list):
            return [located(item) for item in name]
        if isinstance(name, dict):
            return {key: located(item) if key in ("path", "target") else item for key, item in name.items()}
        if not isinstance(name, str) or "\0" in name or is_none(name):
            return name
        path = folder / Path(name).expanduser()
        return name if data.get("format") == "datasets" and not path.exists() else os.path.abspath(path)

    for key in ("tokenizer_file", *FILE_KEYS) if is_none(data.get("path", "none")) else ("path", "tokenizer_file"):
        if key in data:
            data[key] = located(data[key])


def apply_override(values: dict[str, Any], override: str) -> None:
    """`train.steps=200` changes values["train"]["steps"]."""
    key, equals, text = override.partition("=")
    part, dot, name = key.strip().partition(".")
    if not equals or not dot or not name:
        raise ConfigError("{override!r} is not of the form key.sub=value, such as train.steps=200", override)
    if part not in PARTS:
        raise ConfigError("{key!r}: there is no part {part!r}{suggestion}", key, part, did_you_mean(part, list(PARTS)))
    put_later(section_of(values, part), part, name, text.strip())


def put_later(section: dict[str, Any], part: str, name: str, value: Any) -> None:
    """Sets a setting of a part in place of what was said before: a preset, all that it says, unless the model was a preset's
    already; what changes that one changes this one, too."""
    if (part, name) == ("model", "preset") and isinstance(value, str) and "preset" not in section:
        for own in PRESETS.get(value, {}):
            section.pop(own, None)
    section[name] = value


def presets_first(settings: Iterable[T], name_of: Callable[[T], str]) -> list[T]:
    """Settings in the order in which they are put: beside a preset, whatever else is said of the model changes it.

    >>> presets_first(["model.n_layer", "model.preset"], str)
    ['model.preset', 'model.n_layer']
    """
    return sorted(settings, key=lambda own: name_of(own) != "model.preset")


def apply_overrides(values: dict[str, Any], overrides: Sequence[str]) -> None:
    """One after the other, a preset before what changes it."""
    for override in presets_first(overrides, lambda one: one.partition("=")[0].strip()):
        apply_override(values, override)


def build(kind: type[T], values: Mapping[str, Any], part: str) -> T:
    """One part of a recipe from its table, its values checked and converted."""
    hints = type_hints(kind)  # type: ignore[arg-type]
    refuse_unknown(values, list(hints), part)
    return kind(**{key: coerce(value, hints[key], f"{part}.{key}") for key, value in values.items()})


def refuse_unknown(values: Mapping[str, Any], known: Sequence[str], part: str) -> None:
    """An error with a suggestion for the first key that no field has."""
    for key in values:
        if key not in known:
            where = f"[{part}]" if part in PARTS else "a recipe"
            raise ConfigError(
                "there is no setting {key!r} in {where}{suggestion}", key, where, did_you_mean(key, known)
            )


RECIPE_HEAD = (
    _("A recipe: what is set here differs from the defaults; a line that begins with # shows the default."),
    _("Train with: glassformer train THIS_FILE. What it will take: glassformer plan THIS_FILE."),
)


@dataclass(frozen=True)
class Setting:
    """One setting as a person looks it up."""

    name: str
    takes: str
    default: str
    about: str
    is_choice: bool = False


def in_words(hint: Any) -> str:
    """A type as a person writes its values."""
    options = typing.get_args(hint)
    if typing.get_origin(hint) is Literal:
        return ", ".join(map(str, options))
    if typing.get_origin(hint) is tuple:
        return _("a list") if options[-1] is Ellipsis else _("a list of {n_options}", len(options))
    if options:
        return " or ".join(dict.fromkeys(in_words(o) for o in options if o is not type(None)))
    known = {bool: _("true or false"), int: _("a whole number"), float: _("a number"), str: "text"}
    return known.get(hint, str(getattr(hint, "__name__", hint)))


def toml_value(value: Any) -> str:
    """A setting's value as TOML writes it."""
    if value is None or isinstance(value, str):
        return json.dumps("none" if value is None else value, ensure_ascii=False)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(toml_value, value))}]"
    if dataclasses.is_dataclass(value):
        set_ones = ((f.name, own) for f in dataclasses.fields(value) if (own := getattr(value, f.name)) is not None)
        return "{" + ", ".join(f"{name} = {toml_value(own)}" for name, own in set_ones) + "}"
    return repr(value)


def as_written(value: Any) -> str:
    """A default as it stands in a recipe."""
    if value is None:
        return "none"
    return f"{value:g}" if isinstance(value, float) else toml_value(value)


def settings_of(part: str) -> list[Setting]:
    """All settings of `[model]`, `[data]`, `[train]` or `[decode]`, in their order."""
    kind = PARTS[part]
    hints, about = type_hints(kind), explanations(kind)
    return [
        Setting(
            field.name,
            in_words(hints[field.name]),
            as_written(field.default),
            about[field.name],
            is_choice=typing.get_origin(hints[field.name]) is Literal,
        )
        for field in dataclasses.fields(kind)
    ]


def commented_recipe(recipe: Recipe, chosen: Mapping[str, Any]) -> str:
    """A recipe as a TOML file in which every setting stands with its comment: those of `chosen` (by part) as settings, all others
    as comments with the value that they have anyway."""
    lines = [f"# {in_language(line, language())}" for line in RECIPE_HEAD]
    for part in PARTS:
        lines += ["", f"[{part}]"]
        own = dict(chosen.get(part, {}))
        if "preset" in own:
            lines.append(f"preset = {toml_value(own.pop('preset'))}")
        for setting in settings_of(part):
            about = "; ".join(in_language(text, language()) for text in (setting.takes, setting.about) if text)
            lines += ["", f"# {about}"]
            is_chosen = setting.name in own
            value = own[setting.name] if is_chosen else getattr(getattr(recipe, part), setting.name)
            lines.append(f"{'' if is_chosen else '#'}{setting.name} = {toml_value(value)}")
    return "\n".join(lines) + "\n"


def plain_recipe(recipe: Recipe) -> str:
    """A recipe as a TOML file that says no more than what differs from the defaults, files by their whole paths."""
    values = recipe.to_dict()
    place_in(values, Path.cwd())
    recipe = Recipe.from_dict(values)
    lines = [f"name = {toml_value(recipe.name)}", *([f"about = {toml_value(recipe.about)}"] if recipe.about else [])]
    for part in PARTS:
        own = getattr(recipe, part)
        lines += ["", f"[{part}]"]
        for setting in dataclasses.fields(own):
            if (value := getattr(own, setting.name)) != setting.default:
                lines.append(f"{setting.name} = {toml_value(value)}")
    return "\n".join(lines) + "\n"
