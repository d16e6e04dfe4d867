"""Buckets of shapes: numbers rounded up, so that a device captures few graphs, and `batch_invariant` decodes like with like."""

from __future__ import annotations

SLOT_STEP = 256  # slots from bucket to bucket, where there are many
INVARIANT_STEP = 8  # batch-invariant: widths are multiples of this


def slot_bucket(number: int) -> int:
    """The bucket of so many slots: few, since each is captured anew, and the fewer slots there are, the less one more costs."""
    return next_power_of_2(number, least=1) if number <= 2 * SLOT_STEP else -(-number // SLOT_STEP) * SLOT_STEP


def next_power_of_2(number: int, *, least: int = 16) -> int:
    """The power of two that is at least so large."""
    return max(least, 1 << (number - 1).bit_length())


def width_bucket(number: int, *, least: int = 8) -> int:
    """The bucket of a width: steps of an eighth to a quarter of it, so that there are few and little is wasted."""
    step = least
    while number > 8 * step:
        step *= 2
    return -(-number // step) * step


def invariant_width(length: int, longest: int | None) -> int:
    """The width of the rows of a text of so many tokens, batch-invariant. `longest` is as wide as rows may be."""
    width = (length // INVARIANT_STEP + 1) * INVARIANT_STEP
    if longest is None or width <= longest:
        return width
    return longest if length < longest else length
