"""A NaN in the loss, in one gradient, in one micro-batch: the step is skipped and nothing changes, bit for bit; the batch is
named; several in a row end the run; no checkpoint with a NaN or an infinity is ever written."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.faults.processes import Runner, differences, everything

pytestmark = pytest.mark.slow
KILLED = -9
EXAMPLE = 71  # learned from in step 8, and once an epoch
SETTINGS = ["train.ema=0.9", "model.norm=batch"]  # what moves besides weights: the average, and running means


def all_finite(runner: Runner) -> bool:
    files = [*runner.folder.glob("*/step-*/*.safetensors"), *runner.folder.glob("final/*.safetensors")]
    assert files
    return all(bool(t.isfinite().all()) for f in files for t in load_file(f).values() if t.is_floating_point())


def unchanged_steps(spy: Path) -> list[int]:
    """The steps after which everything was as before."""
    lines = [json.loads(line) for line in spy.read_text().splitlines()]
    return [b["step"] for a, b in itertools.pairwise(lines) if a["digest"] == b["digest"]]


def skipped_steps(said: str) -> list[int]:
    return [
        int(line.split(":")[0].removeprefix("step ")) for line in said.splitlines() if "the step is skipped" in line
    ]


@pytest.mark.parametrize(
    ("where", "settings"),
    [("loss", []), ("gradient", []), ("loss", ["train.accumulate=4"]), ("gradient", ["train.optimizer=muon"])],
)
def test_a_bad_step_changes_nothing(where: str, settings: list[str], tmp_path: Path) -> None:
    """Four in one: in the loss, in one gradient only, in one micro-batch of four, and with two optimizers."""
    spy, runner = tmp_path / "spy.jsonl", Runner(tmp_path / "run", [*SETTINGS, *settings])
    ended = runner.train({"poison": where, "example": EXAMPLE}, {"spy": str(spy)})
    assert ended.code == 0, ended.said
    skipped = skipped_steps(ended.said)
    assert skipped and skipped == unchanged_steps(spy)
    what = "loss" if where == "loss" else "gradient"
    assert all(f"the {what} is not finite" in line for line in ended.said.splitlines() if "the step is skipped" in line)
    assert "epoch 0, batch " in ended.said and str(EXAMPLE) in ended.said
    assert all_finite(runner)


def test_a_run_with_bad_steps_resumes_exactly(tmp_path: Path) -> None:
    """How many there were in a row is part of what is saved."""
    poison = {"poison": "gradient", "example": EXAMPLE}
    straight, stopped = (Runner(tmp_path / kind, SETTINGS) for kind in ("straight", "stopped"))
    assert straight.train(poison).code == 0
    assert stopped.train(poison, {"at": "step", "nth": 14, "do": "kill"}).code == KILLED
    assert stopped.resume(poison).code == 0
    assert differences(everything(straight.run), everything(stopped.run)) == []


def test_several_in_a_row_end_the_run(tmp_path: Path) -> None:
    """With a sentence, and the last good checkpoint as it was; without the cause, the run goes on from it as ever."""
    straight, runner = Runner(tmp_path / "straight"), Runner(tmp_path / "run")
    assert straight.train().code == 0
    assert runner.train({"at": "step", "nth": 12, "do": "kill"}).code == KILLED
    ended = runner.resume({"poison": "gradient", "example": None})
    assert ended.code == 2 and "Traceback" not in ended.said
    assert skipped_steps(ended.said) == [11, 12, 13, 14, 15]
    assert "5 steps in a row" in ended.said and "train.learning_rate" in ended.said
    assert runner.run.checkpoints.latest_good() == 10 and all_finite(runner)
    assert runner.resume().code == 0
    assert differences(everything(straight.run), everything(runner.run)) == []


def test_weights_that_overflow_are_never_saved(tmp_path: Path) -> None:
    """Losses and gradients were finite, the update was not: the next save refuses."""
    runner = Runner(tmp_path / "run", ["train.learning_rate=1e39", "train.warmup=0", "train.save_every=1"])
    ended = runner.train()
    assert ended.code == 2 and "is not finite, so nothing is saved" in ended.said
    assert runner.run.checkpoints.steps() == []


def test_a_check_of_the_loss_alone_would_let_it_through(tmp_path: Path) -> None:
    """The broken variant: only the loss is looked at. One NaN in one gradient reaches the weights, and a checkpoint."""
    spy, runner = tmp_path / "spy.jsonl", Runner(tmp_path / "run", ["train.steps=15"])
    faults = [{"poison": "gradient", "example": EXAMPLE}, {"spy": str(spy)}, {"variant": "loss-only"}]
    runner.train(*faults)
    assert not all_finite(runner)


def test_a_spike_is_reported(tmp_path: Path) -> None:
    """A batch with ten times the loss, long after the run has settled."""
    settings = ["train.steps=140", "train.save_every=140", "train.validate_every=140"]
    runner = Runner(tmp_path / "run", settings)
    ended = runner.train({"poison": "spike", "example": EXAMPLE})
    assert ended.code == 0
    spikes = [line for line in ended.said.splitlines() if "the loss jumped to" in line]
    assert spikes and all(int(line.split(":")[0].removeprefix("step ")) > 100 for line in spikes)
    calm = Runner(tmp_path / "calm", settings).train()
    assert "the loss jumped" not in calm.said


def test_torch_agrees_on_what_is_finite() -> None:
    """The norm over all gradients shows a NaN or an infinity in any one of them."""
    for bad in (float("nan"), float("inf"), -float("inf")):
        grads = [torch.ones(3), torch.tensor([[1.0, bad]])]
        assert not torch.isfinite(torch.nn.utils.get_total_norm(grads))
