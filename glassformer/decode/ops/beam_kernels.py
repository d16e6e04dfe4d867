"""Kernels for the search: the whole book-keeping of a slot's beams in two launches a step.

By torch a step of the beam is two hundred small operations on a few numbers. Here the scores are read once
(vocabulary_kernels.py), and `beam_step` does, one program a slot, what `SearchState.step` (search.py) and
`Cache.reorder` do for a plain beam of one group: the best continuations, what has ended into the pool, what goes on,
whether the slot is over. Greedy search is a beam of one.

Scores are float32, a beam's sums float64. What is picked out of a few numbers is picked by maxima and minima alone, of
tensors as they are: where threads hold copies of a number (of a reshaped tensor, say), a compiler has been met that
adds up all of them.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton  # type: ignore[import-not-found, import-untyped, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, import-untyped, unused-ignore]
from torch import Tensor

from glassformer.decode.ops.kernel_start import launch_options, wait_for_previous
from glassformer.decode.ops.vocabulary_kernels import BLOCK_V, ScorePointers, ScoreSizes, block_maxima

CHUNK = 64  # tokens of a hypothesis, or columns, moved at a time
MOST_BEAMS = 8


class StatePointers(NamedTuple):
    """The tensors of a SearchState of one group, without that dimension: totals, cut_totals (n, K) float64; written, minimum,
    limit, count, cut_length (n,); over, group_over (n,); score, ending, length, last (n, wanted); pool_ids, pool_logprobs (n,
    wanted, L); ids, logprobs (n, K, L); divisors (2, L + 2) float64."""

    totals: Any
    written: Any
    minimum: Any
    limit: Any
    over: Any
    group_over: Any
    count: Any
    score: Any
    ending: Any
    length: Any
    last: Any
    pool_ids: Any
    pool_logprobs: Any
    cut_totals: Any
    cut_length: Any
    ids: Any
    logprobs: Any
    divisors: Any


class CachePointers(NamedTuple):
    """Of the cache: bias (n, K, S), columns (n,), tokens (n, K)."""

    bias: Any
    columns: Any
    tokens: Any


class StepSizes(NamedTuple):
    """Longest text L, entries of a row of divisors, elements from slot to slot and beam to beam of the bias."""

    longest: Any
    divisors: Any
    bias_slot: Any
    bias_beam: Any


@triton.jit
def best_words(scores, sizes, row, in_b, SIZE: tl.constexpr):
    """For each beam its LOOKED best words, best first: (K, W) of log-probabilities (-inf: no more) and of words."""
    K: tl.constexpr = SIZE[2]
    W: tl.constexpr = SIZE[3]
    BLOCKS: tl.constexpr = SIZE[5]
    PARTS: tl.constexpr = SIZE[6]
    LOOKED: tl.constexpr = SIZE[7]
    BLOCK_V: tl.constexpr = SIZE[8]
    NEVER, NONE = float("-inf"), 2**30
    s, w, p = tl.arange(0, BLOCKS), tl.arange(0, W), tl.arange(0, PARTS)
    part_mask = in_b[:, None] & (p < sizes.parts)[None, :]
    part = tl.load(scores.parts + row[:, None] * sizes.parts + p[None, :], mask=part_mask, other=NEVER)
    top = tl.max(part, axis=1)
    top = tl.where(top == NEVER, 0.0, top)
    log_total = tl.where(in_b, top + tl.log(tl.sum(tl.exp(part - top[:, None]), axis=1)), 0.0)
    maxima_mask = in_b[:, None] & (s < sizes.blocks)[None, :]
    maxima = tl.load(scores.maxima + row[:, None] * sizes.blocks + s[None, :], mask=maxima_mask, other=NEVER)
    chosen = tl.full([K, W], -1, dtype=tl.int32)
    for i in range(LOOKED):
        height = tl.max(maxima, axis=1)
        place = tl.min(tl.where((maxima == height[:, None]) & (maxima > NEVER), s[None, :], NONE), axis=1)
        chosen = tl.where(w[None, :] == i, tl.where(place < NONE, place, -1)[:, None], chosen)
        maxima = tl.where(s[None, :] == place[:, None], NEVER, maxima)
    word = chosen[:, :, None] * BLOCK_V + tl.arange(0, BLOCK_V)[None, None, :]
    known = (chosen >= 0)[:, :, None] & (word < sizes.words)
    found = tl.load(scores.logits + row[:, None, None] * sizes.row + word, mask=known, other=NEVER).to(tl.float32)
    value = tl.full([K, W], NEVER, dtype=tl.float32)
    token = tl.full([K, W], 0, dtype=tl.int32)
    for i in range(LOOKED):
        height = tl.max(tl.max(found, axis=2), axis=1)
        best = (found == height[:, None, None]) & (found > NEVER)
        its_word = tl.min(tl.min(tl.where(best, word, NONE), axis=2), axis=1)
        value = tl.where(w[None, :] == i, (height - log_total)[:, None], value)
        token = tl.where(w[None, :] == i, tl.where(its_word < NONE, its_word, 0)[:, None], token)
        found = tl.where(word == its_word[:, None, None], NEVER, found)
    return value, token


@triton.jit
def sift(value, token, before, divisor, eos, in_b, SIZE: tl.constexpr):
    """Of all beams' continuations the best, best first: an EOS among the first K enters the pool, the first K others go on.
    Gives what goes on (parents, tokens, chances, totals: (K,)) and what enters (scores, parents, chances: (W,); how many)."""
    BEAMS: tl.constexpr = SIZE[0]
    K: tl.constexpr = SIZE[2]
    W: tl.constexpr = SIZE[3]
    LOOKED: tl.constexpr = SIZE[7]
    NEVER, NONE = float("-inf"), 2**30
    b, w = tl.arange(0, K), tl.arange(0, W)
    q = b[:, None] * W + w[None, :]
    every = before[:, None] + value.to(tl.float64)
    parents, tokens, chances = b, tl.full([K], 0, dtype=tl.int32), tl.full([K], 0.0, dtype=tl.float32)
    totals = tl.full([K], NEVER, dtype=tl.float64)
    ended_parent, ended_chance = tl.full([W], 0, dtype=tl.int32), tl.full([W], 0.0, dtype=tl.float32)
    fresh = tl.full([W], NEVER, dtype=tl.float64)
    place_left, entered = tl.full([], 0, dtype=tl.int32), tl.full([], 0, dtype=tl.int32)
    for i in range(LOOKED):
        total = tl.max(tl.max(every, axis=1), axis=0)
        place = tl.min(tl.min(tl.where((every == total) & (every > NEVER), q, NONE), axis=1), axis=0)
        here = q == place
        every = tl.where(here, NEVER, every)
        its_word = tl.max(tl.max(tl.where(here, token, -1), axis=1), axis=0)
        chance = tl.max(tl.max(tl.where(here, value, NEVER), axis=1), axis=0)
        possible = (total > NEVER).to(tl.int32)
        is_eos = possible * (its_word == eos).to(tl.int32)
        enters = is_eos * tl.max(((w == i) & (w < BEAMS)).to(tl.int32), axis=0)
        fresh = tl.where((w == i) & (enters > 0), total / divisor, fresh)
        ended_parent = tl.where(w == i, place // W, ended_parent)
        ended_chance = tl.where(w == i, chance, ended_chance)
        entered += enters
        goes_on = possible - is_eos
        mine = b == tl.where(goes_on > 0, place_left, K)
        parents = tl.where(mine, place // W, parents)
        tokens = tl.where(mine, its_word, tokens)
        chances = tl.where(mine, chance, chances)
        totals = tl.where(mine & in_b, total, totals)
        place_left += goes_on
    return parents, tokens, chances, totals, fresh, ended_parent, ended_chance, entered


@triton.jit
def enter_pool(state, slot, score, fresh, ended_parent, ended_chance, written, longest, SIZE: tl.constexpr):
    """What has just ended, into the pool of the best; of equals the one that was there before. Gives the pool's new scores."""
    BEAMS: tl.constexpr = SIZE[0]
    WANTED: tl.constexpr = SIZE[1]
    W: tl.constexpr = SIZE[3]
    BEST: tl.constexpr = SIZE[4]
    CHUNK: tl.constexpr = SIZE[9]
    NEVER, NONE = float("-inf"), 2**30
    r, w = tl.arange(0, BEST), tl.arange(0, W)
    in_r = r < WANTED
    pool = slot * WANTED + r
    old = score
    length = tl.load(state.length + pool, mask=in_r, other=0)
    last = tl.load(state.last + pool, mask=in_r, other=NEVER)
    new_length, new_last = length, last
    # Where each of the pool comes from: a place of the pool, or -1 and a hypothesis.
    of_pool, of_beam = tl.full([BEST], -1, dtype=tl.int32), tl.full([BEST], 0, dtype=tl.int32)
    for nth in tl.static_range(WANTED):
        old_best, new_best = tl.max(old, axis=0), tl.max(fresh, axis=0)
        old_place = tl.min(tl.where(old == old_best, r, NONE), axis=0)
        new_place = tl.min(tl.where(fresh == new_best, w, NONE), axis=0)
        stays = old_best >= new_best
        its_length = tl.max(tl.where(r == old_place, length, 0), axis=0)
        its_last = tl.max(tl.where(r == old_place, last, NEVER), axis=0)
        beam = tl.max(tl.where(w == new_place, ended_parent, 0), axis=0)
        its_chance = tl.max(tl.where(w == new_place, ended_chance, NEVER), axis=0)
        score = tl.where(r == nth, tl.maximum(old_best, new_best), score)
        of_pool = tl.where(r == nth, tl.where(stays, old_place, -1), of_pool)
        of_beam = tl.where(r == nth, beam, of_beam)
        new_length = tl.where(r == nth, tl.where(stays, its_length, written), new_length)
        new_last = tl.where(r == nth, tl.where(stays, its_last, its_chance), new_last)
        old = tl.where(r == old_place, tl.where(stays, NEVER, old_best), old)
        fresh = tl.where(w == new_place, tl.where(stays, new_best, NEVER), fresh)
    tl.debug_barrier()  # the old values, read by all before anyone writes
    tl.store(state.score + pool, score, mask=in_r)
    tl.store(state.length + pool, new_length, mask=in_r)
    tl.store(state.last + pool, new_last, mask=in_r)
    tl.store(state.ending + pool, (score > NEVER).to(tl.int64), mask=in_r)
    kept, new = ((of_pool >= 0) & in_r)[:, None], ((of_pool < 0) & in_r)[:, None]
    from_pool = (slot * WANTED + of_pool)[:, None] * longest
    from_beam = (slot * BEAMS + of_beam)[:, None] * longest
    t = tl.arange(0, CHUNK)[None, :].to(tl.int64)
    start = written * 0
    while start < written:
        past = t < written
        ids = tl.load(state.pool_ids + from_pool + t, mask=kept & past, other=0)
        ids += tl.load(state.ids + from_beam + t, mask=new & past, other=0)
        parts = tl.load(state.pool_logprobs + from_pool + t, mask=kept & past, other=0.0)
        parts += tl.load(state.logprobs + from_beam + t, mask=new & past, other=0.0)
        tl.debug_barrier()
        tl.store(state.pool_ids + pool[:, None] * longest + t, ids, mask=(kept | new) & past)
        tl.store(state.pool_logprobs + pool[:, None] * longest + t, parts, mask=(kept | new) & past)
        t += CHUNK
        start += CHUNK
    return score


