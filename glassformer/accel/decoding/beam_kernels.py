"""Kernels for the search: the whole book-keeping of a slot's beams in two launches a step.

By torch a step of the beam is two hundred small operations on a few numbers. Here the logits are read once
(vocabulary_kernels.py), and `beam_step` does, one program a slot, what `SearchState.step` (search.py) and `KVCache.reorder` do
for a plain beam of one group: the best candidates, what has ended among the finished, what stays alive, whether the slot is
done. Greedy search is a beam of one.

Logits are float32, a beam's sums float64. What is picked out of a few numbers is picked by maxima and minima alone, of
tensors as they are: where threads hold copies of a number (of a reshaped tensor, say), a compiler has been met that adds up
all of them.

Every function of the kernel takes SIZE, known when it is compiled: (K beams, P finished hypotheses kept, BLOCK_K: K rounded up,
BLOCK_C: the 2 K candidates rounded up, BLOCK_P: P rounded up, blocks of the vocabulary rounded up, partial sums rounded up,
candidates, BLOCK_V, CHUNK). They are inlined into `beam_kernel`, which has the grid; tiles are K x candidates, and CHUNK
tokens of K rows.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton  # type: ignore[import-not-found, import-untyped, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, import-untyped, unused-ignore]
from torch import Tensor

from glassformer.accel.decoding.kernel_start import launch_options, wait_for_previous
from glassformer.accel.decoding.vocabulary_kernels import BLOCK_V, ScorePointers, ScoreSizes, block_maxima, topk_tokens

CHUNK = 64  # tokens of a hypothesis, or columns of the cache, moved at a time
MAX_BEAMS = 8


class StatePointers(NamedTuple):
    """The tensors of a SearchState (slots.py): totals, unfinished_totals (n, K) float64;
    written, minimum, limit, finished_count, unfinished_length, done (n,); finished_score, _ending, _length,
    _eos_logprob (n, P); finished_ids, finished_logprobs (n, P, L); ids, logprobs (n, K, L); divisors (2, L + 2) float64."""

    totals: Any
    written: Any
    minimum: Any
    limit: Any
    done: Any
    finished_count: Any
    finished_score: Any
    finished_ending: Any
    finished_length: Any
    finished_eos_logprob: Any
    finished_ids: Any
    finished_logprobs: Any
    unfinished_totals: Any
    unfinished_length: Any
    ids: Any
    logprobs: Any
    divisors: Any


class CachePointers(NamedTuple):
    """Of the cache: bias (n, K, S), columns (n,), tokens (n, K)."""

    bias: Any
    columns: Any
    tokens: Any


class StepSizes(NamedTuple):
    """The longest text L (max_length), entries of a row of divisors, elements from slot to slot and beam to beam of the bias."""

    max_length: Any
    divisors: Any
    bias_slot: Any
    bias_beam: Any


@triton.jit
def select_alive(value, token, totals_before, divisor, eos, in_b, SIZE: tl.constexpr):
    """topk(totals_before + value, candidates) over all beams, best first: an EOS among the first K has ended, the first K
    others stay alive. Gives the alive (parents, tokens, logprobs, totals: (K,)) and the ended (scores, parents, logprobs:
    (C,); how many)."""
    BEAMS: tl.constexpr = SIZE[0]
    BLOCK_K: tl.constexpr = SIZE[2]
    BLOCK_C: tl.constexpr = SIZE[3]
    CANDIDATES: tl.constexpr = SIZE[7]
    NEG_INF, NO_INDEX = float("-inf"), 2**30
    b, w = tl.arange(0, BLOCK_K), tl.arange(0, BLOCK_C)
    q = b[:, None] * BLOCK_C + w[None, :]
    totals_after = totals_before[:, None] + value.to(tl.float64)
    parents, tokens, logprobs = b, tl.full([BLOCK_K], 0, dtype=tl.int32), tl.full([BLOCK_K], 0.0, dtype=tl.float32)
    totals = tl.full([BLOCK_K], NEG_INF, dtype=tl.float64)
    ended_parent, ended_logprob = tl.full([BLOCK_C], 0, dtype=tl.int32), tl.full([BLOCK_C], 0.0, dtype=tl.float32)
    new_score = tl.full([BLOCK_C], NEG_INF, dtype=tl.float64)
    n_alive, n_ended = tl.full([], 0, dtype=tl.int32), tl.full([], 0, dtype=tl.int32)
    for i in range(CANDIDATES):
        total = tl.max(tl.max(totals_after, axis=1), axis=0)
        index = tl.min(
            tl.min(tl.where((totals_after == total) & (totals_after > NEG_INF), q, NO_INDEX), axis=1), axis=0
        )
        is_best = q == index
        totals_after = tl.where(is_best, NEG_INF, totals_after)
        best_token = tl.max(tl.max(tl.where(is_best, token, -1), axis=1), axis=0)
        logprob = tl.max(tl.max(tl.where(is_best, value, NEG_INF), axis=1), axis=0)
        is_possible = (total > NEG_INF).to(tl.int32)
        is_eos = is_possible * (best_token == eos).to(tl.int32)
        ends = is_eos * tl.max(((w == i) & (w < BEAMS)).to(tl.int32), axis=0)
        new_score = tl.where((w == i) & (ends > 0), total / divisor, new_score)
        ended_parent = tl.where(w == i, index // BLOCK_C, ended_parent)
        ended_logprob = tl.where(w == i, logprob, ended_logprob)
        n_ended += ends
        stays_alive = is_possible - is_eos
        is_next = b == tl.where(stays_alive > 0, n_alive, BLOCK_K)
        parents = tl.where(is_next, index // BLOCK_C, parents)
        tokens = tl.where(is_next, best_token, tokens)
        logprobs = tl.where(is_next, logprob, logprobs)
        totals = tl.where(is_next & in_b, total, totals)
        n_alive += stays_alive
    return parents, tokens, logprobs, totals, new_score, ended_parent, ended_logprob, n_ended


@triton.jit
def add_finished(state, slot, score, new_score, ended_parent, ended_logprob, written, longest, SIZE: tl.constexpr):
    """topk of the finished scores and those that have just ended, with their tokens; of equals the one that was there before.
    Gives the new scores (P,)."""
    BEAMS: tl.constexpr = SIZE[0]
    N_KEEP: tl.constexpr = SIZE[1]
    BLOCK_C: tl.constexpr = SIZE[3]
    BLOCK_P: tl.constexpr = SIZE[4]
    CHUNK: tl.constexpr = SIZE[9]
    NEG_INF, NO_INDEX = float("-inf"), 2**30
    r, w = tl.arange(0, BLOCK_P), tl.arange(0, BLOCK_C)
    in_r = r < N_KEEP
    pool = slot * N_KEEP + r
    old = score
    length = tl.load(state.finished_length + pool, mask=in_r, other=0)
    last = tl.load(state.finished_eos_logprob + pool, mask=in_r, other=NEG_INF)
    new_length, new_last = length, last
    # Where each comes from: the index it had among the finished, or -1 and the beam that has just ended.
    finished_index, beam_index = tl.full([BLOCK_P], -1, dtype=tl.int32), tl.full([BLOCK_P], 0, dtype=tl.int32)
    for nth in tl.static_range(N_KEEP):
        old_best, new_best = tl.max(old, axis=0), tl.max(new_score, axis=0)
        old_index = tl.min(tl.where(old == old_best, r, NO_INDEX), axis=0)
        new_index = tl.min(tl.where(new_score == new_best, w, NO_INDEX), axis=0)
        stays = old_best >= new_best
        old_length = tl.max(tl.where(r == old_index, length, 0), axis=0)
        old_last = tl.max(tl.where(r == old_index, last, NEG_INF), axis=0)
        beam = tl.max(tl.where(w == new_index, ended_parent, 0), axis=0)
        new_logprob = tl.max(tl.where(w == new_index, ended_logprob, NEG_INF), axis=0)
        score = tl.where(r == nth, tl.maximum(old_best, new_best), score)
        finished_index = tl.where(r == nth, tl.where(stays, old_index, -1), finished_index)
        beam_index = tl.where(r == nth, beam, beam_index)
        new_length = tl.where(r == nth, tl.where(stays, old_length, written), new_length)
        new_last = tl.where(r == nth, tl.where(stays, old_last, new_logprob), new_last)
        old = tl.where(r == old_index, tl.where(stays, NEG_INF, old_best), old)
        new_score = tl.where(w == new_index, tl.where(stays, new_best, NEG_INF), new_score)
    tl.debug_barrier()  # the old values, read by all before anyone writes
    tl.store(state.finished_score + pool, score, mask=in_r)
    tl.store(state.finished_length + pool, new_length, mask=in_r)
    tl.store(state.finished_eos_logprob + pool, new_last, mask=in_r)
    tl.store(state.finished_ending + pool, (score > NEG_INF).to(tl.int64), mask=in_r)
    kept, new = ((finished_index >= 0) & in_r)[:, None], ((finished_index < 0) & in_r)[:, None]
    old_offset = (slot * N_KEEP + finished_index)[:, None] * longest
    new_offset = (slot * BEAMS + beam_index)[:, None] * longest
    t = tl.arange(0, CHUNK)[None, :].to(tl.int64)
    start = written * 0
    while start < written:
        past = t < written
        ids = tl.load(state.finished_ids + old_offset + t, mask=kept & past, other=0)
        ids += tl.load(state.ids + new_offset + t, mask=new & past, other=0)
        logprobs = tl.load(state.finished_logprobs + old_offset + t, mask=kept & past, other=0.0)
        logprobs += tl.load(state.logprobs + new_offset + t, mask=new & past, other=0.0)
        tl.debug_barrier()
        tl.store(state.finished_ids + pool[:, None] * longest + t, ids, mask=(kept | new) & past)
        tl.store(state.finished_logprobs + pool[:, None] * longest + t, logprobs, mask=(kept | new) & past)
        t += CHUNK
        start += CHUNK
    return score


@triton.jit
def reorder_and_append(state, cache, sizes, slot, parents, tokens, logprobs, written, SIZE: tl.constexpr):
    """ids, logprobs and the cache's bias of each beam become those of its parent, with the new token at the end; tokens = the
    new ones, read by the next step."""
    BEAMS: tl.constexpr = SIZE[0]
    BLOCK_K: tl.constexpr = SIZE[2]
    CHUNK: tl.constexpr = SIZE[9]
    b = tl.arange(0, BLOCK_K)
    in_b, row = (b < BEAMS)[:, None], slot * BEAMS + b
    parent_offset, own_offset = (slot * BEAMS + parents)[:, None] * sizes.max_length, row[:, None] * sizes.max_length
    t = tl.arange(0, CHUNK)[None, :].to(tl.int64)
    start = written * 0
    while start <= written:
        past, past_and_new = in_b & (t < written), in_b & (t <= written)
        ids = tl.load(state.ids + parent_offset + t, mask=past, other=0)
        past_logprobs = tl.load(state.logprobs + parent_offset + t, mask=past, other=0.0)
        tl.debug_barrier()
        tl.store(state.ids + own_offset + t, tl.where(t == written, tokens[:, None], ids), mask=past_and_new)
        tl.store(
            state.logprobs + own_offset + t, tl.where(t == written, logprobs[:, None], past_logprobs), mask=past_and_new
        )
        t += CHUNK
        start += CHUNK
    if BEAMS > 1:
        bias, columns = cache.bias + slot * sizes.bias_slot, tl.load(cache.columns + slot)
        t = tl.arange(0, CHUNK)[None, :].to(tl.int64)
        start = columns * 0
        while start < columns:
            mask = in_b & (t < columns)
            parent_bias = tl.load(bias + parents[:, None] * sizes.bias_beam + t, mask=mask, other=0.0)
            tl.debug_barrier()
            tl.store(bias + b[:, None] * sizes.bias_beam + t, parent_bias, mask=mask)
            t += CHUNK
            start += CHUNK
    tl.store(cache.tokens + row, tokens.to(tl.int64), mask=b < BEAMS)


@triton.jit
def update_done(
    state, sizes, slot, totals_before, totals, score, count, written, SIZE: tl.constexpr, FIRST_K: tl.constexpr
):
    """The slot is done at its limit, where no beam is alive, and where the stop rule is met (lengths.py)."""
    BEAMS: tl.constexpr = SIZE[0]
    N_KEEP: tl.constexpr = SIZE[1]
    BLOCK_K: tl.constexpr = SIZE[2]
    BLOCK_P: tl.constexpr = SIZE[4]
    NEG_INF = float("-inf")
    b, r = tl.arange(0, BLOCK_K), tl.arange(0, BLOCK_P)
    in_b, row = b < BEAMS, slot * BEAMS + b
    best = tl.max(totals, axis=0)
    alive = best > NEG_INF
    limit, now = tl.load(state.limit + slot), written + 1
    at_limit = now >= limit
    if (alive == 0) & (count == 0):  # no token at all is allowed: the hypotheses end where they are
        tl.store(state.unfinished_totals + row, totals_before, mask=in_b)
        tl.store(state.unfinished_length + slot, written)
    if at_limit & alive:
        tl.store(state.unfinished_totals + row, totals, mask=in_b)
        tl.store(state.unfinished_length + slot, now)
    if FIRST_K:
        stop_rule_met = count >= BEAMS
    else:
        shortest, longest = tl.maximum(now, tl.load(state.minimum + slot)), limit - 1
        last = sizes.divisors - 1
        by_eos = state.divisors + sizes.divisors
        low = best / tl.load(by_eos + tl.minimum(shortest, last))
        high = best / tl.load(by_eos + tl.minimum(tl.maximum(longest, 0), last))
        reachable = tl.where(shortest > longest, NEG_INF, tl.maximum(low, high))
        worst = tl.min(tl.where(r < N_KEEP, score, float("inf")), axis=0)
        stop_rule_met = (count >= N_KEEP) & (reachable <= worst)
    ends = at_limit | (alive == 0) | stop_rule_met
    tl.store(state.done + slot, ends.to(tl.int8))
    tl.store(state.totals + row, tl.where(ends, NEG_INF, totals), mask=in_b)
    tl.store(state.written + slot, now)


@triton.jit
def beam_kernel(state, cache, scores, sizes, step, SIZE: tl.constexpr, FIRST_K: tl.constexpr, PDL: tl.constexpr):
    """state, cache = SearchState.step(logits), KVCache.reorder(parents), for every slot that is not done.

    Grid (n,); a program takes a slot, all its beams as one tile. Memory: StatePointers and CachePointers, contiguous but for
    the bias (StepSizes); logits are row_stride apart (ScoreSizes). SIZE: see the module."""
    BEAMS: tl.constexpr = SIZE[0]
    N_KEEP: tl.constexpr = SIZE[1]
    BLOCK_K: tl.constexpr = SIZE[2]
    BLOCK_P: tl.constexpr = SIZE[4]
    wait_for_previous(PDL)
    slot = tl.program_id(0).to(tl.int64)
    is_done = tl.load(state.done + slot)
    if is_done == 0:
        written = tl.load(state.written + slot)
        b, r = tl.arange(0, BLOCK_K), tl.arange(0, BLOCK_P)
        in_b, row = b < BEAMS, slot * BEAMS + b
        value, token = topk_tokens(scores, sizes, row, in_b, SIZE)
        totals_before = tl.load(state.totals + row, mask=in_b, other=float("-inf"))
        divisor = tl.load(state.divisors + step.divisors + written)
        parents, tokens, logprobs, totals, new_score, ended_parent, ended_logprob, n_ended = select_alive(
            value, token, totals_before, divisor, sizes.eos, in_b, SIZE
        )
        count = tl.load(state.finished_count + slot) + n_ended
        score = tl.load(state.finished_score + slot * N_KEEP + r, mask=r < N_KEEP, other=float("-inf"))
        if n_ended > 0:
            tl.store(state.finished_count + slot, count)
            score = add_finished(
                state, slot, score, new_score, ended_parent, ended_logprob, written, step.max_length, SIZE
            )
        reorder_and_append(state, cache, step, slot, parents, tokens, logprobs, written, SIZE)
        update_done(state, step, slot, totals_before, totals, score, count, written, SIZE, FIRST_K)


def supports_beam_step(state: Any) -> bool:
    """Can `beam_step` make the steps of this search?"""
    vocab_size, beams = state.vocab_size, state.beams
    return (
        len(state.ends) <= 1
        and state.config.stop_rule != "best-now"
        and not state.do_sample
        and state.dtype == torch.float32
        and beams <= MAX_BEAMS
        and 8 * beams * BLOCK_V <= vocab_size <= 2**17
    )


def beam_step(state: Any, never: Tensor, cache: Any, logits: Tensor, n: int) -> None:
    """One step of a SearchState (search.py) and its cache for the first n slots; `never` (V,) is 1 for tokens that are never
    written."""
    beams, n_keep, eos = state.beams, state.n_keep, next(iter(state.ends), -1)
    maxima, partial_lse = block_maxima(logits, never, state.minimum, state.written, eos, beams=beams)
    size = (
        beams, n_keep, max(2, triton.next_power_of_2(beams)), triton.next_power_of_2(2 * beams),
        max(2, triton.next_power_of_2(n_keep)), triton.next_power_of_2(maxima.size(1)),
        triton.next_power_of_2(partial_lse.size(1)), state.n_candidates, BLOCK_V, CHUNK,
    )  # fmt: skip
    own = StatePointers(
        *(getattr(state, name).view(torch.int8) if name == "done" else getattr(state, name)
          for name in StatePointers._fields)
    )  # fmt: skip
    beam_kernel[(n,)](
        own, CachePointers(cache.bias, cache.columns, cache.tokens),
        ScorePointers(logits, never, state.minimum, state.written, maxima, partial_lse),
        ScoreSizes(logits.size(1), logits.stride(0), maxima.size(1), partial_lse.size(1), eos),
        StepSizes(state.max_length, state.divisors.size(1), cache.bias.stride(0), cache.bias.stride(1)),
        size, state.config.stop_rule == "first-k", num_warps=2 if beams <= 4 else 4, **launch_options(),
    )  # fmt: skip
