"""One block, and the stack of them. Two or three residual lines are the whole of it:

    pre-norm    x = x + f(norm(x))          the residual is taken before the norm; the stack ends with a norm of its own
    post-norm   x = norm(x + f(x))          the paper's

for f = self-attention, then cross-attention where there is one, then the feed-forward layer. An encoder layer, a decoder
layer and a GPT layer are this same block; what differs is whether the mask is causal and whether it has `cross`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from glassformer.nn.attention import Memory, MultiHeadAttention
from glassformer.nn.cache import KVCache
from glassformer.nn.masks import AttentionMask
from glassformer.nn.positions import Rotation
from glassformer.nn.taps import Tapped


@dataclass(frozen=True)
class BlockInputs:
    """What every layer of a stack is told of the rows it reads; computed once and shared."""

    mask: AttentionMask
    cross: AttentionMask = field(default_factory=AttentionMask)
    rotation: Rotation | None = None
    real: Bool[Tensor, "B T"] | None = None


class Block(Tapped):
    """Attention, cross-attention where there is one, and a feed-forward layer, each with its norm and residual.

    Block(MultiHeadAttention(64, 4), MLP(64, 256), lambda: LayerNorm(64))"""

    tap_names: tuple[str, ...] = ("in", "after_attention", "after_cross", "residual")

    def __init__(
        self,
        attention: MultiHeadAttention,
        mlp: nn.Module,
        norm: Callable[[], nn.Module],
        *,
        cross: MultiHeadAttention | None = None,
        pre_norm: bool = True,
        residual: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.pre_norm, self.residual = pre_norm, residual
        self.attention, self.attention_norm = attention, norm()
        if cross is not None:
            self.cross, self.cross_norm = cross, norm()
        else:
            self.tap_names = tuple(name for name in self.tap_names if name != "after_cross")
        self.has_cross = cross is not None
        self.mlp, self.mlp_norm = mlp, norm()
        self.drop = nn.Dropout(dropout)

    def add(
        self, x: Tensor, norm: nn.Module, part: Callable[[Tensor], Tensor], real: Bool[Tensor, "B T"] | None
    ) -> Tensor:
        """One residual line: pre-norm x + part(norm(x)), post-norm norm(x + part(x))."""
        if self.pre_norm:
            change = self.drop(part(norm(x, real)))
            return x + change if self.residual else change
        change = self.drop(part(x))
        return norm(x + change if self.residual else change, real)

    def forward(
        self,
        x: Float[Tensor, "B T C"],
        view: BlockInputs,
        memory: Memory | None = None,
        *,
        cache: KVCache | None = None,
        layer: int = 0,
    ) -> Float[Tensor, "B T C"]:
        """x as the rows of `view`; `memory` holds cross-attention's keys and values."""

        def attend(y: Tensor) -> Tensor:
            return self.attention(y, view.mask, rotation=view.rotation, cache=cache, layer=layer)

        x = self.tap("in", x)
        x = self.tap("after_attention", self.add(x, self.attention_norm, attend, view.real))
        if self.has_cross:
            x = self.add(x, self.cross_norm, lambda y: self.cross(y, view.cross, memory), view.real)
            x = self.tap("after_cross", x)
        return self.tap("residual", self.add(x, self.mlp_norm, self.mlp, view.real))


class EncoderLayer(Block):
    """A block of the paper's encoder: self-attention and feed-forward."""


class DecoderLayer(Block):
    """A block of the paper's decoder: causal self-attention, cross-attention to the encoder's output, feed-forward."""


def share_parameters(stack: Any, _: object) -> None:
    """Where a stack shares its layers, every parameter of a later layer is the one of the same name in the first; the modules
    (and their taps) stay several."""
    if not stack.share_layers:
        return
    first, *others = stack.layers
    for name, parameter in first.named_parameters():
        path, _, last = name.rpartition(".")
        for layer in others:
            setattr(layer.get_submodule(path), last, parameter)


class Stack(nn.Module):
    """Blocks one after the other, named 0, 1, 2 …, and a last norm where the blocks are pre-norm."""

    def __init__(self, layers: Sequence[Block], norm: nn.Module | None = None, *, share_layers: bool = False) -> None:
        super().__init__()
        for i, layer in enumerate(layers):
            self.add_module(str(i), layer)
        self.depth = len(layers)
        self.norm = norm
        self.checkpoint_activations = False
        self.share_layers = share_layers
        share_parameters(self, None)
        self.register_load_state_dict_post_hook(share_parameters)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        # A move to other memory (to_empty) makes new parameters, a module at a time.
        super()._apply(fn, recurse)
        share_parameters(self, None)
        return self

    @property
    def layers(self) -> list[Block]:
        """The blocks in order."""
        return [self._modules[str(i)] for i in range(self.depth)]  # type: ignore[misc]

    def remember(self, source: Float[Tensor, "B S C"]) -> list[Memory]:
        """Every layer's keys and values of the encoder's output: once a sentence."""
        return [layer.cross.keys_values(source) for layer in self.layers]

    def forward(
        self,
        x: Float[Tensor, "B T C"],
        view: BlockInputs,
        memories: Sequence[Memory] | None = None,
        *,
        cache: KVCache | None = None,
    ) -> Float[Tensor, "B T C"]:
        """x through every block and the last norm; `memories` has keys and values for each block's cross-attention."""
        for i, layer in enumerate(self.layers):
            memory = None if memories is None else memories[i]
            if self.checkpoint_activations and self.training and cache is None:
                x = checkpoint(layer, x, view, memory, use_reentrant=False)
            else:
                x = layer(x, view, memory, cache=cache, layer=i)
        return x if self.norm is None else self.norm(x, view.real)


class Encoder(Stack):
    """The stack that reads: every token of a sentence sees every other."""


class Decoder(Stack):
    """The stack that writes: no token sees a later one."""
