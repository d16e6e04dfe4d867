"""From the command to the first step: pairs a second, seconds, processor time and memory, as a person gives the command.

    python3 bench/prepare.py                                  # 10,000, 100,000 and a million pairs
    python3 bench/prepare.py --pairs 10000 --dropout          # with BPE-dropout as well

Each line is `glassformer train pairs.tsv` with a tiny model, in a process of its own, timed from outside until the run is
prepared and its first step comes: start-up (the import of torch) is part of it. The first run finds an empty cache; the second
is another seed of the same data. With BPE-dropout there are 16 cuts of each of up to 50,000 pairs, and one of more. The
processor's time is told beside the clock's, since other work on the machine distorts it less.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
TINY = [
    "model.n_layer=1",
    "model.n_embd=16",
    "model.n_head=2",
    "model.n_hidden=32",
    "train.steps=1",
    "train.device=cpu",
]


def write_pairs(path: Path, count: int) -> None:
    """Sentences of made-up words, common ones often and rare ones rarely, each with one of about its length."""
    draw = random.Random(1)
    letters = "etaoinshrdlucmfwypvbgkjqxzäöü"
    words = ["".join(draw.choices(letters, range(29, 0, -1), k=draw.randint(2, 9))) for _ in range(100_000)]
    weights = [1 / (rank + 10) for rank in range(len(words))]
    with path.open("w", encoding="utf-8") as file:
        for begin in range(0, count, 1000):
            pool = iter(draw.choices(words, weights, k=1000 * 30))
            for _ in range(min(1000, count - begin)):
                sides = ([next(pool) for _ in range(draw.randint(4, 15))] for _ in range(2))
                file.write("\t".join(" ".join(side).capitalize() + "." for side in sides) + "\n")


def timed(arguments: list[str], out: Path, environment: dict[str, str]) -> tuple[float, float, float]:
    """Seconds, processor seconds and the peak of memory in megabytes of a command until its run is prepared: a run takes its
    name then, and the first step follows."""
    import psutil

    began = time.perf_counter()
    started = subprocess.Popen([sys.executable, "-m", "glassformer", *arguments, "--quiet"], cwd=ROOT, env=environment)
    process, peak = psutil.Process(started.pid), 0
    while not out.exists() and started.poll() is None:
        time.sleep(0.02)
        peak = max(peak, process.memory_info().rss)
    seconds, used = time.perf_counter() - began, process.cpu_times()
    started.kill()
    started.wait()
    if not out.exists():
        raise SystemExit(f"{' '.join(arguments)} failed")
    return seconds, used.user + used.system, peak / 1e6


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument(
        "--dropout",
        action="store_true",
        help="also with data.bpe_dropout=0.1",
    )
    parser.add_argument("--folder", type=Path, help="where to put pairs, runs and cache")
    args = parser.parse_args()
    print(
        "| pairs | | run | seconds | processor seconds | pairs/s | memory |\n| ---: | --- | --- | ---: | ---: | ---: | ---: |"
    )
    with tempfile.TemporaryDirectory(dir=args.folder) as name:
        folder = Path(name)
        for count in args.pairs:
            write_pairs(folder / f"{count}.tsv", count)
            for way, settings in {"": ["data.bpe_dropout=0"], "dropout": ["data.bpe_dropout=0.1"]}.items():
                if way and not args.dropout:
                    continue
                environment = os.environ | {"GLASSFORMER_CACHE": str(folder / f"cache-{count}-{way}")}
                for turn, run in enumerate(("first", "second")):
                    out = folder / f"run-{count}-{way}-{run}"
                    own = [*settings, "data.augment=0", f"train.seed={turn}", *TINY, "--out", str(out)]
                    wall, processor, memory = timed(["train", str(folder / f"{count}.tsv"), *own], out, environment)
                    print(
                        f"| {count:,} | {way} | {run} | {wall:.1f} | {processor:.1f} | {count / wall:,.0f} | {memory:,.0f} MB |",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
