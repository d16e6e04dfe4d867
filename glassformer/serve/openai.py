"""OpenAI's dialect: /v1/models, /v1/completions, /v1/chat/completions.

A GPT goes on with a prompt. A translator answers a prompt with its translation: the prompt, or the last message of the user,
is the source; it searches as its recipe says unless a temperature is given.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

from pydantic import BaseModel, Field
from starlette.responses import Response

from glassformer.serve.completion import Choice, Completed, CompletionJob, CompletionOptions, TokenLogprobs
from glassformer.serve.jobs import FunctionJob, ServerJob
from glassformer.serve.models import Models
from glassformer.serve.requests import bad_field, bad_request, check_at_most
from glassformer.serve.routes import DONE, OBJECT, EventStream, as_json, event_of, get, post
from glassformer.serve.served_run import ServedRun
from glassformer.serve.translation import TranslationJob, TranslationOptions, tokens_of, unknown_of, usage_of
from glassformer.tasks import Answer, TextConstraints

EVENTS = {**OBJECT, "text/event-stream": {}}


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


def logprobs_of(logprobs: TokenLogprobs | None, fields: GenerationFields) -> dict[str, Any] | None:
    """Log-probabilities as completions have them, or chats: with the likeliest beside each token, which among them or not has
    its own."""
    if logprobs is None:
        return None
    if not isinstance(fields, ChatFields):
        return {
            "tokens": logprobs.tokens,
            "token_logprobs": logprobs.logprobs,
            "top_logprobs": logprobs.top,
            "text_offset": logprobs.offsets,
        }

    def entry(token: str, value: float | None) -> dict[str, Any]:
        return {"token": token, "logprob": value, "bytes": list(token.encode("utf-8", "replace"))}

    most = fields.top_logprobs or 0
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
        for name in ("presence_penalty", "frequency_penalty", "logit_bias"):
            if getattr(fields, name):
                raise bad_field(name, "this server has none; leave it out", "unsupported_parameter")
        check_at_most("n", fields.n, self.limits.choices)
        for name in ("max_tokens", "max_completion_tokens"):
            if (getattr(fields, name, None) or 0) > self.limits.new_tokens:
                raise bad_field(name, f"at most {self.limits.new_tokens} tokens are written here")
        return self.served.get(fields.model)

    def prompts_of(self, fields: CompletionFields) -> list[str | list[int]]:
        """A list of texts or of ids."""
        given, limits = fields.prompt, self.limits
        prompts: list[Any] = [given] if isinstance(given, str) or (given and isinstance(given[0], int)) else list(given)
        if not prompts:
            raise bad_field("prompt", "an empty list asks for nothing")
        limits.check_texts([p for p in prompts if isinstance(p, str)], "prompt")
        ids = [p for p in prompts if not isinstance(p, str)]
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
            return empty_completions(texts, fields.n)
        options = self.sampling(run, fields)
        if options.get("temperature"):
            options["num_samples"] = fields.n
        elif fields.n > 1:
            options["n_best"] = fields.n
        if fields.max_tokens is not None:
            options["max_new_tokens"] = fields.max_tokens
        if fields.stream and fields.n > 1:
            raise bad_field("stream", "a translator streams one translation at a time; set n to 1")
        constraints = TextConstraints(stops=self.stops_of(fields))
        return TranslationJob(texts, TranslationOptions(options, constraints), streams=fields.stream)

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
        best_of = fields.best_of or fields.n
        if fields.suffix:
            raise bad_field("suffix", "this server goes on with text and does not fill it in", "unsupported_parameter")
        if not fields.n <= best_of <= self.limits.choices:
            raise bad_field("best_of", f"from n to {self.limits.choices}")
        check_at_most("logprobs", fields.logprobs, self.limits.logprobs)
        if fields.stream and best_of > fields.n:
            raise bad_field("best_of", "what is chosen in the end cannot be streamed")
        if run.kind == "transformer":
            texts = [prompt for prompt in prompts if isinstance(prompt, str)]
            if fields.echo or fields.logprobs is not None or len(texts) < len(prompts) or best_of > fields.n:
                raise bad_request(
                    f"{run.name} translates texts: echo, logprobs, best_of and token ids are a GPT's", "model"
                )
            job = self.translating(run, fields, texts)
            if fields.stream and len(prompts) > 1:
                raise bad_field("stream", "a translator streams one text at a time")
        else:
            most = 16 if fields.max_tokens is None else fields.max_tokens
            options = CompletionOptions(
                self.sampling(run, fields), most, fields.n, best_of, self.stops_of(fields), fields.logprobs, fields.echo
            )
            grows = fields.stream and fields.logprobs is None and not fields.echo and most > 0
            job = CompletionJob(prompts, options, streams=grows)
        return await self.respond(run, job, fields)

    @post("/v1/chat/completions", EVENTS)
    async def chat(self, fields: ChatFields) -> Any:
        """Answer the last message of the user: a translator with its translation, a GPT by going on with the conversation."""
        run = self.check(fields)
        if fields.max_completion_tokens is not None:
            fields.max_tokens = fields.max_completion_tokens
        check_at_most("top_logprobs", fields.top_logprobs, self.limits.logprobs)
        messages = list(map(role_and_text, fields.messages))
        texts = [text for _, text in messages]
        self.limits.check_texts(texts, "messages")
        if run.translates:
            last = next((text for role, text in reversed(messages) if role == "user"), None)
            if last is None:
                raise bad_field("messages", "a translator answers the last message of the user, and there is none")
            if fields.logprobs:
                raise bad_field("logprobs", f"{run.name} translates; see `scores` of /translate")
            return await self.respond(run, self.translating(run, fields, [last]), fields)
        prompt = "".join(f"{role}: {text}\n" for role, text in messages) + "assistant:"
        top = (fields.top_logprobs or 0) if fields.logprobs else None
        most = 256 if fields.max_tokens is None else fields.max_tokens
        stops = self.stops_of(fields) or ("\nuser:",)
        options = CompletionOptions(self.sampling(run, fields), most, fields.n, fields.n, stops, top)
        job = CompletionJob([prompt], options, streams=fields.stream and top is None, texts=texts)
        return await self.respond(run, job, fields)

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
            logprobs = logprobs_of(choice.logprobs, fields)
            written.append({"index": index, "finish_reason": choice.finish, "logprobs": logprobs} | content)
        return as_json(head | {"choices": written, "usage": usage} | unknown_of(job.unknown))

    async def events(
        self, run: ServedRun, job: ServerJob, head: dict[str, Any], fields: GenerationFields
    ) -> AsyncIterator[bytes]:
        """A completion as it is written, [DONE] last; what it cost only where that is asked for. Each choice of a chat begins
        with its role."""
        is_chat = isinstance(fields, ChatFields)
        wants_usage = bool((fields.stream_options or {}).get("include_usage"))

        def chunk(index: int, content: Any, finish: str | None = None, logprobs: TokenLogprobs | None = None) -> bytes:
            choice = {"index": index, "finish_reason": finish, "logprobs": logprobs_of(logprobs, fields)}
            choice |= {"delta" if is_chat else "text": content}
            lost = unknown_of(job.unknown) if finish else {}
            return event_of(head | {"choices": [choice]} | ({"usage": None} if wants_usage else {}) | lost)

        def text_chunk(index: int, text: str, finish: str | None, logprobs: TokenLogprobs | None = None) -> bytes:
            delta = {"content": text} if text or finish is None else {}
            return chunk(index, delta if is_chat else text, finish, logprobs)

        begun = not is_chat
        async for event in self.served.stream(run, job):
            for index in range(0 if begun else fields.n):
                yield chunk(index, {"role": "assistant", "content": ""})
            begun = True
            if isinstance(event, str):
                yield text_chunk(0, event, None)
            elif len(event) == 3:
                yield text_chunk(*event)
            else:
                choices, usage = completed(event[0])
                if not job.streams:
                    for index, choice in enumerate(choices):
                        yield text_chunk(index, choice.text, choice.finish, choice.logprobs)
                elif isinstance(job, TranslationJob):
                    yield text_chunk(0, "", choices[0].finish)
                if wants_usage:
                    yield event_of(head | {"choices": [], "usage": usage})
        yield DONE
