"""`glassformer plan`: what is counted is exact, what is measured is measured, and what does not fit is said beforehand."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from glassformer.config import VERSION, Recipe
from glassformer.data.prepare import complete_model, prepare
from glassformer.machine import available_memory
from glassformer.models import build_model
from glassformer.runs import make_session
from glassformer.runs import plan as plans
from glassformer.runs.folder import RunFolder
from glassformer.runs.overview import rows_of, warnings
from glassformer.runs.plan import fixed_memory, make_plan
from glassformer.text.tokenizers import Tokenizers
from glassformer.training import memory
from glassformer.training.optim import make_optimizers, optimizer_tensors
from tests.cli.test_train_verb import RECIPE
from tests.commands import call
from tests.number_pairs import pairs, recipe, write_tsv

pytestmark = pytest.mark.slow

GB = 2**30


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plan")
    write_tsv(folder / "train.tsv", pairs(400))
    (folder / "numbers.toml").write_text(RECIPE.format(folder=folder), encoding="utf-8")
    return folder


def test_a_plan_counts_and_measures(data: Path) -> None:
    """Broken variants: padding counted as tokens; the time of one step taken for all."""
    settings = recipe(data, steps=1000)
    plan = make_plan(settings, seconds=0.3)
    model = build_model(Recipe.from_dict(settings.to_dict()).with_model(vocab_size=25).model)
    assert plan.parameters == model.num_params() and plan.fits and plan.steps == 1000 and not plan.cut_short
    assert plan.trial is not None and 150 < plan.trial.step_tokens <= 256 and plan.trial.step_seconds < 2.56
    assert plan.available is not None and plan.memory < plan.available
    shown = dict(plan.rows())
    assert [*shown][-3:] == ["memory", "speed", "time"] and f"{plan.parameters:,} parameters" in shown["model"]
    assert "it fits" in shown["memory"] and "for 1,000 steps" in shown["time"]


def test_a_plan_says_what_is_left_out(tmp_path: Path) -> None:
    """An empty side, one of zero-width blanks, a line that cannot be read, one far too long; each with its sentence."""
    lines = ["\t".join(pair) for pair in pairs(100)]
    lines += ["one\t", "one\t\u200b", "only one column", "one " * 3000 + "\tone"]
    (tmp_path / "train.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    settings = recipe(tmp_path, steps=10).to_dict()
    settings["data"]["on_error"] = "skip"
    told = " | ".join(
        text for name, text in make_plan(Recipe.from_dict(settings), seconds=0.0).rows() if name == "notes"
    )
    for said in ("2 of the train examples have an empty side", "1 lines cannot be used"):
        assert said in told
    assert "have more than model.block_size=" in told


def test_nothing_is_left_behind(data: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    make_plan(recipe(data, tensorboard=True), seconds=0.0)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("train", "copies"), [({}, 4), ({"ema": 0.9}, 5), ({"optimizer": "muon"}, 4)])
def test_fixed_memory_is_what_the_tensors_take(data: Path, train: dict[str, Any], copies: int) -> None:
    """Counted without building anything. Compared with the tensors of a real trainer after a step."""
    settings = recipe(data, **train).with_model(vocab_size=1000)
    parameters, fixed = fixed_memory(settings)
    model = build_model(settings.model)
    assert parameters == sum(p.numel() for p in model.parameters())
    assert fixed == copies * 4 * parameters
    optimizers = make_optimizers(model, settings.train)
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    for optimizer in optimizers:
        optimizer.step()
    taken = sum(2 * p.numel() * 4 for p in model.parameters())
    taken += sum(t.numel() * t.element_size() for t in optimizer_tensors(model, optimizers).values())
    taken += 4 * parameters * ("ema" in train)
    assert taken <= fixed * 1.01 and (taken > 0.99 * fixed or "optimizer" in train)


def test_a_batch_that_does_not_fit_is_told_before_it_is_tried(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The small trial says 10 MB a thousand tokens; the room is for a quarter of the batch. Broken variant: finding out by
    running out."""
    tried: list[int] = []

    def trial(run: Any, settings: Recipe, texts: Any, seconds: float) -> plans.StepTrial:
        tried.append(settings.data.batch_tokens)
        micro = settings.data.batch_tokens / settings.train.accumulate
        return plans.StepTrial(10e6 / 1000 * micro, settings.data.batch_tokens, 0.1)

    monkeypatch.setattr(plans, "try_out", trial)
    _, fixed = fixed_memory(recipe(data).with_model(vocab_size=25))
    monkeypatch.setattr(plans, "available_memory", lambda device: int((fixed + 41e6) / plans.SAFE))
    plan = make_plan(recipe(data, data={"batch_tokens": 16000}), seconds=0.0)
    assert tried == [plans.TRIAL_TOKENS], "only in small"
    assert not plan.fits and plan.trial is None and plan.memory == pytest.approx(fixed + 160e6, rel=0.01)
    assert plan.advice.startswith("set train.accumulate=4 (the same batch in more pieces) or data.batch_tokens=4000")
    assert "speed" not in dict(plan.rows()) and "does not fit" in dict(plan.rows())["memory"]
    tried.clear()
    fits = make_plan(recipe(data, data={"batch_tokens": 16000}, accumulate=4), seconds=0.0)
    assert fits.fits and len(tried) == 2, "its own advice, followed"


