"""LibreTranslate's dialect: its routes, fields and errors, with a few fields of our own.

POST /translate        q (a text or a list), source, target, format, alternatives; ours: model, scores, alignment, glossary,
                       stream, num_beams, length_penalty, max_tokens, temperature, top_k, top_p, seed
POST /suggest          q, s (what the translation should have been), source, target; ours: model. Only with `serve --suggestions`
POST /undo             ours: id (of a suggestion), model
POST /detect           q
POST /translate_file   file, source, target: a document, or a text file line by line
GET  /download_file/{name}, /languages, /frontend/settings, /health
"""

from __future__ import annotations

import asyncio
import os
import secrets
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta
from starlette.datastructures import UploadFile
from starlette.requests import Request
from starlette.responses import Response

from glassformer.errors import UserError
from glassformer.formats.documents.reader import ESCAPES, KINDS, Order, Reading
from glassformer.serve.auth import Auth
from glassformer.serve.corrections import Corrections
from glassformer.serve.models import Models, before
from glassformer.serve.requests import (
    JSON,
    OBJECT,
    APIError,
    EventStream,
    Limits,
    bad_field,
    bad_request,
    check_at_most,
    event_of,
    get,
    post,
    read_as,
    read_fields,
)
from glassformer.serve.served_run import ServedRun, name_of
from glassformer.serve.translation import (
    HtmlJob,
    MarkupJob,
    TranslationJob,
    TranslationOptions,
    alignment_of,
    scores_of,
    unknown_of,
)
from glassformer.tasks import Answer, TextConstraints, check_text

KEPT, KEPT_SECONDS = 32, 600.0  # files, and how long each
BYTES = "application/octet-stream"
READER = "glassformer.formats.documents.reader"
FORM = {
    "type": "object",
    "required": ["file", "source", "target"],
    "properties": {
        "file": {"type": "string", "format": "binary"},
        **{name: {"type": "string"} for name in ("source", "target", "api_key")},
    },
}
MEDIA_TYPES = (JSON, "application/x-www-form-urlencoded")
ARRAY, TRANSLATED = {JSON: {"type": "array"}}, {JSON: {"type": "object", "required": ["translatedText"]}}
Code = Annotated[str, Meta(max_length=20, description="A language's code; of the text also auto.")]
RunName = Annotated[str, Meta(description="The run that is meant, where several could be.")]


class TranslateFields(msgspec.Struct, kw_only=True):
    """The fields of a request to /translate."""

    q: Annotated[str | list[str], Meta(description="The text to translate, or several.")]
    source: Code
    target: Code
    format: Literal["text", "html"] = "text"
    alternatives: Annotated[int, Meta(ge=0, description="The number of other translations.")] = 0
    model: RunName | None = None
    scores: Annotated[bool, Meta(description="Also the model's scores, token by token.")] = False
    alignment: Annotated[bool, Meta(description="Also which source tokens each token looked at.")] = False
    glossary: Annotated[dict[str, str], Meta(description="Where the text has the key, the answer has the value.")] = {}
    stream: Annotated[bool, Meta(description="As server-sent events, greedily; one text.")] = False
    num_beams: Annotated[int, Meta(ge=1, description="The width of the search; none: the recipe's.")] | None = None
    length_penalty: Annotated[float, Meta(ge=-10, le=10)] | None = None
    max_tokens: Annotated[int, Meta(ge=1)] | None = None
    temperature: Annotated[float, Meta(ge=0, le=2, description="0: search; above: draw.")] = 0.0
    top_k: Annotated[int, Meta(ge=1)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1, description="The same seed draws the same text.")] | None = None

    def decode_options(self, limits: Limits) -> dict[str, Any]:
        """The options of the search, or of drawing, if they are no more than is taken."""
        check_at_most("alternatives", self.alternatives, limits.alternatives)
        check_at_most("num_beams", self.num_beams, limits.choices)
        check_at_most("max_tokens", self.max_tokens, limits.new_tokens)
        options = {"beam": self.num_beams, "alpha": self.length_penalty, "max_new_tokens": self.max_tokens}
        options |= {"top_k": self.top_k, "top_p": self.top_p, "temperature": self.temperature or None}
        if self.alternatives:
            options["num_samples" if self.temperature else "n_best"] = self.alternatives + 1
        if self.temperature:
            options["seed"] = secrets.randbits(62) if self.seed is None else self.seed
        return {name: value for name, value in options.items() if value is not None}

    def asked_for(self, answers_of_texts: Sequence[Sequence[Answer]]) -> dict[str, Any]:
        """The fields that were asked for, of the best answer to each text; scores of the alternatives as well."""
        out: dict[str, list[Any]] = {}
        if self.scores:
            out["scores"] = [[scores_of(answer) for answer in answers] for answers in answers_of_texts]
        if self.alignment:
            out["alignment"] = [alignment_of(answers[0]) for answers in answers_of_texts]
        return out


class FileFields(msgspec.Struct):
    """The fields of a request to /translate_file, beside the file."""

    source: Code
    target: Code


