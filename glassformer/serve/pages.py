"""What a browser sees: the page at `/`, the page of the routes at `/docs`, and the report of `look` for a sentence."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import itertools
import re
from collections.abc import Generator
from contextlib import suppress
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from glassformer.errors import UserError
from glassformer.inspection.page import page_files as shared_files
from glassformer.inspection.page import page_html, page_json, with_chinese
from glassformer.runs.folder import RunFolder
from glassformer.serve.api_errors import APIError, as_api_error
from glassformer.serve.arrays import BYTES, Arrays
from glassformer.serve.fields import DocumentedRoute, read_as
from glassformer.serve.jobs import FunctionJob
from glassformer.serve.responses import as_json
from glassformer.serve.service import Service
from glassformer.serve.training import at_step
from glassformer.tasks import TextModel

KINDS = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
}
MOST_CUT = 1024  # parts
EXAMPLES, EXAMPLE_LENGTH = 4, 80  # texts of a run's own data, each of so many characters at most
LONG_PIECE = 4000  # characters of a document, in which lines are looked for
TOUR = Path(__file__).parents[2] / "docs" / "tour"
LOOKED_AT, TOKENS = 2048, 512  # characters and tokens of a text: a report grows with the square of its tokens


class NextFields(BaseModel):
    """The fields of a request to /next: the text, how the answer begins, and the run's name."""

    text: str
    model: str
    prefix: list[int] = Field([], max_length=LOOKED_AT, description="Token ids that the answer is made to begin with.")
    cut: list[str] = Field(
        [], max_length=MOST_CUT, description="Parts to switch off, such as decoder.0.attention:1 or encoder.0.mlp."
    )
    step: int | None = Field(None, ge=0, description="The weights that the run has kept of this step.")


class LookFields(NextFields):
    """The fields of a request to /look: those of /next, and an answer to force."""

    target: str | None = Field(None, description="An answer that is forced on the model.")
    data: bool = Field(False, description="The report's numbers as JSON, in place of a page.")
    across: bool = Field(False, description="With what each of the kept weights makes of the same answer.")
    binary: bool = Field(
        False,
        description="With data, the arrays as bytes; see glassformer/serve/arrays.py. What cannot be read is `refused` in them.",
    )
    explained: bool = Field(True, description="With attribution, saliency and the beam's tree, which take the longest.")
    draft: list[Annotated[int, Field(ge=0)]] = Field(
        [], max_length=LOOKED_AT, description="Token ids that the answer may be: it is then found sooner."
    )


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


def report_response(data: dict[str, Any]) -> Response:
    """The data of a report, or of a part of one, as JSON."""
    return Response(page_json(data).encode("utf-8", "replace"), media_type="application/json")


def check_tokens(model: TextModel, text: str) -> None:
    """Refuse a text of more tokens than a report is made of."""
    if (count := len(model.tokenizers.source.encode(text))) > TOKENS:
        raise APIError(
            400, f"text: a report is made of at most {TOKENS} tokens, and these are {count}; shorten it", param="text"
        )


def own_examples(folder: RunFolder) -> list[str]:
    """A few short texts of a run's test data, or of its validation data."""
    from glassformer.data.store import run_examples

    data = folder.recipe.data
    for split in ("test", "val"):
        with suppress(UserError, OSError):
            examples = run_examples(data, split, folder.path / "data")
            if data.task == "text":
                texts = (line for piece in examples for line in piece.text[:LONG_PIECE].splitlines())
            else:  # the words of a tagger come one by one
                texts = (text if isinstance(text, str) else " ".join(text) for text, _ in examples)
            short = itertools.islice((" ".join(text[: 4 * EXAMPLE_LENGTH].split()) for text in texts), 64)
            if found := [text for text in dict.fromkeys(short) if 0 < len(text) <= EXAMPLE_LENGTH][:EXAMPLES]:
                return found
    return []


def turned_round(text: str, by_letters: bool) -> str:
    """A text that is unlike those it is one of, of tokens that the model knows: its letters, or its words, from the last to the
    first."""
    return text[::-1].strip() if by_letters else " ".join(reversed(text.split()))