def test_a_model_that_does_not_fit_is_never_built(data: Path) -> None:
    huge = {"n_layer": 12, "n_embd": 2**17, "n_head": 128}
    plan = make_plan(recipe(data, model=huge), seconds=0.0)
    assert not plan.fits and plan.parameters > 10**11 and "make the model smaller" in plan.advice
    assert [name for name, _ in plan.rows()] == ["parameters", "memory"]


def test_running_out_all_the_same_is_a_sentence(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def trial(*_: Any) -> plans.StepTrial:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 99 bytes")

    monkeypatch.setattr(plans, "try_out", trial)
    plan = make_plan(recipe(data), seconds=0.0)
    assert not plan.fits and plan.advice.startswith("set train.accumulate=2") and "data.batch_tokens=128" in plan.advice

    def bug(*_: Any) -> plans.StepTrial:
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    monkeypatch.setattr(plans, "try_out", bug)
    with pytest.raises(RuntimeError, match="shapes"):
        make_plan(recipe(data), seconds=0.0)


def test_memory_is_told_from_other_errors() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**48)
    assert memory.is_out_of_memory(caught.value)
    assert memory.is_out_of_memory(MemoryError()) and memory.is_out_of_memory(torch.OutOfMemoryError())
    assert memory.is_out_of_memory(
        RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 8 bytes.")
    )
    assert memory.is_out_of_memory(ImportError("psutil.so: failed to map segment from shared object"))
    assert not memory.is_out_of_memory(ImportError("No module named 'psutil'"))
    assert not memory.is_out_of_memory(RuntimeError("device-side assert")) and not memory.is_out_of_memory(OSError())


def test_memory_in_use_is_seen() -> None:
    """A hundred megabytes taken and given back: now, at its peak, and after forgetting the peak where the system can."""
    before = memory.resident()
    assert before is not None and before > 10_000_000
    block = np.ones(25_000_000, np.float32)  # NumPy gives memory back at once, which not every torch does
    grown = memory.resident()
    assert grown is not None and 90_000_000 < grown - before < 130_000_000
    del block
    peak = memory.peak_resident()
    assert peak is not None and peak >= grown - 5_000_000
    forgot = memory.forget_peak()
    forgotten = memory.peak_resident()
    assert forgotten is not None and (forgotten < peak - 50_000_000) == forgot
    room = available_memory(torch.device("cpu"))
    assert room is not None and 10_000_000 < room < 2**50


@pytest.mark.parametrize("can_forget", [True, False])
def test_the_highest_while_something_runs(can_forget: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a system that cannot forget a peak, too. Broken variant there: the peak of something earlier."""
    if not can_forget:
        monkeypatch.setattr(memory, "forget_peak", lambda: False)
    earlier = np.ones(50_000_000, np.float32)
    del earlier
    before = memory.resident()
    with memory.highest_resident() as peak:
        block = np.ones(25_000_000, np.float32)
        time.sleep(0.05)
        del block
    assert before is not None and 90_000_000 < peak[0] - before < 150_000_000


def test_of_a_large_corpus_only_the_beginning_is_read(data: Path) -> None:
    plan = make_plan(recipe(data), seconds=0.0, characters=2000)
    assert plan.cut_short and "only the beginning of the data was read" in dict(plan.rows())["notes"]


def test_plan_and_train_count_the_same_epochs(data: Path, tmp_path: Path) -> None:
    """Pairs that are cut in 16 ways are as many pairs as before, and what `train` warns of `plan` does, too. Caught: an epoch of
    16 times as many steps, for which no number of epochs is ever large."""
    settings = recipe(
        data, data={"tokenizer": "bpe", "vocab_size": 300, "bpe_dropout": 0.1, "batch_tokens": 512}, steps=20_000
    )
    plan = make_plan(settings, seconds=0.0)
    (tmp_path / "run").mkdir()
    run = RunFolder.create(tmp_path / "run" / "own", settings, VERSION)
    session = make_session(run, complete_model(settings, prepare(settings, run.path)), Tokenizers.load(run.path))
    assert plan.trial is not None and len(plan.trial.warnings) == len(list(warnings(session))) == 1
    planned, trained = (float(rows["steps"].split()[1]) for rows in (plan.trial.overview, rows_of(session)))
    assert planned == pytest.approx(trained, rel=0.1)
    assert dict(plan.rows())["warning"] == plan.trial.warnings[0]


def test_the_command(data: Path) -> None:
    done = call("plan", data / "numbers.toml", "train.steps=50", "--seconds", "0.2")
    assert done.returncode == 0, done.stderr
    for part in ("parameters", "tokens/s, measured", "for 50 steps", "it fits", "an epoch"):
        assert part in done.stdout, part
    assert not (data / "runs").exists()


def test_the_command_says_what_to_change_and_exits_with_1(data: Path) -> None:
    done = call("plan", data / "numbers.toml", "model.n_embd=131072")
    assert done.returncode == 1 and "It does not fit" in done.stdout and "make the model smaller" in done.stdout
