"""Every setting with its type, its default and its explanation, read from the fields themselves (`setting`), for those who
look them up: `glassformer info --settings`, `glassformer init`, docs/settings.md and its Chinese page."""

from __future__ import annotations

import dataclasses
import json
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from glassformer.config.fields import type_hints
from glassformer.config.recipe import PARTS, Recipe, place_in
from glassformer.language import _, in_language, language

HEAD = """# Settings

Everything a recipe may say, made by `python3 docs/make_settings.py` from the fields in
`glassformer/config/`. On the command line: `glassformer info --settings [model|data|train|decode]`, and any of them
as `part.name=value` behind `glassformer train RECIPE`. `none` stands for a setting that is not set."""
CHINESE_HEAD = """# 设置

配方里能写的一切，由 `python3 docs/make_settings.py` 从 `glassformer/config/` 里的各字段和屏幕的译文生成。
在命令行上：`glassformer info --settings [model|data|train|decode]`；每一项都可以写成 `part.name=value`，
放在 `glassformer train RECIPE` 后面。`none` 表示没有设。"""

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


def as_written(value: Any) -> str:
    """A default as it stands in a recipe."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return str(list(value))
    return f'"{value}"' if isinstance(value, str) else f"{value:g}" if isinstance(value, float) else str(value)


def settings_of(part: str) -> list[Setting]:
    """All settings of `[model]`, `[data]`, `[train]` or `[decode]`, in their order."""
    kind = PARTS[part]
    hints = type_hints(kind)
    return [
        Setting(
            field.name,
            in_words(hints[field.name]),
            as_written(field.default),
            field.metadata["about"],
            is_choice=typing.get_origin(hints[field.name]) is Literal,
        )
        for field in dataclasses.fields(kind)
    ]


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
        for field in dataclasses.fields(own):
            if (value := getattr(own, field.name)) != field.default:
                lines.append(f"{field.name} = {toml_value(value)}")
    return "\n".join(lines) + "\n"


def settings_page(which: str = "en") -> str:
    """docs/settings.md, or with zh docs/settings.zh.md."""
    columns = "| 设置 | 写什么 | 默认值 | |" if which == "zh" else "| setting | takes | default | |"
    lines = [CHINESE_HEAD if which == "zh" else HEAD]
    for part in PARTS:
        lines += ["", f"## [{part}]", "", columns, "| --- | --- | --- | --- |"]
        for setting in settings_of(part):
            takes, about = (in_language(text, which) for text in (setting.takes, setting.about))
            cells = [f"`{setting.name}`", takes, f"`{setting.default}`", about]
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"
