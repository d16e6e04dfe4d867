"""From ids to hypotheses: translate with an encoder-decoder, continue with a GPT, all at once or as it comes.

Sentences are sorted by length, decoded some at a time, and returned in the order they came in. Those that are done leave
their batch.

Strict mode answers a question that sorting raises: the last digits of a matrix product depend on the shape of the matrix,
so a sentence decoded among others may, once in a while, get another word than alone. In strict mode every shape depends on
the sentence's own length alone: sentences of one length bucket are decoded together, always in the same number of rows
(empty ones are filled up), and nobody leaves. Each bucket is wider than its sentences, so that there always is padding and
the same kernel is always taken.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch

from glassformer.config import DecodeConfig, ModelConfig
from glassformer.decode.align import alignments
from glassformer.decode.beam import BeamSearch
from glassformer.decode.choose import fingerprint
from glassformer.decode.constraints import Controls, Demands
from glassformer.decode.engine_cuda import rows_a_text, suits
from glassformer.decode.engines import graph_engine, prepared
from glassformer.decode.lengths import generation_limits, translation_limits
from glassformer.decode.results import BeamTrace, Hypothesis
from glassformer.decode.search import Task, write_lines
from glassformer.decode.steps import (
    EncoderDecoder,
    LanguageModel,
    PromptSteps,
    SourceSteps,
    Steps,
    UncachedPromptSteps,
    UncachedSourceSteps,
    device_of,
)
from glassformer.decode.streaming import Decode, Streamer, cut_at_stop, stop_watcher
from glassformer.errors import ConfigError, UserError
from glassformer.nn.rows import Rows

NOTHING = Demands()
BUCKET = 8  # strict mode: widths are multiples of this


@contextmanager
def evaluating(model: Any) -> Iterator[None]:
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)


@dataclass(frozen=True)
class Batch:
    """Sentences decoded together. Strict: in rows of `width` tokens, with `filler` rows behind the real ones."""

    numbers: list[int]
    width: int | None = None
    filler: int = 0

    def filled(self, texts: Sequence[Sequence[int]], token: int) -> list[list[int]]:
        """The batch's texts, and texts to fill up with: as long as the row where all of them are, else of one token."""
        own = [list(texts[i]) for i in self.numbers]
        whole = len(own[0]) == self.width
        return own + [[token] * (len(own[0]) if whole else 1) for _ in range(self.filler)]


