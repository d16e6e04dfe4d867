"""Connections: bounded in number and in patience. uvicorn bounds their number, too, but refuses probes with the
rest, and waits for ever for the head of a first request."""

from __future__ import annotations

import asyncio
import os
import re
from contextlib import suppress
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from glassformer.serve.api_errors import APIError
from glassformer.serve.middleware import Middleware

SPARE = 16  # connections beyond the limit, for probes alone
OTHER_FILES = 64  # that a server may open beside its connections
PROBE = re.compile(rb"GET /(?:livez|readyz|health)[? ]")
FIRST_PATH = re.compile(rb"[A-Z]+ (/[!-~]*)")


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


class Connection(H11Protocol):
    """One of at most so many connections; closed when no whole head of a request comes in time.

    Where there are as many as may be, whoever has been silent longest makes way for one that comes; where nobody is silent, a few
    more are let in for probes alone, so that a server under siege can still say that it lives."""

    middleware: Middleware
    most: int
    silent: dict[Connection, None]  # those of whom the head of a request is awaited, the longest first

    spare = False  # came when there were as many as may be: for probes alone, while there are more

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
        super().connection_made(transport)
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
        """Passes bytes on; where there is no place, those of a probe alone."""
        if self.spare and len(self.connections) > self.most and not PROBE.match(data):
            self.refuse_spare(data)
        else:
            super().data_received(data)

    def refuse_spare(self, data: bytes) -> None:
        """Say that there is no place for anything but a probe, and close."""
        match = FIRST_PATH.match(data)
        error = APIError(503, "all connections that this server takes are in use; come again", retry=1)
        self.transport.write(self.middleware.reject(match[1].decode() if match else "/", "(none)", error))
        self.transport.close()

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
