"""Running trials: those that are missing are run, several at once unless they are timed, and each is kept in a file as soon
as it is done; so an experiment that was broken off goes on with the ones that are missing."""

from __future__ import annotations

import itertools
import json
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch

from glassformer import machine
from glassformer.files.durable import append
from glassformer.files.owned import open_own
from glassformer.language import _
from glassformer.screen import Progress
from glassformer_lab.report import device_name, processor

R = TypeVar("R")
KEPT = "trials.jsonl"


@dataclass(frozen=True)
class Kept:
    """A trial that was done: what it found, and on which machine."""

    measured: dict[str, Any]
    machine: str


@dataclass(frozen=True)
class TrialCall:
    """A trial to be run, in this process or another: a function that can be imported, its arguments and the seed of all that is
    drawn."""

    function: Callable[..., dict[str, Any]]
    arguments: tuple[Any, ...]
    settings: dict[str, Any]
    device: str = "cpu"  # where tensors are made that name no other
    timed: bool = False  # so it runs by itself

    @property
    def machine(self) -> str:
        """The name of the machine it runs on."""
        return processor() if self.device == "cpu" else f"{device_name(torch.device(self.device))}, {processor()}"

    def __call__(self, threads: int | None = None) -> dict[str, Any]:
        """The trial's measurements, and its cost in processor seconds, which other work does not lengthen."""
        if threads is not None:
            torch.set_num_threads(threads)
        began = time.process_time()
        torch.manual_seed(int(self.settings.get("seed", 0)))
        # A device that is named is a mode which every operation passes through, and which torch.compile has to trace.
        with nullcontext() if self.device == "cpu" else torch.device(self.device):
            found = self.function(*self.arguments, **self.settings)
        return {**found, "seconds": time.process_time() - began}

    def __str__(self) -> str:
        return ", ".join(f"{name}={value}" for name, value in self.settings.items())


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


def leave_with_parent() -> None:
    """Makes a worker end with the process that started it, however that ends; Ctrl-C is left to that process."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def wait_for_it() -> None:
        parent.join()
        os._exit(1)

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=wait_for_it, daemon=True).start()


def side_by_side(calls: Mapping[str, Callable[[int], R]], jobs: int) -> Iterator[tuple[str, R]]:
    """Runs the calls in worker processes, each told its share of the machine's threads."""
    threads = max(1, machine.cores() // jobs)
    pool = ProcessPoolExecutor(min(jobs, len(calls)), multiprocessing.get_context("spawn"), leave_with_parent)
    try:
        futures = {pool.submit(call, threads): key for key, call in calls.items()}
        for future in as_completed(futures):
            yield futures[future], future.result()
    finally:
        workers = list((pool._processes or {}).values())  # a pool that is shut down no longer knows them
        pool.shutdown(wait=False, cancel_futures=True)
        for worker in workers:
            worker.terminate()


def run_trials(title: str, calls: Mapping[str, TrialCall], path: Path, jobs: int) -> dict[str, Kept]:
    """The results of all trials by key; those that `path` holds from an earlier time are not run again. Trials that are timed
    come last, one after the other."""
    kept = read_kept(path)
    missing = {key: call for key, call in calls.items() if key not in kept}
    if missing:
        with (
            os.fdopen(open_own(path, os.O_RDWR | os.O_APPEND)) as file,
            Progress(title, len(calls), after=0) as progress,
        ):
            progress.update(len(calls) - len(missing), _("{count} still to do", len(missing)), line=True)
            if path.stat().st_size and not path.read_bytes().endswith(b"\n"):
                append(file.fileno(), b"\n")  # the last line was torn by a kill
            together = {key: call for key, call in missing.items() if not call.timed} if jobs > 1 else {}
            rest = ((key, call()) for key, call in missing.items() if key not in together)
            for key, measured in itertools.chain(side_by_side(together, jobs) if together else (), rest):
                kept[key] = Kept(measured, missing[key].machine)
                append(file.fileno(), (json.dumps({"key": key, **asdict(kept[key])}) + "\n").encode())
                progress.update(sum(one in kept for one in calls), str(missing[key]))
    return {key: kept[key] for key in calls}
