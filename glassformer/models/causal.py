"""What the two families that write share: one token after the other, on the cache.

    cache = model.start(...)                       memory for what is written; an encoder-decoder also encodes its source
    model.prefill(..., cache)                      sources are encoded, or prompts read, into slots of the cache
    logits = model.step(tokens, cache)             new tokens are appended; the logits of what may follow each

Nothing else decodes: search, server and probes call these three, on the model itself or on a copy of it with faster modules.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from glassformer.models.parts import BaseModel
from glassformer.nn.block import BlockInputs, Decoder
from glassformer.nn.cache import KVCache
from glassformer.nn.masks import AttentionMask
from glassformer.nn.positions import Rotation
from glassformer.nn.rows import most_of


class CachedInputs(BlockInputs):
    """What blocks are told of the step that is under way in a cache. Its masks are made when a block asks for them."""

    def __init__(self, cache: KVCache, rotation: Rotation | None) -> None:
        vars(self).update(cache=cache, rotation=rotation, real=None)

    @cached_property
    def masks(self) -> tuple[AttentionMask, AttentionMask]:
        """The masks of self-attention and of cross-attention."""
        return self.cache.masks()  # type: ignore[attr-defined, no-any-return]

    @property
    def mask(self) -> AttentionMask:  # type: ignore[override]
        """The mask of self-attention."""
        return self.masks[0]

    @property
    def cross_mask(self) -> AttentionMask:  # type: ignore[override]
        """The mask of cross-attention."""
        return self.masks[1]


class CausalModel(BaseModel):
    """A model with a decoder, which writes."""

    decoder: Decoder

    def make_cache(
        self, n_slots: int, columns: int, *, beams: int = 1, source: int = 0, static: bool = False
    ) -> KVCache:
        """An empty cache for `n_slots` sentences of `beams` rows each, on the model's device and in its type."""
        c, weight = self.config, next(self.parameters()).detach()
        if torch.is_autocast_enabled(weight.device.type):
            weight = weight.new_empty(0, dtype=torch.get_autocast_dtype(weight.device.type))
        kinds = ["attention", "cross"] if hasattr(self, "encoder") else ["attention"]
        heads = [[c.kept_kv_heads(f"decoder.{i}.{kind}") for i in range(c.n_layer)] for kind in kinds]
        sizes = c.key_size, c.val_size
        self_keys, cross = [*heads, []][:2]
        return KVCache(self_keys, cross, sizes, n_slots, beams, columns, source, like=weight, static=static)

    @property
    def position_tables(self) -> list[Any]:
        """What knows positions: rotary's angles, and the decoder's positional encoding."""
        encoding = self.target_positions if hasattr(self, "encoder") else self.positions
        return [table for table in (self.rotary, encoding) if table is not None]

    @property
    def n_positions(self) -> int:
        """The number of positions the tables cover."""
        return min([2**30, *(table.n_positions for table in self.position_tables)])

    def grow_tables(self, n_positions: int) -> None:
        """Makes the tables that cover these positions; before steps that are captured, in which nothing can be made."""
        for table in self.position_tables:
            table.covering(n_positions)

    def cached_block_inputs(self, cache: KVCache, n_positions: int | None) -> BlockInputs:
        """What every block is told of the tokens of the step under way in the cache, at positions below `n_positions`, where
        that is known."""
        rotation = None
        if self.rotary is not None:
            rotation = self.rotary.rotation(cache.query_positions(), n_positions)
        cache.set_biases(self.config.window, self.distance_bias(causal=True))
        return CachedInputs(cache, rotation)

    def step(
        self,
        tokens: Int[Tensor, "R new"],
        cache: KVCache,
        *,
        n_keys: int | None = None,
        n_source: int | None = None,
    ) -> Float[Tensor, "R new V"]:
        """Append new tokens, a row for each beam of each sentence; the logits of what may follow each. Attention covers the first
        `n_keys` columns of the cache and `n_source` tokens of the source: as many as are filled, or more, so that a step of fixed
        shapes can be captured."""
        n, new = tokens.size(0) // cache.beams, tokens.size(1)
        cache.reserve(n, new, n_keys=n_keys, n_source=n_source)
        # A captured step must not look at what only the host knows; its tables were made before.
        n_positions = self.n_positions if cache.static else most_of(cache.lengths_host[:n]) + new
        inputs = self.cached_block_inputs(cache, n_positions)
        x = self.decoder_input(tokens, cache.query_positions(), n_positions)
        x = self.decoder(x, inputs, cache.memory() or None, cache=cache)
        cache.advance()
        return self.logits(x)

    def decoder_input(
        self, tokens: Tensor, positions: Tensor, n_positions: int | None, real: Tensor | None = None
    ) -> Float[Tensor, "B T C"]:
        """Embeddings of tokens with their positions, after norm and dropout. (B, T) -> (B, T, C)"""
        raise NotImplementedError

    def logits(self, x: Float[Tensor, "B T C"]) -> Float[Tensor, "B T V"]:
        """The output layer: a logit for every token of the vocabulary. (B, T, C) -> (B, T, V)"""
        raise NotImplementedError
