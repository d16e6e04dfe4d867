"""One eager pass in evaluation mode, everything recorded: every attention's queries, keys, values and weights, what each part
adds to the residual stream, and what the output layer makes of the stream after each block (the logit lens,
nostalgebraist 2020). And what follows from the weights alone: the attention rollout (Abnar and Zuidema 2020), the mean
alignment.

The module draws nothing and writes nothing; it knows neither pages nor files.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from glassformer.inspection.model_input import ModelInput
from glassformer.models import BERT, GPT, Transformer
from glassformer.models.bert import mean_pool
from glassformer.nn.block import Stack
from glassformer.nn.modes import eval_mode
from glassformer.nn.positions import alibi_slopes
from glassformer.nn.rows import Rows
from glassformer.nn.taps import record

ALTERNATIVES = 8  # best words kept for each output
LENS_DEEP = 5  # and for each place of the lens
Array = np.ndarray


@dataclass(frozen=True)
class Predictions:
    """What a distribution over words says at each place. `tokens` are those in question: the label, or the likeliest."""

    tokens: Int[Array, " n"]
    logprob: Float[Array, " n"]  # of the token in question; natural logarithm
    rank: Int[Array, " n"]  # of the token in question, from 1
    entropy: Float[Array, " n"]  # nats
    best: Int[Array, "n top"]
    chances: Float[Array, "n top"]  # of the best


def predictions(logits: Float[Tensor, "n V"], chosen: Int[Tensor, " n"], top: int) -> Predictions:
    """Log-probability and rank of the chosen tokens, entropy, and the `top` best at every position."""
    logprobs = logits.double().log_softmax(-1)
    of_chosen = logprobs.gather(1, chosen[:, None])
    best = logprobs.topk(min(top, logprobs.size(1)))
    return Predictions(
        chosen.numpy(),
        of_chosen[:, 0].numpy(),
        ((logprobs > of_chosen).sum(1) + 1).numpy(),
        -(logprobs.exp() * logprobs.clamp(min=-1e4)).sum(1).numpy(),
        best.indices.numpy(),
        best.values.exp().numpy(),
    )


@dataclass(frozen=True)
class AttentionLayer:
    """One attention of one layer. Head h is called `head_ids[h]` and asks the keys of head `kv_head_of[h]`."""

    head_ids: list[int]
    kv_head_of: list[int]
    slopes: list[float] | None  # ALiBi's, of each head
    biases: Float[Array, "H distances"] | None  # T5's, of keys from so many tokens before the query to as many after it
    q: Float[Array, "H T D"]
    k: Float[Array, "K S D"]
    v: Float[Array, "K S Dv"]
    weights: Float[Array, "H T S"]


@dataclass(frozen=True)
class Norms:
    """Lengths of vectors, for each layer and token: the residual stream as it enters the layer, what each part adds, and the
    stream as it leaves."""

    entering: Float[Array, "L T"]
    parts: dict[str, Float[Array, "L T"]]  # attention, cross, mlp
    leaving: Float[Array, "L T"]


@dataclass(frozen=True)
class Activations:
    """What went on inside a model that read one text."""

    attentions: dict[str, list[AttentionLayer]]  # by kind
    norms: dict[str, Norms]  # by stack
    outputs: Predictions  # at the positions
    lens: list[Predictions]  # the same after 0, 1, 2 … blocks
    loss: float | None  # mean over the positions that have a label

    def weights(self, kind: str) -> list[Float[Array, "H T S"]]:
        """The attention weights of this kind, a layer each."""
        return [layer.weights for layer in self.attentions[kind]]


KINDS: dict[str, dict[str, str]] = {
    "transformer": {"encoder": "encoder.{}.attention", "decoder": "decoder.{}.attention", "cross": "decoder.{}.cross"},
    "gpt": {"decoder": "decoder.{}.attention"},
    "bert": {"encoder": "encoder.{}.attention"},
}
"""The attentions of each family by kind."""


def forward(net: Any, model_input: ModelInput, times: int = 1) -> Tensor:
    """The logits of the same input, repeated as `times` rows."""
    device = next(net.parameters()).device
    rows = [torch.tensor([ids] * times, device=device) for ids in (model_input.source, model_input.row) if ids]
    return net(*(Rows.whole(ids) for ids in rows))


def attention_layer(net: Any, path: str, taps: dict[str, Tensor]) -> AttentionLayer:
    """The queries, keys, values and weights of one attention from what was recorded."""
    attention = net.get_submodule(path)
    numbers = list(attention.head_ids)
    group = max(1, attention.n_head // max(1, attention.n_kv_head))
    kv_head_of = attention.kv_head_of or [h // group for h in range(attention.n_head)]
    slopes = biases = None
    if net.config.positions == "alibi" and not path.endswith("cross"):
        every = alibi_slopes(net.config.n_head)
        slopes = [every[number] for number in numbers]
    elif net.config.positions == "relative" and not path.endswith("cross"):
        last = taps[f"{path}.k"].size(2) - 1
        places = torch.arange(2 * last + 1, device=attention.key.weight.device)[None]
        bias = net.get_submodule(path.partition(".")[0]).positions.bias(places[:, last : last + 1], places)
        biases = bias[0, numbers, 0].detach().float().cpu().numpy()
    q, k, v, weights = (taps[f"{path}.{name}"][0].float().cpu().numpy() for name in ("q", "k", "v", "weights"))
    return AttentionLayer(numbers, list(kv_head_of), slopes, biases, q, k, v, weights)


def stack_norms(stack: Stack, name: str, taps: dict[str, Tensor]) -> Norms:
    """How long the residual stream's vectors are, and what each part of a block adds to them."""

    def lengths(tap: str) -> Array:
        rows = [taps[f"{name}.{layer}.{tap}"][0].float().norm(dim=-1) for layer in range(stack.depth)]
        return torch.stack(rows).cpu().numpy()

    parts = ("attention", "cross", "mlp") if stack.layers[0].has_cross else ("attention", "mlp")
    return Norms(lengths("in"), {part: lengths(f"{part}.out") for part in parts}, lengths("residual"))


