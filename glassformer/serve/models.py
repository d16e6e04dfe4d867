"""Several runs at once: each is loaded and has to answer before it counts as ready, leaves when memory is needed, and is
replaced when it has newer weights. A worker that is replaced answers what it holds before it goes, so no request is dropped.

Who stops waiting (the client has gone, time is up, the server ends) cancels the task that awaits here, and with it the job.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import torch

from glassformer.api.loading import load
from glassformer.errors import UserError
from glassformer.language import _
from glassformer.runs.folder import RunFolder
from glassformer.serve.completion import CompletionJob, CompletionOptions
from glassformer.serve.corrections import Learner
from glassformer.serve.jobs import FunctionJob, ServerJob
from glassformer.serve.requests import APIError, Limits, bad_request
from glassformer.serve.served_run import SHORTEST_PAUSE, Detector, ServedRun
from glassformer.serve.translation import TranslationJob, TranslationOptions
from glassformer.serve.worker import Worker, log_name
from glassformer.tasks import TextModel

LONGEST_PAUSE = 60.0  # seconds, between two trials of a run that does not work


@asynccontextmanager
async def before(deadline: float) -> AsyncIterator[None]:
    """A block that has to end before a time of the event loop's clock."""
    try:
        async with asyncio.timeout_at(deadline):
            yield
    except TimeoutError:
        raise APIError(504, "this took longer than the server allows; ask for less at a time", code="timeout") from None


def check_room(runs: Sequence[ServedRun]) -> None:
    """Refuse at once, where all of these runs are loaded and full, so that whichever is meant cannot be asked: with the 429
    error of the least loaded."""
    workers = [worker for run in runs for worker in run.workers]
    if workers and all(run.workers for run in runs) and all(worker.full for worker in workers):
        raise min(workers, key=lambda worker: worker.held).overloaded()


