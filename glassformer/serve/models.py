"""Several runs at once: each is loaded and has to answer before it counts as ready, leaves when memory is needed, and is
replaced when it has newer weights. A worker that is replaced answers what it holds before it goes, so no request is dropped.

Who stops waiting (the client has gone, time is up, the server ends) cancels the task that awaits here, and with it the job.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import torch

from glassformer.api.loading import load
from glassformer.errors import UserError
from glassformer.language import _
from glassformer.runs.folder import RunFolder
from glassformer.serve.completion import CompletionJob, CompletionOptions
from glassformer.serve.corrections import Corrections
from glassformer.serve.jobs import FunctionJob, ServerJob
from glassformer.serve.requests import APIError, Limits, bad_request
from glassformer.serve.served_run import Detector, ServedRun
from glassformer.serve.translation import TranslationJob, TranslationOptions
from glassformer.serve.worker import Worker, log_name

TRY_AGAIN = 10.0  # seconds, between two trials of a run that does not work


@asynccontextmanager
async def before(deadline: float) -> AsyncIterator[None]:
    """A block that has to end before a time of the event loop's clock."""
    try:
        async with asyncio.timeout_at(deadline):
            yield
    except TimeoutError:
        raise APIError(504, "this took longer than the server allows; ask for less at a time", code="timeout") from None


class Models:
    """The runs of a server by name: loaded and tried at the start, and unloaded where memory runs short or a run has changed."""

    def __init__(
        self,
        runs: Sequence[ServedRun],
        limits: Limits,
        *,
        device: str = "auto",
        corrections: bool = False,
        report: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.runs = {run.name: run for run in runs}
        self.limits, self.device, self.report = limits, device, report
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
        for run in runs if corrections else ():
            if run.translates:
                run.corrections = Corrections(run.path)

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
            worker = run.worker
            if worker is None:  # whoever goes away while a run is loaded does not stop that for the others
                run.waiting += 1
                try:
                    worker = await asyncio.shield(self.loading_of(run))
                finally:
                    run.waiting -= 1
            try:
                worker.submit(job)
                return
            except APIError as error:
                if error.status != 503 or worker is run.worker:  # not one that has just been replaced
                    raise

    # ---- health

    def workers(self) -> list[Worker]:
        """Every worker that may still hold requests."""
        self.retired = [worker for worker in self.retired if worker.thread.is_alive()]
        return [*(run.worker for run in self.runs.values() if run.worker), *self.retired]

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
        run.healthy, run.try_at = False, time.monotonic() + TRY_AGAIN
        why = str(error) if isinstance(error, UserError | APIError | TimeoutError) else log_name(error)
        self.report(_("{name} cannot answer: {why}", run.name, why or "it took too long"))

    async def try_out(self, run: ServedRun, worker: Worker) -> None:
        """Have a run answer, if only with a token: a device that has gone, or another's tokenizer, shows in nothing less."""
        failures = worker.failures
        job: ServerJob = CompletionJob([""], CompletionOptions(max_tokens=1))
        if run.kind == "reader":
            job = FunctionJob(lambda m: m.model(torch.tensor([m.with_special_tokens([])], device=m.device)).shape)
        elif run.translates:
            job = TranslationJob(["a"], TranslationOptions({"max_new_tokens": 1, "min_new_tokens": 0}))
        worker.submit(job)
        try:
            await asyncio.wait_for(job.reply, self.limits.seconds)
        finally:
            job.cancel()
        run.healthy, run.failures_seen = True, failures

    async def look_around(self) -> None:
        """Try those that have not answered yet, and those that have failed; load newer weights."""
        for run in list(self.runs.values()):
            if not run.healthy and time.monotonic() >= run.try_at:
                with suppress(APIError):  # it is in the log
                    await self.loading_of(run)
            if run.worker and run.worker.failures > run.failures_seen:
                try:
                    await self.try_out(run, run.worker)
                except Exception as error:
                    if not isinstance(error, APIError) or error.status not in (429, 503):  # full, or leaving
                        self.mark_unhealthy(run, error)
                        self.unload(run)
            if run.worker and run.stamp_on_disk() != run.stamp:
                await self.load_newer(run)

    # ---- weights

    def loading_of(self, run: ServedRun) -> asyncio.Task[Worker]:
        """The task that loads a run, once however many wait for it."""
        if run.loading is None or run.loading.done():
            run.loading = asyncio.create_task(self.load(run))
        return run.loading

    async def load(self, run: ServedRun) -> Worker:
        """The run's worker, loaded where it is not there; one run at a time."""
        async with self.loading:
            if run.worker is None:
                await self.make_room(run)
                try:
                    run.worker = await self.read(run)
                except Exception as error:
                    self.mark_unhealthy(run, error)
                    raise APIError(
                        500, f"the model {run.name} cannot answer; see the server's log and `glassformer doctor`"
                    ) from None
            return run.worker

    async def load_newer(self, run: ServedRun) -> None:
        """Replace the worker of a run that has other weights now; where these cannot be read the old one stays."""
        async with self.loading:
            if (old := run.worker) is None:
                return
            try:
                run.folder = RunFolder.open(run.path)
                run.worker = await self.read(run)
            except Exception as error:
                self.report(f"newer weights of {run.name} cannot be used: {log_name(error)}")
            else:
                self.retire(old)

    async def read(self, run: ServedRun) -> Worker:
        """A worker with the weights of now, which has answered."""
        run.stamp = run.stamp_on_disk()
        model = await asyncio.to_thread(load, run.path, device=self.device)
        worker = Worker(model, self.limits, self.report)
        try:
            await self.try_out(run, worker)
        except BaseException:
            self.retire(worker)
            raise
        self.report(_("loaded {name}", run.name))
        return worker

    def retire(self, worker: Worker) -> None:
        """This worker takes no new jobs, answers what it holds, and goes."""
        worker.close()
        self.retired.append(worker)

    def unload(self, run: ServedRun) -> None:
        """Its worker answers what it holds and goes."""
        if run.worker is not None:
            self.retire(run.worker)
            run.worker = None
            self.report(f"unloaded {run.name}")

    async def make_room(self, run: ServedRun) -> None:
        """Put away whom nobody has asked for longest, until there is memory; whoever is busy is waited for."""
        while self.limits.memory is not None:
            others = [r for r in self.runs.values() if r.worker and r is not run]
            leaving = any(worker.thread.is_alive() for worker in self.retired)
            if sum(r.bytes for r in others) + run.bytes <= self.limits.memory and not leaving:
                return
            idle = [r for r in others if not r.held and not r.waiting]
            if idle and not leaving:
                self.unload(min(idle, key=lambda r: r.used_at))
            await asyncio.sleep(0.01)

    def close(self) -> None:
        """Every worker ends when it has answered."""
        for worker in self.workers():
            worker.close()
