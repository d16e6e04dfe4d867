"""The screen in Chinese: by GLASSFORMER_LANG or the locale; what has no translation appears in English."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable
from pathlib import Path
from string import Formatter
from types import ModuleType
from typing import Any

import pytest
import typer
from rich.table import Table
from rich.text import Text

from glassformer import api, language
from glassformer.cli.main import tell
from glassformer.cli.verbs import in_the_persons_language, make_app, run_command
from glassformer.config import ModelConfig
from glassformer.config.recipe import read_recipe
from glassformer.errors import Notice, UserError
from glassformer.language import _
from glassformer.runs.folder import RunFolder
from glassformer.runs.launch import out_of_memory
from glassformer.screen import table_console
from tests.small_runs import small_run

ROOT = Path(__file__).parents[1]
CHINESE = re.compile(r"[\u4e00-\u9fff]")
NOT_IN_CHINESE = {"plural", "plural_heads", "side"}
"""The s of a plural; and that lines are shifted up or down, which the Chinese says in another way."""


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


def make_messages() -> ModuleType:
    """The program that collects what the package says."""
    spec = importlib.util.spec_from_file_location("make_messages", ROOT / "docs" / "make_messages.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_all_help_is_translated(chinese: None) -> None:
    """A new verb or option needs its line in the catalogue; a word that is the same in both languages would be one, too."""
    command = in_the_persons_language(typer.main.get_command(make_app()))
    assert command.commands["train"].help.startswith("训练一个模型")
    found = list(make_messages().help_texts(command))
    english = [text for text in found if text and not CHINESE.search(text)]
    assert len(found) > 200
    names_alone = ("tatoeba:en-de", "auto、cpu", "train、val")
    assert [line for line in english if not any(name in line for name in names_alone)] == []


def one_column(folder: Path) -> None:
    (folder / "pairs.tsv").write_text("only one\n", encoding="utf-8")
    list(api.train({"data": {"train": str(folder / "pairs.tsv")}}, out=folder / "run"))


def raise_out_of_memory(folder: Path) -> None:
    raise out_of_memory(folder, read_recipe("dates"), goes_on=True)


@pytest.mark.parametrize(
    ("what", "names"),
    [
        (lambda folder: RunFolder.open(folder / "x"), ["x", "glassformer train"]),
        (lambda folder: read_recipe("dates", ["train.steps=abc"]), ["train.steps", "'abc'"]),
        (one_column, ["pairs.tsv", "1"]),
        (lambda folder: run_command(["data", "check", str(folder / "pair.tsv")]), ["pair.tsv"]),
        (lambda folder: ModelConfig(n_embd=10, n_head=3), ["model.n_embd 10", "model.n_head 3", "model.head_size"]),
        (raise_out_of_memory, ["train.accumulate=2", "--resume --accept-changes"]),
    ],
)
def test_errors_of_the_first_hour(
    what: Callable[[Path], object], names: list[str], chinese: None, tmp_path: Path
) -> None:
    """The error itself is English, wherever it goes; shown to a person it is Chinese, with every name in it."""
    with pytest.raises(UserError) as wrong:
        what(tmp_path)
    assert not CHINESE.search(repr(wrong.value.args))
    told = language.localized(str(wrong.value))
    assert CHINESE.search(told) and not re.search(r"[a-z]+ (is|must|has|was) [a-z]+", told), told
    assert [name for name in names if name not in told] == [], told


def test_mistakes_on_the_command_line(chinese: None, capsys: pytest.CaptureFixture[str]) -> None:
    """Names are carried over, whatever is in them, braces included; the exit code is the same."""
    with pytest.raises(UserError) as wrong:
        read_recipe("dates", ["model.n_layr=2"])
    assert tell(wrong.value) == 2
    assert "没有设置 'n_layr'" in capsys.readouterr().err
    assert language.localized(_("there is no file {path}", path="a {b}.tsv")) == "没有文件 a {b}.tsv"
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
    assert len(first) >= 7 and all(CHINESE.search(line) for line in first), shown.err
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
    assert language.localized(_("there is no file {path}", path="x")) == "there is no file x"
    command = typer.main.get_command(make_app())
    before = command.commands["train"].help
    assert in_the_persons_language(command).commands["train"].help.split() == before.split(), "but for line ends"


def test_every_option_has_its_help() -> None:
    """Caught: help under another verb's name in options.toml, which nobody misses there."""

    def without(command: Any, path: str) -> list[str]:
        own = [f"{path} {option.name}" for option in command.params if not option.hidden and not option.help]
        return own + [
            one for name, sub in getattr(command, "commands", {}).items() for one in without(sub, f"{path} {name}")
        ]

    assert without(typer.main.get_command(make_app()), "") == []


