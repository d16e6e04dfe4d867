"""The laws of training: what a step is, whatever the layout of its batches. In float64 where numbers are compared."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from glassformer.accel.output_loss import LossBackend
from glassformer.config import DataConfig, ModelConfig, TrainConfig
from glassformer.data.batches import Batch, Batches, Plan, SentenceBatches, examples_for, make_batches
from glassformer.data.tokens import TokenFile
from glassformer.evaluate import batch_loss
from glassformer.models import build_model
from glassformer.nn.loss import IGNORE, linear_cross_entropy
from glassformer.screen import duration
from glassformer.text.tokenizer import CONTROL
from glassformer.train.optim import make_optimizers
from glassformer.train.schedules import schedule
from glassformer.train.screen import Screen
from glassformer.train.trainer import NotFinite, StepReport, Trainer

WORDS = 31
CPU = torch.device("cpu")
SMALL = ModelConfig(vocab_size=WORDS, block_size=64, n_layer=2, n_head=2, n_embd=16, n_hidden=32, dropout=0.0)
TASKS: dict[str, tuple[ModelConfig, DataConfig]] = {
    "transformer": (SMALL, DataConfig()),
    "gpt prompt and answer": (replace(SMALL, family="gpt"), DataConfig(prompt_answer=True)),
    "bert classify": (replace(SMALL, family="bert", head="classify", n_label=4), DataConfig(task="classify")),
    "bert tag": (replace(SMALL, family="bert", head="tag", n_label=4), DataConfig(task="tag")),
}


def lines(n: int, seed: int, longest: int = 17) -> list[list[int]]:
    """Ragged: some are empty, some are long."""
    draw = random.Random(seed)
    return [[draw.randrange(CONTROL, WORDS) for _ in range(draw.randint(0, longest))] for _ in range(n)]


def files_of(data: DataConfig, n: int, seed: int = 0) -> dict[str, Any]:
    text = lines(n, seed)
    if data.task == "pairs":
        return {"source": TokenFile.of(text, WORDS), "target": TokenFile.of(lines(n, seed + 1), WORDS)}
    if data.task == "classify":
        return {"text": TokenFile.of(text, WORDS), "labels": np.array([len(line) % 4 for line in text])}
    tags = [[t % 4 if place % 3 else IGNORE for place, t in enumerate(line)] for line in text]
    return {"text": TokenFile.of(text, WORDS), "labels": TokenFile.of(tags)}


def batches_of(task: str, n: int = 40, *, layout: str = "padded", budget: int = 120, seed: int = 1) -> SentenceBatches:
    model, data = TASKS[task]
    examples = examples_for(data, model.family, model.head, files_of(data, n))
    return SentenceBatches(examples, budget=budget, limit=64, layout=layout, row_width=48, seed=seed)


@dataclass(frozen=True)
class Listing(Plan):
    made: tuple[Batch, ...]

    def __len__(self) -> int:
        return len(self.made)

    def build(self, number: int) -> Batch:
        return self.made[number]


class Given(Batches):
    """These batches in this order, again and again."""

    def __init__(self, made: Iterable[Batch]) -> None:
        super().__init__(seed=0)
        self.made = tuple(made)

    def plan(self, epoch: int) -> Plan:
        return Listing(self.made)

    def in_order(self, budget: int | None = None, *, limit: int | None = None) -> Iterator[Batch]:
        yield from self.made


class Notes:
    """Keeps what the trainer tells."""

    def __init__(self) -> None:
        self.reports: list[StepReport] = []
        self.messages: list[str] = []

    def on_log(self, report: StepReport) -> None:
        self.reports.append(report)

    def on_message(self, text: str) -> None:
        self.messages.append(text)


def make_trainer(
    shape: ModelConfig, batches: Batches, *, dtype: torch.dtype = torch.float64, **settings: Any
) -> Trainer:
    config = TrainConfig(**{"steps": 50, "log_every": 1, "warmup": 2, "learning_rate": 1e-2, **settings})
    torch.manual_seed(3)
    model = build_model(shape).to(dtype)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p), alpha=0.05)  # no parameter is at a special value
    if config.checkpoint_activations:
        model.checkpoint_activations()
    return Trainer(
        model,
        lambda batch: batch_loss(model, batch, config.label_smoothing),
        batches,
        make_optimizers(model, config),
        schedule(config, shape.n_embd),
        config,
        watchers=[Notes()],
        device=CPU,
    )


def reports(trainer: Trainer) -> list[StepReport]:
    return trainer.watchers[0].reports  # type: ignore[attr-defined]


def weights(trainer: Trainer) -> dict[str, Tensor]:
    return {n: p.detach().clone() for n, p in trainer.model.named_parameters()}


def gradient(trainer: Trainer, micro: list[Batch]) -> tuple[Tensor, dict[str, Tensor]]:
    """Loss a token and the gradients a step would use."""
    trainer.model.zero_grad()
    total = sum(b.target_tokens for b in micro)
    summed = trainer.gradients(micro, total)
    named = trainer.model.named_parameters()
    return summed / total, {n: p.grad.clone() for n, p in named if p.grad is not None}


def assert_close(one: dict[str, Tensor], other: dict[str, Tensor], most: float) -> None:
    assert one.keys() == other.keys()
    for name in one:
        assert (one[name] - other[name]).abs().max() <= most, name


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


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_steps_of_parts_are_steps_of_the_whole(optimizer: str) -> None:
    """The same through clipping, optimizer and schedule, for several steps. Muon iterates in float32, hence its bound."""
    batches = batches_of("transformer")
    ids = np.arange(40)
    thirds = [batches.batch_of(part, None) for part in (ids[:5], ids[5:11], ids[11:40])]
    runs = []
    for given, accumulate in (([batches.batch_of(ids, None)], 1), (thirds, 3)):
        trainer = make_trainer(SMALL, Given(given), accumulate=accumulate, clip=0.5, optimizer=optimizer, ema=0.9)
        for _ in range(5):
            trainer.step()
        runs.append((weights(trainer), trainer.ema, reports(trainer)))
    assert_close(runs[0][0], runs[1][0], 1e-10 if optimizer == "adamw" else 1e-5)
    assert_close(runs[0][1], runs[1][1], 1e-10 if optimizer == "adamw" else 1e-5)
    for one, other in zip(runs[0][2], runs[1][2], strict=True):
        assert one.loss == pytest.approx(other.loss, abs=1e-10 if optimizer == "adamw" else 1e-5)
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
            total = LossBackend().on_padded_table(x, w, labels, None, 0.1)
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
        return rows.with_tokens(torch.where(rows.real, rows.tokens, noise))

    source = scribbled(batch.source) if batch.source is not None else None
    other = replace(batch, source=source, rows=scribbled(batch.rows))
    assert not torch.equal(other.rows.tokens, batch.rows.tokens)
    (loss, plain), (same_loss, noisy) = gradient(trainer, [batch]), gradient(trainer, [other])
    assert torch.equal(loss, same_loss)
    assert all(torch.equal(plain[n], noisy[n]) for n in plain)


def test_a_batch_without_labels_adds_nothing() -> None:
    """Neither to the gradient nor to the count of tokens: the step is the same, bit for bit."""
    batches = batches_of("transformer")
    batch = batches.batch_of(np.arange(20), None)
    blank = replace(batch, labels=torch.full_like(batch.labels, IGNORE), target_tokens=0)
    runs = []
    for given in ([batch], [batch, blank]):
        trainer = make_trainer(SMALL, Given(given), accumulate=len(given))
        trainer.step()
        runs.append((weights(trainer), trainer.progress.tokens))
    assert runs[0][1] == runs[1][1] == batch.target_tokens
    assert all(torch.equal(runs[0][0][n], runs[1][0][n]) for n in runs[0][0])


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


# The moving parts of a step ---------------------------------------------------------------------------------------------


def test_the_moving_average_is_its_closed_form() -> None:
    """e_t = d^t w_0 + (1 - d) sum_i d^(t-i) w_i. Broken variants: d and 1 - d exchanged; averaging before the step; zeros
    at the beginning."""
    trainer = make_trainer(SMALL, batches_of("transformer"), ema=0.8)
    history = [weights(trainer)]
    for _ in range(6):
        trainer.step()
        history.append(weights(trainer))
    assert trainer.ema is not None
    for name, average in trainer.ema.items():
        expected = 0.8**6 * history[0][name]
        for i in range(1, 7):
            expected = expected + 0.2 * 0.8 ** (6 - i) * history[i][name]
        torch.testing.assert_close(average, expected, rtol=1e-6, atol=1e-8)
    assert trainer.served_tensors() is trainer.ema


@pytest.mark.parametrize("clip", [0.01, 1e6, None])
def test_clipping_scales_the_whole_gradient(clip: float | None) -> None:
    """To the norm asked for, and only where it is longer. Broken variant: each parameter clipped by itself."""
    batch = batches_of("transformer").batch_of(np.arange(40), None)
    trainer = make_trainer(SMALL, Given([batch]), clip=clip)
    _, plain = gradient(trainer, [batch])
    trainer.model.zero_grad()
    used: dict[str, Tensor] = {}

    def look(*_: Any) -> None:
        used.update({n: p.grad.clone() for n, p in trainer.model.named_parameters()})

    trainer.optimizers[0].register_step_pre_hook(look)
    trainer.step()
    norm = math.sqrt(sum(float((g**2).sum()) for g in plain.values()))
    share = 1.0 if clip is None else min(1.0, clip / norm)
    for name, g in plain.items():
        torch.testing.assert_close(used[name], g * share, rtol=1e-4, atol=1e-12)
    assert reports(trainer)[0].norm == pytest.approx(norm, rel=1e-9), "what is logged is the norm before clipping"


@pytest.mark.parametrize("name", ["noam", "cosine", "wsd", "constant"])
def test_the_rate_of_each_step_reaches_each_optimizer(name: str) -> None:
    """AdamW's is the schedule's; Muon's stands to it as their settings do. Broken variants: the rate of the step before;
    one optimizer forgotten."""
    settings = {"schedule": name, "optimizer": "muon", "learning_rate": 2e-3, "muon_learning_rate": 0.01, "warmup": 3}
    trainer = make_trainer(SMALL, batches_of("transformer"), **settings)
    rate = schedule(trainer.config, SMALL.n_embd)
    for step in range(1, 6):
        trainer.step()
        adamw, muon = trainer.optimizers
        assert all(g["lr"] == pytest.approx(rate(step), rel=1e-12) for g in adamw.param_groups)
        assert all(g["lr"] == pytest.approx(5 * rate(step), rel=1e-12) for g in muon.param_groups)
        assert reports(trainer)[-1].rate == rate(step)


def test_the_log_is_the_mean_over_the_tokens_since_the_last_line() -> None:
    """Broken variant: the mean of the steps' losses, which counts a short batch as much as a long one."""
    batches = batches_of("transformer")
    given = [batches.batch_of(ids, None) for ids in (np.arange(3), np.arange(3, 30), np.arange(30, 40))]
    each = make_trainer(SMALL, Given(given))
    some = make_trainer(SMALL, Given(given), log_every=3)
    for _ in range(6):
        each.step()
        some.step()
    tokens = [b.target_tokens for b in given]
    assert len(reports(some)) == 2 and len(reports(each)) == 6
    for k, line in enumerate(reports(some)):
        losses = [r.loss for r in reports(each)[3 * k : 3 * k + 3]]
        assert line.loss == pytest.approx(np.average(losses, weights=tokens), abs=1e-12)
        assert line.tokens == (k + 1) * sum(tokens) and line.step == 3 * (k + 1)


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_a_step_that_is_not_finite_changes_no_bit(optimizer: str) -> None:
    """Neither weights nor moments nor the moving average; after so many in a row the run ends with a sentence."""
    batches = batches_of("transformer")
    trainer = make_trainer(SMALL, batches, optimizer=optimizer, ema=0.9, bad_steps=3, weight_decay=0.1)
    trainer.step()
    plain = trainer.loss
    trainer.loss = lambda batch: plain(batch) * float("nan")

    def everything() -> dict[str, Tensor]:
        found = {f"{group}/{n}": t for group, part in trainer.tensors().items() for n, t in part.items()}
        return {n: t.clone() for n, t in found.items() if not n.startswith("training/random")}

    before = everything()
    for _ in range(2):
        trainer.step()
    after = everything()
    assert before.keys() == after.keys() and all(torch.equal(before[n], after[n]) for n in before)
    with pytest.raises(NotFinite, match=r"3 steps in a row .* lower train.learning_rate"):
        trainer.step()
    notes = trainer.watchers[0]
    assert len(notes.messages) == 3 and "the loss is not finite; the step is skipped" in notes.messages[0]
    trainer.loss = plain
    trainer.step()
    assert trainer.progress.bad_steps == 0 and math.isfinite(reports(trainer)[-1].loss)


