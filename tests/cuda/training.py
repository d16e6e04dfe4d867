"""Training on the device: a captured step learns what a launched one learns, and 8 bits learn nearly the same."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import glassformer

SIZES = (
    "model.n_embd=128",
    "model.n_hidden=512",
    "model.n_head=4",
    "model.n_layer=2",
    "model.dropout=0.0",
    "data.size=4000",
)
STEPS = 60


def loss_of(name: str, folder: Path, *settings: str) -> float:
    """The validation loss of a short training."""
    steps = [f"train.{which}={STEPS}" for which in ("steps", "validate_every", "save_every")]
    command = [sys.executable, "-m", "glassformer", "train", "copy", "--out", str(folder / name), *SIZES, *steps]
    done = subprocess.run(
        [*command, "train.device=cuda", *settings], capture_output=True, text=True, timeout=400, check=False
    )
    assert done.returncode == 0, f"{name}: {done.stderr[-2000:]}"
    loss = glassformer.load(folder / name, device="cpu").metrics["loss"]
    print(f"{name}: loss {loss:.4f}", flush=True)
    return loss


def gradient_norms(folder: Path) -> list[dict[str, float]]:
    """The gradient norms of the layers, a dictionary a logged step."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return [{k: v for k, v in line.items() if k.startswith("grad_norm/")} for line in lines if "loss" in line]


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        launched = loss_of("launched", folder, "train.capture=false", "train.log_layers=true")
        captured = loss_of("captured", folder, "train.capture=true", "train.log_layers=true")
        for one, other in zip(gradient_norms(folder / "launched"), gradient_norms(folder / "captured"), strict=True):
            assert one.keys() == other.keys() and len(one) == 4
            assert all(0.5 * one[key] < other[key] < 2 * one[key] for key in one), (one, other)
        eight = loss_of("fp8", folder, "train.precision=fp8")
    assert abs(captured - launched) < 0.02 * launched + 0.005
    assert abs(eight - launched) < 0.1 * launched + 0.05


if __name__ == "__main__":
    main()
