"""OpenAI's dialect: /v1/models, /v1/completions, /v1/chat/completions.

A GPT goes on with a prompt. A translator answers a prompt with its translation: the prompt, or the last message of the user, is
the source; it searches as its recipe says unless a temperature is given.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response

from glassformer.serve.answers import unknown_of
from glassformer.serve.api_errors import bad_request
from glassformer.serve.completion import Choice, Completed, CompletionJob, CompletionOptions, TokenLogprobs
from glassformer.serve.fields import DocumentedRoute, check_at_most, read_as
from glassformer.serve.jobs import FunctionJob, ServerJob
from glassformer.serve.models import ServedRun
from glassformer.serve.responses import DONE, EventStream, as_json, event_of
from glassformer.serve.service import Service
from glassformer.serve.translation import TranslationJob, TranslationOptions
from glassformer.tasks import Answer, TextConstraints


class GenerationFields(BaseModel):
    """The fields that both kinds of completion share."""

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


class CompletionFields(GenerationFields):
    """The fields of a request to /v1/completions."""

    prompt: str | list[str] | list[int] | list[list[int]] = Field("", description="Texts, or token ids.")
    best_of: int | None = Field(None, ge=1)
    logprobs: int | None = Field(None, ge=0)
    echo: bool = False
    suffix: str | None = None


class ChatFields(GenerationFields):
    """The fields of a request to /v1/chat/completions."""

    messages: list[dict[str, Any]] = Field(min_length=1, description="Each with a role and a content, both text.")
    max_tokens: int | None = Field(None, ge=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    logprobs: bool = False
    top_logprobs: int | None = Field(None, ge=0)


def logprobs_of(logprobs: TokenLogprobs | None) -> dict[str, Any] | None:
    """As completions have them."""
    if logprobs is None:
        return None
    return {
        "tokens": logprobs.tokens,
        "token_logprobs": logprobs.logprobs,
        "top_logprobs": logprobs.top,
        "text_offset": logprobs.offsets,
    }


def chat_logprobs_of(logprobs: TokenLogprobs | None, most: int) -> dict[str, Any] | None:
    """As chats have them: the `most` likeliest beside each token, which among them or not has its own."""
    if logprobs is None:
        return None

    def entry(token: str, value: float | None) -> dict[str, Any]:
        return {"token": token, "logprob": value, "bytes": list(token.encode("utf-8", "replace"))}

    rows = zip(logprobs.tokens, logprobs.logprobs, logprobs.top, strict=True)
    content = [
        entry(t, v) | {"top_logprobs": [entry(*pair) for pair in [*(top or {}).items()][:most]]} for t, v, top in rows
    ]
    return {"content": content, "refusal": None}


def empty_completions(prompts: Sequence[str], n: int) -> FunctionJob:
    """What a translator answers where no token may be written."""
    choices = [Choice("", "length", 0)] * n
    return FunctionJob(
        lambda model: [Completed(len(ids), 0, choices) for ids in model.tokenizers.source.encode_batch(prompts)]
    )


class OpenAI:
    """The routes of OpenAI's dialect: models, completions and chat completions, streamed or not."""

    def __init__(self, service: Service) -> None:
        self.service = service

    # ---- what is asked

    def stops_of(self, fields: GenerationFields) -> tuple[str, ...]:
        """Stop strings, if they are not too many or empty."""
        stops = (fields.stop,) if isinstance(fields.stop, str) else tuple(fields.stop or ())
        if len(stops) > self.service.limits.stops or any(not stop or len(stop) > 200 for stop in stops):
            raise bad_request(f"stop: at most {self.service.limits.stops} strings of 1 to 200 characters", "stop")
        return stops

    def check(self, fields: GenerationFields) -> None:
        """Refuse what is not done here, and more than is taken."""
        for name in ("presence_penalty", "frequency_penalty", "logit_bias"):
            if getattr(fields, name):
                raise bad_request(f"{name}: this server has none; leave it out", name, "unsupported_parameter")
        limits = self.service.limits
        check_at_most("n", fields.n, limits.choices)
        for name in ("max_tokens", "max_completion_tokens"):
            if (getattr(fields, name, None) or 0) > limits.new_tokens:
                raise bad_request(f"{name}: at most {limits.new_tokens} tokens are written here", name)

    def prompts_of(self, fields: CompletionFields) -> list[str | list[int]]:
        """A list of texts or of ids."""
        given, limits = fields.prompt, self.service.limits
        prompts: list[Any] = [given] if isinstance(given, str) or (given and isinstance(given[0], int)) else list(given)
        if not prompts:
            raise bad_request("prompt: an empty list asks for nothing", "prompt")
        self.service.check_texts([p for p in prompts if isinstance(p, str)], "prompt")
        ids = [p for p in prompts if not isinstance(p, str)]
        if len(prompts) > limits.batch or any(len(p) > limits.text for p in ids) or sum(map(len, ids)) > limits.total:
            raise bad_request("prompt: more than this server takes at a time", "prompt")
        return prompts

    def drawing(self, run: ServedRun, fields: GenerationFields) -> dict[str, Any]:
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

    def translating(self, run: ServedRun, fields: GenerationFields, texts: Sequence[str]) -> ServerJob:
        """A translator's job."""
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
            raise bad_request("stream: a translator streams one translation at a time; set n to 1", "stream")
        return TranslationJob(
            texts, TranslationOptions(options, TextConstraints(stops=self.stops_of(fields))), streams=fields.stream
        )

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
        fields = await read_as(request, CompletionFields)
        self.check(fields)
        run, limits = self.service.models.get(fields.model), self.service.limits
        prompts = self.prompts_of(fields)
        best_of = fields.best_of or fields.n
        if fields.suffix:
            raise bad_request(
                "suffix: this server goes on with text and does not fill it in", "suffix", "unsupported_parameter"
            )
        if not fields.n <= best_of <= limits.choices:
            raise bad_request(f"best_of: from n to {limits.choices}", "best_of")
        check_at_most("logprobs", fields.logprobs, limits.logprobs)
        if fields.stream and best_of > fields.n:
            raise bad_request("best_of: what is chosen in the end cannot be streamed", "best_of")
        head = self.head("cmpl", "text_completion", run)
        if run.kind == "transformer":
            if (
                fields.echo
                or fields.logprobs is not None
                or any(not isinstance(p, str) for p in prompts)
                or best_of > fields.n
            ):
                raise bad_request(
                    f"{run.name} translates texts: echo, logprobs, best_of and token ids are a GPT's", "model"
                )
            job: Any = self.translating(run, fields, [p for p in prompts if isinstance(p, str)])
        else:
            most = 16 if fields.max_tokens is None else fields.max_tokens
            options = CompletionOptions(
                self.drawing(run, fields), most, fields.n, best_of, self.stops_of(fields), fields.logprobs, fields.echo
            )
            grows = fields.stream and fields.logprobs is None and not fields.echo and most > 0
            job = CompletionJob(prompts, options, streams=grows)
        if fields.stream and len(prompts) > 1 and run.kind == "transformer":
            raise bad_request("stream: a translator streams one text at a time", "stream")
        return await self.respond(run, job, head, fields)

    def head(self, prefix: str, kind: str, run: ServedRun) -> dict[str, Any]:
        """What begins every answer."""
        name = f"{prefix}-{secrets.token_hex(12)}"
        return {"id": name, "object": kind, "created": int(time.time()), "model": run.name}

    def completed(self, answers: Sequence[Completed | list[Answer]]) -> tuple[list[Choice], dict[str, int]]:
        """Choices of all prompts, and what they cost."""
        choices: list[Choice] = []
        read, written = 0, 0
        for answer in answers:
            if isinstance(answer, Completed):
                read, written = read + answer.prompt_tokens, written + answer.written_tokens
                choices += answer.choices
            else:
                read += sum(len(part.source) for part in answer[0].parts)
                written += sum(len(a.ids) for a in answer)
                choices += [Choice(a.text, "length" if a.ended == "length" else "stop", len(a.ids)) for a in answer]
        return choices, {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}

    async def events(
        self, run: ServedRun, job: Any, head: dict[str, Any], fields: GenerationFields
    ) -> AsyncIterator[bytes]:
        """A completion as it is written, [DONE] last; what it cost only where that is asked for. Each choice of a chat begins
        with its role."""
        wants_usage = bool((fields.stream_options or {}).get("include_usage"))

        def chunk(index: int, text: str, finish: str | None, logprobs: TokenLogprobs | None = None) -> bytes:
            content: dict[str, Any] = {"text": text, "logprobs": logprobs_of(logprobs)}
            if isinstance(fields, ChatFields):
                delta = {"content": text} if text or finish is None else {}
                content = {"delta": delta, "logprobs": chat_logprobs_of(logprobs, fields.top_logprobs or 0)}
            return sent({"index": index, "finish_reason": finish} | content)

        def sent(choice: dict[str, Any]) -> bytes:
            lost = unknown_of(job.unknown) if choice["finish_reason"] else {}
            return event_of(head | {"choices": [choice]} | ({"usage": None} if wants_usage else {}) | lost)

        begun = not isinstance(fields, ChatFields)
        async for event in self.service.stream(run, job):
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
                (answers,) = event
                choices, usage = self.completed(answers)
                if not job.streams:
                    for index, choice in enumerate(choices):
                        yield chunk(index, choice.text, choice.finish, choice.logprobs)
                elif isinstance(job, TranslationJob):
                    yield chunk(0, "", choices[0].finish)
                if wants_usage:
                    yield event_of(head | {"choices": [], "usage": usage})
        yield DONE

    async def chat(self, request: Request) -> Response:
        """Answer the last message of the user: a translator with its translation, a GPT by going on with the conversation."""
        fields = await read_as(request, ChatFields)
        self.check(fields)
        run = self.service.models.get(fields.model)
        if fields.max_completion_tokens is not None:
            fields.max_tokens = fields.max_completion_tokens
        check_at_most("top_logprobs", fields.top_logprobs, self.service.limits.logprobs)
        messages = [(message_role(m), message_text(m)) for m in fields.messages]
        self.service.check_texts([text for _, text in messages], "messages")
        head = self.head("chatcmpl", "chat.completion.chunk" if fields.stream else "chat.completion", run)
        if run.translates:
            last = next((text for role, text in reversed(messages) if role == "user"), None)
            if last is None:
                raise bad_request(
                    "messages: a translator answers the last message of the user, and there is none", "messages"
                )
            if fields.logprobs:
                raise bad_request(f"logprobs: {run.name} translates; see `scores` of /translate", "logprobs")
            job: Any = self.translating(run, fields, [last])
        else:
            prompt = "".join(f"{role}: {text}\n" for role, text in messages) + "assistant:"
            top = (fields.top_logprobs or 0) if fields.logprobs else None
            most = 256 if fields.max_tokens is None else fields.max_tokens
            stops = self.stops_of(fields) or ("\nuser:",)
            options = CompletionOptions(self.drawing(run, fields), most, fields.n, fields.n, stops, top)
            texts = [text for _, text in messages]
            job = CompletionJob([prompt], options, streams=fields.stream and top is None, texts=texts)
        return await self.respond(run, job, head, fields)

    async def respond(self, run: ServedRun, job: Any, head: dict[str, Any], fields: GenerationFields) -> Response:
        """The response of both kinds of completion: at once, or streamed."""
        if fields.stream:
            return EventStream(self.events(run, job, head, fields), job)
        choices, usage = self.completed(await self.service.ask(run, job))
        written = []
        for index, choice in enumerate(choices):
            content: dict[str, Any] = {"text": choice.text, "logprobs": logprobs_of(choice.logprobs)}
            if isinstance(fields, ChatFields):
                message = {"role": "assistant", "content": choice.text, "refusal": None}
                content = {"message": message, "logprobs": chat_logprobs_of(choice.logprobs, fields.top_logprobs or 0)}
            written.append({"index": index, "finish_reason": choice.finish} | content)
        return as_json(head | {"choices": written, "usage": usage} | unknown_of(job.unknown))

    def routes(self) -> list[DocumentedRoute]:
        """Every route, with its schema."""
        answer = {"application/json": {"type": "object"}}
        events = {**answer, "text/event-stream": {}}
        return [
            DocumentedRoute("/v1/models", self.models, answer),
            DocumentedRoute("/v1/models/{name}", self.model, answer),
            DocumentedRoute("/v1/completions", self.completions, events, fields=CompletionFields),
            DocumentedRoute("/v1/chat/completions", self.chat, events, fields=ChatFields),
        ]


def message_role(message: dict[str, Any]) -> str:
    """Who said it."""
    role = message.get("role")
    if role not in ("system", "developer", "user", "assistant"):
        raise bad_request("messages: each has a role: system, developer, user or assistant", "messages")
    return str(role)


def message_text(message: dict[str, Any]) -> str:
    """What was said: a text, or parts of type text."""
    content = message.get("content")
    if isinstance(content, list) and all(isinstance(p, dict) and isinstance(p.get("text"), str) for p in content):
        content = "".join(part["text"] for part in content)
    if not isinstance(content, str):
        raise bad_request("messages: each has a content, which is text", "messages")
    return content
