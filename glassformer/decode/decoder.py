"""The one decoder: a model's layers on the cache, written against the table of operations in ops/.

    decoder = Decoder(model, TorchOps())
    cache = decoder.make_cache(n_slots=8, beams=4, columns=256, source=32)
    decoder.encode_sources(cache, 0, rows)   # an encoder-decoder: the source's keys and values, once a sentence
    decoder.prefill(cache, [0, 1], contexts) # a GPT: all of a prompt but its last token
    logits = decoder.step(cache, n, n_keys, n_source)

A step reads `cache.tokens[:n]` (the last token of a prompt, or BOS, at first), appends one column a beam, and gives the scores
of what may follow each row, (n * K, V). It is tensor code without a look at a value: with a static cache the same work for the
same (n, n_keys, n_source), so it can be captured. Encoding sources and prefilling prompts is not part of what is captured.

The decoder sees weights as they are when a driver begins (`refresh`, checksum.py).

It has no taps: while someone listens to the model, the model itself is run (driver.py).
"""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from glassformer.config import ModelConfig
from glassformer.decode.cache import Cache
from glassformer.decode.checksum import weight_checksum
from glassformer.decode.ops.torch import Heads, StepInputs, TorchOps
from glassformer.nn.block import Block
from glassformer.nn.feedforward import GatedMLP
from glassformer.nn.rows import Rows


def linear_weights(*linears: nn.Linear) -> list[tuple[Tensor, Tensor | None]]:
    """Weights and biases of linear layers."""
    return [(linear.weight, linear.bias) for linear in linears]


@dataclass
class LayerWeights:
    """The weights of one block as the ops want them."""

    norms: list[nn.Module]  # of self-attention, of cross-attention where there is one, of the feed-forward layer
    activate: Callable[[Tensor], Tensor]
    gated: bool
    heads: Heads
    query_key_value: Any
    out: Any
    up: Any
    down: Any
    cross: Heads | None = None
    cross_query: Any = None
    cross_key_value: Any = None
    cross_out: Any = None


Attend = Callable[[int, LayerWeights, Tensor], Tensor]
"""(number of a layer, its weights, its projected queries (keys, values)) -> the heads' outputs, side by side."""


