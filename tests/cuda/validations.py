"""On the device: a training with validations has the losses of one without, to the bit, whatever they decode. Every family and
kind of positions; outputs that run away past the block size; averages, snapshots and saving between steps."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

STEPS = 60
SIZES = ["model.n_layer=2", "model.n_head=2", "model.n_embd=64", "model.n_hidden=128", "model.block_size=32"]
EVERY = [
    "train.validate_every=10", "train.save_every=20", "train.ema=0.9", "train.average_last=2", "train.snapshot_every=10",
    "train.history=true", "train.validate_examples=64",
]  # fmt: skip
CASES = [
    *[("transformer", positions) for positions in ("sinusoidal", "learned", "rotary", "alibi", "relative")],
    ("gpt", "sinusoidal"),
    ("gpt", "rotary"),
    ("bert", "rotary"),
]


def write_pairs(path: Path) -> None:
    """Short and long sources, up to the block size, so that answers without an end go far past it."""
    draw = random.Random(1)
    lines = [[draw.randrange(40) for _ in range(draw.choice([2, 5, 12, 28]))] for _ in range(1500)]
    path.write_text("".join(f"{' '.join(f'w{i}' for i in x)}\t{' '.join(f'v{i}' for i in x)}\n" for x in lines))


def write_texts(path: Path) -> None:
    """Label TAB text."""
    draw = random.Random(2)
    lines = [[draw.randrange(40) for _ in range(draw.randrange(2, 28))] for _ in range(1500)]
    path.write_text("".join(f"{'odd' if x[0] % 2 else 'even'}\t{' '.join(f'w{i}' for i in x)}\n" for x in lines))


def losses(folder: Path, family: str, positions: str, *settings: str) -> list[float]:
    """The loss of each step of a captured, compiled training."""
    data = folder / ("pairs.tsv" if family != "bert" else "texts.tsv")
    recipe = folder / f"{family}-{positions}.toml"
    head, task = ('head = "classify"\n', "classify") if family == "bert" else ("", "pairs")
    prompts = "prompt_answer = true\n" if family == "gpt" else ""
    recipe.write_text(
        f'[model]\nfamily = "{family}"\npositions = "{positions}"\n{head}'
        f'[data]\ntask = "{task}"\ntrain = "{data}"\ntokenizer = "word"\nbatch_tokens = 2048\nlayout = "packed"\n{prompts}'
        f'[train]\nsteps = {STEPS}\nwarmup = 10\nlearning_rate = 3e-3\nlog_every = 1\ndevice = "cuda"\ndeterministic = true\n'
        "[decode]\nmax_ratio = 4.0\nmax_extra = 100\n"
    )
    run = folder / f"{family}-{positions}-{'often' if 'train.validate_every=10' in settings else 'rare'}"
    command = [sys.executable, "-m", "glassformer", "train", str(recipe), "--out", str(run), *SIZES, *settings]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, f"{family} {positions}: {done.stderr[-3000:]}"
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return [line["loss"] for line in lines if "loss" in line]


def check(folder: Path, family: str, positions: str) -> str:
    """One training with much between its steps, one with nothing."""
    rare = losses(folder, family, positions, f"train.validate_every={STEPS}", f"train.save_every={STEPS}")
    often = losses(folder, family, positions, *EVERY)
    assert len(rare) == STEPS
    same = sum(a == b for a, b in zip(rare, often, strict=True))
    first = next((i for i, (a, b) in enumerate(zip(rare, often, strict=True), 1) if a != b), None)
    return f"{family} {positions}: {same} of {STEPS} losses equal, first other {first}, last {rare[-1]:.4f}"


def main() -> None:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_pairs(folder / "pairs.tsv")
        write_texts(folder / "texts.tsv")
        with ThreadPoolExecutor(8) as pool:
            results = list(pool.map(lambda case: check(folder, *case), CASES))
    print("\n".join(results), flush=True)
    assert all(f"{STEPS} of {STEPS}" in result for result in results)


if __name__ == "__main__":
    main()
