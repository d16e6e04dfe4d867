"""The laws of training: what a step is, whatever the layout of its batches. In float64 where numbers are compared."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from glassformer.accel.output_loss import LossBackend
from glassformer.config import DataConfig, ModelConfig
from glassformer.data.batches import Batches, make_batches
from glassformer.data.tokens import TokenFile
from glassformer.nn.loss import IGNORE, linear_cross_entropy
from glassformer.text.tokenizer import CONTROL
from tests.trainers import (
    SMALL,
    TASKS,
    WORDS,
    Given,
    assert_close,
    batches_of,
    gradient,
    lines,
    make_trainer,
    reports,
    weights,
)

pytestmark = pytest.mark.slow

# Accumulation -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_accumulation_is_the_full_batch(task: str, smoothing: float) -> None:
    """However ragged the parts, one of them without a single label. Broken variant: the mean of the means, which this test
    makes sure would be far off."""
    batches = batches_of(task)
    ids = np.arange(40)
    cuts = [0, 1, 4, 23, 23, 40]
    whole = batches.batch_of(ids, None)
    parts = [batches.batch_of(ids[a:b], None) for a, b in itertools.pairwise(cuts)]
    assert parts[3].target_tokens == 0
    trainer = make_trainer(TASKS[task][0], batches, label_smoothing=smoothing)
    loss, full = gradient(trainer, [whole])
    same_loss, accumulated = gradient(trainer, parts)
    assert abs(loss - same_loss) <= 1e-10
    assert_close(full, accumulated, 1e-10)
    means = [gradient(trainer, [part])[0] for part in parts if part.target_tokens]
    assert abs(torch.stack(means).mean() - loss) > 1e-4, "else this test could not fail"


def all_batches(task: str, layout: str) -> tuple[ModelConfig, Batches]:
    """As `make_session` makes them, of ragged lengths, for a few steps an epoch."""
    if task not in ("text", "documents"):
        return TASKS[task][0], batches_of(task, 120, layout=layout, budget=480)
    model, text = replace(SMALL, family="gpt", block_size=12), TokenFile.of(lines(60, 2), WORDS)
    config = DataConfig(task="text", batch_tokens=120, respect_documents=task == "documents")
    return model, make_batches(config, "gpt", "mlm", {"text": text}, 12, 1, layout=layout)


@pytest.mark.parametrize("layout", ["padded", "packed"])
@pytest.mark.parametrize("task", [*TASKS, "text", "documents"])
def test_steps_in_pieces_are_steps_of_the_whole(task: str, layout: str) -> None:
    """The very batches of a training without pieces, through clipping, optimizer, schedule and average, over the end of an epoch.
    (eps: the gradient of a key bias is nothing but rounding, which AdamW would blow up.) Broken variants: batches planned anew
    for a smaller budget; pieces that lose a row."""
    runs = []
    for accumulate in (1, 3, 50):
        model, batches = all_batches(task, layout)
        trainer = make_trainer(model, batches, accumulate=accumulate, clip=0.5, ema=0.9, eps=1e-4)
        for _ in range(7):
            trainer.step()
        runs.append((weights(trainer), trainer.ema, reports(trainer), trainer.progress.position))
    assert runs[0][3].epoch > 0 and batches.epoch_length() > 1, "else nothing was cut, or no epoch ended"
    for found in runs[1:]:
        assert_close(runs[0][0], found[0], 1e-12)
        assert_close(runs[0][1], found[1], 1e-12)
        assert found[3] == runs[0][3]
        for one, other in zip(runs[0][2], found[2], strict=True):
            assert one.loss == pytest.approx(other.loss, abs=1e-12)
            assert (one.tokens, one.rate) == (other.tokens, other.rate)


# What is ignored --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", ["eager", "for the compiler"])
def test_ignored_positions_contribute_exactly_zero(loss: str) -> None:
    """Not nearly: the gradient at an ignored position is zero in every bit, and the loss is that of the others alone, even
    where an ignored position holds an infinity. Broken variant: multiplying by a mask, where 0 * inf is not 0."""
    torch.manual_seed(0)
    x = torch.randn(3, 8, 16, dtype=torch.float64)
    table = torch.randn(WORDS, 16, dtype=torch.float64)
    labels = torch.randint(0, WORDS, (3, 8))
    ignored = torch.rand(3, 8) < 0.5
    labels[ignored] = IGNORE

    def run(x: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, w = x.clone().requires_grad_(), table.clone().requires_grad_()
        if loss == "eager":
            total = linear_cross_entropy(x, w, labels, smoothing=0.1)
        else:
            total = LossBackend().padded_cross_entropy(x, w, labels, None, 0.1)
        total.backward()
        return total.detach(), x.grad, w.grad

    total, grad_x, grad_w = run(x, labels)
    assert (grad_x[ignored] == 0).all() and (grad_x[~ignored] != 0).any(dim=-1).all()
    alone = run(x[~ignored][None], labels[~ignored][None])
    assert total == pytest.approx(float(alone[0]), abs=1e-12)
    torch.testing.assert_close(grad_w, alone[2], rtol=0, atol=1e-12)
    if loss == "eager":
        wild = x.clone()
        wild[ignored] = torch.inf
        again = run(wild, labels)
        assert torch.equal(again[0], total) and torch.equal(again[2], grad_w) and (again[1][ignored] == 0).all()


@pytest.mark.parametrize("task", TASKS)
def test_what_stands_in_the_padding_changes_no_bit(task: str) -> None:
    """Of loss and gradients. Broken variants: padding told by the token; a norm or a mean over padded positions."""
    batch = batches_of(task).batch_of(np.arange(40), None)
    trainer = make_trainer(TASKS[task][0], Given([batch]))

    def scribbled(rows: Any) -> Any:
        noise = torch.randint(CONTROL, WORDS, rows.tokens.shape)
        return replace(rows, tokens=torch.where(rows.real, rows.tokens, noise))

    source = scribbled(batch.source) if batch.source is not None else None
    other = replace(batch, source=source, rows=scribbled(batch.rows))
    assert not torch.equal(other.rows.tokens, batch.rows.tokens)
    (loss, plain), (same_loss, noisy) = gradient(trainer, [batch]), gradient(trainer, [other])
    assert torch.equal(loss, same_loss)
    assert all(torch.equal(plain[n], noisy[n]) for n in plain)


def test_a_batch_without_labels_adds_nothing() -> None:
    """Neither to the loss nor to the gradient: both are the same, bit for bit."""
    batches = batches_of("transformer")
    batch = batches.batch_of(np.arange(20), None)
    blank = replace(batch, labels=torch.full_like(batch.labels, IGNORE), target_tokens=0)
    trainer = make_trainer(SMALL, Given([batch]))
    (loss, alone), (same_loss, beside) = gradient(trainer, [batch]), gradient(trainer, [batch, blank])
    assert torch.equal(loss, same_loss)
    assert all(torch.equal(alone[n], beside[n]) for n in alone)


# Label smoothing --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.4])
def test_label_smoothing_is_the_closed_form(smoothing: float) -> None:
    """Of a whole batch, from the model's own scores. Broken variants: smoothing shared among the other words only;
    s / (V - 1); the summed loss divided too early."""
    batch = batches_of("transformer").batch_of(np.arange(30), None)
    trainer = make_trainer(SMALL, Given([batch]), label_smoothing=smoothing)
    with torch.no_grad():
        scores = trainer.model(batch.source, batch.rows).numpy()
    expected = 0.0
    for row, places in enumerate(batch.labels.tolist()):
        for place, label in enumerate(places):
            if label == IGNORE:
                continue
            shifted = scores[row, place] - scores[row, place].max()
            log_p = shifted - np.log(np.exp(shifted).sum())
            target = np.full(WORDS, smoothing / WORDS)
            target[label] += 1 - smoothing
            expected -= float((target * log_p).sum())
    trainer.step()
    assert reports(trainer)[0].loss == pytest.approx(expected / batch.target_tokens, abs=1e-10)


def test_the_least_smoothed_loss_is_the_entropy_of_its_target() -> None:
    """A model that says exactly the smoothed target loses as much as that target's entropy, and its gradient is zero."""
    smoothing, words = 0.1, 7
    target = torch.full((words,), smoothing / words, dtype=torch.float64)
    target[3] += 1 - smoothing
    scores = target.log()[None, None].requires_grad_()
    loss = linear_cross_entropy(scores, torch.eye(words, dtype=torch.float64), torch.tensor([[3]]), smoothing=smoothing)
    loss.backward()
    entropy = -sum(t * math.log(t) for t in target.tolist())
    assert float(loss.detach()) == pytest.approx(entropy, abs=1e-12)
    assert scores.grad.abs().max() < 1e-12


