"""Decoding on the device alone: the whole step, captured once as a CUDA graph and replayed.

A small model's step is a few hundred kernels of a few microseconds, and to launch them one by one, look at the result and
decide in Python what to do takes longer than the kernels. Here the step is everything: embedding, layers, scores, the best
candidates, the beam's choice, what has ended and whether a sentence is over (static_decoder.py and boards.py). It is recorded
once for every bucket of shapes, and the host only asks every few steps who is done; it reads the answer when it has told the
device the next few steps, so that neither waits for the other. Without a CUDA device the same code runs step by step: that is how
it is tested, not how anyone would use it.

The engine holds weights, rooms and graphs; sentences that are over leave at a poll, when the others fit a smaller bucket.

What a graph cannot do (repetition penalties, banned sequences, forced tokens, glossary terms, stop strings, diverse beams,
traces, strict mode, a text that outgrows learned positions) is left to the plain model: `suits` says so.
"""

from __future__ import annotations

import copy
import math
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial, wraps
from itertools import chain
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from glassformer.config import DecodeConfig, ModelConfig
from glassformer.decode.boards import Beams, Board, Lines
from glassformer.decode.constraints import Controls, Demands
from glassformer.decode.results import Hypothesis
from glassformer.decode.search import Task
from glassformer.decode.static_decoder import KernelDecoder, Room, StaticDecoder
from glassformer.nn.rows import Rows

Answer = Callable[[int, list[Hypothesis]], None]
"""Takes the hypotheses of a task of the batch, by its number."""

HANDED_IN = 64  # answers that are made at a time, while the device is busy
POLL = 2  # steps between two looks at who is done
BUSY = 0.5  # of the free memory, so much may be set aside for one room
ROOMS_KEPT = 4
SENTENCES = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 640, 768, 896, 1024, 1280, 1536, 1792, 2048)


