"""Everything a command can be given, spoiled by its structure: the files of a run, the settings, the options of the verbs, the
data. Whatever it is, the command ends with an exit code of its own and at most a sentence; it takes no more than ten seconds
and a gigabyte; nothing outside its folder is touched; and an answer that is given without a word is the right one."""

from __future__ import annotations

import json
import random
import shutil
import typing
from pathlib import Path
from typing import Any

import pytest

from glassformer.config.recipe import PARTS
from tests.counts import count
from tests.fuzz import mutations, worker
from tests.small_runs import small_run
from tests.test_isolation import RECIPE

pytestmark = pytest.mark.slow
CASES = count(fast=300, soak=5000)
EXTREMES = [
    *("-1", "0", "1", "1000000000", "1000000000000", "9" * 400, "1e400", "-1e9", "1e-30", "0.5", "nan", "inf"),
    *(
        "",
        "none",
        "true",
        "x",
        "[]",
        "[[1]]",
        "1,1",
        "-1,2",
        "{}",
        "\u00fc\u4e2d\U0001f600",
        "[/b]",
        "../../etc",
        "x" * 3000,
    ),
]
LEGITIMATE = {  # large values of these ask for long work that somebody may want
    "train.steps",
    "data.size",
}
VERBS: dict[str, list[Any]] = {
    "pairs": ["translate", "RUN", "eins zwei drei"],
    "text": ["generate", "RUN", "--prompt", "eins zwei", "--set", "temperature=0"],
    "classify": ["classify", "RUN", "eins zwei drei"],
}
OPTIONS = {
    "translate": [
        *("--beam", "--n-best", "--temperature", "--top-k", "--top-p", "--min-p", "--num-samples", "--seed"),
        *(
            "--max-new-tokens",
            "--batch-size",
            "--engine",
            "--device",
            "--step",
            "--prefix",
            "--term",
            "--ban",
            "--stop",
        ),
    ],
    "evaluate": ["--split", "--limit", "--device", "--step"],
    "look": ["--device", "--step"],
    "doctor": [],
    "info": [],
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of three families, and their undisturbed answers."""
    folder = tmp_path_factory.mktemp("fuzz")
    for kind in VERBS:
        small_run(folder / kind, kind, steps=4, validate_every=2, save_every=2, validate_examples=2)
    return folder


@pytest.fixture(scope="module")
def answers(home: Path) -> dict[str, str]:
    found = {}
    for kind, command in VERBS.items():
        done = worker.run([home / kind / "run" if word == "RUN" else word for word in command], home / kind)
        assert done.code == 0 and done.out.strip(), done
        found[kind] = done.out
    return found


class Case:
    """One thing spoiled, and the commands that meet it."""

    def __init__(self, number: int, home: Path, folder: Path) -> None:
        self.draw = random.Random(number)
        self.home, self.folder = home, folder
        self.kind = self.draw.choice(list(VERBS))
        self.told = ""
        self.answer_counts = False  # whether an answer without a word must be the right one

    def run_copy(self) -> Path:
        shutil.copytree(self.home / self.kind / "run", self.folder / "run")
        return self.folder / "run"

    def verb(self, run: Path) -> list[Any]:
        own = [run if word == "RUN" else word for word in VERBS[self.kind]]
        resume = ["train", run, "train.steps=5", "--resume", "--accept-changes"]
        return self.draw.choice([own, own, ["doctor", run], resume, ["evaluate", run, "--limit", "2"], ["info", run]])

    def spoiled_field(self) -> list[Any]:
        """A field of a JSON file of the run; with or without seals that say it was written so."""
        run = self.run_copy()
        path = self.draw.choice(sorted(p for p in run.rglob("*.json") if p.is_file()))
        value, what = mutations.spoil_field(json.loads(path.read_bytes()), self.draw)
        path.write_bytes(json.dumps(value).encode("utf-8", "surrogatepass"))
        sealed = self.draw.random() < 0.5
        if sealed:
            mutations.make_right(run, path)
        self.told = f"{path.relative_to(run)}: {what}{' (sealed again)' if sealed else ''}"
        self.answer_counts = not sealed
        return self.verb(run)

    def spoiled_bytes(self) -> list[Any]:
        run = self.run_copy()
        path = self.draw.choice(sorted(p for p in run.rglob("*") if p.is_file()))
        self.told = f"{path.relative_to(run)}: {mutations.spoil_bytes(path, self.draw)}"
        self.answer_counts = True
        return self.verb(run)

    def stray_file(self) -> list[Any]:
        """What other programs leave, and what somebody copied to the wrong place."""
        run = self.run_copy()
        names = ["._model.safetensors", "training.safetensors", "model2.safetensors", "state.json~", ".DS_Store"]
        where = self.draw.choice([run / "final", run, run / "data", *run.glob("checkpoints/*")])
        path = where / self.draw.choice(names)
        path.write_bytes(self.draw.randbytes(100))
        self.told, self.answer_counts = f"{path.relative_to(run)} is there", True
        return self.verb(run)

    def extreme_setting(self) -> list[Any]:
        part = self.draw.choice(list(PARTS))
        name = self.draw.choice(list(typing.get_type_hints(PARTS[part])))
        value = self.draw.choice(EXTREMES[:3] if f"{part}.{name}" in LEGITIMATE else EXTREMES)
        recipe = self.folder / "mine.toml"
        recipe.write_text(RECIPE.format(name="mine", data=self.home / "pairs" / "train.tsv"))
        self.told = f"{part}.{name}={value[:60]}"
        steps = [] if name == "steps" else ["train.steps=1"]
        return ["train", recipe, *steps, f"{part}.{name}={value}", "--out", self.folder / "new"]

    def extreme_option(self) -> list[Any]:
        verb = self.draw.choice(["translate", "translate", "translate", "evaluate", "look"])
        self.kind = "pairs"
        options = OPTIONS[verb]
        if verb == "translate" and self.draw.random() < 0.5:
            name = self.draw.choice(list(typing.get_type_hints(PARTS["decode"])))
            words = ["--set", f"{name}={self.draw.choice(EXTREMES)}"]
        else:
            words = [self.draw.choice(options), self.draw.choice(EXTREMES)]
        self.told = f"{verb} {words[0]} {words[1][:60]}"
        text = ["eins zwei"] if verb != "evaluate" else ["--limit", "2"]
        return [verb, self.home / "pairs" / "run", *text, *words]

    def hostile_data(self) -> list[Any]:
        path, self.told = mutations.hostile_data(self.folder, self.draw)
        recipe = self.folder / "mine.toml"
        recipe.write_text(RECIPE.format(name="mine", data=path))
        train = ["train", recipe, "train.steps=1", "--out", self.folder / "new"]
        return self.draw.choice([train, ["data", "check", path, "--no-picture"]])

    def command(self) -> list[Any]:
        kinds = [self.spoiled_field, self.spoiled_field, self.spoiled_bytes, self.spoiled_bytes, self.stray_file]
        kinds += [self.extreme_setting, self.extreme_setting, self.extreme_option, self.hostile_data]
        return self.draw.choice(kinds)()


def fingerprint(folder: Path) -> dict[str, tuple[int, int]]:
    """What would show that a file was written: size and time of each."""
    return {p.as_posix(): (p.stat().st_size, p.stat().st_mtime_ns) for p in folder.rglob("*") if p.is_file()}


def try_case(number: int, home: Path, answers: dict[str, str], folder: Path) -> str | None:
    """What is wrong with how a case ended; None if all is well."""
    folder.mkdir()
    case = Case(number, home, folder)
    command = case.command()
    done = worker.run(command, folder)
    wrong = done.complaint()
    own = [folder / "run" if word == "RUN" else word for word in VERBS[case.kind]]
    if wrong is None and case.answer_counts and command == own and done.code == 0 and not done.err.strip():
        wrong = None if done.out == answers[case.kind] else "another answer, without a word"
    if wrong is not None:
        return f"case {number}: {case.told}; {' '.join(map(str, command))[:300]}: {wrong}\n{done.err[-600:]}"
    return None


GROUPS = 10


@pytest.mark.parametrize("group", range(GROUPS))
def test_whatever_it_is_given(group: int, home: Path, answers: dict[str, str], tmp_path: Path) -> None:
    before = fingerprint(home)
    found = []
    for number in range(group, CASES, GROUPS):
        folder = tmp_path / str(number)
        if (wrong := try_case(number, home, answers, folder)) is not None:
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
