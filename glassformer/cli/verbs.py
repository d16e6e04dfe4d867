"""The verbs of the command line: in which group `--help` shows each, and what all of them have in common.

The first screen shows the ten that one begins with; `--help --all` shows every verb. A command that cannot be understood (an
unknown option, a missing argument) costs one sentence and exit code 2, as any other mistake does. Nothing here imports torch: a
verb fetches what it needs when it runs.
"""

from __future__ import annotations

import difflib
import functools
import importlib
import os
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import fields
from importlib import metadata
from typing import Annotated, Any

import typer

from glassformer.cli import data
from glassformer.cli.folders import doctor, export, import_
from glassformer.cli.generate import classify, fill, generate, tag
from glassformer.cli.improve import improve
from glassformer.cli.info import info
from glassformer.cli.inside import heads, look, open_, serve
from glassformer.cli.options import as_command, describe
from glassformer.cli.recipes import init, plan, recipes
from glassformer.cli.scores import compare, evaluate, score
from glassformer.cli.train import demo, train
from glassformer.cli.translate import translate
from glassformer.config import PARTS, VERSION, DecodeConfig, did_you_mean
from glassformer.errors import ConfigError
from glassformer.language import _, localized
from glassformer.screen import be_quiet, warn

Verbs = dict[str, tuple[Callable[..., Any], ...]]

VERBS: Verbs = {
    "Begin": (demo, recipes, info, init, plan),
    "Train": (train, doctor, improve),
    "Use a run": (translate, generate, fill, classify, tag, serve),
    "Measure": (evaluate, score, compare),
    "In and out": (import_, export),
    "See inside": (open_, look, heads),
}
"""Our verbs under the headings of `--help`; those of `glassformer data` are in data.py."""
FIRST = ("demo", "train", "translate", "generate", "serve", "evaluate", "export", "open", "look", "data")
"""The verbs of the first screen."""
GROUP = "glassformer.verbs"
"""The entry points by which other packages of verbs are found: each has a module `verbs` with a table `VERBS` like ours."""
LABORATORY = ("study", "sweep", "ablate", "reproduce", "complexity", "verify-resume", "audit", "museum", "homework")
"""What glassformer-lab brings; where it is not installed, its verbs say so. `sweep` was called `ablate`."""
MOVED = {
    "backtranslate": "improve RUN --only backtranslate --text FILE --out PAIRS.tsv",
    "distill": "improve RUN --only distill",
    "tokenize": "info RUN --tokenize TEXT",
}
"""How verbs of before are written now."""

# ---- the table as Typer has it


def name_of(verb: Callable[..., Any]) -> str:
    """The name of a verb: of its function, whose last underscore keeps it apart from a word of Python."""
    return verb.__name__.rstrip("_").replace("_", "-")


@functools.cache
def groups() -> dict[str, dict[str, Callable[..., Any]]]:
    """Every verb by its name, under its heading: ours, and those of the packages that are installed beside this one."""
    tables = [VERBS]
    for package in sorted(point.value for point in metadata.entry_points(group=GROUP)):
        try:
            tables.append(importlib.import_module(f"{package}.verbs").VERBS)
        except ImportError as error:  # installed from a folder that is gone
            warn(_("the verbs of {package} are left out: {error}", package, error))
    merged: dict[str, dict[str, Callable[..., Any]]] = {}
    for table in tables:
        for heading, verbs in table.items():
            merged.setdefault(heading, {}).update({name_of(verb): verb for verb in verbs})
    return merged


def show_version(asked: bool) -> bool:
    """Print the version and end, where it is asked for."""
    if asked:
        typer.echo(f"glassformer {VERSION}")
        raise typer.Exit
    return asked


def before_any_verb(
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    every: Annotated[bool, typer.Option("--all", help="With --help: show every verb.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only results and errors.")] = False,
) -> None:
    """Train a Transformer on your own pairs or text, see through it, ship it.

    Start with: [bold]glassformer demo[/], or [bold]glassformer train my.toml[/] on data of your own.
    """
    be_quiet(quiet)


def make_app() -> typer.Typer:
    """The command line with all its verbs."""
    app = typer.Typer(
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
        context_settings={"help_option_names": ["--help", "-h"]},
    )

    def add(to: typer.Typer, name: str, verb: Callable[..., Any], heading: str | None = None) -> None:
        epilog = _("Example: glassformer {command}", describe(verb).example)
        to.command(name, rich_help_panel=heading, epilog=epilog)(as_command(verb))

    app.callback()(before_any_verb)
    for heading, verbs in groups().items():
        for name, verb in verbs.items():
            add(app, name, verb, heading)
    sub = typer.Typer(no_args_is_help=True, help=data.HELP)
    for verb in data.VERBS:
        add(sub, name_of(verb), verb)
    app.add_typer(sub, name="data", rich_help_panel="Begin")
    return app


# ---- help in the person's language

PANELS = {
    "OPTIONS_PANEL_TITLE": _("Options"),
    "ARGUMENTS_PANEL_TITLE": _("Arguments"),
    "COMMANDS_PANEL_TITLE": _("Commands"),
    "REQUIRED_LONG_STRING": _("[required]"),
    "DEFAULT_STRING": _("[default: {}]"),
}
"""The words that Typer itself puts into help."""


