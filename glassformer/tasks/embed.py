"""A text as one vector: what the model's last layer makes of its tokens, pooled."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Literal, get_args

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from glassformer.data.examples import windows
from glassformer.errors import ConfigError
from glassformer.models import Transformer
from glassformer.nn.modes import eval_mode
from glassformer.nn.rows import Rows
from glassformer.tasks.generate import prompt_ids
from glassformer.tasks.text_model import TextModel, as_list
from glassformer.text.tokenizer import EOS

Pool = Literal["mean", "max", "first", "last"]
AT_ONCE = 32


def pooled(x: Float[Tensor, "B T C"], real: Bool[Tensor, "B T"], pool: Pool) -> Float[Tensor, "B C"]:
    """One vector a row, over its real tokens alone.

    >>> import torch
    >>> x, real = torch.arange(6.0).view(1, 3, 2), torch.tensor([[True, True, False]])
    >>> [pooled(x, real, pool).tolist() for pool in ("mean", "max", "first", "last")]
    [[[1.0, 2.0]], [[2.0, 3.0]], [[0.0, 1.0]], [[2.0, 3.0]]]
    """
    match pool:
        case "mean":
            return (x * real[..., None]).sum(1) / real.sum(1, keepdim=True)
        case "max":
            return x.masked_fill(~real[..., None], -torch.inf).amax(1)
        case "first":
            return x[:, 0]
        case "last":
            return x[torch.arange(len(x), device=x.device), real.sum(1) - 1]


def over_windows(parts: Sequence[tuple[Float[Tensor, " C"], int]], pool: Pool) -> Float[Tensor, " C"]:
    """The vector of a text from those of its windows and their lengths."""
    vectors, lengths = torch.stack([vector for vector, _ in parts]), torch.tensor([float(size) for _, size in parts])
    if pool == "mean":
        return (vectors * (lengths / lengths.sum())[:, None]).sum(0)
    return vectors.amax(0) if pool == "max" else vectors[0 if pool == "first" else -1]


@torch.no_grad()
def embed(model: TextModel, texts: Sequence[str], *, pool: Pool = "mean") -> Float[Tensor, "N C"]:
    """A row a text, on the CPU, in float32: the encoder's output, or a GPT's last layer. A text longer than the model reads at
    once is read in overlapping windows (data/examples.py), which are pooled in turn: a mean by their lengths."""
    if pool not in get_args(Pool):
        raise ConfigError("pool must be one of {choices}, not {pool!r}", ", ".join(get_args(Pool)), pool)
    net, longest = model._model, model._model.config.block_size
    if isinstance(net, Transformer):
        encoded = model.tokenizers.source.encode_batch(as_list(texts))
        cut = [
            (i, [*ids[w.start : w.end], EOS]) for i, ids in enumerate(encoded) for w in windows(len(ids), longest - 1)
        ]
    elif model.verb in ("generate", "translate"):
        prompts = [prompt_ids(model, text) for text in as_list(texts)]
        cut = [(i, ids[w.start : w.end]) for i, ids in enumerate(prompts) for w in windows(len(ids), longest)]
    else:
        cut = [(i, row) for i, _, row in model.windows(model.tokenizers.target.encode_batch(as_list(texts)))]
    read = net.encode if isinstance(net, Transformer) else net.hidden
    found = []
    with eval_mode(net):
        for start in range(0, len(cut), AT_ONCE):
            own = Rows.from_lists([row for _, row in cut[start : start + AT_ONCE]]).to(model.device)
            found.append(pooled(read(own), own.real, pool).float().cpu())
    if not found:
        return torch.zeros(0, net.config.n_embd)
    parts = zip(torch.cat(found), cut, strict=True)
    by_text = itertools.groupby(parts, key=lambda part: part[1][0])
    return torch.stack([over_windows([(vector, len(row)) for vector, (_, row) in group], pool) for _, group in by_text])
