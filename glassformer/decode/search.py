"""The loop in which every row writes for itself: greedy where nothing is drawn, sampling where something is.

    step      steps.scores(written)           what the model says of the next token
    filter    Filters                         what is allowed of it
    choose    the best token, or a draw
    rank      by the length rule, as everywhere

A sentence leaves the batch when its last row has ended.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int
from torch import Tensor

from glassformer.config import DecodeConfig
from glassformer.decode import choose, filters
from glassformer.decode.constraints import Controls, Demands
from glassformer.decode.lengths import length_rule
from glassformer.decode.results import Ending, Hypothesis
from glassformer.decode.steps import Steps


@dataclass(frozen=True)
class Task:
    """One sentence's part in a search."""

    limit: int  # at most so many new tokens, EOS included
    minimum: int = 0  # EOS not before so many
    prompt: tuple[int, ...] = ()  # what came before, where repetition counts it
    fingerprint: int = 0  # of the text that is answered: its draws are its own
    demands: Demands = field(default_factory=Demands)
    stopped: Callable[[Sequence[int]], bool] | None = None  # has a stop string just been written?


class Filters:
    """Everything that decides what may be written next, for the tasks of one batch with `rows` rows each."""

    def __init__(self, tasks: Sequence[Task], config: DecodeConfig, controls: Controls, rows: int) -> None:
        self.tasks, self.config, self.controls, self.rows = tasks, config, controls, rows
        unknown = () if config.allow_unknown or controls.unknown is None else (controls.unknown,)
        self.never = tuple(dict.fromkeys((*controls.never, *unknown)))
        self.longest_prompt = max(len(task.prompt) for task in tasks)
        self.remembers = (
            config.repetition_penalty != 1 or config.no_repeat_ngram or any(t.demands.banned for t in tasks)
        )

    def __call__(
        self, logprobs: Float[Tensor, "R V"], written: Int[Tensor, "R T"], active: Sequence[int]
    ) -> Float[Tensor, "R V"]:
        """`active` names the task of each block of rows."""
        place = written.size(1)
        tasks = [self.tasks[i] for i in active]
        scores = logprobs
        if self.remembers:
            history = self.history(written, tasks)
            scores = filters.repetition_penalty(scores, history, self.config.repetition_penalty)
            scores = filters.no_repeat_ngram(scores, history, self.config.no_repeat_ngram)
            if any(task.demands.banned for task in tasks):
                parts = zip(scores.split(self.rows), history.split(self.rows), tasks)
                scores = torch.cat([filters.ban_sequences(s, h, task.demands.banned) for s, h, task in parts])
        scores = filters.ban(scores, self.never)
        eos = self.controls.eos
        if eos is not None and place < max(task.minimum for task in tasks):
            early = torch.tensor([place < task.minimum for task in tasks], device=scores.device)
            scores = filters.ban_in_rows(scores, eos, early.repeat_interleave(self.rows))
        forced = [task.demands.token_at(place) for task in tasks]
        if any(token is not None for token in forced):
            # What is forced is forced even where another filter is against it, and counts as the model scores it.
            tokens = torch.tensor([-1 if token is None else token for token in forced], device=scores.device)
            tokens = tokens.repeat_interleave(self.rows)
            scores = torch.where((tokens >= 0)[:, None], filters.force(logprobs, tokens), scores)
        return scores

    def history(self, written: Int[Tensor, "R T"], tasks: Sequence[Task]) -> Int[Tensor, "R all"]:
        before = [[*[-1] * (self.longest_prompt - len(task.prompt)), *task.prompt] for task in tasks]
        prompts = torch.tensor(before, dtype=written.dtype, device=written.device).view(len(tasks), self.longest_prompt)
        return torch.cat([prompts.repeat_interleave(self.rows, 0), written], dim=1)


def shape(scores: Float[Tensor, "R V"], config: DecodeConfig) -> Float[Tensor, "R V"]:
    """The distribution that is drawn from."""
    scores = filters.temperature(scores, config.temperature)
    if config.top_k is not None:
        scores = filters.top_k(scores, config.top_k)
    if config.top_p is not None:
        scores = filters.top_p(scores, config.top_p)
    if config.min_p is not None:
        scores = filters.min_p(scores, config.min_p)
    return scores


