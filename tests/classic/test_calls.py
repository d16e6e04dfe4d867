"""The tutorials' own calls, made literally: each works, or fails with a sentence that says what is right."""

from __future__ import annotations

import inspect
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from glassformer.classic import gpt as gpt_file
from glassformer.classic import transformer as file
from glassformer.classic.gpt import GPT
from glassformer.classic.transformer import Transformer

THEIRS = {"vocab_size": 10, "block_size": 12, "n_layer": 2, "n_head": 4, "n_embd": 16, "dropout": 0.0, "bias": True}
ONE_TEXT = {"vocab_size": 10, "max_seq_len": 12, "n_layers": 2, "n_heads": 4, "dim": 16, "dropout": 0.0}


@pytest.mark.parametrize("fields", [THEIRS, ONE_TEXT], ids=["config", "args"])
def test_a_config_object_with_only_their_fields(fields: dict[str, Any]) -> None:
    args = SimpleNamespace(**fields)
    for model in (Transformer(args), Transformer(args=args)):
        assert model.args.n_embd == model.config.n_embd == 16
        assert model.args.n_head == 4 and model.config.block_size == 12
        assert len(model.transformer.encoder.layers) == 2


def test_names_and_attributes_of_the_encoder_decoder() -> None:
    config = SimpleNamespace(**THEIRS)
    model = Transformer(config)
    assert isinstance(model.transformer, nn.ModuleDict)
    assert set(model.transformer) == {"wte", "wpe", "drop", "encoder", "decoder"}
    for name in ("wte", "wpe", "drop", "encoder", "decoder"):
        assert getattr(model, name) is model.transformer[name]
    assert model.lm_head.weight.shape == (10, 16)
    assert model.wpe.pe.shape == (12, 16)
    assert file.PositionEncoding is file.PositionalEncoding
    model._init_weights(model.lm_head)
    x, enc = torch.randn(2, 5, 16), torch.randn(2, 7, 16)
    attn = file.MultiHeadAttention(config, is_causal=False)
    assert {"c_attns", "c_proj", "attn_dropout", "resid_dropout", "flash", "n_head"} <= set(dir(attn))
    assert attn(query=x, key=enc, value=enc).shape == (2, 5, 16)
    assert file.MLP(config)(x).shape == file.LayerNorm(16, bias=False)(x).shape == x.shape
    layer, decoder = file.EncoderLayer(config), file.DecoderLayer(config)
    assert {"ln_1", "attn", "ln_2", "mlp"} <= set(dict(layer.named_children()))
    assert {"ln_1", "m_attn", "ln_2", "attn", "ln_3", "mlp"} == set(dict(decoder.named_children()))
    assert file.Encoder(config)(x).shape == file.Decoder(config)(x, enc).shape == decoder(x, enc).shape == x.shape
    assert file.PositionalEncoding(config)(x).shape == x.shape
    assert file.attention(x, enc, enc).shape == x.shape
    assert model.get_num_params(non_embedding=True) == model.get_num_params() - 160
    optimizer = model.configure_optimizers(weight_decay=0.1, learning_rate=1e-3, betas=(0.9, 0.95), device_type="cpu")
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.1, 0.0]


def test_one_text_for_both_sides_is_refused_in_a_sentence() -> None:
    """Broken: model(idx, targets) returning a loss of None without a word."""
    model = Transformer(SimpleNamespace(**THEIRS))
    idx, targets = torch.randint(2, 10, (2, 5)), torch.randint(2, 10, (2, 5))
    for call in (lambda: model(idx, targets), lambda: model(idx), lambda: model(idx, targets=targets)):
        with pytest.raises(TypeError, match=r"model\(src, tgt, targets\): two texts"):
            call()
    logits, loss = model(idx, F.pad(targets[:, :-1], (1, 0)), targets)
    assert logits.shape == (2, 5, 10) and loss.dim() == 0
    logits, loss = model(idx, torch.zeros(2, 1, dtype=torch.long))
    assert logits.shape == (2, 1, 10) and loss is None


def test_what_is_not_to_be_learned_is_marked_by_any_number_below_zero() -> None:
    model, course = Transformer(SimpleNamespace(**THEIRS)), GPT(10, 12, 1, 16, 2, 32, 0.0)
    src, tgt = torch.randint(2, 10, (2, 5)), torch.zeros(2, 5, dtype=torch.long)
    targets = torch.randint(0, 10, (2, 5))
    for mark in (-1, -100):
        marked = targets.clone()
        marked[:, 3:] = mark
        logits, loss = model(src, tgt, marked)
        torch.testing.assert_close(loss, F.cross_entropy(logits[:, :3].flatten(0, 1), targets[:, :3].flatten()))
        logits, loss = course(src, marked)
        torch.testing.assert_close(loss, F.cross_entropy(logits[:, :3].flatten(0, 1), targets[:, :3].flatten()))


