"""A file of lines answered by several processes (`--jobs N`) or by Ray's (`--ray`), each with the driver of decode/.

The file is cut where one process cuts it into groups (lines.py), each chunk is known by its number, whoever is free answers
the next, and the answers are written in order, each once. The last digits of a product depend on who is decoded together, so
chunks of any other size would, once in a while, give another word; with these the file is that of one process, to the byte. Its
record (answer_file.py) is that of one process, too: what was broken off is gone on with by any number of them. A chunk whose
worker dies is given to a new one, a few times.

Ray promises no order, and may answer a chunk twice; both are seen to by `in_order`. The run and the file must lie under the same
path on every machine of its cluster.
"""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import warnings
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO

from glassformer.cli.answer_file import AnswerFile
from glassformer.cli.line_input import READ, open_lines, read_groups
from glassformer.cli.lines import Input, Output, TextJob, Throughput, Unknown, is_regular, job_facts, reply_into
from glassformer.errors import ConfigError, UserError, install_hint
from glassformer.language import _, localized
from glassformer.screen import say, warn

MOST = 1024  # processes of one machine
TRIES = 3  # workers that a chunk is given to
AHEAD = 8  # chunks a worker: no more are answered before the first of them is, so a kill loses no more
BLOCKS = 4096  # pieces of work that Ray is given, at most


@dataclass(frozen=True)
class Chunk:
    """A group of lines: how many, how many stand before it, and where its bytes begin and end."""

    number: int
    before: int
    lines: int
    start: int
    stop: int

    def __len__(self) -> int:
        return self.lines


@dataclass
class ChunkAnswer:
    """The answers to a chunk, and what is to be said of them; or why there are none."""

    outputs: list[tuple[list[str], int, bool]] = field(default_factory=list)  # lines, tokens, whether it is an answer
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    refusal: str = ""


@dataclass(frozen=True)
class BulkRequest:
    """All that a worker needs: the file, how its job is made, and the fingerprint of the run that it must be."""

    file: Path
    make_job: Callable[[], TextJob]
    run: str


Numbered = Generator[tuple[int, ChunkAnswer]]
Compute = Callable[[BulkRequest, Sequence[Chunk]], Numbered]
"""Who answers: chunks in, their numbers and answers out, in any order."""


def cut(file: BinaryIO, lines: int) -> list[Chunk]:
    """The chunks of a file, so many lines each but the last: those of `read_groups`."""
    places, count, end, last = [0], 0, 0, b"\n"
    while block := file.read(READ):
        place = -1
        while (place := block.find(b"\n", place + 1)) >= 0:
            count += 1
            if count % lines == 0:
                places.append(end + place + 1)
        end, last = end + len(block), block[-1:]
    count += last != b"\n"
    places = [*(place for place in places if place < end), end]
    return [
        Chunk(number, number * lines, min(lines, count - number * lines), start, stop)
        for number, (start, stop) in enumerate(pairwise(places))
    ]


class Answerer:
    """In a worker: answers chunks, by a job that is made for the first of them."""

    def __init__(self, request: BulkRequest) -> None:
        self.request = request
        self.job: TextJob | None = None

    def __call__(self, chunk: Chunk) -> ChunkAnswer:
        """The answers; what a person must put right is an answer, too, since every other worker would say the same."""
        try:
            if self.job is None:
                self.job = self.request.make_job()
            if self.job.run != self.request.run:
                raise UserError(
                    "the run's weights have changed since the command began; say which you want by --step and a new --out"
                )
            return self.answer(chunk, self.job)
        except UserError as error:
            return ChunkAnswer(refusal=localized(str(error)))
        except OSError as error:
            refusal = _("{file} cannot be read by a worker: {reason}", self.request.file, error.strerror)
            return ChunkAnswer(refusal=localized(refusal))

    def answer(self, chunk: Chunk, job: TextJob) -> ChunkAnswer:
        """As one process answers the group, but what it says is kept for the process that asked."""
        answer = ChunkAnswer()
        job.unknown.told, job.unknown.say = False, lambda text: answer.notes.append(localized(text))
        job = replace(job, warn=answer.problems.append)
        with self.request.file.open("rb", buffering=0) as file:
            file.seek(chunk.start)

            def read(size: int) -> bytes:
                return file.read(min(size, chunk.stop - file.tell()))

            for group in read_groups(read, chunk.lines, chunk.lines, promptly=False, before=chunk.before):
                answer.outputs += [(output.lines, output.tokens, answered) for output, answered in job.reply(group)]
        return answer


