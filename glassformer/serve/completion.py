"""Prompts to be gone on with, as a job: by a GPT, in the terms of OpenAI's completions.

Log-probabilities, where they are asked for, come from one pass over prompt and completion with the right tokens before each
(teacher forcing): those of the prompt (`echo`) and the alternatives at every place are of one kind with those of what was
written.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from glassformer.decode import Hypothesis, Request, TokenConstraints
from glassformer.decode.streaming import Streamer
from glassformer.nn.modes import eval_mode
from glassformer.nn.rows import Rows
from glassformer.serve.jobs import QueuedText, ServerJob, shared_settings
from glassformer.serve.requests import bad_request
from glassformer.tasks import TextModel, decode_settings
from glassformer.tasks.generate import prompt_ids
from glassformer.text.tokenizer import BOS, CONTROL, Tokenizer
from glassformer.text.units import spelled

AT_ONCE = 256  # tokens whose alternatives are looked at together


@dataclass(frozen=True)
class CompletionOptions:
    """What is asked of a completion. `decode` are options of DecodeConfig."""

    decode: dict[str, Any] = field(default_factory=dict)
    max_tokens: int = 16
    n: int = 1
    stops: tuple[str, ...] = ()
    logprobs: int | None = None
    echo: bool = False


@dataclass(frozen=True)
class Choice:
    """One completion of one prompt. `logprobs` is what OpenAI calls so."""

    text: str
    finish: str
    tokens: int  # written, the end not counted
    logprobs: dict[str, list[Any]] | None = None


@dataclass(frozen=True)
class Completed:
    """The choices written for one prompt, and how many tokens were read and written for them."""

    prompt_tokens: int
    written_tokens: int
    choices: list[Choice]


@torch.no_grad()
def score_row(
    model: TextModel, row: Sequence[int], top: int
) -> tuple[list[float | None], list[dict[str, float] | None]]:
    """For every token of a row its log-probability, and the `top` likeliest tokens in its place, itself among them; None for the
    first. So many logits at a time that a long row does not fill the memory."""
    net: Any = model._model
    pieces = model.tokenizers.target.pieces
    scores: list[float | None] = [None]
    tables: list[dict[str, float] | None] = [None]
    with eval_mode(net):
        hidden = net.hidden(Rows.from_lists([list(row[:-1]) or [0]]).to(model.device))
        for start in range(0, len(row) - 1, AT_ONCE):
            labels = row[start + 1 : start + 1 + AT_ONCE]
            at = net.logits(hidden[:, start : start + len(labels)])[0].float().log_softmax(-1)
            values = at.gather(1, torch.tensor(labels, device=at.device)[:, None]).squeeze(1).tolist()
            best = at.topk(min(top, at.size(1)), dim=-1)
            for value, label, chances, ids in zip(values, pieces(labels), best.values.tolist(), best.indices.tolist()):
                scores.append(value)
                tables.append(dict(zip(pieces(ids), chances)) | {label: value})
    return scores, tables


def starts_of(tokenizer: Tokenizer, ids: Sequence[int]) -> list[int]:
    """Where in `tokenizer.decode(ids)` each id's text begins."""
    silent = getattr(tokenizer, "silent", ())
    shown = [i for i in ids if i >= CONTROL and i not in silent]
    text, spans = spelled(tokenizer, shown)
    # Some leave out a space that begins a text.
    cut = len(text) - len(tokenizer.decode(shown)) if text.startswith(" ") else 0
    places, end, starts = iter(spans), 0, []
    for i in ids:
        start, end = next(places) if i >= CONTROL and i not in silent else (end, end)
        starts.append(max(0, start - cut))
    return starts


