"""What each input token did for an answer: gradient x input and integrated gradients (Sundararajan et al. 2017).

How does the difference of two logits change with each token's embedding, here and on the way from a sentence whose every
token is the average one of this sentence (zero embeddings would not do: a norm makes anything of them)? Both are local and
depend on the path: a hint at what mattered, no proof.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from glassformer.inspection.activations import Activations, forward
from glassformer.inspection.attribution import Array, candidates
from glassformer.inspection.model_input import ModelInput
from glassformer.nn.modes import eval_mode
from glassformer.nn.taps import replace

STEPS = 32  # between the average embedding and the sentence's own
MOST_WORK = 3e12  # multiplications that integrated gradients may take


@dataclass(frozen=True)
class Saliency:
    """For each output, what each input token did for the token in question against the best other: by gradient x input and
    by integrated gradients (None where that would take too long), for each text the model reads."""

    gradient: dict[str, Float[Array, "n T"]]
    integrated: dict[str, Float[Array, "n T"]] | None
    difference: Float[Array, " n"]
    gained: Float[Array, " n"] | None  # since the average embeddings: what the integrated ones should add up to


INPUTS = {
    "transformer": {"source": "source_embeddings", "read": "target_embeddings"},
    "gpt": {"read": "embeddings"},
    "bert": {"read": "embeddings"},
}
"""The embeddings of each text a family reads, by its axis and tap."""


def leaning_gradients(
    net: Any, model_input: ModelInput, tokens: Int[Tensor, "n K"], share: float
) -> tuple[dict[str, Tensor], dict[str, Tensor], Tensor]:
    """With all embeddings so far on the way from the sentence's average one to their own: the embeddings, the
    gradients of each output's difference (a row an output), and the differences."""
    count = len(tokens)
    leaves: dict[str, Tensor] = {}

    def keep(axis: str) -> Any:
        def change(value: Tensor) -> Tensor:
            average = value.detach().mean(1, keepdim=True)
            leaves[axis] = (average + share * (value.detach() - average)).requires_grad_()
            return leaves[axis]

        return change

    with torch.enable_grad(), ExitStack() as changed:
        for axis, tap in INPUTS[net.config.family].items():
            changed.enter_context(replace(net, tap, keep(axis)))
        logits = forward(net, model_input, count)
        at_outputs = logits[torch.arange(count), torch.tensor(model_input.positions)]
        pair = at_outputs.gather(1, tokens[:, :2].to(at_outputs.device))
        leaning = pair[:, 0] - pair[:, -1]
        slopes = torch.autograd.grad(leaning.sum(), list(leaves.values()))
    return {axis: x.detach() for axis, x in leaves.items()}, dict(zip(leaves, slopes)), leaning.detach()


def saliency(
    net: Any, model_input: ModelInput, activations: Activations, between: Callable[[], None] = lambda: None
) -> Saliency | None:
    """None where the sentence has too many outputs to ask for one by one. `between` is called before each pass: what it raises
    ends the work."""
    tokens = torch.from_numpy(candidates(activations))
    if len(tokens) > 128 or tokens.size(1) < 2:
        return None
    with eval_mode(net):
        inputs, slopes, difference = leaning_gradients(net, model_input, tokens, 1.0)
        plain = {axis: (x * slopes[axis]).sum(-1).cpu().numpy() for axis, x in inputs.items()}
        ways = {axis: x - x.mean(1, keepdim=True) for axis, x in inputs.items()}
        read = len(tokens) * (len(model_input.row) + len(model_input.source))
        if 6 * STEPS * read * sum(p.numel() for p in net.parameters()) > MOST_WORK:
            return Saliency(plain, None, difference.cpu().numpy(), None)
        total = {axis: torch.zeros_like(x) for axis, x in ways.items()}
        for step in range(STEPS):
            between()
            _, slopes, _ = leaning_gradients(net, model_input, tokens, (step + 0.5) / STEPS)
            for axis in total:
                total[axis] += slopes[axis] / STEPS
        summed = {axis: (ways[axis] * total[axis]).sum(-1).cpu().numpy() for axis in ways}
        _, _, before = leaning_gradients(net, model_input, tokens, 0.0)
    return Saliency(plain, summed, difference.cpu().numpy(), (difference - before).cpu().numpy())
