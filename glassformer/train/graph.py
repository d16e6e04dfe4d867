"""A whole training step as one CUDA graph: forward, backward, clipping and optimizer, launched by a single call.

A small model's step is hundreds of kernels of a few microseconds each, and launching them one by one takes longer than
running them. All batches of a run have one shape (see data/batches.py), so the step is captured once and replayed with the
next batch copied into the same place. What changes from step to step lives in tensors: the batch, its number of target
tokens, the learning rates and, inside the generator, the random state.

Whether the step counts is decided on the device too: see trainer.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor


class CapturedStep:
    """`step(inputs, tokens) -> Tensor` runs once eagerly a few times to warm up and then as a graph.

    `work` takes the static inputs and the static number of tokens and does everything, returning what to look at."""

    def __init__(self, work: Callable[[Sequence[Tensor], Tensor], Tensor], warm: int = 3) -> None:
        self.work, self.warm = work, warm
        self.graph: torch.cuda.CUDAGraph | None = None
        self.inputs: list[Tensor] = []
        self.tokens = torch.zeros((), device="cuda")
        self.result = torch.zeros((), device="cuda")

    def __call__(self, inputs: Sequence[Tensor], tokens: int) -> Tensor:
        if not self.inputs:
            self.inputs = [torch.empty_like(t, device="cuda") for t in inputs]
        for static, fresh in zip(self.inputs, inputs, strict=True):
            static.copy_(fresh, non_blocking=True)
        self.tokens.fill_(tokens)
        if self.graph is not None:
            self.graph.replay()
        elif self.warm:
            # Warming up happens on a side stream, as capture asks: it sets the memory of gradients and moments.
            self.warm -= 1
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                self.result = self.work(self.inputs, self.tokens)
            torch.cuda.current_stream().wait_stream(side)
        else:
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.result = self.work(self.inputs, self.tokens)
            self.graph.replay()
        return self.result.clone()
