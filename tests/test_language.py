"""The screen in Chinese: by GLASSFORMER_LANG or the locale; what has no translation appears in English."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest
import typer

from glassformer import language
from glassformer.cli.main import tell
from glassformer.cli.verbs import in_the_persons_language, make_app
from glassformer.config.recipe import read_recipe
from glassformer.errors import UserError

ROOT = Path(__file__).parents[1]


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


def test_help_is_translated_and_what_is_not_stays(chinese: None) -> None:
    command = in_the_persons_language(typer.main.get_command(make_app()))
    assert command.commands["train"].help.startswith("训练一个模型")
    assert command.commands["train"].rich_help_panel == "训练"
    first_lines = [verb.help.split("\n\n")[0] for verb in command.commands.values()]
    assert sum(bool(re.search(r"[\u4e00-\u9fff]", line)) for line in first_lines) > len(first_lines) / 2
    assert language.translated("nobody has translated this") == "nobody has translated this"


def catalogue() -> dict[str, str]:
    return language.translations("zh")._catalog  # type: ignore[attr-defined]


def test_the_first_errors(chinese: None, capsys: pytest.CaptureFixture[str]) -> None:
    """Names are carried over, whatever is in them, braces included; the exit code is the same."""
    with pytest.raises(UserError) as wrong:
        read_recipe("dates", ["model.n_layr=2"])
    assert tell(wrong.value) == 2
    assert "没有设置 'n_layr'" in capsys.readouterr().err
    assert language.translated_error("there is no file a {b}.tsv") == "没有文件 a {b}.tsv"
    assert language.translated_error("something else entirely") == "something else entirely"


def test_english_is_untouched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLASSFORMER_LANG", "en")
    assert language.translated_error("there is no file x") == "there is no file x"
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
    for key, value in catalogue().items():
        named = re.findall(r"\{(\d?)\}", value)
        assert key.count("{}") == len(named), key
        assert value.count("[bold]") == key.count("[bold]"), key
