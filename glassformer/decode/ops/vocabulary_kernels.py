"""Where a vocabulary comes in and goes out: the embedding, and the scores read once, to a fraction of their size.

For every BLOCK_V words the highest score that may be written, and the log of the sum of exponentials in parts. The best words
of a row stand in the blocks with the highest maxima, so only these get a second look (beam_kernels.py).
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton  # type: ignore[import-not-found, import-untyped, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, import-untyped, unused-ignore]
from torch import Tensor

from glassformer.decode.ops.kernel_start import launch_options, wait_for_previous

BLOCK_V = 64  # words that one maximum stands for
WORDS = 1024  # that one program reads


class ScorePointers(NamedTuple):
    """logits (n K, V); never (V,) int8; minimum, written (n,); maxima (n K, V / BLOCK_V); parts (n K, V / WORDS)."""

    logits: Any
    never: Any
    minimum: Any
    written: Any
    maxima: Any
    parts: Any


class ScoreSizes(NamedTuple):
    """words V, elements from row to row of the logits, blocks and parts of a row, EOS (-1: none)."""

    words: Any
    row: Any
    blocks: Any
    parts: Any
    eos: Any


@triton.jit
def maxima_kernel(at, sizes, BEAMS: tl.constexpr, BLOCKS: tl.constexpr, BLOCK_V: tl.constexpr, EARLY: tl.constexpr):
    """maxima[r, b] = max of what may be written of logits[r, block b]; parts[r, p] = logsumexp of logits[r, part p]. What may not
    be written is -inf in the logits afterwards.

    Grid (parts, n K); a program reads a tile of BLOCKS x BLOCK_V words of one row."""
    wait_for_previous(EARLY)
    part, row = tl.program_id(0), tl.program_id(1).to(tl.int64)
    slot = row // BEAMS
    block = part * BLOCKS + tl.arange(0, BLOCKS)
    n = block[:, None] * BLOCK_V + tl.arange(0, BLOCK_V)[None, :]
    inside = n < sizes.words
    here = at.logits + row * sizes.row + n
    logits = tl.load(here, mask=inside, other=float("-inf")).to(tl.float32)
    highest = tl.max(tl.max(logits, axis=1), axis=0)
    total = tl.sum(tl.sum(tl.exp(logits - highest), axis=1), axis=0)
    tl.store(at.parts + row * sizes.parts + part, highest + tl.log(total))
    early = tl.load(at.written + slot) < tl.load(at.minimum + slot)
    out = (tl.load(at.never + n, mask=inside, other=0) != 0) | ((n == sizes.eos) & early)
    nothing = tl.full([BLOCKS, BLOCK_V], float("-inf"), dtype=tl.float32).to(at.logits.dtype.element_ty)
    tl.store(here, nothing, mask=inside & out)
    allowed = tl.where(out, float("-inf"), logits)
    tl.store(at.maxima + row * sizes.blocks + block, tl.max(allowed, axis=1), mask=block < sizes.blocks)


def block_maxima(
    logits: Tensor, never: Tensor, minimum: Tensor, written: Tensor, eos: int, *, beams: int
) -> tuple[Tensor, Tensor]:
    """The highest score of every BLOCK_V words that may be written now, and the logs of sums of exponentials of every row, WORDS
    words each. What may not be written is -inf in `logits` afterwards."""
    rows, words = logits.shape
    blocks, parts = triton.cdiv(words, BLOCK_V), triton.cdiv(words, WORDS)
    maxima = torch.empty(rows, blocks, dtype=torch.float32, device=logits.device)
    sums = torch.empty(rows, parts, dtype=torch.float32, device=logits.device)
    maxima_kernel[(parts, rows)](
        ScorePointers(logits, never, minimum, written, maxima, sums),
        ScoreSizes(words, logits.stride(0), blocks, parts, eos), beams, WORDS // BLOCK_V, BLOCK_V, **launch_options(),
    )  # fmt: skip
    return maxima, sums


class EmbeddingPointers(NamedTuple):
    """tokens (R,); table (V, C); positions (n, C), a row a slot; out (R, C)."""

    tokens: Any
    table: Any
    positions: Any
    out: Any


@triton.jit
def embed_kernel(
    at, factor, width, BEAMS: tl.constexpr, POSITIONS: tl.constexpr, BLOCK_C: tl.constexpr, EARLY: tl.constexpr
):
    """out[r] = table[tokens[r]] factor + positions[r / beams].        Grid (R,): a program takes a row, C <= BLOCK_C."""
    wait_for_previous(EARLY)
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK_C)
    inside = c < width
    token = tl.load(at.tokens + row)
    x = tl.load(at.table + token * width + c, mask=inside, other=0.0).to(tl.float32) * factor
    if POSITIONS:
        x = x.to(at.out.dtype.element_ty).to(tl.float32)
        x = x + tl.load(at.positions + (row // BEAMS) * width + c, mask=inside, other=0.0).to(tl.float32)
    tl.store(at.out + row * width + c, x.to(at.out.dtype.element_ty), mask=inside)


def embed(tokens: Tensor, table: Tensor, positions: Tensor | None, factor: float) -> Tensor:
    """Words with their positions: tokens (R,), table (V, C), positions (n, C), the same for the R / n beams of a slot."""
    rows, width = tokens.size(0), table.size(1)
    out = torch.empty(rows, width, dtype=table.dtype, device=table.device)
    beams = 1 if positions is None else rows // positions.size(0)
    embed_kernel[(rows,)](
        EmbeddingPointers(tokens, table, table if positions is None else positions, out), float(factor), width,
        beams, positions is not None, triton.next_power_of_2(width), **launch_options(),
    )  # fmt: skip
    return out
