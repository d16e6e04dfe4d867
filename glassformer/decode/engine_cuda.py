"""Decoding on the device alone: the whole step, captured once as a CUDA graph and replayed.

A small model's step is a few hundred kernels of a few microseconds, and to launch them one by one, look at the result and
decide in Python what to do takes longer than the kernels. Here the step is everything: embedding, layers, scores, the best
candidates, the beam's choice, what has ended and whether a sentence is over (static_decoder.py and boards.py). It is recorded
once for every bucket of shapes, and the host only asks every few steps who is done. Without a CUDA device the same code runs
step by step: that is how it is tested, not how anyone would use it.

The engine holds weights, rooms and graphs; sentences that are over leave at a poll, when the others fit a smaller bucket.

What a graph cannot do (repetition penalties, banned sequences, forced tokens, glossary terms, stop strings, diverse beams,
traces, strict mode, a text that outgrows learned positions) is left to the plain model: `suits` says so.
"""

from __future__ import annotations

import copy
import math
import warnings
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
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

POLL = 4  # steps between two looks at who is done
BUSY = 0.5  # of the free memory, so much may be set aside for one room
ROOMS_KEPT = 4
SENTENCES = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096)


def at_least(number: int) -> int:
    """The bucket of so many sentences."""
    return next((size for size in SENTENCES if size >= number), -(-number // 1024) * 1024)


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
            self.graphs.setdefault(bucket)
            self.once(*bucket)
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

    def keep(self, rows: Sequence[int], sentences: int, filled: int, width: int) -> None:
        """These go on, in a bucket of `sentences`; what fills it up is over."""
        which = torch.tensor(list(rows), device=self.room.column.device)
        self.room.keep(which, filled, width)
        self.board.keep(which)
        self.board.over[len(rows) : sentences] = True


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
        self.unwritten: list[Callable[[], None]] = []

    def work(
        self, sentences: int, prompt: int, longest: int, source: int, config: DecodeConfig, controls: Controls
    ) -> Work:
        beams = config.beams if config.temperature == 0 else 1
        longest = rounded(longest)
        columns = rounded(prompt + longest * beams)
        how = replace(config, seed=0, batch_size=1, engine="plain")
        key = (sentences, columns, longest, source, how, controls)
        found = self.works.pop(key, None)
        if found is None:
            while len(self.works) >= ROOMS_KEPT:
                self.works.pop(next(iter(self.works)))
            room = self.decoder.room(sentences, beams, columns, prompt + longest, source)
            kind = Beams if beams > 1 else Lines
            board = kind(sentences, longest, config, controls, self.decoder.table)
            board.kernels = getattr(self.decoder, "kernels", None)
            found = Work(self.decoder, room, board)
        self.works[key] = found  # the last used is the last to go
        found.board.config = config
        return found

    def batch_size(self, config: DecodeConfig, texts: int, columns: int, source: int) -> int:
        """As the config says, but no more than the device's memory can hold."""
        size = min(config.batch_size, texts)
        if self.device.type != "cuda":
            return size
        c, rows = self.config, rows_a_text(config)
        a_column = c.n_layer * c.kv_heads * (c.key_size + c.val_size) * self.decoder.table.element_size()
        free = torch.cuda.mem_get_info(self.device)[0] * BUSY
        while size > 1 and at_least(size * rows) * (columns + source) * a_column > free:
            size //= 2
        return size

    def run(
        self, work: Work, tasks: Sequence[Task], prompt: int, width: int, first: Float[Tensor, "R V"] | None
    ) -> list[list[Hypothesis]]:
        """Steps until all tasks are over. `first`: the scores of the first token, where the prompt has been read. The
        answers are filled in by `write_up`, while the device has something to do."""
        board, room = work.board, work.room
        numbers, written = list(range(len(tasks))), 0
        sentences = at_least(len(tasks))
        answers: list[list[Hypothesis]] = [[] for _ in tasks]

        def hand_in(rows: Sequence[int]) -> None:
            made, done = board.harvest(rows), [numbers[row] for row in rows]

            def write() -> None:
                for number, own in zip(done, made(), strict=True):
                    answers[number] = own

            self.unwritten.append(write)

        def ends() -> tuple[int, int]:
            own = [tasks[number] for number in numbers]
            return min(task.minimum for task in own), max(task.limit for task in own)

        soonest, longest = ends()
        if first is not None:
            board.step(first, room, sentences)
            written = 1
        while True:
            if written and (written >= longest or (written % POLL == 0 and written > soonest)):
                self.write_up()
                over = board.over[:sentences].tolist()
                going_on = [row for row in range(len(numbers)) if not over[row]]
                if not going_on:
                    hand_in(range(len(numbers)))
                    return answers
                if at_least(len(going_on)) < sentences:
                    hand_in([row for row in range(len(numbers)) if over[row]])
                    sentences = at_least(len(going_on))
                    numbers = [numbers[row] for row in going_on]
                    soonest, longest = ends()
                    work.keep(going_on, sentences, prompt + written * room.beams, width)
            reach = rounded(prompt + (written + 1) * room.beams, least=max(16, 8 * min(room.beams, 4)))
            work.step(sentences, min(reach, room.shade.size(2)), width)
            written += 1

    def write_up(self) -> None:
        """Make answers of what has been copied from the device: the host's work while the device has its own."""
        while self.unwritten:
            self.unwritten.pop()()

    def all_batches(
        self,
        texts: Sequence[Sequence[int]],
        tasks: Sequence[Task],
        config: DecodeConfig,
        size: int,
        decode: Callable[[list[int], list[Task]], list[list[Hypothesis]]],
    ) -> list[list[Hypothesis]]:
        """Longest first, answers in the order of the texts."""
        rows = rows_a_text(config) if config.temperature > 0 else 1
        order = sorted((i for i in range(len(texts)) if texts[i]), key=lambda i: -len(texts[i]))
        results: list[list[Hypothesis]] = [[] if text else [Hypothesis([], 0.0, 0.0, [], "eos")] for text in texts]
        found = []
        for start in range(0, len(order), size):
            numbers = order[start : start + size]
            found.append((numbers, decode(numbers, [tasks[i] for i in numbers for _ in range(rows)])))
        self.write_up()
        for numbers, answers in found:
            for place, i in enumerate(numbers):
                own = answers[place * rows : (place + 1) * rows]
                results[i] = own[0] if rows == 1 else [h for several in own for h in several]
        return results

    def translate(
        self, sources: Sequence[Sequence[int]], tasks: Sequence[Task], config: DecodeConfig, controls: Controls
    ) -> list[list[Hypothesis]]:
        real = [i for i in range(len(sources)) if sources[i]]
        if not real:
            return self.all_batches(sources, tasks, config, 1, lambda numbers, own: [])
        rows = rows_a_text(config) if config.temperature > 0 else 1
        longest = max(tasks[i].limit for i in real)
        widest = rounded(max(len(sources[i]) for i in real))
        beams = config.beams if config.temperature == 0 else 1
        size = self.batch_size(config, len(real), rounded(longest) * beams, widest)
        work = self.work(at_least(size * rows), 0, longest, widest, config, controls)

        def decode(numbers: list[int], own: list[Task]) -> list[list[Hypothesis]]:
            texts = [sources[i] for i in numbers]
            width = min(widest, rounded(max(map(len, texts)), least=16))
            work.room.begin(at_least(len(own)), controls.bos)
            work.board.begin(at_least(len(own)), own)
            self.read_source(work.room, texts, width, rows)
            return self.run(work, own, 0, width, None)

        return self.all_batches(sources, tasks, config, size, decode)

    def read_source(self, room: Room, texts: Sequence[Sequence[int]], width: int, copies: int) -> None:
        """The sources' keys and values for every layer; each is there for `copies` sentences of the room."""
        lengths = [len(text) for text in texts]
        tokens = np.zeros((len(texts), width), dtype=np.int64)
        real = np.arange(width) < np.array(lengths)[:, None]
        tokens[real] = np.fromiter(chain.from_iterable(texts), dtype=np.int64, count=sum(lengths))
        source = Rows.padded(torch.from_numpy(tokens), lengths).to(self.device)
        used = len(texts) * copies
        memories = self.decoder.memories(source)
        for (keys, values), (k, v) in zip(room.memories, memories, strict=True):
            keys[:used, :, :width] = k if copies == 1 else k.repeat_interleave(copies, 0)
            values[:used, :, :width] = v if copies == 1 else v.repeat_interleave(copies, 0)
        room.source_shade[:used, 0, 0, :width] = torch.where(source.real, 0.0, -math.inf).repeat_interleave(copies, 0)
        room.source_shade[used:, :, :, :width] = 0.0

    def generate(
        self, prompts: Sequence[Sequence[int]], tasks: Sequence[Task], config: DecodeConfig, controls: Controls
    ) -> list[list[Hypothesis]]:
        rows = rows_a_text(config) if config.temperature > 0 else 1
        longest = max(task.limit for task in tasks)
        widest = rounded(max(len(prompt) for prompt in prompts))
        beams = config.beams if config.temperature == 0 else 1
        size = self.batch_size(config, len(prompts), widest + rounded(longest) * beams, 0)
        work = self.work(at_least(size * rows), widest, longest, 0, config, controls)

        def decode(numbers: list[int], own: list[Task]) -> list[list[Hypothesis]]:
            texts = [prompts[i] for i in numbers]
            width = max(map(len, texts))
            work.room.begin(at_least(len(own)), controls.bos)
            work.board.begin(at_least(len(own)), own)
            first = self.read_prompts(work.room, texts, width, rows)
            first = first.repeat_interleave(beams, 0)
            missing = at_least(len(own)) * beams - first.size(0)
            return self.run(work, own, width, 0, F.pad(first, (0, 0, 0, missing)))

        return self.all_batches(prompts, tasks, config, size, decode)

    def read_prompts(self, room: Room, texts: Sequence[Sequence[int]], width: int, copies: int) -> Float[Tensor, "R V"]:
        """Prompts into the first columns, padded on the right and the padding shaded; what may follow each is returned."""
        model, lengths = self.model, [len(text) for text in texts]
        tokens = torch.tensor([[*text, *[0] * (width - len(text))] for text in texts]).to(self.device)
        state = model.start(len(texts), width)
        view = model.cached_view(state.cache, width)
        x = model.read(tokens, state.cache.positions(width), width)
        x = model.decoder(x, view, cache=state.cache)
        ends = torch.tensor(lengths, device=self.device)
        scores = model.logits(x[torch.arange(len(texts), device=self.device), ends - 1][:, None])[:, 0]
        used = len(texts) * copies

        def several(t: Tensor) -> Tensor:
            return t if copies == 1 else t.repeat_interleave(copies, 0)

        for i, (keys, values) in enumerate(zip(room.keys, room.values, strict=True)):
            keys[:used, :, :width] = several(state.cache.keys[i])
            values[:used, :, :width] = several(state.cache.values[i])
        columns = torch.arange(width, device=self.device)
        hidden = torch.where(columns < ends[:, None], 0.0, -math.inf)
        room.shade[:used, :, :width] = several(hidden)[:, None].to(room.shade.dtype)
        room.places[:used, :width] = columns
        room.lengths[:used] = several(ends)
        room.column.fill_(width)
        return several(scores)


def rows_a_text(config: DecodeConfig) -> int:
    return config.num_samples if config.temperature > 0 else config.beams
