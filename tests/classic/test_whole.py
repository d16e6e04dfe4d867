"""The Transformer and the GPT as a whole: generating, counting, first weights, the groups of the optimizer."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from glassformer.classic import gpt as gpt_file
from glassformer.classic.gpt import GPT
from glassformer.classic.transformer import Config, Transformer
from tests.classic.models import IGNORE, gpt, ids, transformer

# The Transformer as a whole ------------------------------------------------------------------------------------------


def test_generation_is_forward_repeated_from_bos() -> None:
    """Broken: a start other than BOS; a last position that is not the last real one."""
    model = transformer(bos=3, eos=7)
    src = ids(1, 5)
    tgt = torch.tensor([[3]])
    for _ in range(6):
        tgt = torch.cat((tgt, model(src, tgt, None)[0][:, -1].argmax(-1, keepdim=True)), 1)
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
