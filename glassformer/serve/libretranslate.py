"""LibreTranslate's dialect: its routes, fields and errors, with a few fields of our own.

POST /translate        q (a text or a list), source, target, format, alternatives; ours: model, scores, alignment, trace,
                       glossary, stream
POST /suggest          q, s (what the translation should have been), source, target; ours: model. Only with `serve --learn`
POST /undo             ours: id (of a suggestion), model
POST /detect           q
GET  /languages, /frontend/settings, /health
POST /translate_file   file, source, target; GET /download_file/{name}
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field
from starlette.requests import Request
from starlette.responses import Response

from glassformer.serve.answers import answer_fields, unknown_of
from glassformer.serve.api_errors import APIError, bad_request
from glassformer.serve.fields import DocumentedRoute, check_at_most, from_json, read_as
from glassformer.serve.languages import name_of
from glassformer.serve.learner import Learner
from glassformer.serve.models import ServedRun
from glassformer.serve.responses import EventStream, as_json, event_of
from glassformer.serve.service import Service, before
from glassformer.serve.translated_files import TranslatedFiles
from glassformer.serve.translation import HtmlJob, TranslationJob, TranslationOptions
from glassformer.serve.worker import check_rows
from glassformer.tasks import TextConstraints

WAYS = ("application/json", "application/x-www-form-urlencoded")


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


class DetectFields(BaseModel):
    """The fields of a request to /detect: one text or several."""

    q: str | list[str]
    api_key: str | None = None


def check_glossary(glossary: dict[str, str], most: int) -> None:
    """Refuse more terms, or longer ones, than are taken."""
    if len(glossary) > most or any(len(k) + len(v) > 200 for k, v in glossary.items()):
        raise bad_request(f"glossary: at most {most} terms of 200 characters are taken here", "glossary")


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


def options_of(service: Service, fields: TranslateFields) -> TranslationOptions:
    """What is asked beside the texts, if it is no more than is taken."""
    limits = service.limits
    check_at_most("alternatives", fields.alternatives, limits.alternatives)
    check_glossary(fields.glossary, limits.glossary)
    options = {"n_best": fields.alternatives + 1} if fields.alternatives else {}
    return TranslationOptions(
        options, TextConstraints(glossary=fields.glossary), align=fields.alignment, trace=fields.trace
    )


class Libre:
    """The routes of LibreTranslate's dialect: translate texts and files, detect a language, list languages."""

    def __init__(self, service: Service) -> None:
        self.service = service

    async def translate(self, request: Request) -> Response:
        """Translate a text or several."""
        fields = await read_as(request, TranslateFields)
        many = isinstance(fields.q, list)
        texts = list(fields.q) if isinstance(fields.q, list) else [fields.q]
        self.service.check_texts(texts, "q")
        run, source, confidence = await self.service.run_for(fields.source, fields.target, texts, fields.model)
        options = options_of(self.service, fields)
        if fields.stream:
            if many or fields.format == "html" or fields.alternatives or fields.trace or fields.glossary:
                raise bad_request(
                    "stream: one plain text is streamed, without alternatives, trace and glossary", "stream"
                )
            job = TranslationJob(texts, options, streams=True)
            return EventStream(self.events(run, job, fields), job)
        html = fields.format == "html"
        job = HtmlJob(texts, options) if html else TranslationJob(texts, options)
        check_rows(len(job.texts), self.service.limits.rows)
        found = await self.service.ask(run, job)
        best = found if html else [answers[0].text for answers in found]
        out: dict[str, Any] = {"translatedText": best if many else best[0]}
        if fields.source == "auto":
            detected = {"confidence": confidence, "language": source}
            out["detectedLanguage"] = [detected] * len(texts) if many else detected
        if fields.alternatives > 0:  # markup has one translation
            others = [[] if html else [answer.text for answer in answers[1:]] for answers in found]
            out["alternatives"] = others if many else others[0]
        if isinstance(job, HtmlJob):
            return as_json(out | unknown_of(job.unknown_by_page(), each=many))
        asked = {"scores": fields.scores, "alignment": fields.alignment, "trace": fields.trace}
        return as_json(out | unknown_of(job.unknown, each=many) | answer_fields(found, many, **asked))

    async def events(self, run: ServedRun, job: TranslationJob, fields: TranslateFields) -> AsyncIterator[bytes]:
        """A translation as it is written: {"delta": text}, and last what /translate would answer."""
        async for event in self.service.stream(run, job):
            if isinstance(event, tuple):
                (answers,) = event
                extra = answer_fields(answers, False, scores=fields.scores, alignment=fields.alignment, trace=False)
                yield event_of({"translatedText": answers[0][0].text} | unknown_of(job.unknown) | extra)
            else:
                yield event_of({"delta": event})

    async def suggest(self, request: Request) -> Response:
        """Correct a translation: kept at once, and learned by the model while it goes on answering (`serve --learn`)."""
        fields = await read_as(request, SuggestFields)
        self.service.check_texts([fields.q], "q")
        self.service.check_texts([fields.s], "s")
        run, _source, _sure = await self.service.run_for(fields.source, fields.target, [fields.q], fields.model)
        kept: list[int] = []
        try:
            async with before(self.service.deadline()):
                taught = await learner_of(run).teach(fields.q, fields.s, request.scope["key_holder"], kept)
        except APIError as error:
            if error.status != 504 or not kept:
                raise
            taught = {"id": kept[0], "learned": False, "learning": True}  # it goes on
        return as_json({"success": True, "model": run.name, **taught})

    async def undo(self, request: Request) -> Response:
        """Take a correction back: one's own, or with the first key anyone's. The weights are those from before it."""
        fields = await read_as(request, UndoFields)
        holder = request.scope["key_holder"]
        async with before(self.service.deadline()):
            learner = learner_of(self.service.models.get(fields.model))
            await learner.undo(fields.id, holder, owner=self.service.auth.is_owner(holder))
        return as_json({"success": True})

    async def detect(self, request: Request) -> Response:
        """Which language a text is in; the likeliest first, with a confidence of 0 to 100."""
        fields = await read_as(request, DetectFields)
        texts = [fields.q] if isinstance(fields.q, str) else list(fields.q)
        self.service.check_texts(texts, "q")
        confidences = await asyncio.to_thread(self.service.detector.confidences, "\n".join(texts))
        return as_json([{"confidence": value, "language": code} for code, value in confidences if value > 0] or [])

    async def languages(self, request: Request) -> Response:
        """What can be translated to what."""
        table: dict[str, set[str]] = {}
        for run in self.service.translators():
            for code in run.sources:
                table.setdefault(code, set()).add(run.target)
            table.setdefault(run.target, set())
        return as_json([{"code": c, "name": name_of(c), "targets": sorted(t)} for c, t in sorted(table.items())])

    async def settings(self, request: Request) -> Response:
        """What LibreTranslate's own page asks first."""
        runs, limits = self.service.translators(), self.service.limits
        first = runs[0] if runs else None
        language: dict[str, Any] = {}
        if first is not None:
            language = {
                "source": {"code": first.sources[0], "name": name_of(first.sources[0])},
                "target": {"code": first.target, "name": name_of(first.target)},
            }
        return as_json(
            {
                "apiKeys": bool(self.service.auth.keys),
                "keyRequired": bool(self.service.auth.keys),
                "charLimit": limits.text,
                "filesTranslation": True,
                "supportedFilesFormat": list(TranslatedFiles.KINDS),
                "frontendTimeout": 500,
                "suggestions": any(run.learner is not None for run in runs),
                "language": language,
                "models": {run.name: {"sources": list(run.sources), "target": run.target} for run in runs},
            }
        )

    def routes(self) -> list[DocumentedRoute]:
        """Every route, with its schema."""
        answer = {"application/json": {"type": "object", "required": ["translatedText"]}}
        array, named = {"application/json": {"type": "array"}}, {"application/json": {"type": "object"}}
        return [
            DocumentedRoute("/translate", self.translate, answer, fields=TranslateFields, kinds=WAYS),
            DocumentedRoute("/suggest", self.suggest, named, fields=SuggestFields, kinds=WAYS),
            DocumentedRoute("/undo", self.undo, named, fields=UndoFields, kinds=WAYS),
            DocumentedRoute("/detect", self.detect, array, fields=DetectFields, kinds=WAYS),
            DocumentedRoute("/languages", self.languages, array),
            DocumentedRoute("/frontend/settings", self.settings, named),
            *TranslatedFiles(self.service).routes(),
        ]
