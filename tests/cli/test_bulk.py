"""`translate --jobs N`: any number of processes, whatever happens to them, write the file that one process writes."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from glassformer.cli import bulk, lines, translate
from glassformer.errors import UserError
from tests.cli.test_lines import Interrupted, everything, interrupt_after
from tests.commands import call
from tests.talking import SENTENCES, make_run

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
SMALL: dict[str, Any] = {"n_best": 2, "beam": 2, "as_json": True, "max_new_tokens": 4, "batch_size": 2}
LETHAL = "a text that kills"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("random") / "run")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    draw = random.Random(3)
    words = [*" ".join(SENTENCES).split(), "日本"]
    texts = [" ".join(draw.choices(words, k=draw.randint(0, 4))).encode() for _ in range(44)]
    texts[30] = b"\xff"
    path = tmp_path / "source.txt"
    path.write_bytes(b"\n".join(texts))
    return path


class InThisProcess(bulk.LocalWorkers):
    """Two answerers take turns, and of each few groups the last is answered first."""

    def __init__(self) -> None:
        super().__init__(2, "cpu")
        self.waiting: list[tuple[Future[bulk.GroupAnswer], bulk.Answerer, Any]] = []

    def begin(self, answerer: bulk.Answerer, number: int) -> bulk.Answerer:
        return bulk.Answerer(answerer.make_job, answerer.run)

    def submit(self, worker: bulk.Answerer, group: Any) -> Future[bulk.GroupAnswer]:
        future: Future[bulk.GroupAnswer] = Future()
        self.waiting.append((future, worker, group))
        threading.Timer(0.01, self.answer_last).start()
        return future

    def answer_last(self) -> None:
        future, worker, group = self.waiting.pop()
        future.set_result(worker.answer(group))

    def end(self, workers: Any) -> None:
        pass


def reply(run: Path, source: Path, out: Path, workers: Any = None, **options: Any) -> int:
    """The exit code of such a job."""
    decode = {name: value for name, value in (SMALL | options).items() if name != "as_json"}
    shown = translate.OutputFormat(json=True)
    made = partial(
        translate.make_job, [run], "cpu", None, decode, translate.make_constraints(None, None, "", None, None), shown,
        names_run=True,
    )  # fmt: skip
    try:
        lines.reply(lines.Input(file=source, out=out, resume=True), made, workers or InThisProcess())
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


def one_process(run: Path, source: Path, out: Path) -> bytes:
    with pytest.raises(SystemExit) as ended:
        translate.translate(run, file=source, out=out, **SMALL)
    assert ended.value.code == 1, "a line of the source is not UTF-8"
    return out.read_bytes()


def broken_off(monkeypatch: pytest.MonkeyPatch, writes: int, job: Callable[[], object]) -> None:
    """The job ends after so many writes."""
    with monkeypatch.context() as patch:
        interrupt_after(patch, writes, Interrupted())
        with pytest.raises(Interrupted):
            job()


def test_chunks_in_any_order_give_the_file_of_one_process(
    run: Path, source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Byte for byte, its record, its exit code and what it says of lines that cannot be answered. Broken variant: chunks of
    another size, whose answers differ in the last digits of a score."""
    whole = one_process(run, source, tmp_path / "one.txt")

    def said() -> list[str]:
        return sorted(line for line in capsys.readouterr().err.splitlines() if not line.startswith("translate "))

    told = said()
    assert reply(run, source, tmp_path / "many.txt") == 1
    assert (tmp_path / "many.txt").read_bytes() == whole
    assert (tmp_path / "many.txt.job").read_bytes() == (tmp_path / "one.txt.job").read_bytes()
    assert said() == told and len(told) == 2, told
    assert reply(run, source, tmp_path / "many.txt") == 0, "a complete file is complete"
    assert "is complete" in capsys.readouterr().err


