"""`glassformer info`: a model as a table, before anything is built or downloaded."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glassformer.config import PARTS, PRESETS, Recipe, did_you_mean, not_among, read_recipe, recipe_names
from glassformer.config.recipe import apply_overrides
from glassformer.errors import ConfigError
from glassformer.language import _, localized
from glassformer.screen import BARE, FIXED, FOLD, RIGHT, make_table, short, table_console

if TYPE_CHECKING:
    from glassformer.models.costs import Costs, ParameterTensor


DESCRIBED = (_("processor"), _("cores"), _("it has"), _("none that torch can use"))
"""Of what `machine.describe` says: it stands below the language, and so its words are marked here."""


def show_machine() -> None:
    """Print the machine, and what a trial on it has chosen; one that was never made here is made now, in about a second."""
    from glassformer import machine
    from glassformer.accel import trials
    from glassformer.files.cache import cache_folder

    console = table_console()
    gains = trials.gains(trials.SHORT_ROWS, trials.try_short_rows)
    speeds = ", ".join(f"{gain:.2f}x/{keys}" for keys, gain in gains.items())
    chosen = _("for up to {limit} keys ({speeds} keys)", trials.largest_size_worth(gains), speeds)
    rows = [*machine.describe(), (_("training: our attention"), chosen)]
    console.print(make_table((), [map(localized, row) for row in rows], show_header=False, box=None))
    if (folder := cache_folder()) is not None:
        kept = _("Trials are kept in {cache_folder}.", folder / "trials")
        console.print(kept, style="dim", soft_wrap=True)


BOLD = FIXED | {"style": "bold"}
IN_LAYER = re.compile(r"\.(\*|\d+)\.")  # the number of a layer, or the star that stands for all of them


def find_recipe(name: str, overrides: list[str]) -> Recipe:
    """A preset, a recipe's name, a .toml file, or a run."""
    if name in PRESETS:
        values: dict[str, Any] = {"name": name, "model": {"preset": name}}
        apply_overrides(values, overrides)
        return Recipe.from_dict(values)
    if name.endswith(".toml") or name in recipe_names():
        return read_recipe(name, overrides)
    from glassformer.runs.facts import is_run, read_facts

    if is_run(Path(name)):
        if overrides:
            raise ConfigError(
                "{name} is a run, whose settings are what they are; give a recipe to try {overrides!r}",
                name,
                overrides[0],
            )
        return Recipe.from_dict(read_facts(Path(name))["recipe"], stored=True)
    known = [*PRESETS, *recipe_names()]
    raise ConfigError(
        "there is no preset, recipe or run {name!r}{suggestion}; known are {known}", *not_among(name, known)
    )


def fill_in_sizes(recipe: Recipe) -> tuple[Recipe, str]:
    """What only the data will tell is estimated, and said."""
    model, data, notes = recipe.model, recipe.data, []
    if not model.vocab_size:
        recipe = recipe.with_model(vocab_size=data.vocab_size)
        note = _("The vocabulary is not known before the data is read: counted as {count:,} words.", data.vocab_size)
        notes.append(note)
        if data.two_vocabularies and model.family == "transformer" and model.source_vocab_size is None:
            recipe = recipe.with_model(source_vocab_size=data.vocab_size, share_source_target=False)
    if model.head != "mlm" and not model.n_label:
        recipe = recipe.with_model(n_label=2)
        notes.append(_("The labels are not known before the data is read: counted as 2."))
    return recipe, " ".join(map(localized, notes))


def rows_of(listed: list[ParameterTensor]) -> list[tuple[str, str, str, str]]:
    """Name, shape, how often, parameters; the parts of a stack's layers are shown once, under its name."""
    rows = []
    stack = ""
    for part in listed:
        head, star, tail = IN_LAYER.split(part.name) if IN_LAYER.search(part.name) else ("", "", part.name)
        if star and head != stack:
            members = [p for p in listed if IN_LAYER.split(p.name)[0] == head]
            total = sum(p.parameters for p in members)
            shared = localized(_(" (shared)")) if part.copies < part.layers else ""
            rows.append((head, "", f"× {max(p.layers for p in members)}{shared}", f"{total:,}"))
        stack = head if star else ""
        name = f"  {tail}" if star == "*" else f"  {star}.{tail}" if star else part.name
        total_of_part = f"{part.parameters:,}" if part.copies else localized(_("tied"))
        shape = " × ".join(f"{n:,}" for n in part.shape) + (f" + {part.bias:,}" if part.bias else "")
        rows.append((name, shape, "", total_of_part))
    return rows


def in_bytes(count: Callable[[str], int]) -> str:
    """So many bytes, in each of the kinds of numbers."""
    return _("{fp32:,} bytes in fp32, {bf16:,} bytes in bf16", count("fp32"), count("bf16"))


def summary_of(found: Costs, recipe: Recipe) -> list[tuple[str, str]]:
    """Parameters, operations and memory of a model: a name and a value each."""

    token = _("a token pair") if recipe.model.family == "transformer" else _("a token")
    lines = [
        (_("parameters"), f"{found.parameters:,}"),
        (_("without embeddings"), f"{found.non_embedding:,}"),
        (
            _("FLOPs {token}, forward", token),
            _("{forward} ({attention} in attention)", short(found.forward_flops), short(found.attention_flops)),
        ),
        (_("FLOPs {token}, training step", token), short(found.training_flops)),
    ]
    if found.cache_numbers:
        lines.append((_("KV cache a token"), in_bytes(found.cache_bytes)))
    if found.source_numbers:
        lines.append((_("kept of a source token"), in_bytes(found.source_bytes)))
    return lines


