"""Models, rows and parts for the tests that cut, patch and prune."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from glassformer.nn import Rows
from tests.laws.zoo import FAMILIES, lay_out, run, some_pairs, variants

# What could matter to a head that goes: its positions, its key head, its sizes, its biases, what reads it.
TELLING = (
    "sinusoidal positions",
    "alibi positions",
    "rotary, window, grouped",
    "alibi, window, grouped",
    "post-norm",
    "grouped heads",
    "multi-query",
    "free head sizes",
    "query-key norm",
    "no bias",
    "shared layers",
    "no residual",
    "modern",
)
CASES = [c for c in variants(*FAMILIES) if str(c.id).partition(": ")[2] in TELLING]
PAIRS = some_pairs([(5, 4), (7, 6), (3, 6), (1, 2)], seed=3)


def rows() -> tuple[Rows, Rows]:
    return lay_out([s for s, _ in PAIRS], "right")[0], lay_out([t for _, t in PAIRS], "right")[0]


def logits(model: Any) -> Tensor:
    with torch.no_grad():
        return run(model, *rows())
