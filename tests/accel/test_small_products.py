"""Products by BLAS in training: where a trial says so, by the width of the model; gradients and Muon's iteration alone."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from glassformer.accel import small_products, trials
from glassformer.training import optim, trainer
from tests.small_runs import small_run

GAINS = {"training products": {"16": 1.5, "64": 1.2, "128": 1.0}, "newton schulz": {"512": 3.0, "100000": 0.5}}


def losses(run: Path, width: int, seen: set[str], monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The losses of a training, of a model of this width; `seen`: what ran with oneDNN off."""
    switch, backward, orthogonal = torch.backends.mkldnn, torch.Tensor.backward, optim.orthogonal

    def told(name: str) -> None:
        if not switch.enabled:
            seen.add(name)

    with monkeypatch.context() as patch:
        patch.setattr(torch.Tensor, "backward", lambda *args: (told("backward"), backward(*args))[1])
        patch.setattr(optim, "orthogonal", lambda x: (told(f"muon {x.size(-1)}"), orthogonal(x))[1])
        patch.setattr(
            trainer.Trainer, "update", lambda *args, own=trainer.Trainer.update: (told("update"), own(*args))[1]
        )
        found = small_run(run, "pairs", model={"n_embd": width, "n_hidden": 24}, steps=3, log_every=1, optimizer="muon")
    assert switch.enabled
    return [line["loss"] for line in found.metrics() if "loss" in line]


def test_a_small_model_is_trained_by_blas_where_a_trial_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Broken variants: a wide model, too; the switch left off; the backward pass outside; the numbers of another computation."""
    monkeypatch.setattr(trials, "gains", lambda name, measure: GAINS.get(name, {"8": 0.5}))
    assert (small_products.widest_training(), small_products.largest_newton_schulz()) == (64, 512)
    narrow, wide = set[str](), set[str]()
    by_blas = losses(tmp_path / "narrow", 8, narrow, monkeypatch)
    assert narrow == {"backward", "muon 8"}  # 8 x 8 matrices; not those of 8 x 24
    losses(tmp_path / "wide", 80, wide, monkeypatch)
    assert not wide
    monkeypatch.setattr(trials, "gains", lambda name, measure: {"8": 0.5})
    plain = losses(tmp_path / "plain", 8, wide, monkeypatch)
    assert not wide and plain == pytest.approx(by_blas, rel=1e-5)


def test_the_trials_leave_the_switch_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    for start in (True, False):
        monkeypatch.setattr(torch.backends.mkldnn, "enabled", start)
        for ask in (small_products.try_small_products, small_products.try_newton_schulz, small_products.try_training):
            assert all(gain > 0 for gain in ask().values())
            assert torch.backends.mkldnn.enabled is start
