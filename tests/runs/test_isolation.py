"""A command writes only into what it has created. Folders are filled with other people's files under the very names that a
run uses, every verb is let loose on them, and every byte is compared after each. The broken variants: a preparation that
clears `data/` first, an --overwrite that removes a folder, a log opened through a link, a name that is a path."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
from pathlib import Path

import pytest

from glassformer.files import owned
from glassformer.files.durable import to_json
from glassformer.runs import doctor as run_doctor
from glassformer.runs import staging
from glassformer.runs.doctor import examine
from glassformer.runs.facts import seal_of
from glassformer.runs.folder import RunFolder
from tests.commands import call
from tests.small_runs import small_run

pytestmark = pytest.mark.slow

RECIPE = """
name = "{name}"
[model]
n_layer = 1
n_head = 2
n_embd = 16
n_hidden = 32
block_size = 24
dropout = 0.0
[data]
train = "{data}"
tokenizer = "word"
batch_tokens = 256
val_fraction = 0.2
[train]
steps = 4
validate_every = 2
save_every = 2
validate_examples = 2
device = "cpu"
[decode]
max_ratio = 1.0
"""
FOREIGN = [
    *("data/thesis.docx", "data/train.tsv", "labels.json", "tokenizer.json", "tokenizer_config.json", "metrics.jsonl"),
    *("final/model.safetensors", "checkpoints/step-00000002/state.json", "heads.json", "heads.png", "compare.json"),
    *("scores.png", "look.html", "train.de", "notes.md", ".lock"),
]
LINKED = (".lock", "metrics.jsonl", "samples.jsonl", "train.log", "curves.png", "run.json", "checkpoints", "data")


def fill(folder: Path) -> Path:
    """Other people's files, under names that somebody careless would take for his own."""
    for name in FOREIGN:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"somebody's {name}\n")
    return folder


def contents(folder: Path) -> dict[str, str | bytes]:
    """Every byte under a folder, and where its links point."""
    return {
        p.relative_to(folder).as_posix(): os.readlink(p) if p.is_symlink() else p.read_bytes()
        for p in sorted(folder.rglob("*"))
        if p.is_symlink() or p.is_file()
    }


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return small_run(tmp_path_factory.mktemp("isolation"), "pairs", steps=4, validate_every=2, save_every=2)


@pytest.fixture
def recipe(run: RunFolder, tmp_path: Path) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(RECIPE.format(name="mine", data=run.path.parent / "train.tsv"))
    return path


def test_no_verb_touches_other_peoples_files(run: RunFolder, recipe: Path, tmp_path: Path) -> None:
    """Refused with exit code 2 where it would have to write among them, and not one byte changed."""
    home = fill(tmp_path / "home")
    before = contents(home)
    lines = tmp_path / "lines.txt"
    lines.write_text("eins zwei\n")
    commands: list[list[object]] = [
        ["train", recipe, "--out", "."],
        ["train", recipe, "--out", home],
        ["train", recipe, "--out", home, "--overwrite"],
        ["train", recipe, "--out", home, "--resume"],
        ["train", recipe, "--out", home / "notes.md"],
        ["train", home, "--resume"],
        ["heads", run.path, "--prune", 1, "--to", home, "--out", tmp_path / "heads", "--examples", 4],
        ["heads", run.path, "--out", home, "--examples", 4],
        ["compare", run.path, run.path, "--out", home, "--examples", 4],
        ["look", run.path, "eins zwei", "--out", home],
        ["data", "get", "shakespeare", "--out", home, "--mirror", "http://127.0.0.1:9"],
        ["translate", run.path, "--file", lines, "--out", home / "notes.md"],
        ["translate", run.path, "--file", lines, "--out", home / "notes.md", "--resume"],
        ["doctor", home],
        ["evaluate", home],
    ]
    for command in commands:
        done = call(*command, cwd=home)
        assert done.returncode in (1, 2), (command, done.stdout, done.stderr)
        assert "Traceback" not in done.stderr and "defect" not in done.stderr, done.stderr
        now = contents(home)
        assert {name: now.get(name) for name in before} == before, command
    # What somebody put beside his run is his, too.
    mine = tmp_path / "run"
    shutil.copytree(run.path, mine)
    (mine / "notes.md").write_text("mine")
    (mine / "data" / "thesis.docx").write_text("mine")
    for command in (["train", mine, "--resume"], ["doctor", mine], ["evaluate", mine], ["translate", mine, "eins"]):
        assert call(*command).returncode in (0, 1), command
        assert (mine / "notes.md").read_text() == (mine / "data" / "thesis.docx").read_text() == "mine"


