"""One masked pass against one pass a token; decoding with a cache and without; attention written out and fused. Timed."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from glassformer.lab.claims.study import Effort, Measured, Results, Study, StudyResult, Table, grid
from glassformer.lab.claims.verdict import larger
from glassformer.lab.claims.words import Words
from glassformer.models import GPT
from glassformer.nn.attention import fused_attention, masked_attention
from glassformer.nn.masks import AttentionMask
from glassformer.plots.panels import LinePanel, panels


def seconds(work: Callable[[], Any], repeats: int = 5) -> float:
    """The median time of a call, after one that warms up."""
    work()
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def in_turns(one: Callable[[], Any], other: Callable[[], Any], repeats: int = 5) -> tuple[float, float]:
    """The shortest time of either call, taken in turns, so that a busy moment of the machine is nobody's."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(repeats):
        for work, own in zip((one, other), times, strict=True):
            began = time.perf_counter()
            work()
            own.append(time.perf_counter() - began)
    return min(times[0]), min(times[1])


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


def parallel_trial(effort: Effort, length: int, seed: int) -> Measured:
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

    one_pass()
    together = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    a_pass_a_token()
    apart = [p.grad for p in model.parameters() if p.grad is not None]
    gap = max(float((a - b).abs().max() / b.abs().max().clamp(min=1e-9)) for a, b in zip(together, apart, strict=True))
    return {"one": seconds(one_pass, 3), "many": seconds(a_pass_a_token, 1), "gap": gap}


def cache_trial(effort: Effort, length: int, seed: int) -> Measured:
    """So many tokens written greedily, with a cache of keys and values and without."""
    model = small_gpt(length + 1).eval()
    start = torch.randint(256, (1, 1))

    @torch.no_grad()
    def cached() -> Tensor:
        return model.generate(start, length, temperature=0.0)

    @torch.no_grad()
    def uncached() -> Tensor:
        ids = start
        for _ in range(length):
            ids = torch.cat([ids, model(ids)[:, -1:].argmax(-1)], 1)
        return ids

    same = bool((cached() == uncached()).all())
    one, many = in_turns(cached, uncached, len(effort.pick([0], range(5))))
    return {"one": one, "many": many, "same": float(same)}


def fused_trial(effort: Effort, length: int, seed: int) -> Measured:
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
        "gap": gap,
    }


def times(results: Results, names: tuple[str, str], claim: Callable[[int], Words]) -> StudyResult:
    """Times of both ways over the length, and whether the first is at least a quarter faster at each."""
    lengths = results.options("length")
    conditions = []
    for length in lengths:
        one, many = results.values("one", length=length), results.values("many", length=length)
        conditions.append(
            larger(
                claim(length), [b / a for a, b in zip(one, many, strict=True)], [1.0] * len(one), margin=0.25, unit="x"
            )
        )
    rows: list[tuple[str, ...]] = []
    for length in lengths:
        fast, slow = results.mean("one", length=length), results.mean("many", length=length)
        row = (str(length), f"{1000 * fast:.1f} ms", f"{1000 * slow:.1f} ms", f"{slow / fast:.1f}x")
        kept = results.where(length=length)[0][1]
        sizes = [f"{kept[key] / 2**20:.1f} MiB" for key in ("one_bytes", "many_bytes") if key in kept]
        rows.append((*row, *sizes))
    columns: tuple[str, ...] = ("tokens", *names, "ratio")
    if rows and len(rows[0]) > 4:
        columns = (*columns, f"kept, {names[0]}", f"kept, {names[1]}")
    return StudyResult((Table("Time", columns, tuple(rows)),), tuple(conditions))


def draw_times(results: Results, names: tuple[str, str]) -> Any:
    """Both times over the length."""
    lengths, seeds = results.options("length"), results.options("seed")
    lines = {
        name: (lengths, [[results.values(key, length=n, seed=s)[0] for n in lengths] for s in seeds])
        for key, name in zip(("one", "many"), names, strict=True)
    }
    return panels([LinePanel("time", "tokens", "seconds", lines, log="xy")])


PARALLEL = Study(
    name="parallel",
    claim=Words(
        "A masked Transformer learns all positions of a row in one parallel pass.",
        "带掩码的 Transformer 一次并行前向就能学习一行的所有位置。",
    ),
    said_by="Vaswani et al. 2017, 1 and 3.2.3",
    minutes=2,
    plan=lambda effort: grid(effort, length=effort.pick([16, 32], [16, 64, 256])),
    trial=parallel_trial,
    judge=lambda results: times(
        results,
        ("one pass", "a pass a token"),
        lambda n: Words(
            f"{n} tokens: one masked pass is faster than a pass a token", f"{n} 个 token：一次带掩码的前向更快"
        ),
    ),
    draw=lambda results: draw_times(results, ("one pass", "a pass a token")),
    alone=True,
)

CACHE = Study(
    name="cache",
    claim=Words(
        "Keeping keys and values makes decoding faster, the more so the longer the text.",
        "缓存键和值使解码更快，文本越长越明显。",
    ),
    said_by="every text on inference",
    minutes=3,
    plan=lambda effort: grid(effort, length=effort.pick([16, 64], [32, 128, 512])),
    trial=cache_trial,
    judge=lambda results: times(
        results,
        ("with a cache", "without"),
        lambda n: Words(f"{n} tokens are written faster with a cache", f"{n} 个 token：有缓存更快"),
    ),
    draw=lambda results: draw_times(results, ("with a cache", "without")),
    alone=True,
    version=3,
)

FUSED = Study(
    name="fused",
    claim=Words(
        "A fused attention kernel is faster than the written-out equation and never holds the T x T weights.",
        "融合注意力内核比逐步写出的公式更快，且从不保存 T×T 权重。",
    ),
    said_by="Dao et al. 2022",
    minutes=2,
    plan=lambda effort: grid(effort, length=effort.pick([64, 256], [128, 512, 2048])),
    trial=fused_trial,
    judge=lambda results: times(
        results,
        ("fused", "written out"),
        lambda n: Words(f"{n} tokens: the fused kernel is faster", f"{n} 个 token：融合内核更快"),
    ),
    draw=lambda results: draw_times(results, ("fused", "written out")),
    alone=True,
)