def at_least(number: int) -> int:
    """The bucket of so many sentences."""
    return next((size for size in SENTENCES if size >= number), -(-number // 512) * 512)


def rounded(number: int, *, least: int = 8) -> int:
    """The bucket of a width: steps of an eighth to a quarter of it, so that there are few and little is wasted."""
    step = least
    while number > 8 * step:
        step *= 2
    return -(-number // step) * step


def suits(model: ModelConfig, tasks: Sequence[Task], config: DecodeConfig, *, trace: bool, cached: bool) -> bool:
    """Can a graph answer this exactly as the plain search would?"""
    if trace or not cached or config.strict or config.groups > 1:
        return False
    if config.repetition_penalty != 1 or config.no_repeat_ngram:
        return False
    nothing, seen = Demands(), None
    for task in tasks:
        if task.demands is not seen and task.demands != nothing:
            return False
        seen = task.demands
    if model.family == "gpt" and model.positions == "learned":
        # What outgrows its positions is read in again from the middle.
        return all(len(task.prompt) + task.limit <= model.block_size + 1 for task in tasks)
    return True


class Work:
    """A room, a board and the graphs recorded on them. The first step of a bucket runs as it is, which also warms up what
    capture must not meet cold; the second is recorded."""

    def __init__(self, decoder: StaticDecoder, room: Room, board: Board) -> None:
        self.decoder, self.room, self.board = decoder, room, board
        self.on_device = room.column.is_cuda
        self.graphs: dict[tuple[int, int, int], torch.cuda.CUDAGraph | None] = {}
        self.refused: set[tuple[int, int, int]] = set()  # buckets that could not be recorded
        self.pool: Any = torch.cuda.graph_pool_handle() if self.on_device else None

    def once(self, sentences: int, reach: int, width: int) -> None:
        self.board.step(self.decoder(self.room, sentences, reach, width), self.room, sentences)

    def step(self, sentences: int, reach: int, width: int) -> None:
        bucket = (sentences, reach, width)
        if not self.on_device or bucket in self.refused or bucket not in self.graphs:
            self.once(*bucket)
            self.graphs.setdefault(bucket)
            return
        graph = self.graphs[bucket] or self.recorded(bucket)
        if graph is None:
            self.once(*bucket)
        else:
            graph.replay()

    def recorded(self, bucket: tuple[int, int, int]) -> torch.cuda.CUDAGraph | None:
        """Recording runs nothing, so where the device refuses it, the step can still be made as it is."""
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        try:
            with torch.cuda.graph(graph, pool=self.pool):
                self.once(*bucket)
        except RuntimeError as error:
            warnings.warn(f"this step could not be recorded as a graph, and runs slowly: {error}", stacklevel=2)
            torch.cuda.synchronize()
            self.refused.add(bucket)
            return None
        self.graphs[bucket] = graph
        return graph

    def move(self, rows: Sequence[int], places: Sequence[int], filled: int, width: int) -> None:
        """These sentences take the places of others, which are over."""
        both = torch.tensor([rows, places]).to(self.room.column.device, non_blocking=True)
        self.room.move(both[0], both[1], filled, width)
        self.board.move(both[0], both[1])


class Batch:
    """Texts to be decoded together, as a rectangle."""

    def __init__(self, texts: Sequence[Sequence[int]], width: int) -> None:
        self.width, self.lengths = width, list(map(len, texts))
        tokens = np.zeros((len(texts), width), dtype=np.int64)
        real = np.arange(width) < np.array(self.lengths)[:, None]
        tokens[real] = np.fromiter(chain.from_iterable(texts), dtype=np.int64, count=sum(self.lengths))
        self.rows = Rows.padded(torch.from_numpy(tokens), self.lengths)


def on_its_device(method: Callable[..., list[list[Hypothesis]]]) -> Callable[..., list[list[Hypothesis]]]:
    """Streams and events belong to the device that is current, which may be another than the model's."""

    @wraps(method)
    def there(engine: GraphEngine, *given: Any) -> list[list[Hypothesis]]:
        with torch.cuda.device(engine.device) if engine.device.type == "cuda" else nullcontext():
            return method(engine, *given)

    return there


class GraphEngine:
    """Decodes for one model, as its weights are when the engine is made. `precision` "bf16": on a copy of them."""

    def __init__(self, model: Any, precision: Literal["model", "bf16"] = "model") -> None:
        if precision == "bf16":
            self.model = copy.deepcopy(model).to(torch.bfloat16).eval()
        else:
            self.model = weakref.proxy(model)  # so that an engine kept beside its model does not keep it alive
        self.config: ModelConfig = model.config
        self.device = next(model.parameters()).device
        table = next(self.model.parameters())
        fused = table.is_cuda and table.dtype != torch.float64 and KernelDecoder.suits(self.config)
        self.decoder = KernelDecoder(self.model) if fused else StaticDecoder(self.model)
        self.works: dict[Any, Work] = {}
        self.later: deque[Callable[[], None]] = deque()

    def work(
        self, sentences: int, prompt: int, longest: int, source: int, config: DecodeConfig, controls: Controls
    ) -> Work:
        beams = config.beams if config.temperature == 0 else 1
        longest = rounded(longest)
        columns = rounded(prompt + longest * beams)
        how = replace(config, seed=0, batch_size=1, engine="plain")
        key = (sentences, columns, prompt + longest, longest, source, how, controls)
        found = self.works.pop(key, None)
        if found is None:
            needed = self.room_bytes(sentences, columns, source)
            while self.works and (len(self.works) >= ROOMS_KEPT or needed > self.free_bytes()):
                self.works.pop(next(iter(self.works)))
            room = self.decoder.room(sentences, beams, columns, prompt + longest, source)
            kind = Beams if beams > 1 else Lines
            board = kind(sentences, longest, config, controls, self.decoder.table)
            board.kernels = getattr(self.decoder, "choice_kernels", None)
            found = Work(self.decoder, room, board)
        self.works[key] = found  # the last used is the last to go
        found.board.config = config
        return found

    def room_bytes(self, sentences: int, columns: int, source: int) -> int:
        c = self.config
        a_column = c.n_layer * c.kv_heads * (c.key_size + c.val_size) * self.decoder.table.element_size()
        return sentences * (columns + source) * a_column

    def free_bytes(self) -> float:
        """So much may be set aside for a room: what torch holds and nobody uses is free, too."""
        if self.device.type != "cuda":
            return math.inf
        held = torch.cuda.memory_reserved(self.device) - torch.cuda.memory_allocated(self.device)
        return BUSY * (torch.cuda.mem_get_info(self.device)[0] + held)

    def batch_size(self, config: DecodeConfig, texts: int, columns: int, source: int) -> int:
        """As the config says, but no more than the device's memory can hold. Rooms kept from earlier calls can go."""
        rows, size = sentences_a_text(config), min(config.batch_size, texts)
        kept = sum(part.nbytes for work in self.works.values() for part in (*work.room.past, work.room.source))
        free = self.free_bytes() + BUSY * kept
        while size > 1 and self.room_bytes(at_least(size * rows), columns, source) > free:
            size //= 2
        return size

    def run(
        self,
        work: Work,
        tasks: Sequence[Task],
        prompt: int,
        width: int,
        first: Float[Tensor, "R V"] | None,
        answer: Answer,
    ) -> None:
        """Steps until all tasks are over. `first`: the scores of the first token, where the prompt has been read. What is
        found is handed to `answer` later, by `work_ahead`."""
        board, room = work.board, work.room
        sentences, written = at_least(len(tasks)), 0
        # The first and the last step at which it may be over; without an end of its own it only comes to its limit.
        limits = np.array([(task.limit if board.eos < 0 else task.minimum, task.limit) for task in tasks])
        numbers = np.arange(len(tasks))  # whose row it is; -1: nobody's any more
        numbers = np.concatenate([numbers, np.full(sentences - len(tasks), -1)])

        def hand_in(rows: np.ndarray) -> None:
            made, done = board.harvest(rows.tolist()), numbers[rows].tolist()
            for start in range(0, len(rows), HANDED_IN):
                self.later.append(partial(write, made, done, slice(start, start + HANDED_IN)))

        def write(made: Callable[[slice], list[list[Hypothesis]]], done: list[int], some: slice) -> None:
            for number, own in zip(done[some], made(some), strict=True):
                answer(number, own)

        soonest, longest = limits[:, 0].min(), limits[:, 1].max()
        looked = False
        if first is not None:
            board.step(first, room, sentences)
            written = 1
        while written < longest:
            if written % POLL == 0 and written >= soonest:
                if looked:
                    self.work_ahead(board.shown)
                    over = board.seen(sentences)
                    mine = numbers >= 0
                    going_on = np.flatnonzero(mine & ~over)
                    if not len(going_on):
                        break
                    fewer = at_least(len(going_on))
                    if fewer < sentences:
                        hand_in(np.flatnonzero(mine & over))
                        free = np.ones(fewer, bool)
                        free[going_on[going_on < fewer]] = False
                        rows = going_on[going_on >= fewer]
                        places = np.flatnonzero(free)[: len(rows)]
                        if len(rows):
                            work.move(rows.tolist(), places.tolist(), prompt + written * room.beams, width)
                        numbers[mine & over] = -1
                        numbers[places] = numbers[rows]
                        numbers, sentences = numbers[:fewer], fewer
                        own = limits[numbers[numbers >= 0]]
                        soonest, longest = own[:, 0].min(), own[:, 1].max()
                board.look(sentences)
                looked = True
            reach = rounded(prompt + (written + 1) * room.beams, least=max(16, 8 * min(room.beams, 4)))
            work.step(sentences, min(reach, room.shade.size(2)), width)
            written += 1
        hand_in(np.flatnonzero(numbers >= 0))

    def work_ahead(self, awaited: Any) -> None:
        """What the host has to do anyway (the next batch, answers to be made of what has been copied), until an event."""
        while self.later and not (awaited is not None and awaited.query()):
            self.later.popleft()()

    def all_batches(
        self,
        texts: Sequence[Sequence[int]],
        tasks: Sequence[Task],
        config: DecodeConfig,
        size: int,
        prepare: Callable[[list[int]], Batch],
        decode: Callable[[Batch, list[Task], Answer], None],
    ) -> list[list[Hypothesis]]:
        """Longest first, answers in the order of the texts. A batch is prepared while the one before it is decoded."""
        rows = sentences_a_text(config)
        results: list[list[Hypothesis]] = [[] if text else [Hypothesis([], 0.0, 0.0, [], "eos")] for text in texts]
        lengths = np.fromiter(map(len, texts), dtype=np.int64, count=len(texts))
        order = np.argsort(-lengths, kind="stable")[: np.count_nonzero(lengths)].tolist()
        parts = [order[start : start + size] for start in range(0, len(order), size)]
        ready: dict[int, Batch] = {}
        made: list[int] = []
        self.later.clear()  # of a call that was broken off

        def make_ready(part: int) -> None:
            if len(made) <= part < len(parts):
                made.append(part)
                ready[part] = prepare(parts[part])

        for part, numbers in enumerate(parts):
            make_ready(part)
            samples: dict[int, list[Hypothesis]] = {}

            def answer(
                place: int,
                own: list[Hypothesis],
                numbers: list[int] = numbers,
                samples: dict[int, list[Hypothesis]] = samples,
            ) -> None:
                if rows == 1:
                    results[numbers[place]] = own
                    return
                samples[place] = own
                first = place // rows * rows
                if all(place in samples for place in range(first, first + rows)):
                    results[numbers[first // rows]] = [
                        h for place in range(first, first + rows) for h in samples.pop(place)
                    ]

            self.later.appendleft(partial(make_ready, part + 1))
            decode(ready.pop(part), [tasks[i] for i in numbers for _ in range(rows)], answer)
        while self.later:
            self.later.popleft()()
        return results

    @on_its_device
    def translate(
        self, sources: Sequence[Sequence[int]], tasks: Sequence[Task], config: DecodeConfig, controls: Controls
    ) -> list[list[Hypothesis]]:
        if not any(sources):
            return [[Hypothesis([], 0.0, 0.0, [], "eos")] for _ in sources]
        different = {id(task): task for task, source in zip(tasks, sources, strict=True) if source}.values()
        longest = max(task.limit for task in different)
        widest = rounded(max(map(len, sources)))
        if self.config.positions == "learned":
            widest = min(widest, self.config.block_size)
        rows = sentences_a_text(config)
        beams = config.beams if config.temperature == 0 else 1
        size = self.batch_size(config, len(sources), rounded(longest) * beams, widest)
        work = self.work(at_least(size * rows), 0, longest, widest, config, controls)

        def prepare(numbers: list[int]) -> Batch:
            texts = [sources[i] for i in numbers]
            return Batch(texts, min(widest, rounded(max(map(len, texts)), least=16)))

        def decode(batch: Batch, own: list[Task], answer: Answer) -> None:
            work.room.begin(at_least(len(own)), controls.bos)
            work.board.begin(at_least(len(own)), own)
            source = batch.rows.to(self.device, non_blocking=True)
            self.decoder.remember(source, work.room, rows)
            used, shade = len(own), work.room.source_shade
            hidden = torch.where(source.real, 0.0, -math.inf).repeat_interleave(rows, 0)
            shade[:used, 0, 0, : batch.width] = hidden
            shade[used:, :, :, : batch.width] = 0.0
            self.run(work, own, 0, batch.width, None, answer)

        return self.all_batches(sources, tasks, config, size, prepare, decode)

    @on_its_device
    def generate(
        self, prompts: Sequence[Sequence[int]], tasks: Sequence[Task], config: DecodeConfig, controls: Controls
    ) -> list[list[Hypothesis]]:
        rows = sentences_a_text(config)
        longest = max(task.limit for task in tasks)
        widest = rounded(max(len(prompt) for prompt in prompts))
        beams = config.beams if config.temperature == 0 else 1
        size = self.batch_size(config, len(prompts), widest + rounded(longest) * beams, 0)
        work = self.work(at_least(size * rows), widest, longest, 0, config, controls)

        def prepare(numbers: list[int]) -> Batch:
            texts = [prompts[i] for i in numbers]
            return Batch(texts, max(map(len, texts)))

        def decode(batch: Batch, own: list[Task], answer: Answer) -> None:
            work.room.begin(at_least(len(own)), controls.bos)
            work.board.begin(at_least(len(own)), own)
            first = self.read_prompts(work.room, batch, rows)
            first = first.repeat_interleave(beams, 0)
            missing = at_least(len(own)) * beams - first.size(0)
            self.run(work, own, batch.width, 0, F.pad(first, (0, 0, 0, missing)), answer)

        return self.all_batches(prompts, tasks, config, size, prepare, decode)

    def read_prompts(self, room: Room, batch: Batch, copies: int) -> Float[Tensor, "R V"]:
        """Prompts into the first columns, padded on the right and the padding shaded; what may follow each is returned."""
        model, width, texts = self.model, batch.width, len(batch.lengths)
        tokens, ends = batch.rows.tokens.to(self.device), torch.tensor(batch.lengths, device=self.device)
        state = model.start(texts, width)
        view = model.cached_view(state.cache, width)
        x = model.read(tokens, state.cache.positions(width), width)
        x = model.decoder(x, view, cache=state.cache)
        scores = model.logits(x[torch.arange(texts, device=self.device), ends - 1][:, None])[:, 0]
        used = texts * copies

        def several(t: Tensor) -> Tensor:
            return t if copies == 1 else t.repeat_interleave(copies, 0)

        for i in range(self.config.n_layer):
            keys, values = room.columns(i, used)
            keys[:, :, :width] = several(state.cache.keys[i])
            values[:, :, :width] = several(state.cache.values[i])
        columns = torch.arange(width, device=self.device)
        hidden = torch.where(columns < ends[:, None], 0.0, -math.inf)
        room.shade[:used, :, :width] = several(hidden)[:, None].to(room.shade.dtype)
        room.places[:used, :width] = columns
        room.lengths[:used] = several(ends)
        room.column.fill_(width)
        return several(scores)


def rows_a_text(config: DecodeConfig) -> int:
    return config.num_samples if config.temperature > 0 else config.beams


def sentences_a_text(config: DecodeConfig) -> int:
    """Of a room: a beam is one, and so is each sample."""
    return config.num_samples if config.temperature > 0 else 1
