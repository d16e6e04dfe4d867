"""A whole training step as one CUDA graph: forward, backward, clipping and optimizer, launched by a single call.

A small model's step is hundreds of kernels of a few microseconds each, and launching them one by one takes longer than
running them. All batches of a run have one shape (see data/batches.py), so the step is captured once and replayed with the
next batch copied into the same place. What changes from step to step lives in tensors that stay where they are: the batch,
its number of target tokens, the learning rates and, inside the generator, the random state. A replay moves the random
state as far as the same step does when launched kernel by kernel, so a run that is resumed (and warms up again) draws what
the run that never stopped draws.

Whether the step counts is decided on the device too: see trainer.py. What the graph reads without being handed it belongs to
it (models/graph_inputs.py); where that has moved between two steps, the step is captured again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from glassformer.data.batches import Batch
from glassformer.models.graph_inputs import GraphInputs, Place
from glassformer.nn.rows import Rows

WARM = 3  # steps before the capture, in which kernels are compiled and the moments of the optimizer come to be
STAGES = 3  # batches on their way to the device at a time
MOST = 4  # layouts and shapes captured; what comes after them runs launched one by one

StepFunction = Callable[[Sequence[Batch], Tensor], Tensor]
"""(micro-batches, their target tokens) -> what to look at later."""


def sides(batch: Batch) -> list[Rows]:
    """The rows that a model reads from a batch: source and target, or the one text."""
    return [rows for rows in (batch.source, batch.rows) if rows is not None]


def tensors_of(batch: Batch) -> list[Tensor]:
    """Everything of a batch that goes to the device, in a fixed order."""
    return [*(t for rows in sides(batch) for t in (rows.tokens, rows.segments, rows.positions)), batch.labels]


class StaticBatch:
    """The batches of a step in one stretch of the device's memory, always the same, so that one copy fills it and a graph
    finds it."""

    def __init__(self, like: Sequence[Batch], device: torch.device) -> None:
        size = sum(t.numel() for batch in like for t in tensors_of(batch)) + 1
        self.flat = torch.zeros(size, dtype=torch.int64, device=device)
        cuda = device.type == "cuda"
        self.stages = [torch.zeros(size, dtype=torch.int64, pin_memory=cuda) for _ in range(STAGES)]
        self.copied = [torch.cuda.Event() for _ in self.stages] if cuda else None
        self.turn = 0
        self.tokens = self.flat[-1]
        self.batches = self.views(like)

    def views(self, like: Sequence[Batch]) -> list[Batch]:
        """Batches like these whose tensors lie in this memory."""
        start = 0

        def room(shape: torch.Size) -> Tensor:
            nonlocal start
            start += shape.numel()
            return self.flat[start - shape.numel() : start].view(shape)

        def rows_like(rows: Rows) -> Rows:
            return Rows(
                room(rows.tokens.shape), room(rows.segments.shape), room(rows.positions.shape), layout=rows.layout
            )

        made = []
        for batch in like:
            source = rows_like(batch.source) if batch.source is not None else None
            rows = rows_like(batch.rows)
            # Of the tokens only the sum is used, and that is a tensor; a batch without any gives a loss of zero.
            made.append(replace(batch, source=source, rows=rows, labels=room(batch.labels.shape), target_tokens=1))
        return made

    def fill(self, batches: Sequence[Batch], tokens: int) -> None:
        """Copies the batches and their number of target tokens to the device, without waiting for it."""
        self.turn = (self.turn + 1) % STAGES
        stage = self.stages[self.turn]
        if self.copied is not None:
            self.copied[self.turn].synchronize()
        torch.cat([t.reshape(-1) for batch in batches for t in tensors_of(batch)], out=stage[:-1])
        stage[-1] = tokens
        self.flat.copy_(stage, non_blocking=True)
        if self.copied is not None:
            self.copied[self.turn].record()


class Capture:
    """One layout and shape: launched kernel by kernel a few times, then captured, then replayed."""

    def __init__(
        self, step: StepFunction, like: Sequence[Batch], device: torch.device, places: Callable[[], Iterable[Place]]
    ) -> None:
        self.step, self.static, self.warm, self.places = step, StaticBatch(like, device), WARM, places
        self.graph: torch.cuda.CUDAGraph | None = None
        self.inputs = GraphInputs(())
        self.result = torch.zeros(())

    def __call__(self, batches: Sequence[Batch], tokens: int) -> Tensor:
        self.static.fill(batches, tokens)
        if self.inputs.moved() is not None:
            self.graph, self.inputs, self.warm = None, GraphInputs(()), WARM
        if self.graph is not None:
            self.graph.replay()
        elif self.warm:
            self.warm -= 1
            side = torch.cuda.Stream()  # capture asks for the work to have been done on another stream before
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                self.result = self.step(self.static.batches, self.static.tokens)
            torch.cuda.current_stream().wait_stream(side)
        else:
            self.inputs = GraphInputs(self.places())
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.result = self.step(self.static.batches, self.static.tokens)
            self.graph.replay()
        return self.result.clone()


class CapturedStep:
    """`captured(batches, tokens)` takes `step` on them, as a graph as soon as it can. `places` says where the tensors are looked
    up that the step reads besides."""

    def __init__(self, step: StepFunction, device: torch.device, places: Callable[[], Iterable[Place]]) -> None:
        self.step, self.device, self.places = step, device, places
        self.captures: dict[tuple[object, ...], Capture] = {}

    def __call__(self, batches: Sequence[Batch], tokens: int) -> Tensor:
        key = tuple((rows.layout, rows.tokens.shape) for batch in batches for rows in sides(batch))
        if key not in self.captures:
            if len(self.captures) >= MOST:
                moved = [batch.to(self.device) for batch in batches]
                return self.step(moved, torch.tensor(tokens, device=self.device))
            self.captures[key] = Capture(self.step, batches, self.device, self.places)
        return self.captures[key](batches, tokens)
