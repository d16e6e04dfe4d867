"""One table of names, read both ways: from our parameters to somebody else's on export, and back on import.

A row says which of our tensors make up which of theirs: one to one, one to one transposed (GPT-2 keeps its matrices as
in x out), or several of ours joined along their outputs (a fused query-key-value matrix). Whatever the table does not
name is an error, on both sides: a tensor that is missing, left over or of another shape is never passed over.

Sinusoidal positions are interleaved here, as in the paper, and half-split in Hugging Face's Marian and Pegasus: sines in
the first half of the channels, cosines in the second. The same model in the other layout has its residual channels in
another order, so every tensor that reads or writes the residual stream is permuted on the way (`to_half_split`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from glassformer.errors import UserError


@dataclass(frozen=True)
class Entry:
    """Our tensors, joined along dimension 0 and perhaps transposed, are their tensor.

    >>> Entry(("decoder.0.mlp.up.weight",), "transformer.h.0.mlp.c_fc.weight", transpose=True).theirs
    'transformer.h.0.mlp.c_fc.weight'
    """

    ours: tuple[str, ...]
    theirs: str
    transpose: bool = False


ROW_VECTORS = ("final_logits_bias",)
"""Theirs is a matrix of one row where ours is a vector."""


def to_theirs(table: Sequence[Entry], tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Our tensors under their names; every tensor of ours must be in the table."""
    used = {name for entry in table for name in entry.ours}
    if forgotten := sorted(tensors.keys() - used):
        raise UserError(
            "the other format has no place for {forgotten} ({n_forgotten} such tensors)", forgotten[0], len(forgotten)
        )
    out = {}
    for entry in table:
        joined = torch.cat([tensors[name] for name in entry.ours]) if len(entry.ours) > 1 else tensors[entry.ours[0]]
        joined = joined[None] if entry.theirs in ROW_VECTORS else joined
        out[entry.theirs] = (joined.T if entry.transpose else joined).contiguous()
    return out


def to_ours(
    table: Sequence[Entry],
    tensors: Mapping[str, Tensor],
    shapes: Mapping[str, torch.Size],
    *,
    ignored: Sequence[str] = (),
) -> dict[str, Tensor]:
    """Their tensors under our names. `shapes` are those of our model; `ignored` are names of theirs that say nothing
    new (copies of tied weights, tables that are computed)."""
    known = {entry.theirs for entry in table}
    if missing := sorted(known - tensors.keys()):
        raise UserError(
            "the file has no tensor {missing} ({n_missing} are missing): it is of another model",
            missing[0],
            len(missing),
        )
    if extra := sorted(tensors.keys() - known - set(ignored)):
        raise UserError(
            "the file has a tensor {extra} ({n_extra} such) that this kind of model does not know", extra[0], len(extra)
        )
    out = {}
    for entry in table:
        theirs = tensors[entry.theirs]
        if entry.theirs in ROW_VECTORS and theirs.dim() == 2 and theirs.size(0) == 1:
            theirs = theirs[0]
        wanted = [shapes[name] for name in entry.ours]
        whole = torch.Size([sum(shape[0] for shape in wanted), *wanted[0][1:]])
        found = theirs.T if entry.transpose and theirs.dim() == 2 else theirs
        if found.shape != whole:
            raise UserError(
                "{theirs} has shape {shape}; by the model's config it should be {whole}",
                entry.theirs,
                tuple(theirs.shape),
                tuple(reversed(whole)) if entry.transpose else tuple(whole),
            )
        for name, part in zip(entry.ours, found.split([shape[0] for shape in wanted]), strict=True):
            out[name] = part.contiguous()
    return out


# ---------------------------------------------------------------------------------------------- the order of the channels

READS = (".query.weight", ".key.weight", ".value.weight", ".up.weight", ".gate.weight", "output.weight")
WRITES = (".out.weight", ".out.bias", ".down.weight", ".down.bias")


def residual_dims(name: str) -> tuple[int, ...]:
    """Which dimensions of one of our tensors run over the channels of the residual stream."""
    if name.endswith(("query_norm.weight", "key_norm.weight")):
        return ()
    if name.endswith(READS) or name.endswith(("embedding.weight", "positions.weight")):
        return (1,)
    if name.endswith(WRITES) or name.rpartition(".")[0].endswith("norm"):
        return (0,)
    inner = (".query.bias", ".key.bias", ".value.bias", ".up.bias", ".gate.bias")
    if name.endswith(inner) or name in ("output.bias", "output_bias"):
        return ()
    raise UserError("{name} cannot be carried to a model with half-split positions", name)


def half_split(width: int) -> Int[Tensor, "C"]:
    """half_split(C)[j] is our channel that is their channel j: 0, 2, 4, … and then 1, 3, 5, …

    >>> half_split(6).tolist()
    [0, 2, 4, 1, 3, 5]
    """
    return torch.cat([torch.arange(0, width, 2), torch.arange(1, width, 2)])


def permute(tensors: Mapping[str, Tensor], order: Int[Tensor, "C"]) -> dict[str, Tensor]:
    """The same model with its residual channels in another order: channel j is what channel order[j] was."""
    out = {}
    for name, tensor in tensors.items():
        for dim in residual_dims(name):
            tensor = tensor.index_select(dim, order.to(tensor.device))
        out[name] = tensor
    return out


def to_half_split(tensors: Mapping[str, Tensor], width: int) -> dict[str, Tensor]:
    """From the paper's interleaved positions to sines first, cosines second."""
    return permute(tensors, half_split(width))


def from_half_split(tensors: Mapping[str, Tensor], width: int) -> dict[str, Tensor]:
    """From sines first, cosines second to the interleaved positions of the paper: the inverse of `to_half_split`."""
    return permute(tensors, half_split(width).argsort())
