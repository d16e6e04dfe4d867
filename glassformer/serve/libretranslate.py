"""LibreTranslate's dialect: its routes, fields and errors, with a few fields of our own.

POST /translate        q (a text or a list), source, target, format, alternatives; ours: model, scores, alignment, trace,
                       glossary, stream
POST /suggest          q, s (what the translation should have been), source, target; ours: model. Only with `serve --learn`
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
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal

import msgspec
from pydantic import BaseModel, BeforeValidator, Field
from starlette.datastructures import UploadFile
from starlette.requests import Request
from starlette.responses import Response

from glassformer.errors import UserError
from glassformer.formats.documents.document import as_is, decoded, joined_like
from glassformer.formats.documents.reader import ESCAPES, KINDS, Order, Reading
from glassformer.serve.auth import Auth
from glassformer.serve.corrections import Learner
from glassformer.serve.models import Models, before
from glassformer.serve.requests import APIError, bad_field, bad_request, check_at_most, from_json, missing, read_fields
from glassformer.serve.routes import JSON, OBJECT, EventStream, event_of, get, post
from glassformer.serve.served_run import ServedRun, name_of
from glassformer.serve.translation import (
    HtmlJob,
    MarkupJob,
    TranslationJob,
    TranslationOptions,
    alignment_of,
    scores_of,
    trace_of,
    unknown_of,
)
from glassformer.tasks import Answer, TextConstraints, check_text
from glassformer.text.markup import Segment

SUFFIXES = (".txt", *KINDS)
KEPT, KEPT_SECONDS = 32, 600.0  # files, and how long each
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


def parse_glossary(value: Any) -> Any:
    """A glossary as a form or query has it: JSON in a string."""
    return from_json(value.encode()) if isinstance(value, str) else value


class TranslateFields(BaseModel):
    """The fields of a request to /translate."""

    q: str | list[str] = Field(description="The text to translate, or several.")
    source: str = Field(description="The language of the text, or auto.", max_length=20)
    target: str = Field(description="The language to translate to.", max_length=20)
    format: Literal["text", "html"] = "text"
    alternatives: int = Field(0, ge=0, description="So many other translations as well.")
    api_key: str | None = None
    model: str | None = Field(None, description="The run that is to answer, where several could.")
    scores: bool = Field(False, description="Also the model's scores, token by token.")
    alignment: bool = Field(False, description="Also which source tokens each token looked at.")
    trace: bool = Field(False, description="Also the story of the beam.")
    glossary: Annotated[dict[str, str], BeforeValidator(parse_glossary)] = Field(
        default_factory=dict, description="Where the text has the key, the translation has the value."
    )
    stream: bool = Field(False, description="As server-sent events, greedily, while it is written; one text.")

    def asked_for(self, answers_of_texts: Sequence[Sequence[Answer]]) -> dict[str, Any]:
        """The fields that were asked for, of the best answer to each text; scores of the alternatives as well."""
        out: dict[str, list[Any]] = {}
        if self.scores:
            out["scores"] = [[scores_of(answer) for answer in answers] for answers in answers_of_texts]
        if self.alignment:
            out["alignment"] = [alignment_of(answers[0]) for answers in answers_of_texts]
        if self.trace:
            out["trace"] = [trace_of(answers[0]) for answers in answers_of_texts]
        return out


class DetectFields(BaseModel):
    """The fields of a request to /detect: one text or several."""

    q: str | list[str]
    api_key: str | None = None


class SuggestFields(BaseModel):
    """The fields of a request to /suggest: a text, and the translation that it should have had."""

    q: str
    s: str = Field(description="What the translation should have been.")
    source: str = Field(max_length=20)
    target: str = Field(max_length=20)
    model: str | None = Field(None, description="The run that is corrected, where several could be.")
    api_key: str | None = None


class UndoFields(BaseModel):
    """The fields of a request to /undo: a suggestion by its number, and its run."""

    id: int
    model: str
    api_key: str | None = None


def learner_of(run: ServedRun) -> Learner:
    """Who learns a run's corrections; refused where it takes none."""
    if run.learner is None:
        raise APIError(403, "Suggestions are disabled on this server.")
    return run.learner


