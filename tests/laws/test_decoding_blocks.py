"""What is installed for decoding computes what the model computes: a copy with `DecodingBlock`s is the model, in whole rows and
step by step; what is not known stays in its place and runs as itself."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.accel.decoding.block import DecodingBlock, decoding_copy, is_whole
from glassformer.accel.decoding.operations import PackedOps, TorchOps
from glassformer.config import DecodeConfig
from glassformer.decode import filters
from glassformer.decode.request import SpecialTokens
from glassformer.decode.search import SearchState
from glassformer.decode.slots import Job
from glassformer.nn import LayerNorm, RMSNorm, Rows
from tests.laws.zoo import CAUSAL, VOCABULARY, cases, small, without_ties

OPS = [TorchOps, PackedOps]


def some(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("rows", [1, 3, 40])
@pytest.mark.parametrize("kind", OPS)
@torch.no_grad()
def test_products_and_sums_are_the_equations(kind: type[TorchOps], rows: int) -> None:
    ops, x = kind(), some(rows, 6)
    first, second, bare = (nn.Linear(6, n, bias=n != 5).double() for n in (4, 3, 5))
    found = [(ops.linear(x, ops.pack([first, second])), torch.cat([first(x), second(x)], dim=1))]
    found += [(ops.linear(x, ops.pack([first]), how), how(first(x))) for how in (F.relu, F.gelu)]
    found += [(ops.linear(x, ops.pack([bare])), bare(x)), (ops.output(x[None], bare.weight), bare(x)[None])]
    found += [(ops.output(x[None], first.weight, first.bias), first(x)[None])]
    same = nn.Linear(6, 6, bias=False).double()
    same.weight.copy_(torch.eye(6))
    for norm in (LayerNorm(6).double(), RMSNorm(6).double(), None):
        for residual in (some(rows, 6, seed=1), None):
            total, normed = ops.add_and_norm(residual, ops.linear(x, ops.pack([same]), to_residual=True), norm)
            wanted = x if residual is None else x + residual
            found += [(total, wanted), (normed, wanted if norm is None else norm(wanted))]
    for ours, wanted in found:
        torch.testing.assert_close(ours, wanted, rtol=1e-9, atol=1e-9)


def written(model: Any, sentences: int, beams: int) -> list[Tensor]:
    """The logits of steps of sentences that begin at different times, change beams, and leave."""
    draw = torch.Generator().manual_seed(3)

    def drawn(most: int, *shape: int) -> Tensor:
        return torch.randint(most, shape, generator=draw)

    lengths, source = [1 + (2 * i) % 5 for i in range(sentences)], 5 if hasattr(model, "encoder") else 0
    cache = model.make_cache(sentences, 30 * beams, beams=beams, source=source)
    late = sentences // 2

    def begin(start: int, end: int) -> None:
        words = drawn(VOCABULARY, end - start, 5)
        if source:
            model.prefill(Rows.padded(words, lengths[start:end]), cache, start)
        else:
            cache.begin(start, end)
            model.prefill(words, lengths[start:end], cache, range(start, end))
        cache.tokens[start:end] = drawn(VOCABULARY, end - start, beams)

    found, n = [], sentences - late
    begin(0, n)
    for step in range(6):
        if step == 2 and late:
            begin(n, sentences)
            n = sentences
        if step == 4 and n > 1:
            n -= 1
            cache.move([n], [0])
        found.append(model.step(cache.tokens[:n].view(-1, 1), cache)[:, -1])
        cache.tokens[:n] = drawn(VOCABULARY, n, beams)
        cache.reorder(drawn(beams, n, beams))
        cache.compact(n)
    return found


@pytest.mark.parametrize(("family", "changes"), cases(*CAUSAL))
@torch.no_grad()
def test_a_copy_for_decoding_is_the_model(family: str, changes: dict[str, Any]) -> None:
    """Caught: a norm of the next block's that is taken for one's own, a head's slope after pruning, heads that share keys and get
    those of others, a joined sentence that sees what its place held before."""
    model = small(family, seed=1, **{"tie_output": False, **changes})
    for kind in OPS:
        copy = decoding_copy(model, kind())
        assert is_whole(model) and all(isinstance(block, DecodingBlock) for block in copy.decoder.layers)
        target = Rows.from_lists([[1, 2, 3, 4], [5, 6]])
        given = (Rows.from_lists([[7, 8], [9, 10, 11]]), target) if family == "transformer" else (target,)
        torch.testing.assert_close(copy(*given), model(*given), rtol=1e-9, atol=1e-9)
        for sentences, beams in ((1, 1), (1, 3), (4, 1), (5, 2)):
            for ours, wanted in zip(written(copy, sentences, beams), written(model, sentences, beams), strict=True):
                torch.testing.assert_close(ours, wanted, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("pre_norm", [True, False])
@torch.no_grad()
def test_what_is_not_known_runs_as_itself_among_what_is(pre_norm: bool) -> None:
    """One strange module costs its own block its speed and nobody anything else. Caught: a norm that was computed for the block
    that follows, and that the strange one computes again."""

    class Halved(nn.Module):
        def __init__(self, mlp: nn.Module) -> None:
            super().__init__()
            self.mlp = mlp

        def forward(self, x: Tensor) -> Tensor:
            return 0.5 * self.mlp(x)

    for place in range(3):
        model = small("transformer", seed=1, n_layer=3, pre_norm=pre_norm)
        model.decoder.layers[place].mlp = Halved(model.decoder.layers[place].mlp)
        copy = decoding_copy(model, PackedOps())
        known = [isinstance(block, DecodingBlock) for block in copy.decoder.layers]
        assert known == [i != place for i in range(3)] and not is_whole(model)
        for ours, wanted in zip(written(copy, 3, 2), written(model, 3, 2), strict=True):
            torch.testing.assert_close(ours, wanted, rtol=1e-9, atol=1e-9)


@torch.no_grad()
def test_a_copy_shares_what_it_can() -> None:
    """Modules and weights are those of the model, so what is set there counts here."""
    model = small("gpt", seed=1)
    copy = decoding_copy(model, TorchOps())
    assert {id(p) for p in copy.embedding.parameters()} == {id(p) for p in model.embedding.parameters()}
    before = written(copy, 2, 1)[-1]
    model.decoder.layers[0].attention.scaled = False
    torch.testing.assert_close(written(copy, 2, 1)[-1], written(model, 2, 1)[-1], rtol=1e-9, atol=1e-9)
    assert not torch.allclose(written(copy, 2, 1)[-1], before)


@pytest.mark.parametrize("rows", [1, 3, 40])
def test_topk_is_torchs(rows: int) -> None:
    for words, k in ((9, 3), (5000, 1), (5000, 8), (4097, 4)):
        scores = some(rows, words)
        value, token = filters.topk(scores, k)
        expected = scores.topk(k)
        assert torch.equal(value, expected.values) and torch.equal(token, expected.indices)


@pytest.mark.parametrize(("family", "changes"), cases(*CAUSAL))
@torch.no_grad()
def test_a_static_step_is_the_step(family: str, changes: dict[str, Any]) -> None:
    """What a device captures, without a look from the host: the same scores, tokens and sums, filler slots or not."""
    model = small(family, seed=1, **{"tie_output": False, **without_ties(changes)})
    config, special = DecodeConfig(beam=3, n_best=2, min_new_tokens=2), SpecialTokens()
    results = []
    for static in (False, True):
        copy = decoding_copy(model, TorchOps())
        n, source = (4 if static else 2), (3 if family == "transformer" else 0)
        cache = copy.make_cache(n, 40, beams=3, source=source, static=static)
        copy.grow_tables(12)
        how: dict[str, Any] = {"device": torch.device("cpu"), "dtype": torch.float64, "vocab_size": VOCABULARY}
        state = SearchState(n, 8, config, special, static=static, **how)
        state.begin(0, [Job(7, 2, 0), Job(5, 1, 1)])
        cache.begin(0, n)
        if source:
            copy.prefill(Rows.from_lists([[5, 6, 7], [8, 9], [1], [1]][:n]), cache)
        cache.tokens[:] = 5
        for _ in range(7):
            n_keys = 40 if static else cache.filled(n) + 3
            logits = copy.step(cache.tokens[:n].view(-1, 1), cache, n_keys=n_keys, n_source=source)[:, -1]
            parents, tokens = state.step(logits, n)
            cache.tokens[:n] = tokens
            cache.reorder(parents, 40 if static else cache.filled(n))
        results.append(state.collect([0, 1]))
    for ours, reference in zip(*results, strict=True):
        assert [h.ids for h in ours] == [h.ids for h in reference]
        assert [h.score for h in ours] == pytest.approx([h.score for h in reference], rel=1e-9, abs=1e-9)
