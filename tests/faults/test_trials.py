"""A run keeps the trials by which its kernels were chosen: with another cache of trials, or with none, it goes on to the bit."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from glassformer import machine
from glassformer.runs.facts import write_facts
from tests.faults.processes import Runner, differences, everything

pytestmark = pytest.mark.slow
KILLED = -9
SIZES = {"short-rows": (8, 12, 20, 24), "training-products": (32, 64, 128, 256), "newton-schulz": (32**3, 256**3)}
MUON = ["train.optimizer=muon"]


def cache_of(folder: Path, gain: float) -> dict[str, Any]:
    """A cache in which every special way was so much faster, for a process to have."""
    (folder / "trials").mkdir(parents=True)
    for name, sizes in SIZES.items():
        content = {"gains": {str(size): gain for size in sizes}, "measured": "2026-01-01"}
        (folder / "trials" / f"{name}-{machine.identity()}.json").write_text(json.dumps(content))
    return {"variables": {"GLASSFORMER_CACHE": str(folder)}}


@pytest.fixture(scope="module")
def caches(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Two that say the opposite of each other, and none at all."""
    folder = tmp_path_factory.mktemp("caches")
    return [cache_of(folder / "a", 9.0), cache_of(folder / "b", 0.2), {"variables": {"GLASSFORMER_CACHE": "off"}}]


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory, caches: list[dict[str, Any]]) -> list[Runner]:
    """The run that was never stopped, with each of the two caches."""
    folder = tmp_path_factory.mktemp("straight")
    runners = [Runner(folder / name, MUON) for name in ("a", "b")]
    for runner, cache in zip(runners, caches, strict=False):
        assert runner.train(cache).code == 0
    return runners


@pytest.mark.parametrize(("first", "then", "step"), [(0, 1, 3), (0, 2, 12), (1, 0, 12)])
def test_another_cache_changes_nothing(
    first: int, then: int, step: int, caches: list[dict[str, Any]], straight: list[Runner], tmp_path: Path
) -> None:
    """Killed before the first checkpoint (step 3) and after it. Broken variant: the cache of whoever goes on decides, so that
    every checkpoint differs, and nothing is said."""
    runner = Runner(tmp_path / "run", MUON)
    assert runner.train(caches[first], {"at": "step", "nth": step, "do": "kill"}).code == KILLED
    ended = runner.resume(caches[then])
    assert ended.code == 0 and "last digits" not in ended.said
    assert differences(everything(straight[first].run), everything(runner.run)) == []


def test_the_two_caches_choose_other_kernels(straight: list[Runner]) -> None:
    """Else the test above would show nothing."""
    assert differences(*(everything(runner.run) for runner in straight)) != []


def test_on_another_processor_it_is_said(caches: list[dict[str, Any]], tmp_path: Path) -> None:
    """And a run that keeps no trials, of an earlier version, goes on without a word, and keeps them from then on."""
    runner = Runner(tmp_path / "run")
    assert runner.train(caches[0], {"at": "step", "nth": 12, "do": "kill"}).code == KILLED
    shutil.copytree(runner.folder, tmp_path / "earlier")
    facts = runner.run.facts
    write_facts(runner.folder, facts | {"trials": facts["trials"] | {"processor": "another"}})
    ended = runner.resume(caches[1])
    assert ended.code == 0 and "last digits will differ" in ended.said
    assert runner.run.facts["trials"]["processor"] == facts["trials"]["processor"] and runner.run.sealed
    earlier = Runner(tmp_path / "earlier")
    write_facts(earlier.folder, {name: fact for name, fact in facts.items() if name != "trials"})
    ended = earlier.resume(caches[1])
    assert ended.code == 0 and "last digits" not in ended.said
    assert earlier.run.facts["trials"]["gains"]["short rows"]["8"] == 0.2
