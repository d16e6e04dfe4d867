"""Before every route: is the request for this server, from someone who may ask, of a size that is taken, and in time?

A plain ASGI layer around Starlette's router. It reads the body whole (bounded in bytes and seconds), stops the work on a
request whose client goes away, sets the headers that keep a browser safe, counts what became of each request, and is the one
place where an exception becomes a response of the right dialect. Every path is closed without the key unless it is in OPEN.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Match, Route, Router
from starlette.types import Message, Receive, Scope, Send

from glassformer.serve.auth import Auth
from glassformer.serve.models import Models
from glassformer.serve.requests import EVENTS, APIError, as_api_error, error_response, event_of, read_fields
from glassformer.serve.worker import log_name

Outcome = Literal["completed", "rejected", "cancelled", "failed"]
OPEN = {"/health", "/livez", "/readyz", "/", "/open", "/page/{name}", "/tour/{name}", "/docs"}
OPEN |= {"/openapi.json", "/frontend/settings"}
UNCOUNTED = {"/metrics", "/open/runs"}  # asked again and again
CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
SAFE = [
    (b"content-security-policy", CONTENT_POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
]
PREFLIGHT = Response(  # of CORS: what a page of an allowed origin may ask
    status_code=204,
    headers={
        "Access-Control-Allow-Methods": "GET, POST",
        "Access-Control-Allow-Headers": "authorization, content-type, x-api-key",
    },
)


def is_open(path: str) -> bool:
    """Is a path answered without the key? Told by the path itself, before any route sees it."""
    return path in OPEN or f"{path.rpartition('/')[0]}/{{name}}" in OPEN


class Metrics:
    """Counters of one server, in a registry of their own: every request is received once and ends once, as completed,
    rejected, cancelled or failed.

        received = completed + rejected + cancelled + failed + in flight        at every moment, exactly

    Labels are routes and outcomes; no text, key or address is ever among them. All of it is counted on the event loop."""

    def __init__(self) -> None:
        self.registry = own = CollectorRegistry()
        self.received = Counter("glassformer_requests_received", "Requests that came.", ["route"], registry=own)
        self.ended = {
            outcome: Counter(f"glassformer_requests_{outcome}", f"Requests that {outcome}.", ["route"], registry=own)
            for outcome in ("completed", "rejected", "cancelled", "failed")
        }
        self.in_flight = Gauge("glassformer_requests_in_flight", "Requests being answered.", registry=own)
        self.seconds = Histogram("glassformer_request_seconds", "To the end of an answer.", ["route"], registry=own)
        self.held = Gauge("glassformer_model_held", "Requests a model holds.", ["model"], registry=own)
        self.steps = Gauge("glassformer_model_steps", "Decoding steps since it was loaded.", ["model"], registry=own)

    def text(self, models: Models) -> bytes:
        """All counters, and the load of each run, in the text format of Prometheus."""
        for name, run in models.runs.items():
            self.held.labels(name).set(run.held)
            self.steps.labels(name).set(run.worker.steps if run.worker else 0)
        return generate_latest(self.registry)


class Middleware:
    """The ASGI application around the router."""

    def __init__(
        self, router: Router, auth: Auth, metrics: Metrics, models: Models, report: Callable[[str], None]
    ) -> None:
        self.router, self.auth, self.limits, self.metrics = router, auth, models.limits, metrics
        self.models, self.report = models, report
        self.exchanges: set[Exchange] = set()  # in flight
        self.ending = False

    @property
    def in_flight(self) -> int:
        """How many requests are being answered."""
        return len(self.exchanges)

    def route_of(self, scope: Scope) -> str:
        """The template of the route that a request goes to; whatever has none is one kind of thing."""
        for route in self.router.routes:
            if isinstance(route, Route) and route.matches(scope)[0] is not Match.NONE:
                return route.path
        return "(none)"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, from its head to the end of its answer. (uvicorn is told to send no other kind of scope.)"""
        exchange = Exchange(self, scope, receive, send)
        route = exchange.route
        if route in UNCOUNTED:
            await exchange.answer()
            return
        began = time.monotonic()
        metrics = self.metrics
        metrics.received.labels(route).inc()
        metrics.in_flight.inc()
        self.exchanges.add(exchange)
        outcome: Outcome = "failed"
        try:
            outcome = await exchange.answer()
        except asyncio.CancelledError:
            outcome = "cancelled"
            raise
        finally:
            self.exchanges.remove(exchange)
            seconds = time.monotonic() - began
            metrics.ended[outcome].labels(route).inc()
            metrics.in_flight.dec()
            metrics.seconds.labels(route).observe(seconds)
            if exchange.status != 429:  # a log that grows with each of these would cost what refusing saves
                self.report(f"{scope['method'][:8]} {route} {exchange.status or '-'} {outcome} {seconds * 1000:.0f} ms")

    def end(self) -> None:
        """Tell whoever still waits that there will be no answer."""
        self.ending = True
        for exchange in self.exchanges:
            exchange.stop(APIError(503, "this server is shutting down and could not finish; ask again", retry=5))


