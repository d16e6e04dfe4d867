"""How words are chosen from their scores, on a CUDA device: greedily or by a beam, in two launches a step.

The vocabulary's best word and its log-probability (`best_words`) are found in two parts, as one block alone would be slow to
read all words. A beam needs several: of a large vocabulary only the stretches with the highest peaks get a second look
(`peaks`), and the whole book-keeping of a sentence's beams, two hundred small operations on a few numbers, is one kernel
(`beam_step`).

They are written in Triton, like layer_kernels.py, and sum in float32 (a beam's totals in float64). What each of them computes
is said by the torch code of boards.py, to which they are held: by Triton's interpreter on a CPU, on a device by the whole
engine against the plain model, and `beam_step` by a trial before its first use.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from typing import Any

import torch
import triton  # type: ignore[import-not-found, import-untyped, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, import-untyped, unused-ignore]
from torch import Tensor

from glassformer.decode.kernel_start import begin, starting

WORDS_A_BLOCK = 1024
STRETCH = 64  # words that one peak stands for
CHUNK = 64  # tokens of a hypothesis moved at a time
STEP_WARPS = 2
MOST_BEAMS = 8  # of a sentence, for `beam_step`


@triton.jit
def peaks_kernel(
    logits_at, never_at, minimum_at, written_at, peak_at, part_at,
    words, row_width, stretches, blocks, eos, BEAMS: tl.constexpr, STRETCHES: tl.constexpr, STRETCH: tl.constexpr,
    EARLY: tl.constexpr,
):  # fmt: skip
    begin(EARLY)
    block, row = tl.program_id(0), tl.program_id(1).to(tl.int64)
    stretch = block * STRETCHES + tl.arange(0, STRETCHES)
    n = stretch[:, None] * STRETCH + tl.arange(0, STRETCH)[None, :]
    inside = n < words
    at = logits_at + row * row_width + n
    logits = tl.load(at, mask=inside, other=float("-inf")).to(tl.float32)
    highest = tl.max(tl.max(logits, axis=1), axis=0)
    total = tl.sum(tl.sum(tl.exp(logits - highest), axis=1), axis=0)
    tl.store(part_at + row * blocks + block, highest + tl.log(total))
    early = tl.load(written_at) < tl.load(minimum_at + row // BEAMS)
    out = (tl.load(never_at + n, mask=inside, other=0) != 0) | ((n == eos) & early)
    tl.store(at, tl.full([STRETCHES, STRETCH], float("-inf"), dtype=tl.float32), mask=inside & out)
    allowed = tl.where(out, float("-inf"), logits)
    tl.store(peak_at + row * stretches + stretch, tl.max(allowed, axis=1), mask=stretch < stretches)


def peaks(
    logits: Tensor, never: Tensor, minimum: Tensor, written: Tensor, eos: int, *, beams: int
) -> tuple[Tensor, Tensor]:
    """The highest score of every stretch of words that may be written now, and the logs of sums of exponentials of every
    row, a part of its words each. What may not be written is -inf in `logits` afterwards."""
    rows, words = logits.shape
    stretches = triton.cdiv(words, STRETCH)
    a_block = WORDS_A_BLOCK // STRETCH
    blocks = triton.cdiv(stretches, a_block)
    peak = torch.empty(rows, stretches, dtype=torch.float32, device=logits.device)
    part = torch.empty(rows, blocks, dtype=torch.float32, device=logits.device)
    peaks_kernel[(blocks, rows)](
        logits, never, minimum, written, peak, part,
        words, logits.stride(0), stretches, blocks, eos, beams, a_block, STRETCH, **starting(),
    )  # fmt: skip
    return peak, part


@triton.jit
def beam_kernel(
    logits_at, peak_at, part_at, totals_at, written_at, minimum_at, limit_at, over_at, count_at,
    score_at, length_at, last_at, pool_ids_at, pool_logprobs_at, cut_totals_at, cut_length_at,
    ids_at, logprobs_at, divisor_at, shade_at, column_at, tokens_at,
    words, row_width, stretches, blocks, longest, eos, last_divisor, shade_sentence, shade_beam,
    BEAMS: tl.constexpr, WANTED: tl.constexpr, FIRST_K: tl.constexpr, STRETCH: tl.constexpr,
    K: tl.constexpr, W: tl.constexpr, BEST: tl.constexpr, STRETCHES: tl.constexpr, BLOCKS: tl.constexpr,
    CHUNK: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    # What is picked out of a few numbers is picked by maxima and minima alone, of tensors as they are: where threads hold
    # copies of a number (of a reshaped tensor, say), a compiler has been met that adds up all of them.
    begin(EARLY)
    LOOKED: tl.constexpr = 2 * BEAMS
    NEVER, NONE = float("-inf"), 2**30
    sentence = tl.program_id(0).to(tl.int64)
    is_over = tl.load(over_at + sentence)
    if is_over == 0:
        written = tl.load(written_at)
        b, w, s, r = tl.arange(0, K), tl.arange(0, W), tl.arange(0, STRETCHES), tl.arange(0, BEST)
        in_b = b < BEAMS
        row = sentence * BEAMS + b

        # Of each beam, the stretches with the highest peaks, and in them the best words.
        part_n = tl.arange(0, BLOCKS)
        part_mask = in_b[:, None] & (part_n < blocks)[None, :]
        part = tl.load(part_at + row[:, None] * blocks + part_n[None, :], mask=part_mask, other=NEVER)
        top = tl.max(part, axis=1)
        top = tl.where(top == NEVER, 0.0, top)
        log_total = tl.where(in_b, top + tl.log(tl.sum(tl.exp(part - top[:, None]), axis=1)), 0.0)
        peak_mask = in_b[:, None] & (s < stretches)[None, :]
        peak = tl.load(peak_at + row[:, None] * stretches + s[None, :], mask=peak_mask, other=NEVER)
        chosen = tl.full([K, W], -1, dtype=tl.int32)
        for i in range(LOOKED):
            height = tl.max(peak, axis=1)
            place = tl.min(tl.where((peak == height[:, None]) & (peak > NEVER), s[None, :], NONE), axis=1)
            chosen = tl.where(w[None, :] == i, tl.where(place < NONE, place, -1)[:, None], chosen)
            peak = tl.where(s[None, :] == place[:, None], NEVER, peak)
        word = chosen[:, :, None] * STRETCH + tl.arange(0, STRETCH)[None, None, :]
        known = (chosen >= 0)[:, :, None] & (word < words)
        found = tl.load(logits_at + row[:, None, None] * row_width + word, mask=known, other=NEVER).to(tl.float32)
        value = tl.full([K, W], NEVER, dtype=tl.float32)
        token = tl.full([K, W], 0, dtype=tl.int32)
        for i in range(LOOKED):
            height = tl.max(tl.max(found, axis=2), axis=1)
            best = (found == height[:, None, None]) & (found > NEVER)
            its_word = tl.min(tl.min(tl.where(best, word, NONE), axis=2), axis=1)
            value = tl.where(w[None, :] == i, (height - log_total)[:, None], value)
            token = tl.where(w[None, :] == i, tl.where(its_word < NONE, its_word, 0)[:, None], token)
            found = tl.where(word == its_word[:, None, None], NEVER, found)

        # Of all beams, the best continuations, best first: an end goes to the pool, the first that are none go on.
        before = tl.load(totals_at + row, mask=in_b, other=NEVER)
        every = before[:, None] + value.to(tl.float64)
        q = b[:, None] * W + w[None, :]
        divisor = tl.load(divisor_at + written)
        parents, tokens, chances = b, tl.full([K], 0, dtype=tl.int32), tl.full([K], 0.0, dtype=tl.float32)
        totals = tl.full([K], NEVER, dtype=tl.float64)
        ended_parent, ended_chance = tl.full([W], 0, dtype=tl.int32), tl.full([W], 0.0, dtype=tl.float32)
        fresh = tl.full([W], NEVER, dtype=tl.float64)
        slot, entered = tl.full([], 0, dtype=tl.int32), tl.full([], 0, dtype=tl.int32)
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
            here = b == tl.where(goes_on > 0, slot, K)
            parents = tl.where(here, place // W, parents)
            tokens = tl.where(here, its_word, tokens)
            chances = tl.where(here, chance, chances)
            totals = tl.where(here & in_b, total, totals)
            slot += goes_on
        best_total = tl.max(totals, axis=0)
        some_alive = best_total > NEVER

        # What has just ended, into the pool of the best; of equals the one that was there before.
        count = tl.load(count_at + sentence) + entered
        pool = sentence * WANTED + r
        score = tl.load(score_at + pool, mask=r < WANTED, other=NEVER)
        if entered > 0:
            old = score
            length = tl.load(length_at + pool, mask=r < WANTED, other=0)
            last = tl.load(last_at + pool, mask=r < WANTED, other=NEVER)
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
            tl.debug_barrier()  # the old scores, read by all before anyone writes
            tl.store(count_at + sentence, count)
            tl.store(score_at + pool, score, mask=r < WANTED)
            tl.store(length_at + pool, new_length, mask=r < WANTED)
            tl.store(last_at + pool, new_last, mask=r < WANTED)
            kept = ((of_pool >= 0) & (r < WANTED))[:, None]
            new = ((of_pool < 0) & (r < WANTED))[:, None]
            from_pool = (sentence * WANTED + of_pool)[:, None] * longest
            from_beam = (sentence * BEAMS + of_beam)[:, None] * longest
            t = tl.arange(0, CHUNK)[None, :].to(tl.int64)
            start = written * 0
            while start < written:
                past = t < written
                ids = tl.load(pool_ids_at + from_pool + t, mask=kept & past, other=0)
                ids += tl.load(ids_at + from_beam + t, mask=new & past, other=0)
                parts = tl.load(pool_logprobs_at + from_pool + t, mask=kept & past, other=0.0)
                parts += tl.load(logprobs_at + from_beam + t, mask=new & past, other=0.0)
                tl.debug_barrier()  # read by all before anyone writes
                tl.store(pool_ids_at + pool[:, None] * longest + t, ids, mask=(kept | new) & past)
                tl.store(pool_logprobs_at + pool[:, None] * longest + t, parts, mask=(kept | new) & past)
                t += CHUNK
                start += CHUNK

        # Every hypothesis takes the place of the one it continues: its words, its past, its next token.
        source, target = (sentence * BEAMS + parents)[:, None] * longest, row[:, None] * longest
        t = tl.arange(0, CHUNK)[None, :].to(tl.int64)
        start = written * 0
        while start <= written:
            past, upto = in_b[:, None] & (t < written), in_b[:, None] & (t <= written)
            ids = tl.load(ids_at + source + t, mask=past, other=0)
            parts = tl.load(logprobs_at + source + t, mask=past, other=0.0)
            tl.debug_barrier()
            tl.store(ids_at + target + t, tl.where(t == written, tokens[:, None], ids), mask=upto)
            tl.store(logprobs_at + target + t, tl.where(t == written, chances[:, None], parts), mask=upto)
            t += CHUNK
            start += CHUNK
        shade = shade_at + sentence * shade_sentence
        columns = tl.load(column_at)
        t = tl.arange(0, CHUNK)[None, :].to(tl.int64)
        start = columns * 0
        while start < columns:
            mask = in_b[:, None] & (t < columns)
            seen = tl.load(shade + parents[:, None] * shade_beam + t, mask=mask, other=0.0)
            tl.debug_barrier()
            tl.store(shade + b[:, None] * shade_beam + t, seen, mask=mask)
            t += CHUNK
            start += CHUNK
        tl.store(tokens_at + row, tokens.to(tl.int64), mask=in_b)

        # Where no token at all is allowed and nothing has ended, the hypotheses end where they are; at the limit all do.
        limit = tl.load(limit_at + sentence)
        now = written + 1
        at_limit = now >= limit
        stuck = (some_alive == 0) & (count == 0)
        if stuck:
            tl.store(cut_totals_at + row, before, mask=in_b)
            tl.store(cut_length_at + sentence, written)
        if at_limit & some_alive:
            tl.store(cut_totals_at + row, totals, mask=in_b)
            tl.store(cut_length_at + sentence, now)
        if FIRST_K:
            settled = count >= BEAMS
        else:
            shortest = tl.maximum(now, tl.load(minimum_at + sentence))
            furthest = limit - 1
            reachable = tl.maximum(
                best_total / tl.load(divisor_at + tl.minimum(shortest, last_divisor)),
                best_total / tl.load(divisor_at + tl.maximum(furthest, 0)),
            )
            reachable = tl.where(shortest > furthest, NEVER, reachable)
            worst = tl.min(tl.where(r < WANTED, score, float("inf")), axis=0)
            settled = (count >= WANTED) & (reachable <= worst)
        ends = at_limit | (some_alive == 0) | settled
        tl.store(over_at + sentence, ends.to(tl.int8))
        tl.store(totals_at + row, tl.where(ends, NEVER, totals), mask=in_b)


def suits_beam_step(beams: int, words: int) -> bool:
    return beams <= MOST_BEAMS and 8 * beams * STRETCH <= words <= 2**17


def beam_step(board: Any, logits: Tensor, room: Any, sentences: int) -> None:
    """The step of a board of beams (boards.py) for its first sentences."""
    peak, part = peaks(logits, board.is_never, board.minimum, board.written, board.eos, beams=board.beams)
    stretches, blocks = peak.size(1), part.size(1)
    wide = triton.next_power_of_2(2 * board.beams)
    beam_kernel[(sentences,)](
        logits, peak, part, board.totals, board.written, board.minimum, board.limit, board.over.view(torch.int8), board.count,
        board.score, board.length, board.last, board.pool_ids, board.pool_logprobs, board.cut_totals, board.cut_length,
        board.ids, board.logprobs, board.divisor, room.shade, room.column, room.tokens,
        logits.size(1), logits.stride(0), stretches, blocks, board.longest, board.eos, board.divisor.numel() - 1,
        room.shade.stride(0), room.shade.stride(1),
        board.beams, board.wanted, board.config.stop_rule == "first-k", STRETCH,
        triton.next_power_of_2(board.beams), wide, max(2, triton.next_power_of_2(board.wanted)),
        triton.next_power_of_2(stretches), triton.next_power_of_2(blocks), CHUNK,
        num_warps=STEP_WARPS if board.beams <= 4 else 2 * STEP_WARPS, **starting(),
    )  # fmt: skip
    board.written += 1


@triton.jit
def look_through_kernel(
    logits_at, never_at, minimum_at, written_at, best_at, word_at, share_at,
    words, row_width, blocks, eos, BLOCK: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    begin(EARLY)
    block, row = tl.program_id(0), tl.program_id(1).to(tl.int64)
    n = block * BLOCK + tl.arange(0, BLOCK)
    inside = n < words
    logits = tl.load(logits_at + row * row_width + n, mask=inside, other=float("-inf")).to(tl.float32)
    highest = tl.max(logits, axis=0)
    share = tl.sum(tl.exp(logits - highest), axis=0)
    early = tl.load(written_at) < tl.load(minimum_at + row)
    out = (tl.load(never_at + n, mask=inside, other=1) != 0) | ((n == eos) & early)
    allowed = tl.where(out, float("-inf"), logits)
    at = row * blocks + block
    tl.store(best_at + at, tl.max(allowed, axis=0))
    tl.store(word_at + at, block * BLOCK + tl.argmax(allowed, axis=0))
    # The sum of all exponentials as one number, so that the second part needs no second maximum.
    tl.store(share_at + at, highest + tl.log(share))


@triton.jit
def enter_kernel(
    best_at, word_at, share_at, written_at, limit_at, over_at, lengths_at, by_eos_at, tokens_at, ids_at, logprobs_at,
    blocks, longest, eos, PARTS: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    begin(EARLY)
    row = tl.program_id(0).to(tl.int64)
    b = tl.arange(0, PARTS)
    inside = b < blocks
    best = tl.load(best_at + row * blocks + b, mask=inside, other=float("-inf"))
    part = tl.load(share_at + row * blocks + b, mask=inside, other=float("-inf"))
    first = tl.argmax(best, axis=0)
    word = tl.max(tl.where(b == first, tl.load(word_at + row * blocks + b, mask=inside, other=0), -1), axis=0)
    highest = tl.max(part, axis=0)
    total = highest + tl.log(tl.sum(tl.exp(part - highest), axis=0))
    logprob = tl.max(best, axis=0) - total
    written = tl.load(written_at)
    open_ = tl.load(over_at + row) == 0
    goes_on = open_ & (logprob > float("-inf"))
    ended = goes_on & (word == eos)
    tl.store(ids_at + row * longest + written, word)
    tl.store(logprobs_at + row * longest + written, logprob)
    tl.store(lengths_at + row, tl.load(lengths_at + row) + goes_on.to(tl.int64))
    tl.store(by_eos_at + row, ((tl.load(by_eos_at + row) != 0) | ended).to(tl.int8))
    over = (goes_on == 0) | ended | (written + 1 >= tl.load(limit_at + row))
    tl.store(over_at + row, over.to(tl.int8))
    tl.store(tokens_at + row, word.to(tl.int64))


def best_words(board: Any, logits: Tensor, tokens: Tensor, never: Tensor) -> None:
    """The greedy step of a board of lines (boards.py): the best word of every row and its log-probability entered.
    `never` has a 1 for each word that may not be written."""
    rows, words = logits.shape
    blocks = triton.cdiv(words, WORDS_A_BLOCK)
    best = torch.empty(rows, blocks, dtype=torch.float32, device=logits.device)
    word = torch.empty(rows, blocks, dtype=torch.int32, device=logits.device)
    share = torch.empty_like(best)
    look_through_kernel[(blocks, rows)](
        logits, never, board.minimum, board.written, best, word, share,
        words, logits.stride(0), blocks, board.eos, WORDS_A_BLOCK, **starting(),
    )  # fmt: skip
    over, by_eos = board.over.view(torch.int8), board.by_eos.view(torch.int8)
    enter_kernel[(rows,)](
        best, word, share, board.written, board.limit, over, board.lengths, by_eos, tokens, board.ids, board.logprobs,
        blocks, board.longest, board.eos, triton.next_power_of_2(blocks), num_warps=1, **starting(),
    )  # fmt: skip
    board.written += 1
