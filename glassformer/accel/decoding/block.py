"""A block while decoding, and how it takes the place of the model's own.

`decoding_copy(model, ops)` is a model that shares every module and parameter with the one it is made of, but for blocks whose
type is *exactly* the known one, with nothing done to them from outside: in their places stand `DecodingBlock`s, which read the
same modules' weights and settings and compute the same by the operations of a table. What is not known stays what it is and runs
as itself, so what is forgotten here is slow, never wrong.

Where a block is followed by another of these, the sum that it ends with and the norm that the next one begins with are one
operation; the result is handed on beside the sum (`normed`). An encoder of such blocks computes the real tokens of a batch
alone (`UnpaddedEncoder`).
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from glassformer.accel.decoding.operations import TorchOps, qkv_sizes, split_heads
from glassformer.nn.attention import KeyValues
from glassformer.nn.block import Block, BlockInputs, Encoder, Stack
from glassformer.nn.cache import KVCache
from glassformer.nn.feedforward import GatedMLP
from glassformer.nn.known import is_known


@dataclass(frozen=True, kw_only=True)
class UnpaddedInputs(BlockInputs):
    """What blocks are told of rows of which only the real tokens are computed: which of the B·T they are."""

    tokens: Int[Tensor, "R"]
    shape: tuple[int, int]

    def pad(self, x: Float[Tensor, "R C"]) -> Float[Tensor, "BT C"]:
        """Back in padded rows; zeros in the padding."""
        return x.new_zeros(self.shape[0] * self.shape[1], x.size(1)).index_copy_(0, self.tokens, x)


class DecodingBlock(Block):
    """A block on packed weights: the equations of `Block` in evaluation mode, in rows of (slot, beam)."""

    block: Block
    ops: TorchOps

    def __init__(self, block: Block, ops: TorchOps) -> None:
        nn.Module.__init__(self)
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
        rows, pad = getattr(memory, "unpadded", None) or (memory.flatten(0, 1), lambda x: x)
        k, v = pad(self.ops.linear(rows, self.cross_key_value)).split(qkv_sizes(cross)[1:], dim=-1)
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
        x: Tensor,
        inputs: BlockInputs,
        memory: KeyValues | None = None,
        *,
        cache: KVCache | None = None,
        layer: int = 0,
    ) -> Tensor:
        """(B, T, C) -> (B, T, C). A pre-norm block hands on the sum, perhaps with the norm of what follows; a post-norm block
        the norm of the sum."""
        block, ops, linear, shape = self.block, self.ops, self.ops.linear, (x.size(0), x.size(1))
        y = getattr(x, "normed", None)
        x = x.reshape(-1, x.size(2))
        if y is None:
            y = ops.norm(x, self.norms[0]) if block.pre_norm else x
        pre_norm, residual = block.pre_norm, block.residual
        norms = [*self.norms[1:], self.next_norm] if pre_norm else self.norms

        def add(change: Any, norm: nn.Module | None) -> tuple[Any, Any]:
            total, normed = ops.add_and_norm(x if residual else None, change, norm)
            return (total if pre_norm else normed), normed

        if isinstance(inputs, UnpaddedInputs):  # attention alone needs to know which sentence a token is of
            qkv = inputs.pad(linear(y, self.qkv))
            heads = ops.self_attend(qkv, self.attention, inputs, inputs.shape, cache, layer).index_select(
                0, inputs.tokens
            )
        else:
            heads = ops.self_attend(linear(y, self.qkv), self.attention, inputs, shape, cache, layer)
        x, y = add(linear(heads, self.out, to_residual=True), norms[0])
        if block.has_cross:
            assert memory is not None
            heads = ops.cross_attend(linear(y, self.cross_query), self.cross, inputs, memory, cache)
            x, y = add(linear(heads, self.cross_out, to_residual=True), norms[1])
        x, y = add(self.feed_forward(y), norms[-1])
        x = x.view(*shape, -1)
        if self.next_norm is not None:
            x.normed = y  # type: ignore[attr-defined]
        return x


class FollowingNorm(nn.Module):
    """The norm at the end of a stack, where the last block has computed it already."""

    def __init__(self, norm: nn.Module, ops: TorchOps, *, to_output: bool) -> None:
        super().__init__()
        self.norm, self.ops, self.to_output = norm, ops, to_output

    def forward(self, x: Float[Tensor, "B T C"], real: Bool[Tensor, "B T"] | None = None) -> Float[Tensor, "B T C"]:
        """(B, T, C) -> (B, T, C)"""
        return self.ops.last_norm(x, x.normed, to_output=self.to_output)  # type: ignore[attr-defined]


class UnpaddedEncoder(Encoder):
    """An encoder of `DecodingBlock`s. Whether a token is padding is a value of the device, so this is for the CPU."""

    def forward(
        self, x: Float[Tensor, "B T C"], inputs: BlockInputs, *given: Any, **named: Any
    ) -> Float[Tensor, "B T C"]:
        """The encoder's output; zeros in the padding."""
        if inputs.real is None:
            return super().forward(x, inputs, *given, **named)
        tokens = inputs.real.flatten().nonzero().flatten()
        fields = {name: getattr(inputs, name) for name in ("mask", "cross_mask", "rotation")}
        unpadded = UnpaddedInputs(**fields, tokens=tokens, shape=(x.size(0), x.size(1)))
        rows = super().forward(x.flatten(0, 1).index_select(0, tokens)[None], unpadded, *given, **named)[0]
        x = unpadded.pad(rows).view_as(x)
        x.unpadded = rows, unpadded.pad  # type: ignore[attr-defined]  # who projects it need not compute the padding either
        return x


def copied(module: Any, **modules: nn.Module) -> Any:
    """A module that is this one but for some of its children. Everything else is the same object in both."""
    twin = copy.copy(module)
    twin._modules = {**module._modules, **modules}
    return twin


def decoding_stack(stack: Stack, ops: TorchOps, *, to_output: bool) -> Stack:
    """A stack whose known blocks are `DecodingBlock`s. `to_output`: only the output layer reads what comes out of it."""
    if not is_known(stack):
        return stack
    blocks = {
        str(i): DecodingBlock(block, ops) if all(map(is_known, block.modules())) else block
        for i, block in enumerate(stack.layers)
    }
    modules: dict[str, nn.Module] = dict(blocks)
    for i, block in enumerate(blocks.values()):
        if not isinstance(block, DecodingBlock) or not block.block.pre_norm:
            continue
        following = blocks.get(str(i + 1))
        if isinstance(following, DecodingBlock):
            block.next_norm = following.norms[0]
        elif following is None and stack.norm is not None and is_known(stack.norm):
            block.next_norm, modules["norm"] = stack.norm, FollowingNorm(stack.norm, ops, to_output=to_output)
    twin = copied(stack, **modules)
    twin.checkpoint_activations = False
    whole = all(isinstance(block, DecodingBlock) for block in blocks.values())
    if (
        type(stack) is Encoder
        and ops.drops_padding
        and whole
        and isinstance(modules.get("norm", stack.norm), (FollowingNorm, type(None)))
    ):
        twin.__class__ = UnpaddedEncoder
    return twin  # type: ignore[no-any-return]


def decoding_copy(model: Any, ops: TorchOps) -> Any:
    """The model with modules for decoding in the places of known ones; weights and everything else are shared."""
    stacks = {
        name: decoding_stack(getattr(model, name), ops, to_output=name == "decoder")
        for name in ("encoder", "decoder")
        if hasattr(model, name)
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