@triton.jit
def follow(state, cache, sizes, slot, parents, tokens, chances, written, SIZE: tl.constexpr):
    """Every hypothesis takes the place of the one it continues: its words, its past, its next token."""
    BEAMS: tl.constexpr = SIZE[0]
    K: tl.constexpr = SIZE[2]
    CHUNK: tl.constexpr = SIZE[9]
    b = tl.arange(0, K)
    in_b, row = (b < BEAMS)[:, None], slot * BEAMS + b
    source, target = (slot * BEAMS + parents)[:, None] * sizes.longest, row[:, None] * sizes.longest
    t = tl.arange(0, CHUNK)[None, :].to(tl.int64)
    start = written * 0
    while start <= written:
        past, upto = in_b & (t < written), in_b & (t <= written)
        ids = tl.load(state.ids + source + t, mask=past, other=0)
        parts = tl.load(state.logprobs + source + t, mask=past, other=0.0)
        tl.debug_barrier()
        tl.store(state.ids + target + t, tl.where(t == written, tokens[:, None], ids), mask=upto)
        tl.store(state.logprobs + target + t, tl.where(t == written, chances[:, None], parts), mask=upto)
        t += CHUNK
        start += CHUNK
    if BEAMS > 1:
        bias, columns = cache.bias + slot * sizes.bias_slot, tl.load(cache.columns + slot)
        t = tl.arange(0, CHUNK)[None, :].to(tl.int64)
        start = columns * 0
        while start < columns:
            mask = in_b & (t < columns)
            seen = tl.load(bias + parents[:, None] * sizes.bias_beam + t, mask=mask, other=0.0)
            tl.debug_barrier()
            tl.store(bias + b[:, None] * sizes.bias_beam + t, seen, mask=mask)
            t += CHUNK
            start += CHUNK
    tl.store(cache.tokens + row, tokens.to(tl.int64), mask=b < BEAMS)


