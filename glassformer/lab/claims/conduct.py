"""Carrying a study out: trials that are missing are run (several at once where they are not timed), each is kept as soon as
it is done, and at the end tables, figure and verdict are written beside them."""

from __future__ import annotations

import json
import multiprocessing
import os
import platform
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from glassformer import machine, plots
from glassformer.config import VERSION
from glassformer.errors import UserError
from glassformer.files import structured
from glassformer.files.durable import to_json, write_atomically
from glassformer.files.owned import OwnedFiles
from glassformer.lab.claims.study import Effort, Measured, Results, Settings, Study, StudyResult
from glassformer.screen import Progress

KEPT = "trials.jsonl"


@dataclass(frozen=True)
class StudyReport:
    """A study that was carried out."""

    study: Study
    effort: Effort
    finding: StudyResult
    facts: dict[str, Any]
    folder: Path

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "name": self.study.name,
            "claim": self.study.claim._asdict(),
            "said_by": self.study.said_by,
            "verdict": self.finding.verdict,
            "conditions": [asdict(condition) for condition in self.finding.conditions],
            "tables": [asdict(table) for table in self.finding.tables],
            "notes": [note._asdict() for note in self.finding.notes],
            **self.facts,
        }


def key_of(study: Study, effort: Effort, settings: Settings) -> str:
    """What a kept trial is found again by."""
    return json.dumps([study.name, study.version, effort.name, settings], sort_keys=True)


@dataclass(frozen=True)
class Kept:
    """A trial that was done: what it found, and on which machine."""

    measured: Measured
    machine: str


def read_kept(path: Path) -> dict[str, Kept]:
    """Trials that were done before; a torn last line is one that was not."""
    found: dict[str, Kept] = {}
    if not path.is_file() or path.is_symlink():
        return found
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            record = json.loads(line)
            found[record["key"]] = Kept(record["measured"], record["machine"])
        except (ValueError, TypeError, KeyError):
            continue
    return found


def run_trial(trial: Callable[..., Measured], settings: Settings, effort: Effort, threads: int | None) -> Measured:
    """One trial, in whatever process this is; what it cost is told in seconds of a processor, so that it is the same beside
    other work."""
    if threads is not None:
        torch.set_num_threads(threads)
    began = time.process_time()
    torch.manual_seed(int(settings.get("seed", 0)))
    found = trial(effort, **settings)
    return {**found, "seconds": time.process_time() - began}


def one_by_one(study: Study, effort: Effort, missing: Sequence[Settings]) -> Iterator[tuple[Settings, Measured]]:
    """With the whole machine to each."""
    for settings in missing:
        yield settings, run_trial(study.trial, settings, effort, None)


