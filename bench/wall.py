"""From the command to the score: the seconds of each phase, as a person's clock has them.

    python3 bench/wall.py                                              # dates, on whatever is here
    python3 bench/wall.py dates train.steps=100 data.size=2000         # with other settings
    python3 bench/wall.py multi30k-en-de --data data/multi30k-en-de    # and shakespeare-char, tatoeba-en-zh …
    python3 bench/wall.py --json wall.json

`glassformer reproduce NAME`, with one seed, in a process of its own, timed from outside: cold, with an empty cache folder, and
warm, once more with what the first has left there (prepared data, compiled code, trials). The phases are the run's own
(runs/metrics_log.py); start-up is what the clock has beyond them: the import of torch, the scoring, the beginning and the end
of the process.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from glassformer.runs.metrics_log import PHASES, phase_seconds

ROOT = Path(__file__).parents[1]


def timed(name: str, settings: Sequence[str], data: Path | None, cache: Path, out: Path) -> dict[str, Any]:
    """The seconds of each phase and of the whole, the score and the device, of one reproduction with this cache folder."""
    command = [sys.executable, "-m", "glassformer", "reproduce", name, *settings, "--seeds", "1", "--json"]
    command += ["--out", str(out), *(["--data", str(data)] if data is not None else [])]
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    elsewhere = {"TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"}  # a cache that is not ours would be warm
    kept = {key: value for key, value in os.environ.items() if key not in elsewhere}
    began = time.perf_counter()
    done = subprocess.run(
        command, stdout=subprocess.PIPE, text=True, env=kept | {"PYTHONPATH": path, "GLASSFORMER_CACHE": str(cache)}
    )
    whole = time.perf_counter() - began
    if done.returncode not in (0, 1):  # 1: the goal is not reached, as with fewer steps
        raise SystemExit(done.returncode)
    report = json.loads(done.stdout)
    trained = [*report["runs"], *report["runs_beside"]]
    each = [phase_seconds(Path(run["folder"]) / "metrics.jsonl") for run in trained]
    phases = {phase: sum(seconds[phase] for seconds in each) for phase in PHASES}
    seconds = {"start-up": whole - sum(phases.values()), **phases, "whole": whole}
    return {"seconds": seconds, "score": report["runs"][0]["score"], "device": report["device"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="?", default="dates", help="what `glassformer reproduce` knows; dates by default")
    parser.add_argument("settings", nargs="*", help="section.key=value, as for `glassformer reproduce`")
    parser.add_argument("--data", type=Path, help="the folder with the data, where they are not built in")
    parser.add_argument("--json", type=Path, help="write the numbers to this file as well")
    given = parser.parse_intermixed_args()
    with tempfile.TemporaryDirectory(prefix="wall-") as folder:
        work = Path(folder)
        found = {
            how: timed(given.name, given.settings, given.data, work / "cache", work / how) for how in ("cold", "warm")
        }
    print(f"{given.name} {' '.join(given.settings)} on {found['cold']['device']}, seconds")
    print(f"{'':>12} {'cold':>9} {'warm':>9}")
    for phase in found["cold"]["seconds"]:
        print(f"{phase:>12} " + " ".join(f"{one['seconds'][phase]:9.1f}" for one in found.values()))
    print(f"{'score':>12} " + " ".join(f"{one['score']:9.4g}" for one in found.values()))
    if given.json is not None:
        given.json.write_text(json.dumps({"name": given.name, "settings": given.settings, **found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
