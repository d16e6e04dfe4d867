"""A dialect for translators: /v1/translations. A list of texts in one request, answered in their order, with the options of the
search and what the model thinks of its answers; errors as OpenAI's.

    {"model": "en-de", "input": ["A dog.", "A cat."], "n": 2, "num_beams": 4, "length_penalty": 0.6, "scores": true}
    {"id": "trans-…", "object": "list", "model": "en-de", "source": "en", "target": "de", "usage": {…},
     "data": [{"object": "translation", "index": 0, "text": "Ein Hund.", "finish_reason": "stop", "alternatives": […]}, …]}
"""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response

from glassformer.serve.answers import alignment_of, scores_of, unknown_of
from glassformer.serve.api_errors import bad_request
from glassformer.serve.fields import DocumentedRoute, check_at_most, read_as
from glassformer.serve.libretranslate import check_glossary
from glassformer.serve.models import ServedRun
from glassformer.serve.responses import DONE, EventStream, as_json, event_of
from glassformer.serve.service import Service
from glassformer.serve.translation import TranslationJob, TranslationOptions
from glassformer.tasks import Answer, TextConstraints


class TranslationFields(BaseModel):
    """The fields of a request to /v1/translations."""

    model_config = {"extra": "forbid"}  # an option that is misspelt is told, not ignored

    input: str | list[str] = Field(description="The text to translate, or several.")
    model: str | None = Field(None, description="The run that is to answer; none: whichever translates to `target`.")
    source: str | None = Field(None, description="The language of the texts; none: found out.", max_length=20)
    target: str | None = Field(None, description="The language to translate to.", max_length=20)
    n: int = Field(1, ge=1, description="So many translations of each text, the best first.")
    num_beams: int | None = Field(None, ge=1, description="Hypotheses searched side by side; none: as the recipe says.")
    length_penalty: float | None = Field(
        None, ge=-10, le=10, description="The length rule's strength; none: the recipe's."
    )
    temperature: float = Field(0.0, ge=0, le=2, allow_inf_nan=False, description="0: search; above: draw.")
    top_k: int | None = Field(None, ge=1)
    top_p: float | None = Field(None, gt=0, le=1, allow_inf_nan=False)
    seed: int | None = Field(None, ge=0, lt=2**63, description="The same seed draws the same text.")
    max_tokens: int | None = Field(None, ge=1)
    glossary: dict[str, str] = Field({}, description="Where the text has the key, the translation has the value.")
    scores: bool = Field(False, description="Also the model's scores, token by token.")
    alignment: bool = Field(False, description="Also which source tokens each token looked at.")
    stream: bool = Field(False, description="As server-sent events, greedily, while it is written; one text.")

    @property
    def texts(self) -> list[str]:
        """The texts, also where there is one."""
        return [self.input] if isinstance(self.input, str) else self.input