# ---- processes of this machine

WORKER: list[Answerer] = []


def start(request: BulkRequest, threads: int, gpu: str | None) -> None:
    """In a worker that begins: its number of threads, and its GPU."""
    import torch

    from glassformer.runs.runner import leave_with_parent

    leave_with_parent()
    torch.set_num_threads(threads)
    if gpu is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu
    WORKER[:] = [Answerer(request)]


def answer_chunk(chunk: Chunk) -> ChunkAnswer:
    """In a worker: the answers to a chunk."""
    return WORKER[0](chunk)


class LocalWorkers:
    """Processes of this machine, each a pool of one, so that one that dies takes nobody with it. GPUs are given out in turn."""

    def __init__(self, jobs: int, device: str) -> None:
        if jobs > MOST:
            raise ConfigError("--jobs must be at most {most:,}, not {jobs:,}", MOST, jobs)
        self.jobs, self.device = jobs, device

    def begin(self, request: BulkRequest, number: int) -> ProcessPoolExecutor:
        """The worker of this number, or the one that takes its place."""
        import torch

        from glassformer.machine import cores

        gpus = torch.cuda.device_count() if self.device in ("auto", "cuda") else 0
        names = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(gpus)))).split(",")
        threads = max(1, min(torch.get_num_threads(), cores() // self.jobs))
        arguments = (request, threads, names[number % len(names)] if gpus else None)
        return ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), start, arguments)

    def __call__(self, request: BulkRequest, chunks: Sequence[Chunk]) -> Numbered:
        """The answers, whichever is there first."""
        pools = {number: self.begin(request, number) for number in range(min(self.jobs, len(chunks)))}
        free, left, tries = list(pools), deque(chunks), Counter[Chunk]()
        asked: dict[Future[ChunkAnswer], tuple[int, Chunk]] = {}

        def submit(number: int, chunk: Chunk) -> None:
            try:
                asked[pools[number].submit(answer_chunk, chunk)] = number, chunk
            except BrokenProcessPool:  # it died while it had nothing to do
                pools[number] = self.begin(request, number)
                asked[pools[number].submit(answer_chunk, chunk)] = number, chunk

        try:
            while left or asked:
                first = min((chunk.number for _, chunk in asked.values()), default=left[0].number if left else 0)
                while free and left and left[0].number < first + AHEAD * self.jobs:
                    submit(free.pop(), left.popleft())
                for future in wait(asked, return_when=FIRST_COMPLETED).done:
                    number, chunk = asked.pop(future)
                    free.append(number)
                    try:
                        answer = future.result()
                    except BrokenProcessPool:
                        tries[chunk] += 1
                        if tries[chunk] == TRIES:
                            raise UserError(
                                "lines {first:,} to {last:,} of {file}: {tries} worker processes died of them (a kill, "
                                "or too little memory: try fewer --jobs); the answers before them are kept, and the same "
                                "command goes on",
                                *(chunk.before + 1, chunk.before + chunk.lines, request.file, TRIES),
                            ) from None
                        pools[number] = self.begin(request, number)
                        left.appendleft(chunk)
                    else:
                        yield chunk.number, answer
        finally:
            workers = [worker for pool in pools.values() for worker in (pool._processes or {}).values()]
            for pool in pools.values():
                pool.shutdown(wait=False, cancel_futures=True)
            for worker in workers:
                worker.terminate()


# ---- a cluster of Ray


class RayAnswerer(Answerer):
    """The same with rows of Ray's: one chunk a batch."""

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:  # type: ignore[override]
        """A chunk's number and its answers as JSON."""
        chunk = Chunk(**{name: int(column[0]) for name, column in batch.items()})
        return {"number": [chunk.number], "answer": [json.dumps(asdict(super().__call__(chunk)))]}


