"""Who pushed the model to its answer: each part's share of a logit.

Direct logit attribution (Elhage et al. 2021; the logit lens taken apart): the residual stream at a position is a sum of what the
embedding, every head and every MLP have written there, and the output layer is linear. So a logit is a sum, too, one
term a part. The norms on the way are affine once their scale is held at the value it has in this pass; a term is carried
back through them from the output layer, so the terms add up to the logit exactly. What a part does by changing what later
parts read is not in its term; for that, ablate it (`glassformer heads`) or patch it.

An output head with a bend in it (BERT's for masks and for classes) is taken by its slope at this point, and what that leaves
is a term of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from glassformer.inspection.activations import Activations, forward
from glassformer.inspection.model_input import ModelInput
from glassformer.models import BERT
from glassformer.models.bert import ClassificationHead
from glassformer.nn.block import Stack
from glassformer.nn.norms import BatchNorm, LayerNorm, NoNorm, RMSNorm
from glassformer.nn.taps import record

CANDIDATES = 5  # tokens whose logits are taken apart at each output: the one in question and the best others
NEURONS = 6  # of each MLP and output, those that pushed most
Array = np.ndarray
Neurons = dict[str, list[list[tuple[int, float, float]]]]
"""By MLP, then by output: the number of each neuron, its activation, its push."""


@dataclass(frozen=True)
class Attribution:
    """At each output, for each candidate token: its logit, and the terms it is made of.

    `parts` are "embedding", heads as "decoder.0.cross:2", MLPs as "decoder.0.mlp", "bias" (of projections, norms and the
    output layer) and, where the output head bends, "head". `neurons` are those of each MLP that push the first candidate
    most against the second."""

    tokens: Int[Array, "n K"]
    logits: Float[Array, "n K"]
    parts: list[str]
    terms: Float[Array, "n K parts"]
    neurons: Neurons


def candidates(activations: Activations) -> Int[Array, "n K"]:
    """The token in question first, then the best others."""
    outputs = activations.outputs
    rows = []
    for token, best in zip(outputs.tokens.tolist(), outputs.best.tolist()):
        rows.append([token, *[other for other in best if other != token]][:CANDIDATES])
    return np.array([row[: min(map(len, rows))] for row in rows])


def pull_back(
    norm: Any, x: Float[Tensor, "P C"], u: Float[Tensor, "P K C"]
) -> tuple[Float[Tensor, "P K C"], Float[Tensor, "P K"]]:
    """For directions u after the norm: the directions before it, and the constant, so that u.norm(c1 + c2 …) is
    v.c1 + v.c2 … + constant, with the norm's scale held at that of x."""
    nothing = u.new_zeros(u.shape[:2])
    if isinstance(norm, LayerNorm):
        scale = (x.var(-1, unbiased=False) + norm.eps).rsqrt()[:, None, None]
        v = u * norm.weight.to(u)
        constant = nothing if norm.bias is None else u @ norm.bias.to(u)
        return (v - v.mean(-1, keepdim=True)) * scale, constant
    if isinstance(norm, RMSNorm):
        scale = (x.square().mean(-1) + norm.eps).rsqrt()[:, None, None]
        return u * norm.weight.to(u) * scale, nothing
    if isinstance(norm, BatchNorm):
        v = u * (norm.weight * torch.rsqrt(norm.running_variance + norm.eps)).to(u)
        constant = -(v @ norm.running_mean.to(u))
        return v, constant if norm.bias is None else constant + u @ norm.bias.to(u)
    if norm is None or isinstance(norm, NoNorm):
        return u, nothing
    raise TypeError(f"attribution does not know {type(norm).__name__}: pull_back has to say what stands still in it")


def output_directions(
    net: Any, x: Float[Tensor, "P C"], tokens: Int[Tensor, "P K"]
) -> tuple[Float[Tensor, "P K C"], Float[Tensor, "P K"], Float[Tensor, "P K"]]:
    """For each token: the direction of its logit at x (what leaves the stack), the constant beside it, and the logit."""
    head = getattr(net, "head", None)
    weight, bias = net.output_layer() if isinstance(net, BERT) else (net.output_weight, net.output_bias)
    if head is None or (isinstance(head, ClassificationHead) and head.dense is None):
        u = weight.double()[tokens]
        constant = bias.double()[tokens] if bias is not None else u.new_zeros(tokens.shape)
        return u, constant, (u * x[:, None]).sum(-1) + constant
    directions, logits = x.new_zeros(*tokens.shape, x.size(1)), x.new_zeros(tokens.shape)
    for k in range(tokens.size(1)):
        with torch.enable_grad():
            leaf = x.float().requires_grad_()
            logit = net.logits(leaf[None])[0].gather(1, tokens[:, k : k + 1])[:, 0]
            (slope,) = torch.autograd.grad(logit.sum(), leaf)
        directions[:, k], logits[:, k] = slope.double(), logit.detach().double()
    return directions, x.new_zeros(tokens.shape), logits