def test_one_process_and_many_go_on_with_each_other(
    run: Path, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Broken off in the middle of a group, each time. Broken variant: the lines of a group that were written already are
    written again."""
    whole, out = one_process(run, source, tmp_path / "one.txt"), tmp_path / "out.txt"
    monkeypatch.setattr(lines, "SOON", 0.0)  # each answer is written by itself
    broken_off(monkeypatch, 3, partial(translate.translate, run, file=source, out=out, **SMALL))
    assert out.read_bytes().count(b"\n") == 3
    broken_off(monkeypatch, 15, partial(reply, run, source, out))
    assert out.read_bytes().count(b"\n") == 18
    with pytest.raises(SystemExit):
        translate.translate(run, file=source, out=out, resume=True, **SMALL)
    assert out.read_bytes() == whole


def test_another_request_leaves_everything_as_it_is(
    run: Path, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out.txt"
    broken_off(monkeypatch, 1, partial(reply, run, source, out))
    before = everything(tmp_path)
    with pytest.raises(UserError, match="with another setting of beam, so it is left as it is"):
        reply(run, source, out, beam=4)
    with pytest.raises(UserError, match="of other weights"):
        reply(make_run(tmp_path / "elsewhere" / "run", seed=1), source, out)
    assert everything(tmp_path) == before


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"jobs": 0}, "--jobs must be at least 1"),
        ({"jobs": 10**9}, "--jobs must be at most 1,024"),
        ({"jobs": 2}, "name it by --file"),
        ({"jobs": 2, "texts": ["the cat"]}, "name it by --file"),
        ({"jobs": 2, "file": "source.txt"}, "the answers' by --out"),
        ({"jobs": 2, "file": "pipe", "out": "out.txt"}, "is a named pipe"),
        ({"jobs": 2, "file": "source.txt", "out": "source.txt"}, "need a file of their own"),
    ],
)
def test_refused_before_anything_is_started(given: dict[str, Any], said: str, run: Path, source: Path) -> None:
    os.mkfifo(source.with_name("pipe"))
    paths = {name: source.with_name(given[name]) for name in ("file", "out") if name in given}
    with pytest.raises(UserError, match=said):
        translate.translate(run, **given | paths)
    assert not source.with_name("out.txt").exists()


def test_weights_that_changed_meanwhile(run: Path, source: Path, tmp_path: Path) -> None:
    """A worker that begins late must have the model of those before it. Broken variant: it takes what is there."""
    other = make_run(tmp_path / "elsewhere" / "run", seed=1)

    class Exchanged(InThisProcess):
        def begin(self, answerer: bulk.Answerer, number: int) -> bulk.Answerer:
            made: Any = answerer.make_job
            return bulk.Answerer(partial(made.func, [other], *made.args[1:], **made.keywords), answerer.run)

    with pytest.raises(UserError, match="weights have changed since the command began"):
        reply(run, source, tmp_path / "out.txt", Exchanged())


# ---- real processes


def lethal_job(run: Path) -> lines.TextJob:
    """A job that dies of one text."""
    shown = translate.OutputFormat(scores=True)
    constraints = translate.make_constraints(None, None, "", None, None)
    job = translate.make_job([run], "cpu", None, {"batch_size": 2}, constraints, shown, names_run=True)

    def answer(texts: Sequence[str]) -> Any:
        if LETHAL in texts:
            os.kill(os.getpid(), signal.SIGKILL)
        return job.answer(texts)

    return replace(job, answer=answer)


def test_a_chunk_that_its_workers_die_of(run: Path, tmp_path: Path) -> None:
    """It is tried a few times, then there is a sentence; the answers before it are there. Broken variant: tried for ever."""
    source, out = tmp_path / "source.txt", tmp_path / "out.txt"
    source.write_text("the cat\n" * 40 + LETHAL + "\n" + "a dog\n" * 40, encoding="utf-8")
    given = lines.Input(file=source, out=out, resume=True)
    with pytest.raises(UserError, match="lines 33 to 48: 3 worker processes died") as error:
        lines.reply(given, partial(lethal_job, run), bulk.LocalWorkers(1, "cpu"))
    assert "\n" not in str(error.value)
    assert out.read_bytes().count(b"\n") == 32
    assert not psutil.wait_procs(workers_of(psutil.Process()), timeout=60)[1]


def workers_of(process: psutil.Process) -> list[psutil.Process]:
    """Its processes that answer; the one that watches over semaphores is none."""
    found = []
    for child in process.children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # also of one that is dead and not yet buried
            found += [child] if "spawn_main" in " ".join(child.cmdline()) else []
    return found


def wait_for(condition: Callable[[], object], seconds: float = 240.0) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_killed_workers_and_a_killed_command(run: Path, tmp_path: Path) -> None:
    """The command is killed; begun again it goes on, a worker is killed, and it ends with the file of one process.
    Broken variants: a group that is lost with its worker; workers that outlive the command."""
    source, whole, out = tmp_path / "source.txt", tmp_path / "whole.txt", tmp_path / "out.txt"
    source.write_text("the cat sat on\nAnna lives\n\n" * 50, encoding="utf-8")
    options = ["--file", str(source), "--beam", "3", "--batch-size", "1", "--out"]
    assert call("translate", run, *options, whole).returncode == 0
    command = [sys.executable, "-m", "glassformer", "translate", str(run), *options, str(out), "--jobs", "2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    draw, codes = random.Random(5), []
    for kill_command in (True, False):
        job = subprocess.Popen(command, cwd=ROOT, env=environment)
        process = psutil.Process(job.pid)
        before = out.stat().st_size if out.exists() else 0
        wait_for(lambda before=before: out.exists() and out.stat().st_size > before)  # type: ignore[misc]
        others = workers_of(process)
        assert len(others) == 2
        if not kill_command:
            draw.choice(others).kill()
        else:
            job.kill()
            psutil.wait_procs(others, timeout=60)
            assert not any(worker.is_running() for worker in others)
            assert 0 < out.stat().st_size < whole.stat().st_size
        codes.append(job.wait(240))
    assert codes == [-signal.SIGKILL, 0]
    assert out.read_bytes() == whole.read_bytes()
    assert {path.name for path in tmp_path.iterdir()} == {
        "source.txt", "whole.txt", "whole.txt.job", "out.txt", "out.txt.job",
    }  # fmt: skip
