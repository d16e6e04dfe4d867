"""What `glassformer serve` does: reads its options, puts the server together, and lets it run until it is told to end."""

from __future__ import annotations

import asyncio
import gc
import os
import secrets
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from starlette.responses import Response
from starlette.routing import Route, Router

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
from glassformer.serve.pages import Inspections, Pages
from glassformer.serve.requests import Limits
from glassformer.serve.routes import OBJECT, as_json, get, openapi, routes_of
from glassformer.serve.served_run import ServedRun, codes_from
from glassformer.serve.server import Server
from glassformer.serve.training import Training
from glassformer.serve.translations import Translations

SWITCH_SECONDS = 1e-4
END_SECONDS = 3.0  # for threads to end, once all is answered and closed


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
        self.inspections = Inspections(models, examples=examples)
        homes = (
            Libre(models, auth),
            TranslatedFiles(models),
            OpenAI(models),
            Translations(models),
            Pages(models, examples=examples),
            self.inspections,
            self.training,
            self,
        )
        router = Router([route for home in homes for route in routes_of(home)])
        self.middleware = Middleware(router, auth, self.metrics, models, report)

    def close(self) -> None:
        """Trainings that were begun here end."""
        self.training.close()

    def routes(self) -> Iterator[Route]:
        """Every route there is."""
        return (route for route in self.middleware.router.routes if isinstance(route, Route))

    @get("/livez", OBJECT, errors=(400, 403, 503))
    async def live(self) -> Response:
        """Does the process do its work? A supervisor restarts one that does not."""
        fine = self.models.stuck_for() < self.models.limits.dead_seconds
        return as_json({"status": "ok" if fine else "hung"}, 200 if fine else 503)

    @get("/readyz", OBJECT, errors=(400, 403, 503))
    @get("/health", OBJECT, errors=(400, 403, 503))
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
    runs, that are followed while they are trained. `how`: the device and `learn`, as `Models` takes them."""
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
    for device in str(how.get("device", "auto")).split(","):
        pick_device(device.strip())  # a machine that will never answer is told at once, and not by a probe

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
