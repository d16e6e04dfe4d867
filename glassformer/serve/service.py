"""From a route to a worker and back: submit, wait, and stop the work when nobody waits any more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from glassformer.serve.middleware import Gone
from glassformer.serve.languages import Detector
from glassformer.serve.limits import Limits
from glassformer.serve.models import Models, ServedRun
from glassformer.serve.api_errors import Refused, bad, refusal_of
from glassformer.serve.worker import Worker
from glassformer.serve.jobs import Work
from glassformer.tasks import check_text


@dataclass(frozen=True)
class Service:
    """What every route is given: the runs, the limits, the detector of languages, whether a key is asked for."""

    models: Models
    limits: Limits
    detector: Detector
    needs_key: bool = False


def as_json(value: Any, status: int = 200) -> Response:
    """An answer in JSON, in UTF-8 as it is."""
    return Response(msgspec.json.encode(value), status, media_type="application/json")


def check_texts(texts: list[str], limits: Limits, param: str) -> None:
    """Are they texts, and no more than is taken?"""
    if len(texts) > limits.batch:
        raise bad(f"{param}: {len(texts)} texts are more than the {limits.batch} this server takes at a time", param)
    for text in texts:
        if len(text) > limits.text:
            raise bad(
                f"{param}: a text of {len(text):,} characters is longer than the {limits.text:,} taken here", param
            )
        check_text(text)
    if sum(map(len, texts)) > limits.total:
        raise bad(f"{param}: the texts together are longer than the {limits.total:,} characters taken here", param)


async def until(request: Request, wanted: asyncio.Future[Any], deadline: float) -> Any:
    """What is waited for; or whichever comes first: the client goes, the server goes, time is up."""
    state = request.scope["state"]
    left = asyncio.ensure_future(state["gone"].wait())
    ending = asyncio.ensure_future(state["ending"].wait())
    try:
        seconds = deadline - asyncio.get_running_loop().time()
        await asyncio.wait({wanted, left, ending}, timeout=max(0.0, seconds), return_when=asyncio.FIRST_COMPLETED)
        if wanted.done():
            return wanted.result()
        if left.done():
            raise Gone
        if ending.done():
            raise Refused(503, "this server is shutting down and could not finish; ask again", retry=5)
        raise Refused(504, "this took longer than the server allows; ask for less at a time", code="timeout")
    finally:
        left.cancel()
        ending.cancel()


async def hand_over(request: Request, service: Service, run: ServedRun, work: Work, deadline: float) -> Worker:
    """Give a work to its run's worker: within this turn of the event loop where that is loaded, so that those who came in the
    same moment find the queue as full as it is."""
    submitting = service.models.submit(run, work)
    return await (submitting if run.worker is not None else until(request, asyncio.ensure_future(submitting), deadline))


async def ask(request: Request, service: Service, run: ServedRun, work: Work) -> Any:
    """The answer to a work. Whatever happens here, the worker does not go on for nobody."""
    deadline = asyncio.get_running_loop().time() + service.limits.seconds
    worker = None
    try:
        worker = await hand_over(request, service, run, work, deadline)
        return await until(request, work.reply, deadline)
    finally:
        if not work.reply.done():
            work.cancelled = True
            work.reply.cancel()
            if worker is not None:
                worker.cancel(work)


class EventStream(Response):
    """Server-sent events, one as soon as it is there. The status is settled by the first of them: what is refused before has
    an error of its own."""

    def __init__(self, events: AsyncIterator[bytes]) -> None:
        self.events = events
        self.background = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Send events until there are no more; an error in the middle is the last of them."""
        began = False
        try:
            async for event in self.events:
                if not began:
                    began = True
                    headers = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"x-accel-buffering", b"no")]
                    await send({"type": "http.response.start", "status": 200, "headers": headers})
                await send({"type": "http.response.body", "body": event, "more_body": True})
        except Exception as error:
            if not began or isinstance(error, Gone):
                raise
            scope["state"]["failed"] = True
            told = event_of(refusal_of(error).in_dialect(scope["path"]))
            await send({"type": "http.response.body", "body": told, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


def event_of(value: Any) -> bytes:
    """One event."""
    return b"data: " + msgspec.json.encode(value) + b"\n\n"


async def streamed(request: Request, service: Service, run: ServedRun, work: Work) -> AsyncIterator[Any]:
    """The events of a work as they come, and last the answer as a one-tuple."""
    deadline = asyncio.get_running_loop().time() + service.limits.seconds
    worker = None
    try:
        worker = await hand_over(request, service, run, work, deadline)
        while True:
            event = asyncio.ensure_future(work.events.get())
            try:
                first = asyncio.ensure_future(asyncio.wait({event, work.reply}, return_when=asyncio.FIRST_COMPLETED))
                await until(request, first, deadline)
            finally:
                if not event.done():
                    event.cancel()
            if event.done() and not event.cancelled():
                yield event.result()
                continue
            while not work.events.empty():
                yield work.events.get_nowait()
            yield (work.reply.result(),)
            return
    finally:
        if not work.reply.done():
            work.cancelled = True
            work.reply.cancel()
            if worker is not None:
                worker.cancel(work)
