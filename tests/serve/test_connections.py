"""Connections: bounded in number, and whoever is silent keeps nobody out, the probes least of all."""

from __future__ import annotations

import resource
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from glassformer.serve.requests import Limits
from glassformer.serve.server import SPARE, connections_that_fit
from tests.serve.harness import Running, running, until
from tests.serve.test_lifecycle import Command
from tests.serve.test_trust import ASKED

pytestmark = pytest.mark.slow

SLOW_BODY = b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50\r\n\r\n"


@contextmanager
def crowd(port: int, count: int, said: bytes = b"") -> Iterator[list[socket.socket]]:
    """So many connections that say this and then nothing more."""
    found = []
    try:
        for _ in range(count):
            found.append(socket.create_connection(("127.0.0.1", port), timeout=30))
            found[-1].sendall(said)
        yield found
    finally:
        for one in found:
            one.close()


def probes(server: Running) -> set[int]:
    return {server.ask("GET", path, timeout=30)[0] for path in ("/livez", "/readyz", "/health") for _ in range(3)}


@pytest.mark.parametrize("said", [b"", b"GET /livez HT", b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"])
def test_who_is_silent_makes_way(paths: list[Path], said: bytes) -> None:
    """Three times as many as may be, who say nothing, half a head, or a request and then nothing more: whoever comes is let in,
    probe or not, and there are never more than may be."""
    with running(paths[:1], Limits(connections=20, read_seconds=60.0)) as server, crowd(server.port, 60, said):
        there = server.server.server_state.connections
        assert probes(server) == {200} and server.post("/translate", ASKED)
        until(lambda: len(there) <= 20)


def test_silence_ends(paths: list[Path]) -> None:
    with running(paths[:1], Limits(connections=20, read_seconds=0.3)) as server, crowd(server.port, 10):
        until(lambda: not server.server.server_state.connections, 9)


def test_where_all_are_busy_probes_are_answered(paths: list[Path]) -> None:
    """As many as may be are in the middle of their requests: a few places are left, for probes alone."""
    with (
        running(paths[:1], Limits(connections=20, read_seconds=60.0)) as server,
        crowd(server.port, 20, SLOW_BODY) as many,
    ):
        until(lambda: server.served.middleware.in_flight == 20)
        assert probes(server) == {200}
        for path, kind in (("/translate", str), ("/v1/completions", dict)):
            status, headers, body = server.ask("POST", path, ASKED)
            assert status == 503 and isinstance(body["error"], kind) and "retry-after" in headers
        with crowd(server.port, 3 * SPARE):  # and who sits down in these makes way, too
            assert probes(server) == {200}
        for one in many:
            one.sendall(b"x" * 50)
            assert b" 400 " in one.recv(100)
        until(lambda: server.ask("POST", "/translate", ASKED)[0] == 200)
        server.check_books()


def test_few_open_files(paths: list[Path]) -> None:
    """More connections than the system lets the process have files open, which cannot be raised."""
    command = Command(paths[0], "--limit", "read_seconds=60", files=220)
    try:
        until(lambda: command.server.ask("GET", "/readyz", timeout=30)[0] == 200)
        with crowd(command.server.port, 260):
            assert probes(command.server) == {200}
            assert command.server.ask("POST", "/translate", ASKED, timeout=30)[0] == 200
        assert any("connections at a time" in line for line in command.lines)
    finally:
        command.process.kill()


def test_the_limit_of_open_files_is_raised_where_it_may_be() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(400, hard), hard))
        wanted, backlog = connections_that_fit(500)
        now = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        assert wanted + backlog + SPARE < now <= hard and (wanted == 500 or now == hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
