"""The loss kernels against the torch code that says what they compute, by Triton's interpreter, which needs no GPU."""

from __future__ import annotations

import pytest

from tests.programs import run_program

# A process of its own: the interpreter is chosen when kernels are defined, and the checks of shapes cannot be compiled.


@pytest.mark.slow
def test_kernels_compute_the_formula() -> None:
    """Loss and gradient; smoothing, IGNORE, words that do not exist, more columns than a block takes at a time, a last tile
    that is not full; 8 bits in both orders; and the output layer that is built on them, compiled without a break. Broken:
    the score of the label read after the gradient has taken its place; padding in the maximum; rows and columns of the
    turned gradient exchanged."""
    assert "held" in run_program("loss_kernels", TRITON_INTERPRET="1")