class RayWorkers:
    """Actors of a cluster: as many as it has GPUs, or cores where it has none, if nobody says how many."""

    def __init__(self, jobs: int | None, device: str) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nobody is told of this
        try:
            import ray.data  # noqa: F401
        except ImportError:
            raise UserError("--ray needs Ray, which is not installed: {command}", install_hint("ray")) from None
        self.jobs, self.device = jobs, device

    def __call__(self, request: BulkRequest, chunks: Sequence[Chunk]) -> Numbered:
        """The answers, whichever is there first. Ray is started here, unless RAY_ADDRESS or `ray start` has named a cluster."""
        import ray
        import ray.data

        started_here = not ray.is_initialized()
        try:
            if started_here:
                ray.init(include_dashboard=False, logging_level=logging.ERROR, log_to_driver=False)
            ray.data.DataContext.get_current().enable_progress_bars = False
            logging.getLogger("ray.data").setLevel(logging.CRITICAL)  # what is wrong is said once, below
            resources = ray.cluster_resources()
            unit = "GPU" if self.device != "cpu" and resources.get("GPU") else "CPU"
            actors = min(self.jobs or int(resources.get(unit, 1)), len(chunks))
            blocks = min(len(chunks), BLOCKS)
            data = ray.data.from_items([asdict(chunk) for chunk in chunks], override_num_blocks=blocks)
            with warnings.catch_warnings():
                # Ray says that how often a task is tried will have another name in 2.64. By itself it would try for ever.
                warnings.simplefilter("ignore")
                answered = data.map_batches(
                    RayAnswerer,
                    batch_size=1,
                    fn_constructor_args=(request,),
                    compute=ray.data.ActorPoolStrategy(min_size=1, max_size=actors, initial_size=actors),
                    num_gpus=1 if unit == "GPU" else None,
                    num_cpus=1 if unit == "CPU" else None,
                    max_task_retries=TRIES - 1,
                )
            for row in answered.iter_rows():
                yield int(row["number"]), ChunkAnswer(**json.loads(row["answer"]))
        except ray.exceptions.RayError as error:
            reason = str(error).strip().splitlines()[-1]
            raise UserError(
                "Ray gave up: {reason}; the answers so far are kept, and the same command goes on", reason
            ) from None
        finally:
            if started_here:
                ray.shutdown()


# ---- in order, each once


def in_order(answered: Numbered, following: int) -> Generator[ChunkAnswer]:
    """Answers by their numbers, from this one on; one that comes twice is taken once."""
    waiting: dict[int, ChunkAnswer] = {}
    with closing(answered):
        for number, answer in answered:
            if answer.refusal:
                raise UserError(answer.refusal)
            if number >= following:
                waiting.setdefault(number, answer)
            while following in waiting:
                yield waiting.pop(following)
                following += 1


def reply_in_bulk(given: Input, make_job: Callable[[], TextJob], compute: Compute) -> None:
    """A file's lines into a file, by many workers; the same command goes on with what was broken off."""
    if given.file is None or given.out is None:
        raise ConfigError(
            "--jobs and --ray share out the lines of a file; name it by --file, and the answers' by --out"
        )
    # Made here, too, so that whatever is wrong is said before anybody is started; its model is let go at once.
    job = replace(make_job(), answer=lambda texts: (), unknown=Unknown(lambda text: []))
    with open_lines(given.file) as file:
        if not is_regular(file):
            raise ConfigError("--jobs and --ray read a file in parts, and {file} is a pipe; use a file", given.file)
        facts = job_facts(job, file)
        chunks = cut(file, max(1, job.batch, job.group))
    throughput = Throughput(job.verb, facts["input"]["size"])
    answers = AnswerFile(given.out, facts, resume=True)
    left = [chunk for chunk in chunks if chunk.before + chunk.lines > answers.lines]
    request = BulkRequest(given.file.absolute(), make_job, job.run)
    answered = in_order(compute(request, left), left[0].number if left else 0)

    def reply(chunk: Chunk) -> Iterator[tuple[Output, bool]]:
        answer = next(answered)
        throughput.place = chunk.stop
        for problem in answer.problems:
            warn(problem)
        if answer.notes and not job.unknown.told:
            job.unknown.told = True
            say(answer.notes[0])
        return ((Output(lines, tokens), is_answer) for lines, tokens, is_answer in answer.outputs)

    with throughput.display, closing(answered):
        failures = reply_into(answers, chunks, reply, throughput)
    if failures:
        raise SystemExit(1)
