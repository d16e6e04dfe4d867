"""Until a run that replaces another has its first checkpoint, the old one is the run: kept under another name that nobody else
takes for his, put back where the new one ends before that, dropped when it has one."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path

import pytest

from glassformer.runs import staging
from glassformer.runs.doctor import examine
from tests.faults.processes import Ended, Runner
from tests.faults.test_memory import SETTINGS as LARGE

pytestmark = pytest.mark.slow
KILLED = -9
SHORT = ["train.steps=4", "train.save_every=2", "train.validate_every=4"]
FULL: dict[str, object] = {"call": "write", "nth": 1, "errno": 28}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    runner = Runner(tmp_path_factory.mktemp("replacing") / "run", SHORT)
    assert runner.train().code == 0
    return runner.folder


def copied(trained: Path, place: Path) -> Runner:
    shutil.copytree(trained, place)
    return Runner(place, SHORT)


def digests(folder: Path) -> dict[str, str]:
    """Every file of a run, but its lock."""
    files = (p for p in folder.rglob("*") if p.is_file() and p.name != ".lock")
    return {p.relative_to(folder).as_posix(): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


def replace(runner: Runner, *faults: dict[str, object]) -> Ended:
    arguments = ["train", runner.recipe, *runner.tiny, *runner.settings, "train.seed=9", "--out", str(runner.folder)]
    return runner.command([*arguments, "--overwrite"], *faults).wait()


def test_a_run_that_was_set_aside_is_nobody_elses(trained: Path, tmp_path: Path) -> None:
    """x-2 is replaced, and the new one killed before its first checkpoint; then x is trained, and replaced. Broken:
    `.replaced-x-2` is taken for the second of x, and deleted."""
    mine, other = copied(trained, tmp_path / "x-2"), Runner(tmp_path / "x", SHORT)
    before = digests(mine.folder)
    assert replace(mine, {"at": "step", "nth": 1, "do": "kill"}).code == KILLED
    assert other.train().code == 0
    assert replace(other).code == 0
    (aside,) = staging.replaced(mine.folder)
    assert {n: d for n, d in digests(aside).items() if n != staging.REPLACED} == before
    assert staging.replaced(other.folder) == []


@pytest.mark.parametrize(
    "fault",
    [
        {"at": "step", "nth": 1, "do": "int"},
        {"at": "preparing", "nth": 1, "do": "term"},
        {"memory": 0},
        FULL,
    ],
    ids=["a stop", "a stop while preparing", "no memory", "a full disk"],
)
def test_the_old_run_is_back_where_the_new_one_ends_too_early(
    fault: dict[str, object], trained: Path, tmp_path: Path
) -> None:
    """A full disk, no memory, a stop while data is prepared. A stop after a step saves, and there is nothing to put back."""
    runner = copied(trained, tmp_path / "run")
    before = digests(runner.folder)
    if "memory" in fault:
        # What the allocator holds already may be enough for some steps: no checkpoint before it is used up.
        runner.settings = [*LARGE, "train.steps=40", "train.save_every=40"]
    ended = replace(runner, fault)
    assert ended.code in (2, 75) and "defect" not in ended.said, ended.said
    if fault.get("do") == "int":
        assert runner.run.checkpoints.steps() == [1] and "--resume" in ended.said
    else:
        assert "the run from before is back" in ended.said, ended.said
        assert digests(runner.folder) == before
        assert "--resume --accept-changes" not in ended.said and "go on with: glassformer" not in ended.said
    assert sorted(p.name for p in tmp_path.iterdir() if p.is_dir()) == ["run"]


@pytest.mark.parametrize("then", ["doctor", "overwrite", "resume", "train"])
def test_after_a_kill_without_a_checkpoint(then: str, trained: Path, tmp_path: Path) -> None:
    """`doctor` names the old run and --prune puts it back; so does a training that begins there. --resume goes on with the new
    one, and drops the old one at its first checkpoint."""
    runner = copied(trained, tmp_path / "run")
    before = digests(runner.folder)
    assert replace(runner, {"at": "step", "nth": 1, "do": "kill"}).code == KILLED
    (note,) = [f for f in examine(runner.folder).findings if ".replaced-run" in f.name]
    assert note.condition == "note" and "--prune puts the old one back" in note.about and note.size > 0
    if then == "doctor":
        assert runner.command(["doctor", str(runner.folder)]).wait().code == 0
        assert digests(runner.folder) != before, "only --prune changes something"
        said = runner.command(["doctor", str(runner.folder), "--prune", "--json"]).wait().said
        assert json.loads(said.splitlines()[-1])["pruned"][0]["size"] == note.size
        assert digests(runner.folder) == before
    elif then == "train":
        ended = runner.train()
        assert ended.code == 2 and "holds a run already" in ended.said and digests(runner.folder) == before
    elif then == "overwrite":
        assert replace(runner, FULL).code == 2
        assert digests(runner.folder) == before
    else:
        assert runner.resume().code == 0
        assert runner.run.recipe.train.seed == 9 and runner.run.checkpoints.steps()[-1] == 4
    assert sorted(p.name for p in tmp_path.iterdir() if p.is_dir()) == ["run"]


def test_half_a_run_is_never_put_back(trained: Path, tmp_path: Path) -> None:
    """Killed while the old one was dropped, and the new one then moved away: what is left of the old one is no run."""
    runner = copied(trained, tmp_path / "run")
    aside = staging.move_aside(runner.folder)
    (aside / staging.REPLACED).write_text(json.dumps({"name": "run", "dropped": True}))
    (aside / "tokenizer.json").unlink()
    assert staging.to_put_back(runner.folder) is None
    assert runner.command(["doctor", str(runner.folder), "--prune"]).wait().code in (0, 2)
    assert not aside.exists() and not os.path.lexists(runner.folder)