@triton.jit
def settle(state, sizes, slot, before, totals, score, count, written, SIZE: tl.constexpr, FIRST_K: tl.constexpr):
    """End what has met its limit, and the slot where nothing better can come."""
    BEAMS: tl.constexpr = SIZE[0]
    WANTED: tl.constexpr = SIZE[1]
    K: tl.constexpr = SIZE[2]
    BEST: tl.constexpr = SIZE[4]
    NEVER = float("-inf")
    b, r = tl.arange(0, K), tl.arange(0, BEST)
    in_b, row = b < BEAMS, slot * BEAMS + b
    best = tl.max(totals, axis=0)
    alive = best > NEVER
    limit, now = tl.load(state.limit + slot), written + 1
    at_limit = now >= limit
    if (alive == 0) & (count == 0):  # no token at all is allowed: the hypotheses end where they are
        tl.store(state.cut_totals + row, before, mask=in_b)
        tl.store(state.cut_length + slot, written)
    if at_limit & alive:
        tl.store(state.cut_totals + row, totals, mask=in_b)
        tl.store(state.cut_length + slot, now)
    if FIRST_K:
        settled = count >= BEAMS
    else:
        shortest, longest = tl.maximum(now, tl.load(state.minimum + slot)), limit - 1
        last = sizes.divisors - 1
        by_eos = state.divisors + sizes.divisors
        low = best / tl.load(by_eos + tl.minimum(shortest, last))
        high = best / tl.load(by_eos + tl.minimum(tl.maximum(longest, 0), last))
        reachable = tl.where(shortest > longest, NEVER, tl.maximum(low, high))
        worst = tl.min(tl.where(r < WANTED, score, float("inf")), axis=0)
        settled = (count >= WANTED) & (reachable <= worst)
    ends = at_limit | (alive == 0) | settled
    tl.store(state.over + slot, ends.to(tl.int8))
    tl.store(state.group_over + slot, ends.to(tl.int8))
    tl.store(state.totals + row, tl.where(ends, NEVER, totals), mask=in_b)
    tl.store(state.written + slot, now)


