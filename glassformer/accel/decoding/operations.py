"""The operations of decoding, by torch's own: for every model and every device.

The blocks that decode (block.py) call nothing else, so whoever replaces an entry (`PackedOps`, triton.py) subclasses `TorchOps`
and overrides it; "few rows" and "many rows" is a choice inside an entry. R rows are (slot, beam), slot-major.

    pack(linears)                        linear layers with one input, as `linear` wants them
    linear(x, weights, activation)       (R, in) -> (R, out)
    norm(x, norm)                        the norm of each row
    add_and_norm(x, change, norm)        x + change and the norm of it: (R, C), (R, C)
    self_attend(...), cross_attend(...)  split, norm, rotate, append to the cache, attend. One entry each, so that a kernel may
                                         do all of it
    output(x, weight, bias)              the logits

Contract for kernels: no entry looks at a value of a device tensor from the host, and none allocates memory whose size
depends on one; shapes follow from (n, n_keys, n_source) alone, so a step made of them can be captured. What `linear` returns
with `to_residual` goes to `add_and_norm` and nowhere else: it may be anything that this one understands.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from glassformer.nn.attention import KeyValues, MultiHeadAttention, sdpa_attention
from glassformer.nn.block import BlockInputs
from glassformer.nn.cache import CacheStep, KVCache
from glassformer.nn.masks import AttentionMask
from glassformer.nn.norms import LayerNorm, NoNorm, RMSNorm
from glassformer.nn.positions import Rotation


def split_heads(
    x: Float[Tensor, "R HD"], n: int, size: int, norm: nn.Module | None = None, rotation: Rotation | None = None
) -> Float[Tensor, "n H M D"]:
    """(slot, token) rows by heads of this size, normed and rotated as the model does."""
    x = x.view(n, x.size(0) // n, x.size(1) // size, size)
    x = (x if norm is None else norm(x)).transpose(1, 2)
    return x if rotation is None else rotation.rotate(x)


def qkv_sizes(attention: MultiHeadAttention) -> list[int]:
    """How many numbers of a row are queries, keys and values."""
    key = attention.n_kv_head * attention.head_size
    return [attention.n_head * attention.head_size, key, attention.n_kv_head * attention.value_size]


def attend(
    q: Float[Tensor, "n H M D"],
    k: Float[Tensor, "n Hk S D"],
    v: Float[Tensor, "n Hk S Dv"],
    mask: AttentionMask,
    attention: MultiHeadAttention,
) -> Float[Tensor, "R HDv"]:
    """Attention, the heads' outputs side by side in rows (slot, token). Heads that share keys (grouped queries) go together."""
    if not attention.n_head:
        return q.new_zeros(q.size(0) * q.size(2), 0)
    if attention.pruned:
        k, v, mask = attention.select_heads(k, v, mask)
    (n, n_head, tokens, _), n_kv_head = q.shape, k.size(1)
    groups = n_head // n_kv_head
    bias, causal = mask.bias, mask.causal and mask.bias is None and mask.window is None and mask.allowed is None
    allowed = None if causal else mask.to_tensor(tokens, k.size(2), q.device)
    if allowed is not None:
        hidden = torch.where(allowed, 0.0, -math.inf).to(q.dtype)
        hidden = hidden if hidden.dim() == 4 else hidden[None, None]
        bias = hidden if bias is None else bias + hidden
    mask = AttentionMask(causal=causal, bias=bias)
    grouped = groups > 1 and not causal
    if grouped:
        q = q.reshape(n, n_kv_head, groups * tokens, -1)
        if bias is not None:
            rows, _, queries, keys = bias.shape
            bias = bias.expand(rows, n_head, tokens if queries > 1 else 1, keys)
            bias = bias.expand(-1, -1, tokens, -1).reshape(rows, n_kv_head, groups * tokens, keys)
            mask = AttentionMask(bias=bias)
    heads = sdpa_attention(q, k, v, mask, scaled=attention.scaled)
    heads = heads.reshape(n, n_head, tokens, -1) if grouped else heads
    return heads.transpose(1, 2).reshape(n * tokens, -1)


