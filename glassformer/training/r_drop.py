"""R-Drop: the same sentences twice through the model, each time with other numbers dropped, and a price on disagreement.

Dropout trains many thinned models that share their weights, and nothing in the plain loss asks them to say the same. R-Drop
(Liang et al. 2021, "R-Drop: regularized dropout for neural networks", NeurIPS) does:

    loss = (CE_1 + CE_2) / 2 + strength / 4 * (KL(p_1, p_2) + KL(p_2, p_1))

which is the paper's loss over two, its alpha being `strength`. Where a model learns little text by heart it helps (docs/log.md);
the price is a step that takes twice as long, and the scores of all positions in memory twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from glassformer.nn.loss import IGNORE
from glassformer.nn.rows import Rows


def twice(rows: Rows) -> Rows:
    """The rows, and the same rows below them."""
    tokens, segments, positions = (torch.cat([t, t]) for t in (rows.tokens, rows.segments, rows.positions))
    return replace(rows, tokens=tokens, segments=segments, positions=positions)


def r_drop_loss(
    model: Any, inputs: Sequence[Rows], labels: Int[Tensor, "B T"], *, smoothing: float, strength: float
) -> Float[Tensor, ""]:
    """Summed over the positions that have a label, as every loss here. For models that score the next word of each position."""
    hidden = model.hidden(*(twice(rows) for rows in inputs))
    scores = F.linear(hidden, model.output_weight, model.output_bias).flatten(0, 1)
    first, second = scores.to(torch.promote_types(scores.dtype, torch.float32)).log_softmax(-1).chunk(2)
    targets = labels.flatten()
    counts = targets != IGNORE
    right = targets.masked_fill(~counts, 0)[:, None]
    mean = (first + second) / 2
    loss = -(1 - smoothing) * mean.gather(1, right)[:, 0] - smoothing * mean.mean(-1)
    disagreement = ((first.exp() - second.exp()) * (first - second)).sum(-1)
    return (loss + strength / 4 * disagreement).masked_fill(~counts, 0.0).sum()
