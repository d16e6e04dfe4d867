"""The operations of decoding on a CUDA device: entries of the table by kernels of ours, the others by torch.

"Few rows" is a choice inside the entries. With a few rows a step's time is the number of kernels, so a norm is left to
the product that follows it (`Normed`) and a product to the sum it goes into (`Deferred`): five kernels a layer. With
more, a product that goes into a sum may come in parts, and its bias with it (`Summand`). What a kernel was not made for
(rotation, grouped keys in a beam, ALiBi, BatchNorm, float64) is done by the reference.
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
from glassformer.decode.ops.product_kernels import FEW_ROWS, Norm
from glassformer.decode.ops.torch import Heads, Parts, StepInputs, TorchOps
from glassformer.nn.feedforward import ACTIVATIONS
from glassformer.nn.norms import LayerNorm, NoNorm, RMSNorm

WIDEST = 8192  # a row that one program can hold
WIDEST_HEAD = 128
KERNEL_BYTES = 2  # of a number: our own product of some dozens of rows is for these
NAMES = {function: name for name, function in ACTIVATIONS.items()}


class Packed(NamedTuple):
    """A weight (out, in), a bias (out,) and how many of its outputs are meant; those of scores come in float32."""

    weight: Tensor
    bias: Tensor | None
    outputs: int
    is_output: bool = False


class Normed(NamedTuple):
    """norm(x), to be made by whoever reads it."""

    x: Tensor
    norm: Norm


class Deferred(NamedTuple):
    """x weight^T + bias, to be made with the sum it goes into."""

    x: Tensor
    weights: Packed


class Summand(NamedTuple):
    """What goes into a sum, (R, C) or in parts (P, R, C), and a bias that is still missing."""

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
        # A norm behind the sum is part of the next sum: it cannot be left to a product.
        self.lazy = config.pre_norm and config.norm in ("layer", "rms")
        self.masks_keys_alone = config.window is None and config.positions != "alibi"
        self.turns_keys = config.positions == "rotary"

    # ---- products

    def pack(self, parts: Parts) -> Packed:
        """One weight from several, one below the other."""
        weight = torch.cat([weight.detach() for weight, _ in parts]).contiguous()
        biases = [bias.detach() for _, bias in parts if bias is not None]
        return Packed(weight, torch.cat(biases) if biases else None, weight.size(0))

    def pack_output(self, weight: Tensor, bias: Tensor | None = None) -> Packed:
        """Rows of scores begin at round places: an odd number of words costs the library its fast kernels."""
        words = weight.size(0)
        more = -words % 64
        wide = None if bias is None else F.pad(bias.detach(), (0, more))
        return Packed(F.pad(weight.detach(), (0, 0, 0, more)), wide, words, True)

    def is_few(self, x: Tensor) -> bool:
        """Is a row's own kernel faster than one for all rows?"""
        return x.size(0) <= FEW_ROWS and x.size(1) <= WIDEST and x.dtype != torch.float64

    def tensor(self, x: Any) -> Tensor:
        """What was put off, made."""
        if isinstance(x, Normed):
            return product_kernels.add_norm(x.x, None, x.norm, keep=False)[1]
        return x  # type: ignore[no-any-return]

    def linear(self, x: Any, weights: Packed, activation: Any = None, *, into_sum: bool = False) -> Any:
        """(R, in) -> (R, out)."""
        name = "none" if activation is None else NAMES.get(activation)
        inner = x.x if isinstance(x, Normed) else x
        if self.is_few(inner):
            if into_sum and self.lazy and name == "none":
                return Deferred(self.tensor(x), weights)
            norm = x.norm if isinstance(x, Normed) else None
            dtype = torch.float32 if weights.is_output else None
            y = product_kernels.row_product(
                inner, weights.weight, weights.bias, norm=norm, activation=name or "none", dtype=dtype
            )
            y = y[:, : weights.outputs] if weights.is_output else y
            return y if name is not None else activation(y)
        x = self.tensor(x)
        if weights.is_output:
            return self.scores(x, weights)
        if into_sum:
            return self.summand(x, weights)
        return self.product(x, weights, activation, name)

    def scores(self, x: Float[Tensor, "R C"], weights: Packed) -> Float[Tensor, "R V"]:
        """In float32, where the library can add up so: words whose scores are nearly equal are many."""
        if x.is_cuda and x.element_size() == 2:
            y = torch.mm(x, weights.weight.t(), out_dtype=torch.float32)
        else:
            y = F.linear(x, weights.weight)
        if weights.bias is not None:
            y += weights.bias
        return y[:, : weights.outputs]

    def parts_by_kernel(self, x: Tensor, weight: Tensor, most: int) -> int | None:
        """With some dozens of rows a product is over before the library's kernel has come to its full speed."""
        if x.element_size() > KERNEL_BYTES:
            return None
        return product_kernels.product_parts(x.size(0), weight.size(1), weight.size(0), most=most)

    def product(self, x: Tensor, weights: Packed, activation: Any, name: str | None) -> Tensor:
        """activation(x weight^T + bias), by our kernel or the library."""
        weight, bias = weights.weight, weights.bias
        if name is not None and self.parts_by_kernel(x, weight, 1):
            return product_kernels.batch_product(x, weight, bias, activation=name)
        if bias is not None and name in ("relu", "gelu_tanh") and weight.is_cuda:
            # The library's products end with a bias and one of these two, so no kernel is needed for it.
            return torch._addmm_activation(bias, x, weight.t(), use_gelu=name == "gelu_tanh")
        y = F.linear(x, weight, bias)
        return y if activation is None else activation(y)  # type: ignore[no-any-return]

    def summand(self, x: Tensor, weights: Packed) -> Summand:
        """A product that goes into a sum: perhaps in parts, which are added up there, and the bias with them."""
        parts = self.parts_by_kernel(x, weights.weight, 8)
        if parts is not None:
            return Summand(product_kernels.batch_product(x, weights.weight, parts=parts), weights.bias)
        return Summand(F.linear(x, weights.weight, weights.bias), None)

    # ---- sums and norms

    def norm(self, x: Any, norm: nn.Module | None) -> Any:
        """norm(x), perhaps put off."""
        if norm is None or isinstance(norm, NoNorm):
            return x
        x, own = self.tensor(x), norm_of(norm)
        if own is None or x.dtype == torch.float64 or x.size(1) > WIDEST:
            return super().norm(x, norm)
        if self.lazy and self.is_few(x):
            return Normed(x, own)
        return product_kernels.add_norm(x.contiguous(), None, own, keep=False)[1]

    def add_and_norm(self, x: Any, change: Any, norm: nn.Module | None) -> tuple[Any, Any]:
        """x + change (or change, where there is no residual line), and its norm."""
        x = None if x is None else self.tensor(x)
        if isinstance(change, Deferred):
            weights = change.weights
            total = product_kernels.row_product(change.x, weights.weight, weights.bias, residual=x)
            return total, self.norm(total, norm)
        own = norm_of(norm)
        plain_norm = own is not None or norm is None or isinstance(norm, NoNorm)
        if x is None or not plain_norm or x.dtype == torch.float64 or x.size(1) > WIDEST:
            return super().add_and_norm(x, self.whole(change), norm)
        if not isinstance(change, Summand):
            change = Summand(change, None)
        return product_kernels.add_norm(x, change.change, own, keep=True, bias=change.bias)

    def whole(self, change: Any) -> Tensor:
        """A summand as one tensor."""
        if not isinstance(change, Summand):
            return change  # type: ignore[no-any-return]
        total = change.change.sum(0) if change.change.dim() == 3 else change.change
        return total if change.bias is None else total + change.bias

    def embed(
        self, tokens: Int[Tensor, "R"], embedding: Any, positions: Float[Tensor, "P C"] | None
    ) -> Float[Tensor, "R C"]:
        """Word, scale and position."""
        table = embedding.weight.detach()
        if table.dtype == torch.float64 or table.size(1) > WIDEST:
            return super().embed(tokens, embedding, positions)
        return vocabulary_kernels.embed(tokens, table, positions, embedding.factor)

    def fused_search(self, state: Any) -> Any:
        """The search's step by a kernel, where it is one that the kernel can make."""
        if not beam_kernels.suits_beam_step(state):
            return None
        never = torch.zeros(state.vocabulary, dtype=torch.int8, device=state.never.device).index_fill_(
            0, state.never, 1
        )
        return partial(beam_kernels.beam_step, state, never)

    # ---- attention

    def suits(self, heads: Heads, like: Tensor, *, grouped: bool) -> bool:
        """Is there a kernel for these heads?"""
        return (
            heads.heads > 0
            and heads.query_norm is None
            and like.dtype != torch.float64
            and max(heads.size, heads.value_size) <= WIDEST_HEAD
            and (grouped or heads.heads == heads.kv_heads)
        )

    def reads_what_is_there(self, heads: Heads, cache: Cache, *, source: bool) -> bool:
        """Our kernels skip what no beam sees; the reference reads it all."""
        grouped = cache.beams == 1 and not source
        plain = source or (self.masks_keys_alone and not self.turns_keys)
        return plain and self.suits(heads, cache.bias, grouped=grouped)

    def self_attend(
        self, qkv: Float[Tensor, "R all"], heads: Heads, cache: Cache, layer: int, step: StepInputs
    ) -> Float[Tensor, "R HDv"]:
        """The new keys and values into their columns, and attention over all."""
        one = cache.beams == 1
        bias = cache.bias[: step.n, None] if step.bias is None else step.bias
        if step.rotation is not None or bias.size(1) > 1 or not self.suits(heads, qkv, grouped=one):
            return super().self_attend(qkv, heads, cache, layer, step)
        keys, values = (part[: step.n] for part in cache.past[layer])
        if one:
            return attention_kernels.attend_columns(
                qkv, keys, values, bias[:, 0], cache.columns, step.n_keys, heads=heads.heads, scale=heads.scale
            )
        return attention_kernels.attend_beams(
            qkv, keys, values, bias[:, 0], step.n_keys, beams=cache.beams, scale=heads.scale, columns=cache.columns
        )

    def cross_attend(
        self, q: Float[Tensor, "R all"], heads: Heads, cache: Cache, layer: int, step: StepInputs
    ) -> Float[Tensor, "R HDv"]:
        """Attention of all beams to their source."""
        if not self.suits(heads, q, grouped=False):
            return super().cross_attend(q, heads, cache, layer, step)
        keys, values = (part[: step.n] for part in cache.source[layer])
        bias = cache.source_bias[: step.n, None]
        return attention_kernels.attend_beams(
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
        """The words of a source among themselves; else as torch does it."""
        suits = not causal and bias is not None and bias.dim() == 4 and self.masks_keys_alone
        if suits and self.suits(heads, q, grouped=False) and source_kernels.suits_rows(q, k, v):
            assert bias is not None
            # The first word of a sentence is no padding, and sees what every word sees.
            own = bias[:, 0, 0].expand(q.size(0), -1)
            return source_kernels.attend_rows(q, k, v, own, scale=heads.scale)
        return super().attend(q, k, v, bias, heads=heads, causal=causal)
