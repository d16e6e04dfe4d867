"""One eager pass in evaluation mode, everything recorded: every attention's queries, keys, values and weights, what each part
adds to the residual stream, and what the output layer makes of the stream after each block (the logit lens,
nostalgebraist 2020).

The module draws nothing and writes nothing; it knows neither pages nor files.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from glassformer.inspection.model_input import ModelInput
from glassformer.models import BERT, GPT, Transformer
from glassformer.models.bert import mean_pool
from glassformer.nn.block import Stack
from glassformer.nn.positions import alibi_slopes
from glassformer.nn.rows import Rows
from glassformer.nn.taps import record

ALTERNATIVES = 8  # best words kept for each output


LENS_DEEP = 5  # and for each place of the lens


Array = np.ndarray


Kind = Literal["encoder", "decoder", "cross"]


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
    own = logprobs.gather(1, chosen[:, None])
    best = logprobs.topk(min(top, logprobs.size(1)))
    return Predictions(
        chosen.numpy(),
        own[:, 0].numpy(),
        ((logprobs > own).sum(1) + 1).numpy(),
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


def attention_layer(net: Any, path: str, taps: dict[str, Tensor]) -> AttentionLayer:
    """The queries, keys, values and weights of one attention from what was recorded."""
    part = net.get_submodule(path)
    numbers = list(part.head_ids)
    group = max(1, part.n_head // max(1, part.n_kv_head))
    shares = part.kv_head_of or [h // group for h in range(part.n_head)]
    slopes = biases = None
    if net.config.positions == "alibi" and not path.endswith("cross"):
        every = alibi_slopes(net.config.n_head)
        slopes = [every[number] for number in numbers]
    elif net.config.positions == "relative" and not path.endswith("cross"):
        last = taps[f"{path}.k"].size(2) - 1
        places = torch.arange(2 * last + 1, device=part.key.weight.device)[None]
        found = net.get_submodule(path.partition(".")[0]).positions.bias(places[:, last : last + 1], places)
        biases = found[0, numbers, 0].detach().float().cpu().numpy()
    q, k, v, weights = (taps[f"{path}.{name}"][0].float().cpu().numpy() for name in ("q", "k", "v", "weights"))
    return AttentionLayer(numbers, list(shares), slopes, biases, q, k, v, weights)


def stack_norms(stack: Stack, name: str, taps: dict[str, Tensor]) -> Norms:
    """How long the residual stream's vectors are, and what each part of a block adds to them."""

    def lengths(tap: str) -> Array:
        found = [taps[f"{name}.{layer}.{tap}"][0].float().norm(dim=-1) for layer in range(stack.depth)]
        return torch.stack(found).cpu().numpy()

    parts = {"attention": lengths("attention.out")}
    if stack.layers[0].has_cross:
        parts["cross"] = lengths("cross.out")
    return Norms(lengths("in"), parts | {"mlp": lengths("mlp.out")}, lengths("residual"))


def lens_logits(net: Any, stack: Stack, x: Float[Tensor, "B T C"], row: Rows) -> Float[Tensor, "T V"]:
    """What the model would say if its last block had left `x`."""
    x = x if stack.norm is None else stack.norm(x, None)
    pools = isinstance(net, BERT) and net.mean_pooling
    return net.logits(mean_pool(x, row) if pools else x)[0]


@torch.no_grad()
def record_activations(net: Transformer | GPT | BERT, model_input: ModelInput) -> Activations:
    """One pass in evaluation mode, every attention on the explicit path."""
    training = net.training
    net.eval()
    device = next(net.parameters()).device
    row = Rows.whole(torch.tensor([model_input.row], device=device))
    patterns = ("*.q", "*.k", "*.v", "*.weights", "*.in", "*.residual", "*.attention.out", "*.mlp.out")
    cross = ("*.cross.out",) if isinstance(net, Transformer) else ()
    try:
        with record(net, *patterns, *cross) as taps:
            if isinstance(net, Transformer):
                logits = net(Rows.whole(torch.tensor([model_input.source], device=device)), row)[0]
            else:
                logits = net(row)[0]
        writer: Stack = net.encoder if isinstance(net, BERT) else net.decoder
        name = "encoder" if isinstance(net, BERT) else "decoder"
        positions = torch.tensor(model_input.positions)
        logits = logits.float().cpu()[positions]
        labels = [model_input.labels[place] for place in model_input.positions]
        likeliest = logits.argmax(-1).tolist()
        chosen = torch.tensor([best if label is None else label for best, label in zip(likeliest, labels)])
        outputs = predictions(logits, chosen, ALTERNATIVES)
        stream = [taps[f"{name}.0.in"], *(taps[f"{name}.{layer}.residual"] for layer in range(writer.depth))]
        lens = [
            predictions(lens_logits(net, writer, x, row).float().cpu()[positions], chosen, LENS_DEEP) for x in stream
        ]
    finally:
        net.train(training)
    attentions = {
        kind: [
            attention_layer(net, path.format(layer), taps)
            for layer in range(net.config.encoder_layers if kind == "encoder" else net.config.n_layer)
        ]
        for kind, path in KINDS[net.config.family].items()
    }
    stacks = {part: getattr(net, part) for part in ("encoder", "decoder") if hasattr(net, part)}
    norms = {part: stack_norms(stack, part, taps) for part, stack in stacks.items()}
    known = [i for i, label in enumerate(labels) if label is not None]
    loss = float(-outputs.logprob[known].mean()) if known else None
    return Activations(attentions, norms, outputs, lens, loss)
