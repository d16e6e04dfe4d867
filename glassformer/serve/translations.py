"""A dialect for translators: /v1/translations. A list of texts in one request, answered in their order, with the options of
the search and what the model thinks of its answers; errors as OpenAI's.

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

from glassformer.serve.models import Models
from glassformer.serve.requests import bad_field, check_at_most
from glassformer.serve.routes import DONE, JSON, EventStream, event_of, post
from glassformer.serve.served_run import ServedRun
from glassformer.serve.translation import (
    TranslationJob,
    TranslationOptions,
    alignment_of,
    scores_of,
    tokens_of,
    unknown_of,
    usage_of,
)
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

    def __init__(self, models: Models) -> None:
        self.models, self.limits = models, models.limits

    def options_of(self, fields: TranslationFields) -> TranslationOptions:
        """What is asked beside the texts, if it is no more than is taken."""
        check_at_most("n", fields.n, self.limits.choices)
        check_at_most("num_beams", fields.num_beams, self.limits.choices)
        check_at_most("max_tokens", fields.max_tokens, self.limits.new_tokens)
        self.limits.check_glossary(fields.glossary)
        samples = fields.temperature > 0
        if not samples and (fields.top_k is not None or fields.top_p is not None):
            name = "top_p" if fields.top_k is None else "top_k"
            raise bad_field(name, "it bounds what is drawn; give a temperature above 0 too")
        if samples and (fields.num_beams or 1) > 1:
            raise bad_field("num_beams", "either search with a beam or draw with a temperature")
        options = {
            "beam": fields.num_beams,
            "alpha": fields.length_penalty,
            "max_new_tokens": fields.max_tokens,
            "temperature": fields.temperature or None,
            "top_k": fields.top_k,
            "top_p": fields.top_p,
            "seed": (secrets.randbits(62) if fields.seed is None else fields.seed) if samples else None,
            ("num_samples" if samples else "n_best"): fields.n if fields.n > 1 else None,
        }
        return TranslationOptions(
            {name: value for name, value in options.items() if value is not None},
            TextConstraints(glossary=fields.glossary),
            align=fields.alignment,
        )

    async def run_for(self, fields: TranslationFields) -> tuple[ServedRun, str]:
        """The run that answers, and the language that it reads: of the model that is named nothing else need be said."""
        target = fields.target
        if target is None:
            runs = self.models.translators() if fields.model is None else [self.models.get(fields.model)]
            targets = {run.target for run in runs}
            if len(targets) != 1:
                raise bad_field("target", f"there are {', '.join(sorted(targets))} here; say which")
            (target,) = targets
        run, source, _ = await self.models.run_for(fields.source or "auto", target, fields.texts, fields.model)
        return run, source

    @post("/v1/translations", {JSON: {"type": "object", "required": ["data", "usage"]}, "text/event-stream": {}})
    async def translations(self, fields: TranslationFields) -> Any:
        """Translate a text or several, with the options of the search."""
        if not fields.texts:
            raise bad_field("input", "an empty list asks for nothing")
        self.limits.check_texts(fields.texts, "input")
        options = self.options_of(fields)
        run, source = await self.run_for(fields)
        name = f"trans-{secrets.token_hex(12)}"
        head = {"id": name, "object": "list", "created": int(time.time()), "model": run.name}
        head |= {"source": source, "target": run.target}
        job = TranslationJob(fields.texts, options, streams=fields.stream)
        if fields.stream:
            if len(fields.texts) > 1 or fields.n > 1 or fields.glossary or (fields.num_beams or 1) > 1:
                raise bad_field("stream", "one text is streamed, greedily: without n, num_beams and glossary")
            return EventStream(self.events(run, job, head, fields), job.cancel)
        return head | self.answer(await self.models.ask(run, job), job, fields)

    def answer(
        self, answers_of_texts: Sequence[Sequence[Answer]], job: TranslationJob, fields: TranslationFields
    ) -> dict[str, Any]:
        """The translations of all texts, and how many tokens were read and written."""
        data = []
        for index, (answers, lost) in enumerate(zip(answers_of_texts, job.unknown, strict=True)):
            best, *others = (self.entry(answer, fields) for answer in answers)
            extra = {"alternatives": others} if others else {}
            data.append({"object": "translation", "index": index} | best | extra | unknown_of([lost]))
        return {"data": data, "usage": usage_of(map(tokens_of, answers_of_texts))}

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
        async for event in self.models.stream(run, job):
            if isinstance(event, tuple):
                yield event_of(head | self.answer(event[0], job, fields))
            else:
                yield event_of(head | {"object": "translation.chunk", "data": [{"index": 0, "delta": event}]})
        yield DONE
