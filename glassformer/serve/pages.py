"""What a browser sees: the page at `/`, the page of the routes at `/docs`; and what the live page asks about a text, each a
job that ends when nobody waits for it.

A page gets a report's tensors as bytes. Small ones come with their report; a large one, such as the maps of a layer for a long
text, is held for a while under a name that cannot be guessed, and comes by itself when a view draws it."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import itertools
import re
import secrets
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import suppress
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, Struct
from starlette.responses import Response

from glassformer.data.store import run_examples
from glassformer.errors import UserError
from glassformer.inspection.page import page_files as shared_files
from glassformer.inspection.page import page_html, page_json, with_chinese
from glassformer.probe import ablate
from glassformer.runs.folder import RunFolder
from glassformer.serve.jobs import FunctionJob
from glassformer.serve.models import Models
from glassformer.serve.requests import JSON, APIError, as_api_error, bad_field, get, post
from glassformer.serve.training import at_step
from glassformer.tasks import TextModel

MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
}
BYTES = "application/octet-stream"
MOST_CUT, MOST_TRIED = 1024, 16  # parts that are switched off; parts that are cut one by one for a question
EXAMPLES, EXAMPLE_LENGTH = 4, 80  # texts of a run's own data, each of so many characters at most
MOST_SENTENCES = 64  # of a run's own data
LONG_PIECE = 4000  # characters of a document, in which lines are looked for
TOUR = Path(__file__).parents[2] / "docs" / "tour"
LOOKED_AT, TOKENS = 2048, 512  # characters and tokens of a text: a report grows with the square of its tokens
SMALL = 1 << 16  # bytes of a tensor that comes with its report
HELD = 256 << 20  # bytes of large tensors, the oldest reports' of which are forgotten first


class NextFields(Struct, kw_only=True):
    """The fields of a request to /next: the text, how the answer begins, and the run's name."""

    text: str
    model: str
    prefix: Annotated[list[int], Meta(max_length=LOOKED_AT, description="Token ids that the answer begins with.")] = []
    cut: Annotated[
        list[str], Meta(max_length=MOST_CUT, description="Parts to switch off: decoder.0.attention:1, encoder.0.mlp.")
    ] = []
    step: Annotated[int, Meta(ge=0, description="The weights that the run has kept of this step.")] | None = None


class LookFields(NextFields, kw_only=True):
    """The fields of a request to /look: those of /next, and an answer to force."""

    target: Annotated[str, Meta(description="An answer that is forced on the model.")] | None = None
    data: Annotated[bool, Meta(description="The report's numbers as JSON, in place of a page.")] = False
    across: Annotated[bool, Meta(description="With what each kept checkpoint makes of the same answer.")] = False
    binary: Annotated[
        bool,
        Meta(
            description="With data, the tensors as bytes (see serve/pages.py); what cannot be read is `refused` in them."
        ),
    ] = False
    explained: Annotated[bool, Meta(description="With attribution, saliency and the beam's tree, the slowest.")] = True
    draft: Annotated[
        list[Annotated[int, Meta(ge=0)]],
        Meta(max_length=LOOKED_AT, description="Token ids that the answer may be: it is then found sooner."),
    ] = []


class WhyFields(NextFields, kw_only=True):
    """The fields of a request to /open/why: what is on the screen, the number of the output, and the parts to cut one by one."""

    output: Annotated[int, Meta(ge=0)]
    parts: Annotated[list[str], Meta(max_length=MOST_TRIED)]


class PatchFields(NextFields, kw_only=True):
    """The fields of a request to /open/patching: two texts, and what is switched off. With a layer and a position, the answer
    to the first is written anew with that activation of the second in it."""

    other: str
    layer: Annotated[int, Meta(ge=0)] | None = None
    position: Annotated[int, Meta(ge=0)] = 0


