"""The one-file machine: every mistake of the circulating tutorials, and the law that the mistake would break.

Where it is cheap, the mistaken variant is run beside the right one, so that each test is seen to be able to fail.
"""

from __future__ import annotations

import ast
import difflib
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.classic import gpt as gpt_file
from glassformer.classic import transformer as classic
from glassformer.classic.gpt import GPT
from glassformer.classic.transformer import Config, Transformer
from tests.counts import count

FILES = [Path(classic.__file__), Path(gpt_file.__file__)]
IGNORE = -100


@pytest.fixture(autouse=True)
def exact_numbers() -> Iterator[None]:
    """Laws are tested in float64, from one seed."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)
    yield
    torch.set_default_dtype(before)


def shaken(model: nn.Module) -> nn.Module:
    """Every parameter random and of size one fifth, so that nothing is hidden by zeros, ones or small weights."""
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p) * 0.2)
    return model.eval()


def transformer(**changes: object) -> Transformer:
    settings: dict = {"vocab_size": 11, "block_size": 8, "n_layer": 2, "n_head": 2, "n_embd": 16, **changes}
    model = shaken(Transformer(Config(**settings)))
    assert isinstance(model, Transformer)
    return model


def gpt(**changes: object) -> GPT:
    settings: dict = {
        "vocab_size": 11,
        "max_seq_len": 8,
        "num_layer": 2,
        "embed_dim": 16,
        "num_head": 2,
        "feedforward_dim": 40,
        "dropout": 0.0,
        **changes,
    }
    model = shaken(GPT(**settings))
    assert isinstance(model, GPT)
    return model


def by_equation(forward: Callable[..., Tensor], explicit: bool) -> Callable[..., Tensor]:
    """MultiHeadAttention.forward by the equation in place of the kernel."""

    def changed(self: nn.Module, *given: Tensor) -> Tensor:
        self.flash = not explicit
        return forward(self, *given)

    return changed


def ids(*shape: int) -> Tensor:
    return torch.randint(11, shape)


def begun(tgt: Tensor) -> Tensor:
    """The same target, beginning with BOS."""
    return torch.cat((torch.zeros_like(tgt[:, :1]), tgt[:, 1:]), dim=1)


def logits_of(model: Transformer, src: Tensor, tgt: Tensor, **lengths: Tensor) -> Tensor:
    """All positions' logits; the targets are there only because without them the last position alone is returned."""
    return model(src, tgt, torch.zeros_like(tgt), **lengths)[0]


# The future ----------------------------------------------------------------------------------------------------------


def test_a_later_target_token_never_changes_an_earlier_logit() -> None:
    """Broken: the same ids go into encoder and decoder, so that every token sees the whole answer (the control)."""
    model, src, tgt = transformer(), ids(3, 5), ids(3, 7)
    for place in range(7):
        changed = tgt.clone()
        changed[:, place] = (changed[:, place] + 1) % 11
        before, after = logits_of(model, src, tgt), logits_of(model, src, changed)
        assert torch.equal(before[:, :place], after[:, :place])
        assert not torch.allclose(before[:, place:], after[:, place:])
    changed = tgt.clone()
    changed[:, -1] = (changed[:, -1] + 1) % 11
    assert (logits_of(model, tgt, tgt) - logits_of(model, changed, changed))[:, :-1].abs().max() > 1e-3


@pytest.mark.parametrize("no_pos", [False, True])
def test_the_gpt_sees_no_future(no_pos: bool) -> None:
    """Broken: no causal mask, or a mask shifted by one."""
    model, tokens = gpt(no_pos=no_pos), ids(2, 8)
    for place in range(8):
        changed = tokens.clone()
        changed[:, place] = (changed[:, place] + 1) % 11
        before, after = model(tokens)[0], model(changed)[0]
        assert torch.equal(before[:, :place], after[:, :place])
        assert not torch.allclose(before[:, place], after[:, place])