def test_the_autocast_of_the_settings_is_the_autocast_of_the_loss() -> None:
    """bfloat16 is built for CUDA; here one tiny step shows that the path stands and keeps its weights in float32."""
    batch = batches_of("transformer", 4).batch_of(np.arange(4), None)
    trainer = make_trainer(replace(SMALL, n_layer=1, n_embd=8, n_hidden=8), Given([batch]), dtype=torch.float32)
    trainer.autocast = torch.bfloat16
    seen = []
    trainer.model.encoder.register_forward_hook(lambda *_: seen.append(torch.is_autocast_enabled("cpu")))
    trainer.step()
    assert seen == [True] and not torch.is_autocast_enabled("cpu")
    assert all(p.dtype == torch.float32 for p in trainer.model.parameters())
    assert math.isfinite(reports(trainer)[0].loss)


def test_text_trains_in_both_families() -> None:
    """A GPT and a masked model on blocks of a text that can be learned: the loss falls below that of guessing by
    frequency, so the other words of the block are of use."""
    text = TokenFile.of([[CONTROL + i // 50 % 12 for i in range(1200)]], WORDS)
    for family in ("gpt", "bert"):
        shape = replace(SMALL, family=family, block_size=16)
        data = DataConfig(task="text", batch_tokens=160, mask_fraction=0.3)
        batches = make_batches(data, family, "mlm", {"text": text}, 16, 1, layout="padded")
        trainer = make_trainer(shape, batches, dtype=torch.float32)
        for _ in range(50):
            trainer.step()
        losses = [r.loss for r in reports(trainer)]
        assert losses[0] > 2.5 and losses[-1] < math.log(12) - 0.15, (family, losses[0], losses[-1])


# The screen -------------------------------------------------------------------------------------------------------------


def test_plain_lines_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """Everything the display has: step, loss, rate, gradient norm, speed, memory, score, ETA. Broken variant: a validation
    that counts as slow training."""
    screen = Screen(steps=20)
    with screen:
        screen.on_log(StepReport(10, 1.25, 3e-4, 0.5, 1000, 0))
        screen.pause()
        screen.score = "val bleu 12.3"
        screen.on_log(StepReport(15, 1.25, 3e-4, 0.5, 1500, 0))
        screen.on_log(StepReport(20, 1.125, 3e-4, 0.5, 2000, 0))
        screen.on_message("hello")
    out = capsys.readouterr().err.splitlines()
    assert out[-1] == "hello"
    for part in ("step 20/20", "loss 1.1250", "lr 3.00e-04", "|g| 0.50", "tok/s", "GB", "val bleu 12.3"):
        assert part in out[-2], part
    assert "ETA 0:" in out[0] and "tok/s" not in out[0], "no speed is shown before there is one"


def test_durations() -> None:
    assert [duration(s) for s in (0.0, 59.9, 61.0, 3600.0, 36061.0)] == ["0:00", "0:59", "1:01", "1:00:00", "10:01:01"]
