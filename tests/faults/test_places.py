"""Places where little can be done: names that are not UTF-8, a file system that cannot be written, few files open at a time.
What can be done is done; what cannot is one sentence and exit code 2."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest

from tests.faults.processes import Ended, Runner
from tests.runs.test_isolation import RECIPE
from tests.small_runs import small_run

pytestmark = pytest.mark.slow
NAME = os.fsdecode(b"caf\xe9")  # as Latin-1 wrote it, long ago


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("places")
    small_run(folder, "pairs", steps=4, validate_every=2, save_every=2, validate_examples=2)
    (folder / "mine.toml").write_text(RECIPE.format(name="mine", data=folder / "train.tsv"))
    (folder / "lines.txt").write_text("eins zwei\n")
    return folder


def assert_one_sentence(ended: Ended, *words: str) -> None:
    assert ended.code == 2 and "Traceback" not in ended.said and "defect" not in ended.said, ended.said
    last = [line for line in ended.said.splitlines() if line.startswith("glassformer: ")]
    assert len(last) == 1 and all(word in last[0] for word in words), ended.said


def test_names_that_are_not_utf8(home: Path, tmp_path: Path) -> None:
    """A run folder, an --out, a --file and a recipe may have them; data that run.json must name may not."""
    runner = Runner(tmp_path / "run")
    run, out, file = tmp_path / NAME, tmp_path / f"{NAME}-out", tmp_path / f"{NAME}.txt"
    recipe, data = tmp_path / f"{NAME}.toml", tmp_path / f"{NAME}.tsv"
    shutil.copytree(home / "run", run)
    shutil.copy(home / "lines.txt", file)
    shutil.copy(home / "mine.toml", recipe)
    shutil.copy(home / "train.tsv", data)
    plain = runner.command(["translate", str(home / "run"), "eins zwei"]).wait()
    for command in (
        ["translate", str(run), "eins zwei"],
        ["doctor", str(run)],
        ["train", str(recipe), "--out", str(out)],
        ["train", str(out), "train.steps=6", "--resume", "--accept-changes"],
        ["data", "check", str(data)],
        ["translate", str(run), "--file", str(file), "--out", str(tmp_path / f"{NAME}-answers")],
    ):
        ended = runner.command(command).wait()
        assert ended.code == 0, (command, ended.said)
        assert command[0] != "translate" or command[-1] != "eins zwei" or ended.said == plain.said
    assert (tmp_path / f"{NAME}-answers").read_text() == plain.said
    train = ["train", str(home / "mine.toml"), f"data.train={data}", "--out", str(tmp_path / "new")]
    assert_one_sentence(runner.command(train).wait(), "data.train", "UTF-8", "caf\\udce9.tsv")
    assert not (tmp_path / "new").exists()


def test_a_file_system_that_cannot_be_written(home: Path, tmp_path: Path) -> None:
    """Whoever only reads is not disturbed."""
    runner, told = Runner(tmp_path / "run"), os.strerror(errno.EROFS)
    shutil.copytree(home, tmp_path / "home")
    own = tmp_path / "home"
    before = {p: p.stat().st_mtime_ns for p in own.rglob("*")}
    reading = [["translate", own / "run", "eins"], ["doctor", own / "run"], ["evaluate", own / "run", "--limit", "2"]]
    writing = [
        ["train", own / "mine.toml", "--out", own / "new"],
        ["train", own / "run", "train.steps=6", "--resume", "--accept-changes"],
        ["translate", own / "run", "--file", own / "lines.txt", "--out", own / "answers"],
        ["look", own / "run", "eins", "--out", own / "look"],
    ]
    for command in reading + writing:
        ended = runner.command([str(word) for word in command], {"read_only": str(own)}).wait()
        if command in reading:
            assert ended.code == 0, (command, ended.said)
        else:
            assert_one_sentence(ended, told)
    assert {p: p.stat().st_mtime_ns for p in own.rglob("*")} == before


def test_few_files_may_be_open(home: Path, tmp_path: Path) -> None:
    """From none at all up to enough: each try ends well or in a sentence, and what was begun can be gone on with."""
    runner, codes = Runner(tmp_path / "run"), []
    for more in (0, 2, 4, 6, 8, 12, 40):
        out = tmp_path / f"new-{more}"
        ended = runner.command(["train", str(home / "mine.toml"), "--out", str(out)], {"handles": more}).wait()
        codes.append(ended.code)
        if ended.code != 0:
            assert_one_sentence(ended, os.strerror(errno.EMFILE))
        answered = runner.command(["translate", str(home / "run"), "eins"], {"handles": more}).wait()
        assert answered.code == 0 or (answered.code == 2 and "glassformer: " in answered.said), answered.said
        assert "Traceback" not in answered.said and "defect" not in answered.said
    assert codes[0] == 2 and codes[-1] == 0, codes
