"""From start to SIGTERM, several runs, memory, and newer weights: the command itself, in a process of its own."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import glassformer
from glassformer.decode.stepper import ModelStepper
from glassformer.errors import UserError
from glassformer.serve.requests import Limits, as_api_error
from tests.commands import ROOT
from tests.programs import run_program
from tests.serve.harness import Running, make_runs, running
from tests.serve.test_trust import ASKED, begin, finish, held_up, until

pytestmark = pytest.mark.slow


class Command:
    """`glassformer serve` as a process."""

    def __init__(self, *arguments: Any) -> None:
        environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "glassformer", "serve", "--port", "0", *map(str, arguments)]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
        self.lines: list[str] = []
        self.reader = threading.Thread(
            target=lambda: self.lines.extend(iter(self.process.stderr.readline, "")), daemon=True
        )  # type: ignore[union-attr]
        self.reader.start()
        line = until(lambda: next((one for one in self.lines if "listening on" in one), None), 60)
        port = int(re.search(r":(\d+)\s*$", line)[1])  # type: ignore[index]
        self.server = Running(None, None, port, self.lines)  # type: ignore[arg-type]


def test_sigterm_under_load(tmp_path: Path) -> None:
    """Not ready at once, nothing new is taken, what was taken is answered, and the process ends with 0 in time."""
    how = {"max_new_tokens": 600, "min_new_tokens": 600, "beam": 1, "batch_size": 4}
    (run,) = make_runs(tmp_path, "translator", decode=how)
    command = Command(run, "--limit", "drain_seconds=30", "--limit", "queue=16")
    server = command.server
    try:
        server.post("/translate", {**ASKED, "q": ""})
        waiting = [begin(server, ASKED) for _ in range(8)]
        until(lambda: b'model_held{model="translator"} 8.0' in server.ask("GET", "/metrics")[2])
        began = time.monotonic()
        command.process.send_signal(signal.SIGTERM)
        until(lambda: server.ask("GET", "/readyz")[0] == 503, 15)
        status, headers, _ = server.ask("POST", "/translate", ASKED)
        assert status == 503 and "retry-after" in headers
        assert server.ask("GET", "/livez")[0] == 200
        assert [finish(one)[0] for one in waiting] == [200] * 8
        assert command.process.wait(40) == 0 and time.monotonic() - began < 35
        command.reader.join(60)
        assert not any("Traceback" in line for line in command.lines)
    finally:
        command.process.kill()


def test_who_cannot_be_finished_is_told(tmp_path: Path) -> None:
    (run,) = make_runs(tmp_path, "translator", decode={"max_new_tokens": 100_000, "min_new_tokens": 100_000, "beam": 1})
    command = Command(run, "--limit", "drain_seconds=2")
    server = command.server
    try:
        server.post("/translate", {**ASKED, "q": ""})
        waiting = begin(server, ASKED)
        until(lambda: b'model_held{model="translator"} 1.0' in server.ask("GET", "/metrics")[2])
        command.process.send_signal(signal.SIGTERM)
        status, headers, body = finish(waiting)
        assert status == 503 and "shutting down" in body["error"] and "retry-after" in headers
        assert command.process.wait(60) == 0
    finally:
        command.process.kill()


def test_runs_leave_under_a_limit(tmp_path: Path) -> None:
    first, second = make_runs(tmp_path / "a", "translator", "writer")
    with running([first, second]) as server:
        runs = server.served.models.runs
        assert all(run.worker for run in runs.values())
        memory = max(run.bytes for run in runs.values())
    with running([first, second], Limits(memory=memory)) as server, ThreadPoolExecutor(8) as pool:
        runs = server.served.models.runs

        def ask(n: int) -> int:
            if n % 2:
                return server.ask("POST", "/translate", ASKED)[0]
            return server.ask("POST", "/v1/completions", {"model": "writer", "prompt": "the cat"})[0]

        assert [ask(0), ask(1), ask(0)] == [200] * 3
        assert not runs["translator"].worker and runs["writer"].worker
        assert list(pool.map(ask, range(12))) == [200] * 12
        assert sum(bool(run.worker) for run in runs.values()) == 1
        assert any("unloaded" in line for line in server.log)
        # Whoever waited for a run is answered before it leaves: it is not loaded more often than it is asked.
        assert sum(line.startswith("loaded") for line in server.log) <= 2 + 3 + 12


@pytest.mark.parametrize("what", ["tokenizer", "device"])
def test_who_cannot_answer_is_not_ready_and_tells_no_path(tmp_path: Path, what: str) -> None:
    """Told in the log, in words; outside nothing of where files lie. What comes back is found to work."""
    (run,) = make_runs(tmp_path, "translator")
    lost, how = run / "tokenizer.json", {"device": "cuda:77"} if what == "device" else {}
    kept = lost.read_bytes()
    if what == "tokenizer":
        lost.unlink()
    with running([run], ready=False, **how) as server:
        assert server.ask("GET", "/readyz")[0] == 503 and server.ask("GET", "/livez")[0] == 200
        until(lambda: any("translator cannot answer: " in line for line in server.log))
        assert server.ask("GET", "/readyz")[0] == 503
        for path, body in (("/translate", ASKED), ("/v1/completions", {"model": "translator", "prompt": "a"})):
            status, _, body = server.ask("POST", path, body)
            assert status == 500 and str(tmp_path) not in str(body) and "cannot answer" in str(body)
        if what == "tokenizer":
            assert any(str(lost) in line for line in server.log)
            lost.write_bytes(kept)
            until(lambda: server.ask("GET", "/readyz")[0] == 200, 60)
            assert server.post("/translate", ASKED)


def test_a_thread_that_hangs_keeps_no_server_alive(tmp_path: Path) -> None:
    """It ends in good order, and with exit code 0. Broken variant: asyncio waits for its threads, for ever."""
    (run,) = make_runs(tmp_path, "translator")
    run_program("hanging_server", run, timeout=120)


def test_weights_that_are_gone_tell_no_path(tmp_path: Path) -> None:
    first, second = make_runs(tmp_path, "translator", "writer")
    with running([first, second]) as server:
        server.served.models.unload(server.served.models.runs["writer"])
        shutil.rmtree(second / "final")
        status, _, body = server.ask("POST", "/v1/completions", {"model": "writer", "prompt": "a"})
        assert status == 500 and str(tmp_path) not in str(body)
        until(lambda: server.ask("GET", "/readyz")[0] == 503)
        assert server.post("/translate", ASKED)


def test_a_device_that_goes_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run whose every request fails is tried, found not to work and not ready; one text that fails is no reason for that."""
    (run,) = make_runs(tmp_path, "translator")
    prefill, gone = ModelStepper.prefill, [False]

    def breaks(self: Any, start: int, jobs: Any, texts: Any, *rest: Any) -> None:
        if gone[0] or any(len(text) > 30 for text in texts):
            raise RuntimeError("no device")
        prefill(self, start, jobs, texts, *rest)

    monkeypatch.setattr(ModelStepper, "prefill", breaks)
    with running([run]) as server:
        worker = server.worker("translator")
        assert server.ask("POST", "/translate", {**ASKED, "q": "a long text that fails by itself"})[0] == 500
        until(lambda: server.served.models.runs["translator"].failures_seen == 1)
        assert server.ask("GET", "/readyz")[0] == 200 and server.worker("translator") is worker
        gone[0] = True
        assert server.ask("POST", "/translate", ASKED)[0] == 500
        until(lambda: server.ask("GET", "/readyz")[0] == 503)
        gone[0] = False
        until(lambda: server.ask("GET", "/readyz")[0] == 200)
        assert server.post("/translate", ASKED)


