"""Several processes on one device: two ranks that share it learn what one process learns, eagerly and compiled; a stop asked of
one rank stops both at once; DDP and FSDP2 over NCCL with a single rank change nothing.

NCCL takes one rank a GPU, so the two meet by gloo, which carries tensors of a GPU through the host's memory (and dies of
FSDP2's collectives: torch 2.11). All else is what `torchrun` starts: this script is its own rank (`--rank`), with those two
things arranged before the command line runs."""

from __future__ import annotations

import copy
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from glassformer.cli.nproc import free_port
from glassformer.runs import STOPPED

STEPS = 30
SIZES = (
    *(
        "model.n_embd=128",
        "model.n_hidden=512",
        "model.n_head=4",
        "model.n_layer=2",
        "model.dropout=0.0",
        "data.size=4000",
    ),
    *("train.device=cuda", "train.precision=fp32", "train.validate_examples=0", "train.metric=loss"),
)


def rank(arrange: str, arguments: list[str]) -> None:
    """One process of a training, as the command line starts it."""
    import torch

    from glassformer.cli.main import main
    from glassformer.runs import setup
    from glassformer.training import processes

    if arrange == "one GPU":
        connect = torch.distributed.init_process_group
        torch.distributed.init_process_group = lambda _, **how: connect("cpu:gloo,cuda:gloo", **how)  # type: ignore[assignment]
        processes.Processes.device = lambda self, device: torch.device("cuda", 0)  # type: ignore[method-assign]
    elif arrange == "nccl":  # a group of one, wrapped as a group of several is
        torch.distributed.init_process_group("nccl")
        setup.to_measure = lambda model, config: copy.deepcopy(model).cpu() if config.shard else model

        def parallel(self: Any, model: Any, loss: Any, *, shard: bool = False) -> Any:
            module = processes.LossModule(model, loss)
            return self.sharded(model, module) if shard else processes.replicated(module)

        processes.Processes.parallel = parallel  # type: ignore[method-assign, assignment]
    sys.argv[1:] = arguments
    main()


def start(folder: Path, name: str, arrange: str, size: int, *settings: str) -> list[subprocess.Popen[str]]:
    """So many ranks of a run, or the one process that goes on with it."""
    port, ranks = free_port(), []
    often = [] if any("log_every" in s for s in settings) else ["train.log_every=1"]
    steps = [
        f"train.{which}={STEPS}" for which in ("steps", "validate_every", "save_every") if which not in str(settings)
    ]
    command = ["train", "copy", "--out", str(folder / name), "--resume", *SIZES, *steps, *often, *settings]
    for number in range(size):
        variables = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(size)}
        variables |= {"RANK": str(number), "LOCAL_RANK": str(number)}
        environment = os.environ | (variables if arrange else {})
        line = [sys.executable, __file__, "--rank", arrange, *command]
        ranks.append(
            subprocess.Popen(line, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        )
    return ranks


def ended(ranks: list[subprocess.Popen[str]], code: int = 0) -> None:
    """Waits for all of them."""
    for number, process in enumerate(ranks):
        output, _ = process.communicate(timeout=300)
        assert process.returncode == code, f"rank {number} ended with {process.returncode}: {output[-3000:]}"


def losses(run: Path) -> list[float]:
    """The loss of each logged step."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return [line["loss"] for line in lines if "loss" in line]


def worst(one: list[float], other: list[float]) -> float:
    """The largest relative difference of two lists of losses."""
    assert len(one) == len(other) == STEPS, (len(one), len(other))
    return max(abs(a - b) / abs(a) for a, b in zip(one, other, strict=True))


def wait_for_checkpoint(run: Path, seconds: float) -> None:
    """Until the run has one."""
    until = time.monotonic() + seconds
    while not list(run.glob("checkpoints/step-*/SEAL")):
        assert time.monotonic() < until, f"no checkpoint after {seconds} s"
        time.sleep(0.05)


def stopped(folder: Path) -> None:
    """A stop asked of rank 1 alone, far from the next line of the log, ends both at once, saved; one process goes on from it."""
    far = (
        "train.log_every=1000000",
        "train.steps=1000000",
        "train.validate_every=1000000",
        "train.save_every=20",
        "train.compile=false",
    )
    ranks = start(folder, "stopped", "one GPU", 2, *far)
    wait_for_checkpoint(folder / "stopped", 120)
    asked = time.monotonic()
    ranks[1].send_signal(signal.SIGINT)
    codes = []
    for process in ranks:
        process.communicate(timeout=60)
        codes.append(process.returncode)
    print(f"a stop asked of rank 1: both ended after {time.monotonic() - asked:.1f} s with {codes}", flush=True)
    assert codes == [STOPPED, STOPPED]


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ended(start(folder, "one", "", 1, "train.compile=false", "train.capture=false"))
        expected = losses(folder / "one")
        assert expected[-1] < expected[0]
        for arrange, size in (("one GPU", 2), ("nccl", 1)):
            for shard in ("false",) if size > 1 else ("false", "true"):  # gloo does not shard tensors of a GPU
                for compiled in ("false", "true"):
                    which = f"{arrange} {size} shard={shard} compile={compiled}"
                    settings = (
                        f"train.compile={compiled}",
                        f"train.shard={shard}",
                        *(() if size > 1 else ("train.capture=false",)),
                    )
                    began = time.monotonic()
                    ended(start(folder, which.replace(" ", "-"), arrange, size, *settings))
                    apart = worst(expected, losses(folder / which.replace(" ", "-")))
                    print(
                        f"{which}: losses within {apart:.1e} of one process's, {time.monotonic() - began:.0f} s",
                        flush=True,
                    )
                    assert apart < 2e-3  # matrix products in TF32
        stopped(folder)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rank"]:
        rank(sys.argv[2], sys.argv[3:])
    else:
        main()
