"""`translate --ray`: two actors, one of them killed, and the command, too; the file is that of one process. Ray takes long to
start, so there is one cluster for all."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from glassformer.cli import translate
from glassformer.errors import UserError
from tests.cli.test_bulk import wait_for
from tests.commands import call
from tests.talking import make_run

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a cluster of two cores, whose workers find this package."""
    ray = pytest.importorskip("ray")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"PYTHONPATH": str(ROOT), "RAY_USAGE_STATS_ENABLED": "0"}.items():
            patch.setenv(name, value)
        found = ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
        yield found.address_info["address"]
        ray.shutdown()


def actors() -> list[psutil.Process]:
    """The workers of the cluster that answer."""
    found = []
    for child in psutil.Process().children(recursive=True):
        try:
            found += [child] if child.cmdline()[:1] and child.cmdline()[0].startswith("ray::Answerer") else []
        except psutil.NoSuchProcess:
            continue
    return found


@pytest.mark.slow
def test_killed_actors_and_a_killed_command(cluster: str, tmp_path: Path) -> None:
    """Broken variants: chunks written as they come, a chunk lost with its actor, one that was answered twice."""
    run = make_run(tmp_path / "run")
    source, whole, out = tmp_path / "source.txt", tmp_path / "whole.txt", tmp_path / "out.txt"
    source.write_bytes(b"the cat sat on\nAnna lives\n\n\xff\n" * 40)
    options = ["--file", str(source), "--beam", "3", "--batch-size", "1", "--json", "--out"]
    assert call("translate", run, *options, whole).returncode == 1
    command = [sys.executable, "-m", "glassformer", "translate", "run", *options, str(out), "--ray", "--jobs", "2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "RAY_ADDRESS": cluster}
    draw, codes = random.Random(5), []
    for kill_command in (True, False):
        job = subprocess.Popen(command, cwd=tmp_path, env=environment)
        before = out.stat().st_size if out.exists() else 0
        wait_for(lambda before=before: out.exists() and out.stat().st_size > before)  # type: ignore[misc]
        if kill_command:
            job.kill()
            psutil.wait_procs(actors(), timeout=60)
            assert not actors(), "actors outlive the command"
            assert 0 < out.stat().st_size < whole.stat().st_size
        else:
            draw.choice(actors()).kill()
        codes.append(job.wait(200))
    assert codes == [-signal.SIGKILL, 1]
    assert out.read_bytes() == whole.read_bytes()


def test_without_ray_its_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is written. Broken variant: an empty file of answers."""
    monkeypatch.setitem(sys.modules, "ray", None)
    run, source = make_run(tmp_path / "run"), tmp_path / "source.txt"
    source.write_text("the cat\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"--ray needs Ray, which is not installed: pip install .*ray"):
        translate.translate(run, file=source, out=tmp_path / "out.txt", ray=True)
    assert {path.name for path in tmp_path.iterdir()} == {"run", "source.txt"}