@pytest.mark.slow
def test_random_tokens_are_not_learned_but_a_leak_is() -> None:
    """Broken: any leak of the answer; shown by the control, in which the encoder is given the decoder's ids. All targets
    but the last then lie open, and the loss falls towards ln V / length."""
    torch.set_default_dtype(torch.float32)
    v, length, steps = 6, 6, count(fast=120, soak=1000)

    def last_losses(leak: bool) -> float:
        torch.manual_seed(1)
        model = Transformer(Config(vocab_size=v, block_size=8, n_layer=1, n_head=2, n_embd=64))
        optimizer = model.configure_optimizers(0.0, 3e-3, (0.9, 0.98), "cpu")
        losses = []
        for _ in range(steps):
            answer = torch.randint(v, (32, length + 1))
            src = answer[:, :-1] if leak else torch.randint(v, (32, length))
            _, loss = model(src, answer[:, :-1], answer[:, 1:])
            assert loss is not None
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return sum(losses[-40:]) / 40

    assert last_losses(leak=False) > math.log(v) - 0.02
    assert last_losses(leak=True) < 0.5 * math.log(v)


def test_the_mask_is_lower_triangular_and_has_a_row_a_prediction() -> None:
    """Broken: an upper triangle; a mask row for EOS, after which nothing is predicted."""
    sentence = ["<BOS>", "I", "like", "you", "<EOS>"]
    mask = classic.causal_mask(len(sentence) - 1)
    assert mask.int().tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]]


def test_a_causal_attention_matrix_has_no_unit_diagonal_and_loses_rank() -> None:
    """Broken: the claim of a unit diagonal, which holds before the softmax at best."""
    q, k = torch.randn(2, 128, 64, dtype=torch.float32)
    causal = classic.attention_weights(q, k, classic.causal_mask(128))
    assert causal[0, 0] == 1 and (causal.diagonal()[1:] < 1).all()
    assert torch.linalg.matrix_rank(causal) < torch.linalg.matrix_rank(classic.attention_weights(q, k)) <= 128


# Source and target, padding ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("s", "t"), [(5, 3), (3, 5), (1, 8), (8, 1), (4, 4)])
def test_source_and_target_have_lengths_of_their_own(s: int, t: int) -> None:
    """Broken: keys reshaped with the query's length, a RuntimeError (control) where the lengths differ."""
    model, src, tgt = transformer(), ids(2, s), begun(ids(2, t))
    assert logits_of(model, src, tgt).shape == (2, t, 11)
    last, loss = model(src, tgt)
    assert last.shape == (2, 1, 11) and loss is None
    torch.testing.assert_close(last, logits_of(model, src, tgt)[:, -1:])
    if s != t:
        with pytest.raises(RuntimeError):
            torch.randn(2, s, 16).view(2, t, 2, 8)


def test_content_and_amount_of_padding_change_nothing() -> None:
    """Broken: no padding mask (the control, which is told no lengths); padding in the loss; a special padding id."""
    model = transformer()
    for _ in range(count(fast=10, soak=100)):
        s, t, more_s, more_t = (int(n) for n in torch.randint(1, 6, (4,)))
        src, tgt, targets = ids(1, s), begun(ids(1, t)), ids(1, t)
        alone, loss_alone = model(src, tgt, targets)
        long_src, long_tgt = torch.cat((src, ids(1, more_s)), 1), torch.cat((tgt, ids(1, more_t)), 1)
        long_targets = torch.cat((targets, ids(1, more_t)), 1)
        lengths = {"src_lengths": torch.tensor([s]), "tgt_lengths": torch.tensor([t])}
        padded, loss_padded = model(long_src, long_tgt, long_targets, **lengths)
        torch.testing.assert_close(padded[:, :t], alone, atol=1e-12, rtol=0)
        torch.testing.assert_close(loss_padded, loss_alone, atol=1e-12, rtol=0)
        torch.testing.assert_close(model(long_src, long_tgt, **lengths)[0], alone[:, -1:], atol=1e-12, rtol=0)
        unmasked, _ = model(long_src, long_tgt, long_targets)
        assert (unmasked[:, :t] - alone).abs().max() > 1e-4