@dataclass
class Line:
    """A text being written."""

    ids: list[int] = field(default_factory=list)
    token_logprobs: list[float] = field(default_factory=list)
    total: float = 0.0
    ended: Ending | None = None

    def hypothesis(self, config: DecodeConfig) -> Hypothesis:
        ended = self.ended or "length"
        score = length_rule(config).score(self.total, len(self.ids), ended == "eos")
        return Hypothesis(self.ids, score, math.fsum(self.token_logprobs), self.token_logprobs, ended)


def write_lines(
    steps: Steps,
    tasks: Sequence[Task],
    config: DecodeConfig,
    controls: Controls,
    *,
    device: torch.device,
    may_leave: bool = True,
    real: int | None = None,
) -> Iterator[list[list[Line]]]:
    """Yields after every step the lines of every task (`config.num_samples` of them each), the same objects each time.
    `real`: only so many of the tasks are waited for; the others fill up the rows."""
    rows = config.num_samples
    allow = Filters(tasks, config, controls, rows)
    lines = [[Line() for _ in range(rows)] for _ in tasks]
    waiting = len(tasks) if real is None else real
    active = list(range(len(tasks)))
    written = torch.empty(len(tasks) * rows, 0, dtype=torch.long, device=device)
    draws: Tensor | None = None
    if config.temperature > 0:
        texts = [task.fingerprint for task in tasks for _ in range(rows)]
        samples = list(range(rows)) * len(tasks)
        draws = choose.uniforms(config.seed, texts, samples, max(task.limit for task in tasks)).to(device)
    while True:
        logprobs = log_probabilities(steps.scores(written))
        scores = allow(logprobs, written, active)
        if draws is None:
            tokens = choose.greedy(scores)
        else:
            tokens = choose.sample(shape(scores, config), draws[:, written.size(1)])
        written = torch.cat([written, tokens[:, None]], dim=1)
        picked = torch.stack([logprobs.gather(1, tokens[:, None]), scores.gather(1, tokens[:, None])]).squeeze(-1)
        record(lines, tasks, active, controls, tokens.tolist(), *picked.tolist())
        yield lines
        unfinished = [any(line.ended is None for line in lines[i]) for i in active]
        if not any(is_open for i, is_open in zip(active, unfinished) if i < waiting):
            return
        if may_leave and not all(unfinished):
            stay = torch.tensor([n for n, is_open in enumerate(unfinished) if is_open], device=device)
            kept = (stay[:, None] * rows + torch.arange(rows, device=device)).flatten()
            active = [i for i, is_open in zip(active, unfinished) if is_open]
            steps.reorder(kept)
            written = written.index_select(0, kept)
            draws = None if draws is None else draws.index_select(0, kept)


def log_probabilities(logits: Float[Tensor, "R V"]) -> Float[Tensor, "R V"]:
    return (logits if logits.dtype == torch.float64 else logits.float()).log_softmax(-1)


def record(
    lines: list[list[Line]],
    tasks: Sequence[Task],
    active: Sequence[int],
    controls: Controls,
    tokens: Sequence[int],
    logprobs: Sequence[float],
    scores: Sequence[float],
) -> None:
    """Enter one step's tokens in the lines that are still open."""
    row = 0
    for i in active:
        for line in lines[i]:
            token, logprob, score = tokens[row], logprobs[row], scores[row]
            row += 1
            if line.ended is not None:
                continue
            if score == -math.inf:  # no token is allowed
                line.ended = "length"
                continue
            line.token_logprobs.append(logprob)
            line.total += score
            if token == controls.eos:
                line.ended = "eos"
                continue
            line.ids.append(token)
            stopped = tasks[i].stopped
            if stopped is not None and stopped(line.ids):
                line.ended = "stop"
            elif len(line.ids) >= tasks[i].limit:
                line.ended = "length"