def test_overwriting_loses_nothing_until_there_is_something_new(run: RunFolder, recipe: Path, tmp_path: Path) -> None:
    """A new run that cannot start leaves the old one as it was; one that can drops the old one's files and no others."""
    mine = tmp_path / "run"
    shutil.copytree(run.path, mine)
    (mine / "notes.md").write_text("mine")
    before = contents(mine)
    for wrong in ("data.train=missing.tsv", "train.metric=f1", "model.n_embd=1000000", "train.learning_rate=0"):
        done = call("train", recipe, wrong, "--out", mine, "--overwrite")
        assert done.returncode == 2, done.stderr
        assert contents(mine) == before, wrong
        assert sorted(p.name for p in tmp_path.iterdir()) == ["mine.toml", "run"], wrong
    done = call("train", recipe, "--out", mine, "--overwrite", drawn=False)
    assert done.returncode == 0, done.stderr
    assert "until the new one has its first checkpoint" in done.stderr
    assert RunFolder(mine).checkpoints.steps() == [2, 4] and not (mine / "notes.md").exists()
    assert contents(tmp_path / "kept-from-run") == {"notes.md": b"mine"}


def test_links_are_not_followed(run: RunFolder, recipe: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    for name in LINKED:
        mine = tmp_path / f"run-{name}"
        shutil.copytree(run.path, mine)
        target = tmp_path / f"other-{name}" if name in ("checkpoints", "data") else victim
        if target != victim:
            shutil.move(mine / name, target)
        elif (mine / name).exists():
            (mine / name).unlink()
        (mine / name).symlink_to(target)
        before = contents(target) if target != victim else {}
        done = call("train", mine, "train.steps=6", "--resume", "--accept-changes", drawn=name == "curves.png")
        assert "Traceback" not in done.stderr and done.returncode in (0, 2), (name, done.stderr)
        assert victim.read_text() == "precious", name
        assert target == victim or contents(target) == before, name
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    done = call("train", recipe, "--out", tmp_path / "link")
    assert done.returncode == 2 and "is a link" in done.stderr and not list((tmp_path / "elsewhere").iterdir())


@pytest.mark.parametrize("name", ["/abs/victim", "../../escaped", "..", "a/b", "", "tab\\there", "x" * 200])
def test_a_name_is_never_a_path(name: str, run: RunFolder, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(RECIPE.format(name=name, data=run.path.parent / "train.tsv"))
    done = call("train", path, cwd=tmp_path)
    assert done.returncode == 2 and "is a name" in done.stderr, done.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["mine.toml"]


@pytest.mark.parametrize("name", ["data/a\0b", "../a", "/etc/passwd"])
def test_what_a_run_lists_is_a_file_inside_it(name: str, run: RunFolder, tmp_path: Path) -> None:
    """A sentence, by the doctor too. Broken variant: a zero byte reaches the system, which is a defect."""
    shutil.copytree(run.path, tmp_path / "run")
    facts = json.loads((tmp_path / "run" / "run.json").read_bytes())
    facts["files"][name] = {"size": 1, "sha256": "0" * 64}
    (tmp_path / "run" / "run.json").write_bytes(to_json(facts | {"seal": seal_of(facts)}))
    done = call("doctor", tmp_path / "run", cwd=tmp_path)
    assert done.returncode in (1, 2) and "no file inside the run" in done.stdout + done.stderr, done


def test_a_run_that_cannot_start_leaves_no_folders_above_it(recipe: Path, tmp_path: Path) -> None:
    """Unless they were there. Broken variants: `runs` is left behind, empty; an empty folder of somebody else's goes with it."""
    (tmp_path / "theirs").mkdir()
    for out in ("new/deep/run", "theirs/run"):
        done = call("train", recipe, "data.train=missing.tsv", "--out", tmp_path / out)
        assert done.returncode == 2, done.stderr
    assert sorted(p.name for p in tmp_path.iterdir()) == ["mine.toml", "theirs"]


def test_a_run_may_be_made_in_an_empty_folder_and_a_failure_leaves_it_empty(recipe: Path, tmp_path: Path) -> None:
    """As a mounted disk is: it cannot be renamed into place, and it stays where it is."""
    (tmp_path / "empty").mkdir()
    before = owned.identity(tmp_path / "empty")
    done = call("train", recipe, "data.train=missing.tsv", "--out", tmp_path / "empty")
    assert done.returncode == 2 and not list(tmp_path.glob("empty/*"))
    assert owned.identity(tmp_path / "empty") == before, "it is still there, and the same one"
    done = call("train", recipe, "--out", ".", cwd=tmp_path / "empty", drawn=False)
    assert done.returncode == 0, done.stderr
    assert RunFolder(tmp_path / "empty").finished() == 4 and owned.identity(tmp_path / "empty") == before


def test_only_listed_files_are_replaced(tmp_path: Path) -> None:
    """The list of a folder that a command comes back to; a list that was tampered with lists nothing."""
    files = owned.OwnedFiles(tmp_path)
    (path,) = files.claim("report.json")
    path.write_text("ours")
    assert files.claim("report.json") == [path]
    (tmp_path / "notes.md").write_text("theirs")
    with pytest.raises(owned.UserError, match="was not written by this command"):
        files.claim("notes.md")
    (tmp_path / owned.LIST).write_text(json.dumps({"notes.md": 1}))
    with pytest.raises(owned.UserError, match="was not written by this command"):
        files.claim("report.json")


def test_a_folder_appears_whole_or_not_at_all(tmp_path: Path) -> None:

    def fail() -> None:
        with owned.new_folder(tmp_path / "new", "a run") as draft:
            (draft / "half").write_text("half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert list(tmp_path.iterdir()) == []
    with owned.new_folder(tmp_path / "new", "a run") as draft:
        (draft / "whole").write_text("whole")
        assert not (tmp_path / "new").exists()
    assert contents(tmp_path) == {"new/whole": b"whole"}


@pytest.mark.parametrize("command", ["study residuals --quick", "sweep copy --vary model.n_head=1,2", "reproduce copy"])
def test_one_study_at_a_time_works_in_a_folder(command: str, tmp_path: Path) -> None:
    """The second is refused in a sentence, and a kill frees the folder. Broken: both train, and one's files are the other's."""
    place = tmp_path / "quick" if command.startswith("study") else tmp_path
    ready, go = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        with owned.OwnedFiles(place).exclusive_lock("study"):
            os.write(ready[1], b"1")
            os.read(go[0], 1)
        os._exit(1)
    assert os.read(ready[0], 1) == b"1"
    try:
        done = call(*command.split(), "--out", tmp_path)
        assert done.returncode == 2 and f"is at work in {place}; wait for it" in done.stderr, done.stderr
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    with owned.OwnedFiles(place).exclusive_lock("study"):
        pass


def killed_while_staging(place: Path) -> None:
    """A process of its own, which is killed when half of what it makes is there."""
    child = os.fork()
    if child == 0:
        with owned.new_folder(place, "an export") as draft:
            (draft / "model.safetensors").write_bytes(bytes(5000))
            os.kill(os.getpid(), signal.SIGKILL)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL


def test_what_a_killed_export_left_is_removed_by_the_next_one(tmp_path: Path) -> None:
    """A whole copy of the model would lie there for good. What a living process makes, and what only has such a name, stays."""
    killed_while_staging(tmp_path / "run-hf")
    (left,) = owned.abandoned(tmp_path)
    theirs = tmp_path / ".making-run-hf-notes"
    theirs.mkdir()
    (theirs / "notes.md").write_text("somebody's")
    (tmp_path / ".making-link").symlink_to(left)
    with owned.new_folder(tmp_path / "run-ct2", "an export") as draft:
        assert not left.exists()
        with owned.new_folder(tmp_path / "run-onnx", "an export") as other:
            (other / "model.onnx").write_text("whole")
        (draft / "model.bin").write_text("whole")
    (tmp_path / ".making-link").unlink()
    expected = {".making-run-hf-notes/notes.md": b"somebody's", "run-ct2/model.bin": b"whole"}
    assert contents(tmp_path) == expected | {"run-onnx/model.onnx": b"whole"}
    assert stat.S_IMODE((tmp_path / "run-ct2").stat().st_mode) == stat.S_IMODE(theirs.stat().st_mode)


def test_the_doctor_names_what_was_left_and_prunes_it(run: RunFolder, tmp_path: Path) -> None:
    """Without --prune nothing is changed; with it only what glassformer left, and a checkpoint behind a link stays whole."""
    mine = tmp_path / "runs" / "mine"
    shutil.copytree(run.path, mine)
    aside = staging.move_aside(mine)
    shutil.copytree(run.path, mine)
    shutil.copytree(mine / "checkpoints" / "step-00000002", tmp_path / "disk")
    (mine / "checkpoints" / ".trash-step-00000002").symlink_to(tmp_path / "disk")
    shutil.copytree(tmp_path / "disk", mine / "checkpoints" / "damaged-step-00000003")
    (mine / "notes.md").write_text("mine")
    before = contents(tmp_path)
    found = {f.name: f for f in examine(mine).findings if f.condition == "note"}
    names = {f"../{aside.name}", "checkpoints/.trash-step-00000002", "checkpoints/damaged-step-00000003"}
    assert found.keys() == names
    assert contents(tmp_path) == before
    done = call("doctor", mine, "--prune", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert {Path(n).name for n in names} == {one["name"] for one in told["pruned"]}
    assert [f for f in told["findings"] if f["condition"] == "note"] == []
    gone = {name for name in before if Path(name).parts[:2] != ("runs", "mine") and Path(name).parts[0] != "disk"}
    gone |= {name for name in before if "damaged-" in name or ".trash-" in name}
    assert contents(tmp_path) == {name: content for name, content in before.items() if name not in gone}
    assert run_doctor.prune(mine) == []
