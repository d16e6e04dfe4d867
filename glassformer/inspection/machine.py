"""The architecture of this very model, from its config: what the page's first view and the tour's figures draw.

Nothing is measured here. Sizes are those of the sentence looked at; the code shown is read from the modules themselves, so
what one clicks on is what ran.
"""

from __future__ import annotations

import inspect
import textwrap
from functools import cache
from pathlib import Path
from typing import Any

from torch import nn

from glassformer.config import ModelConfig
from glassformer.inspection.model_input import ModelInput
from glassformer.models import Transformer
from glassformer.nn.attention import attention_scores
from glassformer.nn.block import Block, Stack

PACKAGE = Path(inspect.getfile(Block)).resolve().parents[1]


@cache
def lines_of(thing: Any) -> dict[str, Any]:
    """Where a function or class stands, and its lines, as its file has them."""
    lines, number = inspect.getsourcelines(thing)
    path = Path(inspect.getfile(inspect.unwrap(thing))).resolve()
    return {
        "file": f"{PACKAGE.name}/{path.relative_to(PACKAGE).as_posix()}",
        "line": number,
        "name": thing.__qualname__,
        "source": textwrap.dedent("".join(lines)).rstrip("\n"),
    }


def code_of(*things: Any) -> list[dict[str, Any]]:
    """The code of each function or class."""
    return [lines_of(thing) for thing in things]


def parameters(module: nn.Module | None) -> int:
    """Numbers in a module; 0 where there is none."""
    return 0 if module is None else sum(p.numel() for p in module.parameters())


def stack_data(stack: Stack, name: str, length: str, config: ModelConfig) -> dict[str, Any]:
    """A stack's parts with their sizes, as the page draws them. Heads, their sizes and the width of the MLP: an encoder may have
    others than its decoder."""
    block: Block = stack.layers[0]
    parts = {"attention": block.attention, "mlp": block.mlp, "norm": block.mlp_norm}
    if block.has_cross:
        parts["cross"] = block.cross
    return {
        "name": name,
        "depth": stack.depth,
        "length": length,
        "cross": block.has_cross,
        "pre_norm": block.pre_norm,
        "residual": block.residual,
        "final_norm": stack.norm is not None,
        "sizes": {
            "H": config.n_head,
            "Hk": config.kv_heads,
            "D": config.key_size,
            "Dv": config.val_size,
            "F": config.hidden,
        },
        "parameters": {part: parameters(module) for part, module in parts.items()},
    }


def machine_data(net: Any, model_input: ModelInput) -> dict[str, Any]:
    """Stacks, sizes, choices, parameters, and the lines of code of each part."""
    config = net.config
    pairs = isinstance(net, Transformer)
    stacks = []
    if hasattr(net, "encoder"):
        stacks.append(stack_data(net.encoder, "encoder", "S" if pairs else "T", config.encoder_side))
    if hasattr(net, "decoder"):
        stacks.append(stack_data(net.decoder, "decoder", "T", config))
    table = net.target_table if pairs else net.embedding
    source_table = net.source_table if pairs else table
    positions = net.source_positions if pairs else net.positions
    positions = net.rotary if positions is None else positions
    block = (net.encoder if hasattr(net, "encoder") else net.decoder).layers[0]
    attention = code_of(attention_scores, type(block.attention).forward)
    code = {
        "embedding": code_of(type(table).forward, type(net).embed),
        "attention": attention,
        "mlp": code_of(type(block.mlp).forward),
        "norm": code_of(type(block.mlp_norm).forward),
        "block": code_of(Block.add_and_norm, Block.forward),
        "output": code_of(type(net).logits),
        "cross": attention,
    }
    if positions is not None:
        code["positions"] = code_of(type(positions))
    labels = config.head != "mlm"
    return {
        "family": config.family,
        "stacks": stacks,
        "sizes": {
            "S": len(model_input.source),
            "T": len(model_input.row),
            "C": config.n_embd,
            "V": config.n_label if labels else config.vocab_size,
        },
        "positions": config.positions,
        "norm": config.norm,
        "activation": config.activation,
        "tied": config.tie_output and not labels,
        "labels": labels,
        "pooled": config.head == "classify",
        "embedding_norm": config.embedding_norm,
        "scaled_embeddings": config.scale_embeddings,
        "window": config.window,
        "parameters": {
            "total": parameters(net),
            "embedding": parameters(table),
            "source_embedding": 0 if source_table is table else parameters(source_table),
        },
        "code": code,
    }
