"""Writes what test_golden.py holds later versions to:  python -m tests.faults.golden

Only when a change is meant to change the numbers, or the format of a run: then the old fixture stays, under its own name,
and must still resume."""

from __future__ import annotations

import json
import platform
import shutil
from pathlib import Path
from typing import Any

import torch

from glassformer.accel.trials import short_rows
from glassformer.runs.folder import RunFolder
from tests.faults.processes import Runner

FIXTURES = Path(__file__).parents[1] / "fixtures"
STEPS = ["train.steps=100", "train.save_every=100", "train.validate_every=100"]
SAVED_AT = 12
SAVED = [
    f"train.save_every={SAVED_AT}",
    f"train.validate_every={SAVED_AT}",
    "train.keep_last=1",
    "train.steps=24",
    "train.ema=0.9",
    "train.average_last=2",
]


def losses(run: RunFolder, after: int = 0) -> list[float]:
    return [line["loss"] for line in run.metrics() if "loss" in line and line["step"] > after]


def processor() -> str:
    """Its maker, family and model: kernels are chosen by these, and other kernels add in another order."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    wanted = ("vendor_id", "cpu family", "model", "CPU implementer", "CPU part")
    facts = dict(line.split(":", 1) for line in reversed(lines) if ":" in line)
    return " ".join(value.strip() for key, value in sorted(facts.items()) if key.strip() in wanted)


def here() -> dict[str, Any]:
    return {
        "torch": torch.__version__.split("+")[0],
        "machine": platform.machine(),
        "kernels": torch.backends.cpu.get_cpu_capability(),
        "processor": processor(),
        "trials": {"keys": short_rows()},  # beside other work they may end otherwise
    }


def write(scratch: Path) -> None:
    golden = Runner(scratch / "golden", STEPS)
    assert golden.train().code == 0
    name = f"run-format-{golden.run.facts['format']}"
    saved, whole = Runner(scratch / name, SAVED), Runner(scratch / "whole", SAVED)
    assert saved.train({"at": "step", "nth": SAVED_AT + 2, "do": "kill"}).code == -9
    assert whole.train().code == 0
    shutil.rmtree(FIXTURES / name, ignore_errors=True)
    shutil.copytree(saved.folder, FIXTURES / name)
    facts = here() | {"losses": losses(golden.run), name: losses(whole.run, SAVED_AT)}
    (FIXTURES / "golden.json").write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    from tempfile import TemporaryDirectory

    FIXTURES.mkdir(exist_ok=True)
    with TemporaryDirectory() as folder:
        write(Path(folder))
