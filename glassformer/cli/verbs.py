"""The verbs of the command line: in which group `--help` shows each, and what all of them have in common.

Every verb takes `--quiet`. A command that cannot be understood (an unknown option, a missing argument) costs one sentence
and exit code 2, as any other mistake does. Nothing here imports torch: a verb fetches what it needs when it runs.
"""

from __future__ import annotations

import difflib
import functools
import importlib
import inspect
import re
import sys
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from importlib import metadata, resources
from typing import Annotated, Any

import typer

from glassformer.cli.completion import COMPLETED
from glassformer.config import PARTS, VERSION, did_you_mean
from glassformer.errors import ConfigError
from glassformer.language import _, language, localized
from glassformer.screen import be_quiet, warn

HOME, GROUP = "glassformer.cli", "glassformer.verbs"
"""The package of our verbs, and the group of entry points by which other packages of verbs are found: each has a verbs.toml."""

HOMES = {"import": "import_model.import_model", "open": "serve.open_page"}
"""Of the verbs that are no function of their own name in a file of that name."""

LABORATORY = (
    *("study", "sweep", "ablate", "reproduce", "complexity", "verify-resume", "audit", "museum", "diagnose"),
    *("homework", "figures"),
)
"""What glassformer-lab brings; where it is not installed, its verbs say so. `sweep` was called `ablate`."""

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing but what was asked for and what goes wrong.")]


def with_quiet(verb: Callable[..., Any]) -> Callable[..., Any]:
    """The verb with one option more, and with what the shell completes."""

    @functools.wraps(verb)
    def called(*args: Any, quiet: bool = False, **options: Any) -> Any:
        if quiet:
            be_quiet(True)
        return verb(*args, **options)

    own = inspect.signature(verb, eval_str=True)
    for name, complete in COMPLETED.items():
        if name in own.parameters:
            own.parameters[name].annotation.__metadata__[0].autocompletion = complete
    extra = inspect.Parameter("quiet", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Quiet)
    called.__signature__ = own.replace(parameters=[*own.parameters.values(), extra])  # type: ignore[attr-defined]
    called.__annotations__ = {name: p.annotation for name, p in own.parameters.items()} | {"quiet": Quiet}
    return called


def show_version(asked: bool) -> bool:
    """Print the version and end, where it is asked for."""
    if asked:
        typer.echo(f"glassformer {VERSION}")
        raise typer.Exit
    return asked


