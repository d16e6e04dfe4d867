"""Attention, norms, residuals, dropout and positions of the files that stand alone."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.classic import gpt as gpt_file
from glassformer.classic import transformer as classic
from glassformer.classic.transformer import Config
from tests.classic.models import begun, by_equation, gpt, ids, logits_of, shaken, transformer

# The parts -----------------------------------------------------------------------------------------------------------


def test_attention_is_the_equation_and_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken: a missing square root, a transposed mask, a kernel that is handed another mask than the equation."""
    q, k, v = torch.randn(2, 3, 4, 8), torch.randn(2, 3, 5, 8), torch.randn(2, 3, 5, 8)
    mask = torch.rand(2, 1, 4, 5) > 0.4
    mask[1, :, 2] = False  # a query that may see nothing gets nothing: zeros, by the equation and by the kernel
    assert (classic.attention(q, k, v, mask)[1, :, 2] == 0).all()
    for m in (None, mask):
        torch.testing.assert_close(classic.attention(q, k, v, m), F.scaled_dot_product_attention(q, k, v, m))
    weights = classic.attention_weights(torch.eye(3)[None], torch.eye(3)[None])
    by_hand = math.exp(1 / math.sqrt(3)) / (math.exp(1 / math.sqrt(3)) + 2)
    torch.testing.assert_close(weights[0].diagonal(), torch.full((3,), by_hand))
    model, src, tgt, lengths = transformer(), ids(2, 5), ids(2, 4), torch.tensor([3, 5])
    fused = logits_of(model, src, tgt, src_lengths=lengths)
    monkeypatch.setattr(classic.MultiHeadAttention, "forward", by_equation(classic.MultiHeadAttention.forward, True))
    torch.testing.assert_close(logits_of(model, src, tgt, src_lengths=lengths), fused, atol=1e-12, rtol=0)


def test_attention_without_positions_is_equivariant_not_equal() -> None:
    """Broken: the claim that 我喜欢你 and 你喜欢我 are the same to attention; the outputs move with the words."""
    config = Config(vocab_size=4, n_embd=16, n_head=2)
    order = torch.tensor([3, 1, 2, 0])
    x = torch.randn(1, 4, 16)
    both = shaken(classic.EncoderLayer(config))
    torch.testing.assert_close(both(x[:, order]), both(x)[:, order])
    assert not torch.allclose(both(x[:, order]), both(x))
    causal = shaken(classic.MultiHeadAttention(config, is_causal=True))
    y = x[:, order]
    assert not torch.allclose(causal(y, y, y), causal(x, x, x)[:, order])


def test_every_source_token_reaches_every_position() -> None:
    """Broken: an encoder of plain Linear layers, where no token sees another."""
    model, src, tgt = transformer(), ids(1, 5), ids(1, 4)
    for place in range(5):
        changed = src.clone()
        changed[:, place] = (changed[:, place] + 1) % 11
        assert ((model.encoder(model.embed(changed)) - model.encoder(model.embed(src))).abs().amax(-1) > 1e-6).all()
        assert ((logits_of(model, changed, tgt) - logits_of(model, src, tgt)).abs().amax(-1) > 1e-6).all()


@pytest.mark.parametrize("bias", [True, False])
def test_layer_norm_runs_over_features_with_or_without_bias(bias: bool) -> None:
    """Broken: statistics over tokens or over the batch; a bias that cannot be left out."""
    x = torch.randn(3, 4, 16) * 5 + 2
    norm = classic.LayerNorm(16, bias)
    assert (norm.bias is not None) == bias
    y = norm(x)
    torch.testing.assert_close(y.mean(-1), torch.zeros(3, 4), atol=1e-6, rtol=0)
    torch.testing.assert_close(y.std(-1, correction=0), torch.ones(3, 4), atol=1e-4, rtol=0)
    torch.testing.assert_close(y, nn.LayerNorm(16, bias=bias)(x))
    torch.testing.assert_close(norm(x[1:2, 2:3]), y[1:2, 2:3])  # a token's neighbours do not matter


@pytest.mark.parametrize("kind", ["encoder", "decoder", "gpt"])
def test_the_residual_is_the_un_normalised_input(kind: str) -> None:
    """Broken: `x = ln(x); x = x + attn(x)`. With every part silenced a layer must be the identity; theirs gives ln(x)."""
    config = Config(vocab_size=4, n_embd=16, n_head=2)
    layer = {
        "encoder": classic.EncoderLayer(config),
        "decoder": classic.DecoderLayer(config),
        "gpt": gpt_file.TransformerLayer(16, 2, 40, 0.0),
    }[kind]
    for name, p in layer.named_parameters():
        if "c_proj" in name or "proj_layer" in name or "fc2" in name:
            nn.init.zeros_(p)
    x = torch.randn(2, 5, 16) * 3 + 1
    y = layer(x, torch.randn(2, 7, 16)) if kind == "decoder" else layer(x)
    assert torch.equal(y[0] if kind == "gpt" else y, x)


