"""Questions that the live page asks about what is on the screen, each a job that ends when nobody waits for it."""

from __future__ import annotations

import itertools
from collections.abc import Generator
from contextlib import suppress
from typing import Any

from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from glassformer.errors import UserError
from glassformer.probe import ablate
from glassformer.runs.folder import RunFolder
from glassformer.serve.api_errors import APIError
from glassformer.serve.fields import read_as
from glassformer.serve.jobs import FunctionJob
from glassformer.serve.pages import LOOKED_AT, MOST_CUT, check_tokens, report_response
from glassformer.serve.responses import as_json
from glassformer.serve.service import Service
from glassformer.serve.training import at_step
from glassformer.tasks import TextModel

MOST_SENTENCES = 64  # of a run's own data
MOST_TRIED = 16  # parts that are cut one by one for a question


class WhyFields(BaseModel):
    """The fields of a request to /open/why: what is on the screen, the number of the output, and the parts to cut one by one."""

    text: str = Field(max_length=LOOKED_AT)
    model: str
    step: int | None = Field(None, ge=0)
    prefix: list[int] = Field([], max_length=LOOKED_AT)
    cut: list[str] = Field([], max_length=MOST_CUT)
    output: int = Field(ge=0)
    parts: list[str] = Field(max_length=MOST_TRIED)


class PatchFields(BaseModel):
    """The fields of a request to /open/patching: two texts, and what is switched off. With a layer and a position, the answer to
    the first is written anew with that activation of the second in it."""

    text: str = Field(max_length=LOOKED_AT)
    other: str = Field(max_length=LOOKED_AT)
    model: str
    step: int | None = Field(None, ge=0)
    cut: list[str] = Field([], max_length=MOST_CUT)
    layer: int | None = Field(None, ge=0)
    position: int = Field(0, ge=0)


class SentenceFields(BaseModel):
    """The fields of a request to /open/sentences: whose data, with the weights of which step, and a part to cut."""

    model: str
    step: int | None = Field(None, ge=0)
    part: str | None = None


def own_sentences(folder: RunFolder) -> tuple[str, list[tuple[str, str | None]]]:
    """The first sentences of a run's test data, or of its validation data: the split, and each text with its right answer."""
    from glassformer.data.store import run_examples

    data = folder.recipe.data
    for split in ("test", "val") if data.task in ("pairs", "text") else ():
        with suppress(UserError, OSError):
            examples = run_examples(data, split, folder.path / "data")
            texts = (e[:2] if data.task == "pairs" else (e.text[:LOOKED_AT].strip(), None) for e in examples)
            if found := list(itertools.islice((e for e in texts if 0 < len(e[0]) <= LOOKED_AT), MOST_SENTENCES)):
                return split, found
    return "", []


class Questions:
    """The routes of the live page's questions. `examples`: texts of the runs' own data may be shown, to their owner."""

    def __init__(self, service: Service, *, examples: bool = False) -> None:
        self.service, self.shows_examples = service, examples

    async def why(self, request: Request) -> Response:
        """What each of some parts is worth to one token of the answer."""
        fields = await read_as(request, WhyFields)
        self.service.check_texts([fields.text], "text")
        run = self.service.models.get(fields.model)

        def tried(model: TextModel) -> Generator[None, None, list[dict[str, Any]]]:
            from glassformer.inspection.cuts import without_each
            from glassformer.inspection.inspection import look_inside

            model = at_step(self.service.models, model, run, fields.step)
            check_tokens(model, fields.text)
            with ablate(model.model, fields.cut):  # the answer is that of the model on the screen
                inside = look_inside(model, fields.text, prefix=fields.prefix, explained=False, tree=False)
            if fields.output >= len(inside.input.positions):
                raise APIError(400, f"output: the answer has {len(inside.input.positions)} outputs", param="output")
            found = []
            for one in without_each(inside, fields.output, fields.parts, fields.cut):
                found.append(one)
                yield  # a cut is never left on while others have their turn
            return found

        return as_json(await self.service.ask(run, FunctionJob(tried)))

    async def patching(self, request: Request) -> Response:
        """How far each activation of another text turns the answer into that text's; or the answer with one of them in it."""
        fields = await read_as(request, PatchFields)
        self.service.check_texts([fields.text, fields.other], "text")
        run = self.service.models.get(fields.model)

        def carried(model: TextModel) -> dict[str, Any]:
            from glassformer.inspection.data import patching_data
            from glassformer.inspection.patching import carried_answer, patch

            model = at_step(self.service.models, model, run, fields.step)
            check_tokens(model, fields.text)
            with ablate(model.model, fields.cut):
                if fields.layer is None:
                    return patching_data(patch(model, fields.text, fields.other))
                return {"answer": carried_answer(model, fields.text, fields.other, fields.layer, fields.position)}

        return report_response(await self.service.ask(run, FunctionJob(carried)))

    async def sentences(self, request: Request) -> Response:
        """Sentences of a run's own data with their losses, and those without a part; none on a server that is for others too."""
        fields = await read_as(request, SentenceFields)
        run = self.service.models.get(fields.model)
        split, texts = own_sentences(run.folder) if self.shows_examples else ("", [])

        def measured(model: TextModel) -> Generator[None, None, list[dict[str, Any]]]:
            from glassformer.inspection.cuts import sentence_losses

            found = []
            for one in sentence_losses(at_step(self.service.models, model, run, fields.step), texts, fields.part):
                found += [] if one is None else [one]
                yield
            return found

        return as_json({"split": split, "sentences": await self.service.ask(run, FunctionJob(measured))})

    def routes(self) -> list[Route]:
        """Every question's route."""
        return [
            Route("/open/why", self.why, methods=["POST"]),
            Route("/open/patching", self.patching, methods=["POST"]),
            Route("/open/sentences", self.sentences, methods=["POST"]),
        ]
