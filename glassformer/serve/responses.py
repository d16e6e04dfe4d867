"""Responses: JSON, an error in the dialect of its path, and server-sent events."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from glassformer.serve.api_errors import APIError
from glassformer.serve.jobs import ServerJob

EVENTS = "text/event-stream; charset=utf-8"
DONE = b"data: [DONE]\n\n"  # the last event of a stream, as OpenAI's clients expect it


def as_json(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A response in JSON, in UTF-8 as it is."""
    return Response(msgspec.json.encode(value), status, headers, media_type="application/json")


def error_response(error: APIError, path: str) -> Response:
    """An error as the clients of a path read it, with Retry-After where coming again helps."""
    headers = {} if error.retry is None else {"Retry-After": str(error.retry)}
    return as_json(error.in_dialect(path), error.status, headers)


def event_of(value: Any) -> bytes:
    """One server-sent event, in JSON."""
    return b"data: " + msgspec.json.encode(value) + b"\n\n"


class EventStream(Response):
    """Server-sent events, one as soon as it is there. The status is settled by the first of them: an error before it has a
    response of its own. (Starlette's StreamingResponse sends the status before it asks for anything.)"""

    def __init__(self, events: AsyncIterator[bytes], job: ServerJob) -> None:
        self.events, self.job = events, job
        super().__init__(headers={"Content-Type": EVENTS, "X-Accel-Buffering": "no"})
        del self.headers["content-length"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until there are no more. However this ends, the job does not go on for nobody."""
        started = False
        try:
            async for event in self.events:
                if not started:
                    started = True
                    await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
                await send({"type": "http.response.body", "body": event, "more_body": True})
        finally:
            self.job.cancel()
        await send({"type": "http.response.body", "body": b""})
