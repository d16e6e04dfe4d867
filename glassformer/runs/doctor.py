"""A look at a run's folder: what is in it, what is damaged, and from where it can go on; and what commands that were killed have
left behind in it, or beside it in its name. Nothing is changed, unless what was left behind is to be pruned (`doctor --prune`).

Every byte that has a checksum is read, so the look takes as long as reading the run once. What was left behind is not known by
its name alone: a run that was set aside says whose place it had, and what is half done lies in a run that nobody trains. What a
link leads to is never touched.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from shlex import quote
from typing import Any, Literal

from glassformer.errors import UserError
from glassformer.files import owned, structured
from glassformer.language import _
from glassformer.models.weights import check_finite, check_fits
from glassformer.runs import checkpoint, staging
from glassformer.runs.checkpoint import read_checkpoint
from glassformer.runs.corrections import correction_problems
from glassformer.runs.folder import RunFolder
from glassformer.runs.staging import sibling_path


def size_of(path: Path) -> int:
    """Bytes, of a file or of all in a folder; what goes away while it is looked at has none."""
    total = 0
    for folder, _unused, names in os.walk(path) if path.is_dir() else [(str(path.parent), [], [path.name])]:
        for name in names:
            with suppress(OSError):
                total += os.stat(os.path.join(folder, name)).st_size
    return total


Condition = Literal["good", "note", "damaged"]
MARKS = {
    (False, False): _("whole"),
    (True, False): _("whole, the best"),
    (False, True): _("whole, the latest"),
    (True, True): _("whole, the best, the latest"),
}
"""The words for a whole checkpoint, by whether it is the best and whether it is the latest."""
LOOKS = 10  # at a run that is being trained, before what seems wrong is called so


@dataclass(frozen=True)
class RunFinding:
    """One thing in the folder, and how it is."""

    name: str
    condition: Condition
    about: str
    size: int = 0


@dataclass(frozen=True)
class Leftover:
    """One thing that was left behind. `clear` removes it, or puts it back; None where that is for a person to decide."""

    path: Path
    about: str
    clear: Callable[[], object] | None

    def finding(self, name: str) -> RunFinding:
        """The doctor's note about it, under this name."""
        return RunFinding(name, "note", self.about, size_of(self.path))


def in_run(run: RunFolder) -> Iterator[Leftover]:
    """The leftovers in a run that nobody trains: checkpoints half written or half removed, and those that a resume set aside."""
    for path in run.leftovers():
        clear = path.unlink if path.suffix == ".part" else partial(checkpoint.recover, path.parent)
        yield Leftover(path, _("left half done by a crash; --resume or --prune clears it up"), clear)
    for path in run.checkpoints.moved_aside():
        yield Leftover(path, _("set aside by an earlier resume"), partial(checkpoint.empty_out, path))


def beside(out: Path) -> Iterator[Leftover]:
    """The leftovers beside a run: runs that it was to replace, each dropped where this one has weights, else put back; and a
    preparation that was broken off."""
    for path in staging.replaced(out):
        owner = staging.read_replaced(path)
        clear: Callable[[], object] | None = None
        about = _("the run that was in {said} before", out.name)
        if (owner is not None and owner.dropped) or (RunFolder.is_run(out) and RunFolder(out).has_weights):
            clear = partial(staging.drop_replaced, out)
        elif staging.to_put_back(out) == path and not owned.is_locked(out / ".lock"):
            clear = partial(staging.put_back, out)
            about = _(
                "the run that was in {said} before; the new one has no checkpoint yet, and --prune puts the old one back",
                out.name,
            )
        yield Leftover(path, about, clear)
    draft = sibling_path(out, "making")
    if RunFolder.is_run(draft) and not draft.is_symlink() and not owned.is_locked(draft / ".lock"):
        about = _("a preparation of {out} that was broken off", out.name)
        yield Leftover(draft, about, partial(staging.clear_draft, draft, out))


def finding(run: RunFolder, name: str, wrong: str | None, about: str | None = None) -> RunFinding:
    """A file or folder of a run, good or damaged by what is wrong with it; `about`: what is said where nothing is."""
    size = size_of(run.path / name)
    return RunFinding(name, "good" if wrong is None else "damaged", wrong or about or _("whole"), size)


