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

import glassformer
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
    assert isinstance(file.PositionEncoding(config), file.PositionalEncoding)
    model._init_weights(model.lm_head)
    x, enc = torch.randn(2, 5, 16), torch.randn(2, 7, 16)
    attn = file.MultiHeadAttention(config, is_causal=False)
    assert {"c_attns", "c_proj", "attn_dropout", "resid_dropout", "flash", "n_head"} <= set(dir(attn))
    assert (attn.n_embd, attn.dropout, attn.is_causal) == (16, 0.0, False)
    assert torch.equal(file.MultiHeadAttention(config, True).bias, torch.tril(torch.ones(12, 12)).view(1, 1, 12, 12))
    assert attn(query=x, key=enc, value=enc).shape == (2, 5, 16)
    assert file.MLP(config)(x).shape == file.LayerNorm(16, bias=False)(x).shape == x.shape
    layer, decoder = file.EncoderLayer(config), file.DecoderLayer(config)
    assert {"ln_1", "attn", "ln_2", "mlp"} <= set(dict(layer.named_children()))
    assert {"ln_1", "m_attn", "ln_2", "attn", "ln_3", "mlp"} == set(dict(decoder.named_children()))
    assert layer.ln1 is layer.ln_1 and layer.ln2 is layer.ln_2 and decoder.ln3 is decoder.ln_3
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
    from_zero = F.pad(targets[:, :-1], (1, 0))  # looks like a target that begins with BOS
    given: list[dict[str, Any]] = [
        {"idx": idx},
        {"input": idx},
        {"idx": idx, "targets": targets},
        {"targets": targets},
        {},
    ]
    for call in (
        *(lambda given=given: model(**given) for given in given),
        *(lambda tgt=tgt: model(idx, tgt) for tgt in (targets, from_zero)),
        lambda: model(idx),
        lambda: model(idx, targets=targets),
        lambda: model(idx, targets, None),
    ):
        with pytest.raises(TypeError, match=r"model\(src, tgt, targets\): two texts"):
            call()
    for named in ({"idx": idx}, {"input": idx}, {}):
        with pytest.raises(TypeError, match=r"generate\(src, max_new_tokens\)"):
            model.generate(**named, max_new_tokens=3)
    logits, loss = model(idx, F.pad(targets[:, :-1], (1, 0)), targets)
    assert logits.shape == (2, 5, 10) and loss.dim() == 0
    logits, loss = model(idx, torch.zeros(2, 1, dtype=torch.long), None)
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


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.long, torch.uint8, torch.bool])
def test_a_triangle_of_ones_is_causal_whatever_its_type(dtype: torch.dtype) -> None:
    """`torch.tril(torch.ones(T, T))`, as a buffer is written. Broken variant: it is added to the scores, and hides nothing."""
    tril = torch.ones(5, 5).tril().to(dtype)
    q, k, v = (torch.randn(2, 5, 8) for _ in range(3))
    expected = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    torch.testing.assert_close(file.attention(q, k, v, tril), expected)
    torch.testing.assert_close(glassformer.attention(q, k, v, tril), expected)
    attn, x = file.MultiHeadAttention(SimpleNamespace(**THEIRS)), torch.randn(2, 5, 16)
    causal = file.MultiHeadAttention(SimpleNamespace(**THEIRS), is_causal=True)
    causal.load_state_dict(attn.state_dict())
    for attn.flash in (True, False):
        for mask in (tril, tril[None], tril[None, None]):
            torch.testing.assert_close(attn(x, x, x, mask), causal(x, x, x))
    module = glassformer.MultiHeadAttention(16, 2)
    torch.testing.assert_close(module(x, mask=tril), module(x, mask=tril.bool()))
    course = gpt_file.SelfAttention(16, 2)
    hidden = tril * (1 - torch.eye(5).roll(1, 1)).tril().to(dtype)  # and one more than the future
    torch.testing.assert_close(course(x, hidden)[0], course(x, hidden.bool())[0])
    for one in (torch.ones(1, 1), torch.ones(5, 5)):  # all allowed, and added it would say the same
        torch.testing.assert_close(file.attention(q, k, v, one), file.attention(q, k, v))


