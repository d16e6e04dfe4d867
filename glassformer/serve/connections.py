"""Connections: bounded in number and patience, and quick to say no.

Under overload nearly every request is refused, and what refusing costs is taken from those who are answered. So a request that
comes while every queue is full is told at once where its bytes leave no doubt (the whole head of a plain POST that says how long
its body is), without the parser, the routes and the checks that an answer would need; its body is passed over. Every other goes
the usual way, to the same end.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
from contextlib import suppress
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from glassformer.serve.api_errors import APIError
from glassformer.serve.middleware import DECODED, Middleware

SPARE = 16  # connections beyond the limit, for probes alone
OTHER_FILES = 64  # that a server may open beside its connections
PROBE = re.compile(rb"GET /(?:livez|readyz|health)[? ]")
FIRST_PATH = re.compile(rb"[A-Z]+ (/[!-~]*)")

FIRST_LINE = re.compile(rb"POST (/[a-z0-9_/]+)(?:\?[!-~]*)? HTTP/1\.1")
LENGTH = re.compile(rb"\r\ncontent-length: *(\d{1,9})(?=\r\n|$)")
NOT_PLAIN = re.compile(
    rb"\r\n(?:[ \t]|transfer-encoding|expect|origin|upgrade|connection(?!: *keep-alive *(?:\r\n|$)))"
)


def plain_post(data: bytes) -> tuple[str, int]:
    """The path of a POST whose head lies in these bytes, and how much of its body is still to come; no path where anything about
    it wants a second look, or where something else stands behind it."""
    head, whole, body = data.partition(b"\r\n\r\n")
    first, _, rest = head.partition(b"\r\n")
    match, fields = FIRST_LINE.fullmatch(first), b"\r\n" + rest.lower()
    if not match or not whole or NOT_PLAIN.search(fields) or head.count(b"\n") != head.count(b"\r\n"):
        return "", 0
    lengths = LENGTH.findall(fields)
    if not len(lengths) == fields.count(b"content-length") == fields.count(b"\r\nhost:") == 1:
        return "", 0
    if int(lengths[0]) < len(body):
        return "", 0
    return match[1].decode(), int(lengths[0]) - len(body)


def head_of(data: bytes) -> tuple[dict[bytes, bytes], bytes]:
    """Headers and query of a request whose head lies in these bytes."""
    first, *lines = data.partition(b"\r\n\r\n")[0].split(b"\r\n")
    headers: dict[bytes, bytes] = {}
    for line in lines:
        name, _, value = line.partition(b":")
        headers.setdefault(name.lower(), value.strip())
    return headers, first.split(b" ")[1].partition(b"?")[2]


def connections_that_fit(asked: int) -> tuple[int, int]:
    """How many connections to take, and how many new ones at a time: as many as are wanted, if the system lets this process have
    so many files open. It is asked for more where it allows them."""
    backlog = 512
    try:
        import resource
    except ImportError:  # not on Windows, which has no such limit
        return asked, backlog
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    others = len(os.listdir("/dev/fd")) + OTHER_FILES
    needed = others + asked + SPARE + backlog
    if soft != resource.RLIM_INFINITY and soft < needed:
        wished = needed if hard == resource.RLIM_INFINITY else min(hard, needed)
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wished, hard))
            soft = wished
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return asked, backlog
    backlog = max(1, (soft - others) // 4)
    return max(1, min(asked, soft - others - SPARE - backlog)), backlog


def shared_socket(host: str, port: int) -> socket.socket:
    """A socket bound to an address, together with those of other processes: each new connection goes to one of them."""
    family, kind, protocol, _, address = socket.getaddrinfo(
        host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    bound = socket.socket(family, kind, protocol)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    bound.bind(address)
    return bound


class OneWrite:
    """A transport that sends at once what is written within one turn of the event loop: an answer's head and its body."""

    def __init__(self, transport: Any, loop: asyncio.AbstractEventLoop) -> None:
        self.transport, self.loop = transport, loop
        self.parts: list[bytes] = []

    def write(self, data: bytes) -> None:
        """Send this with whatever else is written now."""
        if not self.parts:
            self.loop.call_soon(self.flush)
        self.parts.append(data)

    def flush(self) -> None:
        """Send what has been written."""
        if self.parts and not self.transport.is_closing():
            self.transport.write(b"".join(self.parts))
        self.parts.clear()

    def close(self) -> None:
        """Send what has been written, then close."""
        self.flush()
        self.transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.transport, name)


