"""Every operation of the table, in every way it is done, is the equation's."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from glassformer.config import DecodeConfig
from glassformer.decode.cache import Cache
from glassformer.decode.decoder import IncrementalDecoder
from glassformer.decode.ops.packed import PackedOps
from glassformer.decode.ops.torch import Heads, StepInputs, TorchOps
from glassformer.decode.request import SpecialTokens
from glassformer.decode.search import SearchState
from glassformer.decode.slots import Job
from glassformer.nn import Embedding, LayerNorm, MultiHeadAttention, RMSNorm, attention
from tests.laws.zoo import VOCABULARY, cases, small

OPS = [TorchOps, PackedOps]


def some(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def linear(ops: TorchOps, rows: int) -> list[tuple[Any, Tensor]]:
    x = some(rows, 6)
    parts = [(some(4, 6, seed=1), some(4, seed=2)), (some(3, 6, seed=3), some(3, seed=4))]
    expected = torch.cat([x @ weight.t() + bias for weight, bias in parts], dim=1)
    found: list[tuple[Any, Tensor]] = [(ops.linear(x, ops.pack(parts)), expected)]
    for activation in (F.relu, F.gelu):
        found.append((ops.linear(x, ops.pack(parts[:1]), activation), activation(x @ parts[0][0].t() + parts[0][1])))
    return [*found, (ops.linear(x, ops.pack([(parts[0][0], None)])), x @ parts[0][0].t())]


def add_and_norm(ops: TorchOps, rows: int) -> list[tuple[Any, Tensor]]:
    found = []
    for norm in (LayerNorm(6).double(), RMSNorm(6).double(), None):
        x, change = some(rows, 6), some(rows, 6, seed=1)
        weights = ops.pack([(torch.eye(6, dtype=torch.float64), None)])
        total, normed = ops.add_and_norm(x, ops.linear(change, weights, to_residual=True), norm)
        found += [(total, x + change), (normed, x + change if norm is None else norm(x + change))]
        alone, _ = ops.add_and_norm(None, ops.linear(change, weights, to_residual=True), norm)
        found.append((alone, change))
    return found


def embed(ops: TorchOps, rows: int) -> list[tuple[Any, Tensor]]:
    embedding = Embedding(9, 6, scale=True).double()
    tokens = torch.arange(2 * rows) % 9
    words = embedding.weight[tokens] * math.sqrt(6)
    places = some(rows, 6, seed=2)
    return [
        (ops.embed(tokens, embedding, None), words),
        (ops.embed(tokens, embedding, places), words + places.repeat_interleave(2, 0)),
    ]


def attend(ops: TorchOps, rows: int) -> list[tuple[Any, Tensor]]:
    found = []
    for n_kv in (4, 2, 1):
        heads = Heads(MultiHeadAttention(12, 4, n_kv_head=n_kv, value_size=5))
        q, k, v = some(rows, 4, 3, 3), some(rows, n_kv, 7, 3, seed=1), some(rows, n_kv, 7, 5, seed=2)
        mask = some(rows, 1, 3, 7, seed=3) > -0.5
        mask[..., 0] = True
        bias = torch.where(mask, 0.0, -math.inf).double()
        wide = [t.repeat_interleave(4 // n_kv, 1) for t in (k, v)]
        for given, allowed in ((bias, mask), (None, None), (bias[:, :, :1], mask[:, :, :1])):
            expected = attention(q, *wide, allowed).transpose(1, 2).reshape(rows * 3, -1)
            found.append((ops.attend(q, k, v, given, heads=heads), expected))
        square = k[:, :, :3], v[:, :, :3]
        triangle = torch.ones(3, 3, dtype=torch.bool).tril()
        expected = attention(q, *(t[:, :, :3] for t in wide), triangle).transpose(1, 2).reshape(rows * 3, -1)
        found.append((ops.attend(q, *square, heads=heads, causal=True), expected))
    return found


def on_the_cache(ops: TorchOps, rows: int) -> list[tuple[Any, Tensor]]:
    """Two beams, two steps, slots that stand at different columns, and a source."""
    module = MultiHeadAttention(8, 4, n_kv_head=2).double()
    heads, found = Heads(module), []
    for static in (False, True):
        cache = Cache([2], [2], (2, 2), rows, 2, 9, 3, like=some(1), static=static)
        cache.begin(0, rows, torch.zeros(rows, 1, dtype=torch.long))
        cache.columns[:] = torch.arange(rows) % 2
        cache.columns_host[:] = cache.columns.numpy()
        past: list[tuple[Tensor, Tensor]] = []
        for step in range(2):
            x = some(2 * rows, 8, seed=step)
            qkv = torch.cat([part(x) for part in (module.query, module.key, module.value)], dim=1).detach()
            n_keys = cache.filled(rows) + 2
            columns = cache.reserve_columns(rows)
            inputs = StepInputs(rows, n_keys, 3, columns, cache.bias[:rows, None, :, :n_keys])
            out = ops.self_attend(qkv, heads, cache, 0, inputs)
            cache.advance(rows)
            q, k, v = qkv.split(heads.qkv_sizes, dim=1)
            past.append((k.view(-1, 2, 2), v.view(-1, 2, 2)))
            keys, values = (torch.stack([p[i] for p in past], dim=2) for i in (0, 1))
            wide = [t.repeat_interleave(2, 1) for t in (keys, values)]
            found.append((out, attention(q.view(-1, 4, 1, 2), *wide).reshape(2 * rows, -1)))
        for block, new in zip(cache.source[0], (some(rows, 2, 3, 2), some(rows, 2, 3, 2, seed=1)), strict=True):
            block[:] = new
        q = some(2 * rows, 8, seed=7)
        wide = [t.repeat_interleave(2, 0).repeat_interleave(2, 1) for t in cache.source[0]]
        out = ops.cross_attend(q, heads, cache, 0, inputs)
        found.append((out, attention(q.view(-1, 4, 1, 2), *wide).reshape(2 * rows, -1)))
    return found


def topk(ops: TorchOps, rows: int) -> list[tuple[Any, Tensor]]:
    found = []
    for words, k in ((9, 3), (5000, 1), (5000, 8), (4097, 4)):
        scores = some(rows, words)
        value, token = ops.topk(scores, k)
        expected = scores.topk(k)
        found += [(value, expected.values), (token.double(), expected.indices.double())]
    return found


@pytest.mark.parametrize("rows", [1, 3, 40])
@pytest.mark.parametrize("op", [linear, add_and_norm, embed, attend, on_the_cache, topk], ids=lambda op: op.__name__)
@pytest.mark.parametrize("kind", OPS)
@torch.no_grad()
def test_every_op_is_the_equation(kind: type[TorchOps], op: Any, rows: int) -> None:
    for found, expected in op(kind(), rows):
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("family", "changes"), cases("transformer", "gpt"))
@torch.no_grad()
def test_a_static_step_is_the_step(family: str, changes: dict[str, Any]) -> None:
    """What a device captures, without a look from the host: the same scores, tokens and sums, filler slots or not."""
    model = small(family, seed=1, **{"tie_output": False, **changes})
    config, special = DecodeConfig(beam=3, n_best=2, min_new_tokens=2), SpecialTokens()
    results = []
    for static in (False, True):
        decoder = IncrementalDecoder(model, TorchOps())
        n, source = (4 if static else 2), (3 if decoder.has_source else 0)
        cache = decoder.make_cache(n, 3, 40, source, static=static)
        how: dict[str, Any] = {"device": torch.device("cpu"), "dtype": torch.float64, "vocab_size": VOCABULARY}
        state = SearchState(n, 8, config, special, static=static, **how)
        cache.begin(0, n, torch.full((n, 1), 5))
        state.begin(0, [Job(7, 2, 0), Job(5, 1, 1), Job(1), Job(1)][:n])
        if decoder.has_source:
            from glassformer.nn import Rows

            decoder.encode_sources(cache, 0, Rows.from_lists([[5, 6, 7], [8, 9], [1], [1]][:n]))
        for step in range(7):
            logits = decoder.step(cache, n, 40 if static else cache.filled(n) + 3, source)
            parents, tokens = state.step(logits, n)
            cache.tokens[:n] = tokens
            cache.reorder(parents, 40 if static else cache.filled(n))
            del step
        results.append(state.collect([0, 1]))
    for ours, reference in zip(*results, strict=True):
        assert [h.ids for h in ours] == [h.ids for h in reference]
        assert [h.score for h in ours] == pytest.approx([h.score for h in reference], abs=1e-9)
