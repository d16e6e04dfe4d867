"""What several processes cost and bring: the same training on two processes of one thread and on one process of two, and what
is beyond a single process's step, part by part.

    python3 bench/processes.py                                                    # dates, two processes on two cores
    python3 bench/processes.py --processes 4 model.n_embd=256 data.batch_tokens=8192
    python3 bench/processes.py --device cuda gpt2-124m data.train=input.txt       # DDP of one process against none

Each lane is timed alone, in processes of its own, after some steps of warm-up; lanes take turns, and the median of the turns is
told. `passes` are forward and backward without a word to the others, `gradients` what summing them over the processes adds,
`flags` the loss and the stop request of all, `update` clipping and the optimizer, `rest` the batch and the log.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))


def timed(owner: Any, name: str, seconds: Counter[str], key: str) -> None:
    """Adds the seconds of each call of a method to the counter."""
    real: Callable[..., Any] = getattr(owner, name)

    def call(*given: Any, **more: Any) -> Any:
        began = time.perf_counter()
        try:
            return real(*given, **more)
        finally:
            seconds[key] += time.perf_counter() - began

    object.__setattr__(owner, name, call)


def work(run_path: Path, lane: dict[str, Any], warm: int, steps: int) -> dict[str, float]:
    """One process of a lane: seconds a step, by part, and target tokens a second."""
    from dataclasses import replace

    import torch

    from glassformer.runs.folder import RunFolder
    from glassformer.runs.setup import make_session
    from glassformer.training.processes import LossModule, replicated

    run = RunFolder(run_path)
    settings = {"threads": lane["threads"], "shard": lane.get("shard", False), "log_every": 10**6}
    recipe = replace(run.recipe, train=replace(run.recipe.train, **settings, device=lane["device"]))
    if lane.get("ddp_of_one"):
        torch.distributed.init_process_group("nccl" if lane["device"] == "cuda" else "gloo")
    trainer = make_session(run, recipe, run.tokenizers).trainer
    trainer.callbacks = []
    if lane.get("ddp_of_one"):
        trainer.loss = replicated(LossModule(trainer.model, trainer.loss))
    if lane.get("ddp_of_one") or lane.get("launched"):
        trainer.captured = None
    seconds: Counter[str] = Counter()

    def take(count: int) -> float:
        trainer.flush_reports()
        began, tokens = time.perf_counter(), trainer.progress.tokens
        for _ in range(count):
            trainer.step()
        if lane["device"] == "cuda":
            torch.cuda.synchronize()
        seconds["whole"] = time.perf_counter() - began
        return (trainer.progress.tokens - tokens) / seconds["whole"]

    take(warm)
    if lane["device"] == "cuda":
        speed = take(steps)
        return {"whole": seconds["whole"] / steps, "tokens": speed}
    timed(trainer, "gradients", seconds, "gradients")
    timed(trainer, "update", seconds, "update")
    timed(trainer.processes, "sum", seconds, "flags")
    speed = take(steps)
    found = {key: value / steps for key, value in seconds.items()} | {"tokens": speed}
    if hasattr(trainer.loss, "no_sync"):
        seconds.clear()
        with trainer.loss.no_sync():  # from here on the copies differ; only the time counts
            take(steps)
    found["passes"] = min(found["gradients"], seconds["gradients"] / steps)
    found["gradients"] -= found["passes"]
    found["rest"] = found["whole"] - sum(found.get(key, 0.0) for key in ("passes", "gradients", "flags", "update"))
    return found


def measure(run: Path, lane: dict[str, Any], given: argparse.Namespace) -> dict[str, float]:
    """A lane in processes of its own; what rank 0 found."""
    from glassformer.cli.nproc import free_port

    port = free_port()
    command = [sys.executable, __file__, "--lane", json.dumps(lane), "--run", str(run)]
    command += ["--steps", str(given.steps), "--warm", str(given.warm)]
    ranks = []
    for rank in range(lane["processes"]):
        variables = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": lane["processes"], "RANK": rank}
        environment = os.environ | {key: str(value) for key, value in variables.items()} | {"LOCAL_RANK": str(rank)}
        environment["OMP_NUM_THREADS"] = str(lane["threads"])
        ranks.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True))
    said = [process.communicate()[0] for process in ranks]
    if any(process.returncode for process in ranks):
        raise SystemExit(f"{lane} failed")
    found: dict[str, float] = json.loads(said[0].splitlines()[-1])
    print(lane, found, file=sys.stderr, flush=True)  # what is known already, should it be broken off
    return found


def lanes_of(given: argparse.Namespace) -> dict[str, dict[str, Any]]:
    count, device = given.processes, given.device
    if device == "cuda":
        plain = {"processes": 1, "threads": 1, "device": device}
        return {
            "one process, its step captured": plain,
            "one process, launched kernel by kernel": plain | {"launched": True},
            "one process, DDP": plain | {"ddp_of_one": True},
        }
    return {
        f"1 process, {count} threads": {"processes": 1, "threads": count, "device": device},
        f"{count} processes, 1 thread": {"processes": count, "threads": 1, "device": device},
        f"{count} processes, 1 thread, sharded": {"processes": count, "threads": 1, "device": device, "shard": True},
        "1 process, 1 thread": {"processes": 1, "threads": 1, "device": device},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", nargs="?", default="dates")
    parser.add_argument("settings", nargs="*", help="section.key=value, as for `glassformer train`")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--warm", type=int, default=5)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--lane", type=json.loads, help=argparse.SUPPRESS)
    parser.add_argument("--run", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_intermixed_args()
    if given.lane is not None:
        print(json.dumps(work(given.run, given.lane, given.warm, given.steps)))
        return
    words = [given.recipe, *given.settings]
    if "=" in given.recipe:
        words = ["dates", *words]
    with tempfile.TemporaryDirectory(prefix="processes-") as folder:
        run, lanes = Path(folder) / "run", lanes_of(given)
        few = ["train.steps=1", "train.validate_examples=0", "train.metric=loss", f"train.device={given.device}"]
        few += ["train.optimizer=adamw"]  # which can be sharded
        path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        command = [sys.executable, "-m", "glassformer", "train", *words, *few, "--out", str(run), "--quiet"]
        subprocess.run(command, check=True, env=os.environ | {"PYTHONPATH": path})
        turns = [{name: measure(run, lane, given) for name, lane in lanes.items()} for _ in range(given.turns)]
    parts = ("whole", "passes", "gradients", "flags", "update", "rest")
    print(f"{' '.join(words)}: milliseconds a step, median of {given.turns} turns of {given.steps} steps")
    print("| | tokens a second | against the first | " + " | ".join(parts) + " |")
    print("| --- |" + " ---: |" * (len(parts) + 2))
    middle = {
        name: {key: statistics.median(turn[name].get(key, 0.0) for turn in turns) for key in ("tokens", *parts)}
        for name in lanes
    }
    first = next(iter(middle.values()))["tokens"]
    for name, found in middle.items():
        shown = " | ".join(f"{1000 * found[part]:.1f}" for part in parts)
        print(f"| {name} | {found['tokens']:,.0f} | {found['tokens'] / first:.2f} | {shown} |")


if __name__ == "__main__":
    main()
