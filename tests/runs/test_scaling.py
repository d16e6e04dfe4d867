"""`glassformer plan --gpus N`: held to a ring that is run by hand, to what one GPU does, and to what was measured."""

from __future__ import annotations

import importlib.util
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from glassformer.config import Recipe
from glassformer.config.recipe import read_values
from glassformer.runs.plan import StepTrial, fixed_memory, step_floor
from glassformer.runs.scaling import Cluster, OneGpu, needs, stated
from tests.commands import call

ROOT = Path(__file__).parents[2]
ONE = OneGpu(1200, 3, 16.0 * 1200, 50.0, 600.0, 1000.0, 0.1, accumulate=4, steps=7)


def known(name: str, *changes: str) -> Recipe:
    values, own = read_values(name, list(changes))
    return Recipe.from_dict(values, name=own)


def sent_by_a_ring(n: int, chunks: list[list[int]]) -> tuple[list[int], list[list[int]]]:
    """An all-reduce of n ranks, each with n chunks: what each has sent, in chunks, and what each has at the end."""
    sent = [0] * n
    for shift, adds in [(0, True)] * (n - 1) + [(1, False)] * (n - 1):
        turn = sent[0] % max(1, n - 1)
        moving = [(rank, (rank + shift - turn) % n) for rank in range(n)]
        values = [chunks[rank][chunk] for rank, chunk in moving]
        for (rank, chunk), value in zip(moving, values, strict=True):
            following = (rank + 1) % n
            chunks[following][chunk] = value + adds * chunks[following][chunk]
            sent[rank] += 1
    return sent, chunks


@pytest.mark.parametrize("n", [2, 3, 5, 8])
def test_traffic_is_what_a_ring_sends(n: int) -> None:
    """Broken variants: (N-1)/N once, which sums and does not share out; all bytes to all."""
    sent, chunks = sent_by_a_ring(n, [[10**rank + chunk for chunk in range(n)] for rank in range(n)])
    total = [sum(10**rank + chunk for rank in range(n)) for chunk in range(n)]
    assert chunks == [total] * n, "the ring is one"
    assert needs(ONE, n, Cluster()).traffic == pytest.approx(sent[0] * 4 * ONE.parameters / n)


def test_one_gpu_is_as_fast_as_it_was_said_to_be() -> None:
    alone = needs(ONE, 1, Cluster())
    assert alone.step == pytest.approx(4 * 600 / 1000) and alone.seconds == pytest.approx(7 * 4 * 600 / 1000)
    assert alone.traffic == alone.wait == 0 and alone.memory == ONE.fixed + 600 * 50 and alone.accumulate == 4


@pytest.mark.parametrize("gpus", [1, 2, 3, 4, 8, 100])
def test_the_batch_is_shared_out_and_nothing_else(gpus: int) -> None:
    """Broken variant: a batch that grows with the GPUs, which would be another training."""
    need, alone = needs(ONE, gpus, Cluster()), needs(ONE, 1, Cluster())
    assert need.micro_tokens * need.accumulate * gpus == pytest.approx(4 * 600)
    assert need.work * gpus == pytest.approx(alone.work) and need.floor == pytest.approx(need.accumulate * 0.1)
    assert need.micro_tokens <= 600, "no micro-batch is larger than the one that was measured"


def test_what_binds() -> None:
    """One after another is made scarce."""
    assert needs(ONE, 4, Cluster()).binds == "compute"
    assert needs(replace(ONE, floor=0.5), 100, Cluster()).binds == "batch"
    assert needs(ONE, 100, Cluster(network=1.0)).binds == "network"
    slow = needs(ONE, 100, Cluster(network=1.0))
    assert slow.wait == pytest.approx(slow.traffic - 2 / 3 * (slow.work + slow.floor))
    assert needs(ONE, 100, Cluster(memory=100)).binds == "memory"


def test_what_does_not_fit_is_sharded() -> None:
    """Weights, gradients and moments by N, and two of three blocks whole; three times the ring's half is sent."""
    room = Cluster(memory=(16 * 1200 + 600 * 50) / 0.9 - 100)
    alone, eight = needs(ONE, 1, room), needs(ONE, 8, replace(room, memory=25_000))
    assert not alone.fits and not alone.shard and eight.shard and eight.fits
    assert eight.memory == pytest.approx(16 * 1200 / 8 + eight.micro_tokens * 50 + 2 / 3 * 4 * 1200)
    assert eight.traffic == pytest.approx(3 * 7 / 8 * 4 * 1200)
    two = needs(ONE, 2, room)
    assert two.shard and two.accumulate == 2 and two.traffic == pytest.approx(2 * 3 * 1 / 2 * 4 * 1200)


