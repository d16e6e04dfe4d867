"""A model's weights by name, on their way between a model and a file; and whether they have changed.

Copies of weights (packed, on a device, in another engine) are used as long as the checksum stays. An optimizer may write to
parameters without anything in torch telling so (a fused step raises no version), so sums over every row of every parameter are
compared: a look at each weight, where decoding a text looks at each for every token.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from glassformer.config import Recipe
from glassformer.errors import UserError
from glassformer.models.costs import count_parameters
from glassformer.nn.lora import merge_lora


def model_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Parameters (each once, however many modules use it) and persistent buffers."""
    tensors = {name: p.detach() for name, p in model.named_parameters()}
    saved = model.state_dict()
    tensors |= {name: b for name, b in model.named_buffers() if name in saved}
    return tensors


def load_model_tensors(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Copy the tensors into the model of the same names and shapes; anything else is refused in a sentence."""
    own = model_tensors(model)
    missing, extra = sorted(own.keys() - tensors.keys()), sorted(tensors.keys() - own.keys())
    if missing or extra:
        raise UserError(
            "these weights are of another model: {n_missing} tensors are missing (such as {missing}) and "
            "{n_extra} are unknown (such as {extra})",
            len(missing),
            missing[:1],
            len(extra),
            extra[:1],
        )
    for name, tensor in own.items():
        if tensor.shape != tensors[name].shape:
            raise UserError(
                "{name} has shape {file_shape} in the file and {model_shape} in the model",
                name,
                tuple(tensors[name].shape),
                tuple(tensor.shape),
            )
    for name, tensor in own.items():
        tensor.copy_(tensors[name])


def check_finite(weights: dict[str, Tensor], folder: Path) -> None:
    """Weights that are not numbers answer with nothing, and look like weights; they are refused."""
    for name, tensor in weights.items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise UserError(
                "{folder} cannot be used: {name} has numbers that are not finite; choose an earlier --step",
                folder,
                name,
            )


def check_fits(recipe: Recipe, weights: dict[str, Tensor], folder: Path) -> None:
    """A run.json may ask for a model of any size; one that is far larger than its weights is not even built."""
    have, asked = sum(t.numel() for t in weights.values()), count_parameters(recipe.model)
    if asked > 2 * have + 1_000_000:
        raise UserError(
            "{folder} holds {have:,} numbers, and run.json describes a model with {asked:,}: they do not belong together",
            folder,
            have,
            asked,
        )


def ema_or_model_weights(tensors: dict[str, dict[str, Tensor]]) -> dict[str, Tensor]:
    """The model's weights in a checkpoint: their exponential moving average (EMA), where there is one."""
    return {
        n.removeprefix("ema/"): t for n, t in tensors.get("training", {}).items() if n.startswith("ema/")
    } or tensors["model"]


def inference_weights(tensors: dict[str, dict[str, Tensor]]) -> dict[str, Tensor]:
    """The weights in a checkpoint to predict with: the exponential moving average, where there is one, and LoRA
    updates merged in."""
    return merge_lora(ema_or_model_weights(tensors))


def average(sets: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """The mean of several sets of weights, summed in float64 and in order."""
    return {
        name: torch.stack([s[name].double() for s in sets]).mean(0).to(first.dtype)
        if first.is_floating_point()
        else first
        for name, first in sets[-1].items()
    }


# Primes: in lines of one of them no two neighbouring rows of a matrix lie under one another.
LINE_LENGTHS = (8191, 8179)


def saved_buffers(model: Any) -> list[Tensor]:
    """What is saved with the parameters and is none: running statistics. Tables that are computed and grow are not."""
    buffers = [(module, name, b) for module in model.modules() for name, b in module.named_buffers(recurse=False)]
    return [b for module, name, b in buffers if name not in module._non_persistent_buffers_set]


def weight_checksum(model: Any) -> Tensor:
    """Changes whenever a weight does, at the price of one look at each: the bits of every parameter, and of every buffer that
    is saved with them, in words of 64, written in lines of 8,191 words, and the sums of the columns. Words that change places
    are seen too, unless they are a multiple of a line apart. Empty for a model that nobody has been given: it cannot change."""
    if not getattr(model, "handed_out", True):
        return torch.empty(0, dtype=torch.int64, device=next(model.parameters()).device)
    integers = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    sums = []
    for p in (*model.parameters(), *saved_buffers(model)):
        bits = p.detach().contiguous().view(-1)
        fits = bits.numel() * bits.element_size() % 8 == 0 == bits.storage_offset() * bits.element_size() % 8
        bits = bits.view(torch.int64) if fits else bits.view(integers[bits.element_size()]).long()
        line = LINE_LENGTHS[p.dim() > 0 and p.size(-1) % LINE_LENGTHS[0] == 0]
        full = bits.numel() // line * line
        sums += [bits[:full].view(-1, line).sum(0), bits[full:]] if full else [bits]
    return torch.cat(sums)