def test_a_message_in_a_message_is_translated_too(chinese: None) -> None:
    """Also one that was raised; what is no message, such as a file's name that happens to be a word of ours, is not."""
    inner = UserError(_("there is no file {path}", path="right"))
    assert language.localized(_("note: {warning}", warning=inner)) == "注意：没有文件 right"
    assert _("note: {warning}", warning=inner) == "note: there is no file right"


@pytest.mark.slow
def test_the_catalogue_is_that_of_the_package() -> None:
    """Nothing that is said is missing in the .po, nothing in it is said no longer, all has its Chinese, and the .mo is compiled
    from it. Broken variant: a sentence that was changed without python3 docs/make_messages.py."""
    make = make_messages()
    catalogue = make.updated()
    assert [message.id for message in catalogue if message.id and not message.string] == []
    assert make.PO.read_bytes() == make.source(catalogue)
    assert make.PO.with_suffix(".mo").read_bytes() == make.compiled(catalogue)


def names_in(template: str) -> set[str]:
    """What is put into a template."""
    return {name for _text, name, _spec, _conversion in Formatter().parse(template) if name is not None}


def test_every_translation_has_the_names_of_its_sentence() -> None:
    found: dict[str, str] = language.translations("zh")._catalog  # type: ignore[attr-defined]
    for key, value in found.items():
        if key and re.search(r"\{[a-z_0-9]+[:!}]", key):
            assert names_in(value) <= names_in(key), key
            assert names_in(key) - names_in(value) <= NOT_IN_CHINESE, key
        assert not key or value.count("[bold]") == key.count("[bold]"), key
        assert not key or value.count("\n") <= key.count("\n"), f"said twice: {key}"


@pytest.mark.parametrize("verb", ["", "train", "translate", "generate", "data check", "serve", "sweep"])
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


@pytest.mark.parametrize("columns", [60, 66, 80])
def test_a_line_of_chinese_help_ends_in_no_name(
    columns: int, chinese: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Lines end between characters, behind their signs, or at a name's end. Broken variants: `--ta / ps`, where a paragraph
    without blanks is one long word; a line that begins with a full stop."""
    monkeypatch.setenv("COLUMNS", str(columns))
    run_command(["info", "--help"])
    prose = capsys.readouterr().out.partition("╭")[0]
    assert all(name in prose for name in ("--settings", "--machine", "--taps"))
    assert not re.search(r"^\s*[，。；：]", prose, re.MULTILINE)


def test_a_warning_is_plain_text_to_whoever_collects_it(chinese: None) -> None:
    """Caught: a warning that another process cannot be told of, since its text is more than a str."""
    notice = Notice(language._("there is no file {path}", path="a.tsv"))
    assert type(str(notice)) is str and str(notice) == "there is no file a.tsv"
    assert language.localized(notice.args[0]) == "没有文件 a.tsv"


def test_values_come_in_the_order_of_their_names_or_each_by_its_name() -> None:
    """Caught: values put in by another order, one too few, and one too many."""
    template = "{last} after {first:,}, {last} of {run.name}"
    values = {"last": "b", "first": 1000, "run": Path("runs/mine")}
    assert _(template, "b", 1000, Path("runs/mine")) == _(template, **values) == template.format(**values)
    assert _(template, "b", Path("runs/mine"), first=1000) == _(template, **values)
    for wrong in (("b",), ("b", 1, Path("."), 2)):
        with pytest.raises(ValueError, match="zip"):
            _(template, *wrong)
