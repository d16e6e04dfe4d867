"""The operations of decoding on a CUDA device: entries of the table by kernels of ours, the others by torch.

"Few rows" is a choice inside the entries. With a few rows a step's time is the number of kernels, so a norm is fused into the
product that follows it (`DeferredNorm`) and a product into the residual sum it goes to (`DeferredLinear`): five kernels a
layer. With more, a product that goes to a residual sum may be split along K, and its bias is added there (`PartialSums`).
What a kernel was not made for (rotation, grouped keys in a beam, ALiBi, BatchNorm, float64) is done by the reference.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from glassformer.config import ModelConfig
from glassformer.decode.cache import Cache
from glassformer.decode.ops import attention_kernels, beam_kernels, product_kernels, source_kernels, vocabulary_kernels
from glassformer.decode.ops.product_kernels import GEMV_ROWS, Norm
from glassformer.decode.ops.torch import Heads, LinearWeights, StepInputs, TorchOps
from glassformer.nn.feedforward import ACTIVATIONS
from glassformer.nn.norms import LayerNorm, NoNorm, RMSNorm

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
        # A post-norm's output is also the next residual: it cannot be left to a product.
        self.defers = config.pre_norm and config.norm in ("layer", "rms")
        self.bias_is_key_mask = config.window is None and config.positions != "alibi"
        self.has_rotary = config.positions == "rotary"

    # ---- products

    def pack(self, parts: LinearWeights) -> MergedWeights:
        """The weights of several linear layers concatenated along their outputs."""
        weight = torch.cat([weight.detach() for weight, _ in parts]).contiguous()
        biases = [bias.detach() for _, bias in parts if bias is not None]
        return MergedWeights(weight, torch.cat(biases) if biases else None, weight.size(0))

    def pack_output(self, weight: Tensor, bias: Tensor | None = None) -> MergedWeights:
        """Rows of logits padded to a multiple of 64: an odd vocabulary size costs the library its fast kernels."""
        vocab_size = weight.size(0)
        padding = -vocab_size % 64
        wide = None if bias is None else F.pad(bias.detach(), (0, padding))
        return MergedWeights(F.pad(weight.detach(), (0, 0, 0, padding)), wide, vocab_size, True)

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
        self, tokens: Int[Tensor, "R"], embedding: Any, positions: Float[Tensor, "P C"] | None
    ) -> Float[Tensor, "R C"]:
        """Token embedding, scale and position."""
        table = embedding.weight.detach()
        if table.dtype == torch.float64 or table.size(1) > MAX_WIDTH:
            return super().embed(tokens, embedding, positions)
        return vocabulary_kernels.embed(tokens, table, positions, embedding.factor)

    def fused_search(self, state: Any) -> Any:
        """The whole step of the search by a kernel, where it supports this search."""
        if not beam_kernels.supports_beam_step(state):
            return None
        never = torch.zeros(state.vocab_size, dtype=torch.int8, device=state.never.device).index_fill_(
            0, state.never, 1
        )
        return partial(beam_kernels.beam_step, state, never)

    # ---- attention

    def supports(self, heads: Heads, like: Tensor, *, grouped: bool) -> bool:
        """Is there an attention kernel for these heads? `grouped`: heads may share keys."""
        return (
            heads.n_head > 0
            and heads.query_norm is None
            and like.dtype != torch.float64
            and max(heads.head_size, heads.value_size) <= MAX_HEAD_SIZE
            and (grouped or heads.n_head == heads.n_kv_head)
        )

    def skips_empty_columns(self, heads: Heads, cache: Cache, *, source: bool) -> bool:
        """Our kernels skip columns that no beam attends to; the reference reads them all."""
        grouped = cache.beams == 1 and not source
        plain = source or (self.bias_is_key_mask and not self.has_rotary)
        return plain and self.supports(heads, cache.bias, grouped=grouped)

    def self_attend(
        self, qkv: Float[Tensor, "R all"], heads: Heads, cache: Cache, layer: int, step: StepInputs
    ) -> Float[Tensor, "R HDv"]:
        """The new keys and values into their columns, and attention over all."""
        one = cache.beams == 1
        bias = cache.bias[: step.n, None] if step.bias is None else step.bias
        if step.rotation is not None or bias.size(1) > 1 or not self.supports(heads, qkv, grouped=one):
            return super().self_attend(qkv, heads, cache, layer, step)
        keys, values = (part[: step.n] for part in cache.past[layer])
        if one:
            return attention_kernels.decode_attention(
                qkv, keys, values, bias[:, 0], cache.columns, step.n_keys, heads=heads.n_head, scale=heads.scale
            )
        return attention_kernels.beam_attention(
            qkv, keys, values, bias[:, 0], step.n_keys, beams=cache.beams, scale=heads.scale, columns=cache.columns
        )

    def cross_attend(
        self, q: Float[Tensor, "R all"], heads: Heads, cache: Cache, layer: int, step: StepInputs
    ) -> Float[Tensor, "R HDv"]:
        """Attention of all beams to their source."""
        if not self.supports(heads, q, grouped=False):
            return super().cross_attend(q, heads, cache, layer, step)
        keys, values = (part[: step.n] for part in cache.source[layer])
        bias = cache.source_bias[: step.n, None]
        return attention_kernels.beam_attention(
            q, keys, values, bias, step.n_source, beams=cache.beams, scale=heads.scale
        )

    def attend(
        self,
        q: Float[Tensor, "n H M D"],
        k: Float[Tensor, "n Hk S D"],
        v: Float[Tensor, "n Hk S Dv"],
        bias: Float[Tensor, "..."] | None = None,
        *,
        heads: Heads,
        causal: bool = False,
    ) -> Float[Tensor, "R HDv"]:
        """A source's attention to itself by a kernel; else as torch does it."""
        masks_padding_alone = not causal and bias is not None and bias.dim() == 4 and self.bias_is_key_mask
        if (
            masks_padding_alone
            and self.supports(heads, q, grouped=False)
            and source_kernels.supports_source_attention(q, k, v)
        ):
            assert bias is not None
            # The first token of a sentence is no padding, and attends to what every token attends to.
            own = bias[:, 0, 0].expand(q.size(0), -1)
            return source_kernels.source_attention(q, k, v, own, scale=heads.scale)
        return super().attend(q, k, v, bias, heads=heads, causal=causal)
