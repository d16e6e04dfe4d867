"""The one guard around every verb: what slips through is one sentence, the trace in a file, and exit code 70."""

from __future__ import annotations

import errno
import functools
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from glassformer.cli import data, verbs
from glassformer.cli.main import DEFECT, main
from glassformer.runs.folder import RunFolder
from tests.talking import make_run


def call(arguments: list[str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """A command line in this process: its exit code, and what it said on stderr. Nothing may reach stdout."""
    monkeypatch.setattr(sys, "argv", ["glassformer", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    said = capfd.readouterr()
    assert said.out == ""
    return ended.value.code, said.err  # type: ignore[return-value]


def test_a_defect_deep_inside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """An attribute that is not there, in the middle of loading a run. Caught: a traceback on the screen, a trace that is lost,
    an exit code that says the person did something wrong."""
    run = make_run(tmp_path / "run")
    (tmp_path / "traces").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "traces"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(RunFolder, "load_model", lambda self, **given: self.no_such_thing)
    code, said = call(["translate", str(run), "the cat"], monkeypatch, capfd)
    (trace,) = (tmp_path / "traces").iterdir()
    assert code == DEFECT == 70
    assert said.count("\n") == 1 and "Traceback" not in said
    assert "this is a defect of glassformer, not of yours (AttributeError" in said and str(trace) in said
    kept = trace.read_text(encoding="utf-8")
    assert "Traceback (most recent call last)" in kept and "no_such_thing" in kept and "the cat" in kept


def test_a_defect_where_no_file_can_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def full(**given: str) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(tempfile, "mkstemp", full)
    monkeypatch.setattr(RunFolder, "load_model", lambda self, **given: self.no_such_thing)
    code, said = call(["translate", str(make_run(tmp_path / "run")), "the cat"], monkeypatch, capfd)
    assert code == DEFECT and said.count("\n") == 1 and "defect of glassformer" in said and "written in" not in said


def broken(verb: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(verb)
    def failing(*args: Any, **options: Any) -> None:
        raise KeyError("\ud800 two\nlines")

    return failing


@pytest.mark.slow
def test_every_verb_has_the_guard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Whatever the verb, and with a message that no terminal could show."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    every = {heading: {name: broken(verb) for name, verb in group.items()} for heading, group in verbs.groups().items()}
    monkeypatch.setattr(verbs, "groups", lambda: every)
    monkeypatch.setattr(data, "VERBS", tuple(map(broken, data.VERBS)))
    names = [[name] for group in every.values() for name in group] + [
        ["data", verbs.name_of(verb)] for verb in data.VERBS
    ]
    for words in names:
        for given in (
            [],
            ["a"],
            ["a", "b"],
            ["a", "--to", "b"],
            ["a", "--out", "b"],
            ["a", "--file", "b", "--out", "c"],
        ):  # as much as it takes
            code, said = call([*words, *given], monkeypatch, capfd)
            assert said.count("\n") == 1, (words, said)
            if code != 2:
                break
        assert code == DEFECT and "defect of glassformer" in said, (words, said)


@pytest.mark.slow
def test_without_docstrings_there_is_one_sentence() -> None:
    """Under `python -OO`. Broken variant: options without their names, and a traceback."""
    command = [sys.executable, "-OO", "-m", "glassformer", "train", "dates"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "python -OO" in done.stderr and done.stderr.count("\n") == 1
