"""From start to SIGTERM: a server, and an end in good order.

At the first signal the server is no longer ready and takes no new job, and goes on answering what it has, and probes. When all
is answered, or the time for that is over, whoever still waits is told, and the process ends with exit code 0.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable
from types import FrameType

import uvicorn

from glassformer.language import _
from glassformer.serve.app import Served
from glassformer.serve.connections import connection_kind, connections_that_fit

LOOK_SECONDS = 2.0  # between two looks for runs that do not work, and for newer weights
TICKS_A_LINE = 10  # between two lines about requests that found no room
TELL_SECONDS = 1.0  # that being told takes


class Server(uvicorn.Server):
    """uvicorn, ending as it is written above."""

    def __init__(
        self,
        served: Served,
        host: str,
        port: int,
        report: Callable[[str], None] = lambda _: None,
        opened: Callable[[str], None] | None = None,
    ) -> None:
        """`opened`: called with the address of the live page, once it can be asked for."""
        asked = served.limits.connections
        most, backlog = connections_that_fit(asked)
        if most < asked:
            report(
                _(
                    "this process may have few files open, so it takes {most:,} connections at a time, not {asked:,}",
                    most,
                    asked,
                )
            )
        config = uvicorn.Config(
            served.middleware,
            host=host,
            port=port,
            http=connection_kind(served.middleware, most),
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
        self.served, self.report, self.opened = served, report, opened
        self.asked_to_end_at: float | None = None
        self.told_at: float | None = None
        self.looked_at = 0.0
        self.ready = False
        self.on_ready: Callable[[], None] = lambda: None  # called once every run has answered
        self.look: asyncio.Task[None] | None = None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The first signal ends in good order, a second at once."""
        if self.asked_to_end_at is not None:
            self.force_exit = self.should_exit = True
            return
        self.asked_to_end_at = time.monotonic()
        self.served.models.draining = True

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second: what the runs do, and whether it is time to go."""
        now = time.monotonic()
        if not self.ready and self.served.models.ready():
            self.ready = True
            self.on_ready()
        if not counter % TICKS_A_LINE:
            self.served.middleware.report_overloads()
        if now - self.looked_at > LOOK_SECONDS and (self.look is None or self.look.done()):
            self.looked_at = now
            self.look = asyncio.create_task(self.served.models.look_around())
        if self.asked_to_end_at is not None and not self.should_exit:
            self.should_exit = self.may_end(now)
        return await super().on_tick(counter)

    def may_end(self, now: float) -> bool:
        """Is everything answered, or has everyone been told?"""
        assert self.asked_to_end_at is not None
        if self.told_at is not None:
            return not self.served.middleware.in_flight or now - self.told_at > TELL_SECONDS
        if not self.served.middleware.in_flight:
            return True
        if now - self.asked_to_end_at > self.served.limits.drain_seconds - TELL_SECONDS:
            self.told_at = now
            self.served.middleware.end()
        return False

    def address(self) -> str:
        """Where it listens, once it does."""
        for server in self.servers:
            for listening in server.sockets:
                host, port = listening.getsockname()[:2]
                return f"http://[{host}]:{port}" if listening.family == socket.AF_INET6 else f"http://{host}:{port}"
        return ""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, and say where."""
        await super().startup(sockets=sockets)
        if self.started:
            if self.opened is not None:
                self.opened(f"{self.address()}/open")
            else:
                self.report(_("listening on {address}", self.address()))
