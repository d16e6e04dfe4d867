"""The losses of short trainings to the last bit: run it at two commits and compare what it prints.

    python bench/losses.py [--text data/shakespeare/input.txt] [--steps 60] > before.txt

Three seeds each of `dates`, `shakespeare-cpu` and `stdlib-bert`, by the command a person gives. A change that only renames or
moves code leaves every line as it was. Without the text of Tiny Shakespeare, the README of the checkout stands in for it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
RECIPES = ("dates", "shakespeare-cpu", "stdlib-bert")
SEEDS = (1, 2, 3)


def losses(recipe: str, seed: int, steps: int, text: Path) -> list[tuple[int, float]]:
    """Train for so many steps in a folder of its own; (step, loss) of every logged step."""
    settings = [
        f"train.steps={steps}",
        f"train.seed={seed}",
        "train.log_every=5",
        "train.device=cpu",
        "train.threads=1",
    ]
    settings += [
        f"train.validate_every={steps}",
        f"train.save_every={steps}",
        "train.metric=loss",
        "train.validate_examples=0",
    ]
    if recipe.startswith("shakespeare"):
        settings.append(f"data.train={text}")
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        command = [sys.executable, "-m", "glassformer", "train", recipe, *settings, "--out", str(run)]
        subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [(line["step"], line[key]) for line in lines for key in ("loss", "val_loss") if key in line]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, default=ROOT / "data" / "shakespeare" / "input.txt")
    parser.add_argument("--steps", type=int, default=60)
    given = parser.parse_args()
    text = given.text if given.text.exists() else ROOT / "README.md"
    for recipe in RECIPES:
        for seed in SEEDS:
            for step, loss in losses(recipe, seed, given.steps, text):
                print(recipe, seed, step, float(loss).hex(), flush=True)


if __name__ == "__main__":
    main()
