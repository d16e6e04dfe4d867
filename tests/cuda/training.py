"""Training on the device: a captured step learns what a launched one learns, and 8 bits learn nearly the same."""

from __future__ import annotations

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


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        launched = loss_of("launched", folder, "train.capture=false")
        captured = loss_of("captured", folder, "train.capture=true")
        eight = loss_of("fp8", folder, "train.precision=fp8")
    assert abs(captured - launched) < 0.02 * launched + 0.005
    assert abs(eight - launched) < 0.1 * launched + 0.05


if __name__ == "__main__":
    main()