class IncrementalDecoder:
    """The layers of a Transformer or a GPT on a cache."""

    def __init__(self, model: Any, ops: TorchOps) -> None:
        self.model = weakref.proxy(model)  # so that a decoder kept beside its model does not keep it alive
        self.config: ModelConfig = model.config
        self.ops = ops
        self.has_source = hasattr(model, "encoder")
        self.embedding = model.target_table if self.has_source else model.embedding
        self.positions = model.target_positions if self.has_source else model.positions
        self.embedding_norm = model.target_norm if self.has_source else model.embedding_norm
        self.lock = threading.Lock()
        self.packed_checksum: Tensor | None = None
        self.pack()

    def pack(self) -> None:
        """Pack the weights of all blocks as the ops want them."""
        model, ops = self.model, self.ops
        self.layers = [self.pack_block(block) for block in model.decoder.layers]
        self.encoder = [self.pack_block(block) for block in model.encoder.layers] if self.has_source else []
        self.output = ops.pack_output(model.output_weight, model.output_bias)

    def pack_block(self, block: Block) -> LayerWeights:
        """The weights of one block, packed."""
        pack, attention, mlp = self.ops.pack, block.attention, block.mlp
        norms = [block.attention_norm, *([block.cross_norm] if block.has_cross else []), block.mlp_norm]
        layer = LayerWeights(
            norms,
            mlp.activate,  # type: ignore[arg-type]
            isinstance(mlp, GatedMLP),
            Heads(attention),
            pack(linear_weights(attention.query, attention.key, attention.value)),
            pack(linear_weights(attention.out)),
            pack(linear_weights(mlp.gate, mlp.up) if isinstance(mlp, GatedMLP) else linear_weights(mlp.up)),  # type: ignore[arg-type]
            pack(linear_weights(mlp.down)),  # type: ignore[arg-type]
        )
        if block.has_cross:
            cross = block.cross
            layer.cross = Heads(cross)
            layer.cross_query = pack(linear_weights(cross.query))
            layer.cross_key_value = pack(linear_weights(cross.key, cross.value))
            layer.cross_out = pack(linear_weights(cross.out))
        return layer

    def refresh(self) -> None:
        """Pack the weights anew where the model's have changed."""
        if not self.ops.holds_copies:
            return
        with self.lock:
            now = weight_checksum(self.model)
            if self.packed_checksum is not None and not torch.equal(now, self.packed_checksum):
                self.pack()
            self.packed_checksum = now

    def make_cache(self, n_slots: int, beams: int, columns: int, source: int = 0, *, static: bool = False) -> Cache:
        """An empty cache that suits the model, on its device."""
        c, like = self.config, self.model.output_weight.detach()
        heads = [layer.heads.n_kv_head for layer in self.layers]
        source_heads = [layer.cross.n_kv_head for layer in self.layers if layer.cross is not None]
        sizes = c.key_size, c.val_size
        return Cache(heads, source_heads, sizes, n_slots, beams, columns, source, like=like, static=static)

    def skips_empty_columns(self, cache: Cache) -> bool:
        """Does a step cost the same, however many empty columns its shapes include?"""
        heads = [(layer.heads, False) for layer in self.layers]
        heads += [(layer.cross, True) for layer in self.layers if layer.cross is not None]
        return all(self.ops.skips_empty_columns(own, cache, source=source) for own, source in heads)

    # ---- the layers

    def mlp(self, layer: LayerWeights, y: Float[Tensor, "R C"]) -> Any:
        """The feed-forward layer, without its residual line."""
        if layer.gated:
            gate, up = self.ops.linear(y, layer.up).chunk(2, dim=-1)
            hidden = layer.activate(gate).mul_(up)
        else:
            hidden = self.ops.linear(y, layer.up, layer.activate)
        return self.ops.linear(hidden, layer.down, to_residual=True)

    def run_stack(
        self,
        x: Float[Tensor, "R C"],
        layers: Sequence[LayerWeights],
        last_norm: nn.Module | None,
        self_attend: Attend,
        cross_attend: Attend | None = None,
    ) -> Float[Tensor, "R C"]:
        """Through a stack of blocks. A pre-norm block hands on the sum and the norm of what follows, a post-norm block the
        norm of the sum."""
        ops, linear, c = self.ops, self.ops.linear, self.config
        before = [norm for layer in layers for norm in layer.norms]
        norms = iter([*before[1:], last_norm] if c.pre_norm else before)
        y = ops.norm(x, before[0]) if c.pre_norm and before else x
        for i, layer in enumerate(layers):
            for part in range(len(layer.norms)):
                if part == 0:
                    change = linear(
                        self_attend(i, layer, linear(y, layer.query_key_value)), layer.out, to_residual=True
                    )
                elif part == 1 and cross_attend is not None:
                    change = linear(
                        cross_attend(i, layer, linear(y, layer.cross_query)), layer.cross_out, to_residual=True
                    )
                else:
                    change = self.mlp(layer, y)
                x, y = ops.add_and_norm(x if c.residual else None, change, next(norms))
                x = x if c.pre_norm else y
        return y if c.pre_norm and before else ops.norm(y, last_norm)

    # ---- one token more in every row

    def step(self, cache: Cache, n: int, n_keys: int, n_source: int = 0) -> Float[Tensor, "R V"]:
        """The logits of what may follow each row of the first n slots, (n K, V). The tokens that are read now are
        `cache.tokens`; attention covers the first n_keys columns, which must be enough for every slot's own."""
        ops, step = self.ops, self.step_inputs(cache, n, n_keys, n_source)
        positions = None
        if self.positions is not None:
            table = self.positions.weight if hasattr(self.positions, "weight") else self.positions.table
            positions = table.index_select(0, cache.lengths[:n])
        x = ops.embed(cache.tokens[:n].reshape(-1), self.embedding, positions)
        x = ops.norm(x, self.embedding_norm)

        def self_attend(i: int, layer: LayerWeights, qkv: Tensor) -> Tensor:
            return ops.self_attend(qkv, layer.heads, cache, i, step)

        def cross_attend(i: int, layer: LayerWeights, q: Tensor) -> Tensor:
            assert layer.cross is not None
            return ops.cross_attend(q, layer.cross, cache, i, step)

        x = self.run_stack(
            x, self.layers, self.model.decoder.norm, self_attend, cross_attend if self.has_source else None
        )
        cache.advance(n)
        return ops.linear(x, self.output)  # type: ignore[no-any-return]

    def step_inputs(self, cache: Cache, n: int, n_keys: int, n_source: int) -> StepInputs:
        """What the new tokens may attend to, themselves included; their columns are reserved."""
        c, columns, position = self.config, cache.reserve_columns(n), cache.lengths[:n]
        rotation = None
        if c.positions == "rotary":
            rotation = self.model.rotary.rotation(position[:, None])
        allowed = cache.bias[:n, None, :, :n_keys]
        bias: Tensor | None = allowed
        if c.window is not None or c.positions == "alibi":
            cache.positions[:n].scatter_(1, columns, position[:, None].expand_as(columns))
            distance = (position[:, None] - cache.positions[:n, :n_keys])[:, None, None]
            if c.window is not None:
                bias = allowed = allowed.masked_fill(distance >= c.window, -math.inf)
            if c.positions == "alibi":
                bias = allowed - self.model.slopes.table[:, None, None] * distance
        elif not (cache.masked or cache.static):
            bias = None
        source_bias = None
        if self.has_source and (cache.source_masked or cache.static):
            source_bias = cache.source_bias[:n, None, None, :n_source]
        return StepInputs(n, n_keys, n_source, columns, bias, source_bias, rotation)

    def grow_tables(self, length: int) -> None:
        """Tables of positions up to `length`; before a step, since a table may have to be made anew."""
        if self.positions is not None:
            self.positions.grow(length)
        if self.model.rotary is not None:
            self.model.rotary.grow(length)

    # ---- sources and prompts

    def run_rows(
        self,
        x: Float[Tensor, "R C"],
        rows: Rows,
        real: Int[Tensor, "R"] | None,
        layers: Sequence[LayerWeights],
        store_kv: Callable[[int, Tensor, Tensor], None] | None = None,
    ) -> Float[Tensor, "R C"]:
        """Rows of tokens through a stack, all positions at once; `real` names those that are no padding, where only they are
        computed. A decoder (`store_kv` takes the keys and values of each layer) is causal, an encoder is not."""
        ops, n, causal = self.ops, rows.shape[0], store_kv is not None
        inputs = self.model.block_inputs(rows, causal=causal)
        mask, bias = inputs.mask, inputs.mask.bias
        allowed = mask.allowed
        if causal and (bias is not None or mask.window is not None):
            allowed, causal = mask.to_tensor(rows.shape[1], rows.shape[1], x.device), False
        if allowed is not None:
            hidden = torch.where(allowed, 0.0, -math.inf).to(x.dtype)
            hidden = hidden if hidden.dim() == 4 else hidden[None, None]
            bias = hidden if bias is None else bias + hidden

        def self_attend(i: int, layer: LayerWeights, qkv: Tensor) -> Tensor:
            heads = layer.heads
            q, k, v = pad_input(qkv, rows, real).split(heads.qkv_sizes, dim=-1)
            keys, values = heads.keys(k, n, inputs.rotation), heads.values(v, n)
            if store_kv is not None:
                store_kv(i, keys, values)
            found = ops.attend(heads.queries(q, n, inputs.rotation), keys, values, bias, heads=heads, causal=causal)
            return found if real is None else found.index_select(0, real)

        norm = self.model.decoder.norm if store_kv is not None else self.model.encoder.norm
        return self.run_stack(x, layers, norm, self_attend)

    def encode_sources(
        self, cache: Cache, start: int, rows: Rows, *, copies: int = 1, compute_padding: bool = False
    ) -> None:
        """Encode sources (one a row) and keep every layer's keys and values of them, each for `copies` slots from `start` on.
        `compute_padding`: padding is computed like everything else, so that shapes do not depend on the neighbours."""
        model, (n, width) = self.model, rows.shape
        real = None if rows.layout == "whole" or compute_padding else rows.real.flatten().nonzero().flatten()
        positions = rows.broadcast_positions
        x = model.embed(model.source_table, model.source_positions, rows.tokens, positions, width).flatten(0, 1)
        x = self.ops.norm(x if real is None else x.index_select(0, real), model.source_norm)
        x = self.run_rows(x, rows, real, self.encoder)
        here = slice(start, start + n * copies)
        for i, layer in enumerate(self.layers):
            heads = layer.cross
            assert heads is not None
            k, v = pad_input(self.ops.linear(x, layer.cross_key_value), rows, real).split(heads.qkv_sizes[1:], dim=-1)
            for block, new in zip(cache.source[i], (heads.keys(k, n), heads.values(v, n)), strict=True):
                block[here, :, :width] = new if copies == 1 else new.repeat_interleave(copies, 0)
        hidden = torch.where(rows.real, 0.0, -math.inf).repeat_interleave(copies, 0)
        cache.source_bias[here, :width] = hidden.to(cache.source_bias.dtype)
        cache.source_bias[here, width:] = -math.inf
        cache.source_widths[here] = width
        cache.source_masked |= rows.layout != "whole" or bool((cache.source_widths[:start] != width).any())

    def prefill(
        self,
        cache: Cache,
        slots: Sequence[int],
        contexts: Sequence[Sequence[int]],
        *,
        copies: int = 1,
        width: int | None = None,
    ) -> None:
        """Prefill the first columns of slots with contexts: one context for all beams of each slot (and of `copies` slots),
        or one for each beam. Rows are `width` wide, or as wide as the longest."""
        per_slot = copies * len(contexts) // len(slots)  # contexts
        lengths = [len(context) for context in contexts]
        width = max(lengths) if width is None else width
        where = torch.tensor(list(slots), device=cache.lengths.device)
        cache.columns_host[list(slots)] = per_slot * width
        cache.lengths[where] = torch.tensor(lengths[::per_slot]).repeat_interleave(copies).to(where.device)
        cache.columns[where] = per_slot * width
        cache.bias[where] = -math.inf
        if per_slot > 1 or min(lengths) < width or min(slots) > 0:
            cache.masked = True
        if width == 0:
            return
        cache.grow(per_slot * width)
        tokens = torch.tensor([[*context, *[0] * (width - len(context))] for context in contexts]).to(where.device)
        rows = Rows.padded(tokens, lengths)
        self.grow_tables(width)

        def store_kv(i: int, keys: Tensor, values: Tensor) -> None:
            for block, new in zip(cache.past[i], (keys, values), strict=True):
                new = new.unflatten(0, (-1, per_slot)).transpose(1, 2).flatten(2, 3)
                block[where, :, : per_slot * width] = new.repeat_interleave(copies, 0).to(block.dtype)

        model = self.model
        x = model.embed(model.embedding, model.positions, tokens, rows.broadcast_positions, width).flatten(0, 1)
        self.run_rows(self.ops.norm(x, self.embedding_norm), rows, None, self.layers, store_kv)
        hidden = torch.where(rows.real, 0.0, -math.inf).to(cache.bias.dtype)
        hidden = hidden.unflatten(0, (-1, per_slot)).repeat_interleave(copies, 0)
        for k in range(cache.beams):
            own = k if per_slot > 1 else 0
            cache.bias[where, k, own * width : (own + 1) * width] = hidden[:, own]
        cache.positions[where, : per_slot * width] = torch.arange(width, device=where.device).repeat(per_slot)


def pad_input(x: Float[Tensor, "n D"], rows: Rows, real: Int[Tensor, "n"] | None) -> Float[Tensor, "all D"]:
    """What was computed for the real tokens, back in padded rows; zeros in the padding."""
    if real is None:
        return x
    return x.new_zeros(rows.tokens.numel(), x.size(1)).index_copy_(0, real, x)