def test_a_mask_that_is_added_at_top_level_is_that_of_torch() -> None:
    """0 and -inf, all zeros (nothing hidden), and other numbers. Broken variants: zeros taken for forbidden; a one among other
    numbers taken for allowed; a row that may see nothing becomes NaN."""
    module, x = glassformer.MultiHeadAttention(16, 2), torch.randn(2, 5, 16)
    q, k, v = (torch.randn(2, 5, 8) for _ in range(3))
    minus_inf = torch.triu(torch.full((1, 12, 12), float("-inf")), diagonal=1)[:, :5, :5]
    preference = -(torch.arange(5)[:, None] - torch.arange(5)).abs().double()
    for mask in (minus_inf, torch.zeros(5, 5), preference, preference + 1, minus_inf + preference):
        expected = F.scaled_dot_product_attention(q, k, v, mask.expand(2, 5, 5))
        for attention in (glassformer.attention, file.attention):
            torch.testing.assert_close(attention(q, k, v, mask), expected)
        heads = F.scaled_dot_product_attention(module.queries(x), *module.keys_values(x), mask.expand(2, 1, 5, 5))
        torch.testing.assert_close(module(x, mask=mask), module.out(heads.transpose(1, 2).flatten(2)))
    torch.testing.assert_close(module(x, mask=minus_inf), module(x, mask=minus_inf == 0))
    nothing = glassformer.attention(q, k, v, torch.full((5, 5), float("-inf")))
    assert torch.equal(nothing, torch.zeros_like(nothing))


def test_the_function_of_one_text_makes_the_table() -> None:
    """`PositionEncoding(seq_len=4, d_model=4, n=100)`: the worked example, in NumPy."""
    table = file.PositionEncoding(seq_len=4, d_model=4, n=100)
    assert isinstance(table, np.ndarray) and table.shape == (4, 4)
    for k in range(4):
        for i in range(2):
            angle = k / np.power(100, 2 * i / 4)
            np.testing.assert_allclose(table[k, 2 * i : 2 * i + 2], [np.sin(angle), np.cos(angle)])
    np.testing.assert_allclose(file.PositionEncoding(4, 4), file.sinusoids(4, 4).numpy())


@pytest.mark.usefixtures("as_in_production")
def test_the_tutorials_classes_at_top_level_say_where_they_are() -> None:
    args = SimpleNamespace(**THEIRS)
    for call in (
        lambda: glassformer.Transformer(args),
        lambda: glassformer.GPT(vocab_size=10, max_seq_len=12, num_layer=2),
        lambda: glassformer.MultiHeadAttention(args, is_causal=True),
        lambda: glassformer.MultiHeadAttention(args),
    ):
        with pytest.raises((TypeError, ValueError), match=r"glassformer\.classic"):
            call()
    assert glassformer.classic.MultiHeadAttention is file.MultiHeadAttention


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
    assert course.generate([[1, 2, 3]], 2, temperature=1.0, top_k=5).shape == (1, 5)
    logits, loss = course(src.numpy(), src.numpy())
    assert logits.shape == (2, 5, 10) and loss.dim() == 0
    with pytest.raises(TypeError, match="whole numbers of shape"):
        course(torch.zeros(2, 5, 1, dtype=torch.long))


