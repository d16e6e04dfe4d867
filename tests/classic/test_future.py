"""The files that stand alone: what the future, other lengths and padding must not change.

Where it is cheap, the mistaken variant of the circulating tutorials is run beside the right one, so that each test is seen
to be able to fail."""

from __future__ import annotations

import math

import pytest
import torch

from glassformer.classic import transformer as classic
from glassformer.classic.transformer import Config, Transformer
from tests.classic.models import begun, by_equation, gpt, ids, logits_of, transformer
from tests.counts import count

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
    v, length, steps = 6, 6, count(fast=80, soak=1000)

    def last_losses(leak: bool) -> float:
        torch.manual_seed(1)
        model = Transformer(Config(vocab_size=v, block_size=8, n_layer=1, n_head=2, n_embd=64))
        optimizer = model.configure_optimizers(0.0, 5e-3, (0.9, 0.98), "cpu")
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
        return sum(losses[-20:]) / 20

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
    last, loss = model(src, tgt, None)
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