@triton.jit
def beam_kernel(state, cache, scores, sizes, step, SIZE: tl.constexpr, FIRST_K: tl.constexpr, EARLY: tl.constexpr):
    """A step of the search for every slot that is not over (see the module).

    Grid (n,): a program takes a slot. SIZE is (K, wanted, K rounded up, 2 K rounded up, wanted rounded up, blocks rounded up,
    parts rounded up, candidates looked at, BLOCK_V, CHUNK)."""
    BEAMS: tl.constexpr = SIZE[0]
    WANTED: tl.constexpr = SIZE[1]
    K: tl.constexpr = SIZE[2]
    BEST: tl.constexpr = SIZE[4]
    wait_for_previous(EARLY)
    slot = tl.program_id(0).to(tl.int64)
    is_over = tl.load(state.over + slot)
    if is_over == 0:
        written = tl.load(state.written + slot)
        b, r = tl.arange(0, K), tl.arange(0, BEST)
        in_b, row = b < BEAMS, slot * BEAMS + b
        value, token = best_words(scores, sizes, row, in_b, SIZE)
        before = tl.load(state.totals + row, mask=in_b, other=float("-inf"))
        divisor = tl.load(state.divisors + step.divisors + written)
        parents, tokens, chances, totals, fresh, ended_parent, ended_chance, entered = sift(
            value, token, before, divisor, sizes.eos, in_b, SIZE
        )
        count = tl.load(state.count + slot) + entered
        score = tl.load(state.score + slot * WANTED + r, mask=r < WANTED, other=float("-inf"))
        if entered > 0:
            tl.store(state.count + slot, count)
            score = enter_pool(state, slot, score, fresh, ended_parent, ended_chance, written, step.longest, SIZE)
        follow(state, cache, step, slot, parents, tokens, chances, written, SIZE)
        settle(state, step, slot, before, totals, score, count, written, SIZE, FIRST_K)


