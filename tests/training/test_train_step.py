"""The moving parts of a training step: averages, clipping, rates, steps that are not finite; and what the screen says."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from glassformer.config import DataConfig
from glassformer.data.batches import make_batches
from glassformer.data.tokens import TokenFile
from glassformer.screen import Progress, duration
from glassformer.text.tokenizer import CONTROL
from glassformer.training.optim import schedule
from glassformer.training.progress import Screen, StepReport
from glassformer.training.trainer import NotFinite
from tests.trainers import SMALL, WORDS, Given, batches_of, gradient, make_trainer, reports, weights

pytestmark = pytest.mark.slow

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
    notes = trainer.callbacks[0]
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
    """Everything the display has: step, loss, rate, gradient norm, speed, memory, score. Broken variant: a validation
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
    assert "ETA" not in out[0] and "tok/s" not in out[0], "no speed is shown before there is one"


def test_slow_steps_have_a_time_to_the_end_before_their_first_report(capsys: pytest.CaptureFixture[str]) -> None:
    """Three seconds a step, and a report every hundred. Broken variants: not a word of the time for five minutes; a line for
    every step."""
    now = [0.0]
    with Screen(steps=1000) as screen:
        assert screen.display is not None
        screen.display.clock, screen.display.began, screen.display.last_line = (lambda: now[0]), 0.0, 0.0
        for step in range(1, 8):
            now[0] += 3.0
            screen.on_step(step)
        first = capsys.readouterr().err.splitlines()
        assert first == ["step 4/1,000  ETA 49:48"]
        screen.on_log(StepReport(100, 1.25, 3e-4, 0.5, 1000, 0))
        now[0] += 30.0
        screen.on_step(101)
    assert len(capsys.readouterr().err.splitlines()) == 1, "from then on the reports say it"


def shown(total: int, capsys: pytest.CaptureFixture[str], *updates: tuple[float, int]) -> list[str]:
    """The times to the end that are shown at these seconds with so much done."""
    now = [0.0]
    with Progress("work", total, clock=lambda: now[0]) as display:
        for now[0], done in updates:
            display.update(done, line=True)
    return [line.removeprefix("work").strip() for line in capsys.readouterr().err.splitlines()]


def test_what_comes_before_the_first_report_is_no_speed(capsys: pytest.CaptureFixture[str]) -> None:
    """Ten minutes of compilation, then a step a second. Broken variant: days to go, at the speed of the first line."""
    assert shown(1000, capsys, (600.0, 1), (660.0, 61)) == ["", "ETA 15:39"]


def test_no_time_to_the_end_before_it_means_something(capsys: pytest.CaptureFixture[str]) -> None:
    """A first batch that warms up, then a steady speed. Broken variants: a time after that batch (4:56); the mean of everything
    (0:22); none for long work at a steady speed, or one at a speed that changes."""
    assert shown(1000, capsys, (1, 1), (4, 11), (7, 209)) == ["", "", "ETA 0:11"]
    assert shown(1000, capsys, (1, 100), (2, 200), (3, 300)) == ["", "", ""], "too early"
    assert shown(10**6, capsys, (1, 10), (2, 20), (3, 30), (4, 40)) == ["", "", "", "ETA 27:46:36"]
    assert shown(10**6, capsys, (1, 10), (2, 20), (3, 60), (4, 100)) == ["", "", "", ""]
    assert shown(100, capsys, (1, 10), (5, 50), (9, 50), (10, 100)) == ["", "ETA 0:05", "", ""], "it stood still"


def test_durations() -> None:
    assert [duration(s) for s in (0.0, 59.9, 61.0, 3600.0, 36061.0)] == ["0:00", "0:59", "1:01", "1:00:00", "10:01:01"]