def test_what_is_told_outside_names_no_file() -> None:
    for name in ("/home/anna/runs/x/tokenizer.json", "C:\\runs\\x", "/srv/run"):
        assert name not in as_api_error(UserError(f"{name} cannot be read: no such file")).message
    assert as_api_error(UserError("km/h is no word of http://a/b")).message == "km/h is no word of http://a/b"


def test_newer_weights_are_picked_up_and_no_request_is_dropped(tmp_path: Path) -> None:
    (old,) = make_runs(tmp_path / "old", "translator", seed=1)
    (new,) = make_runs(tmp_path / "new", "translator", seed=2)
    wanted = [str(glassformer.load(run, device="cpu").translate(ASKED["q"])) for run in (old, new)]
    assert wanted[0] != wanted[1]
    with running([old]) as server, ThreadPoolExecutor(4) as pool:
        server.post("/translate", ASKED)
        first = server.worker("translator")
        with held_up(lambda driver: driver.model is first.model.model) as go:
            held = [pool.submit(server.post, "/translate", ASKED) for _ in range(3)]
            until(lambda: first.held == 3)
            replace_weights(old, new)
            until(lambda: server.post("/translate", ASKED)["translatedText"] == wanted[1] if first._closing else False)
            go.set()
            assert {one.result()["translatedText"] for one in held} == {wanted[0]}
        assert server.worker("translator") is not first
        until(lambda: not first.thread.is_alive())
        # Weights that cannot be read leave the good ones in place.
        (old / "final" / "model.safetensors").write_bytes(b"no weights")
        os.utime(old / "final" / "SEAL")
        until(lambda: any("cannot be used" in line for line in server.log))
        assert server.post("/translate", ASKED)["translatedText"] == wanted[1]
        assert server.check_books().get("failed", 0) == 0


def replace_weights(old: Path, new: Path) -> None:
    """As a training that ends does it: written beside, then renamed. (The other run's name is taken out of them.)"""
    from glassformer.runs.checkpoint import read_checkpoint, write_checkpoint

    tensors, state = read_checkpoint(new / "final")
    state.pop("run", None)
    write_checkpoint(old / "fresh", tensors, state)
    shutil.move(old / "final", old / "gone")
    shutil.move(old / "fresh", old / "final")
