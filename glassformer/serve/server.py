"""From start to SIGTERM: connections that are bounded in number and in patience, and an end in good order.

uvicorn bounds the number of connections, too, but refuses probes with the rest, and waits for ever for the head of a first
request.

At the first signal the server is no longer ready and takes no new job, and goes on answering what it has, and probes. When all
is answered, or the time for that is over, whoever still waits is told, and the process ends with exit code 0.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import FrameType
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from glassformer.language import _
from glassformer.serve.middleware import Middleware

SPARE = 16  # connections beyond the limit, for probes alone
OTHER_FILES = 64  # that a server may open beside its connections
TICKS_A_LOOK = 20  # between two looks for runs that do not work, and for newer weights; ten ticks are a second
TICKS_A_LINE = 10  # between two lines about requests that found no room
TELL_SECONDS = 1.0  # that being told takes


def connections_that_fit(asked: int) -> tuple[int, int]:
    """How many connections to take, and how many new ones at a time: as many as are wanted, if the system lets this process
    have so many files open. It is asked for more where it allows them."""
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

    Where there are as many as may be, whoever has been silent longest makes way for one that comes; where nobody is silent, a
    few more are let in for probes alone, so that a server under siege can still say that it lives. `silent`: the connections
    of which the head of a request is awaited, the longest first, with what ends the wait."""

    def __init__(
        self, middleware: Middleware, most: int, silent: dict[Connection, asyncio.TimerHandle], **how: Any
    ) -> None:
        super().__init__(**how)
        self.middleware, self.most, self.silent = middleware, most, silent
        self.spare = False  # came when there were as many as may be: for probes alone, while there are more

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
        self.silent[self] = self.loop.call_later(self.middleware.limits.read_seconds, self.lose_patience)

    def stop_waiting(self) -> None:
        """A head has come, or nobody is there."""
        if (patience := self.silent.pop(self, None)) is not None:
            patience.cancel()

    def lose_patience(self) -> None:
        """Close, if no request is being answered."""
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()

    def handle_events(self) -> None:
        """Reads what is there; once the head of a request is read, the time to wait for it is over."""
        is_beyond = self.spare and len(self.connections) > self.most
        self.app = self.middleware.only_probes if is_beyond else self.middleware
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


class Server(uvicorn.Server):
    """uvicorn, ending as it is written above. `on_ready`: called once every run has answered; `opened`: with the address of
    the live page, once it can be asked for."""

    def __init__(
        self,
        middleware: Middleware,
        host: str,
        port: int,
        report: Callable[[str], None] = lambda _: None,
        opened: Callable[[str], None] | None = None,
        on_ready: Callable[[], Any] = lambda: None,
    ) -> None:
        asked = middleware.limits.connections
        most, backlog = connections_that_fit(asked)
        if most < asked:
            report(
                _(
                    "this process may have few files open, so it takes {most:,} connections at a time, not {asked:,}",
                    most,
                    asked,
                )
            )
        silent: dict[Connection, asyncio.TimerHandle] = {}
        config = uvicorn.Config(
            middleware,
            host=host,
            port=port,
            http=partial(Connection, middleware, most, silent),  # type: ignore[arg-type]
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=2,
            backlog=backlog,
        )
        super().__init__(config)
        self.middleware, self.models = middleware, middleware.models
        self.report, self.opened, self.on_ready = report, opened, on_ready
        self.asked_to_end_at: float | None = None
        self.told_at: float | None = None
        self.ready = False
        self.look: asyncio.Task[None] | None = None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The first signal ends in good order, a second at once."""
        if self.asked_to_end_at is not None:
            self.force_exit = self.should_exit = True
            return
        self.asked_to_end_at = time.monotonic()
        self.models.draining = True

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second: what the runs do, and whether it is time to go."""
        if not self.ready and self.models.ready():
            self.ready = True
            self.on_ready()
        if not counter % TICKS_A_LINE:
            self.middleware.report_overloads()
        if not counter % TICKS_A_LOOK and (self.look is None or self.look.done()):
            self.look = asyncio.create_task(self.models.look_around())
        if self.asked_to_end_at is not None and not self.should_exit:
            self.should_exit = self.may_end(time.monotonic(), self.asked_to_end_at)
        return await super().on_tick(counter)

    def may_end(self, now: float, asked_at: float) -> bool:
        """Is everything answered, or has everyone been told?"""
        if not self.middleware.in_flight:
            return True
        if self.told_at is not None:
            return now - self.told_at > TELL_SECONDS
        if now - asked_at > self.middleware.limits.drain_seconds - TELL_SECONDS:
            self.told_at = now
            self.middleware.end()
        return False

    def address(self) -> str:
        """Where it listens, once it does."""
        host, port = self.servers[0].sockets[0].getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, and say where."""
        await super().startup(sockets=sockets)
        if self.started:
            if self.opened is not None:
                self.opened(f"{self.address()}/open")
            else:
                self.report(_("listening on {address}", self.address()))
