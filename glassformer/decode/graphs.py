"""What a captured step leaves behind: the graphs of a bucket of shapes, and the memory they were made for.

A graph is a step launched as one: it goes on reading and writing the memory it was captured on, so cache, search state and
graphs belong together (`Session`), and are kept beside their decoder for the next call.
"""

from __future__ import annotations

import threading
import warnings
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from glassformer.decode.cache import Cache
from glassformer.decode.decoder import Decoder
from glassformer.decode.search import SearchState

SESSIONS_KEPT = 4


class GraphRunner:
    """The graphs of a cache and a search state. The first step of a bucket runs as it is, which also warms up what capture must
    not meet cold; the second is captured."""

    def __init__(self, decoder: Decoder, cache: Cache, state: SearchState) -> None:
        self.decoder, self.cache, self.state = decoder, cache, state
        self.on_device = cache.lengths.is_cuda
        self.graphs: dict[tuple[int, int, int], Any] = {}
        self.refused: set[tuple[int, int, int]] = set()  # buckets that could not be captured
        self.pool: Any = torch.cuda.graph_pool_handle() if self.on_device else None
        self.stream: Any = torch.cuda.Stream(cache.lengths.device) if self.on_device else None
        self.fused: Callable[[Cache, torch.Tensor, int], None] | None = decoder.ops.fused_search(state)
        self.memory = (cache.generation, state.longest)

    def run_eager(self, n: int, n_keys: int, n_source: int) -> None:
        """One step, launched kernel by kernel."""
        logits = self.decoder.step(self.cache, n, n_keys, n_source)
        if self.fused is not None:
            self.fused(self.cache, logits, n)
            return
        parents, tokens = self.state.step(logits, n)
        self.cache.tokens[:n] = tokens
        if self.cache.beams > 1:
            self.cache.reorder(parents, n_keys)

    def step(self, bucket: tuple[int, int, int]) -> None:
        """One step of the first slots; what the host knows of them is counted once, however it runs."""
        if self.memory != (self.cache.generation, self.state.longest):
            self.graphs.clear()  # they were made for memory that is no more
            # A pool dies with the last of its graphs.
            self.pool = torch.cuda.graph_pool_handle() if self.on_device else None
            self.memory = (self.cache.generation, self.state.longest)
        n, ends, ages = bucket[0], self.cache.ends.copy(), self.state.ages.copy()
        graph = self.graphs.get(bucket)
        if graph is None and self.on_device and bucket in self.graphs and bucket not in self.refused:
            graph = self.capture(bucket)
        if graph is not None:
            graph.replay()
        else:
            self.run_eager(*bucket)
            self.graphs.setdefault(bucket, None)
        ends[:n] += self.cache.beams
        ages[:n] += 1
        self.cache.ends, self.state.ages = np.minimum(ends, self.cache.capacity), ages

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
            warnings.warn(f"this step could not be captured as a graph, and runs slowly: {error}", stacklevel=2)
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
            self.refused.add(bucket)
            return None
        self.graphs[bucket] = graph
        return graph


@dataclass
class Session:
    """Memory and graphs of one kind of search."""

    cache: Cache
    state: SearchState
    runner: GraphRunner

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """Slots, columns, width of a source, and length of an answer; memory grows as it is used."""
        return self.cache.slots, self.cache.capacity, self.cache.source_capacity, self.state.longest


def covers(sizes: tuple[int, ...], others: tuple[int, ...]) -> bool:
    """Is each at least as large?"""
    return all(one >= other for one, other in zip(sizes, others, strict=True))


class Sessions:
    """Sessions that nobody uses now, the last used last."""

    def __init__(self) -> None:
        self.kept: list[tuple[Any, Session]] = []
        self.lock = threading.Lock()

    def take(self, kind: Any, sizes: tuple[int, ...]) -> Session | None:
        """The smallest free session of this kind that is at least so large: its graphs are there already."""
        with self.lock:
            fits = [at for at, (own, one) in enumerate(self.kept) if own == kind and covers(one.sizes, sizes)]
            return self.kept.pop(min(fits, key=lambda at: self.kept[at][1].sizes))[1] if fits else None

    def give(self, kind: Any, session: Session) -> None:
        """Keep a session for the next call; the one that was not used for longest goes."""
        with self.lock:
            self.kept = [*self.kept, (kind, session)][-SESSIONS_KEPT:]

    def clear(self) -> None:
        """Give all of them up, where memory is needed."""
        with self.lock:
            self.kept.clear()


sessions: weakref.WeakKeyDictionary[Decoder, Sessions] = weakref.WeakKeyDictionary()


def sessions_of(decoder: Decoder) -> Sessions:
    """The free sessions of a decoder; they go with it."""
    return sessions.setdefault(decoder, Sessions())
