"""Compiled code is kept in the user's cache folder, where that is the user's alone; and whoever has said where is heard."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

import pytest
from typer.testing import CliRunner

from glassformer import machine
from glassformer.accel import compile_cache
from glassformer.cli.verbs import make_app
from tests.programs import run_program

pytestmark = pytest.mark.usefixtures("unset")


@pytest.fixture
def unset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache folder of one's own, and nothing said of compiled code."""
    monkeypatch.setenv("GLASSFORMER_CACHE", str(tmp_path / "cache"))
    for name in compile_cache.VARIABLES:
        monkeypatch.setenv(name, "")  # so that what is set below is gone after the test
    compile_cache.use_compile_cache.cache_clear()


def kept_in() -> list[str | None]:
    compile_cache.use_compile_cache()
    return [os.environ.get(name) or None for name in compile_cache.VARIABLES]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch compiles for a CPU by g++")
def test_what_the_compiler_makes_lies_in_the_cache_folder(tmp_path: Path) -> None:
    """By torch's own back end, in a process of its own. Broken variant: the folder named after something was compiled."""
    _value, *folders = run_program("compiled_and_kept").splitlines()
    (entry,) = compile_cache.compiled_entries()
    assert entry.path == tmp_path / "cache" / "compiled"
    assert folders == [str(entry.path / machine.processor_identity() / name) for name in ("inductor", "triton")]
    assert list(Path(folders[0]).rglob("*.so"))


def test_a_folder_of_the_users_alone() -> None:
    folders = [Path(str(name)) for name in kept_in()]
    home = folders[0].parents[1]
    assert stat.S_IMODE(home.stat().st_mode) == stat.S_IMODE(folders[0].parent.stat().st_mode) == 0o700


def test_a_place_that_was_said_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each by itself. Broken variant: both overwritten."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "mine")
    inductor, triton = kept_in()
    assert inductor == "mine" and triton is not None and triton.startswith(str(tmp_path))


def test_nothing_is_kept_where_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLASSFORMER_CACHE", "off")
    assert kept_in() == [None, None] and not compile_cache.compiled_entries()


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="files have no owner here")
@pytest.mark.parametrize("whose", ["another's", "open to all", "a link"])
def test_a_folder_that_is_not_the_users_alone_is_not_used(
    whose: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Who can write there could have us run what they like. Broken variants: no look at the owner, at the mode, at a link."""
    folder = tmp_path / "cache" / "compiled"
    folder.parent.mkdir()
    if whose == "a link":
        (tmp_path / "elsewhere").mkdir()
        folder.symlink_to(tmp_path / "elsewhere")
    else:
        folder.mkdir()
        folder.chmod(0o700 if whose == "another's" else 0o777)
    if whose == "another's":
        me = os.geteuid()
        monkeypatch.setattr(os, "geteuid", lambda: me + 1)
    assert kept_in() == [None, None]
    assert "not yours alone" in capsys.readouterr().err
    assert not list(folder.iterdir())


def test_what_is_kept_is_listed_and_cleared() -> None:
    folder = Path(str(kept_in()[0])).parents[1]
    call, app = CliRunner().invoke, make_app()
    assert "compiled code" in call(app, ["data", "cache"]).stdout
    assert call(app, ["data", "cache", "--clear"]).exit_code == 0
    assert not folder.exists() and not compile_cache.compiled_entries()
