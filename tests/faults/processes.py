"""Processes for the fault tests, and what is compared between the runs they leave behind.

Each process is a real one and begins as `glassformer` does, but is forked from one that has imported everything already:
importing torch takes longer than a test's training. SHA-256 is the judge, computed here and not by the package."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import multiprocessing
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors.torch import load_file

from glassformer.data.batches import make_batches
from glassformer.data.encoding import open_files
from glassformer.data.stream import Position
from glassformer.runs.folder import RunFolder
from tests.faults.forked import drive

ROOT = Path(__file__).parents[2]
PATIENCE = 120.0  # seconds for what should take one; the machine may be busy

TINY = [
    "model.n_layer=1",
    "model.n_embd=16",
    "model.n_head=2",
    "model.n_hidden=32",
    "model.dropout=0.1",
    "model.block_size=32",
    "data.batch_tokens=64",
    "data.size=120",
    "train.steps=30",
    "train.save_every=5",
    "train.validate_every=10",
    "train.validate_examples=0",
    "train.metric=loss",
    "train.log_every=1",
    "train.warmup=5",
    "train.threads=1",
    "train.history=false",  # so that the nth save of a kind is known
    "train.learning_rate=3e-3",
]


def context() -> Any:
    os.environ["OMP_NUM_THREADS"] = "1"
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *[p for p in paths if p and p != str(ROOT)]])
    found = multiprocessing.get_context("forkserver")
    found.set_forkserver_preload(["tests.faults.preloaded"])
    return found


@dataclass
class Ended:
    code: int
    said: str


@dataclass
class Running:
    process: Any
    output: Path

    def signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):  # it may have ended
            os.kill(self.process.pid, number)

    def wait(self) -> Ended:
        self.process.join(PATIENCE)
        if self.process.exitcode is None:
            self.process.kill()
            self.process.join()
            raise AssertionError(f"still running after {PATIENCE} s: {self.output.read_text()}")
        return Ended(self.process.exitcode, self.output.read_text() if self.output.exists() else "")


@dataclass
class Runner:
    """One run's folder, and the processes that train in it."""

    folder: Path
    settings: list[str] = field(default_factory=list)
    recipe: str = "copy"
    tiny: list[str] = field(default_factory=lambda: TINY)

    def command(self, arguments: list[str], *faults: dict[str, Any], draw: bool = False) -> Running:
        output = self.folder.with_name(f"{self.folder.name}.out")
        output.unlink(missing_ok=True)  # a process that dies at once says nothing
        process = context().Process(target=drive, args=(arguments, str(self.folder), str(output), list(faults), draw))
        process.start()
        return Running(process, output)

    def begin(self, *faults: dict[str, Any]) -> Running:
        arguments = ["train", self.recipe, *self.tiny, *self.settings, "--out", str(self.folder)]
        return self.command(arguments, *faults)

    def go_on(self, *faults: dict[str, Any], extra: tuple[str, ...] = ()) -> Running:
        return self.command(["train", str(self.folder), "--resume", *extra], *faults)

    def train(self, *faults: dict[str, Any]) -> Ended:
        return self.begin(*faults).wait()

    def resume(self, *faults: dict[str, Any], extra: tuple[str, ...] = ()) -> Ended:
        return self.go_on(*faults, extra=extra).wait()

    @property
    def run(self) -> RunFolder:
        return RunFolder(self.folder)

    def logged_steps(self) -> int:
        """The last step that reached the log, however the process ended."""
        if not self.run.metrics_file.exists():
            return 0
        lines = self.run.metrics_file.read_text().splitlines()
        return max((json.loads(line)["step"] for line in lines if line.endswith("}")), default=0)


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def tensor_digests(file: Path) -> dict[str, str]:
    return {name: sha(t.contiguous().numpy().tobytes()) for name, t in load_file(file).items()}


def rest_of_the_data(run: RunFolder, state: dict[str, Any], batches: int = 40) -> str:
    """The batches that would come next, tokens and all."""
    recipe = run.recipe
    stream = make_batches(
        recipe.data,
        recipe.model.family,
        recipe.model.head,
        open_files(recipe.data, "train", run.path / "data"),
        recipe.model.block_size,
        recipe.train.seed,
        layout="padded",
    ).starting_at(Position(state["epoch"], state["index"]))
    digest = hashlib.sha256()
    for batch, _ in itertools.islice(stream, batches):
        digest.update(
            str(batch.examples).encode() + batch.rows.tokens.numpy().tobytes() + batch.labels.numpy().tobytes()
        )
    return digest.hexdigest()


def everything(run: RunFolder) -> dict[str, str]:
    """All that a finished run is, by name, as digests. Times, and sizes of files with times in them, are left out."""
    step = run.checkpoints.steps()[-1]
    folder = run.checkpoints.path(step)
    state = json.loads((folder / "state.json").read_text())
    found = {f"model/{n}": d for n, d in tensor_digests(folder / "model.safetensors").items()}
    found |= {f"training/{n}": d for n, d in tensor_digests(folder / "training.safetensors").items()}
    found |= {f"final/{n}": d for n, d in tensor_digests(run.final / "model.safetensors").items()}
    for kind in (run.snapshots, run.history):
        for saved in kind.steps():
            weights = tensor_digests(kind.path(saved) / "model.safetensors")
            found |= {f"{kind.folder.name}-{saved}/{n}": d for n, d in weights.items()}
    found |= {f"state/{k}": repr(v) for k, v in state.items() if k not in ("metrics_bytes", "seconds", "run")}
    found["rest of the data"] = rest_of_the_data(run, state)
    for number, line in enumerate(run.metrics()):
        found[f"metrics/{number}"] = repr({k: v for k, v in line.items() if k != "clock"})
    return found


def differences(a: dict[str, str], b: dict[str, str]) -> list[str]:
    return sorted(name for name in a.keys() | b.keys() if a.get(name) != b.get(name))


def seconds(work: Any) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