class Connection(H11Protocol):
    """One of at most so many connections; closed when no whole head of a request comes in time.

    Where there are as many as may be, whoever has been silent longest makes way for one that comes; where nobody is silent, a few
    more are let in for probes alone, so that a server under siege can still say that it lives."""

    middleware: Middleware
    most: int
    silent: dict[Connection, None]  # those of whom the head of a request is awaited, the longest first

    spare = False  # came when there were as many as may be: for probes alone, while there are more

    passed_over = 0  # bytes still to come of the body of a request that was refused
    patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Takes a new connection in, or ends it at once where there is no place for it."""
        self.spare = len(self.connections) >= self.most
        if self.spare and self.silent:
            longest = next(iter(self.silent))
            longest.stop_waiting()
            longest.transport.abort()
        elif len(self.connections) >= self.most + SPARE:
            transport.abort()
            return
        super().connection_made(OneWrite(transport, self.loop))  # type: ignore[arg-type]
        self.wait()

    def wait(self) -> None:
        """From now on the head of a request is waited for."""
        self.stop_waiting()
        self.patience = self.loop.call_later(self.middleware.limits.read_seconds, self.lose_patience)
        self.silent[self] = None

    def stop_waiting(self) -> None:
        """A head has come, or nobody is there."""
        self.silent.pop(self, None)
        if self.patience is not None:
            self.patience.cancel()
            self.patience = None

    def lose_patience(self) -> None:
        """Close, if no request is being answered."""
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()

    def data_received(self, data: bytes) -> None:
        """Passes bytes on, but for those of a request that was turned away."""
        dropped = min(self.passed_over, len(data))
        self.passed_over -= dropped
        data = data[dropped:]
        if data and self.spare and len(self.connections) > self.most and not PROBE.match(data):
            self.refuse_spare(data)
        elif data and not (self.middleware.models.full and self.idle() and self.rejected(data)):
            super().data_received(data)

    def rejected(self, data: bytes) -> bool:
        """Refuse, if it is certain what is asked, and by someone who may ask."""
        path, left = plain_post(data)
        if path not in DECODED:
            return False
        headers, query = head_of(data)
        try:
            self.middleware.auth.check_host(headers)
        except APIError:
            return False
        if self.middleware.auth.holder(headers, query) is None:
            return False  # it may be in the body
        self.passed_over = left
        self._unset_keepalive_if_required()
        self.wait()
        self.transport.write(self.middleware.reject(path, path, self.middleware.models.overloaded()))
        return True

    def refuse_spare(self, data: bytes) -> None:
        """Say that there is no place for anything but a probe, and close."""
        match = FIRST_PATH.match(data)
        error = APIError(503, "all connections that this server takes are in use; come again", retry=1)
        self.transport.write(self.middleware.reject(match[1].decode() if match else "/", "(none)", error))
        self.transport.close()

    def idle(self) -> bool:
        """Is the next that is heard the beginning of a request?"""
        idle = self.cycle is None or self.cycle.response_complete
        return idle and self.conn.their_state is h11.IDLE and not self.conn.trailing_data[0]

    def handle_events(self) -> None:
        """Reads what is there; once the head of a request is read, the time to wait for it is over."""
        super().handle_events()
        if self.cycle is not None and not self.cycle.response_complete:
            self.stop_waiting()

    def on_response_complete(self) -> None:
        """After an answer the next request is waited for."""
        self.wait()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nobody is there to be waited for any more."""
        self.stop_waiting()
        if self.transport is not None:
            super().connection_lost(exc)


def connection_kind(middleware: Middleware, most: int) -> type[H11Protocol]:
    """The connections of one server, as uvicorn wants to be told of them."""
    return type("Connection", (Connection,), {"middleware": middleware, "most": most, "silent": {}})