class TorchOps:
    """The reference."""

    def pack(self, linears: Sequence[nn.Linear]) -> Any:
        """Linear layers with one input, as `linear` wants them: weight and bias, or what computes them (LoRA)."""
        return [(linear.weight, linear.bias) if "weight" in linear._parameters else linear for linear in linears]

    def linear(
        self, x: Float[Tensor, "R in"], weights: Any, activation: Any = None, *, to_residual: bool = False
    ) -> Any:
        """activation(x Wᵀ + b) for each of the layers, side by side; `to_residual`: the result is only added to the
        residual."""
        outputs = [F.linear(x, *own) if isinstance(own, tuple) else own.forward(x) for own in weights]
        y = outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=-1)
        return y if activation is None else activation(y)

    def output(self, x: Any, weight: Tensor, bias: Tensor | None = None) -> Float[Tensor, "*any V"]:
        """The logits: x Wᵀ + b, called in the place of torch's linear."""
        return F.linear(x, weight, bias)

    def refresh(self) -> None:
        """Weights have changed: copies of them are made anew."""

    drops_padding = False
    """Does an encoder compute the real tokens of a batch alone?"""

    holds_copies = False
    """Are there copies of weights? If so, the weights are looked at before each use."""

    def norm(self, x: Float[Tensor, "R C"], norm: nn.Module | None) -> Float[Tensor, "R C"]:
        """The norm of each row; the row itself where there is none."""
        if isinstance(norm, LayerNorm):
            return torch.layer_norm(x, norm.weight.shape, norm.weight, norm.bias, norm.eps)
        if norm is None or isinstance(norm, NoNorm):
            return x
        if isinstance(norm, RMSNorm):
            return norm.forward(x)
        return norm(x[None])[0]  # type: ignore[no-any-return]  # BatchNorm reads sentences

    def add_and_norm(
        self, x: Float[Tensor, "R C"] | None, change: Any, norm: nn.Module | None
    ) -> tuple[Float[Tensor, "R C"], Float[Tensor, "R C"]]:
        """x + change (or change, where there is no residual line), and its norm. `change` is not used again."""
        total = change if x is None else change.add_(x)
        return total, self.norm(total, norm)

    def last_norm(self, normed: Any, shape: tuple[int, int], *, to_output: bool) -> Any:
        """What a stack ends with, (B, T, C): the norm that its last block has computed. `to_output`: only the output layer reads
        it, so it may be anything that `output` understands."""
        return normed.view(*shape, -1)

    def install(self, model: Any) -> None:
        """Put further parts into a copy that decodes."""

    def self_attend(
        self,
        qkv: Float[Tensor, "R all"],
        attention: MultiHeadAttention,
        inputs: BlockInputs,
        shape: tuple[int, int],
        cache: KVCache | None,
        layer: int,
    ) -> Float[Tensor, "R HDv"]:
        """Attention of rows to themselves, (B, T) of them; with a cache, of its slots to all they have read, the new keys and
        values appended first."""
        q, k, v = torch.split_with_sizes(qkv, qkv_sizes(attention), -1)
        step = None if cache is None else cache.under_way
        n, rotation = shape[0], inputs.rotation
        if not isinstance(step, CacheStep):
            mask = inputs.mask
        else:
            n, mask = step.n, AttentionMask(bias=step.bias)
            if rotation is not None and n != shape[0]:
                rotation = Rotation(
                    *(table.reshape(n, 1, -1, table.size(-1)) for table in (rotation.cos, rotation.sin))
                )
        queries = split_heads(q, n, attention.head_size, attention.query_norm, rotation)
        keys = split_heads(k, n, attention.head_size, attention.key_norm, rotation)
        values = split_heads(v, n, attention.value_size)
        if cache is not None:
            keys, values = cache.append(layer, keys, values)
        return attend(queries, keys, values, mask, attention)

    def cross_attend(
        self,
        q: Float[Tensor, "R HD"],
        attention: MultiHeadAttention,
        inputs: BlockInputs,
        memory: KeyValues,
        cache: KVCache | None,
    ) -> Float[Tensor, "R HDv"]:
        """Attention to the source, of which each sentence's beams share one."""
        step = None if cache is None else cache.under_way
        mask = AttentionMask(bias=step.source_bias) if isinstance(step, CacheStep) else inputs.cross_mask
        queries = split_heads(q, memory[0].size(0), attention.head_size, attention.query_norm)
        return attend(queries, *memory, mask, attention)

    def skips_empty_columns(self, attention: MultiHeadAttention, cache: KVCache, *, source: bool) -> bool:
        """Does this attention cost the same, however many empty columns a step's shapes include?"""
        return False

    def fused_search(self, state: Any) -> Any:
        """A function (cache, logits, n) that makes a whole step of this search; None: the search makes it itself."""
        return None