def lens_logits(net: Any, stack: Stack, x: Float[Tensor, "B T C"], row: Rows) -> Float[Tensor, "T V"]:
    """What the model would say if its last block had left `x`."""
    x = x if stack.norm is None else stack.norm(x, None)
    pools = isinstance(net, BERT) and net.mean_pooling
    return net.logits(mean_pool(x, row) if pools else x)[0]


@torch.no_grad()
def record_activations(net: Transformer | GPT | BERT, model_input: ModelInput) -> Activations:
    """One pass in evaluation mode, every attention on the explicit path."""
    name = "encoder" if isinstance(net, BERT) else "decoder"
    writer: Stack = getattr(net, name)
    row = Rows.whole(torch.tensor([model_input.row], device=next(net.parameters()).device))
    positions = torch.tensor(model_input.positions)
    labels = [model_input.labels[place] for place in model_input.positions]
    with eval_mode(net):
        with record(net, "*.q", "*.k", "*.v", "*.weights", "*.in", "*.residual", "*.out") as taps:
            logits = forward(net, model_input)[0].float().cpu()[positions]
        likeliest = logits.argmax(-1).tolist()
        chosen = torch.tensor([best if label is None else label for best, label in zip(likeliest, labels)])
        outputs = predictions(logits, chosen, ALTERNATIVES)
        stream = [taps[f"{name}.0.in"], *(taps[f"{name}.{layer}.residual"] for layer in range(writer.depth))]
        lens = [
            predictions(lens_logits(net, writer, x, row).float().cpu()[positions], chosen, LENS_DEEP) for x in stream
        ]
    attentions = {
        kind: [
            attention_layer(net, path.format(layer), taps)
            for layer in range(net.config.encoder_layers if kind == "encoder" else net.config.n_layer)
        ]
        for kind, path in KINDS[net.config.family].items()
    }
    stacks = {side: getattr(net, side) for side in ("encoder", "decoder") if hasattr(net, side)}
    norms = {side: stack_norms(stack, side, taps) for side, stack in stacks.items()}
    known = [i for i, label in enumerate(labels) if label is not None]
    loss = float(-outputs.logprob[known].mean()) if known else None
    return Activations(attentions, norms, outputs, lens, loss)


# ---- what follows from the weights


def head_mean(weights: Float[Array, "H T S"]) -> Float[Array, "T S"]:
    """Without heads (all pruned) nothing is passed on."""
    return weights.astype(np.float64).mean(axis=0) if len(weights) else np.zeros(weights.shape[1:])


def rollout(activations: Activations, *, residual: bool = True) -> dict[str, Float[Array, "L T S"]]:
    """How much of each input token has come to each place after each layer, if every block passes on half of what it had and
    half of what its attention looked at (the mean of its heads); of two attentions, one after the other. The rows of an
    encoder add up to one; those of a decoder that has a source do so over its own tokens and the source's together."""
    stay = 0.5 if residual else 0.0

    def share_kept(weights: Array) -> float:
        # A mean of heads whose rows add up to one; without any head, all of it stays.
        return stay if len(weights) else 1.0

    def through(layers: list[Array]) -> Array:
        flow = np.eye(layers[0].shape[-1])
        flows = []
        for weights in layers:
            keep = share_kept(weights)
            flow = keep * flow + (1 - keep) * head_mean(weights) @ flow
            flows.append(flow)
        return np.stack(flows)

    out = {}
    if "encoder" in activations.attentions:
        out["encoder"] = through(activations.weights("encoder"))
    if "decoder" in activations.attentions and "cross" not in activations.attentions:
        out["decoder"] = through(activations.weights("decoder"))
    if "cross" in activations.attentions:
        source = out["encoder"][-1]
        length = activations.weights("decoder")[0].shape[-1]
        from_target, from_source = np.eye(length), np.zeros((length, len(source)))
        depths = []
        for self_weights, cross_weights in zip(activations.weights("decoder"), activations.weights("cross")):
            keep = share_kept(self_weights)
            step = keep * np.eye(length) + (1 - keep) * head_mean(self_weights)
            from_target, from_source = step @ from_target, step @ from_source
            keep = share_kept(cross_weights)
            from_target = keep * from_target
            from_source = keep * from_source + (1 - keep) * head_mean(cross_weights) @ source
            depths.append((from_target, from_source))
        out["decoder"], out["cross"] = (np.stack(flows) for flows in zip(*depths))
    return out


def alignment(activations: Activations) -> Float[Array, "T S"] | None:
    """Where the decoder looked in the source: the mean over the layers and heads of cross-attention."""
    layers = [head_mean(layer.weights) for layer in activations.attentions.get("cross", []) if len(layer.weights)]
    return np.mean(layers, axis=0) if layers else None