def bucket(length: int, longest: int | None) -> int:
    """The width of the rows in which strict mode decodes a text of so many tokens. `longest` is as wide as rows may be."""
    width = (length // BUCKET + 1) * BUCKET
    if longest is None or width <= longest:
        return width
    return longest if length < longest else length


def make_batches(lengths: Sequence[int], widths: Sequence[int] | None, size: int) -> list[Batch]:
    """Longest first, so that what does not fit into memory fails at once. Empty texts are in no batch."""
    order = sorted((i for i in range(len(lengths)) if lengths[i]), key=lambda i: -lengths[i])
    if widths is None:
        return [Batch(order[start : start + size]) for start in range(0, len(order), size)]
    # A text that fills its row whole is decoded among its like.
    groups: dict[tuple[int, bool], list[int]] = {}
    for i in order:
        groups.setdefault((widths[i], widths[i] == lengths[i]), []).append(i)
    return [
        Batch(numbers[start : start + size], width, size - len(numbers[start : start + size]))
        for (width, _), numbers in groups.items()
        for start in range(0, len(numbers), size)
    ]


def everyones_demands(demands: Demands | Sequence[Demands] | None, number: int) -> list[Demands]:
    if demands is None or isinstance(demands, Demands):
        return [demands or NOTHING] * number
    if len(demands) != number:
        raise ValueError(f"{number} texts came with {len(demands)} demands; give one each, or one for all")
    return list(demands)


def make_task(
    demands: Demands,
    limits: tuple[int, int],
    longest: int | None,
    model: ModelConfig,
    config: DecodeConfig,
    controls: Controls,
    text: Decode | None,
    *,
    answers: Sequence[int],
    prompt: Sequence[int] = (),
) -> Task:
    """`longest`: the model cannot write more than so many tokens."""
    if demands is not NOTHING:
        demands.check(model.vocab_size, controls)
    if demands.terms and config.temperature > 0:
        raise ConfigError("glossary terms need a search; set decode.temperature to 0")
    if demands.terms and config.groups > 1:
        raise ConfigError("glossary terms and diverse n-best share out the beam in two ways; set decode.groups to 1")
    if demands.stops and text is None:
        raise ValueError("stop strings need `text`, the function that turns ids into text")
    minimum, most = limits
    most = max(most, demands.room()) if demands.prefix or demands.forced or demands.terms else most
    if longest is not None and most > longest:
        if demands.room() > longest:
            raise UserError(f"what the answer must contain is longer than the {longest} tokens this model can write")
        most = longest
    return Task(
        limit=most,
        minimum=min(minimum, most),
        prompt=tuple(prompt),
        fingerprint=fingerprint(answers) if config.temperature > 0 else 0,
        demands=demands,
        stopped=None if text is None else stop_watcher(text, demands.stops),
    )


def search(
    steps: Steps,
    tasks: Sequence[Task],
    real: int,
    config: DecodeConfig,
    controls: Controls,
    device: torch.device,
    *,
    may_leave: bool,
    trace: bool,
) -> list[list[Hypothesis]]:
    """The search that the config asks for."""
    if trace and config.temperature > 0:
        raise ConfigError("a trace shows a search; set decode.temperature to 0")
    if config.beams == 1 and not trace and not any(task.demands.terms for task in tasks):
        lines = list(write_lines(steps, tasks, config, controls, device=device, may_leave=may_leave, real=real))[-1]
        return [[line.hypothesis(config) for line in lines[i]] for i in range(real)]
    beam = BeamSearch(steps, tasks, config, controls, device=device, traced=trace)
    return beam.run(may_leave=may_leave, real=real)


def nothing(trace: bool) -> list[Hypothesis]:
    """The answer to an empty text."""
    return [Hypothesis([], 0.0, 0.0, [], "eos", trace=BeamTrace() if trace else None)]


def search_all(
    model: EncoderDecoder | LanguageModel,
    texts: Sequence[Sequence[int]],
    tasks: Sequence[Task],
    widths: Sequence[int] | None,
    config: DecodeConfig,
    controls: Controls,
    make_steps: Callable[[Batch, list[list[int]], list[Task]], Steps],
    *,
    trace: bool,
) -> list[list[Hypothesis]]:
    """Batch by batch; the answers come in the order of the texts."""
    results = [nothing(trace) for _ in texts]
    for batch in make_batches([len(text) for text in texts], widths, config.batch_size):
        here = [tasks[i] for i in batch.numbers] + [Task(limit=1)] * batch.filler
        steps = make_steps(batch, batch.filled(texts, controls.bos), here)
        real, may_leave = len(batch.numbers), widths is None
        found = search(steps, here, real, config, controls, device_of(model), may_leave=may_leave, trace=trace)
        for i, hypotheses in zip(batch.numbers, found):
            results[i] = hypotheses
    return results


def with_text(hypothesis: Hypothesis, text: Decode, demands: Demands) -> Hypothesis:
    return replace(hypothesis, text=cut_at_stop(text(hypothesis.ids), demands.stops))


def padded(texts: Sequence[Sequence[int]], width: int | None) -> Rows:
    rows = Rows.from_lists(texts)
    if width is None or rows.shape[1] == width:
        return rows
    tokens = torch.zeros(len(texts), width, dtype=torch.long)
    tokens[:, : rows.shape[1]] = rows.tokens
    return Rows.padded(tokens, [len(text) for text in texts])


def add_alignment(model: Any, source: Sequence[int], hypotheses: list[Hypothesis], bos: int) -> list[Hypothesis]:
    if not source:
        return [replace(h, alignment=[]) for h in hypotheses]
    found = alignments(model, [source] * len(hypotheses), [h.ids for h in hypotheses], bos=bos)
    return [replace(h, alignment=alignment) for h, alignment in zip(hypotheses, found)]


@contextmanager
def garbage_left_alone() -> Iterator[None]:
    """Thousands of tasks and answers at once make Python look again and again through all it holds for cycles, while the
    device waits; there are none in what is made here."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@torch.no_grad()
@garbage_left_alone()
def translate_batch(
    model: EncoderDecoder,
    sources: Sequence[Sequence[int]],
    config: DecodeConfig | None = None,
    *,
    demands: Demands | Sequence[Demands] | None = None,
    controls: Controls | None = None,
    text: Decode | None = None,
    align: bool = False,
    trace: bool = False,
    cached: bool = True,
    limits: Sequence[tuple[int, int]] | None = None,
) -> list[list[Hypothesis]]:
    """The hypotheses for every source, best first: `n_best` of a beam, or `num_samples` in the order they were drawn.
    Source ids come as the model was trained to see them. An empty source has an empty answer. `limits`: the fewest and
    most new tokens of each answer, in place of what the config says of all."""
    config, controls = config or DecodeConfig(), controls or Controls()
    everyones = everyones_demands(demands, len(sources))
    learned = model.config.positions == "learned"
    longest = model.config.block_size if learned else None
    for i, source in enumerate(sources if longest is not None else ()):
        if longest is not None and len(source) > longest:
            raise UserError(
                f"source {i + 1} has {len(source)} tokens, and this model has learned positions for {longest}; "
                "split it into sentences"
            )
    if limits is None:
        lengths = [len(source) for source in sources]
        by_length = {length: translation_limits(config, length) for length in set(lengths)}
        limits = [by_length[length] for length in lengths]

    def task_of(demand: Demands, own: tuple[int, int], source: Sequence[int]) -> Task:
        return make_task(demand, own, longest, model.config, config, controls, text, answers=source)

    if demands is None and config.temperature == 0:  # only the limits tell tasks apart
        alike = {own: task_of(NOTHING, own, ()) for own in set(limits)}
        tasks = [alike[own] for own in limits]
    else:
        tasks = [task_of(*asked) for asked in zip(everyones, limits, sources, strict=True)]
    widths = [bucket(len(source), longest) for source in sources] if config.strict else None
    beams = rows_a_text(config)

    def make_steps(batch: Batch, texts: list[list[int]], tasks: list[Task]) -> Steps:
        rows = padded(texts, batch.width)
        if not cached:
            return UncachedSourceSteps(model, rows, beams=beams, bos=controls.bos)
        capacity = max(task.limit for task in tasks)
        return SourceSteps(runner, rows, beams=beams, capacity=capacity, bos=controls.bos)

    runner, graph = prepared(model, config.engine), graph_engine(model, config)
    with evaluating(model):
        if graph is not None and suits(model.config, tasks, config, trace=trace, cached=cached):
            results = graph.translate(sources, tasks, config, controls)
        else:
            results = search_all(model, sources, tasks, widths, config, controls, make_steps, trace=trace)
        if align:
            results = [
                add_alignment(model, source, hypotheses, controls.bos) for source, hypotheses in zip(sources, results)
            ]
    if text is not None:
        results = [[with_text(h, text, d) for h in hypotheses] for hypotheses, d in zip(results, everyones)]
    return results


def prompt_widths(prompts: Sequence[Sequence[int]], tasks: Sequence[Task], model: ModelConfig) -> list[int]:
    """Strict mode: a text that will outgrow learned positions is read in again when it does, and so that its neighbours
    are then too, they have exactly its length."""
    if model.positions != "learned":
        return [bucket(len(prompt), None) for prompt in prompts]
    return [
        len(prompt) if len(prompt) + task.limit > model.block_size - BUCKET else bucket(len(prompt), model.block_size)
        for prompt, task in zip(prompts, tasks)
    ]


@torch.no_grad()
@garbage_left_alone()
def generate_batch(
    model: LanguageModel,
    prompts: Sequence[Sequence[int]],
    config: DecodeConfig | None = None,
    *,
    demands: Demands | Sequence[Demands] | None = None,
    controls: Controls | None = None,
    text: Decode | None = None,
    trace: bool = False,
    cached: bool = True,
    limits: Sequence[tuple[int, int]] | None = None,
) -> list[list[Hypothesis]]:
    """Continuations of every prompt, without the prompt: `n_best` of a beam, or `num_samples`. An empty prompt is BOS.
    `limits`: the fewest and most new tokens of each, in place of what the config says of all."""
    config, controls = config or DecodeConfig(), controls or Controls()
    prompts = [list(prompt) or [controls.bos] for prompt in prompts]
    everyones = everyones_demands(demands, len(prompts))
    limits = limits or [generation_limits(config, model.config.block_size)] * len(prompts)
    tasks = [
        make_task(demand, own, None, model.config, config, controls, text, answers=prompt, prompt=prompt)
        for prompt, demand, own in zip(prompts, everyones, limits, strict=True)
    ]
    widths = prompt_widths(prompts, tasks, model.config) if config.strict else None
    beams = rows_a_text(config)

    def make_steps(batch: Batch, texts: list[list[int]], tasks: list[Task]) -> Steps:
        if not cached:
            return UncachedPromptSteps(model, texts, beams=beams)
        return PromptSteps(runner, texts, beams=beams, most=max(task.limit for task in tasks), width=batch.width)

    runner, graph = prepared(model, config.engine), graph_engine(model, config)
    with evaluating(model):
        if graph is not None and tasks and suits(model.config, tasks, config, trace=trace, cached=cached):
            results = graph.generate(prompts, tasks, config, controls)
        else:
            results = search_all(model, prompts, tasks, widths, config, controls, make_steps, trace=trace)
    if text is not None:
        results = [[with_text(h, text, d) for h in hypotheses] for hypotheses, d in zip(results, everyones)]
    return results


@dataclass(frozen=True)
class Streamed:
    """One token, and the text that can be shown since it came (which may be none, or more than its own)."""

    text: str
    id: int | None  # None: what was held back, at the end
    logprob: float


def stream(
    steps: Steps, task: Task, config: DecodeConfig, controls: Controls, text: Decode, device: torch.device
) -> Iterator[Streamed]:
    if (config.beam or 1) > 1 or config.num_samples > 1 or task.demands.terms:
        raise ConfigError(
            "streaming shows a token when it is chosen and cannot take it back; "
            "set decode.beam and decode.num_samples to 1, and ask for no glossary terms"
        )
    shown = Streamer(text, task.demands.stops)
    seen = 0
    for lines in write_lines(steps, [task], replace(config, beam=1), controls, device=device):
        line = lines[0][0]
        if len(line.ids) > seen:
            seen = len(line.ids)
            yield Streamed(shown.push(line.ids[-1]), line.ids[-1], line.token_logprobs[-1])
    rest = shown.flush()
    if rest:
        yield Streamed(rest, None, 0.0)


@torch.no_grad()
def stream_generation(
    model: LanguageModel,
    prompt: Sequence[int],
    config: DecodeConfig | None = None,
    *,
    text: Decode,
    demands: Demands | None = None,
    controls: Controls | None = None,
) -> Iterator[Streamed]:
    """As `generate_batch` for one prompt and one sample, token by token; the texts put together are its text."""
    config, controls = config or DecodeConfig(beam=1), controls or Controls()
    prompt = list(prompt) or [controls.bos]
    limits = generation_limits(config, model.config.block_size)
    wishes = demands or Demands()
    task = make_task(wishes, limits, None, model.config, config, controls, text, answers=prompt, prompt=prompt)
    with evaluating(model):
        steps = PromptSteps(prepared(model, config.engine), [prompt], beams=1, most=task.limit)
        yield from stream(steps, task, config, controls, text, device_of(model))


@torch.no_grad()
def stream_translation(
    model: EncoderDecoder,
    source: Sequence[int],
    config: DecodeConfig | None = None,
    *,
    text: Decode,
    demands: Demands | None = None,
    controls: Controls | None = None,
) -> Iterator[Streamed]:
    """As `translate_batch` for one source, greedy or drawn, token by token."""
    config, controls = config or DecodeConfig(beam=1), controls or Controls()
    longest = model.config.block_size if model.config.positions == "learned" else None
    limits = translation_limits(config, len(source))
    wishes = demands or Demands()
    task = make_task(wishes, limits, longest, model.config, config, controls, text, answers=source)
    if not source:
        return
    with evaluating(model):
        runner = prepared(model, config.engine)
        steps = SourceSteps(runner, Rows.from_lists([source]), beams=1, capacity=task.limit, bos=controls.bos)
        yield from stream(steps, task, config, controls, text, device_of(model))