class TransposedWeights:
    """The weights of linear layers with one input, side by side and transposed, (in, out), once they are asked for."""

    def __init__(self, linears: Sequence[nn.Linear], single: Any) -> None:
        self.linears, self.single = list(linears), single
        self.weight: Tensor | None = None
        self.bias: Tensor | None = None

    def pack(self) -> Tensor:
        """Lay the weights out."""
        biases = [linear.bias.detach() for linear in self.linears if linear.bias is not None]
        self.bias = torch.cat(biases) if biases else None
        self.weight = torch.cat([linear.weight.detach() for linear in self.linears]).t().contiguous()
        return self.weight


class PackedOps(TorchOps):
    """For a CPU: the weights laid out as a product of a few rows wants them.

    A product of some rows with a transposed weight (in, out) takes between a half and four fifths of the time of one with (out,
    in), and one product of several weights side by side less than several. A single row gains nothing: it reads every weight
    once, in whatever order, so it uses the model's own. Packed weights are copies, made when they are first needed."""

    drops_padding = True

    def __init__(self) -> None:
        self.packs: list[TransposedWeights] = []
        self.packed_output: tuple[Tensor, Tensor] | None = None  # the weight of the logits, and the same transposed

    @property
    def holds_copies(self) -> bool:  # type: ignore[override]
        """Whether something was packed."""
        return self.packed_output is not None or any(pack.weight is not None for pack in self.packs)

    def refresh(self) -> None:
        """Forget what was packed; it is packed again when it is needed."""
        self.packed_output = None
        for pack in self.packs:
            pack.weight = None

    def pack(self, linears: Sequence[nn.Linear]) -> TransposedWeights:
        """Weights that are laid out when they are first used."""
        self.packs.append(TransposedWeights(linears, super().pack(linears)))
        return self.packs[-1]

    def linear(
        self, x: Float[Tensor, "R in"], weights: TransposedWeights, activation: Any = None, *, to_residual: bool = False
    ) -> Float[Tensor, "R out"]:
        """The reference's product, by the transposed weights."""
        if x.size(0) == 1:
            return super().linear(x, weights.single, activation)  # type: ignore[no-any-return]
        weight = weights.weight
        weight = weights.pack() if weight is None else weight
        y = torch.mm(x, weight) if weights.bias is None else torch.addmm(weights.bias, x, weight)
        if activation is F.relu:
            return y.relu_()
        return y if activation is None else activation(y)  # type: ignore[no-any-return]

    def output(self, x: Any, weight: Tensor, bias: Tensor | None = None) -> Float[Tensor, "*any V"]:
        """The logits, by the transposed weight."""
        rows = x.flatten(0, -2)
        if rows.size(0) == 1:
            return F.linear(x, weight, bias)
        known = self.packed_output
        if known is None or known[0] is not weight:
            known = self.packed_output = weight, weight.detach().t().contiguous()
        y = torch.mm(rows, known[1]) if bias is None else torch.addmm(bias, rows, known[1])
        return y.view(*x.shape[:-1], -1)
