"""One masked pass against one pass a token; decoding with a cache and without; attention written out and fused. Timed."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from glassformer.models import GPT
from glassformer.nn.attention import fused_attention, masked_attention
from glassformer.nn.masks import AttentionMask
from glassformer_lab.claims.claim import Budget, Measured
from glassformer_lab.complexity.measure import settle


def seconds_of(work: Callable[[], Any]) -> float:
    """The time of a call."""
    settle()
    began = time.perf_counter()
    work()
    settle()
    return time.perf_counter() - began


def seconds(work: Callable[[], Any], repeats: int) -> float:
    """The median time of a call, after one that warms up."""
    work()
    return statistics.median(seconds_of(work) for _ in range(repeats))


def in_turns(one: Callable[[], Any], other: Callable[[], Any], repeats: int = 5) -> tuple[float, float]:
    """The shortest time of either call, taken in turns, so that a busy moment of the machine is nobody's."""
    times = [(seconds_of(one), seconds_of(other)) for _ in range(repeats)]
    return min(first for first, _ in times), min(second for _, second in times)


def kept_bytes(work: Callable[[], Tensor]) -> int:
    """How many bytes of tensors a forward pass keeps for the backward pass, each storage once."""
    seen: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        seen[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        out = work()
        del out
    return sum(seen.values())


def small_gpt(block: int) -> GPT:
    """The model whose passes are timed."""
    return GPT(n_layer=4, n_head=4, n_embd=128, vocab_size=256, block_size=block, dropout=0.0)


def parallel_trial(budget: Budget, length: int, seed: int) -> Measured:
    """All next tokens of a row learned in one masked pass, and one after the other from each prefix."""
    model, ids = small_gpt(length), torch.randint(256, (4, length + 1))

    def one_pass() -> None:
        model.zero_grad()
        model.loss(ids[:, :-1].contiguous(), ids[:, 1:].contiguous()).backward()

    def a_pass_a_token() -> None:
        model.zero_grad()
        for t in range(1, length + 1):
            scores = model(ids[:, :t].contiguous())[:, -1]
            torch.nn.functional.cross_entropy(scores, ids[:, t], reduction="sum").backward()

    # A bias on the keys adds the same to every score of a query, so its gradient is zero but for rounding: nothing to compare.
    compared = [p for name, p in model.named_parameters() if not name.endswith("key.bias")]
    one_pass()
    together = [p.grad.clone() for p in compared if p.grad is not None]
    a_pass_a_token()
    apart = [p.grad for p in compared if p.grad is not None]
    gap = max(float((a - b).abs().max() / b.abs().max()) for a, b in zip(together, apart, strict=True))
    return {"one": seconds(one_pass, 3), "many": seconds(a_pass_a_token, 1), "gap": gap}


def cache_trial(budget: Budget, length: int, seed: int) -> Measured:
    """So many tokens written greedily, with a cache of keys and values and without."""
    model = small_gpt(length + 1).eval()
    start = torch.randint(256, (1, 1))

    @torch.no_grad()
    def cached() -> Tensor:
        with torch.device("cpu"):  # what the cache keeps on the host
            cache, ids = model.start(1, length), [start]
            for _ in range(length):
                ids.append(model.step(ids[-1], cache)[:, -1].argmax(-1, keepdim=True))
            return torch.cat(ids, 1)

    @torch.no_grad()
    def uncached() -> Tensor:
        ids = start
        for _ in range(length):
            ids = torch.cat([ids, model(ids)[:, -1:].argmax(-1)], 1)
        return ids

    same = bool((cached() == uncached()).all())
    one, many = in_turns(cached, uncached, 1 if budget.name == "quick" else 5)
    return {"one": one, "many": many, "same": float(same)}


def fused_trial(budget: Budget, length: int, seed: int) -> Measured:
    """Causal attention, forward and backward: time, and bytes kept in between."""
    q, k, v = (torch.randn(1, 8, length, 64, requires_grad=True) for _ in range(3))
    mask = AttentionMask(causal=True)

    def call(kernel: Callable[..., Tensor]) -> Tensor:
        return kernel(q, k, v, mask).sum()

    gap = float((call(fused_attention) - call(masked_attention)).abs().detach())
    return {
        "one": seconds(lambda: call(fused_attention).backward(), 3),
        "many": seconds(lambda: call(masked_attention).backward(), 3),
        "one_bytes": kept_bytes(lambda: call(fused_attention)),
        "many_bytes": kept_bytes(lambda: call(masked_attention)),
        "one_bytes a token": kept_bytes(lambda: call(fused_attention)) / (8 * length),
        "gap": gap,
    }