class DetectFields(msgspec.Struct):
    """The fields of a request to /detect: one text or several."""

    q: str | list[str]


class SuggestFields(msgspec.Struct, kw_only=True):
    """The fields of a request to /suggest: a text, and the translation that it should have had."""

    q: str
    s: Annotated[str, Meta(description="What the translation should have been.")]
    source: Code
    target: Code
    model: RunName | None = None


class UndoFields(msgspec.Struct, kw_only=True):
    """The fields of a request to /undo: a suggestion by its number, and its run."""

    id: int
    model: str


def corrections_of(run: ServedRun) -> Corrections:
    """The corrections of a run; refused where it takes none."""
    if run.corrections is None:
        raise APIError(403, "Suggestions are disabled on this server.")
    return run.corrections


class Libre:
    """The routes of LibreTranslate's dialect: translate texts, correct a translation, detect a language, list languages."""

    def __init__(self, models: Models, auth: Auth) -> None:
        self.models, self.auth, self.limits = models, auth, models.limits

    @post("/translate", TRANSLATED, media_types=MEDIA_TYPES)
    async def translate(self, fields: TranslateFields) -> Any:
        """Translate a text or several."""
        many = isinstance(fields.q, list)
        texts = fields.q if isinstance(fields.q, list) else [fields.q]
        self.limits.check_texts(texts, "q")
        run, source, confidence = await self.models.run_for(fields.source, fields.target, texts, fields.model)
        self.limits.check_glossary(fields.glossary)
        constraints, decode = TextConstraints(glossary=fields.glossary), fields.decode_options(self.limits)
        options = TranslationOptions(decode, constraints, run.corrected(), align=fields.alignment)
        if fields.stream:
            if many or fields.format == "html" or fields.alternatives or fields.glossary or (fields.num_beams or 1) > 1:
                raise bad_field("stream", "one plain text is streamed, without alternatives, num_beams and glossary")
            job = TranslationJob(texts, options, streams=True)
            return EventStream(self.events(run, job, fields), job.cancel)
        job = HtmlJob(texts, options) if fields.format == "html" else TranslationJob(texts, options)
        self.limits.check_rows(len(job.texts))
        answers = await self.models.ask(run, job)
        out: dict[str, list[Any]]  # of each text
        others: list[list[str]]
        if isinstance(job, HtmlJob):  # whose markup has no alternatives
            out, unknown, others = {"translatedText": answers}, job.unknown_by_page(), [[] for _ in texts]
        else:
            out, unknown = {"translatedText": [best.text for best, *_ in answers]}, job.unknown
            out |= fields.asked_for(answers)
            others = [[answer.text for answer in rest] for _, *rest in answers]
        if fields.source == "auto":
            out["detectedLanguage"] = [{"confidence": confidence, "language": source}] * len(texts)
        if fields.alternatives:
            out["alternatives"] = others
        return (out if many else {name: value[0] for name, value in out.items()}) | unknown_of(unknown, each=many)

    async def events(self, run: ServedRun, job: TranslationJob, fields: TranslateFields) -> AsyncIterator[bytes]:
        """A translation as it is written: {"delta": text}, and last what /translate would answer."""
        async for event in self.models.stream(run, job):
            if isinstance(event, tuple):
                ((answers,),) = event
                extra = {name: value[0] for name, value in fields.asked_for([answers]).items()}
                yield event_of({"translatedText": answers[0].text} | unknown_of(job.unknown) | extra)
            else:
                yield event_of({"delta": event})

    @post("/suggest", OBJECT, media_types=MEDIA_TYPES)
    async def suggest(self, fields: SuggestFields, request: Request) -> Any:
        """Correct a translation: from now on this text is answered so (`serve --suggestions`)."""
        self.limits.check_texts([fields.q], "q")
        self.limits.check_texts([fields.s], "s")
        run, _source, _sure = await self.models.run_for(fields.source, fields.target, [fields.q], fields.model)
        holder = request.scope["key_holder"]
        number = await asyncio.to_thread(corrections_of(run).add, fields.q, fields.s, holder)
        return {"success": True, "model": run.name, "id": number}

    @post("/undo", OBJECT, media_types=MEDIA_TYPES)
    async def undo(self, fields: UndoFields, request: Request) -> Any:
        """Take a correction back: one's own, or with the first key anyone's."""
        corrections, holder = corrections_of(self.models.get(fields.model)), request.scope["key_holder"]
        is_owner = self.auth.is_owner(holder)
        await asyncio.to_thread(corrections.remove, fields.id, holder, is_owner=is_owner)
        return {"success": True}

    @post("/detect", ARRAY, media_types=MEDIA_TYPES)
    async def detect(self, fields: DetectFields) -> Any:
        """Which language a text is in; the likeliest first, with a confidence of 0 to 100."""
        texts = [fields.q] if isinstance(fields.q, str) else fields.q
        self.limits.check_texts(texts, "q")
        confidences = await asyncio.to_thread(self.models.detector.confidences, "\n".join(texts))
        return [{"confidence": value, "language": code} for code, value in confidences if value > 0]

    @get("/languages", ARRAY)
    async def languages(self) -> Any:
        """What can be translated to what."""
        table: dict[str, set[str]] = {}
        for run in self.models.translators():
            for code in run.sources:
                table.setdefault(code, set()).add(run.target)
            table.setdefault(run.target, set())
        return [{"code": c, "name": name_of(c), "targets": sorted(t)} for c, t in sorted(table.items())]

    @get("/frontend/settings", OBJECT)
    async def settings(self) -> Any:
        """What LibreTranslate's own page asks first."""
        runs = self.models.translators()
        sides = {"source": runs[0].sources[0], "target": runs[0].target} if runs else {}
        return {
            "apiKeys": bool(self.auth.keys),
            "keyRequired": bool(self.auth.keys),
            "charLimit": self.limits.text,
            "filesTranslation": True,
            "supportedFilesFormat": list(KINDS),
            "frontendTimeout": 500,
            "suggestions": any(run.corrections is not None for run in runs),
            "language": {side: {"code": code, "name": name_of(code)} for side, code in sides.items()},
            "models": {run.name: {"sources": list(run.sources), "target": run.target} for run in runs},
        }


