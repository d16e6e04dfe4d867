"""OpenAI's dialect: /v1/models, /v1/completions, /v1/chat/completions.

A GPT goes on with a prompt. A translator answers a prompt with its translation: the prompt, or the last message of the user, is
the source; it searches as its recipe says unless a temperature is given.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response

from glassformer.serve.answers import unknown_of
from glassformer.serve.service import EventStream, Service, as_json, ask, check_texts, event_of, streamed
from glassformer.serve.completion import Choice, Completed, Completing, TokenLogprobs, Wanted
from glassformer.serve.fields import OPENAI_ERROR, body_schema, read, responses
from glassformer.serve.models import ServedRun
from glassformer.serve.api_errors import bad
from glassformer.serve.translation import Asked, Translating
from glassformer.serve.jobs import Call, Work
from glassformer.tasks import Answer, TextConstraints

REFUSALS = (400, 401, 403, 404, 408, 413, 429, 500, 503, 504)
DONE = b"data: [DONE]\n\n"


class Shared(BaseModel):
    """What both kinds of completion are asked."""

    model: str
    max_tokens: int | None = Field(None, ge=0)
    n: int = Field(1, ge=1)
    temperature: float | None = Field(None, ge=0, le=2, allow_inf_nan=False)
    top_p: float | None = Field(None, gt=0, le=1, allow_inf_nan=False)
    stop: str | list[str] | None = None
    seed: int | None = Field(None, ge=-(2**63), lt=2**63)
    stream: bool = False
    stream_options: dict[str, bool] | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    user: str | None = None


class CompletionFields(Shared):
    """What is said to /v1/completions."""

    prompt: str | list[str] | list[int] | list[list[int]] = Field("", description="Texts, or token ids.")
    best_of: int | None = Field(None, ge=1)
    logprobs: int | None = Field(None, ge=0)
    echo: bool = False
    suffix: str | None = None


class ChatFields(Shared):
    """What is said to /v1/chat/completions."""

    messages: list[dict[str, Any]] = Field(min_length=1, description="Each with a role and a content, both text.")
    max_tokens: int | None = Field(None, ge=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    logprobs: bool = False
    top_logprobs: int | None = Field(None, ge=0)


def logprobs_of(own: TokenLogprobs | None) -> dict[str, Any] | None:
    """As completions have them."""
    if own is None:
        return None
    return {"tokens": own.tokens, "token_logprobs": own.logprobs, "top_logprobs": own.top, "text_offset": own.offsets}


def chat_logprobs_of(own: TokenLogprobs | None, most: int) -> dict[str, Any] | None:
    """As chats have them: the `most` likeliest beside each token, which among them or not has its own."""
    if own is None:
        return None

    def one(token: str, value: float | None) -> dict[str, Any]:
        return {"token": token, "logprob": value, "bytes": list(token.encode("utf-8", "replace"))}

    rows = zip(own.tokens, own.logprobs, own.top, strict=True)
    content = [
        one(t, v) | {"top_logprobs": [one(*pair) for pair in [*(top or {}).items()][:most]]} for t, v, top in rows
    ]
    return {"content": content, "refusal": None}


def empty_completions(prompts: Sequence[str], n: int) -> Call:
    """What a translator answers where no token may be written."""
    choices = [Choice("", "length", 0)] * n
    return Call(
        lambda model: [Completed(len(ids), 0, choices) for ids in model.tokenizers.source.encode_batch(prompts)]
    )


class OpenAI:
    """The routes of OpenAI's dialect: models, completions and chat completions, streamed or not."""

    def __init__(self, service: Service) -> None:
        self.service = service

    # ---- what is asked

    def stops_of(self, fields: Shared) -> tuple[str, ...]:
        """Stop strings, if they are not too many or empty."""
        stops = (fields.stop,) if isinstance(fields.stop, str) else tuple(fields.stop or ())
        if len(stops) > self.service.limits.stops or any(not stop or len(stop) > 200 for stop in stops):
            raise bad(f"stop: at most {self.service.limits.stops} strings of 1 to 200 characters", "stop")
        return stops

    def check(self, fields: Shared) -> None:
        """Refuse what is not done here, and more than is taken."""
        for name in ("presence_penalty", "frequency_penalty", "logit_bias"):
            if getattr(fields, name):
                raise bad(f"{name}: this server has none; leave it out", name, "unsupported_parameter")
        limits = self.service.limits
        if fields.n > limits.choices:
            raise bad(f"n: at most {limits.choices} are given here", "n")
        for name in ("max_tokens", "max_completion_tokens"):
            if (getattr(fields, name, None) or 0) > limits.new_tokens:
                raise bad(f"{name}: at most {limits.new_tokens} tokens are written here", name)

    def prompts_of(self, fields: CompletionFields) -> list[str | list[int]]:
        """A list of texts or of ids."""
        given, limits = fields.prompt, self.service.limits
        prompts: list[Any] = [given] if isinstance(given, str) or (given and isinstance(given[0], int)) else list(given)
        if not prompts:
            raise bad("prompt: an empty list asks for nothing", "prompt")
        check_texts([p for p in prompts if isinstance(p, str)], limits, "prompt")
        ids = [p for p in prompts if not isinstance(p, str)]
        if len(prompts) > limits.batch or any(len(p) > limits.text for p in ids) or sum(map(len, ids)) > limits.total:
            raise bad("prompt: more than this server takes at a time", "prompt")
        return prompts

    def drawing(self, run: ServedRun, fields: Shared) -> dict[str, Any]:
        """Temperature, top_p and seed as options of decoding. A translator that is told nothing searches; a GPT draws."""
        temperature = fields.temperature
        if temperature is None:
            temperature = 0.0 if run.translates else 1.0
        options: dict[str, Any] = {"seed": secrets.randbits(62) if fields.seed is None else fields.seed % 2**63}
        if temperature > 0:
            options["temperature"] = temperature
            options |= {"top_p": fields.top_p} if fields.top_p is not None and fields.top_p < 1 else {}
        elif fields.temperature is not None:
            options["temperature"] = 0.0
        return options

    def translating(self, run: ServedRun, fields: Shared, texts: Sequence[str]) -> Work:
        """A translator's work."""
        if fields.max_tokens == 0:
            return empty_completions(texts, fields.n)
        options = self.drawing(run, fields)
        if options.get("temperature"):
            options["num_samples"] = fields.n
        elif fields.n > 1:
            options["n_best"] = fields.n
        if fields.max_tokens is not None:
            options["max_new_tokens"] = fields.max_tokens
        if fields.stream and fields.n > 1:
            raise bad("stream: a translator streams one translation at a time; set n to 1", "stream")
        return Translating(texts, Asked(options, TextConstraints(stops=self.stops_of(fields))), streams=fields.stream)

    # ---- routes

    async def models(self, request: Request) -> Response:
        """Every run by its name."""
        data = [self.card(run) for run in self.service.models.runs.values()]
        return as_json({"object": "list", "data": data})

    async def model(self, request: Request) -> Response:
        """One run by its name."""
        return as_json(self.card(self.service.models.get(request.path_params["name"])))

    def card(self, run: ServedRun) -> dict[str, Any]:
        """What is said of a run."""
        return {"id": run.name, "object": "model", "created": run.made, "owned_by": "glassformer"}

    async def completions(self, request: Request) -> Response:
        """Go on with prompts, or translate them."""
        fields = await read(request, CompletionFields)
        self.check(fields)
        run, limits = self.service.models.get(fields.model), self.service.limits
        prompts = self.prompts_of(fields)
        best_of = fields.best_of or fields.n
        if fields.suffix:
            raise bad(
                "suffix: this server goes on with text and does not fill it in", "suffix", "unsupported_parameter"
            )
        if not fields.n <= best_of <= limits.choices:
            raise bad(f"best_of: from n to {limits.choices}", "best_of")
        if (fields.logprobs or 0) > limits.logprobs:
            raise bad(f"logprobs: at most {limits.logprobs} are given here", "logprobs")
        if fields.stream and best_of > fields.n:
            raise bad("best_of: what is chosen in the end cannot be streamed", "best_of")
        head = self.head("cmpl", "text_completion", run)
        if run.kind == "transformer":
            if (
                fields.echo
                or fields.logprobs is not None
                or any(not isinstance(p, str) for p in prompts)
                or best_of > fields.n
            ):
                raise bad(f"{run.name} translates texts: echo, logprobs, best_of and token ids are a GPT's", "model")
            work: Any = self.translating(run, fields, [p for p in prompts if isinstance(p, str)])
        else:
            most = 16 if fields.max_tokens is None else fields.max_tokens
            wanted = Wanted(
                self.drawing(run, fields), most, fields.n, best_of, self.stops_of(fields), fields.logprobs, fields.echo
            )
            grows = fields.stream and fields.logprobs is None and not fields.echo and most > 0
            work = Completing(prompts, wanted, streams=grows)
        if fields.stream:
            if len(prompts) > 1 and run.kind == "transformer":
                raise bad("stream: a translator streams one text at a time", "stream")
            return EventStream(self.events(request, run, work, head, fields))
        found, usage = self.completed(await ask(request, self.service, run, work))
        choices = [
            {"index": index, "text": one.text, "finish_reason": one.finish, "logprobs": logprobs_of(one.logprobs)}
            for index, one in enumerate(found)
        ]
        return as_json(head | {"choices": choices, "usage": usage} | unknown_of(work.unknown))

    def head(self, prefix: str, kind: str, run: ServedRun) -> dict[str, Any]:
        """What begins every answer."""
        name = f"{prefix}-{secrets.token_hex(12)}"
        return {"id": name, "object": kind, "created": int(time.time()), "model": run.name}

    def completed(self, found: Sequence[Completed | list[Answer]]) -> tuple[list[Choice], dict[str, int]]:
        """Choices of all prompts, and what they cost."""
        choices: list[Choice] = []
        read_, written = 0, 0
        for own in found:
            if isinstance(own, Completed):
                read_, written = read_ + own.prompt_tokens, written + own.written_tokens
                choices += own.choices
            else:
                read_ += sum(len(part.source) for part in own[0].parts)
                written += sum(len(answer.ids) for answer in own)
                choices += [Choice(a.text, "length" if a.ended == "length" else "stop", len(a.ids)) for a in own]
        return choices, {"prompt_tokens": read_, "completion_tokens": written, "total_tokens": read_ + written}

    async def events(
        self, request: Request, run: ServedRun, work: Any, head: dict[str, Any], fields: Shared
    ) -> AsyncIterator[bytes]:
        """A completion as it is written, [DONE] last; what it cost only where that is asked for. Each choice of a chat begins
        with its role."""
        wants_usage = bool((fields.stream_options or {}).get("include_usage"))

        def chunk(index: int, text: str, finish: str | None, own: TokenLogprobs | None = None) -> bytes:
            what: dict[str, Any] = {"text": text, "logprobs": logprobs_of(own)}
            if isinstance(fields, ChatFields):
                delta = {"content": text} if text or finish is None else {}
                what = {"delta": delta, "logprobs": chat_logprobs_of(own, fields.top_logprobs or 0)}
            return sent({"index": index, "finish_reason": finish} | what)

        def sent(choice: dict[str, Any]) -> bytes:
            lost = unknown_of(work.unknown) if choice["finish_reason"] else {}
            return event_of(head | {"choices": [choice]} | ({"usage": None} if wants_usage else {}) | lost)

        begun = not isinstance(fields, ChatFields)
        async for event in streamed(request, self.service, run, work):
            if not begun:
                begun = True
                for index in range(fields.n):
                    opening = {"index": index, "delta": {"role": "assistant", "content": ""}}
                    yield sent(opening | {"finish_reason": None, "logprobs": None})
            if isinstance(event, str):
                yield chunk(0, event, None)
            elif len(event) == 3:
                yield chunk(*event)
            else:
                (found,) = event
                choices, usage = self.completed(found)
                if not work.streams:
                    for index, choice in enumerate(choices):
                        yield chunk(index, choice.text, choice.finish, choice.logprobs)
                elif isinstance(work, Translating):
                    yield chunk(0, "", choices[0].finish)
                if wants_usage:
                    yield event_of(head | {"choices": [], "usage": usage})
        yield DONE

    async def chat(self, request: Request) -> Response:
        """Answer the last message of the user: a translator with its translation, a GPT by going on with the conversation."""
        fields = await read(request, ChatFields)
        self.check(fields)
        run = self.service.models.get(fields.model)
        if fields.max_completion_tokens is not None:
            fields.max_tokens = fields.max_completion_tokens
        if (fields.top_logprobs or 0) > self.service.limits.logprobs:
            raise bad(f"top_logprobs: at most {self.service.limits.logprobs} are given here", "top_logprobs")
        said = [(message_role(m), message_text(m)) for m in fields.messages]
        check_texts([text for _, text in said], self.service.limits, "messages")
        head = self.head("chatcmpl", "chat.completion.chunk" if fields.stream else "chat.completion", run)
        if run.translates:
            last = next((text for role, text in reversed(said) if role == "user"), None)
            if last is None:
                raise bad("messages: a translator answers the last message of the user, and there is none", "messages")
            if fields.logprobs:
                raise bad(f"logprobs: {run.name} translates; see `scores` of /translate", "logprobs")
            work: Any = self.translating(run, fields, [last])
        else:
            prompt = "".join(f"{role}: {text}\n" for role, text in said) + "assistant:"
            top = (fields.top_logprobs or 0) if fields.logprobs else None
            most = 256 if fields.max_tokens is None else fields.max_tokens
            stops = self.stops_of(fields) or ("\nuser:",)
            wanted = Wanted(self.drawing(run, fields), most, fields.n, fields.n, stops, top)
            texts = [text for _, text in said]
            work = Completing([prompt], wanted, streams=fields.stream and top is None, said=texts)
        if fields.stream:
            return EventStream(self.events(request, run, work, head, fields))
        found, usage = self.completed(await ask(request, self.service, run, work))
        choices = [
            {
                "index": index,
                "message": {"role": "assistant", "content": one.text, "refusal": None},
                "finish_reason": one.finish,
                "logprobs": chat_logprobs_of(one.logprobs, fields.top_logprobs or 0),
            }
            for index, one in enumerate(found)
        ]
        return as_json(head | {"choices": choices, "usage": usage} | unknown_of(work.unknown))

    def add_to(self, app: FastAPI) -> None:
        """Every route, with its schema."""
        refused = responses(OPENAI_ERROR, REFUSALS)
        good = responses(OPENAI_ERROR, REFUSALS, {"type": "object"})
        name = {"parameters": [{"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}]}
        add = app.add_api_route
        add("/v1/models", self.models, methods=["GET"], responses=good)
        add("/v1/models/{name}", self.model, methods=["GET"], responses=good, openapi_extra=name)
        stream: dict[int | str, Any] = {200: {"description": "answered; as events with `stream`",
                        "content": {"application/json": {"schema": {"type": "object"}}, "text/event-stream": {}}}}  # fmt: skip
        add("/v1/completions", self.completions, methods=["POST"], responses={**refused, **stream},
            openapi_extra=body_schema(CompletionFields))  # fmt: skip
        add("/v1/chat/completions", self.chat, methods=["POST"], responses={**refused, **stream},
            openapi_extra=body_schema(ChatFields))  # fmt: skip


def message_role(message: dict[str, Any]) -> str:
    """Who said it."""
    role = message.get("role")
    if role not in ("system", "developer", "user", "assistant"):
        raise bad("messages: each has a role: system, developer, user or assistant", "messages")
    return str(role)


def message_text(message: dict[str, Any]) -> str:
    """What was said: a text, or parts of type text."""
    content = message.get("content")
    if isinstance(content, list) and all(isinstance(p, dict) and isinstance(p.get("text"), str) for p in content):
        content = "".join(part["text"] for part in content)
    if not isinstance(content, str):
        raise bad("messages: each has a content, which is text", "messages")
    return content