class Libre:
    """The routes of LibreTranslate's dialect: translate texts, correct a translation, detect a language, list languages."""

    def __init__(self, models: Models, auth: Auth) -> None:
        self.models, self.auth, self.limits = models, auth, models.limits

    @post("/translate", TRANSLATED, media_types=MEDIA_TYPES)
    async def translate(self, fields: TranslateFields) -> Any:
        """Translate a text or several."""
        texts = fields.q if isinstance(fields.q, list) else [fields.q]
        self.limits.check_texts(texts, "q")
        run, source, confidence = await self.models.run_for(fields.source, fields.target, texts, fields.model)
        check_at_most("alternatives", fields.alternatives, self.limits.alternatives)
        self.limits.check_glossary(fields.glossary)
        options = TranslationOptions(
            {"n_best": fields.alternatives + 1} if fields.alternatives else {},
            TextConstraints(glossary=fields.glossary),
            align=fields.alignment,
            trace=fields.trace,
        )
        if fields.stream:
            if fields.q is texts or fields.format == "html" or fields.alternatives or fields.trace or fields.glossary:
                raise bad_field("stream", "one plain text is streamed, without alternatives, trace and glossary")
            job = TranslationJob(texts, options, streams=True)
            return EventStream(self.events(run, job, fields), job.cancel)
        job = HtmlJob(texts, options) if fields.format == "html" else TranslationJob(texts, options)
        self.limits.check_rows(len(job.texts))
        answers = await self.models.ask(run, job)
        out: dict[str, list[Any]]  # of each text
        if isinstance(job, HtmlJob):
            out, unknown = {"translatedText": answers}, job.unknown_by_page()
        else:
            out, unknown = {"translatedText": [best.text for best, *_ in answers]}, job.unknown
            out |= fields.asked_for(answers)
        if fields.source == "auto":
            out["detectedLanguage"] = [{"confidence": confidence, "language": source}] * len(texts)
        if fields.alternatives:
            others = [[]] * len(texts) if isinstance(job, HtmlJob) else [rest for _, *rest in answers]  # of markup none
            out["alternatives"] = [[answer.text for answer in rest] for rest in others]
        many = fields.q is texts
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
        """Correct a translation: kept at once, and learned by the model while it goes on answering (`serve --learn`)."""
        self.limits.check_texts([fields.q], "q")
        self.limits.check_texts([fields.s], "s")
        run, _source, _sure = await self.models.run_for(fields.source, fields.target, [fields.q], fields.model)
        kept: list[int] = []
        try:
            async with before(self.models.deadline()):
                learner = learner_of(run)
                taught = await learner.ask(learner.teach, fields.q, fields.s, request.scope["key_holder"], kept)
        except APIError as error:
            if error.status != 504 or not kept:
                raise
            taught = {"id": kept[0], "learned": False, "learning": True}  # it goes on
        return {"success": True, "model": run.name, **taught}

    @post("/undo", OBJECT, media_types=MEDIA_TYPES)
    async def undo(self, fields: UndoFields, request: Request) -> Any:
        """Take a correction back: one's own, or with the first key anyone's. The weights are those from before it."""
        holder = request.scope["key_holder"]
        async with before(self.models.deadline()):
            learner = learner_of(self.models.get(fields.model))
            await learner.ask(learner.undo, fields.id, holder, self.auth.is_owner(holder))
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
            "supportedFilesFormat": list(SUFFIXES),
            "frontendTimeout": 500,
            "suggestions": any(run.learner is not None for run in runs),
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


def read_lines(content: bytes, path: Path) -> Reading:
    """A plain text, of which every line is a text."""
    parts: list[str | Segment] = []
    for line in decoded(content, path).splitlines():
        parts += [Segment(line, []) if line.strip() else line, "\n"]
    return Reading(parts, as_is.__name__, 0)


