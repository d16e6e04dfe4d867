"""Out of memory in the middle of a run: what was saved is intact, and a sentence names the setting to change."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.processes import Runner, differences, everything

pytestmark = pytest.mark.slow
# Tensors of megabytes, which the allocator asks the kernel for; the limit is the kernel's own.
SETTINGS = ["data.batch_tokens=16384", "data.size=4000", "model.n_embd=32", "train.validate_every=1000"]


def test_out_of_memory(tmp_path: Path) -> None:
    straight, runner = (Runner(tmp_path / kind, [*SETTINGS, "train.steps=10"]) for kind in ("straight", "run"))
    assert straight.train().code == 0
    ended = runner.train({"memory": 7})
    assert ended.code == 2, ended.said
    assert "Traceback" not in ended.said
    assert "out of memory" in ended.said and "train.accumulate=2" in ended.said and "data.batch_tokens" in ended.said
    assert runner.run.checkpoints.latest_good() == 5
    assert runner.resume().code == 0
    assert differences(everything(straight.run), everything(runner.run)) == []


def test_the_advice_can_be_followed(tmp_path: Path) -> None:
    """As the sentence says: the same batch in two pieces, from the checkpoint on."""
    runner = Runner(tmp_path / "run", [*SETTINGS, "train.steps=10"])
    assert runner.train({"memory": 7}).code == 2
    ended = runner.resume(extra=("train.accumulate=2", "--accept-changes"))
    assert ended.code == 0, ended.said
    assert runner.run.finished() == 10
