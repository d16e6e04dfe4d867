"""All of it together: the routes behind the middleware."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router

from glassformer.config import VERSION
from glassformer.serve.auth import Auth
from glassformer.serve.fields import DocumentedRoute, openapi
from glassformer.serve.languages import Detector
from glassformer.serve.libretranslate import Libre
from glassformer.serve.limits import Limits
from glassformer.serve.metrics import Metrics
from glassformer.serve.middleware import Middleware
from glassformer.serve.models import Models
from glassformer.serve.openai import OpenAI
from glassformer.serve.pages import Pages
from glassformer.serve.questions import Questions
from glassformer.serve.responses import as_json
from glassformer.serve.service import Service
from glassformer.serve.training import Training
from glassformer.serve.translations import Translations


class Served:
    """The ASGI application and what stands behind it."""

    def __init__(
        self,
        models: Models,
        limits: Limits,
        auth: Auth | None = None,
        report: Callable[[str], None] = lambda _: None,
        *,
        examples: bool = False,
        watched: Sequence[Path] = (),
    ) -> None:
        self.models, self.limits = models, limits
        self.metrics = Metrics()
        self.training = Training(watched, models, report)
        auth = auth or Auth()
        codes = {code for run in models.runs.values() for code in (*run.sources, run.target)}
        self.own_files = tempfile.TemporaryDirectory(prefix="glassformer-files-")  # gone with the server
        service = Service(models, limits, Detector(codes), auth, Path(self.own_files.name))
        self.pages = Pages(service, examples=examples)
        status = {"application/json": {"type": "object"}}
        router = Router(
            [
                *Libre(service).routes(),
                *OpenAI(service).routes(),
                *Translations(service).routes(),
                *self.pages.routes(),
                *self.training.routes(),
                *Questions(service, examples=examples).routes(),
                *(
                    DocumentedRoute(path, endpoint, status, errors=(400, 403, 503))
                    for path, endpoint in (("/livez", self.live), ("/readyz", self.ready), ("/health", self.ready))
                ),
                Route("/metrics", self.count),
                Route("/openapi.json", self.schema),
            ]
        )
        self.middleware = Middleware(
            router, auth=auth, limits=limits, metrics=self.metrics, models=models, report=report
        )

    def close(self) -> None:
        """Trainings that were begun here end, and translated files are gone."""
        self.training.close()
        if self.own_files is not None:
            self.own_files.cleanup()

    def routes(self) -> Iterator[Route]:
        """Every route there is."""
        return (route for route in self.middleware.router.routes if isinstance(route, Route))

    async def live(self, request: Request) -> Response:
        """Does the process do its work? A supervisor restarts one that does not."""
        fine = self.models.alive()
        return as_json({"status": "ok" if fine else "hung"}, 200 if fine else 503)

    async def ready(self, request: Request) -> Response:
        """Should requests be sent here? Not before every run has answered, while it shuts down, nor when a worker hangs."""
        fine = self.models.ready()
        return as_json({"status": "ok" if fine else "not ready"}, 200 if fine else 503)

    async def count(self, request: Request) -> Response:
        """/metrics: requests, times, and the load of each run, as Prometheus scrapes them."""
        for name, run in self.models.runs.items():
            self.metrics.loaded.labels(name).set(run.worker is not None)
            self.metrics.held.labels(name).set(run.worker.held if run.worker is not None else 0)
            self.metrics.steps.labels(name).set(run.worker.steps if run.worker is not None else 0)
        return Response(self.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def schema(self, request: Request) -> Response:
        """Every route with its fields, as OpenAPI has them."""
        return as_json(openapi(self.routes(), VERSION))
