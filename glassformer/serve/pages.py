"""What a browser sees: the page at `/`, the page of the routes at `/docs`, and the report of `look` for a sentence."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from importlib.resources import files

from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from glassformer.inspection.page.bundle import page_files as shared_files
from glassformer.inspection.page.bundle import with_chinese
from glassformer.serve.api_errors import APIError
from glassformer.serve.fields import DocumentedRoute, read_as
from glassformer.serve.jobs import FunctionJob
from glassformer.serve.service import Service
from glassformer.tasks import TextModel

KINDS = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
}
LOOKED_AT = 400  # characters: a report grows with the square of its text


class LookFields(BaseModel):
    """The fields of a request to /look: the text, an answer to force, and the run's name."""

    text: str
    target: str | None = Field(None, description="An answer that is forced on the model.")
    model: str


@cache
def page_files() -> dict[str, bytes]:
    """The modules and styles of this room and the shared ones of inspection/page, by name; ours before theirs."""
    folder = files("glassformer.serve") / "page"
    own = {e.name: e.read_text(encoding="utf-8") for e in folder.iterdir() if e.name.endswith(tuple(KINDS))}
    return {name: text.encode() for name, text in (shared_files() | with_chinese(own)).items()}


def content(name: str, headers: dict[str, str] | None = None) -> Response:
    """A file of the page as a response of its media type; 404 for a name that is none."""
    if name not in page_files():
        raise APIError(404, "there is no such file of the page")
    kind = KINDS[name[name.rindex(".") :]]
    return Response(page_files()[name], media_type=kind, headers=headers)


def report_policy(page: str) -> str:
    """What the report may do: run the one script it came with, and nothing from anywhere else."""
    scripts = re.findall(r'<script type="module">(.*?)</script>', page, re.DOTALL)
    hashes = " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'" for s in scripts)
    return f"default-src 'none'; style-src 'unsafe-inline'; script-src {hashes}; img-src data:; frame-ancestors 'none'"


class Pages:
    """The routes that a browser opens: the page at /, its files, the documentation of the routes, and reports of `look`."""

    def __init__(self, service: Service) -> None:
        self.service = service

    async def home(self, request: Request) -> Response:
        """The page on which one types and sees the translation being written."""
        return content("home.html")

    async def docs(self, request: Request) -> Response:
        """The page that explains every route of the server."""
        return content("docs.html")

    async def file(self, request: Request) -> Response:
        """A script or a style sheet of the page, by its name."""
        return content(request.path_params["name"])

    async def look(self, request: Request) -> Response:
        """The report of `look` on one sentence: a page that needs nothing from outside."""
        fields = await read_as(request, LookFields)
        texts = [fields.text, *([fields.target] if fields.target is not None else [])]
        self.service.check_texts(texts, "text")
        if any(len(text) > LOOKED_AT for text in texts):
            raise APIError(400, f"text: a report is made of at most {LOOKED_AT} characters", param="text")
        run = self.service.models.get(fields.model)

        def report(model: TextModel) -> str:
            from glassformer.inspection import look_inside
            from glassformer.inspection.data import page_data
            from glassformer.inspection.page import page_html

            return page_html(page_data(look_inside(model, fields.text, fields.target), run.name))

        page = await self.service.ask(run, FunctionJob(report))
        body = page.encode("utf-8", "replace")
        return Response(body, media_type=KINDS[".html"], headers={"Content-Security-Policy": report_policy(page)})

    def routes(self) -> list[Route]:
        """Every route of the page; of the report also its schema."""
        ways = ("application/json", "application/x-www-form-urlencoded")
        return [
            Route("/", self.home),
            Route("/docs", self.docs),
            Route("/page/{name}", self.file),
            DocumentedRoute("/look", self.look, {"text/html": {}}, fields=LookFields, kinds=ways),
        ]
