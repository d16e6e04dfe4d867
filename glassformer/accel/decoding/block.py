"""A stack of blocks while decoding, and how it takes the place of the model's own.

`decoding_copy(model, ops)` is a model that shares every module and parameter with the one it is made of, but for its stacks: a
`DecodingStack` runs blocks whose type is *exactly* the known one, with nothing done to them from outside, as `DecodingBlock`s,
which read the same modules' weights and settings and compute the same by the operations of a table. What is not known stays what
it is and runs as itself, so what is forgotten here is slow, never wrong.

Where a block is followed by another of these, the sum that it ends with and the norm that the next one begins with are one
operation, so a block hands on both. On a CPU an encoder of such blocks computes the real tokens of a batch alone (`Padding`).
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from glassformer.accel.decoding.operations import TorchOps, qkv_sizes, split_heads
from glassformer.nn.attention import KeyValues, MultiHeadAttention
from glassformer.nn.block import Block, BlockInputs, Encoder, Stack
from glassformer.nn.cache import KVCache
from glassformer.nn.feedforward import GatedMLP
from glassformer.nn.known import is_known


@dataclass(frozen=True)
class Padding:
    """Which of B·T tokens are real, where only those are computed. Whether a token is padding is a value of the device, so this
    is for the CPU."""

    tokens: Int[Tensor, "R"]
    n_rows: int

    def remove(self, x: Float[Tensor, "BT C"]) -> Float[Tensor, "R C"]:
        """The real tokens alone."""
        return x.index_select(0, self.tokens)

    def restore(self, x: Float[Tensor, "R C"]) -> Float[Tensor, "BT C"]:
        """Back in padded rows; zeros in the padding."""
        return x.new_zeros(self.n_rows, x.size(1)).index_copy_(0, self.tokens, x)


class DecodingBlock(nn.Module):
    """A block on packed weights: the equations of `Block` in evaluation mode, in rows of (slot, beam)."""

    block: Block
    attention: MultiHeadAttention
    cross: MultiHeadAttention  # where the block has one
    ops: TorchOps

    def __init__(self, block: Block, ops: TorchOps) -> None:
        super().__init__()
        attention, mlp = block.attention, block.mlp
        # Not as children, whose names torch looks up one by one: a step asks for them often.
        vars(self).update(block=block, attention=attention, cross=block.cross if block.has_cross else None, ops=ops)
        self.next_norm: nn.Module | None = None  # of the module that follows, where it takes what is already normed
        self.norms = [block.attention_norm, *([block.cross_norm] if block.has_cross else []), block.mlp_norm]
        self.gated, self.feedforward = isinstance(mlp, GatedMLP), [mlp]
        self.qkv = ops.pack([attention.query, attention.key, attention.value])
        self.out = ops.pack([attention.out])
        self.up = ops.pack([mlp.gate, mlp.up] if isinstance(mlp, GatedMLP) else [mlp.up])  # type: ignore[list-item]
        self.down = ops.pack([mlp.down])  # type: ignore[list-item]
        if block.has_cross:
            self.cross_query = ops.pack([block.cross.query])
            self.cross_key_value = ops.pack([block.cross.key, block.cross.value])
            self.cross_out = ops.pack([block.cross.out])

    def project_memory(self, memory: Float[Tensor, "B S C"]) -> KeyValues:
        """The encoder's output as keys and values of cross-attention."""
        cross, n = self.cross, memory.size(0)
        k, v = self.ops.linear(memory.flatten(0, 1), self.cross_key_value).split(qkv_sizes(cross)[1:], dim=-1)
        return split_heads(k, n, cross.head_size, cross.key_norm), split_heads(v, n, cross.value_size)

    def feed_forward(self, y: Any) -> Any:
        """The feed-forward layer, without its residual line."""
        ops, activate = self.ops, self.feedforward[0].activate
        if self.gated:
            gate, up = ops.linear(y, self.up).chunk(2, dim=-1)
            hidden = activate(gate).mul_(up)  # type: ignore[operator]
        else:
            hidden = ops.linear(y, self.up, activate)
        return ops.linear(hidden, self.down, to_residual=True)

    def forward(
        self,
        x: Float[Tensor, "R C"],
        normed: Any,
        inputs: BlockInputs,
        memory: KeyValues | None,
        shape: tuple[int, int],
        padding: Padding | None = None,
        *,
        cache: KVCache | None = None,
        layer: int = 0,
    ) -> tuple[Float[Tensor, "R C"], Any]:
        """The rows (B·T, or the real ones of them) and, where the block before has computed it, their norm -> the same for the
        block that follows: a pre-norm block hands on the sum, perhaps with its norm; a post-norm block the norm of the sum."""
        block, ops, linear = self.block, self.ops, self.ops.linear
        pre_norm, residual = block.pre_norm, block.residual
        y = normed
        if y is None:
            y = ops.norm(x, self.norms[0]) if pre_norm else x
        norms = [*self.norms[1:], self.next_norm] if pre_norm else self.norms

        def add(change: Any, norm: nn.Module | None) -> tuple[Any, Any]:
            total, normed = ops.add_and_norm(x if residual else None, change, norm)
            return (total if pre_norm else normed), normed

        qkv = linear(y, self.qkv)
        if padding is None:
            heads = ops.self_attend(qkv, self.attention, inputs, shape, cache, layer)
        else:  # attention alone needs to know which sentence a token is of
            qkv = padding.restore(qkv)
            heads = padding.remove(ops.self_attend(qkv, self.attention, inputs, shape, cache, layer))
        x, y = add(linear(heads, self.out, to_residual=True), norms[0])
        if block.has_cross:
            assert memory is not None
            heads = ops.cross_attend(linear(y, self.cross_query), self.cross, inputs, memory, cache)
            x, y = add(linear(heads, self.cross_out, to_residual=True), norms[1])
        x, y = add(self.feed_forward(y), norms[-1])
        return x, None if self.next_norm is None else y


