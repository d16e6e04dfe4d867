"""LibreTranslate's dialect: its routes, fields and errors, with a few fields of our own.

POST /translate        q (a text or a list), source, target, format, alternatives; ours: model, scores, alignment, trace,
                       glossary, stream
POST /detect           q
GET  /languages, /frontend/settings, /health
POST /translate_file   file, source, target; GET /download_file/{name}
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

from fastapi import FastAPI
from pydantic import BaseModel, BeforeValidator, Field
from starlette.requests import Request
from starlette.responses import Response

from glassformer.serve.answers import answer_fields, unknown_of
from glassformer.serve.service import EventStream, Service, as_json, ask, check_texts, event_of, streamed
from glassformer.serve.fields import LIBRE_ERROR, body_schema, from_json, read, responses
from glassformer.serve.html_text import HtmlTexts
from glassformer.serve.languages import name_of
from glassformer.serve.models import ServedRun
from glassformer.serve.api_errors import bad
from glassformer.serve.translated_files import TranslatedFiles
from glassformer.serve.translation import Asked, Translating
from glassformer.serve.translators import run_for, translators
from glassformer.serve.worker import too_many_rows
from glassformer.tasks import TextConstraints

REFUSALS = (400, 403, 404, 408, 413, 429, 500, 503, 504)


def listed(value: Any) -> Any:
    """A glossary as a form or query has it: JSON in a string."""
    return from_json(value.encode()) if isinstance(value, str) else value


class TranslateFields(BaseModel):
    """What is said to /translate."""

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
    glossary: Annotated[dict[str, str], BeforeValidator(listed)] = Field(
        default_factory=dict, description="Where the text has the key, the translation has the value."
    )
    stream: bool = Field(False, description="As server-sent events, greedily, while it is written; one text.")


class DetectFields(BaseModel):
    """The fields of a request to /detect: one text or several."""

    q: str | list[str]
    api_key: str | None = None


def asked_of(service: Service, fields: TranslateFields) -> Asked:
    """What is asked beside the texts, if it is no more than is taken."""
    limits = service.limits
    if fields.alternatives > limits.alternatives:
        raise bad(f"alternatives: at most {limits.alternatives} are given here", "alternatives")
    if len(fields.glossary) > limits.glossary or any(len(k) + len(v) > 200 for k, v in fields.glossary.items()):
        raise bad(f"glossary: at most {limits.glossary} terms of 200 characters are taken here", "glossary")
    options = {"n_best": fields.alternatives + 1} if fields.alternatives else {}
    return Asked(options, TextConstraints(glossary=fields.glossary), align=fields.alignment, trace=fields.trace)


class Libre:
    """The routes of LibreTranslate's dialect: translate texts and files, detect a language, list languages."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.files = TranslatedFiles()

    async def translate(self, request: Request) -> Response:
        """Translate a text or several."""
        fields = await read(request, TranslateFields)
        many = isinstance(fields.q, list)
        texts = list(fields.q) if isinstance(fields.q, list) else [fields.q]
        check_texts(texts, self.service.limits, "q")
        asked_for = (self.service, fields.source, fields.target, "\n".join(texts)[:2000], fields.model)
        finds_out = fields.source == "auto"
        run, source, confidence = await asyncio.to_thread(run_for, *asked_for) if finds_out else run_for(*asked_for)
        asked = asked_of(self.service, fields)
        if fields.stream:
            if many or fields.format == "html" or fields.alternatives or fields.trace or fields.glossary:
                raise bad("stream: one plain text is streamed, without alternatives, trace and glossary", "stream")
            return EventStream(self.events(request, run, Translating(texts, asked, streams=True), fields))
        page = HtmlTexts(texts) if fields.format == "html" else None
        if page is not None and len(page.texts) > self.service.limits.rows:
            raise too_many_rows(self.service.limits.rows)
        work = Translating(texts if page is None else page.texts, asked)
        found = await ask(request, self.service, run, work)
        best = [answers[0].text for answers in found]
        best = best if page is None else page.filled(best)
        out: dict[str, Any] = {"translatedText": best if many else best[0]}
        if fields.source == "auto":
            detected = {"confidence": confidence, "language": source}
            out["detectedLanguage"] = [detected] * len(texts) if many else detected
        if fields.alternatives > 0:
            others = [[answer.text for answer in answers[1:]] for answers in found]
            if page is not None:
                others = [[] for _ in texts]  # markup has one translation
            out["alternatives"] = others if many else others[0]
        lost = work.unknown if page is None else page.gathered(work.unknown)
        out |= unknown_of(lost, each=many)
        if page is None:
            out |= answer_fields(found, many, scores=fields.scores, alignment=fields.alignment, trace=fields.trace)
        return as_json(out)

    async def events(
        self, request: Request, run: ServedRun, work: Translating, fields: TranslateFields
    ) -> AsyncIterator[bytes]:
        """A translation as it is written: {"delta": text}, and last what /translate would answer."""
        async for event in streamed(request, self.service, run, work):
            if isinstance(event, tuple):
                (found,) = event
                extra = answer_fields(found, False, scores=fields.scores, alignment=fields.alignment, trace=False)
                yield event_of({"translatedText": found[0][0].text} | unknown_of(work.unknown) | extra)
            else:
                yield event_of({"delta": event})

    async def detect(self, request: Request) -> Response:
        """Which language a text is in; the likeliest first, with a confidence of 0 to 100."""
        fields = await read(request, DetectFields)
        texts = [fields.q] if isinstance(fields.q, str) else list(fields.q)
        check_texts(texts, self.service.limits, "q")
        found = await asyncio.to_thread(self.service.detector.confidences, "\n".join(texts))
        return as_json([{"confidence": value, "language": code} for code, value in found if value > 0] or [])

    async def languages(self, request: Request) -> Response:
        """What can be translated to what."""
        table: dict[str, set[str]] = {}
        for run in translators(self.service):
            for code in run.sources:
                table.setdefault(code, set()).add(run.target)
            table.setdefault(run.target, set())
        return as_json([{"code": c, "name": name_of(c), "targets": sorted(t)} for c, t in sorted(table.items())])

    async def settings(self, request: Request) -> Response:
        """What LibreTranslate's own page asks first."""
        runs, limits = translators(self.service), self.service.limits
        first = runs[0] if runs else None
        language: dict[str, Any] = {}
        if first is not None:
            language = {
                "source": {"code": first.sources[0], "name": name_of(first.sources[0])},
                "target": {"code": first.target, "name": name_of(first.target)},
            }
        return as_json(
            {
                "apiKeys": self.service.needs_key,
                "keyRequired": self.service.needs_key,
                "charLimit": limits.text,
                "filesTranslation": True,
                "supportedFilesFormat": list(TranslatedFiles.KINDS),
                "frontendTimeout": 500,
                "suggestions": False,
                "language": language,
                "models": {run.name: {"sources": list(run.sources), "target": run.target} for run in runs},
            }
        )

    async def translate_file(self, request: Request) -> Response:
        """Translate a text file, line by line."""
        return await self.files.translate(request, self.service)

    async def download_file(self, request: Request) -> Response:
        """A file that was translated, for a while."""
        return self.files.download(request.path_params["name"])

    def add_to(self, app: FastAPI) -> None:
        """Every route, with its schema."""
        refused = responses(LIBRE_ERROR, REFUSALS)
        good = {"type": "object", "required": ["translatedText"]}
        answered = {**refused, **responses(LIBRE_ERROR, (), good)}
        listed_ = {**refused, **responses(LIBRE_ERROR, (), {"type": "array"})}
        named = {**refused, **responses(LIBRE_ERROR, (), {"type": "object"})}
        add = app.add_api_route
        add("/translate", self.translate, methods=["POST"], responses=answered,
            openapi_extra=body_schema(TranslateFields, form=True))  # fmt: skip
        add("/detect", self.detect, methods=["POST"], responses=listed_,
            openapi_extra=body_schema(DetectFields, form=True))  # fmt: skip
        add("/languages", self.languages, methods=["GET"], responses=listed_)
        add("/frontend/settings", self.settings, methods=["GET"], responses=named)
        add("/translate_file", self.translate_file, methods=["POST"], responses=named, openapi_extra=FILE_SCHEMA)
        add("/download_file/{name}", self.download_file, methods=["GET"], responses=refused, openapi_extra=NAME_SCHEMA)


FILE_FIELDS = {
    "file": {"type": "string", "format": "binary"},
    "source": {"type": "string"},
    "target": {"type": "string"},
    "api_key": {"type": "string"},
}
FILE_SCHEMA = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {"type": "object", "required": ["file", "source", "target"], "properties": FILE_FIELDS}
            }
        },
    }
}
NAME_SCHEMA = {"parameters": [{"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}]}
