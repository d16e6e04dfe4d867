"""What happens between two steps (validations that decode, averages swapped in, snapshots, saving) leaves a training as it is.

On a GPU a step is a captured graph, which knows its model's tensors by their addresses. Here a stand-in for it takes down which
of them the second step reads, and refuses any later step for which one of these has been freed or replaced."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from glassformer.models.graph_inputs import GraphInputs, places_of
from glassformer.nn.positions import PositionalEncoding, Rotary
from glassformer.training.trainer import Trainer
from tests.small_runs import small_run


class Reads(TorchDispatchMode):
    """The addresses of all memory that operations are given."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: set[int] = set()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        tensors = (value for value in tree_iter((args, kwargs)) if isinstance(value, torch.Tensor))
        self.addresses |= {tensor.untyped_storage().data_ptr() for tensor in tensors}
        return function(*args, **(kwargs or {}))


class StandInForCapture:
    """Takes the trainer's step, and holds the memory of the model that the second one reads to what a graph needs of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.steps, self.problems, self.original = 0, [], Trainer.compute_step
        self.memory: dict[int, StorageWeakRef] = {}
        stand_in = self
        monkeypatch.setattr(Trainer, "compute_step", lambda trainer, *given: stand_in.step(trainer, *given))

    def step(self, trainer: Trainer, *given: Any) -> torch.Tensor:
        with Reads() as reads:
            result = self.original(trainer, *given)
        tensors = [*trainer.model.named_parameters(), *trainer.model.named_buffers()]
        read = {t.untyped_storage().data_ptr(): name for name, t in tensors}
        read = {address: name for address, name in read.items() if address in reads.addresses}
        self.steps += 1
        if self.steps == 2:
            self.memory = {
                t.untyped_storage().data_ptr(): StorageWeakRef(t.untyped_storage())
                for _, t in tensors
                if t.untyped_storage().data_ptr() in read
            }
        if self.steps > 2:
            self.problems += [f"freed at step {self.steps}" for ref in self.memory.values() if ref.expired()]
            self.problems += [f"{read[a]} moved at step {self.steps}" for a in read.keys() - self.memory.keys()]
        return result


def losses(run: Any) -> list[float]:
    lines = [json.loads(line) for line in run.metrics_file.read_text(encoding="utf-8").splitlines()]
    return [line["loss"] for line in lines if "loss" in line]


CASES = [
    *[("pairs", positions) for positions in ("sinusoidal", "learned", "rotary", "alibi", "relative", "none")],
    *[("prompts", "sinusoidal"), ("prompts", "alibi"), ("text", "rotary"), ("masked", "sinusoidal")],
    *[("classify", "alibi"), ("tag", "rotary")],
]


@pytest.mark.parametrize(("kind", "positions"), CASES)
def test_what_runs_between_steps_changes_nothing(
    kind: str, positions: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With validations (whose outputs run on past the block size), a moving average, snapshots and checkpoints
    after nearly every step: the losses of the training without, to the bit. Broken: a table of positions that is replaced by a
    longer one when an answer is longer than the block size; weights swapped in by `p.data = …`."""
    model = {"positions": positions, "block_size": 8 if kind == "pairs" else 16}
    rare = small_run(tmp_path, kind, name="rare", model=model, steps=8, log_every=1, validate_every=8, save_every=8)
    stand_in = StandInForCapture(monkeypatch)
    often = small_run(
        tmp_path, kind, name="often", model=model, steps=8, log_every=1, validate_every=2, save_every=3, ema=0.9,
        average_last=2, snapshot_every=2, history=True, validate_examples=4,
    )  # fmt: skip
    assert stand_in.steps == 8 and stand_in.memory
    assert not stand_in.problems, stand_in.problems
    assert losses(often) == losses(rare) and len(losses(often)) == 8


@pytest.mark.parametrize("table", [PositionalEncoding(8, 6), Rotary(8, 6)])
def test_a_table_is_never_replaced(table: PositionalEncoding | Rotary) -> None:
    """Longer tables stand beside the first, agree with it, and stay too. Broken: `grow`, which made the table anew."""
    first, graph = table.covering(8), GraphInputs(places_of(table))
    longer = table.covering(9)
    assert longer.size(0) == 16 and table.covering(100).size(0) == 128 and table.n_positions == 128
    assert torch.equal(longer[:8], first)
    assert table.covering(5) is first and table.covering(16) is longer
    assert graph.moved() is None
    positions = torch.tensor([[3, 100]])
    assert torch.equal(table(positions, 101), table.covering(128)[positions])
    table.double()
    assert table.covering(100).dtype == torch.float64 and graph.moved() is not None


def test_a_graph_keeps_its_memory_and_sees_what_moved() -> None:
    """Broken: addresses compared of the tensors that were kept, which never move; buffers left out."""
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    graph = GraphInputs(places_of(model))
    memory = StorageWeakRef(model[0].weight.untyped_storage())
    with torch.no_grad():
        model[0].weight.mul_(2)
    assert graph.moved() is None
    model[0].weight.data = torch.zeros(3, 3)
    assert graph.moved() == "weight" and not memory.expired()
    graph = GraphInputs(places_of(model))
    model[1].running_mean = torch.ones(3)
    assert graph.moved() == "running_mean"
    del graph
    assert memory.expired()
