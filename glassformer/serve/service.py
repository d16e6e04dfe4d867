"""What every route is given: from a request to a job, from the job to its run's worker, and the answer back.

Who stops waiting (the client has gone, time is up, the server ends) cancels the task that awaits here, and with it the job.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glassformer.serve.api_errors import APIError, bad_request
from glassformer.serve.auth import Auth
from glassformer.serve.jobs import ServerJob
from glassformer.serve.languages import Detector
from glassformer.serve.limits import Limits
from glassformer.serve.models import Models, ServedRun
from glassformer.tasks import check_text


@asynccontextmanager
async def before(deadline: float) -> AsyncIterator[None]:
    """A block that has to end before a time of the event loop's clock."""
    try:
        async with asyncio.timeout_at(deadline):
            yield
    except TimeoutError:
        raise APIError(504, "this took longer than the server allows; ask for less at a time", code="timeout") from None


@dataclass(frozen=True)
class Service:
    """The runs, the limits, the detector of languages, the keys, a folder for translated files; and how to have a job done."""

    models: Models
    limits: Limits
    detector: Detector
    auth: Auth
    files: Path

    def check_texts(self, texts: list[str], param: str) -> None:
        """Are they texts, and no more than is taken?"""
        limits = self.limits
        if len(texts) > limits.batch:
            raise bad_request(
                f"{param}: {len(texts)} texts are more than the {limits.batch} this server takes at a time", param
            )
        for text in texts:
            if len(text) > limits.text:
                raise bad_request(
                    f"{param}: a text of {len(text):,} characters is longer than the {limits.text:,} taken here", param
                )
            check_text(text)
        if sum(map(len, texts)) > limits.total:
            raise bad_request(
                f"{param}: the texts together are longer than the {limits.total:,} characters taken here", param
            )

    def deadline(self) -> float:
        """When the answer to a request that comes now must be there."""
        return asyncio.get_running_loop().time() + self.limits.seconds

    async def ask(self, run: ServedRun, job: ServerJob) -> Any:
        """A job's answer. Whatever happens here, the worker does not go on for nobody."""
        try:
            async with before(self.deadline()):
                await self.models.submit(run, job)
                return await job.reply
        finally:
            job.cancel()

    async def stream(self, run: ServedRun, job: ServerJob) -> AsyncIterator[Any]:
        """A job's events as they come, and last its answer as a one-tuple. Whoever reads them cancels the job in the end."""
        deadline = self.deadline()
        async with before(deadline):
            await self.models.submit(run, job)
        while True:
            async with before(deadline):  # not around a yield: whoever reads an event is not timed
                event = await job.events.get()
            if event is None:
                yield (job.reply.result(),)
                return
            yield event

    def translators(self) -> list[ServedRun]:
        """The runs that translate."""
        return [run for run in self.models.runs.values() if run.translates]

    async def run_for(
        self, source: str, target: str, texts: Sequence[str], model: str | None = None
    ) -> tuple[ServedRun, str, float | None]:
        """The run that translates this, from which language, and how sure that is where it had to be found out (`auto`)."""
        runs = [run for run in self.translators() if run.target == target]
        if model is not None:
            named = self.models.get(model)
            if not named.translates:
                raise bad_request(f"{named.name} writes text and does not translate; see /v1/completions", "model")
            runs = [run for run in runs if run is named]
        if not runs:
            raise bad_request(f"{target} is not supported", "target")
        if source != "auto":
            for run in runs:
                if source in run.sources:
                    return run, source, None
            raise bad_request(f"{source} is not supported with the target {target}", "source")
        workers = [run.worker for run in runs if run.worker is not None]
        if len(workers) == len(runs):
            min(workers, key=lambda worker: worker.held).check_room()  # before the effort of finding out
        known = list(dict.fromkeys(code for run in runs for code in run.sources))
        code, confidence = await asyncio.to_thread(self.detector.best, "\n".join(texts)[:2000], known)
        return next(run for run in runs if code in run.sources), code, confidence