class Exchange:
    """One request and its response: checked, accepted or rejected, and stopped when nobody waits any more."""

    def __init__(self, middleware: Middleware, scope: Scope, receive: Receive, send: Send) -> None:
        self.middleware, self.scope, self.receive, self.send = middleware, scope, receive, send
        self.route = middleware.route_of(scope)
        self.task: Any = asyncio.current_task()
        self.status: int | None = None
        self.streams = self.over = False
        self.stopped: Exception | None = None  # why, where it was stopped from outside, or has failed
        self.origin: str | None = None
        self.headers: dict[bytes, bytes] = dict(reversed(scope["headers"]))  # of one that comes twice, the first
        scope["app"] = middleware.router  # with it the router raises 404 and 405, and without answers in plain text

    async def answer(self) -> Outcome:
        """Accept the request and have it answered, or say why not; what became of it."""
        watcher = None
        try:
            await self.accept()
            watcher = asyncio.ensure_future(self.watch())
            app = PREFLIGHT if self.is_preflight() else self.middleware.router
            await app(self.scope, self.replay(), self.forward)
        except asyncio.CancelledError:
            if self.stopped is None:
                raise
            self.task.uncancel()
        except Exception as error:
            self.stopped = self.stopped or error
        finally:
            if watcher is not None:
                watcher.cancel()
        if isinstance(self.stopped, ClientDisconnect):
            return "cancelled"
        if self.stopped is not None:
            began = self.status is not None
            await self.fail(self.stopped)
            if began:
                return "failed"
        if self.status is None or (self.status >= 500 and self.status != 503):
            return "failed"
        return "completed" if self.status < 400 else "rejected"

    def stop(self, reason: Exception) -> None:
        """Cancel the work on this request, unless its response is over."""
        if self.stopped is None and not self.over:
            self.stopped = reason
            self.task.cancel()

    async def watch(self) -> None:
        """Until the client goes away."""
        while (await self.receive())["type"] != "http.disconnect":
            pass
        self.stop(ClientDisconnect())

    def is_preflight(self) -> bool:
        """Does a browser ask whether a page of an allowed origin may ask? It sends no key with that."""
        return self.scope["method"] == "OPTIONS" and self.origin is not None

    async def accept(self) -> None:
        """Every check that comes before the route."""
        auth = self.middleware.auth
        self.origin = auth.check_origin(self.headers, auth.check_host(self.headers))
        holder = auth.holder(self.headers, self.scope["query_string"])
        self.body = await self.read_body()
        if holder is None and not (is_open(self.scope["path"]) or self.is_preflight()):
            fields: dict[str, Any] = {}
            with suppress(APIError):
                fields = await read_fields(Request(self.scope, self.replay()))
            holder = auth.check_fields(fields, self.scope["path"])
        self.scope["key_holder"] = holder

    async def read_body(self) -> bytes:
        """The body, if it is not too large and comes in time."""
        limits = self.middleware.limits
        most = limits.file + (1 << 16) if self.route == "/translate_file" else limits.body
        length = self.headers.get(b"content-length", b"0")
        too_large = APIError(413, f"the request is larger than the {most:,} bytes this server takes")
        if not length.isdigit() or int(length[:20]) > most:
            raise too_large
        body = bytearray()
        try:
            async with asyncio.timeout(limits.read_seconds):
                async for chunk in Request(self.scope, self.receive).stream():
                    body += chunk
                    if len(body) > most:
                        raise too_large
        except TimeoutError:
            raise APIError(408, "the request did not arrive in time") from None
        return bytes(body)

    def replay(self) -> Receive:
        """An ASGI `receive` that replays the body already read."""
        messages = iter([{"type": "http.request", "body": self.body}])

        async def receive() -> Message:
            return next(messages, None) or await asyncio.get_running_loop().create_future()

        return receive

    async def forward(self, message: Message) -> None:
        """The response on its way out, with what keeps browsers safe."""
        if message["type"] == "http.response.start":
            self.status, headers = message["status"], message.get("headers", [])
            self.streams = (b"content-type", EVENTS.encode()) in headers
            named = {name.lower() for name, _ in headers}
            extra = [(name, value) for name, value in SAFE if name not in named]
            if self.origin is not None:
                extra += [(b"access-control-allow-origin", self.origin.encode("latin-1")), (b"vary", b"Origin")]
            if self.middleware.ending:
                extra.append((b"connection", b"close"))
            message = {**message, "headers": [*headers, *extra]}
        elif message["type"] == "http.response.body" and not message.get("more_body"):
            self.over = True
        await self.send(message)

    async def fail(self, reason: Exception) -> None:
        """Tell of an error: in a response of its own, or as the last event of a stream that has begun."""
        error = as_api_error(reason)
        if error is not reason and error.status >= 500:
            self.middleware.report(f"a request failed: {log_name(reason)}")
        if self.status is None:
            response = error_response(error, self.scope["path"])
            if error.status in (408, 413):
                response.headers["connection"] = "close"
            await response(self.scope, self.receive, self.forward)
        elif self.streams:
            event = event_of(error.in_dialect(self.scope["path"]))
            await self.forward({"type": "http.response.body", "body": event, "more_body": True})
            await self.forward({"type": "http.response.body", "body": b""})
