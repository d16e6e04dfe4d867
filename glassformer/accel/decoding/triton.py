"""The operations of decoding on a CUDA device: entries of the table by kernels of ours, the others by torch.

"Few rows" is a choice inside the entries. With a few rows a step's time is the number of kernels, so a norm is fused into the
product that follows it (`DeferredNorm`) and a product into the residual sum it goes to (`DeferredLinear`): five kernels a
layer. With more, a product that goes to a residual sum may be split along K, and its bias is added there (`PartialSums`).
What a kernel was not made for (rotation, grouped keys in a beam, a bias of distances, BatchNorm, float64) the reference does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from glassformer.accel.compile_cache import use_compile_cache
from glassformer.accel.decoding import (
    attention_kernels,
    beam_kernels,
    product_kernels,
    source_kernels,
    vocabulary_kernels,
)
from glassformer.accel.decoding.operations import TorchOps, qkv_sizes, split_heads
from glassformer.accel.decoding.product_kernels import GEMV_ROWS, Norm
from glassformer.config import ModelConfig
from glassformer.nn.attention import KeyValues, MultiHeadAttention
from glassformer.nn.block import BlockInputs
from glassformer.nn.cache import CacheStep, KVCache
from glassformer.nn.embedding import Embedding
from glassformer.nn.feedforward import ACTIVATIONS
from glassformer.nn.masks import AttentionMask
from glassformer.nn.norms import LayerNorm, NoNorm, RMSNorm
from glassformer.nn.positions import LearnedPositions, PositionalEncoding

MAX_WIDTH = 8192  # of a row that one program holds as a tile
MAX_HEAD_SIZE = 128
MAX_ELEMENT_BYTES = 2  # of a number: `split_k_matmul` is for half precision
ACTIVATION_NAMES = {function: name for name, function in ACTIVATIONS.items()}


class MergedWeights(NamedTuple):
    """The weights of one or several linear layers as one (out, in), their bias (out,), and how many outputs are real (the
    rest is padding). Logits (`is_output`) come in float32."""

    weight: Tensor
    bias: Tensor | None
    outputs: int
    is_output: bool = False


class DeferredNorm(NamedTuple):
    """norm(x), computed by the kernel that reads it."""

    x: Tensor
    norm: Norm


class DeferredOutput(NamedTuple):
    """What the output layer reads, rows (B T, C) whose norm it computes itself, and (B, T)."""

    rows: DeferredNorm
    shape: tuple[int, int]


class DeferredLinear(NamedTuple):
    """x weight^T + bias, computed by the kernel that adds it to the residual."""

    x: Tensor
    weights: MergedWeights


class PartialSums(NamedTuple):
    """A summand of the residual sum, (R, C) or split along K (P, R, C), and a bias that is still to be added."""

    change: Tensor
    bias: Tensor | None


def norm_of(norm: nn.Module | None) -> Norm | None:
    """A norm as kernels take it."""
    if isinstance(norm, LayerNorm):
        return Norm("layer", norm.weight.detach(), None if norm.bias is None else norm.bias.detach(), norm.eps)
    if isinstance(norm, RMSNorm):
        return Norm("rms", norm.weight.detach(), None, norm.eps)
    return None


class TritonOps(TorchOps):
    """For one model on a CUDA device. Weights are copied, into the same memory each time: a captured step goes on using it."""

    holds_copies = True

    def __init__(self, config: ModelConfig) -> None:
        use_compile_cache()
        self.packed_output: MergedWeights | None = None
        self.owns_output = False
        # A post-norm's output is also the next residual: it cannot be left to a product.
        self.defers = config.pre_norm and config.norm in ("layer", "rms")
        self.bias_is_key_mask = config.window is None and config.positions not in ("alibi", "relative")
        self.has_rotary = config.positions == "rotary"

    # ---- products

    def pack(self, linears: Sequence[nn.Linear]) -> MergedWeights:
        """The weights of several linear layers concatenated along their outputs."""
        weight = torch.cat([linear.weight.detach() for linear in linears]).contiguous()
        biases = [linear.bias.detach() for linear in linears if linear.bias is not None]
        return MergedWeights(weight, torch.cat(biases) if biases else None, weight.size(0))

    def pack_output(self, weight: Tensor, bias: Tensor | None = None) -> MergedWeights:
        """Rows of logits padded to a multiple of 64: an odd vocabulary size costs the library its fast kernels."""
        vocab_size = weight.size(0)
        padding = -vocab_size % 64
        wide = None if bias is None else F.pad(bias.detach(), (0, padding))
        return MergedWeights(F.pad(weight.detach(), (0, 0, 0, padding)), wide, vocab_size, True)

    def output(self, x: Any, weight: Tensor, bias: Tensor | None = None) -> Float[Tensor, "*any V"]:
        """The logits, of tokens whose last norm may be left to do."""
        if self.packed_output is None:
            self.packed_output = self.pack_output(weight, bias)
        rows, shape = x if isinstance(x, DeferredOutput) else (x.flatten(0, -2), x.shape[:-1])
        return self.linear(rows, self.packed_output).unflatten(0, shape)  # type: ignore[no-any-return]

    def last_norm(self, normed: Any, shape: tuple[int, int], *, to_output: bool) -> Any:
        """What a stack ends with; of few rows the norm is left to the output layer, where that is ours. An encoder's norm is
        computed at once: its rows are read by every block of the decoder."""
        if isinstance(normed, DeferredNorm) and to_output and self.owns_output:
            return DeferredOutput(normed, shape)
        return self.materialize(normed).view(*shape, -1)

    def install(self, model: Any) -> None:
        """The embedding by one kernel, where it is ours."""
        self.owns_output = model.output_kernel == self.output
        if self.owns_output and all(type(module) is Embedding for module in embeddings(model)):
            model.embed = partial(self.embed, model.embed)

    def uses_gemv(self, x: Tensor) -> bool:
        """Is a kernel for each row faster than one for all rows?"""
        return x.size(0) <= GEMV_ROWS and x.size(1) <= MAX_WIDTH and x.dtype != torch.float64

    def materialize(self, x: Any) -> Tensor:
        """What was deferred, computed."""
        if isinstance(x, DeferredNorm):
            return product_kernels.add_norm(x.x, None, x.norm, keep=False)[1]
        return x  # type: ignore[no-any-return]

    def linear(self, x: Any, weights: MergedWeights, activation: Any = None, *, to_residual: bool = False) -> Any:
        """activation(x Wᵀ + b), (R, in) -> (R, out), or a promise of it."""
        name = "none" if activation is None else ACTIVATION_NAMES.get(activation)
        inner = x.x if isinstance(x, DeferredNorm) else x
        if self.uses_gemv(inner):
            if to_residual and self.defers and name == "none":
                return DeferredLinear(self.materialize(x), weights)
            norm = x.norm if isinstance(x, DeferredNorm) else None
            dtype = torch.float32 if weights.is_output else None
            y = product_kernels.gemv(
                inner, weights.weight, weights.bias, norm=norm, activation=name or "none", dtype=dtype
            )
            y = y[:, : weights.outputs] if weights.is_output else y
            return y if name is not None else activation(y)
        x = self.materialize(x)
        if weights.is_output:
            return self.logits(x, weights)
        if to_residual:
            return self.partial_sums(x, weights)
        return self.product(x, weights, activation, name)

    def logits(self, x: Float[Tensor, "R C"], weights: MergedWeights) -> Float[Tensor, "R V"]:
        """In float32, where the library can accumulate so: many tokens have nearly equal logits."""
        if x.is_cuda and x.element_size() == 2:
            y = torch.mm(x, weights.weight.t(), out_dtype=torch.float32)
        else:
            y = F.linear(x, weights.weight)
        if weights.bias is not None:
            y += weights.bias
        return y[:, : weights.outputs]

    def split_k_for(self, x: Tensor, weight: Tensor, max_split_k: int) -> int | None:
        """How `split_k_matmul` should split this product; None: it is the library's. With some dozens of rows a product is
        over before the library's kernel has come to its full speed."""
        if x.element_size() > MAX_ELEMENT_BYTES:
            return None
        return product_kernels.choose_split_k(x.size(0), weight.size(1), weight.size(0), max_split_k=max_split_k)

    def product(self, x: Tensor, weights: MergedWeights, activation: Any, name: str | None) -> Tensor:
        """activation(x weight^T + bias), by our kernel or the library."""
        weight, bias = weights.weight, weights.bias
        if name is not None and self.split_k_for(x, weight, 1):
            return product_kernels.split_k_matmul(x, weight, bias, activation=name)
        if bias is not None and name in ("relu", "gelu_tanh") and weight.is_cuda:
            # The library's products end with a bias and one of these two, so no kernel is needed for it.
            return torch._addmm_activation(bias, x, weight.t(), use_gelu=name == "gelu_tanh")
        y = F.linear(x, weight, bias)
        return y if activation is None else activation(y)  # type: ignore[no-any-return]

    def partial_sums(self, x: Tensor, weights: MergedWeights) -> PartialSums:
        """A product that goes to the residual sum: perhaps split along K, the parts and the bias added up there."""
        split_k = self.split_k_for(x, weights.weight, 8)
        if split_k is not None:
            return PartialSums(product_kernels.split_k_matmul(x, weights.weight, split_k=split_k), weights.bias)
        return PartialSums(F.linear(x, weights.weight, weights.bias), None)

    # ---- sums and norms

    def norm(self, x: Any, norm: nn.Module | None) -> Any:
        """norm(x), perhaps deferred."""
        if norm is None or isinstance(norm, NoNorm):
            return x
        x, own = self.materialize(x), norm_of(norm)
        if own is None or x.dtype == torch.float64 or x.size(1) > MAX_WIDTH:
            return super().norm(x, norm)
        if self.defers and self.uses_gemv(x):
            return DeferredNorm(x, own)
        return product_kernels.add_norm(x.contiguous(), None, own, keep=False)[1]

    def add_and_norm(self, x: Any, change: Any, norm: nn.Module | None) -> tuple[Any, Any]:
        """x + change (or change, where there is no residual line), and its norm."""
        x = None if x is None else self.materialize(x)
        if isinstance(change, DeferredLinear):
            weights = change.weights
            total = product_kernels.gemv(change.x, weights.weight, weights.bias, residual=x)
            return total, self.norm(total, norm)
        own = norm_of(norm)
        plain_norm = own is not None or norm is None or isinstance(norm, NoNorm)
        if x is None or not plain_norm or x.dtype == torch.float64 or x.size(1) > MAX_WIDTH:
            return super().add_and_norm(x, self.reduce_partial_sums(change), norm)
        if not isinstance(change, PartialSums):
            change = PartialSums(change, None)
        return product_kernels.add_norm(x, change.change, own, keep=True, bias=change.bias)

    def reduce_partial_sums(self, change: Any) -> Tensor:
        """The summand as one tensor."""
        if not isinstance(change, PartialSums):
            return change  # type: ignore[no-any-return]
        total = change.change.sum(0) if change.change.dim() == 3 else change.change
        return total if change.bias is None else total + change.bias

    def embed(
        self,
        plain: Any,
        embedding: Embedding,
        encoding: Any,
        tokens: Int[Tensor, "B T"],
        positions: Int[Tensor, "P T"],
        n_positions: int | None,
    ) -> Float[Tensor, "B T C"]:
        """Token embedding, scale and position, of tokens that have a position each; else as the model does it."""
        table = embedding.weight.detach()
        known = encoding is None or type(encoding) in (LearnedPositions, PositionalEncoding)
        if table.dtype == torch.float64 or table.size(1) > MAX_WIDTH or not known:
            return plain(embedding, encoding, tokens, positions, n_positions)  # type: ignore[no-any-return]
        rows, encodings = positions.expand_as(tokens).reshape(-1), None
        if encoding is not None:
            encodings = encoding.covering(n_positions, tokens.size(1)).detach()
        x = vocabulary_kernels.embed(tokens.reshape(-1), table, rows, encodings, embedding.factor)
        return x.view(*tokens.shape, -1)

    def fused_search(self, state: Any) -> Any:
        """The whole step of the search by a kernel, where it supports this search."""
        if not beam_kernels.supports_beam_step(state):
            return None
        never = torch.zeros(state.vocab_size, dtype=torch.int8, device=state.never.device).index_fill_(
            0, state.never, 1
        )
        return partial(beam_kernels.beam_step, state, never)

    # ---- attention

    def supports(self, attention: MultiHeadAttention, like: Tensor, *, grouped: bool) -> bool:
        """Is there an attention kernel for these heads? `grouped`: heads may share keys."""
        return (
            attention.n_head > 0
            and attention.query_norm is None
            and attention.kv_head_of is None
            and like.dtype != torch.float64
            and max(attention.head_size, attention.value_size) <= MAX_HEAD_SIZE
            and (grouped or attention.n_head == attention.n_kv_head)
        )

    def skips_empty_columns(self, attention: MultiHeadAttention, cache: KVCache, *, source: bool) -> bool:
        """Our kernels skip columns that no beam attends to; the reference reads them all."""
        grouped = cache.beams == 1 and not source
        plain = source or (self.bias_is_key_mask and not self.has_rotary)
        return plain and self.supports(attention, cache.bias, grouped=grouped)

    def self_attend(
        self,
        qkv: Float[Tensor, "R all"],
        attention: MultiHeadAttention,
        inputs: BlockInputs,
        shape: tuple[int, int],
        cache: KVCache | None,
        layer: int,
    ) -> Float[Tensor, "R HDv"]:
        """Of a step, the new keys and values into their columns, and attention over all; of a source, its attention to itself."""
        step, scale = None if cache is None else cache.under_way, None if attention.scaled else 1.0
        if cache is None or not isinstance(step, CacheStep):
            alone = cache is None and self.supports(attention, qkv, grouped=False)
            padding = key_padding(inputs.mask, shape) if alone and self.bias_is_key_mask else None
            if padding is not None:
                sizes = attention.head_size, attention.head_size, attention.value_size
                rotations = inputs.rotation, inputs.rotation, None
                q, k, v = (
                    split_heads(x, shape[0], size, rotation=rotation)
                    for x, size, rotation in zip(qkv.split(qkv_sizes(attention), -1), sizes, rotations, strict=True)
                )
                if source_kernels.supports_source_attention(q, k, v):
                    return source_kernels.source_attention(q, k, v, padding.to(q.dtype), scale=scale)
            return super().self_attend(qkv, attention, inputs, shape, cache, layer)
        alone = cache.beams == 1
        bias = cache.bias[: step.n, None] if step.bias is None else step.bias
        unsupported = inputs.rotation is not None or bias.size(1) > 1 or step.new > 1
        if unsupported or not self.supports(attention, qkv, grouped=alone):
            return super().self_attend(qkv, attention, inputs, shape, cache, layer)
        keys, values = (block[: step.n] for block in cache.past[layer])
        if alone:
            return attention_kernels.decode_attention(
                qkv, keys, values, bias[:, 0], cache.columns, step.n_keys, heads=attention.n_head, scale=scale
            )
        return attention_kernels.beam_attention(
            qkv, keys, values, bias[:, 0], step.n_keys, beams=cache.beams, scale=scale, columns=cache.columns
        )

    def cross_attend(
        self,
        q: Float[Tensor, "R HD"],
        attention: MultiHeadAttention,
        inputs: BlockInputs,
        memory: KeyValues,
        cache: KVCache | None,
    ) -> Float[Tensor, "R HDv"]:
        """Attention of all beams to their source."""
        step = None if cache is None else cache.under_way
        unsupported = cache is None or not isinstance(step, CacheStep) or step.new > 1
        if unsupported or not self.supports(attention, q, grouped=False):
            return super().cross_attend(q, attention, inputs, memory, cache)
        assert cache is not None and isinstance(step, CacheStep)
        bias = cache.source_bias[: step.n, None]
        scale = None if attention.scaled else 1.0
        return attention_kernels.beam_attention(q, *memory, bias, step.n_source, beams=cache.beams, scale=scale)


def embeddings(model: Any) -> list[nn.Module]:
    """The embeddings of a model that writes."""
    return [model.source_table, model.target_table] if hasattr(model, "encoder") else [model.embedding]


def key_padding(mask: AttentionMask, shape: tuple[int, int]) -> Float[Tensor, "n S"] | None:
    """0 at the keys of rows (n, S) that are no padding and -inf at the others, where a mask hides nothing else; None where it
    hides nothing at all. The first token of a sentence is no padding, and attends to what every token attends to."""
    if mask.allowed is None or mask.causal or mask.bias is not None or mask.window is not None:
        return None
    return torch.where(mask.allowed[:, 0, 0], 0.0, -math.inf).expand(shape[0], -1)