class SentenceFields(Struct, kw_only=True):
    """The fields of a request to /open/sentences: whose data, with the weights of which step, and a part to cut."""

    model: str
    step: Annotated[int, Meta(ge=0)] | None = None
    part: str | None = None


# ---- the run's own data


def from_first_split(folder: RunFolder, choose: Callable[[Iterator[Any]], Iterable[Any]]) -> tuple[str, list[Any]]:
    """What is chosen of a run's test data, or where that is nothing of its validation data; and which of them it was."""
    for split in ("test", "val"):
        with suppress(UserError, OSError):
            if chosen := list(choose(iter(run_examples(folder.recipe.data, split, folder.path / "data")))):
                return split, chosen
    return "", []


def own_examples(folder: RunFolder) -> list[str]:
    """A few short texts of a run's data."""

    def short_texts(examples: Iterator[Any]) -> Iterable[str]:
        if folder.recipe.data.task == "text":
            texts = (line for piece in examples for line in piece.text[:LONG_PIECE].splitlines())
        else:  # the words of a tagger come one by one
            texts = (text if isinstance(text, str) else " ".join(text) for text, _ in examples)
        first = itertools.islice((" ".join(text[: 4 * EXAMPLE_LENGTH].split()) for text in texts), 64)
        return [text for text in dict.fromkeys(first) if 0 < len(text) <= EXAMPLE_LENGTH][:EXAMPLES]

    return from_first_split(folder, short_texts)[1]


def own_sentences(folder: RunFolder) -> tuple[str, list[tuple[str, str | None]]]:
    """The first sentences of a run's data: the split, and each text with its right answer."""
    task = folder.recipe.data.task

    def sentences(examples: Iterator[Any]) -> Iterable[Any]:
        pairs = (e[:2] if task == "pairs" else (e.text[:LOOKED_AT].strip(), None) for e in examples)
        return itertools.islice((pair for pair in pairs if 0 < len(pair[0]) <= LOOKED_AT), MOST_SENTENCES)

    return from_first_split(folder, sentences) if task in ("pairs", "text") else ("", [])


# ---- what a browser opens


@cache
def page_files() -> dict[str, bytes]:
    """The modules and styles of this room and the shared ones of inspection/page, by name; ours before theirs."""
    folder = files("glassformer.serve") / "page"
    own = {e.name: e.read_text(encoding="utf-8") for e in folder.iterdir() if e.name.endswith(tuple(MEDIA_TYPES))}
    return {name: text.encode() for name, text in (shared_files() | with_chinese(own)).items()}


def page_file(name: str) -> Response:
    """A file of the page as a response of its media type; 404 for a name that is none."""
    if name not in page_files():
        raise APIError(404, "there is no such file of the page")
    return Response(page_files()[name], media_type=MEDIA_TYPES[name[name.rindex(".") :]])


def report_policy(page: str) -> str:
    """What the report may do: run the one script it came with, and nothing from anywhere else."""
    scripts = re.findall(r'<script type="module">(.*?)</script>', page, re.DOTALL)
    hashes = " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'" for s in scripts)
    return f"default-src 'none'; style-src 'unsafe-inline'; script-src {hashes}; img-src data:; frame-ancestors 'none'"


def report_response(data: dict[str, Any]) -> Response:
    """The data of a report, or of a part of one, as JSON."""
    return Response(page_json(data).encode("utf-8", "replace"), media_type=JSON)