class Translations:
    """The route of the dialect."""

    def __init__(self, service: Service) -> None:
        self.service = service

    def options_of(self, fields: TranslationFields) -> TranslationOptions:
        """What is asked beside the texts, if it is no more than is taken."""
        limits = self.service.limits
        check_at_most("n", fields.n, limits.choices)
        check_at_most("num_beams", fields.num_beams, limits.choices)
        check_at_most("max_tokens", fields.max_tokens, limits.new_tokens)
        check_glossary(fields.glossary, limits.glossary)
        drawn = fields.temperature > 0
        if not drawn and (fields.top_k is not None or fields.top_p is not None):
            name = "top_p" if fields.top_k is None else "top_k"
            raise bad_request(f"{name}: it bounds what is drawn; give a temperature above 0 too", name)
        if drawn and (fields.num_beams or 1) > 1:
            raise bad_request("num_beams: either search with a beam or draw with a temperature", "num_beams")
        wanted = {
            "beam": fields.num_beams,
            "alpha": fields.length_penalty,
            "max_new_tokens": fields.max_tokens,
            "temperature": fields.temperature or None,
            "top_k": fields.top_k,
            "top_p": fields.top_p,
            "seed": (secrets.randbits(62) if fields.seed is None else fields.seed) if drawn else None,
            ("num_samples" if drawn else "n_best"): fields.n if fields.n > 1 else None,
        }
        return TranslationOptions(
            {name: value for name, value in wanted.items() if value is not None},
            TextConstraints(glossary=fields.glossary),
            align=fields.alignment,
        )

    async def run_for(self, fields: TranslationFields) -> tuple[ServedRun, str]:
        """The run that answers, and the language that it reads: of the model that is named nothing else need be said."""
        models = self.service.models
        target = fields.target
        if target is None:
            translators = self.service.translators() if fields.model is None else [models.get(fields.model)]
            targets = {run.target for run in translators}
            if len(targets) != 1:
                raise bad_request(f"target: there are {', '.join(sorted(targets))} here; say which", "target")
            (target,) = targets
        run, source, _ = await self.service.run_for(fields.source or "auto", target, fields.texts, fields.model)
        return run, source

    async def translations(self, request: Request) -> Response:
        """Translate a text or several, with the options of the search."""
        fields = await read_as(request, TranslationFields)
        if not fields.texts:
            raise bad_request("input: an empty list asks for nothing", "input")
        self.service.check_texts(fields.texts, "input")
        options = self.options_of(fields)
        run, source = await self.run_for(fields)
        head = {
            "id": f"trans-{secrets.token_hex(12)}",
            "object": "list",
            "created": int(time.time()),
            "model": run.name,
            "source": source,
            "target": run.target,
        }
        job = TranslationJob(fields.texts, options, streams=fields.stream)
        if fields.stream:
            if len(fields.texts) > 1 or fields.n > 1 or fields.glossary or (fields.num_beams or 1) > 1:
                raise bad_request("stream: one text is streamed, greedily: without n, num_beams and glossary", "stream")
            return EventStream(self.events(run, job, head, fields), job)
        return as_json(head | self.answer(await self.service.ask(run, job), job, fields))

    def answer(
        self, answers_of_texts: Sequence[Sequence[Answer]], job: TranslationJob, fields: TranslationFields
    ) -> dict[str, Any]:
        """The translations of all texts, and how many tokens were read and written."""
        data = []
        for index, answers in enumerate(answers_of_texts):
            best, *others = (self.entry(answer, fields) for answer in answers)
            extra = {"alternatives": others} if others else {}
            data.append(
                {"object": "translation", "index": index} | best | extra | unknown_of(job.unknown[index : index + 1])
            )
        read = sum(len(part.source) for answers in answers_of_texts for part in answers[0].parts)
        written = sum(len(answer.ids) for answers in answers_of_texts for answer in answers)
        usage = {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
        return {"data": data, "usage": usage}

    @staticmethod
    def entry(answer: Answer, fields: TranslationFields) -> dict[str, Any]:
        """One translation, with what was asked for beside it."""
        out: dict[str, Any] = {"text": answer.text, "finish_reason": "length" if answer.ended == "length" else "stop"}
        if fields.scores:
            out["scores"] = scores_of(answer)
        if fields.alignment and all(part.hypothesis.alignment is not None for part in answer.parts):
            out["alignment"] = alignment_of(answer)
        return out

    async def events(
        self, run: ServedRun, job: TranslationJob, head: dict[str, Any], fields: TranslationFields
    ) -> AsyncIterator[bytes]:
        """A translation as it is written: pieces as `delta`, then what would have been answered at once, then [DONE]."""
        async for event in self.service.stream(run, job):
            if isinstance(event, tuple):
                yield event_of(head | self.answer(event[0], job, fields))
            else:
                yield event_of(head | {"object": "translation.chunk", "data": [{"index": 0, "delta": event}]})
        yield DONE

    def routes(self) -> list[DocumentedRoute]:
        """The route, with its schema."""
        answer = {"application/json": {"type": "object", "required": ["data", "usage"]}, "text/event-stream": {}}
        return [DocumentedRoute("/v1/translations", self.translations, answer, fields=TranslationFields)]