def sublayers(stack: Stack, name: str) -> list[tuple[str, Any, Any, str]]:
    """From the first to the last: (name, module, its norm, the tap of the stream after it)."""
    layers: list[tuple[str, Any, Any, str]] = []
    for n, block in enumerate(stack.layers):
        layers.append((f"{name}.{n}.attention", block.attention, block.attention_norm, f"{name}.{n}.after_attention"))
        if block.has_cross:
            layers.append((f"{name}.{n}.cross", block.cross, block.cross_norm, f"{name}.{n}.after_cross"))
        layers.append((f"{name}.{n}.mlp", block.mlp, block.mlp_norm, f"{name}.{n}.residual"))
    return layers


def strongest_neurons(
    pushed: Float[Tensor, "P K N"], active: Float[Tensor, "P N"]
) -> list[list[tuple[int, float, float]]]:
    """Of each position, the neurons that push the first candidate most for or against the second."""
    difference = pushed[:, 0] - pushed[:, min(1, pushed.size(1) - 1)]
    best = difference.abs().topk(min(NEURONS, difference.size(1))).indices
    return [
        [(int(n), float(active[p, n]), float(difference[p, n])) for n in best[p]] for p in range(difference.size(0))
    ]


def sublayer_terms(
    stack: Stack,
    layers: list[tuple[str, Any, Any, str]],
    seen: dict[str, Tensor],
    asked: Int[Tensor, " P"],
    u: Float[Tensor, "P K C"],
    constant: Float[Tensor, "P K"],
) -> tuple[dict[str, Tensor], Neurons]:
    """From the last sub-layer to the first: what each head and MLP wrote in the directions `u`, which are carried back
    through post-norm's norms on the way."""
    terms: dict[str, Tensor] = {}
    neurons: Neurons = {}
    start = f"{layers[0][0].partition('.')[0]}.0.in"
    entering = [start, *(tap for *_, tap in layers[:-1])]
    for (path, module, norm, _), before in reversed(list(zip(layers, entering))):
        block = stack.layers[int(path.split(".")[1])]
        if not block.pre_norm:
            change = seen[f"{path}.out"][asked]
            u, more = pull_back(norm, change + seen[before][asked] if block.residual else change, u)
            constant = constant + more
        if path.endswith("mlp"):
            pushed = torch.einsum("pkc,cn->pkn", u, module.down.weight.double())
            pushed = pushed * seen[f"{path}.activation"][asked][:, None]
            terms[path] = pushed.sum(-1)
            neurons[path] = strongest_neurons(pushed, seen[f"{path}.activation"][asked])
            bias = module.down.bias
        else:
            weight = module.out.weight.double().unflatten(1, (module.n_head, module.value_size))
            z = seen[f"{path}.heads"][:, asked]
            each = torch.einsum("pkc,chd,hpd->pkh", u, weight, z)
            for at, number in enumerate(module.head_ids):
                terms[f"{path}:{number}"] = each[..., at]
            bias = module.out.bias
        if bias is not None:
            constant = constant + u @ bias.double()
        if not block.residual:
            u = torch.zeros_like(u)
    terms["embedding"] = (u * seen[start][asked][:, None]).sum(-1)
    terms["bias"] = constant
    return terms, neurons


@torch.no_grad()
def attribute(net: Any, model_input: ModelInput, activations: Activations) -> Attribution:
    """Takes the logits of every output apart."""
    name = "encoder" if isinstance(net, BERT) else "decoder"
    stack: Stack = getattr(net, name)
    layers = sublayers(stack, name)
    pools = isinstance(net, BERT) and net.mean_pooling
    patterns = (f"{name}.*.{tap}" for tap in ("in", "mlp.activation", "after_*", "residual", "heads", "out"))
    with record(net, *patterns) as taps:
        forward(net, model_input)
    device = next(net.parameters()).device
    asked = torch.tensor(range(len(model_input.row)) if pools else model_input.positions, device=device)
    seen = {tap: value[0].double() for tap, value in taps.items()}
    tokens = torch.from_numpy(candidates(activations)).to(device)
    last = seen[layers[-1][3]][asked]
    final = last if stack.norm is None else stack.norm(last.float()[None], None)[0].double()
    if pools:
        final = final.mean(0, keepdim=True)
    u, constant, logits = output_directions(net, final, tokens)
    bent = logits - (u * final[:, None]).sum(-1) - constant
    if pools:  # the mean of all positions: each has its share of the direction
        u, constant = u.expand(len(asked), -1, -1) / len(asked), constant.expand(len(asked), -1) / len(asked)
    if stack.norm is not None:
        u, more = pull_back(stack.norm, last, u)
        constant = constant + more
    terms, neurons = sublayer_terms(stack, layers, seen, asked, u, constant)
    order = ["embedding"]
    for path, module, _, _ in layers:
        order += [path] if path.endswith("mlp") else [f"{path}:{number}" for number in module.head_ids]
    order.append("bias")
    stacked = torch.stack([terms[part] for part in order], dim=-1)
    if pools:
        stacked = stacked.sum(0, keepdim=True)
        neurons = {path: rows[:1] for path, rows in neurons.items()}
    if bent.abs().max() > 1e-9:
        order, stacked = [*order, "head"], torch.cat([stacked, bent[..., None]], dim=-1)
    numbers = [value.cpu().numpy() for value in (tokens, logits, stacked)]
    return Attribution(numbers[0], numbers[1], order, numbers[2], dict(reversed(neurons.items())))