class Pages:
    """The routes that a browser opens, and those that the live page asks. `examples`: texts of the runs' own data may be
    shown, as on their owner's machine."""

    def __init__(self, models: Models, *, examples: bool = False) -> None:
        self.models, self.shows_examples = models, examples
        self.held: dict[str, list[bytes]] = {}  # the large tensors of a report, by its name

    @get("/")
    @get("/open")
    async def page(self) -> Response:
        """The page on which one types: at / a translator with the lenses below it, at /open the lenses alone."""
        return page_file("page.html")

    @get("/docs")
    async def docs(self) -> Response:
        """The page that explains every route of the server."""
        return page_file("docs.html")

    @get("/page/{name}")
    async def file(self, name: str) -> Response:
        """A script or a style sheet of the page, by its name."""
        return page_file(name)

    @get("/tour/{name}")
    async def tour(self, name: str) -> Response:
        """A page of the tour, as its source has it; only where the documents lie beside the package."""
        path = next((page for page in TOUR.glob("*.md") if page.stem == name), None)
        if path is None:
            raise APIError(404, "there is no such page of the tour here; it is in docs/tour of the source")
        return Response(path.read_bytes(), media_type="text/plain; charset=utf-8")

    @get("/open/{model}/examples")
    async def examples(self, model: str) -> Any:
        """A few short texts of a run's own data and one unlike them, of tokens that the model knows: the first one's letters
        or words from the last to the first; none where the server is not its owner's alone. And whether the tour is here."""
        run = self.models.get(model)
        examples = own_examples(run.folder) if self.shows_examples else []
        by_letters = run.folder.recipe.data.tokenizer == "char"
        strays = [text[::-1] if by_letters else " ".join(reversed(text.split())) for text in examples[:1]]
        return {"examples": examples, "stray": strays[0] if strays else None, "tour": TOUR.is_dir()}

    # ---- what the live page asks

    def packed(self, data: dict[str, Any]) -> bytes:
        """A report: the length of its JSON in four bytes, the JSON, and the small tensors. In the JSON a tensor is [name of
        the report, first byte, bytes], or, of one that is held, [name of the report, number]."""
        name = secrets.token_urlsafe(12)
        small, large = bytearray(), []

        def place(raw: bytes) -> list[str | int]:
            if len(raw) > SMALL:
                large.append(raw)
                return [name, len(large) - 1]
            small.extend(raw)
            return [name, len(small) - len(raw), len(raw)]

        text = page_json(data | {"arrays": name}, place).encode("utf-8", "replace")
        if large:
            self.held[name] = large
        while len(self.held) > 1 and sum(len(raw) for tensors in self.held.values() for raw in tensors) > HELD:
            del self.held[next(iter(self.held))]
        return len(text).to_bytes(4, "little") + text + small

    @get("/open/arrays/{report}/{number}")
    async def tensor(self, report: str, number: str) -> Response:
        """A large tensor of a report that was given out."""
        tensors = {str(place): tensor for place, tensor in enumerate(self.held.get(report, []))}
        if number not in tensors:
            raise APIError(404, "the arrays of this report are not held any more; ask for the report again")
        return Response(tensors[number], media_type=BYTES)

    async def ask(self, fields: NextFields, work: Callable[[TextModel, FunctionJob], Any], *others: str | None) -> Any:
        """What comes of some work on the model that is asked for; refused where the text, or another one, is too long for a
        report."""
        texts = [text for text in (fields.text, *others) if text is not None]
        self.models.limits.check_texts(texts, "text")
        if any(len(text) > LOOKED_AT for text in texts):
            raise bad_field("text", f"a report is made of at most {LOOKED_AT} characters")
        run = self.models.get(fields.model)

        def inspect(model: TextModel) -> Any:
            model = at_step(self.models, model, run, fields.step)
            if (count := len(model.tokenizers.source.encode(fields.text))) > TOKENS:
                raise bad_field(
                    "text", f"a report is made of at most {TOKENS} tokens, and these are {count}; shorten it"
                )
            return work(model, job)

        job = FunctionJob(inspect)
        return await self.models.ask(run, job)

    @post("/next", {JSON: {}})
    async def next(self, fields: NextFields) -> Response:
        """The distribution of the token that follows a prefix of the answer."""
        from glassformer.inspection.search import next_token_data

        def distribution(model: TextModel, job: FunctionJob) -> dict[str, Any]:
            return next_token_data(model, fields.text, fields.prefix, fields.cut)

        return report_response(await self.ask(fields, distribution))

    @post("/look", {"text/html": {}}, media_types=(JSON, "application/x-www-form-urlencoded"))
    async def look(self, fields: LookFields) -> Response:
        """The report of `look` on one sentence: a page that needs nothing from outside."""
        from glassformer.inspection.cuts import cut_data
        from glassformer.inspection.data import across_data
        from glassformer.inspection.inspection import checkpoint_views, look_inside

        def report(model: TextModel, job: FunctionJob) -> Generator[None, None, dict[str, Any]]:
            run = self.models.get(fields.model)
            options = {name: getattr(fields, name) for name in ("cut", "prefix", "explained", "draft")}
            try:
                data = cut_data(model, fields.text, fields.target, run.name, **options, between=job.check_awaited)
            except UserError as error:
                if not fields.binary:
                    raise
                return {"refused": as_api_error(error).message}  # half a word, as it is typed, is nobody's mistake
            data["step"] = fields.step
            if fields.across and not fields.cut:
                yield
                views = []
                inside = look_inside(
                    model, fields.text, fields.target, prefix=fields.prefix, explained=False, tree=False
                )
                for view in checkpoint_views(run.folder, inside):
                    views.append(view)
                    yield
                data["across"] = across_data(views) if len(views) > 1 else []
            return data

        data = await self.ask(fields, report, fields.target)
        if fields.data:
            if fields.binary:
                return Response(self.packed(data), media_type=BYTES)
            return await asyncio.to_thread(report_response, data)
        page = await asyncio.to_thread(page_html, data)
        headers = {"Content-Security-Policy": report_policy(page)}
        return Response(page.encode("utf-8", "replace"), media_type=MEDIA_TYPES[".html"], headers=headers)

    @post("/open/why")
    async def why(self, fields: WhyFields) -> Any:
        """What each of some parts is worth to one token of the answer."""
        from glassformer.inspection.cuts import without_each
        from glassformer.inspection.inspection import look_inside

        def without_parts(model: TextModel, job: FunctionJob) -> Generator[None, None, list[dict[str, Any]]]:
            with ablate(model.model, fields.cut):  # the answer is that of the model on the screen
                inside = look_inside(model, fields.text, prefix=fields.prefix, explained=False, tree=False)
            if fields.output >= len(inside.input.positions):
                raise bad_field("output", f"the answer has {len(inside.input.positions)} outputs")
            answers = []
            for answer in without_each(inside, fields.output, fields.parts, fields.cut):
                answers.append(answer)
                yield  # a cut is never left on while others have their turn
            return answers

        return await self.ask(fields, without_parts)

    @post("/open/patching")
    async def patching(self, fields: PatchFields) -> Response:
        """How far each activation of another text turns the answer into that text's; or the answer with one of them in it."""
        from glassformer.inspection.data import patching_data
        from glassformer.inspection.patching import carried_answer, patch

        def patched(model: TextModel, job: FunctionJob) -> dict[str, Any]:
            with ablate(model.model, fields.cut):
                if fields.layer is None:
                    return patching_data(patch(model, fields.text, fields.other))
                return {"answer": carried_answer(model, fields.text, fields.other, fields.layer, fields.position)}

        return report_response(await self.ask(fields, patched, fields.other))

    @post("/open/sentences")
    async def sentences(self, fields: SentenceFields) -> Any:
        """Sentences of a run's own data with their losses, and those without a part; none on a server that is for others too."""
        from glassformer.inspection.cuts import sentence_losses

        run = self.models.get(fields.model)
        split, texts = own_sentences(run.folder) if self.shows_examples else ("", [])

        def losses(model: TextModel) -> Generator[None, None, list[dict[str, Any]]]:
            rows = []
            for row in sentence_losses(at_step(self.models, model, run, fields.step), texts, fields.part):
                rows += [] if row is None else [row]
                yield
            return rows

        return {"split": split, "sentences": await self.models.ask(run, FunctionJob(losses))}