class CompletionJob(ServerJob):
    """Every prompt's completions, as a list of `Completed`."""

    def __init__(
        self,
        prompts: Sequence[str | Sequence[int]],
        options: CompletionOptions,
        *,
        streams: bool = False,
        texts: Sequence[str] = (),
    ) -> None:
        """`texts`: what of the prompts the asker wrote, where it is not all of them."""
        super().__init__()
        self.prompts, self.options, self.streams = list(prompts), options, streams
        self.texts = texts or [prompt for prompt in prompts if isinstance(prompt, str)]
        self.ids: list[list[int]] = []
        self.hypotheses: list[list[Hypothesis]] = []
        self.shown: dict[tuple[int, int], Streamer] = {}

    def rows(self, model: TextModel) -> Iterator[QueuedText]:
        """A row a prompt; none where nothing is to be written."""
        model.require("generate")
        options = self.options
        self.ids = [self.read(model, prompt) for prompt in self.prompts]
        self.hypotheses = [[Hypothesis([], 0.0, 0.0, [], "length", "")] for _ in self.ids]
        self.unknown = [model.tokenizers.source.unknown_pieces(text) for text in self.texts]
        how = {"num_samples": options.n} if options.decode.get("temperature") else {"beam": 1}
        self.settings = decode_settings(model, None, **options.decode, **how)
        if options.max_tokens == 0:
            return
        constraints = TokenConstraints(stops=options.stops)
        self.decode = model.tokenizers.target.decode
        for place, ids in enumerate(self.ids):
            request = Request(ids, constraints, (0, options.max_tokens), self.settings.seed)
            yield QueuedText(self, place, request, shared_settings(self.settings))

    def read(self, model: TextModel, prompt: str | Sequence[int]) -> list[int]:
        """A prompt as ids; those that come as ids are taken as they are."""
        if isinstance(prompt, str):
            return prompt_ids(model, prompt)
        words = model._model.config.vocab_size
        wrong = next((token for token in prompt if not 0 <= token < words), None)
        if wrong is not None:
            raise bad_request(
                f"token id {wrong} is not in the vocabulary, whose ids run from 0 to {words - 1}", "prompt"
            )
        return list(prompt) or prompt_ids(model, "")

    def take(self, row: QueuedText, hypotheses: list[Hypothesis]) -> None:
        """Keeps what one prompt was answered with, and ends its streams."""
        self.hypotheses[row.place] = hypotheses
        if self.streams:
            for sample, hypothesis in enumerate(hypotheses):
                self.show(row.place, sample, hypothesis.ids, "length" if hypothesis.ended == "length" else "stop")

    def written(self, row: QueuedText, sample: int, tokens: Sequence[tuple[int, float]]) -> None:
        """Streams what has been written of one completion so far."""
        self.show(row.place, sample, [token for token, _ in tokens])

    def show(self, place: int, sample: int, ids: Sequence[int], finish: str | None = None) -> None:
        """The next bit of one stream: (number of the choice, text, why it ended or None)."""
        streamer = self.shown.setdefault((place, sample), Streamer(self.decode, self.options.stops))
        text = "".join(streamer.push(token) for token in ids[len(streamer.ids) :])
        if finish is not None:
            text += streamer.flush()
        if text or finish is not None:
            for copy in range(1 if self.settings.temperature > 0 else self.options.n):  # greedy: the same each time
                self.emit((place * self.options.n + sample + copy, text, finish))

    def result(self, model: TextModel) -> Generator[None, None, list[Completed]]:
        """The `n` completions of each prompt."""
        out = []
        for place, ids in enumerate(self.ids):
            choices = []
            for hypothesis in self.hypotheses[place]:
                choices.append(self.choice(model, place, hypothesis))
                yield
            choices += choices[:1] * (self.options.n - len(choices))  # greedy: the same each time
            out.append(Completed(len(ids), sum(choice.tokens for choice in choices), choices))
        return out

    def choice(self, model: TextModel, place: int, h: Hypothesis) -> Choice:
        """A completion, with the prompt and log-probabilities where they are asked for."""
        prompt = self.prompts[place]
        prompt_text = prompt if isinstance(prompt, str) else model.tokenizers.target.decode(list(prompt))
        scores = None if self.options.logprobs is None else self.logprobs(model, place, prompt_text, h)
        text = (prompt_text if self.options.echo else "") + (h.text or "")
        return Choice(text, "length" if h.ended == "length" else "stop", len(h.ids), scores)

    def logprobs(self, model: TextModel, place: int, prompt_text: str, h: Hypothesis) -> dict[str, list[Any]]:
        """The tokens of what stands in the text, so none behind a stop string, nor the one that stands for an empty prompt. The
        first of all follows nothing. Offsets are counted from the beginning of the prompt, shown or not."""
        target, prompt, ids = model.tokenizers.target, self.prompts[place], self.ids[place]
        starts = starts_of(target, h.ids)
        if h.ended == "stop":
            starts = [start for start in starts if start < len(h.text or "")]
        row = [*ids, *h.ids[: len(starts)]]
        block_size = model._model.config.block_size
        if model._model.config.positions in ("learned", "sinusoidal") and len(row) - 1 > block_size:
            raise bad_request(
                f"log-probabilities were asked for {len(row)} tokens, and this model reads {block_size} at once",
                "logprobs",
                "context_length_exceeded",
            )
        if isinstance(prompt, str):
            before = [start for start, _ in model.tokenizers.source.spans(prompt)]
            front = [0] * (len(before) < len(ids) and ids[0] == BOS)
            before = [*front, *before, *[len(prompt_text)] * (len(ids) - len(before) - len(front))]
        else:
            before = starts_of(target, ids)
        first = (0 if prompt else 1) if self.options.echo else len(ids)
        scores, tables = score_row(model, row, self.options.logprobs or 0)
        offsets = [*before, *(len(prompt_text) + start for start in starts)]
        return {
            "tokens": target.pieces(row[first:]),
            "token_logprobs": scores[first:],
            "top_logprobs": tables[first:] if self.options.logprobs else [None] * len(row[first:]),
            "text_offset": offsets[first:],
        }
