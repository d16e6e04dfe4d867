"""The search by kernels, slot by slot against the search itself: candidates, pool, what goes on, who is over."""

import random

import torch

from glassformer.accel.decoding.beam_kernels import beam_step, supports_beam_step
from glassformer.config import DecodeConfig
from glassformer.decode.request import SpecialTokens
from glassformer.decode.search import SearchState
from glassformer.decode.slots import Job
from glassformer.nn import KVCache
from tests.counts import SOAK
from tests.programs import quick_interpreter  # noqa: F401

torch.manual_seed(0)
for trial, (beam, words) in enumerate([(1, 700), (3, 1600), (5, 2600)] if SOAK else [(2, 1100), (3, 1600)]):
    draw = random.Random(trial)
    config = DecodeConfig(
        beam=beam, n_best=draw.randrange(1, beam + 1), stop_rule=("exact", "first-k")[trial % 2], alpha=0.6
    )
    made = []
    jobs = [Job(limit=draw.choice([2, 3]), minimum=i % 2, request_id=i) for i in range(2)]
    for _ in range(2):
        how = {"device": torch.device("cpu"), "dtype": torch.float32, "vocab_size": words, "static": True}
        state = SearchState(2, 8, config, SpecialTokens(), **how)
        cache = KVCache([1], [], (4, 4), 2, beam, 8 * beam, like=torch.zeros(1), static=True)
        cache.begin(0, 2)
        cache.tokens[:] = 1
        state.begin(0, jobs)
        made.append((state, cache))
    assert supports_beam_step(made[0][0])
    never = torch.zeros(words, dtype=torch.int8).index_fill_(0, made[0][0].never, 1)
    for step in range(5 if SOAK else 3):
        logits = torch.randn(2 * beam, words)
        logits[:, 2] = torch.where(torch.rand(2 * beam) < 0.4, 4.0 + torch.rand(2 * beam), -3.0)
        for number, (state, cache) in enumerate(made):
            cache.reserve(2)
            cache.advance()
            if number:
                beam_step(state, never, cache, logits.clone(), 2)
            else:
                parents, tokens = state.step(logits.clone(), 2)
                cache.tokens[:2] = tokens
                cache.reorder(parents, 8 * beam)
        (one, its), (other, others) = made
        assert torch.equal(one.done, other.done) and torch.equal(one.finished_count, other.finished_count), (
            trial,
            step,
        )
        live = ~one.done
        assert torch.equal(its.tokens[live], others.tokens[live])
        assert torch.allclose(one.totals[live], other.totals[live], atol=1e-4)
        if beam > 1:
            assert torch.equal(its.bias[live], others.bias[live])
    for a, b in zip(one.collect([0, 1]), other.collect([0, 1]), strict=True):
        assert [(h.ids, h.ended) for h in a] == [(h.ids, h.ended) for h in b], (trial, a, b)
        assert all(abs(x.score - y.score) < 1e-4 for x, y in zip(a, b, strict=True))
    print("same", trial)
