"""The gate before every route: is the request for this server, from someone who may ask, of a size that is taken, and in time?

A plain ASGI layer. It reads the body whole (bounded in bytes and seconds), watches for the client to go away, sets the headers
that keep a browser safe, keeps the books (metrics.py), and turns whatever goes wrong into an error of the right dialect. Every
route is closed without the key unless it is in OPEN.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

import msgspec

from glassformer.serve.auth import Door
from glassformer.serve.limits import Limits
from glassformer.serve.metrics import Metrics, Outcome
from glassformer.serve.models import Models
from glassformer.serve.api_errors import Refused, refusal_of
from glassformer.serve.worker import told

OPEN = {"/", "/page/{name}", "/docs", "/openapi.json", "/health", "/livez", "/readyz", "/frontend/settings"}
DECODED = {"/translate", "/translate_file", "/v1/completions", "/v1/chat/completions"}  # these ask a model
UNCOUNTED = {"/metrics"}
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


class Gone(Exception):
    """Raised while a request is read or answered when its client has closed the connection."""


def in_bytes(refusal: Refused, path: str) -> tuple[list[tuple[bytes, bytes]], bytes]:
    """Headers and body of a refusal as the clients of a path read it."""
    body = msgspec.json.encode(refusal.in_dialect(path))
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    return headers + [(name.lower().encode(), value.encode()) for name, value in refusal.headers.items()], body


class Gate:
    """The ASGI application around the application."""

    def __init__(
        self,
        app: Any,
        *,
        door: Door,
        limits: Limits,
        metrics: Metrics,
        route_of: Callable[[Any], str],
        models: Models,
        report: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.app, self.door, self.limits, self.metrics = app, door, limits, metrics
        self.route_of, self.models, self.report = route_of, models, report
        self.in_flight = 0
        self.sent_away = 0  # told to come again, and not yet in the log
        self.ending = asyncio.Event()  # what is still under way is told so

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """One request, from its head to the end of its answer."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1000})
            return
        route = self.route_of(scope)
        visit = Visit(self, scope, receive, send, route)
        if route in UNCOUNTED:
            await visit.answer()
            return
        began = time.monotonic()
        self.metrics.begin(route)
        self.in_flight += 1
        outcome: Outcome = "failed"
        try:
            outcome = await visit.answer()
        except asyncio.CancelledError:
            outcome = "cancelled"
            raise
        finally:
            self.in_flight -= 1
            seconds = time.monotonic() - began
            self.metrics.end(route, outcome, visit.status, seconds)
            if visit.status == 429:
                self.sent_away += 1
            else:
                self.report(f"{scope['method'][:8]} {route} {visit.status or '-'} {outcome} {seconds * 1000:.0f} ms")

    def turn_away(self, path: str, route: str, refusal: Refused) -> bytes:
        """The whole answer to a request that is refused by its first bytes."""
        self.metrics.begin(route)
        self.metrics.end(route, "rejected", refusal.status, 0.0)
        self.sent_away += refusal.status == 429
        head, body = in_bytes(refusal, path)
        first = f"HTTP/1.1 {refusal.status} {HTTPStatus(refusal.status).phrase}".encode()
        lines = [first, *(name + b": " + value for name, value in [*head, *SAFE])]
        return b"\r\n".join([*lines, b"", body])

    def report_sent_away(self) -> None:
        """Those who found no room, in one line: a log that grows with every one of them would cost what refusing saves."""
        if self.sent_away:
            self.report(f"429 to {self.sent_away} requests, for which there was no room")
            self.sent_away = 0


