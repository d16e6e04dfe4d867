"""The files of deploy/ as far as they can be tried without a cluster: each hands torchrun a line that torchrun's own parser
takes, and that begins a training or goes on with it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from glassformer.config import recipe_names

DEPLOY = Path(__file__).parents[1] / "deploy"
FIRST = "first-machine"


def started(script: str, folder: Path, *arguments: str, **variables: str) -> list[str]:
    """The words that a script gives to torchrun, with stand-ins for the programs of a cluster."""
    programs = {
        "scontrol": f"echo {FIRST}; for i in $(seq 20000); do echo other-machine-$i; done",
        "srun": 'while [[ $1 == -* ]]; do shift; done; exec "$@"',
        "torchrun": "printf '%s\\n' \"$@\"",
    }
    for name, body in programs.items():
        (folder / name).write_text(f"#!/bin/bash\n{body}\n", encoding="utf-8")
        (folder / name).chmod(0o755)
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", **variables}
    done = subprocess.run(
        ["bash", "-c", script, "script", *arguments], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()


def slurm(folder: Path) -> list[str]:
    """Broken variant: a pipe that ends before scontrol has said all its machines, which ends the script."""
    words = ("wmt14-en-de-base", "--out", "/shared/runs/base")
    variables = {"SLURM_JOB_NODELIST": "x", "SLURM_NNODES": "2", "SLURM_GPUS_ON_NODE": "8", "SLURM_JOB_ID": "7"}
    return started((DEPLOY / "slurm.sh").read_text(encoding="utf-8"), folder, *words, **variables)


def kubernetes(folder: Path) -> list[str]:
    service, job = yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text(encoding="utf-8"))
    pod = job["spec"]["template"]["spec"]
    assert service["spec"]["selector"] == {"job-name": job["metadata"]["name"]}
    assert pod["subdomain"] == service["metadata"]["name"] and job["spec"]["completionMode"] == "Indexed"
    (container,) = pod["containers"]
    assert {one["name"] for one in container["volumeMounts"]} == {one["name"] for one in pod["volumes"]}
    words: list[str] = container["args"]
    assert (
        f"--nnodes={job['spec']['parallelism']}" in words and job["spec"]["completions"] == job["spec"]["parallelism"]
    )
    assert f"--nproc-per-node={container['resources']['limits']['nvidia.com/gpu']}" in words
    return [word.replace(f"{job['metadata']['name']}-0.{pod['subdomain']}", FIRST) for word in words]


def skypilot(folder: Path) -> list[str]:
    task: dict[str, Any] = yaml.safe_load((DEPLOY / "skypilot.yaml").read_text(encoding="utf-8"))
    ips = f"{FIRST}\nother-machine"
    variables = {"SKYPILOT_NUM_NODES": "2", "SKYPILOT_NUM_GPUS_PER_NODE": "8", "SKYPILOT_NODE_IPS": ips}
    return started(task["run"], folder, **variables)


@pytest.mark.parametrize("place", [slurm, kubernetes, skypilot])
def test_a_line_that_torchrun_takes(place: Any, tmp_path: Path) -> None:
    from torch.distributed.run import get_args_parser

    asked = get_args_parser().parse_args(place(tmp_path))
    assert (asked.nnodes, asked.nproc_per_node, asked.rdzv_backend) == ("2", "8", "c10d")
    assert asked.rdzv_endpoint == f"{FIRST}:29500" and asked.rdzv_id and asked.max_restarts == 3
    assert asked.module and asked.training_script == "glassformer"
    verb, recipe, *others = asked.training_script_args
    assert verb == "train" and recipe in recipe_names() and "--resume" in others
    assert "/shared/runs/base" in " ".join(others)
    text = next(path for path in DEPLOY.iterdir() if path.stem == place.__name__).read_text(encoding="utf-8")
    assert "TORCH_DISABLE_SHARE_RDZV_TCP_STORE" in text