class Pages:
    """The routes that a browser opens: the page at / and /open, its files, the documentation of the routes, and
    reports of `look`. `examples`: texts of the runs' own data may be shown, as on their owner's machine."""

    def __init__(self, service: Service, *, examples: bool = False) -> None:
        self.service, self.shows_examples, self.arrays = service, examples, Arrays()

    async def page(self, request: Request) -> Response:
        """The page on which one types: at / a translator with the lenses below it, at /open the lenses alone."""
        return content("page.html")

    async def docs(self, request: Request) -> Response:
        """The page that explains every route of the server."""
        return content("docs.html")

    async def file(self, request: Request) -> Response:
        """A script or a style sheet of the page, by its name."""
        return content(request.path_params["name"])

    async def look(self, request: Request) -> Response:
        """The report of `look` on one sentence: a page that needs nothing from outside."""
        fields = await read_as(request, LookFields)
        self.check_lengths([fields.text, *([fields.target] if fields.target is not None else [])])
        run = self.service.models.get(fields.model)

        def report(model: TextModel) -> Generator[None, None, dict[str, Any]]:
            from glassformer.inspection.cuts import cut_data
            from glassformer.inspection.data import across_data
            from glassformer.inspection.inspection import checkpoint_views, look_inside

            model = at_step(self.service.models, model, run, fields.step)
            check_tokens(model, fields.text)
            asked = {name: getattr(fields, name) for name in ("cut", "prefix", "explained", "draft")}
            try:
                found = cut_data(model, fields.text, fields.target, run.name, **asked, between=job.check_wanted)
            except UserError as error:
                if not fields.binary:
                    raise
                return {"refused": as_api_error(error).message}  # half a word, as it is typed, is nobody's mistake
            found["step"] = fields.step
            if fields.across and not fields.cut:
                yield
                views = []
                inside = look_inside(
                    model, fields.text, fields.target, prefix=fields.prefix, explained=False, tree=False
                )
                for view in checkpoint_views(RunFolder(run.path), inside):
                    views.append(view)
                    yield
                found["across"] = across_data(views) if len(views) > 1 else []
            return found

        job = FunctionJob(report)
        data = await self.service.ask(run, job)
        if fields.data and fields.binary:
            return Response(self.arrays.packed(data), media_type=BYTES)
        if fields.data:
            return await asyncio.to_thread(report_response, data)
        page = await asyncio.to_thread(page_html, data)
        body = page.encode("utf-8", "replace")
        return Response(body, media_type=KINDS[".html"], headers={"Content-Security-Policy": report_policy(page)})

    def check_lengths(self, texts: list[str]) -> None:
        """Refuse texts that a report would take too long for."""
        self.service.check_texts(texts, "text")
        if any(len(text) > LOOKED_AT for text in texts):
            raise APIError(400, f"text: a report is made of at most {LOOKED_AT} characters", param="text")

    async def next(self, request: Request) -> Response:
        """The distribution of the token that follows a prefix of the answer."""
        fields = await read_as(request, NextFields)
        self.check_lengths([fields.text])
        run = self.service.models.get(fields.model)

        def distribution(model: TextModel) -> dict[str, Any]:
            from glassformer.inspection.search import next_token_data

            model = at_step(self.service.models, model, run, fields.step)
            check_tokens(model, fields.text)
            return next_token_data(model, fields.text, fields.prefix, fields.cut)

        return report_response(await self.service.ask(run, FunctionJob(distribution)))

    async def examples(self, request: Request) -> Response:
        """A few short texts of a run's own test or validation data and one unlike them, none where the server is not its owner's
        alone; and whether the pages of the tour are here."""
        run = self.service.models.get(request.path_params["model"])
        examples = own_examples(run.folder) if self.shows_examples else []
        stray = turned_round(examples[0], run.folder.recipe.data.tokenizer == "char") if examples else None
        return as_json({"examples": examples, "stray": stray, "tour": TOUR.is_dir()})

    async def tour(self, request: Request) -> Response:
        """A page of the tour, as its source has it; only where the documents lie beside the package."""
        path = next((page for page in TOUR.glob("*.md") if page.stem == request.path_params["name"]), None)
        if path is None:
            raise APIError(404, "there is no such page of the tour here; it is in docs/tour of the source")
        return Response(path.read_bytes(), media_type="text/plain; charset=utf-8")

    def routes(self) -> list[Route]:
        """Every route of the page; of the report also its schema."""
        ways = ("application/json", "application/x-www-form-urlencoded")
        return [
            *self.arrays.routes(),
            Route("/", self.page),
            Route("/open", self.page),
            Route("/open/{model}/examples", self.examples),
            Route("/docs", self.docs),
            Route("/tour/{name}", self.tour),
            Route("/page/{name}", self.file),
            DocumentedRoute("/next", self.next, {"application/json": {}}, fields=NextFields),
            DocumentedRoute("/look", self.look, {"text/html": {}}, fields=LookFields, kinds=ways),
        ]