def test_the_additive_mask() -> None:
    """`mask = torch.full((1, T, T), float("-inf")); mask = torch.triu(mask, diagonal=1)`, sliced to the length."""
    seqlen = 5
    mask = torch.triu(torch.full((1, 12, 12), float("-inf")), diagonal=1)[:, :seqlen, :seqlen]
    q, k, v = (torch.randn(2, seqlen, 8) for _ in range(3))
    expected = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    torch.testing.assert_close(file.attention(q, k, v, mask), expected)
    attn, x = file.MultiHeadAttention(SimpleNamespace(**THEIRS)), torch.randn(2, seqlen, 16)
    causal = file.MultiHeadAttention(SimpleNamespace(**THEIRS), is_causal=True)
    causal.load_state_dict(attn.state_dict())
    for one in (True, False):
        attn.flash = causal.flash = one
        torch.testing.assert_close(attn(x, x, x, mask), causal(x, x, x))
        torch.testing.assert_close(causal(x, x, x, torch.zeros(1, seqlen, seqlen)), causal(x, x, x))
    course = gpt_file.SelfAttention(16, 2)
    torch.testing.assert_close(course(x, mask)[0], course(x)[0])


def test_a_mask_of_one_kind_is_that_of_another() -> None:
    """Added, boolean or of ones and zeros, (T, T) or a sentence each. Broken variants: True added as a 1, which hides nothing;
    a mask of two sentences taken for one of two heads."""
    x, attn = torch.randn(2, 5, 16), file.MultiHeadAttention(SimpleNamespace(**{**THEIRS, "n_head": 2}), is_causal=True)
    course = gpt_file.SelfAttention(16, 2)
    allowed = torch.rand(2, 5, 5) < 0.5
    allowed |= torch.eye(5, dtype=torch.bool)
    added = torch.zeros(2, 5, 5).masked_fill(~allowed, float("-inf"))
    alone = torch.cat([attn(x[i : i + 1], x[i : i + 1], x[i : i + 1], allowed[i]) for i in range(2)])
    torch.testing.assert_close(file.attention(x, x, x, allowed.int()), file.attention(x, x, x, added))
    for flash in (True, False):
        attn.flash = flash
        for mask in (allowed, added):
            torch.testing.assert_close(attn(x, x, x, mask), alone)
    expected = course(x[:1], added[0])[0]
    for mask in (allowed[0], allowed[0].int()):
        torch.testing.assert_close(course(x[:1], mask)[0], expected)
    assert not torch.allclose(expected, course(x[:1])[0])


def test_a_config_without_a_vocabulary_is_refused() -> None:
    """Broken variant: a model of no words, from a dictionary that was taken for an object without fields."""
    for wrong in (None, THEIRS, SimpleNamespace(n_embd=16)):
        with pytest.raises(TypeError, match="an object with vocab_size"):
            Transformer(wrong)


def test_generation_at_temperature_zero_and_in_numpy() -> None:
    model = Transformer(SimpleNamespace(**THEIRS)).eval()
    src = torch.randint(2, 10, (2, 5))
    first = model.generate(src, 4, temperature=0)
    assert torch.equal(first, model.generate(src, max_new_tokens=4, temperature=0.0, top_k=3))
    found = model.generate(src.numpy(), 4, temperature=0)
    assert isinstance(found, np.ndarray) and found.tolist() == first.tolist()
    course = GPT(10, 12, 1, 16, 2, 32, 0.0).eval()
    first = course.generate(src, 20, temperature=0)
    assert first.shape == (2, 25)
    assert isinstance(course.generate(src.numpy(), 3), np.ndarray)
    assert course.generate([1, 2, 3], 2, temperature=1.0, top_k=5).shape == (1, 5)
    logits, loss = course(src.numpy(), src.numpy())
    assert logits.shape == (2, 5, 10) and loss.dim() == 0
    with pytest.raises(TypeError, match="whole numbers of shape"):
        course(torch.zeros(2, 5, 1, dtype=torch.long))


def test_names_and_attributes_of_the_course() -> None:
    parameters = list(inspect.signature(GPT).parameters)
    assert parameters == [
        *("vocab_size", "max_seq_len", "num_layer", "embed_dim", "num_head", "feedforward_dim", "dropout"),
        *("no_res", "no_pos"),
    ]
    model = GPT(
        10, 12, num_layer=2, embed_dim=16, num_head=2, feedforward_dim=32, dropout=0.1, no_res=False, no_pos=False
    )
    assert model.num_layer == len(model.transformer) == 2 and model.no_pos is False
    assert model.language_model_head.weight is model.word_token_embedding.weight
    assert model.word_pos_embedding.weight.shape == (12, 16)
    model.init_weights(model.language_model_head)
    layer = model.transformer[0]
    for name in ("norm1", "norm2", "q_layer", "k_layer", "v_layer", "proj_layer", "attn_drop"):
        assert isinstance(getattr(layer, name), nn.Module)
    out, attn = gpt_file.TransformerLayer(16, 2, 32, 0.0, False)(torch.randn(2, 5, 16))
    assert out.shape == (2, 5, 16) and attn.shape == (2, 2, 5, 5)
    assert gpt_file.FFN(16, 32, 0.0)(out).shape == out.shape
    logits, attention_weights = model(torch.randint(0, 10, (2, 5)))
    assert logits.shape == (2, 5, 10) and len(attention_weights) == 2
    groups = model.configure_optimizers(weight_decay=0.1)
    assert [group["weight_decay"] for group in groups] == [0.1, 0.0]
    torch.optim.AdamW(groups, lr=1e-3)
    x = torch.linspace(-4, 4, 50)
    torch.testing.assert_close(gpt_file.gelu(x), F.gelu(x, approximate="tanh"))
