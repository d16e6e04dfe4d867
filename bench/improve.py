"""What `glassformer improve` brings on real pairs with planted noise, each step with its interval, and a small student.

    python3 bench/improve.py --data DIR --out FOLDER                                # tatoeba/en-de, 20,000 pairs, 30 minutes
    python3 bench/improve.py --data DIR --corpus multi30k --pairs 10000 --out FOLDER --minutes 10 --distill

DIR is as bench/clean.py has it. The first pairs of the corpus get noise of ten kinds, a tenth of `--noise` each (numbers as far
as there are any); the targets of all others are the text to translate back, or the lines of `--text`. The corpus's own test pairs
are scored, once. The commands are those a person gives. Broken off, the same command goes on.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.clean import KINDS, ROOT, Pair, planted, read_pairs


def test_pairs(data: Path, corpus: str) -> list[Pair]:
    """The test pairs of a corpus."""
    if corpus == "multi30k":
        files = (data / corpus / f"test_2016_flickr.{side}" for side in ("en", "de"))
        sides = (file.read_text(encoding="utf-8").splitlines() for file in files)
        return [(a.strip(), b.strip()) for a, b in zip(*sides, strict=True)]
    lines = (data / corpus / "test.tsv").read_text(encoding="utf-8").splitlines()
    return [(cells[0], cells[1]) for line in lines if len(cells := line.split("\t")) > 1]


def write_lines(path: Path, lines: list[str]) -> Path:
    """A file with these lines, unless it is there."""
    if not path.exists():
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def glassformer(*words: object) -> dict[str, Any]:
    """What a command prints as JSON, with the seconds that it took."""
    began = time.perf_counter()
    place = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))}
    command = [sys.executable, "-m", "glassformer", *map(str, words), "--json", "--quiet"]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, encoding="utf-8", env=place)
    return json.loads(done.stdout) | {"wall": time.perf_counter() - began}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--corpus", default="tatoeba/en-de")
    parser.add_argument("--pairs", type=int, default=20_000)
    parser.add_argument("--noise", type=float, default=0.3)
    parser.add_argument("--text", type=Path, help="text of the target language; the corpus's other targets if not said")
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--distill", action="store_true", help="a student of the best run, too")
    parser.add_argument("settings", nargs="*", help="changes of the recipe, such as train.steps=100")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    every = read_pairs(given.data, given.corpus)
    rows = planted(every[: given.pairs], given.noise / len(KINDS), given.seed)
    pairs = write_lines(given.out / "pairs.tsv", [f"{a}\t{b}" for (a, b), _was, _kind in rows])
    test = write_lines(given.out / "test.tsv", [f"{a}\t{b}" for a, b in test_pairs(given.data, given.corpus)])
    text = given.text or write_lines(given.out / "mono.txt", [target for _source, target in every[given.pairs :]])
    options = ["--text", text, "--test", test, "--minutes", given.minutes, "--out", given.out / "improve"]
    found = glassformer("improve", pairs, *given.settings, *options)
    noisy = sum(kind not in ("", "original") for _pair, _was, kind in rows)
    told = f"{given.corpus}: {len(rows):,} pairs, noise in {noisy:,}; {found['pairs']['train']:,} to learn from"
    print(f"{told}; {found['wall'] / 60:.1f} minutes\n", flush=True)
    print(json.dumps({"steps": found["steps"], "test": found["test"]}, indent=1))
    if given.distill:
        made = glassformer(
            "improve", found["best"], "--only", "distill", "--test", test, "--out", given.out / "student"
        )
        print(json.dumps({"facts": made["facts"], "paired": made["paired"]}, indent=1))


if __name__ == "__main__":
    main()