class Models:
    """The runs of a server by name: loaded and tried at the start, and unloaded where memory runs short or a run has changed."""

    def __init__(
        self,
        runs: Sequence[ServedRun],
        limits: Limits,
        *,
        device: str = "auto",
        learn: bool = False,
        report: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.runs = {run.name: run for run in runs}
        self.limits, self.report = limits, report
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
        self.detector = Detector({code for run in runs for code in (*run.sources, run.target)})
        self.retired: list[Worker] = []
        self.loading = asyncio.Lock()
        self.draining = False
        for run in runs if learn else ():
            if run.translates:
                load, seal_now = partial(self.load_model, run), partial(getattr, run, "loaded_seal")
                run.learner = Learner(run.folder, load, seal_now, partial(self.install, run), report)

    # ---- requests

    def get(self, name: str) -> ServedRun:
        """The run of this name; 404 with the names there are, if there is none."""
        if name not in self.runs:
            known = ", ".join(self.runs)
            raise APIError(
                404, f"there is no model {name[:80]!r} here; there are: {known}", param="model", code="model_not_found"
            )
        return self.runs[name]

    def translators(self) -> list[ServedRun]:
        """The runs that translate."""
        return [run for run in self.runs.values() if run.translates]

    async def run_for(
        self, source: str, target: str, texts: Sequence[str], model: str | None = None
    ) -> tuple[ServedRun, str, float | None]:
        """The run that translates this, from which language, and how sure that is where it had to be found out (`auto`)."""
        runs = [run for run in self.translators() if run.target == target]
        if model is not None:
            named = self.get(model)
            if not named.translates:
                raise bad_request(f"{named.name} writes text and does not translate; see /v1/completions", "model")
            runs = [run for run in runs if run is named]
        if not runs:
            raise bad_request(f"{target} is not supported", "target")
        if source == "auto":
            check_room(runs)  # before the effort of finding out
            codes = list(dict.fromkeys(code for run in runs for code in run.sources))
            source, confidence = await asyncio.to_thread(self.detector.best, "\n".join(texts)[:2000], codes)
            return next(run for run in runs if source in run.sources), source, confidence
        for run in runs:
            if source in run.sources:
                return run, source, None
        raise bad_request(f"{source} is not supported with the target {target}", "source")

    def deadline(self) -> float:
        """When the answer to a request that comes now must be there."""
        return asyncio.get_running_loop().time() + self.limits.seconds

    async def ask(self, run: ServedRun, job: ServerJob) -> Any:
        """A job's answer. Whatever happens here, the worker does not go on for nobody."""
        try:
            async with before(self.deadline()):
                await self.submit(run, job)
                return await job.reply
        finally:
            job.cancel()

    async def stream(self, run: ServedRun, job: ServerJob) -> AsyncIterator[Any]:
        """A job's events as they come, and last its answer as a one-tuple. Whoever reads them cancels the job in the end."""
        deadline = self.deadline()
        async with before(deadline):
            await self.submit(run, job)
        while True:
            async with before(deadline):  # not around a yield: whoever reads an event is not timed
                event = await job.events.get()
            if event is None:
                yield (job.reply.result(),)
                return
            yield event

    async def submit(self, run: ServedRun, job: ServerJob) -> None:
        """Hand a job to the run's worker, which is loaded first where it is not there."""
        if self.draining:
            raise APIError(503, "this server is shutting down; ask another, or again in a moment", retry=5)
        if run.kind == "reader" and not isinstance(job, FunctionJob):
            raise bad_request(f"{run.name} reads texts and writes none; it can be looked into at /open", "model")
        run.used_at = time.monotonic()
        while True:
            workers = run.workers
            if not workers:  # whoever goes away while a run is loaded does not stop that for the others
                run.waiting += 1
                try:
                    workers = await asyncio.shield(self.load(run))
                finally:
                    run.waiting -= 1
            # The one that holds fewest jobs; of equals the one that has worked least.
            worker = min(workers, key=lambda worker: (worker.held, worker.steps))
            try:
                worker.submit(job)
                return
            except APIError as error:
                if error.status != 503 or worker in run.workers:
                    raise

    # ---- health

    def workers(self) -> list[Worker]:
        """Every worker that may still hold requests."""
        self.retired = [worker for worker in self.retired if worker.alive]
        return [*(worker for run in self.runs.values() for worker in run.workers), *self.retired]

    def stuck_for(self) -> float:
        """For how many seconds some worker has had jobs and not moved. A full queue is life."""
        return max((worker.stuck_for() for worker in self.workers()), default=0.0)

    def ready(self) -> bool:
        """Will a request that comes now be answered soon? Every run has answered, and none hangs."""
        moving = self.stuck_for() < self.limits.hung_seconds
        return moving and not self.draining and all(run.healthy for run in self.runs.values())

    def mark_unhealthy(self, run: ServedRun, error: Exception) -> None:
        """A run that does not work is told of in the log, and tried again after a while. What is wrong may name files, of
        which nobody outside is told."""
        run.healthy, run.try_at = False, time.monotonic() + run.pause
        run.pause = min(LONGEST_PAUSE, 2 * run.pause)
        why = str(error) if isinstance(error, UserError | APIError | TimeoutError) else log_name(error)
        self.report(_("{name} cannot answer: {why}", run.name, why or "it took too long"))

    async def try_out(self, run: ServedRun, workers: Sequence[Worker]) -> None:
        """Have a run answer on each of its devices, if only with a token: that a device has gone, or the tokenizer is another's,
        shows in nothing less."""
        failures = sum(worker.failures for worker in workers)
        for worker in workers:
            job: ServerJob
            if run.kind == "reader":
                job = FunctionJob(lambda m: m.model(torch.tensor([m.with_special_tokens([])], device=m.device)).shape)
            elif run.translates:
                job = TranslationJob(["a"], TranslationOptions({"max_new_tokens": 1, "min_new_tokens": 0}))
            else:
                job = CompletionJob([""], CompletionOptions(max_tokens=1))
            job.exclusive = True
            worker.submit(job)
            try:
                await asyncio.wait_for(job.reply, self.limits.seconds)
            finally:
                job.cancel()
        run.healthy, run.failures_seen, run.pause = True, failures, SHORTEST_PAUSE

    async def look_around(self) -> None:
        """Try those that have not answered yet, and those that have failed; then look for newer weights."""
        for run in list(self.runs.values()):
            with suppress(APIError):  # it is in the log
                if not run.healthy and time.monotonic() >= run.try_at:
                    await self.load(run)
            workers = run.workers
            if run.failures > run.failures_seen:
                try:
                    await self.try_out(run, workers)
                except Exception as error:
                    if isinstance(error, APIError) and error.status in (429, 503):
                        continue  # it is full, or leaving
                    self.mark_unhealthy(run, error)
                    if run.workers is workers:
                        self.unload(run)
        for run in list(self.runs.values()):
            await self.look_for_newer(run)

    # ---- weights

    def load_model(self, run: ServedRun, device: str | None = None) -> TextModel:
        """The run's model with its own weights."""
        return load(run.path, device=device or self.device)

    async def load(self, run: ServedRun) -> list[Worker]:
        """The run's workers, loaded once however many ask."""
        async with run.lock:
            if not run.workers:
                async with self.loading:
                    await self.make_room(run)
                    try:
                        run.workers = await self.read(run)
                    except Exception as error:
                        self.mark_unhealthy(run, error)
                        raise APIError(
                            500, f"the model {run.name} cannot answer; see the server's log and `glassformer doctor`"
                        ) from None
            return run.workers

    async def read(self, run: ServedRun) -> list[Worker]:
        """Workers with the weights of now, which have answered."""
        stamp, seal = run.now(), run.seal()
        models = [await asyncio.to_thread(self.load_model, run, device) for device in self.devices]
        if run.learner is not None:
            await asyncio.to_thread(run.learner.store.apply, models[0]._model)
        workers = [Worker(model, self.limits, self.report) for model in models]
        try:
            await self.try_out(run, workers)
        except BaseException:
            self.retire(workers)
            raise
        run.stamp, run.loaded_seal = stamp, seal
        if run.learner is not None:
            run.learner.catch_up()
        self.report(_("loaded {name}", run.name))
        return workers

    def retire(self, workers: Sequence[Worker]) -> None:
        """These workers take no new jobs, answer what they hold, and go."""
        for worker in workers:
            worker.close()
        self.retired += workers

    def unload(self, run: ServedRun) -> None:
        """Its workers answer what they hold and go."""
        self.retire(run.workers)
        run.workers = []
        self.report(f"unloaded {run.name}")

    async def install(self, run: ServedRun, model: TextModel, seal: str) -> None:
        """Have another model of a run answer from now on: what the old one holds is answered by that. Nothing where the run is
        not loaded, or has newer weights than those of the seal: it is read with all updates, or learns them anew."""
        async with run.lock:
            if run.workers and run.loaded_seal == seal:
                self.retire(run.workers)
                run.workers = [Worker(model, self.limits, self.report)]

    async def make_room(self, run: ServedRun) -> None:
        """Put away whom nobody has asked for longest, until there is memory; whoever is busy is waited for."""
        while self.limits.memory is not None:
            others = [r for r in self.runs.values() if r.workers and r is not run]
            leaving = any(worker.alive for worker in self.retired)
            if sum(r.bytes for r in others) + run.bytes <= self.limits.memory and not leaving:
                return
            idle = [r for r in others if not r.held and not r.waiting]
            if idle and not leaving:
                self.unload(min(idle, key=lambda r: r.used_at))
            await asyncio.sleep(0.01)

    async def look_for_newer(self, run: ServedRun) -> None:
        """Replace the workers of a run that has other weights now; where these cannot be read the old ones stay."""
        if not run.workers or run.now() == run.stamp:
            return
        async with run.lock, self.loading:
            if not run.workers:
                return
            stamp = run.now()
            try:
                run.folder = RunFolder.open(run.path)
                if run.seal() == run.loaded_seal:
                    run.stamp = stamp
                    return
                fresh = await self.read(run)
            except Exception as error:
                run.stamp = stamp
                self.report(f"newer weights of {run.name} cannot be used: {log_name(error)}")
                return
            self.retire(run.workers)
            run.workers = fresh

    def close(self) -> None:
        """Every worker ends when it has answered, every learner where it is."""
        for run in self.runs.values():
            if run.learner is not None:
                run.learner.close()
        for worker in self.workers():
            worker.close()