def test_the_courses_text_is_named_as_any_text_names_it_and_keeps_its_shape() -> None:
    """`[int(i) for i in gpt.generate(idx, n)]`, `generate(input=...)`. Broken variants: one text
    given back with a B that it did not have; a keyword that Python refuses without saying what would be right; ties above k."""
    idx, course = torch.randint(0, 10, (5,)), GPT(10, 12, 1, 16, 2, 32).eval()
    rows = course.generate(idx[None], 4, 0)
    assert rows.shape == (1, 9)
    assert [int(i) for i in course.generate(idx, 4, temperature=0)] == rows[0].tolist()
    assert torch.equal(course.generate(idx=idx, max_new_tokens=4, temperature=0, top_k=3), rows[0])
    for wrong in ({"max_new_tokens": 4}, {"idx": idx}, {"idx": idx, "max_new_tokens": 4, "stop": 1}):
        with pytest.raises(TypeError, match=r"use .*generate\(idx, max_new_tokens"):
            course.generate(**wrong)
    for p in course.parameters():
        nn.init.zeros_(p)  # every logit alike: one of them is the likeliest, and no other may be drawn
    assert len({int(i) for i in course.generate(idx, 7, top_k=1)[5:]}) == 1
    assert torch.equal(course.generate(input=idx, max_new_tokens=4, temperature=0), course.generate(idx, 4, 0))
    for name in ("word_idx", "idx", "input"):
        assert torch.equal(course(**{name: idx})[0], course(idx)[0])
    for call in (course, lambda: course(idx, words=idx), lambda: course(words=idx)):
        with pytest.raises(TypeError, match=r"use gpt\(word_idx, targets\)"):
            call()


def test_weights_of_their_own_classes_are_loaded_to_the_last_name() -> None:
    """As their classes save them: the table of positions and the triangles among the weights, `attn` for `attention`, or a layer
    that is its own attention. Broken variants: a strict load that refuses `wpe.pe`; their table not used; a layer alone."""
    config = SimpleNamespace(**THEIRS)
    model, fresh, idx = Transformer(config), Transformer(config), torch.randint(2, 10, (2, 5))
    table = torch.rand(1, 12, 16)
    saved = model.state_dict() | {"transformer.wpe.pe": table}
    for layer in range(2):
        saved[f"transformer.decoder.layers.{layer}.m_attn.bias"] = torch.ones(1, 1, 12, 12).tril()
    fresh.load_state_dict(saved)
    assert torch.equal(fresh.wpe.pe, table[0]) and fresh.state_dict().keys() == model.state_dict().keys()
    tgt = F.pad(idx[:, 1:], (1, 0))
    model.wpe.pe = table[0]
    assert torch.equal(fresh(idx, tgt, idx)[0], model(idx, tgt, idx)[0])
    course = GPT(10, 12, 2, 16, 2, 32)
    for spelt in ("attn.", ""):
        saved = {name.replace("attention.", spelt): p for name, p in course.state_dict().items()}
        saved = {name.replace("norm1", "ln1"): p for name, p in saved.items()}
        other = GPT(10, 12, 2, 16, 2, 32)
        other.load_state_dict(saved | {"transformer.0.attn.mask": torch.ones(12, 12, dtype=torch.bool).tril()})
        assert torch.equal(other(idx)[0], course(idx)[0])
        layer = {
            name.removeprefix("transformer.1."): p for name, p in saved.items() if name.startswith("transformer.1.")
        }
        other.transformer[0].load_state_dict(layer)
        with pytest.raises(RuntimeError, match="Unexpected key"):
            other.load_state_dict(saved | {"transformer.0.attn.nothing": torch.ones(1)})
    assert glassformer.classic.SelfAttention is gpt_file.SelfAttention and glassformer.classic.FFN is gpt_file.FFN


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
    before = {name: p.clone() for name, p in GPT(10, 12, 2, 16, 2, 32).named_parameters()}
    for p in model.parameters():
        nn.init.ones_(p)
    model.init_weights()
    spread = {n: (p.std(), before[n].std()) for n, p in model.named_parameters() if p.dim() == 2}
    assert all(0.5 < a / b < 2 for a, b in spread.values())
    layer = model.transformer[0]
    assert layer.attn is layer.attention and layer.attn.q_layer is layer.q_layer
    assert layer.ln1 is layer.norm1 and layer.ln2 is layer.norm2 and layer.ffn.drop is layer.ffn.dropout
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
