"""The architecture of this very model, from its config: what the page's first view and the tour's figures draw.

Nothing is measured here. Sizes are those of the sentence looked at; the code shown is read from the modules themselves, so
what one clicks on is what ran.
"""

from __future__ import annotations

import ast
import sys
from functools import cache
from pathlib import Path
from typing import Any

from torch import nn

from glassformer.config import ModelConfig
from glassformer.inspection.model_input import ModelInput
from glassformer.models import Transformer
from glassformer.nn.attention import attention_scores
from glassformer.nn.block import Block, Stack

PACKAGE = Path(sys.modules[Block.__module__].__file__ or "").resolve().parents[1]


@cache
def lines_of(thing: Any) -> dict[str, Any]:
    """Where a function or class stands, and its lines, as its file has them."""
    path = Path(sys.modules[thing.__module__].__file__ or "").resolve()
    text = path.read_text(encoding="utf-8")
    node = definition(ast.parse(text), thing.__qualname__)
    lines = text.splitlines()[node.lineno - 1 : node.end_lineno]
    return {
        "file": f"{PACKAGE.name}/{path.relative_to(PACKAGE).as_posix()}",
        "line": node.lineno,
        "name": thing.__qualname__,
        "source": "\n".join(line[node.col_offset :] for line in lines),
    }


def code_of(*things: Any) -> list[dict[str, Any]]:
    """The code of each function or class."""
    return [lines_of(thing) for thing in things]


def definition(tree: ast.Module, name: str) -> ast.stmt:
    """The function or class of this dotted name."""
    found: Any = tree
    for part in name.split("."):
        found = next(node for node in found.body if getattr(node, "name", None) == part)
    return found  # type: ignore[no-any-return]


def parameters(module: nn.Module | None) -> int:
    """Numbers in a module; 0 where there is none."""
    return 0 if module is None else sum(p.numel() for p in module.parameters())


def attention_sizes(config: ModelConfig) -> dict[str, int]:
    """Heads, their sizes and the width of the MLP: an encoder may have others than its decoder."""
    return {"H": config.n_head, "Hk": config.kv_heads, "D": config.key_size, "Dv": config.val_size, "F": config.hidden}


def stack_data(stack: Stack, name: str, length: str, config: ModelConfig) -> dict[str, Any]:
    """A stack's parts with their sizes, as the page draws them."""
    block: Block = stack.layers[0]
    counts = {
        "attention": parameters(block.attention),
        "mlp": parameters(block.mlp),
        "norm": parameters(block.mlp_norm),
    }
    if block.has_cross:
        counts["cross"] = parameters(block.cross)
    return {
        "name": name,
        "depth": stack.depth,
        "length": length,
        "cross": block.has_cross,
        "pre_norm": block.pre_norm,
        "residual": block.residual,
        "final_norm": stack.norm is not None,
        "sizes": attention_sizes(config),
        "parameters": counts,
    }


def machine_data(net: Any, model_input: ModelInput) -> dict[str, Any]:
    """Stacks, sizes, choices, parameters, and the lines of code of each part."""
    config = net.config
    stacks = []
    if hasattr(net, "encoder"):
        stacks.append(
            stack_data(net.encoder, "encoder", "S" if isinstance(net, Transformer) else "T", config.encoder_side)
        )
    if hasattr(net, "decoder"):
        stacks.append(stack_data(net.decoder, "decoder", "T", config))
    table = net.target_table if isinstance(net, Transformer) else net.embedding
    source_table = net.source_table if isinstance(net, Transformer) else None
    stack = net.encoder if hasattr(net, "encoder") else net.decoder
    block = stack.layers[0]
    positions = net.source_positions if isinstance(net, Transformer) else net.positions
    labels = config.head != "mlm"
    code = {
        "embedding": code_of(type(table).forward, type(net).embed),
        "attention": code_of(attention_scores, type(block.attention).forward),
        "mlp": code_of(type(block.mlp).forward),
        "norm": code_of(type(block.mlp_norm).forward),
        "block": code_of(Block.add_and_norm, Block.forward),
        "output": code_of(type(net).logits),
    }
    code["cross"] = code["attention"]
    if positions is not None or net.rotary is not None:
        code["positions"] = code_of(type(positions if positions is not None else net.rotary))
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
            "source_embedding": 0 if source_table is None or source_table is table else parameters(source_table),
        },
        "code": code,
    }