def test_a_batch_of_unequal_rows_is_each_row_alone() -> None:
    """Broken: a mean over padding too, or lengths of one row used for another."""
    model, lengths = transformer(), torch.tensor([4, 1, 6])
    src, tgt, targets = ids(3, 6), ids(3, 6), ids(3, 6)
    logits, loss = model(src, tgt, targets, lengths, lengths)
    total = 0.0
    for row, n in enumerate(lengths.tolist()):
        one = slice(row, row + 1)
        alone, mean = model(src[one, :n], tgt[one, :n], targets[one, :n])
        torch.testing.assert_close(logits[one, :n], alone, atol=1e-12, rtol=0)
        total += n * mean.item()
    assert loss is not None and abs(loss.item() - total / lengths.sum().item()) < 1e-12
    together = model.generate(src, 5, temperature=0.0, src_lengths=lengths)
    for row, n in enumerate(lengths.tolist()):
        alone = model.generate(src[row : row + 1, :n], 5, temperature=0.0)[0]
        assert together[row, : len(alone)].tolist() == alone.tolist()


@pytest.mark.parametrize("fused", [True, False])
def test_an_empty_source_gives_finite_numbers(fused: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken: softmax over nothing but -inf, which is NaN and spreads through the gradients."""
    monkeypatch.setattr(
        classic.MultiHeadAttention, "forward", by_equation(classic.MultiHeadAttention.forward, not fused)
    )
    model = transformer()
    logits, loss = model(ids(2, 4), ids(2, 3), ids(2, 3), src_lengths=torch.tensor([0, 4]))
    assert loss is not None
    loss.backward()
    assert logits.isfinite().all() and all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


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
    model(ids(64, 8), begun(ids(64, 8)))
    assert len(seen) == 2
    for x in seen:
        assert abs((x == 0).double().mean().item() - 0.5) < 0.02


def test_dropout_is_off_in_eval_and_on_in_training() -> None:
    """Broken: dropout that never acts, or acts while one generates."""
    for model in (transformer(dropout=0.3), gpt(dropout=0.3)):
        inputs = (ids(2, 6), begun(ids(2, 6)))
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


# The Transformer as a whole ------------------------------------------------------------------------------------------


def test_generation_is_forward_repeated_from_bos() -> None:
    """Broken: a start other than BOS; a last position that is not the last real one."""
    model = transformer(bos=3, eos=7)
    src = ids(1, 5)
    tgt = torch.tensor([[3]])
    for _ in range(6):
        tgt = torch.cat((tgt, model(src, tgt)[0][:, -1].argmax(-1, keepdim=True)), 1)
        if tgt[0, -1] == 7:
            break
    assert torch.equal(model.generate(src, 6, temperature=0.0), tgt[:, 1:])


def test_generation_stops_at_eos_and_encodes_once() -> None:
    """Broken: a loop that ignores EOS (the length is then always max_new_tokens), or encodes at every step."""
    model = transformer(eos=1)
    calls = {"encoder": 0, "decoder": 0}
    model.encoder.register_forward_hook(lambda *_: calls.update(encoder=calls["encoder"] + 1))
    model.decoder.register_forward_hook(lambda *_: calls.update(decoder=calls["decoder"] + 1))
    src = ids(4, 5)
    written = model.generate(src, 500, temperature=5.0)
    steps = written.size(1)
    assert calls == {"encoder": 1, "decoder": steps} and steps < 500
    ends = [row.index(1) for row in written.tolist()]
    assert max(ends) == steps - 1 and len(set(ends)) > 1  # rows end at different times; the last one ends the loop
    for row, end in zip(written.tolist(), ends, strict=True):
        assert all(token == 1 for token in row[end:])
    head = nn.Linear(16, 11)
    with torch.no_grad():
        head.bias[1] = 1e6
    model.lm_head = head
    assert model.generate(src, 500).tolist() == [[1]] * 4


def test_forward_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """Broken: shapes printed on every call."""
    transformer()(ids(2, 3), ids(2, 3), ids(2, 3))
    transformer().generate(ids(1, 3), 3)
    gpt()(ids(2, 3))
    gpt().generate(ids(1, 3), 3)
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err == ""


@pytest.mark.parametrize("bias", [True, False])
def test_parameters_are_counted_both_ways(bias: bool) -> None:
    """Broken: `non_embedding=True` is an AttributeError, since a table of sinusoids has no weight."""
    v, c, layers = 11, 16, 2
    model = transformer(vocab_size=v, n_embd=c, n_layer=layers, bias=bias)
    attention, mlp, norm = 4 * c * c + 4 * c * bias, 8 * c * c + 5 * c * bias, c + c * bias
    encoder_layer, decoder_layer = attention + mlp + 2 * norm, 2 * attention + mlp + 3 * norm
    body = layers * (encoder_layer + decoder_layer) + 2 * norm
    assert model.get_num_params() == 2 * v * c + body
    assert model.get_num_params(non_embedding=True) == v * c + body


def test_initial_weights() -> None:
    """Broken: biases that are not zero, PyTorch's own uniform start."""
    model = Transformer(Config(vocab_size=200, n_embd=64, n_layer=2))
    for name, p in model.named_parameters():
        if p.dim() == 2:
            assert abs(p.std().item() - 0.02) < 0.001, name
        else:
            assert torch.equal(p, torch.ones_like(p) if "weight" in name else torch.zeros_like(p)), name


def test_the_optimizer_decays_matrices_and_nothing_else() -> None:
    """Broken: a parameter in no group or in two; decay on biases and norms; rates that are not passed on."""
    model = transformer()
    optimizer = model.configure_optimizers(0.1, 3e-4, (0.8, 0.95), "cpu")
    decay, rest = optimizer.param_groups
    assert (decay["weight_decay"], rest["weight_decay"]) == (0.1, 0.0)
    assert all(p.dim() >= 2 for p in decay["params"]) and all(p.dim() < 2 for p in rest["params"])
    together = [id(p) for p in decay["params"] + rest["params"]]
    assert sorted(together) == sorted(id(p) for p in model.parameters())
    assert all(g["lr"] == 3e-4 and g["betas"] == (0.8, 0.95) for g in optimizer.param_groups)


def test_sampling() -> None:
    """Broken: a temperature that multiplies; a top_k that keeps ties or fails where k exceeds the vocabulary."""
    logits = torch.tensor([[0.0, 1.0, 2.0, 2.0, -1.0]]).expand(4000, -1)
    assert set(gpt_file.sample(logits, top_k=1).flatten().tolist()) in ({2}, {3})
    assert set(gpt_file.sample(logits, temperature=3.0, top_k=2).flatten().tolist()) == {2, 3}
    drawn = gpt_file.sample(logits, temperature=0.5, top_k=99).flatten().bincount(minlength=5) / 4000
    torch.testing.assert_close(drawn.double(), (logits[0] / 0.5).softmax(-1), atol=0.03, rtol=0)
    assert set(gpt_file.sample(logits, temperature=0.0).flatten().tolist()) in ({2}, {3})


# The GPT as a whole --------------------------------------------------------------------------------------------------


def test_id_zero_is_a_word_like_any_other() -> None:
    """Broken: `ignore_index=0`, which is NaN where all targets are 0 and leaves them out elsewhere."""
    tokens = ids(2, 5)
    targets = torch.zeros_like(tokens)
    for model in (gpt(), transformer()):
        logits, loss = model(tokens, targets) if isinstance(model, GPT) else model(tokens, tokens, targets)
        torch.testing.assert_close(loss, -logits.log_softmax(-1)[..., 0].mean())
    targets, model = ids(2, 5), gpt()
    logits, _ = model(tokens, targets)
    hidden = targets.clone()
    hidden[:, 3:] = IGNORE
    nll = -logits.log_softmax(-1).gather(-1, targets[..., None])[..., 0]
    torch.testing.assert_close(model(tokens, hidden)[1], nll[:, :3].mean())


@pytest.mark.parametrize("training", [False, True])
def test_attention_weights_are_handed_out_and_sum_to_one(training: bool) -> None:
    """Broken: weights after dropout (their rows no longer sum to one), weights of the last layer only."""
    model = gpt(num_layer=3, dropout=0.4).train(training)
    logits, weights = model(ids(2, 6))
    assert logits.shape == (2, 6, 11) and isinstance(weights, list) and len(weights) == 3
    for w in weights:
        assert w.shape == (2, 2, 6, 6)
        torch.testing.assert_close(w.sum(-1), torch.ones(2, 2, 6))
        assert (w.triu(1) == 0).all() and (w >= 0).all()


def test_no_pos_leaves_order_to_the_mask_alone() -> None:
    """Broken: an ignored flag. One layer without positions cannot tell in what order the earlier words came."""
    tokens = torch.tensor([[1, 2, 3, 4, 5]])
    order = torch.tensor([2, 0, 3, 1, 4])
    without, with_ = gpt(num_layer=1, no_pos=True), gpt(num_layer=1)
    assert without.word_pos_embedding is None
    torch.testing.assert_close(without(tokens)[0][:, -1], without(tokens[:, order])[0][:, -1])
    assert not torch.allclose(with_(tokens)[0][:, -1], with_(tokens[:, order])[0][:, -1])


def test_no_res_lets_nothing_pass_by() -> None:
    """Broken: an ignored flag. With its last matrix silenced a layer without residuals says the same of every input."""
    layer = gpt_file.TransformerLayer(16, 2, 40, 0.0, no_res=True)
    nn.init.zeros_(layer.ffn.fc2.weight)
    out, _ = layer(torch.randn(2, 5, 16))
    assert torch.equal(out, layer.ffn.fc2.bias.expand_as(out))
    assert not torch.allclose(gpt(no_res=True)(ids(1, 4))[0], gpt()(ids(1, 4))[0])


def test_generation_is_cropped_to_the_positions() -> None:
    """Broken: generation that overruns the position table; a crop that keeps the beginning instead of the end."""
    model, prompt, read = gpt(), ids(2, 3), []
    model.register_forward_pre_hook(lambda _, inputs: read.append(inputs[0]))
    written = model.generate(prompt, 20, temperature=5.0)
    assert written.shape == (2, 23) and torch.equal(written[:, :3], prompt) and len(read) == 20
    for end, window in enumerate(read, 3):
        assert torch.equal(window, written[:, max(0, end - 8) : end])
    greedy = model.generate(prompt, 4, temperature=0.0)
    for end in range(3, 7):
        assert torch.equal(model(greedy[:, :end])[0][:, -1].argmax(-1), greedy[:, end])
    with pytest.raises(ValueError, match="9 tokens are more than the 8 positions"):
        model(ids(1, 9))


def test_gpt_generation_can_stop_at_eos() -> None:
    """Broken: a row that goes on after its end, or ends the others; an EOS assumed where none was named."""
    model = gpt()
    written = model.generate(ids(4, 2), 500, temperature=5.0, eos=7)[:, 2:].tolist()
    ends = [row.index(7) for row in written]
    assert max(ends) == len(written[0]) - 1 < 499 and len(set(ends)) > 1
    assert all(set(row[end:]) == {7} for row, end in zip(written, ends, strict=True))
    assert model.generate(ids(4, 2), 100, temperature=5.0).shape == (4, 102)


def test_scaled_initialisation_includes_the_second_matrix_of_the_mlp() -> None:
    """Broken: only the attention's output is divided by sqrt(2 num_layer)."""
    model = GPT(300, 64, num_layer=8, embed_dim=64, num_head=4, feedforward_dim=256, dropout=0.0)
    scaled = 0
    for name, p in model.named_parameters():
        writes = name.endswith(("proj_layer.weight", "ffn.fc2.weight"))
        scaled += writes
        if p.dim() == 2:
            expected = 0.02 / math.sqrt(16) if writes else 0.02
            assert abs(p.std().item() / expected - 1) < 0.06, name
    assert scaled == 16


def test_the_output_is_tied_to_the_embedding() -> None:
    """Broken: two tables where one is meant."""
    model = gpt()
    assert model.language_model_head.weight is model.word_token_embedding.weight
    assert sum("lm_head" in name for name, _ in model.named_parameters()) == 0


@pytest.mark.parametrize("no_pos", [False, True])
def test_gpt_groups_decay_linear_weights_only(no_pos: bool) -> None:
    """Broken: the tied table in both groups (as output it is a Linear weight), decay on embeddings, norms, biases."""
    model = gpt(no_pos=no_pos)
    decay, rest = model.configure_optimizers(0.3)
    assert (decay["weight_decay"], rest["weight_decay"]) == (0.3, 0.0)
    names = {id(p): name for name, p in model.named_parameters()}
    assert sorted(id(p) for p in decay["params"] + rest["params"]) == sorted(names)
    ours = {names[id(p)] for p in decay["params"]}
    layers = ("q_layer", "k_layer", "v_layer", "proj_layer")
    parts = (*(f"attention.{layer}" for layer in layers), "ffn.fc1", "ffn.fc2")
    assert ours == {f"transformer.{i}.{part}.weight" for i in range(2) for part in parts}
    torch.optim.AdamW([decay, rest]).step()


# The file ------------------------------------------------------------------------------------------------------------


def test_it_imports_torch_and_the_standard_library_alone() -> None:
    """Broken: an import of another room, after which the file no longer runs by itself."""
    for file in FILES:
        imported = set()
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                imported |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                imported.add((node.module or "").split(".")[0])
        assert imported - set(sys.stdlib_module_names) == {"torch"}
        assert len(file.read_text(encoding="utf-8").splitlines()) <= 350


@pytest.mark.slow
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_it_runs_by_itself_and_learns(file: Path, tmp_path: Path) -> None:
    """Broken: a toy that does not learn, or takes minutes. The file is copied away, so that it has no neighbours."""
    alone = tmp_path / "alone.py"
    alone.write_text(file.read_text(encoding="utf-8"), encoding="utf-8")
    before = os.times()
    done = subprocess.run(
        [sys.executable, str(alone)], cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False
    )
    after = os.times()
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    if file.stem == "transformer":
        right = next(line for line in done.stdout.splitlines() if "unseen numbers" in line)
        assert float(right.split("%")[0]) > 95, done.stdout
    else:
        poem = [line.removeprefix("  | ") for line in done.stdout.splitlines() if line.startswith("  | ")]
        assert difflib.SequenceMatcher(None, "\n".join(poem), gpt_file.POEM.strip()).ratio() > 0.95, done.stdout
    assert "(1, 4, 16, 16)" in done.stdout or "(265, 7, 64)" in done.stdout  # shapes on the way
    assert done.stdout.splitlines()[-1].startswith("try next")
    # Processor time, not the clock: the machine that runs the tests may be busy with others.
    assert after.children_user + after.children_system - before.children_user - before.children_system < 40


# The package's own models --------------------------------------------------------------------------------------------

ATTENTION = {"c_attns.0": "query", "c_attns.1": "key", "c_attns.2": "value", "c_proj": "out"}
ENCODER = {"ln_1": "attention_norm", "ln_2": "mlp_norm", "mlp.c_fc": "mlp.up", "mlp.c_proj": "mlp.down"}
ENCODER |= {f"attn.{a}": f"attention.{b}" for a, b in ATTENTION.items()}
DECODER = {"ln_1": "attention_norm", "ln_2": "cross_norm", "ln_3": "mlp_norm"}
DECODER |= {"mlp.c_fc": "mlp.up", "mlp.c_proj": "mlp.down"}
DECODER |= {f"m_attn.{a}": f"attention.{b}" for a, b in ATTENTION.items()}
DECODER |= {f"attn.{a}": f"cross.{b}" for a, b in ATTENTION.items()}
GPT_LAYER = {"norm1": "attention_norm", "norm2": "mlp_norm", "ffn.fc1": "mlp.up", "ffn.fc2": "mlp.down"}
GPT_LAYER |= {"attention.q_layer": "attention.query", "attention.k_layer": "attention.key"}
GPT_LAYER |= {"attention.v_layer": "attention.value", "attention.proj_layer": "attention.out"}


def package_names(n_layer: int) -> dict[str, str]:
    names = {"wte": "embedding", "encoder.norm": "encoder.norm", "decoder.norm": "decoder.norm"}
    for i in range(n_layer):
        names |= {f"encoder.layers.{i}.{a}": f"encoder.{i}.{b}" for a, b in ENCODER.items()}
        names |= {f"decoder.layers.{i}.{a}": f"decoder.{i}.{b}" for a, b in DECODER.items()}
    return {"lm_head": "output", **{f"transformer.{ours}": theirs for ours, theirs in names.items()}}


def copy_weights(ours: nn.Module, package: nn.Module, names: dict[str, str]) -> None:
    """Every parameter of one is a parameter of the other; strict, so that none is forgotten."""
    state = {}
    for name, p in ours.named_parameters():
        part, _, leaf = name.rpartition(".")
        state[f"{names[part]}.{leaf}"] = p.detach().clone()
    assert len(state) == len(list(ours.named_parameters()))
    package.load_state_dict(state, strict=True)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("scale_embeddings", [True, False])
@pytest.mark.parametrize("tied", [True, False])
def test_the_package_transformer_gives_the_same_logits(bias: bool, scale_embeddings: bool, tied: bool) -> None:
    """Broken: any difference between the readable twin and the package: norm, mask, positions, scale, padding, loss."""
    from glassformer.config import ModelConfig
    from glassformer.models.transformer import Transformer as PackageTransformer
    from glassformer.nn.rows import Rows

    ours = transformer(bias=bias, scale_embeddings=scale_embeddings)
    if tied:
        ours.lm_head.weight = ours.wte.weight
    settings: dict = {"vocab_size": 11, "block_size": 8, "n_layer": 2, "n_head": 2, "n_embd": 16, "dropout": 0.0}
    settings |= {"bias": bias, "scale_embeddings": scale_embeddings, "tie_output": tied}
    package = PackageTransformer(ModelConfig(**settings)).eval()
    copy_weights(ours, package, package_names(2))

    src, tgt, targets = ids(3, 6), ids(3, 9), ids(3, 9)
    s, t = [6, 2, 4], [5, 9, 1]
    logits, loss = ours(src, tgt, targets, torch.tensor(s), torch.tensor(t))
    rows = Rows.padded(src, s), Rows.padded(tgt, t)
    for row, n in enumerate(t):
        torch.testing.assert_close(package(*rows)[row, :n], logits[row, :n], atol=1e-12, rtol=0)
    labels = targets.masked_fill(~classic.real_tokens(t, targets), IGNORE)
    assert loss is not None
    torch.testing.assert_close(package.loss(*rows, labels) / sum(t), loss, atol=1e-12, rtol=0)
    assert package.num_params() == ours.get_num_params()
    assert package.num_params(non_embedding=True) == ours.get_num_params(non_embedding=True)


@pytest.mark.parametrize(("no_pos", "no_res"), [(False, False), (True, False), (False, True)])
def test_the_package_gpt_gives_the_same_logits(no_pos: bool, no_res: bool) -> None:
    """Broken: any difference between the readable twin and the package, cached generation included."""
    from glassformer.config import ModelConfig
    from glassformer.models.gpt import GPT as PackageGPT
    from glassformer.nn.rows import Rows

    ours = gpt(no_pos=no_pos, no_res=no_res)
    settings: dict = {"family": "gpt", "vocab_size": 11, "block_size": 8, "n_layer": 2, "n_head": 2, "n_embd": 16}
    settings |= {
        "n_hidden": 40,
        "dropout": 0.0,
        "activation": "gelu_tanh",
        "tie_output": True,
        "scale_embeddings": False,
    }
    settings |= {"positions": "none" if no_pos else "learned", "residual": not no_res}
    package = PackageGPT(ModelConfig(**settings)).eval()
    names = {"word_token_embedding": "embedding", "word_pos_embedding": "positions", "norm": "decoder.norm"}
    for i in range(2):
        names |= {f"transformer.{i}.{a}": f"decoder.{i}.{b}" for a, b in GPT_LAYER.items()}
    copy_weights(ours, package, names)

    tokens = ids(3, 8)
    torch.testing.assert_close(package(Rows.whole(tokens)), ours(tokens)[0], atol=1e-12, rtol=0)
    lengths, targets = [3, 8, 5], ids(3, 8)
    labels = targets.masked_fill(~classic.real_tokens(lengths, targets), IGNORE)
    loss = package.loss(Rows.padded(tokens, lengths), labels) / sum(lengths)
    torch.testing.assert_close(loss, ours(tokens, labels)[1], atol=1e-12, rtol=0)
    state = package.start(3, 8)
    stepped = torch.cat([package.step(tokens[:, i : i + 1], state) for i in range(8)], dim=1)
    torch.testing.assert_close(stepped, ours(tokens)[0], atol=1e-10, rtol=0)
