"""A look at a run's folder: what is in it, what is damaged, and from where it can go on; and what was left behind in it and
beside it. Nothing is changed, unless what was left behind is to be pruned.

Every byte that has a checksum is read, so the look takes as long as reading the run once.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any, Literal

from glassformer.errors import UserError
from glassformer.files import owned
from glassformer.language import _
from glassformer.models.weights import check_finite, check_fits
from glassformer.runs import leftovers
from glassformer.runs.checkpoint import read_checkpoint
from glassformer.runs.corrections import correction_problems
from glassformer.runs.folder import RunFolder
from glassformer.runs.leftovers import Leftover, Pruned, size_of
from glassformer.runs.staging import sibling_path

Condition = Literal["good", "note", "damaged"]
MARKS = {
    (False, False): _("whole"),
    (True, False): _("whole, the best"),
    (False, True): _("whole, the latest"),
    (True, True): _("whole, the best, the latest"),
}
"""What is said of a checkpoint that is whole: is it the best, is it the latest?"""
LOOKS = 10  # at a run that is being trained, before what seems wrong is called so


@dataclass(frozen=True)
class RunFinding:
    """One thing in the folder, and how it is."""

    name: str
    condition: Condition
    about: str
    size: int = 0


def whole_or_not(name: str, wrong: str | None, path: Path, about: str | None = None) -> RunFinding:
    """Good or damaged, by what is wrong with it; `about`: what is said where nothing is."""
    return RunFinding(name, "good" if wrong is None else "damaged", wrong or about or _("whole"), size_of(path))


@dataclass(frozen=True)
class Diagnosis:
    """What was found in a run folder, and what --resume would do with it."""

    findings: list[RunFinding]
    outlook: str  # what --resume would do

    @property
    def damaged(self) -> bool:
        """Whether anything in it is."""
        return any(f.condition == "damaged" for f in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return {"damaged": self.damaged, "findings": [vars(f) for f in self.findings], "outlook": self.outlook}


def look_at_recipe(run: RunFolder) -> RunFinding:
    """Whether run.json can be read and is as it was written."""
    path = run.path / "run.json"
    try:
        recipe, sealed = run.recipe, run.sealed
    except UserError as error:
        return RunFinding("run.json", "damaged", str(error), size_of(path))
    version = run.facts.get("glassformer", "unknown")
    what = recipe.name, recipe.model.family, recipe.train.steps, version
    about = _("{recipe}: {family}, {steps:,} steps, glassformer {version}", *what)
    wrong = None if sealed else _("{about}; it has been changed since it was written", about)
    return whole_or_not("run.json", wrong, path, about)


def look_at_files(run: RunFolder) -> list[RunFinding]:
    """Whether the prepared data is as it was written."""
    if not run.prepared:
        return [RunFinding("data", "note", _("the preparation has not been finished"))]
    problems = run.file_problems().items()
    return [whole_or_not(n, None if wrong is None else _("it {wrong}", wrong), run.path / n) for n, wrong in problems]


def look_at_checkpoints(run: RunFolder, problems: dict[int, str | None]) -> list[RunFinding]:
    """Whether each checkpoint is whole, and which is the best and the latest."""
    latest = max((step for step, wrong in problems.items() if wrong is None), default=None)
    best = run.checkpoints.state(latest).get("best_step") if latest is not None else None
    findings = []
    for step, wrong in problems.items():
        path = run.checkpoints.path(step)
        findings.append(whole_or_not(f"checkpoints/{path.name}", wrong, path, MARKS[step == best, step == latest]))
    if best is not None and best not in problems:
        name = f"checkpoints/{run.checkpoints.path(best).name}"
        findings.append(RunFinding(name, "damaged", _("the best one is missing")))
    return findings


def look_at_weights(run: RunFolder) -> list[RunFinding]:
    """Whether snapshots and kept weights are whole."""
    findings = []
    for name, kept in {"snapshots": run.snapshots, "history": run.history}.items():
        for step, wrong in kept.problems().items():
            findings.append(whole_or_not(f"{name}/{kept.path(step).name}", wrong, kept.path(step)))
    if run.final.is_dir():
        findings.append(whole_or_not("final", run.final_problem(), run.final))
    return findings


def look_at_metrics(run: RunFolder) -> list[RunFinding]:
    """How many lines the log has, and whether any is broken."""
    if not run.metrics_file.exists():
        return []
    lines, broken, last = 0, 0, 0
    try:
        if not run.metrics_file.is_file():
            return [RunFinding("metrics.jsonl", "damaged", _("it is not a regular file"))]
        with run.metrics_file.open(encoding="utf-8", errors="replace") as file:
            for line in file:
                lines += 1
                try:
                    last = int(json.loads(line)["step"])
                except (ValueError, KeyError, TypeError, RecursionError, OverflowError):
                    broken += 1
    except OSError as error:
        return [RunFinding("metrics.jsonl", "damaged", _("it cannot be read: {reason}", error.strerror))]
    wrong = _("{broken:,} of {lines:,} lines cannot be read", broken, lines) if broken else None
    about = _("{lines:,} lines, to step {last:,}", lines, last)
    return [whole_or_not("metrics.jsonl", wrong, run.metrics_file, about)]


def look_at_corrections(run: RunFolder) -> list[RunFinding]:
    """Whether the corrections that were taught while the run was served can be read, and their updates are what was learned."""
    problems = correction_problems(run.path)
    return [whole_or_not(n, None if wrong is None else _("it {wrong}", wrong), run.path / n) for n, wrong in problems]


def is_busy(run: RunFolder) -> bool:
    """Whether a training holds the run's lock."""
    return owned.is_locked(run.path / ".lock") is True


