"""Which source tokens a translation came from: the decoder's cross-attention, read while the translation is forced on it.
A decoder alone has its source in the prompt; there it is the answer's attention to the prompt.

The weights are averaged over layers and heads. A row belongs to the token that was being chosen, not to the one just read.
Attention is where the model looked, which is often, and not always, what the word translates.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from glassformer.nn.rows import Rows
from glassformer.nn.taps import record


def forced_decoding(
    model: Any, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], *, bos: int
) -> tuple[Float[Tensor, "N T V"], Float[Tensor, "N T S"]]:
    """For each pair, the log-probabilities at every place of the target (and the one after it), and the attention."""
    source = Rows.from_lists(sources).to(next(model.parameters()).device)
    target = Rows.from_lists([[bos, *ids] for ids in targets]).to(next(model.parameters()).device)
    state = model.start(source, target.shape[1])
    with record(model, "decoder.*.cross.weights") as recorded:
        logits = model.step(target.tokens, state)
    layers = [layer.mean(dim=1) for layer in recorded.values() if layer.size(1)]  # all heads of a layer may be pruned
    if not layers:
        layers = [torch.zeros(len(sources), target.shape[1], source.shape[1], device=logits.device)]
    weights = torch.stack(layers).mean(dim=0)
    return logits.log_softmax(-1), weights


def alignments(
    model: Any, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], *, bos: int
) -> list[list[list[float]]]:
    """alignment[pair][target token][source token]; every row adds up to one."""
    weights = forced_decoding(model, sources, targets, bos=bos)[1].tolist()
    return [
        [row[: len(source)] for row in rows[: len(target)]] for rows, source, target in zip(weights, sources, targets)
    ]


@torch.no_grad()
def prompt_alignments(
    model: Any, prompts: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
) -> list[list[list[float]]]:
    """alignment[pair][answer token][prompt token], by a GPT: how much each prompt token was looked at while the answer token
    was being chosen, as a share of what went to the prompt. The first token of the prompt, where heads look that look for
    nothing, is left out: its share is 0."""
    rows = Rows.from_lists([[*prompt, *target] for prompt, target in zip(prompts, targets, strict=True)])
    with record(model, "decoder.*.attention.weights") as recorded:
        model.hidden(rows.to(next(model.parameters()).device))
    layers = [layer.mean(dim=1) for layer in recorded.values() if layer.size(1)]  # all heads of a layer may be pruned
    out = []
    for number, (prompt, target) in enumerate(zip(prompts, targets, strict=True)):
        first, width = len(prompt) - 1, len(prompt)
        if not layers:
            out.append([[0.0] * width for _ in target])
            continue
        weights = torch.stack([layer[number, first : first + len(target), :width] for layer in layers]).mean(0).clone()
        weights[:, 0] = 0.0
        out.append((weights / weights.sum(-1, keepdim=True).clamp(min=1e-12)).tolist())
    return out