def test_each_part_reads_the_normalised_stream() -> None:
    """Broken: no norm before a part; a final norm left out. The layers are written out here once more, by formula."""
    model, src, tgt = transformer(n_layer=1), ids(2, 5), ids(2, 4)
    enc, dec = model.encoder.layers[0], model.decoder.layers[0]
    x = model.wte(src) * 4.0 + classic.sinusoids(5, 16)
    x = x + enc.attn(enc.ln_1(x), enc.ln_1(x), enc.ln_1(x))
    memory = model.encoder.norm(x + enc.mlp(enc.ln_2(x)))
    y = model.wte(tgt) * 4.0 + classic.sinusoids(4, 16)
    y = y + dec.m_attn(dec.ln_1(y), dec.ln_1(y), dec.ln_1(y))
    y = y + dec.attn(dec.ln_2(y), memory, memory)
    y = model.decoder.norm(y + dec.mlp(dec.ln_3(y)))
    torch.testing.assert_close(logits_of(model, src, tgt), y @ model.lm_head.weight.T)


def test_the_gpt_layer_is_pre_norm_with_the_tanh_gelu() -> None:
    """Broken: post-norm with ReLU, as the course's text has it, or the exact GELU."""
    layer = shaken(gpt_file.TransformerLayer(16, 2, 40, 0.0))
    x = torch.randn(2, 5, 16)
    out, attn = layer(x)
    h = x + layer.attention(layer.norm1(x))[0]
    z = layer.ffn.fc1(layer.norm2(h))
    gelu = 0.5 * z * (1 + torch.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * z**3)))
    torch.testing.assert_close(out, h + layer.ffn.fc2(gelu))
    assert attn.shape == (2, 2, 5, 5)


def test_dropout_is_applied_once_to_the_embeddings() -> None:
    """Broken: dropout in the position encoding and again after it: three quarters would be zero here, not half."""
    model = transformer(dropout=0.5, n_embd=64).train()
    seen: list[Tensor] = []
    for part in (model.encoder, model.decoder):
        part.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    model(ids(64, 8), begun(ids(64, 8)), None)
    assert len(seen) == 2
    for x in seen:
        assert abs((x == 0).double().mean().item() - 0.5) < 0.02


def test_dropout_is_off_in_eval_and_on_in_training() -> None:
    """Broken: dropout that never acts, or acts while one generates."""
    for model in (transformer(dropout=0.3), gpt(dropout=0.3)):
        inputs = (ids(2, 6), begun(ids(2, 6)), *([ids(2, 6)] * isinstance(model, classic.Transformer)))
        assert torch.equal(model(*inputs)[0], model(*inputs)[0])
        model.train()
        assert not torch.equal(model(*inputs)[0], model(*inputs)[0])


# Positions -----------------------------------------------------------------------------------------------------------


def test_the_sinusoids_of_the_worked_examples() -> None:
    """Broken: n=10000 and n=100 mixed in one example; sines and cosines by token instead of by dimension."""
    table = classic.sinusoids(4, 4, n=100.0)
    torch.testing.assert_close(table[3], torch.tensor([0.1411, -0.9900, 0.2955, 0.9553]), atol=5e-5, rtol=0)
    words = torch.tensor([[0.1, 0.2, 0.3, 0.4], [0.2, 0.3, 0.4, 0.5], [0.3, 0.4, 0.5, 0.6], [0.4, 0.5, 0.6, 0.7]])
    summed = words + classic.sinusoids(4, 4)
    torch.testing.assert_close(summed[1], torch.tensor([1.0415, 0.8403, 0.4100, 1.5000]), atol=6e-5, rtol=0)
    torch.testing.assert_close(summed[3, 2:], torch.tensor([0.6300, 1.6996]), atol=6e-5, rtol=0)
    # Dimension 2i is a sine and 0 at position 0, dimension 2i+1 a cosine and 1, whichever token stands there.
    assert torch.equal(classic.sinusoids(1, 6)[0], torch.tensor([0.0, 1, 0, 1, 0, 1]))


def test_the_inner_product_of_positions_depends_on_distance_and_stays_far_from_zero() -> None:
    """Broken: the claim that it tends to zero with distance."""
    table = classic.sinusoids(400, 512)
    products = table @ table.T / (table[0] @ table[0])
    for distance in (1, 50, 100):
        diagonal = products.diagonal(distance)
        torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal))
    assert abs(products[0, 100].item() - 0.44) < 0.005


def test_a_sentence_longer_than_block_size_works() -> None:
    """Broken: `assert t <= block_size`. The positions before it must not move when the table grows."""
    model, src, tgt = transformer(block_size=4), ids(2, 4), ids(2, 4)
    short = logits_of(model, src, tgt)
    longer = logits_of(model, src, torch.cat((tgt, ids(2, 6)), 1))
    assert longer.shape == (2, 10, 11)
    torch.testing.assert_close(longer[:, :4], short, atol=1e-12, rtol=0)
    torch.testing.assert_close(logits_of(model, src, tgt), short, atol=1e-12, rtol=0)
    assert model.generate(ids(1, 9), 20).size(1) <= 20
    assert not any("table" in name for name in model.state_dict())
