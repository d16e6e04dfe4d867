"""Everything a command can be given, spoiled by its structure: the files of a run, the settings, the options of the verbs, the
data. Whatever it is, the command ends with an exit code of its own and at most a sentence; it takes no more than ten seconds
and a gigabyte; nothing outside its folder is touched; and an answer that is given without a word is the right one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.counts import count
from tests.fuzz import worker
from tests.fuzz.cases import VERBS, Case
from tests.runs.test_isolation import contents
from tests.small_runs import small_run

pytestmark = pytest.mark.slow
CASES = count(fast=120, soak=5000)
GROUPS = count(fast=10, soak=100)  # of cases: each reports when it is through


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of each kind."""
    folder = tmp_path_factory.mktemp("fuzz")
    for kind in VERBS:
        small_run(folder / kind, kind, steps=4, validate_every=2, save_every=2, validate_examples=2)
    return folder


@pytest.fixture(scope="module")
def answers(home: Path) -> dict[str, str]:
    """What each run answers, undisturbed."""
    found = {}
    for kind, command in VERBS.items():
        done = worker.run([home / kind / "run" if word == "RUN" else word for word in command], home / kind)
        assert done.code == 0 and done.out.strip(), done
        found[kind] = done.out
    return found


@pytest.fixture(scope="module")
def most_seconds(home: Path, tmp_path_factory: pytest.TempPathFactory) -> float:
    """Of processor time: what is spoilt may take twice what the dearest command takes here undisturbed, all pictures drawn."""
    sound = worker.run(
        ["look", home / "pairs" / "run", "eins zwei", "--out", "new", "--across"], tmp_path_factory.mktemp("sound")
    )
    assert sound.code == 0, sound
    return max(worker.MOST_SECONDS, 2 * sound.seconds)


def fingerprint(folder: Path) -> dict[str, tuple[int, int]]:
    """What would show that a file was written: size and time of each."""
    return {p.as_posix(): (p.stat().st_size, p.stat().st_mtime_ns) for p in folder.rglob("*") if p.is_file()}


def try_case(number: int, home: Path, answers: dict[str, str], folder: Path, most_seconds: float) -> str | None:
    """What is wrong with how a case ended; None if all is well."""
    folder.mkdir()
    case = Case(number, home, folder)
    theirs = contents(case.theirs)
    command = case.command()
    done = worker.run(command, folder)
    wrong = done.complaint(most_seconds)
    if wrong is None and case.answer_counts and command == case.own_verb() and done.code == 0 and not done.err.strip():
        wrong = None if done.out == answers[case.kind] else "another answer, without a word"
    left = contents(case.theirs)
    if any(left.get(name) != content for name, content in theirs.items()):
        wrong = "somebody's files were touched"
    if wrong is not None:
        return f"case {number}: {case.told}; {' '.join(map(str, command))[:300]}: {wrong}\n{done.err[-600:]}"
    return None


@pytest.mark.parametrize("group", range(GROUPS))
def test_whatever_it_is_given(
    group: int, home: Path, answers: dict[str, str], most_seconds: float, tmp_path: Path
) -> None:
    before = fingerprint(home)
    found = []
    for number in range(group, CASES, GROUPS):
        folder = tmp_path / str(number)
        if (wrong := try_case(number, home, answers, folder, most_seconds)) is not None:
            found.append(wrong)
        shutil.rmtree(folder, ignore_errors=True)
    strangers = {p.name for p in tmp_path.iterdir() if not p.name.partition(".")[0].isdigit()}
    assert not found, f"{len(found)} of {len(range(group, CASES, GROUPS))}\n" + "\n".join(found)
    assert fingerprint(home) == before, "something outside the case's folder was touched"
    assert not strangers, f"left outside the case's folder: {strangers}"


def test_the_judge_sees_what_it_should() -> None:
    """A traceback, a defect, a hang, a waste and a refusal without a word; an honest refusal passes."""
    good = worker.Outcome(2, "", "glassformer: no", 0.1, 0, False)
    assert good.complaint() is None
    for change in (
        {"err": "Traceback (most recent call last):"},
        {"code": 70},
        {"code": -11},
        {"hung": True},
        {"seconds": 11.0},
        {"memory": 2 << 30},
        {"err": ""},
    ):
        assert worker.Outcome(**{**vars(good), **change}).complaint() is not None, change
