"""The gradient norm of every layer in metrics.jsonl: what it is, and that asking for it changes nothing else."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from torch import nn

from glassformer.training.optim import gradient_norms, layer_of, layers_of
from tests.small_runs import small_run
from tests.trainers import TASKS, batches_of, gradient, make_trainer, reports


@pytest.mark.parametrize(
    ("name", "layer"),
    [
        ("decoder.3.mlp.layers.0.weight", "decoder.3"),
        ("encoder.12.attention.query.bias", "encoder.12"),
        ("0.weight", "0"),
        ("embedding.weight", None),
        ("decoder.norm.weight", None),
        ("layer1.conv2d.weight", None),
    ],
)
def test_a_layer_is_a_name_up_to_its_first_number(name: str, layer: str | None) -> None:
    """Broken variants: the last number, the longest prefix, a number that is part of a word."""
    assert layer_of(name) == layer


def test_any_model_has_layers_not_only_ours() -> None:
    """A plain list of torch's own layers, one of them frozen and one without a gradient."""
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2), nn.Linear(2, 2))
    model[0].requires_grad_(False)
    model[:3](torch.randn(5, 3)).square().sum().backward()
    layers = layers_of(model.named_parameters())
    assert list(layers) == ["2", "3"]
    norms = gradient_norms(layers.values(), torch.device("cpu"))
    by_hand = math.sqrt(sum(float(p.grad.square().sum()) for p in model[2].parameters() if p.grad is not None))
    assert norms.tolist() == pytest.approx([by_hand, 0.0])


@pytest.mark.parametrize("task", ["transformer", "bert classify"])
def test_every_layer_is_told_and_is_the_norm_of_its_gradients(task: str) -> None:
    """Before clipping, as the norm of all is. Broken variants: after clipping; squares that are summed twice; layers mixed up."""
    shape = TASKS[task][0]
    batches = batches_of(task)
    trainer = make_trainer(shape, batches, log_layers=True, clip=1e-3)
    stacks = ("encoder", "decoder") if task == "transformer" else ("encoder",)
    assert list(trainer.layers) == [f"{stack}.{i}" for stack in stacks for i in range(2)]
    micro = [next(batches.starting_at(trainer.progress.position))[0]]
    _, grads = gradient(trainer, micro)
    trainer.model.zero_grad()
    trainer.step()
    (report,) = reports(trainer)
    for layer, norm in report.layers.items():
        own = [g for name, g in grads.items() if name.startswith(f"{layer}.")]
        assert norm == pytest.approx(math.sqrt(sum(float(g.square().sum()) for g in own)), rel=1e-6)
    assert math.sqrt(sum(n * n for n in report.layers.values())) < report.norm


def test_layers_that_share_their_parameters_are_one() -> None:
    shape = TASKS["transformer"][0]
    trainer = make_trainer(
        type(shape)(**{**vars(shape), "share_layers": True}), batches_of("transformer"), log_layers=True
    )
    assert list(trainer.layers) == ["encoder.0", "decoder.0"]


@pytest.mark.slow
def test_to_ask_for_it_changes_nothing_else(tmp_path: Path) -> None:
    """Weights and every other number to the last bit; without it, the lines have no more than before."""
    asked = small_run(tmp_path, "pairs", name="asked", log_layers=True, log_every=4)
    plain = small_run(tmp_path, "pairs", name="plain", log_every=4)
    with_, without = (
        [{k: v for k, v in line.items() if k != "clock"} for line in run.metrics()] for run in (asked, plain)
    )
    names = {f"grad_norm/{stack}.{i}" for stack in ("encoder", "decoder") for i in range(2)}
    for line, other in zip(with_, without, strict=True):
        own = {k: line.pop(k) for k in names & line.keys()}
        assert line == other and own.keys() == (names if "loss" in other else set())
        assert all(math.isfinite(v) and v > 0 for v in own.values())
    weights = [run.load_model().state_dict() for run in (asked, plain)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    assert json.loads((asked.path / "run.json").read_text())["recipe"]["train"]["log_layers"] is True