def before_any_verb(
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Show the version and leave.")
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Train a Transformer on your own pairs or text, see through it, ship it.

    Start with: [bold]glassformer demo[/], or [bold]glassformer train my.toml[/] on data of your own.
    """
    be_quiet(quiet)


@functools.cache
def tables() -> dict[str, dict[str, dict[str, str]]]:
    """Of each package of verbs, by heading, the verbs with an example of each: ours, and those that are installed beside it."""
    found = {}
    for package in (HOME, *sorted(one.value for one in metadata.entry_points(group=GROUP))):
        try:
            text = resources.files(package).joinpath("verbs.toml").read_text(encoding="utf-8")
        except (ImportError, OSError) as error:  # installed from a folder that is gone
            warn(_("the verbs of {package} are left out: {error}", package, error))
        else:
            found[package] = tomllib.loads(text)
    return found


def examples() -> dict[str, str]:
    """What one would type, of every verb."""
    return {name: words for table in tables().values() for verbs in table.values() for name, words in verbs.items()}


def verb_named(name: str, package: str = HOME) -> Callable[..., Any]:
    """The function of a verb."""
    own = name.replace("-", "_")
    file, _dot, function = HOMES.get(name, f"{own}.{own}").partition(".")
    return getattr(importlib.import_module(f"{package}.{file}"), function)  # type: ignore[no-any-return]


def groups() -> dict[str, dict[str, Callable[..., Any]]]:
    """Every verb by its name, under the heading it has in `--help`."""
    found: dict[str, dict[str, Callable[..., Any]]] = {}
    for package, table in tables().items():
        for heading in (one for one in table if one != "data"):
            found.setdefault(heading, {}).update({name: verb_named(name, package) for name in table[heading]})
    return found


def example(name: str) -> str:
    """The last line of a verb's help."""
    return _("Example: glassformer {command}", examples()[name])


def make_app() -> typer.Typer:
    """The command line with all its verbs."""
    from glassformer.cli import data

    app = typer.Typer(
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
        context_settings={"help_option_names": ["--help", "-h"]},
    )
    app.callback()(before_any_verb)
    for heading, verbs in groups().items():
        for name, verb in verbs.items():
            app.command(name, rich_help_panel=heading, epilog=example(name))(with_quiet(verb))
    sub = typer.Typer(no_args_is_help=True, help=data.HELP)
    for name, verb in data.VERBS.items():
        sub.command(name, epilog=example(name))(with_quiet(verb))
    app.add_typer(sub, name="data", rich_help_panel="Begin")
    return app


CHINESE_WORD = re.compile(
    r"\s*[（“《]*(?:[\u3400-\u9fff]|[^\s\u3400-\u9fff（“《，。；：、！？）”》]+|\S)[，。；：、！？）”》]*\s*"
)
"""What no line is broken in: a Chinese character or a name of Latin letters, with the signs that belong to it."""


@contextmanager
def panels_in_the_persons_language() -> Iterator[None]:
    """The words that Typer itself puts into help, translated while a command runs."""
    import rich._wrap
    from typer import rich_utils

    headings = ("OPTIONS_PANEL_TITLE", "ARGUMENTS_PANEL_TITLE", "COMMANDS_PANEL_TITLE")
    names = (*headings, "REQUIRED_LONG_STRING", "DEFAULT_STRING")
    own: dict[str, Any] = {name: getattr(rich_utils, name) for name in names}
    for name, text in own.items():
        setattr(rich_utils, name, localized(text))
    make_text = own["_make_rich_text"] = rich_utils._make_rich_text

    def make_folding_text(*args: Any, **options: Any) -> Any:
        text = make_text(*args, **options)
        if hasattr(text, "overflow"):
            text.overflow = "fold"  # Chinese has no blanks to break at; a table would cut it off
        return text

    rich_utils._make_rich_text, re_word = make_folding_text, rich._wrap.re_word
    rich._wrap.re_word = CHINESE_WORD if language() == "zh" else re_word
    try:
        yield
    finally:
        rich._wrap.re_word = re_word
        for name, text in own.items():
            setattr(rich_utils, name, text)


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


def run_command(arguments: Sequence[str] | None = None) -> int:
    """Carry out a command line (by default the process's own). The exit code; mistakes are raised as UserError."""
    command = in_the_persons_language(typer.main.get_command(make_app()))
    words = None if arguments is None else list(arguments)
    try:
        with panels_in_the_persons_language():
            code = command.main(args=words, prog_name="glassformer", standalone_mode=False)
    except Exception as error:
        # Typer's own exceptions; which package they live in differs between its versions.
        if not hasattr(error, "format_message"):
            raise
        if type(error).__name__ == "NoArgsIsHelpError":
            return 2
        raise ConfigError(sentence_of(error, sys.argv[1:] if words is None else words)) from None
    return code if isinstance(code, int) else 0


def settings_of(command: Any) -> dict[str, str]:
    """The settings that a verb takes behind its name, by what they would be called as options: train.steps by steps."""
    if "overrides" not in {param.name for param in command.params}:
        return {}
    named = [(field.name, f"{part}.{field.name}") for part, kind in PARTS.items() for field in fields(kind)]
    return {name.replace("_", "-"): setting for name, setting in reversed(named)}  # of two parts' the first one's


def with_value(setting: str, option: str, words: Sequence[str]) -> str:
    """A setting as it is written, with what the words of a command line have as the option's value."""
    place = next((i for i, word in enumerate(words) if word.partition("=")[0] == option), len(words))
    given = [*words, "", ""][place].partition("=")[2] or [*words, "", ""][place + 1]
    return f"{setting}={given if given and not given.startswith('-') else '…'}"


def sentence_of(error: Any, words: Sequence[str] = ()) -> str:
    """What is wrong with a command line (its `words`), in one line, and where to look it up."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "glassformer"
    said = str(error.format_message()).strip().rstrip(".")
    said = " ".join(said.split())
    wrong = getattr(error, "option_name", None)
    if type(error).__name__ == "UsageError" and context is not None and said.startswith("No such command"):
        known = list(getattr(context.command, "commands", {}))
        word = said.split("'")[1] if said.count("'") > 1 else ""
        if word in LABORATORY and LABORATORY[0] not in known:
            return _(
                "{verb} is a verb of glassformer-lab, which is not installed: pip install glassformer-lab (in a checkout of the "
                "source: pip install --editable ./lab)",
                word,
            )
        word = "sweep" if word == "ablate" else word
        said = _("there is no command {word!r}{suggestion}", word, did_you_mean(word, known))
    elif wrong is not None and type(error).__name__ == "NoSuchOption":
        name, settings = wrong.lstrip("-").replace("_", "-"), {} if context is None else settings_of(context.command)
        meant = {one: with_value(setting, wrong, words) for one, setting in settings.items()}
        meant |= {str(option).lstrip("-"): str(option) for option in getattr(error, "possibilities", None) or []}
        if name in settings:
            said = _("{option} is a setting and no option; write {setting}", wrong, meant[name])
        else:
            close = difflib.get_close_matches(name, meant, n=1)
            suggestion = _(" (did you mean {name!r}?)", meant[close[0]]) if close else ""
            said = _("there is no option {option}{suggestion}", wrong, suggestion)
    elif wrong is not None and (match := re.search(r"requires (an|\d+) argument", said)):
        one, more = _("{option} takes a value", wrong), _("{option} takes {count} values", wrong, match[1])
        said = one if match[1] == "an" else more
    elif type(error).__name__ == "MissingParameter" and (match := re.fullmatch("Missing argument (.*)", said)):
        said = _("missing argument {name}", match[1])
    else:
        said = said[:1].lower() + said[1:]
    return _("{mistake}; see: {command} --help", said, path)