class Visit:
    """One request on its way through the gate: checked, let in or refused, and its end noted."""

    def __init__(self, gate: Gate, scope: Any, receive: Any, send: Any, route: str) -> None:
        self.gate, self.scope, self.receive, self.send, self.route = gate, scope, receive, send, route
        self.status: int | None = None
        self.over = False
        self.gone = asyncio.Event()
        self.headers: dict[bytes, bytes] = {}
        for name, value in scope["headers"]:
            self.headers.setdefault(name, value)
        self.origin: str | None = None

    async def answer(self) -> Outcome:
        """Let the request in, or say why not; what became of it."""
        watcher = None
        state = self.scope["state"] = dict(self.scope.get("state") or {})
        state.update(gone=self.gone, ending=self.gate.ending, failed=False)
        try:
            await self.let_in(state)
            if self.scope["method"] == "OPTIONS" and self.origin is not None:
                await self.allow()
                return "completed"
            watcher = asyncio.ensure_future(self.watch())
            await self.gate.app(self.scope, self.replay, self.forward)
        except Gone:
            return "cancelled"
        except Exception as error:
            if self.gone.is_set():
                return "cancelled"
            refusal = refusal_of(error)
            if refusal is not error and refusal.status >= 500:
                self.gate.report(f"a request failed: {told(error)}")
            if self.status is None:
                await self.refuse(refusal)
            else:
                state["failed"] = True
        finally:
            if watcher is not None:
                watcher.cancel()
        if self.gone.is_set() and not self.over:
            return "cancelled"
        if state["failed"] or self.status is None or (self.status >= 500 and self.status != 503):
            return "failed"
        return "completed" if self.status < 400 else "rejected"

    async def let_in(self, state: dict[str, Any]) -> None:
        """Every check that comes before the route."""
        door = self.gate.door
        host = door.check_host(self.headers)
        self.origin = door.check_origin(self.headers, host)
        query, asks = self.scope["query_string"], self.route in DECODED and self.scope["method"] == "POST"
        if asks and door.has_key(self.headers, query):
            self.gate.models.check_room()  # before anything that costs: under overload most requests end here
        state["body"] = await self.body()
        preflight = self.scope["method"] == "OPTIONS" and self.origin is not None  # a browser sends no key with it
        if self.route not in OPEN and not preflight:
            door.check_key(self.headers, query, state["body"], self.scope["path"])
        if asks:
            self.gate.models.check_room()

    async def body(self) -> bytes:
        """The body, if it is not too large and comes in time."""
        limits = self.gate.limits
        most = limits.file + (1 << 16) if self.route == "/translate_file" else limits.body
        length = self.headers.get(b"content-length", b"0")
        if not length.isdigit() or int(length[:20]) > most:
            raise Refused(413, f"the request is larger than the {most:,} bytes this server takes")
        parts, size = [], 0
        try:
            async with asyncio.timeout(limits.read_seconds):
                while True:
                    message = await self.receive()
                    if message["type"] == "http.disconnect":
                        self.gone.set()
                        raise Gone
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    if size > most:
                        raise Refused(413, f"the request is larger than the {most:,} bytes this server takes")
                    if not message.get("more_body"):
                        return b"".join(parts)
        except TimeoutError:
            raise Refused(408, "the request did not arrive in time") from None

    async def watch(self) -> None:
        """Until the client goes away."""
        while (await self.receive())["type"] != "http.disconnect":
            pass
        if not self.over:
            self.gone.set()

    async def replay(self) -> dict[str, Any]:
        """For the application: the body is in the state; only the client's going is left to hear of."""
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def forward(self, message: Any) -> None:
        """The answer on its way out, with what keeps browsers safe."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            named = {name.lower() for name, _ in message.get("headers", [])}
            extra = [(name, value) for name, value in SAFE if name not in named]
            if self.origin is not None:
                extra += [(b"access-control-allow-origin", self.origin.encode("latin-1")), (b"vary", b"Origin")]
            if self.gate.ending.is_set():
                extra.append((b"connection", b"close"))
            message = {**message, "headers": [*message.get("headers", []), *extra]}
        elif message["type"] == "http.response.body" and not message.get("more_body"):
            self.over = not self.gone.is_set()
        await self.send(message)

    async def allow(self) -> None:
        """What a page of an allowed origin may ask (the preflight of CORS)."""
        headers = [
            (b"access-control-allow-methods", b"GET, POST"),
            (b"access-control-allow-headers", b"authorization, content-type, x-api-key"),
        ]
        await self.forward({"type": "http.response.start", "status": 204, "headers": headers})
        await self.forward({"type": "http.response.body", "body": b""})

    async def refuse(self, refusal: Refused) -> None:
        """An error as the route's clients read it."""
        headers, body = in_bytes(refusal, self.scope["path"])
        if refusal.status in (408, 413):
            headers.append((b"connection", b"close"))
        await self.forward({"type": "http.response.start", "status": refusal.status, "headers": headers})
        await self.forward({"type": "http.response.body", "body": body})
