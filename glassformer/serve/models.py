"""Several runs at once: each is loaded and has to answer before it counts as ready, leaves when memory is needed, and is replaced
when it has newer weights. A worker that is replaced answers what it holds before it goes, so no request is dropped."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from glassformer.api.loading import load
from glassformer.config import Recipe
from glassformer.errors import UserError
from glassformer.language import _
from glassformer.runs.folder import RunFolder
from glassformer.serve.api_errors import APIError
from glassformer.serve.completion import CompletionJob, CompletionOptions
from glassformer.serve.jobs import FunctionJob, ServerJob
from glassformer.serve.languages import codes_of
from glassformer.serve.learner import Learner
from glassformer.serve.limits import Limits
from glassformer.serve.translation import TranslationJob, TranslationOptions
from glassformer.serve.worker import Worker, log_name
from glassformer.serve.worker_group import WorkerGroup
from glassformer.tasks import TextModel

SHORTEST_PAUSE, LONGEST_PAUSE = 2.0, 60.0  # seconds, between two trials of a run that does not work
COPIES = 2  # a model on a CPU is held as it was read, and packed for decoding
STAMPED = ("final/SEAL", "checkpoints/*/SEAL")


def kind_of(recipe: Recipe) -> str:
    """What was trained: `transformer`, `gpt on pairs` or `gpt`; anything else is a `reader`, which can be looked into and is not
    served."""
    model = recipe.model
    if model.family == "bert" or model.head != "mlm":
        return "reader"
    return "gpt on pairs" if model.family == "gpt" and recipe.data.prompt_answer else model.family


class ServedRun:
    """A run under the name that clients call it by, loaded or not."""

    def __init__(
        self, path: Path, languages: tuple[tuple[str, ...], str] | None = None, *, to_look_at: bool = False
    ) -> None:
        self.path, self.folder = path.resolve(), RunFolder.open(path.resolve())
        self.name = path.resolve().name
        self.kind = kind_of(self.folder.recipe)
        if self.kind == "reader" and not to_look_at:
            raise UserError("{path} neither translates nor writes text, so there is nothing to serve it for", path)
        self.sources, self.target = languages or codes_of(self.folder.recipe)
        self.made = int((path / "run.json").stat().st_mtime)
        self.bytes = COPIES * self.weights_size()
        self.worker: Worker | WorkerGroup | None = None
        self.learner: Learner | None = None  # where corrections are taken
        self.stamp: object = None
        self.loaded_seal = ""
        self.used_at = 0.0
        self.waiting = 0  # requests that wait for it to be loaded: it does not leave before it has them
        self.healthy = False  # has it answered, and has nothing been heard since that it cannot?
        self.failures_seen = 0  # of its worker, before it last answered
        self.try_at, self.pause = 0.0, SHORTEST_PAUSE  # when one that does not work is tried again
        self.lock = asyncio.Lock()

    @property
    def translates(self) -> bool:
        """Whether it answers a text with another; a GPT goes on with it."""
        return self.kind in ("transformer", "gpt on pairs")

    def weights_size(self) -> int:
        """Bytes of the weights that would be used."""
        return sum(
            p.stat().st_size for p in self.folder.weights_folder(report=lambda _: None).glob("model*.safetensors")
        )

    def now(self) -> object:
        """What tells the weights on disk from others, cheaply."""
        paths = (path for pattern in STAMPED for path in self.path.glob(pattern))
        return sorted((str(p), p.stat().st_mtime_ns, p.stat().st_ino) for p in paths if p.exists())

    def seal(self) -> str:
        """What tells the weights that would be used from others, exactly."""
        folder = self.folder.weights_folder(report=lambda _: None)
        return f"{folder.name} {(folder / 'SEAL').read_text()}"


class Models:
    """The runs of a server by name: loaded and tried at the start, and unloaded where memory runs short or a run has changed."""

    def __init__(
        self,
        runs: Sequence[ServedRun],
        limits: Limits,
        *,
        device: str = "auto",
        batch_invariant: bool = False,
        learn: bool = False,
        report: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.runs = {run.name: run for run in runs}
        self.limits, self.batch_invariant, self.report = limits, batch_invariant, report
        self.devices = [name.strip() for name in device.split(",")]  # a worker on each
        # What is not a request is done here: reports, and other weights than those served.
        self.device = self.devices[0]
        if learn and len(self.devices) > 1:
            raise UserError("corrections are learned on one device; leave out --learn, or name one device")
        if len(self.runs) < len(runs):
            raise UserError("two of the runs have the same name; rename one of their folders")
        largest = max(runs, key=lambda run: run.bytes, default=None)
        if limits.memory is not None and largest is not None and largest.bytes > limits.memory:
            raise UserError(
                "{largest} alone needs about {bytes:,.0f} MiB, more than the limit on memory; raise it",
                largest.path,
                largest.bytes / 2**20,
            )
        self.retired: list[Worker | WorkerGroup] = []
        self.loading = asyncio.Lock()
        self.draining = False
        for run in runs if learn else ():
            if run.translates:
                weights = partial(self.load_model, run), partial(getattr, run, "loaded_seal")
                run.learner = Learner(run.folder, weights, partial(self.install, run), report)

    def get(self, name: str) -> ServedRun:
        """The run of this name; 404 with the names there are, if there is none."""
        if name not in self.runs:
            known = ", ".join(self.runs)
            raise APIError(
                404, f"there is no model {name[:80]!r} here; there are: {known}", param="model", code="model_not_found"
            )
        return self.runs[name]

    def workers(self) -> list[Worker | WorkerGroup]:
        """Every worker that may still hold requests."""
        self.retired = [worker for worker in self.retired if worker.alive]
        return [*(run.worker for run in self.runs.values() if run.worker is not None), *self.retired]

    def alive(self) -> bool:
        """A full queue is life; a worker that has not moved for a minute is not."""
        return all(worker.stuck_for() < self.limits.dead_seconds for worker in self.workers())

    def ready(self) -> bool:
        """Will a request that comes now be answered soon? Every run has answered, and none hangs."""
        moving = all(worker.stuck_for() < self.limits.hung_seconds for worker in self.workers())
        return moving and not self.draining and all(run.healthy for run in self.runs.values())

    @property
    def full(self) -> bool:
        """Is every run loaded and full, so that whichever is meant cannot be asked?"""
        return bool(self.runs) and all(run.worker is not None and run.worker.full for run in self.runs.values())

    def overloaded(self) -> APIError:
        """What one hears who comes when all are full: of the one that is so the least."""
        return min(
            (run.worker for run in self.runs.values() if run.worker), key=lambda worker: worker.held
        ).overloaded()

    def check_room(self) -> None:
        """Refuse at once, where all are full."""
        if self.full:
            raise self.overloaded()

    async def submit(self, run: ServedRun, job: ServerJob) -> Worker | WorkerGroup:
        """Hand a job to the run's worker, which is loaded first where it is not there."""
        if self.draining:
            raise APIError(503, "this server is shutting down; ask another, or again in a moment", retry=5)
        if run.kind == "reader" and not isinstance(job, FunctionJob):
            raise APIError(
                400, f"{run.name} reads texts and writes none; it can be looked into at /open", param="model"
            )
        run.used_at = time.monotonic()
        while True:
            worker = run.worker
            if worker is None:  # whoever goes away while a run is loaded does not stop that for the others
                run.waiting += 1
                try:
                    worker = await asyncio.shield(self.load(run))
                finally:
                    run.waiting -= 1
            try:
                worker.submit(job)
                return worker
            except APIError as error:
                if error.status != 503 or run.worker is worker:
                    raise

    async def load(self, run: ServedRun) -> Worker | WorkerGroup:
        """The run's worker, loaded once however many ask."""
        async with run.lock:
            if run.worker is None:
                async with self.loading:
                    await self.make_room(run)
                    try:
                        run.worker = await self.read(run)
                    except Exception as error:
                        self.mark_unhealthy(run, error)
                        raise APIError(
                            500, f"the model {run.name} cannot answer; see the server's log and `glassformer doctor`"
                        ) from None
            return run.worker

    def mark_unhealthy(self, run: ServedRun, error: Exception) -> None:
        """A run that does not work is told of in the log, and tried again after a while. What is wrong may name files, of which
        nobody outside is told."""
        run.healthy, run.try_at = False, time.monotonic() + run.pause
        run.pause = min(LONGEST_PAUSE, 2 * run.pause)
        why = str(error) if isinstance(error, UserError | APIError | TimeoutError) else log_name(error)
        self.report(_("{name} cannot answer: {why}", run.name, why or "it took too long"))

    def load_model(self, run: ServedRun, device: str | None = None) -> TextModel:
        """The run's model with its own weights, decoding as this server does."""
        model = load(run.path, device=device or self.device)
        if self.batch_invariant:
            model.recipe = replace(model.recipe, decode=replace(model.recipe.decode, batch_invariant=True))
        return model

    async def install(self, run: ServedRun, model: TextModel, seal: str) -> None:
        """Have another model of a run answer from now on: what the old one holds is answered by that. Nothing where the run is
        not loaded, or has newer weights than those of the seal: it is read with all updates, or learns them anew."""
        async with run.lock:
            if run.worker is not None and run.loaded_seal == seal:
                old, run.worker = run.worker, Worker(model, self.limits, self.report)
                old.close()
                self.retired.append(old)

    async def read(self, run: ServedRun) -> Worker | WorkerGroup:
        """A worker with the weights of now, which has answered."""
        stamp = run.now()
        seal = run.seal()
        models = [await asyncio.to_thread(self.load_model, run, device) for device in self.devices]
        if run.learner is not None:
            await asyncio.to_thread(run.learner.store.apply, models[0]._model)
        workers = [Worker(model, self.limits, self.report) for model in models]
        worker = workers[0] if len(workers) == 1 else WorkerGroup(workers)
        try:
            await self.try_out(run, worker)
        except BaseException:
            worker.close()
            self.retired.append(worker)
            raise
        run.stamp, run.loaded_seal = stamp, seal
        if run.learner is not None:
            run.learner.catch_up()
        self.report(_("loaded {name}", run.name))
        return worker

    async def try_out(self, run: ServedRun, worker: Worker | WorkerGroup) -> None:
        """Have it answer on each of its devices, if only with a token: that a device has gone, or the tokenizer is another's,
        shows in nothing less."""
        failures = worker.failures
        for member in worker.workers:
            job: ServerJob
            if run.kind == "reader":
                job = FunctionJob(lambda m: m.model(torch.tensor([m.with_special_tokens([])], device=m.device)).shape)
            elif run.translates:
                job = TranslationJob(["a"], TranslationOptions({"max_new_tokens": 1, "min_new_tokens": 0}))
            else:
                job = CompletionJob([""], CompletionOptions(max_tokens=1))
            job.alone = True
            member.submit(job)
            try:
                await asyncio.wait_for(job.reply, self.limits.seconds)
            finally:
                job.cancel()
        run.healthy, run.failures_seen, run.pause = True, failures, SHORTEST_PAUSE

    async def make_room(self, run: ServedRun) -> None:
        """Put away whom nobody has asked for longest, until there is memory; whoever is busy is waited for."""
        if self.limits.memory is None:
            return
        while True:
            there = [r for r in self.runs.values() if r.worker is not None and r is not run]
            leaving = sum(1 for worker in self.retired if worker.alive)
            if sum(r.bytes for r in there) + run.bytes <= self.limits.memory and not leaving:
                return
            idle = [r for r in there if r.worker is not None and not r.worker.held and not r.waiting]
            if idle and not leaving:
                self.unload(min(idle, key=lambda r: r.used_at))
            await asyncio.sleep(0.01)

    def unload(self, run: ServedRun) -> None:
        """Its worker answers what it holds and goes."""
        if run.worker is not None:
            run.worker.close()
            self.retired.append(run.worker)
            run.worker = None
            self.report(f"unloaded {run.name}")

    async def look_around(self) -> None:
        """Try those that have not answered yet, and those that have failed; then look for newer weights."""
        for run in list(self.runs.values()):
            with suppress(APIError):  # it is in the log
                if not run.healthy and time.monotonic() >= run.try_at:
                    await self.load(run)
            worker = run.worker
            if worker is not None and worker.failures > run.failures_seen:
                try:
                    await self.try_out(run, worker)
                except Exception as error:
                    if isinstance(error, APIError) and error.status in (429, 503):
                        continue  # it is full, or leaving
                    self.mark_unhealthy(run, error)
                    if run.worker is worker:
                        self.unload(run)
        await self.look_for_newer()

    async def look_for_newer(self) -> None:
        """Replace workers whose runs have other weights now; one that cannot be read leaves the old one in place."""
        for run in list(self.runs.values()):
            if run.worker is None or run.now() == run.stamp:
                continue
            async with run.lock, self.loading:
                if run.worker is None:
                    continue
                old, stamp = run.worker, run.now()
                try:
                    run.folder = RunFolder.open(run.path)
                    if run.seal() == run.loaded_seal:
                        run.stamp = stamp
                        continue
                    fresh = await self.read(run)
                except Exception as error:
                    run.stamp = stamp
                    self.report(f"newer weights of {run.name} cannot be used: {log_name(error)}")
                    continue
                run.worker = fresh
                old.close()
                self.retired.append(old)

    def close(self) -> None:
        """Every worker ends when it has answered, every learner where it is."""
        for run in self.runs.values():
            if run.learner is not None:
                run.learner.close()
        for worker in self.workers():
            worker.close()
