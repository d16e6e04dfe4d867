"""Groups of lines answered by several processes (`--jobs N`) or by Ray's (`--ray`), each with the driver of decode/.

The groups are those of one process (lines.py), whoever is free answers the next, and the answers are written in order. The last
digits of a product depend on who is decoded together, so other groups would, once in a while, give another word; with these the
file is that of one process, to the byte. Its record (answer_file.py) is that of one process, too: what was broken off is gone on
with by any number of them. A group whose worker dies is given to a new one, a few times. The run must lie under the same path on
every machine of Ray's cluster.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any

from glassformer.cli.line_input import Line
from glassformer.cli.lines import Output, Replies, TextJob, check_counts
from glassformer.errors import ConfigError, UserError, install_hint
from glassformer.language import localized
from glassformer.screen import say, warn

MOST = 1024  # processes of one machine
TRIES = 3  # workers that a group is given to
AHEAD = 8  # groups a worker: no more are answered before the first of them is, so a kill loses no more


@dataclass
class GroupAnswer:
    """The answers to a group, and what is to be said of them; or why there are none."""

    outputs: list[tuple[Output, bool]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    refusal: str = ""


class Answerer:
    """In a worker: answers groups, by a job that is made for the first of them."""

    def __init__(self, make_job: Callable[[], TextJob], run: str) -> None:
        self.make_job, self.run = make_job, run
        self.job: TextJob | None = None

    def answer(self, group: list[Line]) -> GroupAnswer:
        """As one process answers the group, but what it says is kept for the process that asked. What a person must put right is
        an answer, too, since every other worker would say the same."""
        answer = GroupAnswer()
        try:
            if self.job is None:
                self.job = self.make_job()
            if self.job.run != self.run:
                raise UserError(
                    "the run's weights have changed since the command began; say which you want by --step and a new --out"
                )
            unknown = self.job.unknown
            unknown.told, unknown.say = False, lambda text: answer.notes.append(localized(text))
            answer.outputs = list(replace(self.job, warn=answer.problems.append).reply(group))
        except UserError as error:
            answer.refusal = localized(str(error))
        return answer


WORKER: list[Answerer] = []


def start(answerer: Answerer, threads: int, gpu: str | None) -> None:
    """In a worker process that begins: its number of threads, and its GPU. It ends with the process that started it, however that
    ends, and leaves Ctrl-C to it."""
    import torch

    parent = multiprocessing.parent_process()
    assert parent is not None

    def follow() -> None:
        parent.join()
        os._exit(1)

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=follow, daemon=True).start()
    torch.set_num_threads(threads)
    if gpu is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu
    WORKER[:] = [answerer]


def answer_group(group: list[Line]) -> GroupAnswer:
    """In a worker process: the answers to a group."""
    return WORKER[0].answer(group)


class LocalWorkers:
    """Processes of this machine, each a pool of one, so that one that dies takes nobody with it. GPUs are given out in turn."""

    lost: type[Exception] = BrokenProcessPool

    def __init__(self, jobs: int, device: str) -> None:
        check_counts(jobs=jobs)
        if jobs > MOST:
            raise ConfigError("--jobs must be at most {most:,}, not {jobs:,}", MOST, jobs)
        self.jobs, self.device = jobs, device

    def begin(self, answerer: Answerer, number: int) -> Any:
        """The worker of this number, or the one that takes its place."""
        import torch

        from glassformer.machine import cores

        gpus = torch.cuda.device_count() if self.device in ("auto", "cuda") else 0
        names = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(gpus)))).split(",")
        threads = max(1, min(torch.get_num_threads(), cores() // self.jobs))
        arguments = (answerer, threads, names[number % len(names)] if gpus else None)
        return ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), start, arguments)

    def submit(self, worker: Any, group: list[Line]) -> Future[GroupAnswer]:
        """Have a worker answer a group."""
        return worker.submit(answer_group, group)  # type: ignore[no-any-return]

    def end(self, workers: Iterable[Any]) -> None:
        """End these workers, whatever they are at."""
        for pool in workers:
            processes = list((pool._processes or {}).values())  # a pool that is shut down no longer knows them
            pool.shutdown(wait=False, cancel_futures=True)
            for process in processes:
                process.terminate()

    def in_order(self, answerer: Answerer, groups: Iterable[list[Line]]) -> Iterator[GroupAnswer]:
        """The answers to the groups, in their order; a few groups are at work ahead."""
        numbered, again, free = enumerate(groups), deque[tuple[int, list[Line]]](), list(range(self.jobs))
        workers: dict[int, Any] = {}
        asked: dict[Future[GroupAnswer], tuple[int, int, list[Line]]] = {}
        answers: dict[int, GroupAnswer] = {}
        tries = Counter[int]()
        following = taken = 0

        def submit(worker: int, group: list[Line]) -> Future[GroupAnswer]:
            if worker not in workers:
                workers[worker] = self.begin(answerer, worker)
            return self.submit(workers[worker], group)

        try:
            while True:
                while free and (again or taken < following + AHEAD * self.jobs):
                    task = again.popleft() if again else next(numbered, None)
                    if task is None:
                        break
                    worker, (number, group) = free.pop(), task
                    taken = max(taken, number + 1)
                    try:
                        future = submit(worker, group)
                    except self.lost:  # it died while it had nothing to do
                        del workers[worker]
                        future = submit(worker, group)
                    asked[future] = worker, number, group
                if not asked:
                    return
                for future in wait(asked, return_when=FIRST_COMPLETED).done:
                    worker, number, group = asked.pop(future)
                    free.append(worker)
                    try:
                        answers[number] = future.result()
                    except self.lost:
                        del workers[worker]
                        again.append((number, group))
                        tries[number] += 1
                        if tries[number] == TRIES:
                            raise UserError(
                                "lines {first:,} to {last:,}: {tries} worker processes died of them (a kill, or too little "
                                "memory: try fewer --jobs); the answers before them are kept, and the same command goes on",
                                *(group[0].number, group[-1].number, TRIES),
                            ) from None
                while following in answers:
                    yield answers.pop(following)
                    following += 1
        finally:
            self.end(workers.values())

    def replies(self, make_job: Callable[[], TextJob], job: TextJob, groups: Iterable[list[Line]]) -> Iterator[Replies]:
        """The answers to each group, in order, by jobs like this one."""
        with closing(self.in_order(Answerer(make_job, job.run), groups)) as answers:  # type: ignore[type-var]
            for answer in answers:
                if answer.refusal:
                    raise UserError(answer.refusal)
                for problem in answer.problems:
                    warn(problem)
                if answer.notes and not job.unknown.told:
                    job.unknown.told = True
                    say(answer.notes[0])
                yield answer.outputs


class RayWorkers(LocalWorkers):
    """Actors of a cluster, at most as many as it has GPUs, or cores where it has none. Ray is started here, unless RAY_ADDRESS or
    `ray start` has named a cluster."""

    def __init__(self, jobs: int | None, device: str) -> None:
        check_counts(jobs=jobs)
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nobody is told of this
        try:
            import ray
        except ImportError:
            raise UserError("--ray needs Ray, which is not installed: {command}", install_hint("ray")) from None
        if not ray.is_initialized():
            ray.init(include_dashboard=False, logging_level=logging.ERROR, log_to_driver=False)
        resources = ray.cluster_resources()
        self.unit = "GPU" if device != "cpu" and resources.get("GPU") else "CPU"
        self.jobs = min(jobs or MOST, max(1, int(resources.get(self.unit, 1))))
        self.lost = ray.exceptions.RayActorError

    def begin(self, answerer: Answerer, number: int) -> Any:
        """An actor."""
        import ray

        needs: dict[str, Any] = {"num_gpus": 1} if self.unit == "GPU" else {"num_cpus": 1}
        return ray.remote(**needs)(Answerer).remote(answerer.make_job, answerer.run)

    def submit(self, worker: Any, group: list[Line]) -> Future[GroupAnswer]:
        """Have an actor answer a group."""
        return worker.answer.remote(group).future()  # type: ignore[no-any-return]

    def end(self, workers: Iterable[Any]) -> None:
        """End these actors, whatever they are at."""
        import ray

        for actor in workers:
            ray.kill(actor)


def make_workers(jobs: int | None, device: str, *, ray: bool = False) -> LocalWorkers | None:
    """Who answers beside this process; None where nobody was asked for."""
    if ray:
        return RayWorkers(jobs, device)
    return None if jobs is None else LocalWorkers(jobs, device)