def show_settings(parts: Sequence[str]) -> None:
    """Settings with their types, defaults and explanations: those of some parts, or one by its name."""
    from glassformer.config.recipe import settings_of

    tables = []
    for part in parts or list(PARTS):
        section, dot, name = part.partition(".")
        if section not in PARTS:
            raise ConfigError("there is no part {section!r}{suggestion}; there are {parts}", *not_among(section, PARTS))
        known = [setting.name for setting in settings_of(section)]
        if dot and name not in known:
            raise ConfigError(
                "there is no setting {name!r} in [{section}]{suggestion}", name, section, did_you_mean(name, known)
            )
        rows = [
            (setting.name, setting.default, localized(setting.about) + (f" ({setting.takes})" * setting.is_choice))
            for setting in settings_of(section)
            if name in ("", setting.name)
        ]
        columns = (_("setting"), BOLD), (_("default"), FOLD | {"max_width": 16}), (_("what it does"), FOLD)
        tables.append(make_table(columns, rows, title=f"[{section}]", **BARE))
    for table in tables:
        table_console().print(table, "")


def info(
    name: str | None = None,
    overrides: list[str] | None = None,
    *,
    context: int | None = None,
    settings: bool = False,
    machine: bool = False,
    taps: bool = False,
    tokenize: list[str] | None = None,
) -> None:
    """The model as a table: each part, its shape and its parameters; what a token costs to read and to learn from.

    With --settings, what can be set in a recipe; with --machine, this machine; with --taps, what can be seen inside; with
    --tokenize, how a run's tokenizer cuts a text.

    Example: info transformer-base

    name: A preset, a recipe, a .toml file or a run; with --settings a part, or part.name.
    context: Length of a row; by default the model's block_size.
    settings: Every setting, its default and what it does; with model, data, train or decode, those of that part.
    machine: What this machine has, and what a short trial on it has chosen.
    taps: Every activation of the model that can be seen or changed: name and shape.
    tokenize (TEXT): The pieces of this text with | between, a tab and their ids, by a run's tokenizer or a tokenizer.json.
        Repeatable.
    """
    if settings:
        show_settings([*([] if name is None else [name]), *(overrides or [])])
    elif machine:
        show_machine()
    elif name is None:
        raise ConfigError("say what to look at: a preset, a recipe, a .toml file or a run; or --settings, --machine")
    elif tokenize:
        show_tokens(Path(name), tokenize)
    elif taps:
        show_taps(name, overrides or [])
    else:
        show_model(name, overrides or [], context)


def show_tokens(path: Path, texts: Sequence[str]) -> None:
    """How a tokenizer (of a run that of its source) cuts texts. Control tokens (BOS, EOS) are the model's and not shown."""
    from glassformer.cli.lines import escaped, stdout_write
    from glassformer.runs.folder import RunFolder
    from glassformer.text.imported import load_tokenizer

    tokenizer = RunFolder.open(path).tokenizers.source if path.is_dir() else load_tokenizer(path)
    for text in texts:
        ids = tokenizer.encode(text)
        pieces = escaped("|".join(tokenizer.pieces(ids)).replace("\t", "\\t"))
        stdout_write(f"{pieces}\t{' '.join(map(str, ids))}\n")


def show_taps(name: str, overrides: list[str]) -> None:
    """The names that `record`, `replace` and `run_with_cache` know, with shapes; nothing is built in memory."""
    from glassformer.models import build_model
    from glassformer.models.costs import shapes_alone
    from glassformer.nn.taps import SHAPES, tap_shapes

    recipe, _unused = fill_in_sizes(find_recipe(name, overrides))
    with shapes_alone():
        found = tap_shapes(build_model(recipe.model))
    once = {re.sub(r"\.\d+\.", ".*.", full): values for full, values in found.items()}
    rows = [(full, shape, localized(meaning)) for full, (shape, meaning) in once.items()]
    title = _("{recipe}: what can be seen or changed", recipe.name)
    console = table_console()
    console.print(make_table(("name", "shape", _("what it is")), rows, title=title))
    console.print(
        _(
            "{n_found} activations of {n_shapes} kinds; * stands for the number of a layer. B rows (beams are rows), T tokens "
            "that ask, S tokens that answer, H heads, K key heads, D head size, C n_embd, F hidden, V words or labels.",
            len(found),
            len(SHAPES),
        ),
        style="dim",
    )


def show_model(name: str, overrides: list[str], context: int | None) -> None:
    """The table of a model's parts, and what it costs."""
    from glassformer.models.costs import costs, parts

    if context is not None and context < 1:
        raise ConfigError("--context must be at least 1, not {context}", context)
    recipe, note = fill_in_sizes(find_recipe(name, overrides))
    found = costs(recipe.model, context)
    columns = _("part"), (_("shape"), RIGHT), (_("layers"), RIGHT), (_("parameters"), RIGHT)
    table = make_table(columns, title=f"{recipe.name}: {recipe.model.family}")
    for row in rows_of(parts(recipe.model)):
        table.add_row(*row, style=None if row[0].startswith(" ") else "bold")
    summary = [map(localized, row) for row in summary_of(found, recipe)]
    console = table_console()
    console.print(table)
    console.print(make_table((), summary, show_header=False, box=None))
    console.print(
        _("A row of {context:,} tokens; keys that cannot be seen are not counted.", found.context), style="dim"
    )
    if note:
        console.print(note, style="yellow")