# ---- files


async def output_of(module: str, content: bytes) -> tuple[int, bytes]:
    """The exit code of a module that is run as a program with these bytes on its stdin, and its stdout. What a stranger's
    bytes can make endless is done in a process of its own: it is killed when this is cancelled, and nothing of it is left."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", module), stdin=PIPE, stdout=PIPE, stderr=DEVNULL, start_new_session=True
    )
    try:
        out, _nothing = await process.communicate(content)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None
    return process.returncode, out


class TranslatedFiles:
    """Translated files, kept in memory for a while, under names that cannot be guessed."""

    def __init__(self, models: Models) -> None:
        self.models, self.limits = models, models.limits
        self.kept: dict[str, tuple[float, bytes]] = {}  # by name, since when and what, the oldest first
        self.readers = asyncio.Semaphore(max(2, (os.cpu_count() or 1) // 2))

    @post("/translate_file", OBJECT, schema=FORM, media_types=("multipart/form-data",))
    async def translate_file(self, request: Request) -> Any:
        """Translate a document, its markup kept, or a text file, line by line; the answer says where it is to be fetched."""
        fields = await read_as(request, FileFields)
        file = (await read_fields(request)).get("file")
        if not isinstance(file, UploadFile):
            raise bad_field("file", "a file is needed, as multipart/form-data")
        suffix = PurePosixPath(file.filename or "").suffix.lower()
        if suffix not in KINDS:
            raise bad_field("file", f"its name must end in one of {', '.join(KINDS)}")
        content = await file.read()
        order = Order(f"file{suffix}", self.limits.file_seconds, self.limits.file_memory)
        document = msgspec.json.decode(await self.ask_reader(order, content), type=Reading)
        job = MarkupJob([document.parts], TranslationOptions(), ESCAPES[document.escape])
        self.limits.check_rows(len(job.texts))
        for text in job.texts:
            check_text(text)
            if len(text) > self.limits.text:
                length = f"{len(text):,} characters"
                raise bad_field("file", f"a paragraph of {length} is longer than the {self.limits.text:,} taken here")
        run, _, _ = await self.models.run_for(fields.source, fields.target, ["\n".join(job.texts)[:2000]])
        (parts,) = await self.models.ask(run, job)
        name, now = secrets.token_urlsafe(16) + suffix, time.monotonic()
        newest = [entry for entry in self.kept.items() if now - entry[1][0] < KEPT_SECONDS][1 - KEPT :]
        translated = await self.ask_reader(replace(order, translated=parts), content)
        self.kept = {**dict(newest), name: (now, translated)}
        url = f"{request.scope['scheme']}://{request.headers['host']}/download_file/{name}"
        left = {"paragraphsLeft": document.left} if document.left else {}
        return {"translatedFileUrl": url} | left | unknown_of(job.unknown)

    async def ask_reader(self, order: Order, content: bytes) -> bytes:
        """What the program that reads documents says to an order; few of them work at a time."""
        async with before(self.models.deadline()), self.readers:
            code, answer = await output_of(READER, order.encoded(content))
        if code == UserError.exit_code:
            raise bad_request(answer.decode(), "file")
        if code < 0:  # ended by the system
            raise bad_field("file", "reading it takes more time or memory than is given to one file")
        if code:
            raise RuntimeError("the reader of documents failed")
        return answer

    @get("/download_file/{name}", {BYTES: {}})
    async def download_file(self, name: str) -> Response:
        """The translated file of this name as a download; 404 once it is kept no more."""
        since, content = self.kept.get(name, (-KEPT_SECONDS, b""))
        if time.monotonic() - since > KEPT_SECONDS:
            raise APIError(404, "there is no such file, or it was kept long enough")
        headers = {"Content-Disposition": f'attachment; filename="{name}"'}
        return Response(content, media_type=BYTES, headers=headers)