def leave_with_parent() -> None:
    """In a worker: ends when the process that started it is gone, however that went; Ctrl-C is for the other to deal with."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def wait_for_it() -> None:
        parent.join()
        os._exit(1)

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=wait_for_it, daemon=True).start()


def side_by_side(
    study: Study, effort: Effort, missing: Sequence[Settings], jobs: int
) -> Iterator[tuple[Settings, Measured]]:
    """So many at once, a thread each; whichever is done first comes first."""
    threads = max(1, machine.cores() // jobs)
    pool = ProcessPoolExecutor(min(jobs, len(missing)), multiprocessing.get_context("spawn"), leave_with_parent)
    try:
        waiting: dict[Future[Measured], Settings] = {
            pool.submit(run_trial, study.trial, settings, effort, threads): settings for settings in missing
        }
        while waiting:
            done, _ = wait(waiting, return_when=FIRST_COMPLETED)
            for future in done:
                yield waiting.pop(future), future.result()
    finally:
        workers = list((pool._processes or {}).values())  # a pool that is shut down no longer knows them
        pool.shutdown(wait=False, cancel_futures=True)
        for worker in workers:
            worker.terminate()


def trials_of(study: Study, effort: Effort, folder: Path, jobs: int) -> tuple[Results, str]:
    """All trials of a study at an effort, those that are kept from an earlier time included, and where they were done."""
    planned = study.plan(effort)
    path = OwnedFiles(folder).claim(KEPT)[0]
    kept = read_kept(path)
    missing = [settings for settings in planned if key_of(study, effort, settings) not in kept]
    if missing:
        with path.open("a", encoding="utf-8") as file, Progress(study.name, len(planned), after=0) as progress:
            progress.update(len(planned) - len(missing), f"{len(missing)} trials", line=True)
            file.write("\n" if file.tell() else "")  # the last line may have been torn
            few = study.alone or jobs == 1 or len(missing) == 1
            rest = one_by_one(study, effort, missing) if few else side_by_side(study, effort, missing, jobs)
            for settings, measured in rest:
                key = key_of(study, effort, settings)
                kept[key] = Kept(measured, where())
                file.write(json.dumps({"key": key, **asdict(kept[key])}) + "\n")
                file.flush()
                told = ", ".join(f"{name}={value}" for name, value in settings.items())
                progress.update(sum(key_of(study, effort, one) in kept for one in planned), told)
    done = [(settings, kept[key_of(study, effort, settings)]) for settings in planned]
    machines = sorted({trial.machine for _, trial in done})
    return Results(tuple((settings, trial.measured) for settings, trial in done)), " and ".join(machines)


def read_verdict(folder: Path, name: str) -> str:
    """The verdict that an earlier time left there; empty where there is none."""
    path = folder / f"{name}.json"
    try:
        found = structured.read(path, dict[str, Any]) if path.is_file() else {}
    except (OSError, UserError):
        return ""
    return str(found.get("verdict", ""))


def measured() -> dict[str, dict[str, str]]:
    """The verdicts that come with the package, at the default effort: by study, with date and machine."""
    path = Path(__file__).with_name("measured.json")
    return structured.read(path, dict[str, dict[str, str]]) if path.is_file() else {}


def where() -> str:
    """What this was measured on, in words: trials run on the processor, whatever else there is."""
    return f"{machine.cores()} cores, {platform.machine()} {machine.cpu_name()}"


def conduct(study: Study, effort: Effort, out: Path, *, jobs: int | None = None) -> StudyReport:
    """Carries a study out and leaves in `out`: trials.jsonl, NAME.json, NAME.md, NAME.png, NAME.svg."""
    if jobs is not None and jobs < 1:
        raise UserError(f"--jobs must be at least 1, not {jobs}")
    out.mkdir(parents=True, exist_ok=True)
    with OwnedFiles(out).exclusive_lock("study"):
        return conduct_locked(study, effort, out, jobs or machine.cores())


def conduct_locked(study: Study, effort: Effort, out: Path, jobs: int) -> StudyReport:
    """The same, in a folder where nobody else is at work."""
    began = time.perf_counter()
    results, machines = trials_of(study, effort, out, jobs)
    facts = {
        "effort": effort.name,
        "seeds": effort.seeds,
        "trials": len(results.trials),
        "trial_seconds": round(sum(found["seconds"] for _, found in results.trials), 1),
        "seconds": round(time.perf_counter() - began, 1),
        "command": f"glassformer study {study.name}" + ("" if effort.name == "default" else f" --{effort.name}"),
        "machine": machines,
        "torch": torch.__version__,
        "glassformer": VERSION,
        "date": datetime.now(UTC).date().isoformat(),
    }
    report = StudyReport(study, effort, study.judge(results), facts, out)
    names = OwnedFiles(out).claim(f"{study.name}.json", f"{study.name}.md", f"{study.name}.png", f"{study.name}.svg")
    write_atomically(names[0], to_json(report.to_dict()))
    write_atomically(names[1], markdown(report).encode())
    plots.save(study.draw(results), out / study.name)
    return report


def markdown(report: StudyReport, language: str = "en") -> str:
    """A report as a page."""
    lines = [f"# {report.study.name}", "", f"> {report.study.claim.in_language(language)}", ""]
    lines += [f"**{report.finding.verdict}** ({report.study.said_by})", ""]
    for condition in report.finding.conditions:
        lines.append(f"- {condition.outcome}: {condition.text.in_language(language)} ({condition.detail})")
    for table in report.finding.tables:
        lines += ["", f"### {table.title}", "", "| " + " | ".join(table.columns) + " |"]
        lines.append("|" + " --- |" * len(table.columns))
        lines += ["| " + " | ".join(row) + " |" for row in table.rows]
    lines += [""] + [note.in_language(language) for note in report.finding.notes]
    facts = report.facts
    cost = f"{facts['trials']} trials, {facts['trial_seconds']:.0f} s of computing"
    lines += ["", f"`{facts['command']}`, {cost} on {facts['machine']}, {facts['date']}."]
    return "\n".join(lines) + "\n"
