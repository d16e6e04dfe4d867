"""What a captured step leaves behind: the graphs of a bucket of shapes, and the memory they were made for.

A graph is a step launched as one: it goes on reading and writing the memory it was captured on, so cache, search state and
graphs belong together (`GraphRunner`), and are kept on the copy of the model that decodes, for the next call.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from glassformer.decode.search import SearchState
from glassformer.errors import Notice
from glassformer.language import _
from glassformer.models.graph_inputs import GraphInputs, places_of
from glassformer.nn.cache import KVCache

MAX_FREE_RUNNERS = 4


class GraphRunner:
    """A cache and a search state, with their graphs. The first step of a bucket runs as it is, which also warms up what capture
    must not meet cold; the second is captured."""

    def __init__(self, model: Any, cache: KVCache, state: SearchState) -> None:
        self.model, self.cache, self.state = model, cache, state
        self.on_device = cache.lengths.is_cuda
        self.graphs: dict[tuple[int, int, int], Any] = {}
        self.uncapturable: set[tuple[int, int, int]] = set()  # buckets that could not be captured
        self.pool: Any = None
        self.stream: Any = torch.cuda.Stream(cache.lengths.device) if self.on_device else None
        self.fused: Callable[[KVCache, torch.Tensor, int], None] | None = model.decoding_ops.fused_search(state)
        self.forget()

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """Slots, columns, width of a source, and length of an answer; memory grows as it is used."""
        return self.cache.n_slots, self.cache.capacity, self.cache.source_capacity, self.state.max_length

    def memory_now(self) -> tuple[int, ...]:
        """What the graphs were made for, beside the model's tensors: other values, other graphs."""
        return self.cache.generation, self.state.max_length, self.cache.last_position

    def run_eager(self, n: int, n_keys: int, n_source: int) -> None:
        """One step, launched kernel by kernel."""
        tokens = self.cache.tokens[:n].view(-1, 1)
        logits = self.model.step(tokens, self.cache, n_keys=n_keys, n_source=n_source)[:, -1]
        if self.fused is not None:
            self.fused(self.cache, logits, n)
            return
        parents, tokens = self.state.step(logits, n)
        self.cache.tokens[:n] = tokens
        if self.cache.beams > 1:
            self.cache.reorder(parents, n_keys)

    def forget(self) -> None:
        """No graphs: they were made for memory that is no more."""
        self.graphs.clear()
        # A pool dies with the last of its graphs.
        self.pool = torch.cuda.graph_pool_handle() if self.on_device else None
        self.memory, self.inputs = self.memory_now(), GraphInputs(places_of(self.model))

    def check_inputs(self) -> None:
        """Before new texts are read: has a tensor moved that the graphs know by its address?"""
        if self.inputs.moved() is not None:
            self.forget()

    def step(self, bucket: tuple[int, int, int]) -> None:
        """One step of the first slots; what the host knows of them is counted once, however it runs."""
        if self.memory != self.memory_now():
            self.forget()
        n, columns, written = bucket[0], self.cache.columns_host.clone(), self.state.written_host.copy()
        graph = self.graphs.get(bucket)
        if graph is None and self.on_device and bucket in self.graphs and bucket not in self.uncapturable:
            graph = self.capture(bucket)
        if graph is not None:
            graph.replay()
        else:
            self.run_eager(*bucket)
            self.graphs.setdefault(bucket, None)
        columns[:n] += self.cache.beams
        written[:n] += 1
        self.cache.columns_host, self.state.written_host = columns.clamp(max=self.cache.capacity), written

    def capture(self, bucket: tuple[int, int, int]) -> Any:
        """Capturing runs nothing, so where the device refuses it, the step can still be made as it is. It is begun and ended by
        hand: `torch.cuda.graph` first gives back all cached memory, pinned memory too, which is then asked for again, some
        dozens of times in a first call."""
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        try:
            with torch.cuda.stream(self.stream):
                graph.capture_begin(pool=self.pool)
                try:
                    self.run_eager(*bucket)
                finally:
                    graph.capture_end()
        except RuntimeError as error:
            sentence = _("this step could not be captured as a graph, and runs slowly: {error}", error)
            warnings.warn(Notice(sentence), stacklevel=2)
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
            self.uncapturable.add(bucket)
            return None
        self.graphs[bucket] = graph
        return graph


class RunnerPool:
    """Runners that nobody uses now, the last used last."""

    def __init__(self) -> None:
        self.free: list[tuple[Any, GraphRunner]] = []
        self.lock = threading.Lock()

    def acquire(self, kind: Any, sizes: tuple[int, ...]) -> GraphRunner | None:
        """The smallest free runner of this kind that is at least so large in everything: its graphs are there already."""

        def is_large_enough(runner: GraphRunner) -> bool:
            return all(have >= needed for have, needed in zip(runner.sizes, sizes, strict=True))

        with self.lock:
            fits = [at for at, (kept, runner) in enumerate(self.free) if kept == kind and is_large_enough(runner)]
            return self.free.pop(min(fits, key=lambda at: self.free[at][1].sizes))[1] if fits else None

    def release(self, kind: Any, runner: GraphRunner) -> None:
        """Keep a runner for the next call; the one that was not used for longest goes."""
        with self.lock:
            self.free = [*self.free, (kind, runner)][-MAX_FREE_RUNNERS:]


def runner_pool(model: nn.Module) -> RunnerPool:
    """The free runners of a copy for decoding, which lie on it and go with it."""
    return vars(model).setdefault("runner_pool", RunnerPool())  # type: ignore[no-any-return]