def suits_beam_step(state: Any) -> bool:
    """Is this a search that `beam_step` can make a step of?"""
    words, beams = state.vocabulary, state.beams
    return (
        state.groups == 1
        and not state.draws_tokens
        and state.dtype == torch.float32
        and beams <= MOST_BEAMS
        and 8 * beams * BLOCK_V <= words <= 2**17
    )


def beam_step(state: Any, never: Tensor, cache: Any, logits: Tensor, n: int) -> None:
    """The step of a SearchState (search.py) and its cache for the first n slots; `never` (V,) is 1 for words never written."""
    beams, wanted = state.beams, state.wanted
    maxima, parts = block_maxima(logits, never, state.minimum, state.written, state.eos, beams=beams)
    size = (
        beams, wanted, max(2, triton.next_power_of_2(beams)), triton.next_power_of_2(2 * beams),
        max(2, triton.next_power_of_2(wanted)), triton.next_power_of_2(maxima.size(1)), triton.next_power_of_2(parts.size(1)),
        state.looked_at, BLOCK_V, CHUNK,
    )  # fmt: skip
    own = StatePointers(
        *(getattr(state, name).view(torch.int8) if name in ("over", "group_over") else getattr(state, name)
          for name in StatePointers._fields)
    )  # fmt: skip
    beam_kernel[(n,)](
        own, CachePointers(cache.bias, cache.columns, cache.tokens),
        ScorePointers(logits, never, state.minimum, state.written, maxima, parts),
        ScoreSizes(logits.size(1), logits.stride(0), maxima.size(1), parts.size(1), state.eos),
        StepSizes(state.longest, state.divisors.size(1), cache.bias.stride(0), cache.bias.stride(1)),
        size, state.config.stop_rule == "first-k", num_warps=2 if beams <= 4 else 4, **launch_options(),
    )  # fmt: skip