class TranslatedFiles:
    """Translated files, kept in memory for a while, under names that cannot be guessed."""

    def __init__(self, models: Models) -> None:
        self.models, self.limits = models, models.limits
        self.kept: dict[str, tuple[float, bytes]] = {}  # by name, since when and what, the oldest first
        self.readers = asyncio.Semaphore(max(2, (os.cpu_count() or 1) // 2))

    @post("/translate_file", OBJECT, schema=FORM, media_types=("multipart/form-data",))
    async def translate_file(self, request: Request) -> Any:
        """Translate a document, its markup kept, or a text file, line by line; the answer says where it is to be fetched."""
        values = await read_fields(request)
        file = values.get("file")
        if not isinstance(file, UploadFile):
            raise bad_field("file", "a file is needed, as multipart/form-data")
        suffix = PurePosixPath(file.filename or "").suffix.lower()
        if suffix not in SUFFIXES:
            raise bad_field("file", f"its name must end in one of {', '.join(SUFFIXES)}")
        for name in ("source", "target"):
            if name not in values:
                raise missing(name)
            if not isinstance(values[name], str):
                raise bad_request("source and target are codes of languages", "source")
        source, target = values["source"][:20], values["target"][:20]
        content, is_plain = await file.read(), suffix == ".txt"
        bounds = self.limits.file_seconds, self.limits.file_memory
        order = Order(f"file{suffix}", *bounds, self.options_of(suffix, source, target))
        if is_plain:
            document = read_lines(content, Path("file.txt"))
        else:
            document = msgspec.json.decode(await self.ask_reader(order, content), type=Reading)
        self.check_parts(document.parts, None if is_plain else self.limits.text)
        job = MarkupJob([document.parts], TranslationOptions(), ESCAPES[document.escape])
        self.limits.check_rows(len(job.texts))
        run, _, _ = await self.models.run_for(source, target, ["\n".join(job.texts)[:2000]])
        (parts,) = await self.models.ask(run, job)
        if is_plain:
            translated = joined_like(content)(parts)
        else:
            translated = await self.ask_reader(replace(order, translated=parts), content)
        name = self.keep(suffix, translated)
        url = f"{request.scope['scheme']}://{request.headers['host']}/download_file/{name}"
        left = {"paragraphsLeft": document.left} if document.left else {}
        return {"translatedFileUrl": url} | left | unknown_of(job.unknown)

    def options_of(self, suffix: str, source: str, target: str) -> dict[str, Any]:
        """What the reader of one sort of documents is told."""
        options: dict[str, dict[str, Any]] = {
            ".tmx": {"languages": (() if source == "auto" else (source,), target)},
            ".docx": {"largest": 16 * self.limits.file},
        }
        return options.get(suffix, {})

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

    def check_parts(self, parts: Sequence[str | Segment], most: int | None) -> None:
        """Refuse texts that no model is asked, and paragraphs that are too long for one."""
        for part in parts:
            if isinstance(part, Segment):
                check_text(part.text)
                if most is not None and len(part.text) > most:
                    length = f"{len(part.text):,} characters"
                    raise bad_field("file", f"a paragraph of {length} is longer than the {most:,} taken here")

    def keep(self, suffix: str, content: bytes) -> str:
        """Keeps a file's content and returns the name to fetch it by; what was kept long enough goes, and the oldest make way."""
        now, name = time.monotonic(), secrets.token_urlsafe(16) + suffix
        self.kept[name] = now, content
        for number, (old, (since, _content)) in enumerate(list(self.kept.items())):
            if number < len(self.kept) - KEPT or now - since > KEPT_SECONDS:
                del self.kept[old]
        return name

    @get("/download_file/{name}", {"text/plain": {}})
    async def download_file(self, name: str) -> Response:
        """The translated file of this name as a download; 404 once it is kept no more."""
        since, content = self.kept.get(name, (-KEPT_SECONDS, b""))
        if time.monotonic() - since > KEPT_SECONDS:
            raise APIError(404, "there is no such file, or it was kept long enough")
        is_text = not name.endswith((".docx", ".tmx", ".xlf", ".xliff"))
        media_type = "text/plain; charset=utf-8" if is_text else "application/octet-stream"
        return Response(
            content, media_type=media_type, headers={"Content-Disposition": f'attachment; filename="{name}"'}
        )
