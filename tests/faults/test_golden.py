"""What this version computes, later versions compute too; what this version saved, later versions resume.

To the bit on the versions and the machine the numbers come from; elsewhere, where sums may be taken in another order,
closely. Written by golden.py."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.faults.golden import FIXTURES, SAVED_AT, STEPS, here, losses
from tests.faults.processes import Runner

pytestmark = pytest.mark.slow
GOLDEN = json.loads((FIXTURES / "golden.json").read_text())


def assert_golden(found: list[float], wanted: list[float]) -> None:
    if here() == {name: GOLDEN[name] for name in here()}:
        assert found == wanted
    else:
        assert found == pytest.approx(wanted, rel=1e-3)


def test_a_hundred_losses(tmp_path: Path) -> None:
    runner = Runner(tmp_path / "run", STEPS)
    assert runner.train().code == 0
    found = losses(runner.run)
    assert len(found) == 100
    assert_golden(found, GOLDEN["losses"])


@pytest.mark.parametrize("name", sorted(p.name for p in FIXTURES.glob("run-format-*")))
def test_a_run_of_every_format_goes_on(name: str, tmp_path: Path) -> None:
    """A folder that was written once and is never written again: resumed, it gives the losses it would have given then."""
    shutil.copytree(FIXTURES / name, tmp_path / name)
    runner = Runner(tmp_path / name)
    assert runner.run.checkpoints.latest_good() == SAVED_AT
    ended = runner.resume()
    assert ended.code == 0, ended.said
    assert_golden(losses(runner.run, SAVED_AT), GOLDEN[name])
    assert sum(p.stat().st_size for p in (FIXTURES / name).rglob("*")) < 300_000
