"""OpenAI's dialect: /v1/models, /v1/completions, /v1/chat/completions.

A GPT goes on with a prompt. A translator answers a prompt with its translation: the prompt, or the last message of the user,
is the source; it searches as its recipe says unless a temperature is given.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from starlette.responses import Response

from glassformer.serve.completion import Choice, Completed, CompletionJob, CompletionOptions
from glassformer.serve.jobs import ServerJob
from glassformer.serve.models import Models
from glassformer.serve.requests import (
    DONE,
    OBJECT,
    EventStream,
    as_json,
    bad_field,
    bad_request,
    check_at_most,
    event_of,
    get,
    post,
)
from glassformer.serve.served_run import ServedRun
from glassformer.serve.translation import TranslationJob, TranslationOptions, tokens_of, unknown_of, usage_of
from glassformer.tasks import Answer, TextConstraints

EVENTS = {**OBJECT, "text/event-stream": {}}
UNSUPPORTED = ("presence_penalty", "frequency_penalty", "logit_bias", "best_of", "suffix", "top_logprobs")
"""What would change the answer, and is not done here."""


class GenerationFields(msgspec.Struct, kw_only=True):
    """The fields that both kinds of completion share."""

    model: str
    max_tokens: Annotated[int, Meta(ge=0)] | None = None
    n: Annotated[int, Meta(ge=1)] = 1
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    stop: str | list[str] | None = None
    seed: int | None = None
    stream: bool = False
    presence_penalty: Any = None
    frequency_penalty: Any = None
    logit_bias: Any = None
    best_of: Any = None
    suffix: Any = None
    top_logprobs: Any = None


class CompletionFields(GenerationFields, kw_only=True):
    """The fields of a request to /v1/completions."""

    prompt: Annotated[str | list[str | int | list[int]], Meta(description="Texts, or token ids.")] = ""
    logprobs: Annotated[int, Meta(ge=0)] | None = None
    echo: bool = False


class ChatFields(GenerationFields, kw_only=True):
    """The fields of a request to /v1/chat/completions."""

    messages: Annotated[
        list[dict[str, Any]], Meta(min_length=1, description="Each with a role and a content, both text.")
    ]
    max_tokens: Annotated[int, Meta(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Meta(ge=1)] | None = None
    logprobs: bool | None = None


def role_and_text(message: dict[str, Any]) -> tuple[str, str]:
    """Who said a message, and what: a text, or parts of type text."""
    role, content = message.get("role"), message.get("content")
    if role not in ("system", "developer", "user", "assistant"):
        raise bad_field("messages", "each has a role: system, developer, user or assistant")
    if isinstance(content, list) and all(isinstance(p, dict) and isinstance(p.get("text"), str) for p in content):
        content = "".join(part["text"] for part in content)
    if not isinstance(content, str):
        raise bad_field("messages", "each has a content, which is text")
    return role, content


def completed(answers: Sequence[Completed | list[Answer]]) -> tuple[list[Choice], dict[str, int]]:
    """Choices of all prompts, and what they cost."""
    choices: list[Choice] = []
    tokens: list[tuple[int, int]] = []
    for answer in answers:
        if isinstance(answer, Completed):
            tokens.append((answer.prompt_tokens, answer.written_tokens))
            choices += answer.choices
        else:
            tokens.append(tokens_of(answer))
            choices += [Choice(a.text, "length" if a.ended == "length" else "stop", len(a.ids)) for a in answer]
    return choices, usage_of(tokens)


class OpenAI:
    """The routes of OpenAI's dialect: models, completions and chat completions, streamed or not."""

    def __init__(self, models: Models) -> None:
        self.served, self.limits = models, models.limits

    # ---- what is asked

    def stops_of(self, fields: GenerationFields) -> tuple[str, ...]:
        """Stop strings, if they are not too many or empty."""
        stops = (fields.stop,) if isinstance(fields.stop, str) else tuple(fields.stop or ())
        if len(stops) > self.limits.stops or any(not stop or len(stop) > 200 for stop in stops):
            raise bad_field("stop", f"at most {self.limits.stops} strings of 1 to 200 characters")
        return stops

    def check(self, fields: GenerationFields) -> ServedRun:
        """The run that is asked; refuses what is not done here, and more than is taken."""
        for name in UNSUPPORTED:
            if getattr(fields, name):
                raise bad_field(name, "this server has none; leave it out", "unsupported_parameter")
        check_at_most("n", fields.n, self.limits.choices)
        for name in ("max_tokens", "max_completion_tokens"):
            check_at_most(name, getattr(fields, name, None), self.limits.new_tokens)
        return self.served.get(fields.model)

    def prompts_of(self, fields: CompletionFields) -> list[str | list[int]]:
        """A list of texts or of ids."""
        given, limits = fields.prompt, self.limits
        prompts: list[Any] = [given] if isinstance(given, str) or (given and isinstance(given[0], int)) else list(given)
        texts = [prompt for prompt in prompts if isinstance(prompt, str)]
        ids = [prompt for prompt in prompts if isinstance(prompt, list)]
        if not prompts or max(len(texts), len(ids)) < len(prompts) or any(type(i) is not int for p in ids for i in p):
            raise bad_field("prompt", "a text, token ids, or a list of either, which is not empty")
        limits.check_texts(texts, "prompt")
        if len(prompts) > limits.batch or any(len(p) > limits.text for p in ids) or sum(map(len, ids)) > limits.total:
            raise bad_field("prompt", "more than this server takes at a time")
        return prompts

    def sampling(self, run: ServedRun, fields: GenerationFields) -> dict[str, Any]:
        """Temperature, top_p and seed as options of decoding. A translator that is told nothing searches; a GPT draws."""
        temperature = fields.temperature
        if temperature is None:
            temperature = 0.0 if run.translates else 1.0
        options: dict[str, Any] = {"seed": secrets.randbits(62) if fields.seed is None else fields.seed % 2**63}
        if temperature > 0 or fields.temperature is not None:
            options["temperature"] = temperature
        if temperature > 0 and fields.top_p is not None and fields.top_p < 1:
            options["top_p"] = fields.top_p
        return options

    def translating(self, run: ServedRun, fields: GenerationFields, texts: Sequence[str]) -> ServerJob:
        """A translator's job."""
        if fields.max_tokens == 0:
            raise bad_field("max_tokens", "a translation has at least one token")
        options = self.sampling(run, fields)
        if options.get("temperature"):
            options["num_samples"] = fields.n
        elif fields.n > 1:
            options["n_best"] = fields.n
        if fields.max_tokens is not None:
            options["max_new_tokens"] = fields.max_tokens
        if fields.stream and (fields.n > 1 or len(texts) > 1):
            raise bad_field("stream", "a translator streams one translation of one text at a time")
        constraints = TextConstraints(stops=self.stops_of(fields))
        asked = TranslationOptions(options, constraints, run.corrected())
        return TranslationJob(texts, asked, streams=fields.stream)

    # ---- routes

    def card(self, run: ServedRun) -> dict[str, Any]:
        """What is said of a run."""
        return {"id": run.name, "object": "model", "created": run.made, "owned_by": "glassformer"}

    @get("/v1/models", OBJECT)
    async def models(self) -> Any:
        """Every run by its name."""
        return {"object": "list", "data": [self.card(run) for run in self.served.runs.values()]}

    @get("/v1/models/{name}", OBJECT)
    async def model(self, name: str) -> Any:
        """One run by its name."""
        return self.card(self.served.get(name))

    @post("/v1/completions", EVENTS)
    async def completions(self, fields: CompletionFields) -> Any:
        """Go on with prompts, or translate them."""
        run, prompts = self.check(fields), self.prompts_of(fields)
        check_at_most("logprobs", fields.logprobs, self.limits.logprobs)
        job: ServerJob
        if run.kind == "transformer":
            texts = [prompt for prompt in prompts if isinstance(prompt, str)]
            if fields.echo or fields.logprobs is not None or len(texts) < len(prompts):
                raise bad_request(f"{run.name} translates texts: echo, logprobs and token ids are a GPT's", "model")
            job = self.translating(run, fields, texts)
        else:
            most = 16 if fields.max_tokens is None else fields.max_tokens
            stops = self.stops_of(fields)
            options = CompletionOptions(self.sampling(run, fields), most, fields.n, stops, fields.logprobs, fields.echo)
            grows = fields.stream and fields.logprobs is None and not fields.echo and most > 0
            job = CompletionJob(prompts, options, streams=grows)
        return await self.respond(run, job, fields)

    @post("/v1/chat/completions", EVENTS)
    async def chat(self, fields: ChatFields) -> Any:
        """Answer the last message of the user: a translator with its translation, a GPT by going on with the conversation."""
        run = self.check(fields)
        if fields.max_completion_tokens is not None:
            fields.max_tokens = fields.max_completion_tokens
        if fields.logprobs:
            raise bad_field("logprobs", "of chats there are none; see /v1/completions, or `scores` of /translate")
        messages = list(map(role_and_text, fields.messages))
        texts = [text for _, text in messages]
        self.limits.check_texts(texts, "messages")
        if run.translates:
            last = next((text for role, text in reversed(messages) if role == "user"), None)
            if last is None:
                raise bad_field("messages", "a translator answers the last message of the user, and there is none")
            return await self.respond(run, self.translating(run, fields, [last]), fields)
        prompt = "".join(f"{role}: {text}\n" for role, text in messages) + "assistant:"
        most = 256 if fields.max_tokens is None else fields.max_tokens
        stops = self.stops_of(fields) or ("\nuser:",)
        options = CompletionOptions(self.sampling(run, fields), most, fields.n, stops)
        return await self.respond(run, CompletionJob([prompt], options, streams=fields.stream, texts=texts), fields)

    # ---- what is answered

    async def respond(self, run: ServedRun, job: ServerJob, fields: GenerationFields) -> Response:
        """The response of both kinds of completion: at once, or streamed."""
        prefix, answer = "cmpl", "text_completion"
        if isinstance(fields, ChatFields):
            prefix, answer = "chatcmpl", "chat.completion.chunk" if fields.stream else "chat.completion"
        name = f"{prefix}-{secrets.token_hex(12)}"
        head = {"id": name, "object": answer, "created": int(time.time()), "model": run.name}
        if fields.stream:
            return EventStream(self.events(run, job, head, fields), job.cancel)
        choices, usage = completed(await self.served.ask(run, job))
        written = []
        for index, choice in enumerate(choices):
            content: dict[str, Any] = {"text": choice.text}
            if isinstance(fields, ChatFields):
                content = {"message": {"role": "assistant", "content": choice.text, "refusal": None}}
            written.append({"index": index, "finish_reason": choice.finish, "logprobs": choice.logprobs} | content)
        return as_json(head | {"choices": written, "usage": usage} | unknown_of(job.unknown))

    async def events(
        self, run: ServedRun, job: ServerJob, head: dict[str, Any], fields: GenerationFields
    ) -> AsyncIterator[bytes]:
        """A completion as it is written, [DONE] last. Each choice of a chat begins with its role."""
        is_chat = isinstance(fields, ChatFields)

        def chunk(index: int, text: str, finish: str | None = None, logprobs: Any = None, **delta: str) -> bytes:
            content: Any = {"content": text} | delta if text or finish is None else {}
            choice = {"index": index, "finish_reason": finish, "logprobs": logprobs}
            choice |= {"delta": content} if is_chat else {"text": text}
            return event_of(head | {"choices": [choice]} | (unknown_of(job.unknown) if finish else {}))

        begun = not is_chat
        async for event in self.served.stream(run, job):
            for index in range(0 if begun else fields.n):
                yield chunk(index, "", role="assistant")
            begun = True
            if isinstance(event, str):
                yield chunk(0, event)
            elif len(event) == 3:
                yield chunk(*event)
            elif not job.streams:
                for index, choice in enumerate(completed(event[0])[0]):
                    yield chunk(index, choice.text, choice.finish, choice.logprobs)
            elif isinstance(job, TranslationJob):
                yield chunk(0, "", completed(event[0])[0][0].finish)
        yield DONE
