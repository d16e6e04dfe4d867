"""One block, and the stack of them. Two or three residual lines are the whole of it:

    pre-norm    x = x + f(norm(x))          the residual is taken before the norm; the stack ends with a norm of its own
    post-norm   x = norm(x + f(x))          the paper's

for a sublayer f = self-attention, then cross-attention where there is one, then the feed-forward layer. An encoder layer, a
decoder layer and a GPT layer are this same block; what differs is whether the mask is causal and whether it has `cross`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from glassformer.nn.attention import KeyValues, MultiHeadAttention
from glassformer.nn.cache import KVCache
from glassformer.nn.masks import AttentionMask
from glassformer.nn.positions import RelativePositions, Rotation
from glassformer.nn.taps import Tapped


@dataclass(frozen=True)
class BlockInputs:
    """What every block of a stack is told of its rows; computed once and shared: the masks of self-attention and of
    cross-attention, the rotary angles, and which tokens are real (None: all)."""

    mask: AttentionMask
    cross_mask: AttentionMask = field(default_factory=AttentionMask)
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

    def add_and_norm(
        self, x: Tensor, norm: nn.Module, sublayer: Callable[[Tensor], Tensor], real: Bool[Tensor, "B T"] | None
    ) -> Tensor:
        """The paper's "Add & Norm": pre-norm x + sublayer(norm(x)), post-norm norm(x + sublayer(x))."""
        if self.pre_norm:
            out = self.drop(sublayer(norm(x, real)))
            return x + out if self.residual else out
        out = self.drop(sublayer(x))
        return norm(x + out if self.residual else out, real)

    def project_memory(self, memory: Float[Tensor, "B S C"]) -> KeyValues:
        """The encoder's output as keys and values of this block's cross-attention."""
        return self.cross.keys_values(memory)

    def forward(
        self,
        x: Float[Tensor, "B T C"],
        inputs: BlockInputs,
        memory: KeyValues | None = None,
        *,
        cache: KVCache | None = None,
        layer: int = 0,
    ) -> Float[Tensor, "B T C"]:
        """(B, T, C) -> (B, T, C). `memory` holds the keys and values of cross-attention."""

        def attend(y: Tensor) -> Tensor:
            return self.attention(y, inputs.mask, rotation=inputs.rotation, cache=cache, layer=layer)

        x = self.tap("in", x)
        x = self.tap("after_attention", self.add_and_norm(x, self.attention_norm, attend, inputs.real))
        if self.has_cross:
            x = self.add_and_norm(x, self.cross_norm, lambda y: self.cross(y, inputs.cross_mask, memory), inputs.real)
            x = self.tap("after_cross", x)
        return self.tap("residual", self.add_and_norm(x, self.mlp_norm, self.mlp, inputs.real))


class EncoderLayer(Block):
    """A block of the paper's encoder: self-attention and feed-forward."""


class DecoderLayer(Block):
    """A block of the paper's decoder: causal self-attention, cross-attention to the encoder's output, feed-forward."""


def share_parameters(stack: Any, _: object) -> None:
    """Where a stack shares its layers, a parameter of one name is one parameter in all layers that have it (a layer whose
    weight was given a parametrization of its own has others); the modules and their taps stay several."""
    if not stack.share_layers:
        return
    shared: dict[str, nn.Parameter] = {}
    for layer in stack.layers:
        for name, parameter in list(layer.named_parameters()):
            path, _, last = name.rpartition(".")
            setattr(layer.get_submodule(path), last, shared.setdefault(name, parameter))


class Stack(nn.Module):
    """Blocks one after the other, named 0, 1, 2 …, a last norm where the blocks are pre-norm, and the bias that T5's have in
    common."""

    def __init__(
        self,
        layers: Sequence[Block],
        norm: nn.Module | None = None,
        *,
        share_layers: bool = False,
        positions: RelativePositions | None = None,
    ) -> None:
        super().__init__()
        for i, layer in enumerate(layers):
            self.add_module(str(i), layer)
        self.depth = len(layers)
        self.norm = norm
        self.positions = positions
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

    def __getitem__(self, index: int | slice) -> Block | list[Block]:
        """The block of this number, or a list of blocks, as of torch's ModuleList."""
        return self.layers[index]

    def __len__(self) -> int:
        return self.depth

    def __iter__(self) -> Iterator[Block]:
        return iter(self.layers)

    def project_memory(self, memory: Float[Tensor, "B S C"]) -> list[KeyValues]:
        """The encoder's output (torch's `memory`) projected to the keys and values of every layer's cross-attention: once a
        sentence, however many tokens are written."""
        return [layer.project_memory(memory) for layer in self.layers]

    def forward(
        self,
        x: Float[Tensor, "B T C"],
        inputs: BlockInputs,
        memory: Sequence[KeyValues] | None = None,
        *,
        cache: KVCache | None = None,
    ) -> Float[Tensor, "B T C"]:
        """x through every block and the last norm; `memory` has the keys and values of each block's cross-attention."""
        for i, layer in enumerate(self.layers):
            keys_values = None if memory is None else memory[i]
            if self.checkpoint_activations and self.training and cache is None:
                x = checkpoint(layer, x, inputs, keys_values, use_reentrant=False)
            else:
                x = layer(x, inputs, keys_values, cache=cache, layer=i)
        return x if self.norm is None else self.norm(x, inputs.real)


class Encoder(Stack):
    """A stack without a causal mask: every token of a sentence attends to every other."""


class Decoder(Stack):
    """A stack with a causal mask: no token attends to a later one."""
