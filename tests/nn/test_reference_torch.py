"""Layers and models of `torch.nn`, with the same weights."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from glassformer.config import ModelConfig
from glassformer.models import Transformer
from glassformer.nn.attention import MultiHeadAttention
from glassformer.nn.block import Block, BlockInputs, DecoderLayer, EncoderLayer
from glassformer.nn.feedforward import MLP
from glassformer.nn.masks import cross_mask, self_mask
from glassformer.nn.norms import LayerNorm
from glassformer.nn.rows import Rows
from tests.scrambled import EXACT, VOCABULARY, difference, normal, scramble, small


def from_torch(layer: nn.TransformerEncoderLayer | nn.TransformerDecoderLayer) -> dict[str, Tensor]:
    """The weights of a layer of `torch.nn`, under our names. Its norms are numbered in the order of use."""
    has_cross = isinstance(layer, nn.TransformerDecoderLayer)
    norms = ["attention_norm", "cross_norm", "mlp_norm"] if has_cross else ["attention_norm", "mlp_norm"]
    table = {"linear1": "mlp.up", "linear2": "mlp.down", "self_attn": "attention", "multihead_attn": "cross"}
    table |= {f"norm{i}": name for i, name in enumerate(norms, 1)}
    out = {}
    for name, tensor in layer.state_dict().items():
        first, _, rest = name.partition(".")
        if rest.startswith("in_proj_"):
            for part, piece in zip(("query", "key", "value"), tensor.chunk(3), strict=True):
                out[f"{table[first]}.{part}.{rest.removeprefix('in_proj_')}"] = piece
        else:
            out[f"{table[first]}.{rest.replace('out_proj', 'out')}"] = tensor
    return out


def our_layer(
    width: int, n_head: int, hidden: int, *, cross: bool, pre_norm: bool, activation: str, bias: bool
) -> Block:
    return (DecoderLayer if cross else EncoderLayer)(
        MultiHeadAttention(width, n_head, bias=bias),
        MLP(width, hidden, activation=activation, bias=bias),
        lambda: LayerNorm(width, bias=bias),
        cross=MultiHeadAttention(width, n_head, bias=bias) if cross else None,
        pre_norm=pre_norm,
    ).double()


@pytest.mark.parametrize("pre_norm", [True, False])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("cross", [True, False])
def test_layers_of_torch(pre_norm: bool, activation: str, bias: bool, cross: bool) -> None:
    """`nn.TransformerEncoderLayer` and `nn.TransformerDecoderLayer` with our weights, and the gradients of their inputs.
    Catches a residual taken after the norm, and norms in another order."""
    kind = nn.TransformerDecoderLayer if cross else nn.TransformerEncoderLayer
    theirs = kind(
        12,
        3,
        20,
        dropout=0.0,
        activation=activation,
        batch_first=True,
        norm_first=pre_norm,
        bias=bias,
        dtype=torch.float64,
    )
    scramble(theirs)
    ours = our_layer(12, 3, 20, cross=cross, pre_norm=pre_norm, activation=activation, bias=bias)
    ours.load_state_dict(from_torch(theirs), strict=True)
    x, memory = normal(2, 5, 12).requires_grad_(), normal(2, 7, 12, seed=1).requires_grad_()
    lengths, source_lengths = [5, 3], [4, 7]
    rows = Rows.padded(torch.zeros(2, 5, dtype=torch.long), lengths)
    source = Rows.padded(torch.zeros(2, 7, dtype=torch.long), source_lengths)
    if cross:
        block_inputs = BlockInputs(self_mask(rows, causal=True), cross_mask(rows, source))
        y = ours(x, block_inputs, ours.cross.keys_values(memory))
        future = torch.ones(5, 5).triu(1).bool()
        z = theirs(x, memory, tgt_mask=future, tgt_key_padding_mask=~rows.real, memory_key_padding_mask=~source.real)
    else:
        y = ours(x, BlockInputs(self_mask(rows, causal=False)))
        z = theirs(x, src_key_padding_mask=~rows.real)
    assert difference(y[rows.real], z[rows.real]) <= EXACT
    inputs = (x, memory) if cross else (x,)
    weights = normal(*x.shape, seed=2) * rows.real[..., None]
    for a, b in zip(
        torch.autograd.grad((y * weights).sum(), inputs), torch.autograd.grad((z * weights).sum(), inputs), strict=True
    ):
        assert difference(a, b) <= EXACT


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize("pre_norm", [True, False])
def test_transformer_of_torch(pre_norm: bool) -> None:
    """`nn.Transformer` whole, its two final norms included, as our encoder and decoder."""
    theirs = nn.Transformer(12, 3, 2, 2, 20, dropout=0.0, batch_first=True, norm_first=pre_norm, dtype=torch.float64)
    scramble(theirs)
    config = ModelConfig(
        vocab_size=VOCABULARY,
        n_layer=2,
        n_head=3,
        n_embd=12,
        n_hidden=20,
        pre_norm=pre_norm,
        positions="none",
        dropout=0.0,
        scale_embeddings=False,
    )
    ours = small(config)
    assert isinstance(ours, Transformer)
    state = {name: tensor for name, tensor in ours.state_dict().items() if "embedding" in name}
    for side, stack in (("encoder", theirs.encoder), ("decoder", theirs.decoder)):
        state |= {f"{side}.norm.{name}": tensor for name, tensor in stack.norm.state_dict().items()}
        for i, layer in enumerate(stack.layers):
            state |= {f"{side}.{i}.{name}": tensor for name, tensor in from_torch(layer).items()}
    ours.load_state_dict(state, strict=True)
    source, target = torch.tensor([[1, 2, 3, 4, 5]]), torch.tensor([[6, 7, 8]])
    table = state["embedding.weight"]
    future = torch.ones(3, 3).triu(1).bool()
    hidden = theirs(table[source], table[target], tgt_mask=future)
    assert difference(ours(Rows.whole(source), Rows.whole(target)), hidden @ table.T) <= EXACT