def have_typer_speak() -> None:
    """Put Typer's own words into the person's language; and have it break lines of Chinese, which has no blanks to break at,
    anywhere: a table would cut them off."""
    from typer import rich_utils

    make_text: Any = getattr(rich_utils._make_rich_text, "__wrapped__", rich_utils._make_rich_text)

    @functools.wraps(make_text)
    def make_folding_text(*args: Any, **options: Any) -> Any:
        text = make_text(*args, **options)
        if hasattr(text, "overflow"):
            text.overflow = "fold"
        return text

    rich_utils._make_rich_text = make_folding_text
    for name, text in PANELS.items():
        setattr(rich_utils, name, localized(text))


def translated_help(text: str) -> str:
    """Help in the person's language, each paragraph as one line: it is as wide as the terminal, and not as the source."""
    return "\n\n".join(" ".join(localized(paragraph).splitlines()) for paragraph in text.split("\n\n"))


def in_the_persons_language(command: Any) -> Any:
    """The command and its verbs with their help as the person reads it."""
    for thing in (command, *command.params):
        for name in ("help", "rich_help_panel"):
            if isinstance(text := getattr(thing, name, None), str):
                setattr(thing, name, translated_help(text))
    if isinstance(command.epilog, str):
        command.epilog = localized(command.epilog)
    make_help_option, make_usage = command.get_help_option, command.get_usage

    def translated_help_option(context: Any) -> Any:
        option = make_help_option(context)
        if option is not None:
            option.help = translated_help(option.help)
        return option

    command.get_help_option = translated_help_option
    command.get_usage = lambda context: make_usage(context).replace("Usage: ", localized(_("Usage: ")), 1)
    for verb in getattr(command, "commands", {}).values():
        in_the_persons_language(verb)
    return command


def with_first_verbs(command: Any) -> Any:
    """The command line with the verbs of the first screen in one list, and a line that says how to see the others."""
    for name, verb in command.commands.items():
        verb.hidden, verb.rich_help_panel = name not in FIRST, None
    command.epilog = _("Every verb: glassformer --help --all")
    return command


def run_command(arguments: Sequence[str] | None = None) -> int:
    """Carry out a command line (by default the process's own). The exit code; mistakes are raised as UserError."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    command = typer.main.get_command(make_app())
    if words in ([], ["--help"], ["-h"]) and "_GLASSFORMER_COMPLETE" not in os.environ:
        command = with_first_verbs(command)
    have_typer_speak()
    try:
        code = in_the_persons_language(command).main(args=words, prog_name="glassformer", standalone_mode=False)
    except Exception as error:
        # Typer's own exceptions; which package they live in differs between its versions.
        if not hasattr(error, "format_message"):
            raise
        if type(error).__name__ == "NoArgsIsHelpError":
            return 2
        raise ConfigError(sentence_of(error)) from None
    return code if isinstance(code, int) else 0


# ---- a command line that cannot be understood


def settings_of(command: Any) -> dict[str, str]:
    """The settings that a verb takes without an option of their own, by what that would be called: `train.steps` by `steps`."""
    names = {parameter.name for parameter in command.params}
    parts = {"decode": DecodeConfig} if "settings" in names else PARTS if "overrides" in names else {}
    written = [(field.name, part) for part, config in parts.items() for field in fields(config)]
    return {
        name.replace("_", "-"): f"--set {name}=…" if "settings" in names else f"{part}.{name}=…"
        for name, part in reversed(written)  # of two parts' the first one's
        if name not in names
    }


def unknown_command(word: str, known: Sequence[str]) -> str:
    """What is said of a verb that there is not."""
    if word in MOVED:
        return _("{verb} is written differently now: glassformer {command}", word, MOVED[word])
    if word in LABORATORY and LABORATORY[0] not in known:
        return _(
            "{verb} is a verb of glassformer-lab, which is not installed: pip install glassformer-lab (in a checkout of the "
            "source: pip install --editable ./lab)",
            word,
        )
    meant = "sweep" if word == "ablate" else word
    return _("there is no command {word!r}{suggestion}", meant, did_you_mean(meant, known))


def unknown_option(option: str, error: Any) -> str:
    """What is said of an option that a verb has not."""
    settings, name = settings_of(error.ctx.command), option.lstrip("-").replace("_", "-")
    if name in settings:
        return _("{option} is a setting and no option; write {setting}", option, settings[name])
    known = settings | {str(other).lstrip("-"): str(other) for other in error.possibilities or []}
    close = difflib.get_close_matches(name, known, n=1)
    suggestion = _(" (did you mean {name!r}?)", known[close[0]]) if close else ""
    return _("there is no option {option}{suggestion}", option, suggestion)


def sentence_of(error: Any) -> str:
    """What is wrong with a command line, in one line, and where to look it up."""
    context, option = getattr(error, "ctx", None), getattr(error, "option_name", None)
    path = "glassformer" if context is None else context.command_path
    message = " ".join(str(error.format_message()).split()).rstrip(".")
    if context is not None and (match := re.match("No such command '([^']*)'", message)):
        mistake = unknown_command(match[1], list(getattr(context.command, "commands", {})))
        if match[1] in MOVED or "glassformer-lab" in mistake:
            return mistake
    elif option is not None and type(error).__name__ == "NoSuchOption":
        mistake = unknown_option(option, error)
    elif option is not None and (match := re.search(r"requires (an|\d+) argument", message)):
        mistake = _("{option} takes a value", option)
    elif match := re.fullmatch("Missing argument (.*)", message):
        mistake = _("missing argument {name}", match[1])
    else:
        mistake = message[:1].lower() + message[1:]
    return _("{mistake}; see: {command} --help", mistake, path)
