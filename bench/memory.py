"""How much memory a large corpus takes: a generated text is prepared and trained on, and the peak is watched.

    python3 bench/memory.py                                   # 2 GB of text, by the character
    python3 bench/memory.py --megabytes 300 --tokenizer bpe

The work runs in a process of its own. Two peaks are told. `own` is what the process itself holds (memory that is no page
of a file): this must not grow with the corpus. `resident` also counts pages of the memory-mapped token files that happen
to be in memory; the system takes those back whenever it needs the room.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

MEGABYTE = 1_000_000


def write_text(path: Path, megabytes: int) -> None:
    """Lines of words, common ones often and rare ones rarely."""
    draw = random.Random(1)
    letters = "etaoinshrdlucmfwypvbgkjqxz"
    words = ["".join(draw.choices(letters, weights=range(26, 0, -1), k=draw.randint(2, 9))) for _ in range(20_000)]
    weights = [1 / (rank + 1) for rank in range(len(words))]
    lines = [" ".join(draw.choices(words, weights, k=draw.randint(4, 16))) + ".\n" for _ in range(20_000)]
    written = 0
    with path.open("w", encoding="ascii") as file:
        while written < megabytes * MEGABYTE:
            written += file.write("".join(draw.choices(lines, k=20_000)))


class Peaks:
    def __init__(self) -> None:
        self.own = self.resident = 0
        self.done = threading.Event()

    def look(self) -> None:
        import psutil

        memory = psutil.Process().memory_info()
        self.own = max(self.own, memory.rss - memory.shared)
        self.resident = max(self.resident, memory.rss)

    def watch(self) -> None:
        while not self.done.wait(0.02):
            self.look()


@contextmanager
def watched(stage: str) -> Iterator[None]:
    peaks, began = Peaks(), time.perf_counter()
    watcher = threading.Thread(target=peaks.watch, daemon=True)
    watcher.start()
    yield
    peaks.done.set()
    watcher.join()
    peaks.look()
    print(
        f"| {stage} | {peaks.own / MEGABYTE:,.0f} MB | {peaks.resident / MEGABYTE:,.0f} MB "
        f"| {time.perf_counter() - began:,.0f} s |",
        flush=True,
    )


def work(text: Path, args: argparse.Namespace) -> None:
    import torch

    from glassformer.config import VERSION, Recipe
    from glassformer.data.prepare import complete_model, prepare
    from glassformer.runs import make_session
    from glassformer.runs.folder import RunFolder

    torch.set_num_threads(args.threads)
    recipe = Recipe.from_dict(
        {
            "model": {"family": "gpt", "n_layer": 2, "n_head": 4, "n_embd": 128, "block_size": args.block},
            "data": {"task": "text", "train": str(text), "tokenizer": args.tokenizer, "val_fraction": 0.001},
            "train": {"steps": args.steps, "device": "cpu"},
        }
    )
    with watched("start: torch and the package"):
        time.sleep(0.1)
    run = RunFolder.create(text.parent / "run", recipe, VERSION)
    with watched("prepare: tokenizer and token files"):
        texts = prepare(recipe, run.path)
    with watched("the order of an epoch"):
        session = make_session(run, complete_model(recipe, texts), texts)
        session.trainer.callbacks = []
        session.model.train()
        session.trainer.batches.planned(0)
    with watched(f"{args.steps} steps"):
        for _ in range(args.steps):
            session.trainer.step()
    tokens = (run.path / "data" / "train.text.tokens").stat().st_size
    print(f"\nThe token file has {tokens / MEGABYTE:,.0f} MB.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=2000)
    parser.add_argument("--tokenizer", choices=["char", "bpe"], default="char")
    parser.add_argument("--block", type=int, default=128)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--folder", type=Path, help="where to put the text and the token files (twice the text's size)")
    parser.add_argument("--work-on", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.work_on:
        work(args.work_on, args)
        return
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        text = Path(folder) / "text.txt"
        write_text(text, args.megabytes)
        print(
            f"`python3 bench/memory.py --megabytes {args.megabytes} --tokenizer {args.tokenizer}`: a text of "
            f"{text.stat().st_size / MEGABYTE:,.0f} MB, a GPT of 2 layers on blocks of {args.block}.\n"
        )
        print("| | own | resident | time |\n| --- | ---: | ---: | ---: |", flush=True)
        subprocess.run([sys.executable, *sys.argv, "--work-on", str(text)], check=True)


if __name__ == "__main__":
    main()
