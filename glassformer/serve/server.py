"""What `glassformer serve` does: reads its options, puts the server together, and lets it run from start to SIGTERM.

uvicorn speaks HTTP. It closes whoever is silent only between two requests, so `Connection` does for the first, too. At the first
signal the server is no longer ready and takes no new job, and goes on answering what it has, and probes. When all is answered,
or the time for that is over, whoever still waits is told, and the process ends with exit code 0.
"""

from __future__ import annotations

import asyncio
import gc
import math
import os
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn
from starlette.responses import Response
from starlette.routing import Router
from uvicorn.protocols.http.h11_impl import H11Protocol

from glassformer.api.loading import pick_device
from glassformer.config import VERSION
from glassformer.config.fields import coerce, type_hints
from glassformer.config.recipe import refuse_unknown
from glassformer.errors import ConfigError, UserError
from glassformer.language import _
from glassformer.runs.folder import RunFolder
from glassformer.screen import say
from glassformer.serve.auth import OWNER, Auth, keys_from
from glassformer.serve.libretranslate import Libre, TranslatedFiles
from glassformer.serve.middleware import Metrics, Middleware
from glassformer.serve.models import Models
from glassformer.serve.openai import OpenAI
from glassformer.serve.pages import Pages
from glassformer.serve.requests import OBJECT, Limits, as_json, get, openapi, routes_of
from glassformer.serve.served_run import ServedRun, codes_from
from glassformer.serve.training import Training

SWITCH_SECONDS = 1e-4
END_SECONDS = 3.0  # for threads to end, once all is answered and closed
OTHER_FILES = 128  # that a server may open beside its connections
TICKS_A_LOOK = 20  # between two looks for runs that do not work, and for newer weights; ten ticks are a second
TELL_SECONDS = 1.0  # that being told takes


def allow_connections(count: int) -> None:
    """Ask the system for as many open files as so many connections need, as far as it lets this process have them."""
    with suppress(ImportError, ValueError, OSError):  # Windows has no such limit
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = count + OTHER_FILES if hard == resource.RLIM_INFINITY else min(hard, count + OTHER_FILES)
        if soft != resource.RLIM_INFINITY and soft < wanted:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class Connection(H11Protocol):
    """A connection that is closed when no whole head of a request comes in time."""

    def __init__(self, read_seconds: float, **how: Any) -> None:
        super().__init__(**how)
        self.read_seconds = read_seconds
        self.patience: asyncio.TimerHandle | None = None

    def wait(self) -> None:
        """From now on the head of a request is waited for."""
        self.stop_waiting()
        self.patience = self.loop.call_later(self.read_seconds, self.lose_patience)

    def stop_waiting(self) -> None:
        """A head has come, or nobody is there."""
        if self.patience is not None:
            self.patience.cancel()

    def lose_patience(self) -> None:
        """Close, if no request is being answered."""
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()

    def connection_made(self, transport: Any) -> None:
        """Someone is there, of whom a request is awaited."""
        super().connection_made(transport)
        self.wait()

    def on_response_complete(self) -> None:
        """After an answer the next request is awaited."""
        self.wait()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nobody is there to be waited for any more."""
        self.stop_waiting()
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
        limits = middleware.limits
        allow_connections(limits.connections)
        config = uvicorn.Config(
            middleware,
            host=host,
            port=port,
            http=partial(Connection, limits.read_seconds),  # type: ignore[arg-type]
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            limit_concurrency=limits.connections,
            timeout_keep_alive=math.ceil(limits.read_seconds),
            timeout_graceful_shutdown=2,
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

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, and say where."""
        await super().startup(sockets=sockets)
        if self.started:
            host, port = self.servers[0].sockets[0].getsockname()[:2]
            address = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
            if self.opened is not None:
                self.opened(f"{address}/open")
            else:
                self.report(_("listening on {address}", address))


class Served:
    """The ASGI application: the routes behind the middleware, and what stands behind them."""

    def __init__(
        self,
        models: Models,
        auth: Auth | None = None,
        report: Callable[[str], None] = lambda _: None,
        *,
        examples: bool = False,
        watched: Sequence[Path] = (),
    ) -> None:
        auth = auth or Auth()
        self.models, self.metrics = models, Metrics()
        self.training = Training(watched, models, report)
        self.pages = Pages(models, examples=examples)
        homes = Libre(models, auth), TranslatedFiles(models), OpenAI(models), self.pages, self.training, self
        router = Router([route for home in homes for route in routes_of(home)])
        self.middleware = Middleware(router, auth, self.metrics, models, report)

    def close(self) -> None:
        """Trainings that were begun here end."""
        self.training.close()

    def routes(self) -> list[Any]:
        """Every route there is."""
        return self.middleware.router.routes

    @get("/livez", OBJECT)
    async def live(self) -> Response:
        """Does the process do its work? A supervisor restarts one that does not."""
        fine = self.models.stuck_for() < self.models.limits.dead_seconds
        return as_json({"status": "ok" if fine else "hung"}, 200 if fine else 503)

    @get("/readyz", OBJECT)
    @get("/health", OBJECT)
    async def ready(self) -> Response:
        """Should requests be sent here? Not before every run has answered, while it shuts down, nor when a worker hangs."""
        fine = self.models.ready()
        return as_json({"status": "ok" if fine else "not ready"}, 200 if fine else 503)

    @get("/metrics")
    async def count(self) -> Response:
        """/metrics: requests, times, and the load of each run, as Prometheus scrapes them."""
        return Response(self.metrics.text(self.models), media_type="text/plain; version=0.0.4; charset=utf-8")

    @get("/openapi.json")
    async def schema(self) -> Any:
        """Every route with its fields, as OpenAPI has them."""
        return openapi(self.routes(), VERSION)


