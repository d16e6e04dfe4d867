"""All of it together: routes behind the gate."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route

from glassformer.config import VERSION
from glassformer.errors import UserError
from glassformer.serve.service import Service, as_json
from glassformer.serve.auth import Door
from glassformer.serve.fields import LIBRE_ERROR, responses
from glassformer.serve.middleware import Gate, Gone
from glassformer.serve.languages import Detector
from glassformer.serve.libretranslate import Libre
from glassformer.serve.limits import Limits
from glassformer.serve.metrics import Metrics
from glassformer.serve.models import Models
from glassformer.serve.openai import OpenAI
from glassformer.serve.pages import Pages
from glassformer.serve.api_errors import Refused, refusal_of


@dataclass
class Health:
    """Whether the server lives, and whether it is ready, told by what its workers do."""

    models: Models
    limits: Limits

    def alive(self) -> bool:
        """A full queue is life; a worker that has not moved for a minute is not."""
        return all(worker.stuck_for() < self.limits.dead_seconds for worker in self.models.workers())

    def ready(self) -> bool:
        """Will a request that comes now be answered soon? Every run has answered, and none hangs."""
        moving = all(worker.stuck_for() < self.limits.hung_seconds for worker in self.models.workers())
        return moving and not self.models.draining and all(run.works for run in self.models.runs.values())


class Served:
    """The ASGI application and what stands behind it."""

    def __init__(
        self, models: Models, limits: Limits, door: Door | None = None, report: Callable[[str], None] = lambda _: None
    ) -> None:
        self.models, self.limits = models, limits
        self.metrics, self.health = Metrics(), Health(models, limits)
        door = door or Door()
        codes = {code for run in models.runs.values() for code in (*run.sources, run.target)}
        self.service = Service(models, limits, Detector(codes), needs_key=door.key is not None)
        self.app = make_app(self)
        self.gate = Gate(
            self.app,
            door=door,
            limits=limits,
            metrics=self.metrics,
            route_of=self.route_of,
            models=models,
            report=report,
        )

    def route_of(self, scope: Any) -> str:
        """The template of the route that a request goes to; whatever has none is one kind of thing."""
        for route in self.app.routes:
            if isinstance(route, Route) and route.matches(scope)[0] is not Match.NONE:
                return route.path
        return "(none)"

    def routes(self) -> Iterator[Route]:
        """Every route there is."""
        return (route for route in self.app.routes if isinstance(route, Route))

    async def live(self, request: Request) -> Response:
        """Does the process do its work? A supervisor restarts one that does not."""
        fine = self.health.alive()
        return as_json({"status": "ok" if fine else "hung"}, 200 if fine else 503)

    async def ready(self, request: Request) -> Response:
        """Should requests be sent here? Not before every run has answered, while it shuts down, nor when a worker hangs."""
        fine = self.health.ready()
        return as_json({"status": "ok" if fine else "not ready"}, 200 if fine else 503)

    async def count(self, request: Request) -> Response:
        """/metrics: requests, times, and the load of each run, as Prometheus scrapes them."""
        for name, run in self.models.runs.items():
            self.metrics.loaded.labels(name).set(run.worker is not None)
            self.metrics.held.labels(name).set(run.worker.held if run.worker is not None else 0)
            self.metrics.steps.labels(name).set(run.worker.steps if run.worker is not None else 0)
        return Response(self.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


def make_app(served: Served) -> FastAPI:
    """The routes of both dialects, the page, and what operators ask."""
    app = FastAPI(title="glassformer", version=VERSION, docs_url=None, redoc_url=None, openapi_url="/openapi.json")
    Libre(served.service).add_to(app)
    OpenAI(served.service).add_to(app)
    Pages(served.service).add_to(app)
    status = responses(LIBRE_ERROR, (400, 403, 503), {"type": "object"})
    for path, route in (("/livez", served.live), ("/readyz", served.ready), ("/health", served.ready)):
        app.add_api_route(path, route, methods=["GET"], responses=status)
    app.add_api_route("/metrics", served.count, methods=["GET"], include_in_schema=False)

    for kind in (Refused, UserError, HTTPException, Gone, Exception):
        app.add_exception_handler(kind, refused)
    return app


async def refused(request: Request, error: Exception) -> Response:
    """An error in the dialect of its path. Who has gone away hears nothing of it."""
    if isinstance(error, Gone):
        return Response(status_code=499)
    if isinstance(error, HTTPException):
        said = {404: "there is nothing under this path; see /docs", 405: "this path is asked in another way; see /docs"}
        error = Refused(error.status_code, said.get(error.status_code, "this cannot be answered"))
    refusal = refusal_of(error)
    body = msgspec.json.encode(refusal.in_dialect(request.scope["path"]))
    return Response(body, refusal.status, refusal.headers, media_type="application/json")