@dataclass(frozen=True)
class Diagnosis:
    """The findings about a run folder, and what --resume would do with it."""

    findings: list[RunFinding]
    outlook: str  # what --resume would do

    @property
    def damaged(self) -> bool:
        """Whether anything in it is."""
        return any(f.condition == "damaged" for f in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """The diagnosis as a JSON-serialisable dict."""
        return {"damaged": self.damaged, "findings": [vars(f) for f in self.findings], "outlook": self.outlook}


def look_at_recipe(run: RunFolder) -> RunFinding:
    """Whether run.json can be read and is as it was written."""
    try:
        recipe, sealed = run.recipe, run.sealed
    except UserError as error:
        return finding(run, "run.json", str(error))
    version = run.facts.get("glassformer", "unknown")
    what = recipe.name, recipe.model.family, recipe.train.steps, version
    about = _("{recipe}: {family}, {steps:,} steps, glassformer {version}", *what)
    return finding(
        run, "run.json", None if sealed else _("{about}; it has been changed since it was written", about), about
    )


def look_at_files(run: RunFolder, problems: Iterable[tuple[str, str | None]]) -> Iterator[RunFinding]:
    """Whether files of a run, by their names and what is wrong with each, are as they were written."""
    for name, wrong in problems:
        yield finding(run, name, None if wrong is None else _("it {wrong}", wrong))


def look_at_checkpoints(run: RunFolder, problems: dict[int, str | None]) -> Iterator[RunFinding]:
    """Whether each checkpoint is whole, and which is the best and the latest."""
    latest = max((step for step, wrong in problems.items() if wrong is None), default=None)
    best = run.checkpoints.state(latest).get("best_step") if latest is not None else None
    for step, wrong in problems.items():
        yield finding(run, f"checkpoints/{run.checkpoints.path(step).name}", wrong, MARKS[step == best, step == latest])
    if best is not None and best not in problems:
        yield finding(run, f"checkpoints/{run.checkpoints.path(best).name}", _("the best one is missing"))


def look_at_weights(run: RunFolder) -> Iterator[RunFinding]:
    """Whether snapshots and kept weights are whole."""
    for name, kept in {"snapshots": run.snapshots, "history": run.history}.items():
        for step, wrong in kept.problems().items():
            yield finding(run, f"{name}/{kept.path(step).name}", wrong)
    if run.final.is_dir():
        yield finding(run, "final", run.final_problem())


def look_at_metrics(run: RunFolder) -> list[RunFinding]:
    """How many lines the log has, and whether any is broken."""
    if not run.metrics_file.exists():
        return []
    try:
        lines = structured.read_regular(run.metrics_file, 1 << 30).splitlines()
    except (OSError, UserError) as error:
        return [finding(run, "metrics.jsonl", _("it cannot be read: {reason}", error))]
    steps = []
    for line in lines:
        with suppress(ValueError, KeyError, TypeError, RecursionError, OverflowError):
            steps.append(int(json.loads(line)["step"]))
    broken = len(lines) - len(steps)
    wrong = _("{broken:,} of {lines:,} lines cannot be read", broken, len(lines)) if broken else None
    return [finding(run, "metrics.jsonl", wrong, _("{lines:,} lines, to step {last:,}", len(lines), max([0, *steps])))]


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
    """A sentence about what --resume would do, by the rules of runs.resume."""
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
            findings.append(finding(run, "final", str(error)))
    return findings


def left_by(run: RunFolder) -> list[Leftover]:
    """The leftovers of killed commands in a run (unless it is being trained) and beside it."""
    return [*([] if is_busy(run) else in_run(run)), *beside(Path(os.path.abspath(run.path)))]


def prune(path: Path) -> list[RunFinding]:
    """Clears away what commands that were killed have left in a run and beside it; beside its name, where it is gone."""
    run = RunFolder(path)
    if is_busy(run):
        raise UserError("another process is training in {path}; let it end, or stop it first", path)
    pruned = []
    for left in left_by(run):
        note = left.finding(left.path.name)
        if left.clear is not None and os.path.lexists(left.path):
            left.clear()
            if not os.path.lexists(left.path):
                pruned.append(note)
    return pruned


def look(run: RunFolder, busy: bool) -> Diagnosis:
    """A diagnosis of the whole folder, which is left as it is."""
    findings = [look_at_recipe(run)]
    problems = run.checkpoints.problems()
    if readable(run) and not run.prepared:
        findings.append(RunFinding("data", "note", _("the preparation has not been finished")))
    if readable(run):
        findings += look_at_files(run, run.file_problems().items())
    findings += [*look_at_checkpoints(run, problems), *look_at_weights(run), *look_at_metrics(run)]
    findings += look_at_files(run, correction_problems(run.path))
    if readable(run):
        findings += look_at_model(run)
    findings += [left.finding(os.path.relpath(left.path, run.path)) for left in left_by(run)]
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
        raise UserError("{path} is not a run: it has no run.json", path)
    busy = is_busy(run)
    for _unused in range(LOOKS if busy else 0):
        with suppress(OSError, UserError):  # a checkpoint went away between its name and its files
            diagnosis = look(RunFolder(path), busy)
            if not diagnosis.damaged:
                return diagnosis
        time.sleep(0.2)
    return look(RunFolder(path), busy)