def test_the_floor_is_where_the_line_begins() -> None:
    def trial(tokens: float) -> StepTrial:
        return StepTrial(0.0, tokens, 3 * 0.02 + tokens / 500, 0, "", 1.0)

    assert step_floor(trial(100), trial(900), accumulate=3) == pytest.approx(0.02)
    assert step_floor(trial(100), None, 3) == step_floor(trial(100), trial(100), 3) == 0


def measured_rows(heading: str) -> list[list[float]]:
    """A table of docs/results.md, by how its head begins."""
    rows: list[list[float]] = []
    text = (ROOT / "docs/results.md").read_text(encoding="utf-8").partition(heading)[2]
    for line in text.splitlines()[2:]:
        if not line.startswith("|"):
            break
        cells = [cell.strip().replace(",", "") for cell in line.strip("|").split("|")]
        sizes = [float(c.split()[0]) * (1e-3 if c.endswith("MB") else 1) for c in cells[-2:]]
        rows.append([*(float(re.match(r"[\d.]+", cell)[0]) for cell in cells[:-2]), *sizes])  # type: ignore[index]
    return rows


def test_it_is_what_was_measured() -> None:
    """GPT-2 124M on an H200 from one row to 128, from the speed at 64 rows alone: time of a step within a tenth, memory too."""
    found = measured_rows("| rows | tokens a step | tokens/s |")
    speed = next(row[2] for row in found if row[0] == 64)
    assert len(found) == 5
    one = stated(known("gpt2-124m", "data.batch_tokens=65536", "train.accumulate=1"), speed)
    need = needs(one, 1, Cluster())
    for rows, tokens, own, _, memory, _ in found:
        share = rows / 64  # of the batch
        assert need.work * share + need.floor == pytest.approx(tokens / own, rel=0.1)
        assert one.fixed + share * (need.memory - one.fixed) == pytest.approx(memory * 1e9, rel=0.15)


def test_parameters_are_the_models() -> None:
    for name in ("wmt14-en-de-base", "gpt2-124m"):
        one = stated(known(name), 1e5)
        parameters, _, fixed = fixed_memory(known(name))
        assert one.parameters == parameters and one.fixed == fixed == 16 * parameters
    assert stated(known("wmt14-en-de-base"), 1e5).blocks == 12 and stated(known("gpt2-124m"), 1e5).blocks == 12


def test_the_pages_have_the_table_that_is_computed() -> None:
    """Make it again with: python3 docs/make_scaling.py"""
    spec: Any = importlib.util.spec_from_file_location("make_scaling", ROOT / "docs/make_scaling.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for language, path in module.PAGES.items():
        page = path.read_text(encoding="utf-8")
        assert module.written(page, language) == page and module.BEGIN in page and module.END in page


@pytest.mark.slow
def test_the_command() -> None:
    done = call("plan", "wmt14-en-de-base", "--gpus", "64", "--speed", "831000")
    assert done.returncode == 0 and "391 target tokens a GPU" in done.stdout and "network" in done.stdout
    assert "50 GB/s between machines" in done.stdout
    slow = call("plan", "wmt14-en-de-base", "--gpus", "64", "--speed", "831000", "--network", "5000")
    assert "for the network" in slow.stdout and "5000 GB/s between machines" in slow.stdout
    for words, said in (
        (["--gpus", "0", "--speed", "1"], "--gpus must be at least 1"),
        (["--gpus", f"{10**400}", "--speed", "1"], "--gpus must be at least 1"),
        (["--gpus", "2", "--speed", "nan"], "--speed and --network above 0"),
        (["--gpus", "2", "train.device=cpu"], "there is no GPU here to measure on"),
        (["--speed", "5"], "say how many by --gpus"),
    ):
        refused = call("plan", "wmt14-en-de-base", *words)
        assert refused.returncode == 2 and said in refused.stderr and refused.stderr.count("\n") == 1
