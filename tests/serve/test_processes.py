"""One server in several processes: they answer what one would, share what must be shared, and start and end as one."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

import glassformer
from glassformer.serve.limits import Limits
from glassformer.serve.processes import share_of
from tests.commands import call
from tests.serve.harness import make_runs, until

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
ASKED = {"q": "the cat sat on the mat.", "source": "en", "target": "de"}


class Program:
    """`glassformer serve --processes 2` as a person starts it."""

    def __init__(self, run: Path, *more: str) -> None:
        command = [
            sys.executable,
            "-m",
            "glassformer",
            "serve",
            str(run),
            "--port",
            "0",
            "--device",
            "cpu",
            "--processes",
            "2",
        ]
        self.process = subprocess.Popen([*command, *more], stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
        self.said: list[str] = []
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said.append(line)
            if listening := re.search(r"listening on http://127.0.0.1:(\d+), in 2 processes", line):
                self.port = int(listening[1])
                break
        else:
            raise AssertionError("".join(self.said))
        threading.Thread(target=lambda: self.said.extend(self.process.stderr or ()), daemon=True).start()

    def members(self) -> list[psutil.Process]:
        """The processes that serve: all children but multiprocessing's own."""
        found = []
        for child in psutil.Process(self.process.pid).children(recursive=True):
            with suppress(psutil.Error):  # it is gone meanwhile, or dead and not yet buried
                found += [child] if "spawn_main" in " ".join(child.cmdline()) else []
        return found

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, bytes]:
        """A request over a connection of its own, which any of the processes may take."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def translate(self) -> Any:
        status, content = self.ask(
            "POST", "/translate", json.dumps(ASKED).encode(), **{"Content-Type": "application/json"}
        )
        assert status == 200, content
        return json.loads(content)["translatedText"]

    def is_ready(self) -> bool:
        """Does whoever answers say so, several times?"""
        return all(self.ask("GET", "/readyz")[0] == 200 for _ in range(8))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_runs(tmp_path_factory.mktemp("runs"), "translator")[0]


@pytest.fixture(scope="module")
def program(run: Path) -> Iterator[Program]:
    program = Program(run)
    until(program.is_ready, 60)
    yield program
    program.process.kill()


def test_they_answer_share_and_outlive_one_another(program: Program, run: Path) -> None:
    """Caught: a file that only the process which translated it knows of; counters of one process alone; a dead one that stays
    dead."""
    model = glassformer.load(run, device="cpu")
    expected = model.translate(ASKED["q"])
    assert {program.translate() for _ in range(20)} == {expected}

    parts = {'name="source"': "en", 'name="target"': "de", 'name="file"; filename="a.txt"': ASKED["q"]}
    lines = [f"--xyz\r\nContent-Disposition: form-data; {name}\r\n\r\n{value}\r\n" for name, value in parts.items()]
    body, kind = "".join([*lines, "--xyz--\r\n"]).encode(), "multipart/form-data; boundary=xyz"
    status, content = program.ask("POST", "/translate_file", body, **{"Content-Type": kind})
    assert status == 200, content
    address = "/download_file/" + json.loads(content)["translatedFileUrl"].rsplit("/", 1)[1]
    assert {program.ask("GET", address) for _ in range(12)} == {(200, expected.encode() + b"\n")}

    counted = program.ask("GET", "/metrics")[1].decode()
    received = re.search(r'glassformer_requests_received_total\{route="/translate"\} ([\d.]+)', counted)
    assert received and float(received[1]) == 20

    before = program.members()
    assert len(before) == 2
    before[0].kill()
    until(lambda: len([p for p in program.members() if p.is_running()]) == 2 and before[0] not in program.members(), 30)
    until(program.is_ready, 60)
    assert any("started again" in line for line in program.said)
    assert {program.translate() for _ in range(8)} == {expected}


def test_a_signal_ends_all_in_good_order(program: Program) -> None:
    members = program.members()
    program.process.send_signal(signal.SIGTERM)
    assert program.process.wait(40) == 0, program.said[-5:]
    assert not [one for one in members if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]


def test_without_the_first_process_none_goes_on(run: Path) -> None:
    program = Program(run)
    members = program.members()
    program.process.kill()
    until(lambda: not any(one.is_running() and one.status() != psutil.STATUS_ZOMBIE for one in members), 40)


def test_limits_are_those_of_all_together() -> None:
    assert share_of(Limits(queue=100, connections=1024, memory=None), 8).queue == 13
    assert share_of(Limits(memory=1000), 4).memory == 250


def test_what_cannot_be_is_refused(run: Path) -> None:
    def refused(*words: str) -> str:
        done = call("serve", run, "--device", "cpu", *words)
        assert done.returncode == 2 and "Traceback" not in done.stderr, done.stderr
        return done.stderr

    assert "--learn is for one process" in refused("--processes", "2", "--learn")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert "taken by another program" in refused("--processes", "2", "--port", str(taken.getsockname()[1]))
    assert "1 process or more" in refused("--processes", "0")
