"""Prompts to be gone on with, as a work: by a GPT, in the terms of OpenAI's completions.

Log-probabilities, where they are asked for, come from one pass over prompt and completion with the right tokens before each
(teacher forcing): those of the prompt (`echo`) and the alternatives at every place are of one kind with those of what was
written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from glassformer.decode import Hypothesis, Request, TokenConstraints
from glassformer.decode.streaming import Streamer
from glassformer.models.eval_mode import eval_mode
from glassformer.nn.rows import Rows
from glassformer.serve.refusals import bad
from glassformer.serve.works import QueuedText, Work, row_of
from glassformer.tasks import TextModel, decode_settings
from glassformer.tasks.generate import prompt_ids

AT_ONCE = 8  # rows scored together


@dataclass(frozen=True)
class Wanted:
    """What is asked of a completion. `options` are those of DecodeConfig."""

    options: dict[str, Any] = field(default_factory=dict)
    max_tokens: int = 16
    n: int = 1
    best_of: int = 1
    stops: tuple[str, ...] = ()
    logprobs: int | None = None
    echo: bool = False


@dataclass(frozen=True)
class TokenLogprobs:
    """Tokens as text, with the log-probability of each (None for the first of all, which follows nothing) and the likeliest in
    its place."""

    tokens: list[str]
    logprobs: list[float | None]
    top: list[dict[str, float] | None]
    offsets: list[int]  # where in the text each begins


@dataclass(frozen=True)
class Choice:
    """One completion of one prompt."""

    text: str
    finish: str
    tokens: int  # written, the end not counted
    logprobs: TokenLogprobs | None = None


@dataclass(frozen=True)
class Completed:
    """The choices written for one prompt, and how many tokens were read and written for them."""

    prompt_tokens: int
    written_tokens: int  # of all that was drawn, also what was not chosen
    choices: list[Choice]


@torch.no_grad()
def score_rows(model: TextModel, rows: Sequence[Sequence[int]], top: int) -> list[list[tuple[float, dict[str, float]]]]:
    """For each row, for every token after the first: its log-probability, and the `top` likeliest tokens in its place."""
    net: Any = model.model
    target = model.tokenizers.target
    longest = max(len(row) for row in rows) - 1
    if net.config.positions in ("learned", "sinusoidal") and longest > net.config.block_size:
        raise bad(
            f"log-probabilities were asked for {longest + 1} tokens, and this model reads {net.config.block_size} at once",
            "logprobs",
            "context_length_exceeded",
        )
    found: list[list[tuple[float, dict[str, float]]]] = []
    with eval_mode(net):
        for start in range(0, len(rows), AT_ONCE):
            here = rows[start : start + AT_ONCE]
            scores = net.logits(net.hidden(Rows.from_lists([row[:-1] or [0] for row in here]).to(model.device)))
            for row, own in zip(here, scores.float().log_softmax(-1), strict=True):
                at = own[: len(row) - 1]
                labels = torch.tensor(row[1:], device=at.device, dtype=torch.long)
                values = at.gather(1, labels[:, None]).squeeze(1).tolist()
                best = at.topk(min(top, at.size(1)), dim=-1) if top else None
                table: list[dict[str, float]] = [{} for _ in values]
                if best is not None:
                    for place, (chances, ids) in enumerate(zip(best.values.tolist(), best.indices.tolist())):
                        table[place] = dict(zip(target.pieces(ids), chances))
                found.append(list(zip(values, table)))
    return found


class Completing(Work):
    """Every prompt's completions, as a list of `Completed`."""

    def __init__(self, prompts: Sequence[str | Sequence[int]], wanted: Wanted, *, streams: bool = False) -> None:
        super().__init__()
        self.prompts, self.wanted, self.streams = list(prompts), wanted, streams
        self.ids: list[list[int]] = []
        self.found: list[list[Hypothesis]] = []
        self.shown: dict[tuple[int, int], Streamer] = {}

    def rows(self, model: TextModel) -> list[QueuedText]:
        """A row a prompt; none where nothing is to be written."""
        model.require("generate")
        self.ids = [self.read(model, prompt) for prompt in self.prompts]
        self.found = [[] for _ in self.ids]
        wanted = self.wanted
        draws = bool(wanted.options.get("temperature"))
        how: dict[str, Any] = {"num_samples": wanted.best_of} if draws else {"beam": 1}
        self.settings = decode_settings(model, None, **wanted.options, **how)
        if wanted.max_tokens == 0:
            return []
        limits = (0, wanted.max_tokens)
        constraints = TokenConstraints(stops=wanted.stops)
        self.decode = model.tokenizers.target.decode
        return [
            row_of(self, place, Request(ids, constraints, limits), self.settings) for place, ids in enumerate(self.ids)
        ]

    def read(self, model: TextModel, prompt: str | Sequence[int]) -> list[int]:
        """A prompt as ids; those that come as ids are taken as they are."""
        if isinstance(prompt, str):
            return prompt_ids(model, prompt)
        words = model.model.config.vocab_size
        wrong = next((token for token in prompt if not 0 <= token < words), None)
        if wrong is not None:
            raise bad(f"token id {wrong} is not in the vocabulary, whose ids run from 0 to {words - 1}", "prompt")
        return list(prompt) or prompt_ids(model, "")

    def take(self, row: QueuedText, hypotheses: list[Hypothesis]) -> None:
        """Keeps what one prompt was answered with, and ends its streams."""
        self.found[row.place] = hypotheses
        if self.streams:
            for sample, own in enumerate(hypotheses):
                self.show(row.place, sample, own.ids, finish="length" if own.ended == "length" else "stop")

    def written(self, row: QueuedText, sample: int, tokens: Sequence[tuple[int, float]]) -> None:
        """Streams what has been written of one completion so far."""
        self.show(row.place, sample, [token for token, _ in tokens])

    def show(self, place: int, sample: int, ids: Sequence[int], finish: str | None = None) -> None:
        """The next bit of one stream: (number of the choice, text, why it ended or None)."""
        streamer = self.shown.setdefault((place, sample), Streamer(self.decode, self.wanted.stops))
        text = "".join(streamer.push(token) for token in ids[len(streamer.ids) :])
        if finish is not None:
            text += streamer.flush()
        if text or finish is not None:
            self.emit((place * self.wanted.n + sample, text, finish))

    def result(self, model: TextModel) -> list[Completed]:
        """For each prompt the best `n` of its completions, by log-probability per token."""
        out = []
        for place, ids in enumerate(self.ids):
            found = self.found[place]
            best = sorted(found, key=lambda h: -h.logprob / max(1, len(h.token_logprobs)))
            chosen = best[: self.wanted.n] if self.wanted.best_of > self.wanted.n else found[: self.wanted.n]
            if not found:
                chosen = [Hypothesis([], 0.0, 0.0, [], "length", "")]
            chosen = [*chosen, *[chosen[0]] * (self.wanted.n - len(chosen))]  # greedy: the same each time
            choices = self.choices(model, place, ids, chosen)
            out.append(Completed(len(ids), sum(len(h.ids) for h in found), choices))
        return out

    def choices(self, model: TextModel, place: int, ids: list[int], chosen: Sequence[Hypothesis]) -> list[Choice]:
        """The completions of one prompt, with the prompt and log-probabilities where they are asked for."""
        prompt = self.prompts[place]
        said = prompt if isinstance(prompt, str) else model.tokenizers.target.decode(list(prompt))
        before = said if self.wanted.echo else ""
        scores: list[Any] = [None] * len(chosen)
        if self.wanted.logprobs is not None:
            scores = self.scored(model, ids, chosen, nothing=not prompt)
        return [
            Choice(before + (h.text or ""), "length" if h.ended == "length" else "stop", len(h.ids), own)
            for h, own in zip(chosen, scores, strict=True)
        ]

    def scored(
        self, model: TextModel, ids: list[int], chosen: Sequence[Hypothesis], *, nothing: bool
    ) -> list[TokenLogprobs]:
        """What OpenAI calls logprobs. The token that stands for an empty prompt is not shown."""
        target, echo = model.tokenizers.target, self.wanted.echo
        rows = [[*ids, *h.ids] for h in chosen]
        found = score_rows(model, rows, self.wanted.logprobs or 0)
        out = []
        for row, own in zip(rows, found, strict=True):
            first = (1 if nothing else 0) if echo else len(ids)
            known: list[tuple[float | None, dict[str, float] | None]] = [(None, None), *own]
            pieces = target.pieces(row)[first:]
            offsets, at = [], 0
            for piece in pieces:
                offsets.append(at)
                at += len(piece)
            values, tables = [k[0] for k in known[first:]], [k[1] for k in known[first:]]
            out.append(TokenLogprobs(pieces, values, tables if self.wanted.logprobs else [None] * len(pieces), offsets))
        return out
