"""The screen in Chinese: by GLASSFORMER_LANG or the locale; what has no translation appears in English."""

from __future__ import annotations

import ast
import functools
import importlib.util
import inspect
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from rich.table import Table
from rich.text import Text

from glassformer import language
from glassformer.cli.main import tell
from glassformer.cli.verbs import in_the_persons_language, make_app, run_command
from glassformer.config.documentation import settings_of
from glassformer.config.recipe import PARTS, read_recipe
from glassformer.errors import UserError
from glassformer.screen import table_console
from tests.small_runs import small_run

ROOT = Path(__file__).parents[1]
CHINESE = re.compile(r"[\u4e00-\u9fff]")
TYPERS = {"Options", "Arguments", "Commands", "Usage:", "[required]", "[default: {}]"}
TYPERS |= {"Install completion for the current shell."}
TYPERS |= {"Show completion for the current shell, to copy it or customize the installation."}
TYPERS |= {"Show this message and exit.", "missing argument {}; see: {}"}


@pytest.fixture
def chinese(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLASSFORMER_LANG", "zh")


def test_which_language(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable of our own before the locale's; an unknown language is English."""
    for name in ("GLASSFORMER_LANG", "LC_ALL", "LC_MESSAGES", "LANG"):
        monkeypatch.delenv(name, raising=False)
    assert language.language() == "en"
    monkeypatch.setenv("LANG", "zh_CN.UTF-8")
    assert language.language() == "zh"
    monkeypatch.setenv("GLASSFORMER_LANG", "en")
    assert language.language() == "en"
    monkeypatch.setenv("GLASSFORMER_LANG", "fr")
    assert language.language() == "en"


def helps(command: Any, path: str = "glassformer") -> Iterator[tuple[str, str]]:
    """Every paragraph of help of a command, its options and its verbs."""
    for thing in (command, *command.params, command.get_help_option(typer.Context(command))):
        for text in (getattr(thing, "help", None), getattr(thing, "rich_help_panel", None)):
            for paragraph in (text or "").split("\n\n") if isinstance(text, str) else ():
                yield f"{path} {getattr(thing, 'name', '')}", paragraph
    for name, verb in getattr(command, "commands", {}).items():
        yield from helps(verb, f"{path} {name}")


def test_all_help_is_translated(chinese: None) -> None:
    """A new verb or option needs its line in the catalogue; a word that is the same in both languages would be one, too."""
    command = in_the_persons_language(typer.main.get_command(make_app()))
    assert command.commands["train"].help.startswith("训练一个模型")
    found = list(helps(command))
    english = [f"{where}: {text}" for where, text in found if text and not CHINESE.search(text)]
    assert len(found) > 200
    names_alone = ("tatoeba:en-de", "auto、cpu", "train、val")
    assert [line for line in english if not any(name in line for name in names_alone)] == []


def catalogue() -> dict[str, str]:
    found: dict[str, str] = language.translations("zh")._catalog  # type: ignore[attr-defined]
    return {key: value for key, value in found.items() if key}


@pytest.mark.parametrize(
    "said",
    [
        "there is no run runs/x; `glassformer train` makes one",
        "runs/x holds a run already; go on with it by --resume, or choose another folder with --out, or replace it by "
        "--overwrite",
        "train.steps must be a whole number, not 'abc'",
        "pairs.tsv, line 3: only one column; each line must be source and target, with a tab between",
        "there is no file pairs.tsv (did you mean 'pair.tsv'?)",
        "model.n_embd 10 is not divisible by model.n_head 3; change one or set model.head_size",
        "out of memory; what was saved before is intact. To go on with less, set train.accumulate=2 (the same batch in more "
        "pieces) or data.batch_tokens=500, as in: glassformer train runs/x train.accumulate=2 --resume --accept-changes",
        "this run is an encoder-decoder made to translate; it cannot fill",
    ],
)
def test_errors_of_the_first_hour(said: str, chinese: None) -> None:
    told = language.localized(said)
    assert CHINESE.search(told) and not re.search(r"[a-z]+ (is|must|has|was) [a-z]+", told), told
    for name in re.findall(r"\S*[./='\d]\S*\w", said):
        assert name.strip(";,:()?") in told, (name, told)


def test_mistakes_on_the_command_line(chinese: None, capsys: pytest.CaptureFixture[str]) -> None:
    """Names are carried over, whatever is in them, braces included; the exit code is the same."""
    with pytest.raises(UserError) as wrong:
        read_recipe("dates", ["model.n_layr=2"])
    assert tell(wrong.value) == 2
    assert "没有设置 'n_layr'" in capsys.readouterr().err
    assert language.localized("there is no file a {b}.tsv") == "没有文件 a {b}.tsv"
    assert language.localized("something else entirely") == "something else entirely"
    for words in (["trian"], ["train", "--stpes", "3"], ["train"]):
        with pytest.raises(UserError) as wrong:
            run_command(words)
        assert CHINESE.search(language.localized(str(wrong.value))), words


@pytest.mark.slow
def test_first_and_last_screen_of_a_training(chinese: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from glassformer.cli.train import run_it

    run_it(lambda: small_run(tmp_path, "pairs", steps=2, validate_every=2, save_every=2), tmp_path / "run")
    shown = capsys.readouterr()
    first = [line for line in shown.err.splitlines() if line.startswith("  ") and not line.startswith("    ")]
    assert len(first) >= 8 and all(CHINESE.search(line) for line in first), shown.err
    columns = {language.width(re.match(r"  \S+ +", line)[0]) for line in first}  # type: ignore[index]
    assert len(columns) == 1, "the column of labels is not straight"
    last = [line for line in shown.out.splitlines() if line and "glassformer look" not in line]
    assert all(CHINESE.search(line) or "evaluate" in line for line in last), shown.out
    assert CHINESE.search((tmp_path / "run" / "train.log").read_text(encoding="utf-8"))


def test_tables_speak_and_data_does_not(chinese: None, capsys: pytest.CaptureFixture[str]) -> None:
    """Broken variant: a console that translates cells, where somebody's text `right` would become another."""
    table = Table("measure", "value", title="Days it has never seen")
    table.add_row("right", Text("right"))
    table_console().print(table)
    shown = capsys.readouterr().out
    assert "指标" in shown and "它没见过的日子" in shown and shown.count("right") == 2


def test_english_is_untouched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLASSFORMER_LANG", "en")
    assert language.localized("there is no file x") == "there is no file x"
    command = typer.main.get_command(make_app())
    before = command.commands["train"].help
    assert in_the_persons_language(command).commands["train"].help == before


def test_the_compiled_catalogue_is_that_of_the_source() -> None:
    """Broken variant: a .po that was changed and not compiled (python3 docs/make_messages.py)."""
    spec = importlib.util.spec_from_file_location("make_messages", ROOT / "docs" / "make_messages.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.PO.with_suffix(".mo").read_bytes() == module.compiled()


def test_every_translation_has_the_names_of_its_sentence() -> None:
    """No name is lost but the s of a plural, none is invented, and no sentence is so short that it would fit anything."""
    for key, value in catalogue().items():
        before = language.PLACE.sub("\0", key).split("\0")[:-1]
        used = re.findall(r"\{(\d*)\}", value)
        numbers = {int(number) for number in used} if any(used) else set(range(len(used)))
        plural = {i for i, text in enumerate(before) if re.search(r"[a-z]$", text)}
        later_or_earlier = {i for i, text in enumerate(before) if i and before[i - 1].endswith(" line")}
        assert numbers <= set(range(len(before))), key
        assert set(range(len(before))) - numbers <= plural | later_or_earlier, key
        assert value.count("[bold]") == key.count("[bold]"), key
        assert not before or len(re.findall("[A-Za-z]", language.PLACE.sub("", key))) >= 4, key


def strings_in(value: object) -> Iterator[str]:
    """Every text in what a TOML file holds."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from strings_in(inner)


def option_help(command: Any) -> Iterator[str]:
    """The help of every option of a command and of those under it; some of it is put together from a table."""
    yield from (help for option in command.params if (help := getattr(option, "help", None)))
    for inner in getattr(command, "commands", {}).values():
        yield from option_help(inner)


@functools.cache
def said_by_the_package() -> tuple[set[str], str]:
    """Every text of the package with {} for what is put in, paragraph by paragraph; and all of their pieces in one."""
    texts, pieces = set(), []
    for path in sorted((ROOT / "glassformer").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                parts = [part.value if isinstance(part, ast.Constant) else None for part in node.values]
                texts.add("".join("{}" if part is None else str(part) for part in parts).strip())
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts |= {paragraph.strip() for paragraph in inspect.cleandoc(node.value).split("\n\n")}
                pieces.append(node.value)
    for path in (ROOT / "glassformer").rglob("*.toml"):
        texts |= set(strings_in(tomllib.loads(path.read_text(encoding="utf-8"))))
    texts |= set(option_help(typer.main.get_command(make_app())))
    texts |= {setting.about for part in PARTS for setting in settings_of(part)}
    return texts, "\0".join([*pieces, *texts])


def is_stale(key: str) -> bool:
    """Whether the package no longer says this: neither as a whole nor, where it is put together, in all its pieces."""
    texts, pieces = said_by_the_package()
    whole = language.PLACE.sub("{}", key)
    parts = [part.strip(" ;:,()?") for part in whole.split("{}")]
    return whole not in texts and not all(part in pieces for part in parts)


@pytest.mark.slow
def test_no_translation_is_stale() -> None:
    assert [key for key in catalogue() if key not in TYPERS and is_stale(key)] == []
    assert is_stale("there is no fyle {}") and is_stale("a sentence that was never in the package")


@pytest.mark.parametrize("verb", ["", "train", "translate", "generate", "data check", "serve", "ablate"])
def test_help_wraps_and_loses_nothing(
    verb: str, chinese: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """At 80 columns, every paragraph of help stands there whole. Caught: a sentence without blanks that ends in an ellipsis."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERMINAL_WIDTH", "80")
    run_command([*verb.split(), "--help"])
    shown = capsys.readouterr().out
    assert "…" not in shown and max(language.width(line) for line in shown.splitlines()) <= 80
    flat = re.sub(r"[\s│]", "", shown)
    command = in_the_persons_language(typer.main.get_command(make_app()))
    for word in verb.split():
        command = command.commands[word]
    for thing in command.params:
        assert re.sub(r"\s|\\(?=\[)", "", getattr(thing, "help", None) or "") in flat
