"""Verbs of other packages: found where those are installed, and named where they are not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from glassformer.cli import verbs
from glassformer.cli.main import tell
from glassformer.errors import UserError

VERB = """
def greet_all(name: str) -> None:
    '''Say good day.

    Example: greet-all you

    name: Whom.
    '''
    print(f"good day, {name}")


VERBS = {"Be polite": (greet_all,)}
"""


def install(folder: Path, package: str) -> None:
    """A package with one verb, as pip leaves it."""
    (folder / package / "cli").mkdir(parents=True)
    for name, text in {
        "__init__.py": "",
        "cli/__init__.py": "",
        "cli/verbs.py": VERB,
    }.items():
        (folder / package / name).write_text(text, encoding="utf-8")
    facts = folder / f"{package}-1.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1\n", encoding="utf-8")
    (facts / "entry_points.txt").write_text(f"[{verbs.GROUP}]\nits = {package}.cli\n", encoding="utf-8")


@pytest.fixture(autouse=True)
def _looked_for_anew() -> Iterator[None]:
    verbs.groups.cache_clear()
    yield
    verbs.groups.cache_clear()


def test_a_package_that_is_installed_brings_its_verbs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Under its own heading, with its example and help. Broken variants: options looked up in our own table; a heading that the
    other package has, too, and that then has its verbs alone."""
    install(tmp_path, "polite_verbs")
    monkeypatch.syspath_prepend(tmp_path)
    assert verbs.run_command(["greet-all", "Ada"]) == 0 and capsys.readouterr().out == "good day, Ada\n"
    verbs.run_command(["--help", "--all"])
    shown = capsys.readouterr().out
    assert "Be polite" in shown and "greet-all" in shown and "translate" in shown
    verbs.run_command(["greet-all", "--help"])
    shown = capsys.readouterr().out
    assert "Example: glassformer greet-all you" in shown and "Whom." in shown


def test_one_that_is_gone_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its folder was removed and its entry was not. Broken variant: no verb works any more."""
    install(tmp_path, "verbs_gone")
    (tmp_path / "verbs_gone").rename(tmp_path / "elsewhere")
    monkeypatch.syspath_prepend(tmp_path)
    assert verbs.run_command(["recipes"]) == 0
    assert "the verbs of verbs_gone.cli are left out" in capsys.readouterr().err


def test_a_verb_of_the_laboratory_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where it is not installed, one line and exit code 2, under its old name too. Broken variant: `there is no command`."""
    monkeypatch.setattr(verbs.metadata, "entry_points", lambda **given: [])
    for name in verbs.LABORATORY:
        with pytest.raises(UserError, match="pip install glassformer-lab") as wrong:
            verbs.run_command([name, "dates"])
        assert tell(wrong.value) == 2 and capsys.readouterr().err.count("\n") == 1