class DecodingStack(Stack):
    """A stack whose known blocks are `DecodingBlock`s. `to_output`: only the output layer reads what comes out of it."""

    def __init__(self, stack: Stack, ops: TorchOps, *, to_output: bool) -> None:
        blocks = [DecodingBlock(b, ops) if all(map(is_known, b.modules())) else b for b in stack.layers]
        super().__init__(blocks, stack.norm, positions=stack.positions)  # type: ignore[arg-type]
        self.ops, self.to_output = ops, to_output
        for block, following in zip(blocks, [*blocks[1:], None]):
            if isinstance(block, DecodingBlock) and block.block.pre_norm:
                if isinstance(following, DecodingBlock):
                    block.next_norm = following.norms[0]
                elif following is None and stack.norm is not None and is_known(stack.norm):
                    block.next_norm = stack.norm
        whole = all(isinstance(block, DecodingBlock) for block in blocks)
        ends_normed = stack.norm is None or (whole and blocks[-1].next_norm is not None)
        self.drops_padding = type(stack) is Encoder and ops.drops_padding and whole and ends_normed

    def forward(  # type: ignore[override]
        self, x: Float[Tensor, "B T C"], inputs: BlockInputs, memory: Any = None, *, cache: KVCache | None = None
    ) -> Any:
        """x through every block and the last norm, which may be left to the output layer."""
        shape, rows, normed, padding = (x.size(0), x.size(1)), x.flatten(0, 1), None, None
        if self.drops_padding and inputs.real is not None:
            padding = Padding(inputs.real.flatten().nonzero().flatten(), rows.size(0))
            rows = padding.remove(rows)
        for i, layer in enumerate(self.layers):
            keys_values = None if memory is None else memory[i]
            if isinstance(layer, DecodingBlock):
                rows, normed = layer(rows, normed, inputs, keys_values, shape, padding, cache=cache, layer=i)
            else:
                x = layer(rows.view(*shape, -1), inputs, keys_values, cache=cache, layer=i)
                rows, normed = x.flatten(0, 1), None
        if normed is not None:
            normed = self.ops.last_norm(normed, shape, to_output=self.to_output) if padding is None else normed
            return normed if padding is None else padding.restore(normed).view(*shape, -1)
        x = (rows if padding is None else padding.restore(rows)).view(*shape, -1)
        return x if self.norm is None else self.norm(x, inputs.real)


def copied(module: Any, **modules: nn.Module) -> Any:
    """A module that is this one but for some of its children. Everything else is the same object in both."""
    twin = copy.copy(module)
    twin._modules = {**module._modules, **modules}
    return twin


def decoding_copy(model: Any, ops: TorchOps) -> Any:
    """The model with modules for decoding in the places of known ones; weights and everything else are shared."""
    stacks = {
        name: DecodingStack(getattr(model, name), ops, to_output=name == "decoder")
        for name in ("encoder", "decoder")
        if hasattr(model, name) and is_known(getattr(model, name))
    }
    twin = copied(model, **stacks)
    if is_known(model) and twin.output_kernel is F.linear and getattr(model, "head", None) is None:
        twin.output_kernel = ops.output
    twin.decoding_ops = ops
    ops.install(twin)
    return twin


def is_whole(model: Any) -> bool:
    """Can every block of a model's decoder be replaced, so that a step can be captured? What is not known may look at values of
    the device."""
    return is_known(model.decoder) and all(is_known(part) for block in model.decoder.layers for part in block.modules())