def limits_from(settings: Sequence[str]) -> Limits:
    """Limits with changes such as queue=64."""
    hints, changes = type_hints(Limits), {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals:
            raise ConfigError("a limit is set as NAME=VALUE, such as queue=64, not {setting!r}", setting)
        refuse_unknown({name: value}, [field.name for field in fields(Limits)], "limit")
        changes[name] = coerce(value, hints[name], f"limit {name}")
        if changes[name] is not None and changes[name] <= 0:
            raise ConfigError("limit {name} must be above 0, not {value}", name, value)
    return replace(Limits(), **changes)


def served_runs(paths: Sequence[Path], languages: Sequence[str], *, to_look_at: bool = False) -> list[ServedRun]:
    """The runs with their languages; `to_look_at`: those that write nothing, too."""
    for path in paths:
        RunFolder.open(path)  # what is no run, such as a link to itself, is said before its name is asked for
    names = [path.resolve().name for path in paths]
    codes = {}
    for option in languages:
        name, equals, value = option.partition("=")
        if not equals and len(paths) > 1:
            raise ConfigError("with several runs --languages says whose: NAME={option}", option)
        codes[name if equals else names[0]] = codes_from(value if equals else option)
    refuse_unknown(codes, names, "run")
    return [ServedRun(path, codes.get(name), to_look_at=to_look_at) for path, name in zip(paths, names, strict=True)]


def run_server(
    paths: Sequence[Path],
    address: tuple[str, int],
    *,
    languages: Sequence[str] = (),
    key_file: Path | None = None,
    names: tuple[Sequence[str], Sequence[str]] = ((), ()),
    limits: Sequence[str] = (),
    opened: Callable[[str], None] | None = None,
    watched: Sequence[Path] = (),
    **how: Any,
) -> None:
    """Serve until a signal comes. `names`: of hosts and origins. `opened`: called with the address of the live page once it
    can be asked for; who holds the token in it is the runs' owner, who may see their data. `watched`: runs, or folders of
    runs, that are followed while they are trained. `how`: the device and `corrections`, as `Models` takes them."""
    host, port = address
    if not 0 <= port <= 65535:
        raise ConfigError("a port is a number from 0 to 65535, not {port}", port)
    token, is_owners = secrets.token_urlsafe(), opened is not None
    auth = Auth({token: OWNER} if is_owners else keys_from(key_file, host), [*names[0], host], names[1])
    bounds = limits_from(limits)
    runs = served_runs(paths, languages, to_look_at=is_owners)
    for run in runs:
        if run.translates:
            say(_("{name}: {sources} to {target}", run.name, ", ".join(run.sources), run.target))
    pick_device(str(how.get("device", "auto")))  # one that will never answer is told at once, and not by a probe

    async def serve() -> Models:
        models = Models(runs, bounds, report=say, **how)
        served = Served(models, auth, say, examples=is_owners, watched=watched)
        show = opened and (lambda address: opened(f"{address}?token={token}"))
        try:
            # What was loaded stays: no collection looks at it again while requests wait.
            await Server(served.middleware, host, port, say, show, on_ready=gc.freeze).serve()
        finally:
            models.close()
            served.close()
            ending.start()
        return models

    # A thread that lets go of Python's lock (to wait for a GPU, to tokenize) has it back only when the other has held it for
    # so long; with the usual 5 ms HTTP and decoding spend most of their time waiting for one another.
    sys.setswitchinterval(SWITCH_SECONDS)
    ending = threading.Timer(END_SECONDS, os._exit, [0])  # else a thread that hangs would keep the process alive
    ending.daemon = True
    try:
        models = asyncio.run(serve())
    except SystemExit:
        raise UserError(
            "nothing can listen on {host} port {port}; is it taken by another program?", host, port
        ) from None
    finally:
        ending.cancel()
    if models.stuck_for():
        sys.stderr.flush()
        os._exit(0)  # a thread that hangs would keep the process from ending