def readable(run: RunFolder) -> bool:
    """Whether its recipe can be read."""
    try:
        return bool(run.recipe)
    except UserError:
        return False


def outlook(run: RunFolder, problems: dict[int, str | None], busy: bool) -> str:
    """What --resume would do with it, by the rules of runs.resume."""
    command = f"glassformer train {quote(str(run.path))} --resume"
    if busy:
        return _("a process is training it now")
    if not readable(run):
        return _("it cannot be resumed: run.json cannot be read")
    steps = run.recipe.train.steps
    if any(wrong is not None for wrong in run.file_problems().values()):
        return _("it cannot be resumed: what the preparation left is damaged; bring it back from a copy, or train anew")
    if not run.prepared:
        return _("{command} prepares the data again and starts at the beginning", command)
    if (ended := run.finished()) is not None and ended >= max(problems, default=0):
        return _("it has been trained to its end, step {ended:,}", ended)
    if not problems:
        return _("{command} starts at the beginning: nothing has been saved yet", command)
    good = [step for step, wrong in problems.items() if wrong is None]
    if not good:
        return _("it cannot be resumed: not one checkpoint is whole")
    message = _("{command} goes on from step {step:,} of {steps:,}", command, max(good), steps)
    if run.sealed:
        return message
    return _("{outlook}, once the change in run.json is confirmed by --accept-changes", message)


def look_at_model(run: RunFolder) -> list[RunFinding]:
    """Whether what is whole also belongs together: tokenizers and labels of the model's sizes, weights that are numbers."""
    findings = []
    with suppress(UserError):
        if run.prepared and not any(run.file_problems().values()):
            try:
                _unused = run.tokenizers
            except UserError as error:
                findings.append(RunFinding("tokenizers", "damaged", str(error)))
    if run.final.is_dir() and run.final_problem() is None:
        try:
            weights = read_checkpoint(run.final)[0].get("model", {})
            check_finite(weights, run.final)
            check_fits(run.recipe, weights, run.final)
        except UserError as error:
            findings.append(RunFinding("final", "damaged", str(error)))
    return findings


def left_by(run: RunFolder) -> list[Leftover]:
    """What commands that were killed left in a run (unless it is being trained) and beside it."""
    inner = [] if is_busy(run) else [*leftovers.in_run(run), *leftovers.in_folder(run.path)]
    return [*inner, *leftovers.in_folder(Path(os.path.abspath(run.path)).parent, run.path)]


def examine_folder(path: Path) -> Diagnosis:
    """What was left behind in a folder that is no run itself, but holds some, or had something left in it."""
    leftover = list(leftovers.in_folder(path))
    if not leftover and not any(RunFolder.is_run(one) for one in path.iterdir()):
        raise UserError("{path} is not a run: it has no run.json", path)
    findings = [RunFinding(left.path.name, "note", left.about, size_of(left.path)) for left in leftover]
    message = (
        _("glassformer doctor {folder} --prune clears away what was left", quote(str(path)))
        if leftover
        else _("nothing was left behind")
    )
    return Diagnosis(findings, message)


def prune(path: Path) -> list[Pruned]:
    """Clears away what commands that were killed have left in a run and beside it, or in a folder of runs."""
    if not path.is_dir():
        raise UserError("there is no folder {path}", path)
    run = RunFolder(path)
    if not run.is_run(path):
        return leftovers.prune(list(leftovers.in_folder(path)))
    if is_busy(run):
        raise UserError("another process is training in {path}; let it end, or stop it first", path)
    return leftovers.prune(left_by(run))


def look(run: RunFolder, busy: bool) -> Diagnosis:
    """A diagnosis of the whole folder, which is left as it is."""
    findings = [look_at_recipe(run)]
    problems = run.checkpoints.problems()
    if readable(run):
        findings += look_at_files(run)
    findings += look_at_checkpoints(run, problems) + look_at_weights(run) + look_at_metrics(run)
    findings += look_at_corrections(run)
    if readable(run):
        findings += look_at_model(run)
    for left in left_by(run):
        findings.append(RunFinding(os.path.relpath(left.path, run.path), "note", left.about, size_of(left.path)))
    return Diagnosis(findings, outlook(run, problems, busy))


def examine(path: Path) -> Diagnosis:
    """Beside a training that goes on, a checkpoint may be replaced while it is read: what is wrong counts only if it is so
    in one look after another."""
    if not path.is_dir():
        if RunFolder.is_run(draft := sibling_path(path, "making")):
            about = _("the preparation has not been finished; it is in {folder}", draft.name)
            command = f"glassformer train {quote(str(path))} --resume"
            outlook = _("{command} prepares the data again and starts at the beginning", command)
            return Diagnosis([RunFinding("data", "note", about, size_of(draft))], outlook)
        raise UserError("there is no folder {path}", path)
    run = RunFolder(path)
    if not run.is_run(path) and not (path / "checkpoints").is_dir():
        return examine_folder(path)
    busy = is_busy(run)
    for _unused in range(LOOKS if busy else 0):
        with suppress(OSError, UserError):  # a checkpoint went away between its name and its files
            diagnosis = look(RunFolder(path), busy)
            if not diagnosis.damaged:
                return diagnosis
        time.sleep(0.2)
    return look(RunFolder(path), busy)