# Layouts ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", TASKS)
def test_packed_training_is_unpacked_training(task: str) -> None:
    """Two trainings on the same sentences in each step, once several to a row, once one to a row: the same losses and
    weights all the way. Broken variants: attention across sentences of a row; positions that go on counting; a class read
    off the row's first token instead of the sentence's."""
    shape = TASKS[task][0]
    packed = batches_of(task, 60, layout="packed")
    padded = batches_of(task, 60, layout="padded")
    plan = packed.planned(0)
    laid = [plan.build(k) for k in range(len(plan))]
    assert all(b.rows.layout == "packed" and b.rows.segments.max() > 1 for b in laid) and len(laid) > 2
    unpacked = [padded.batch_of(np.array(b.examples), None) for b in laid]
    assert all(b.rows.layout in ("padded", "whole") for b in unpacked)
    runs = []
    for given in (laid, unpacked):
        trainer = make_trainer(shape, Given(given), label_smoothing=0.1)
        for _ in range(12):
            trainer.step()
        runs.append(trainer)
    for one, other in zip(reports(runs[0]), reports(runs[1]), strict=True):
        assert abs(one.loss - other.loss) <= 1e-8 and one.tokens == other.tokens
    assert_close(weights(runs[0]), weights(runs[1]), 1e-7)
    begun = weights(make_trainer(shape, packed))
    assert all((begun[n] - w).abs().max() > 1e-3 for n, w in weights(runs[0]).items() if "key.bias" not in n), (
        "it moved"
    )


@pytest.mark.parametrize("task", ["transformer", "gpt prompt and answer", "bert classify"])
def test_activation_checkpointing_changes_no_loss(task: str) -> None:
    """With dropout on, so that the second forward pass must drop the same. Broken variant: fresh random numbers in it."""
    shape = replace(TASKS[task][0], dropout=0.2)
    batches = batches_of(task)
    runs = []
    for on in (False, True):
        trainer = make_trainer(shape, batches, checkpoint_activations=on)
        kept = 0

        def pack(tensor: Tensor) -> Tensor:
            nonlocal kept
            kept += tensor.numel()
            return tensor

        torch.manual_seed(7)
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
            for _ in range(4):
                trainer.step()
        runs.append(([r.loss for r in reports(trainer)], weights(trainer), kept))
    assert runs[0][0] == runs[1][0]
    assert all(torch.equal(runs[0][1][n], runs[1][1][n]) for n in runs[0][1])
    assert runs[1][2] < 0.6 * runs[0][2], "fewer activations are kept, else nothing was traded"
