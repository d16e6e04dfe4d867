"""Connections: bounded in number, and closed when nothing comes of them."""

from __future__ import annotations

import resource
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from glassformer.serve.requests import Limits
from glassformer.serve.server import allow_connections
from tests.serve.harness import running, until
from tests.serve.test_trust import ASKED

pytestmark = pytest.mark.slow


@contextmanager
def crowd(port: int, count: int, said: bytes) -> Iterator[list[socket.socket]]:
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


@pytest.mark.parametrize("said", [b"", b"GET /livez HT", b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"])
def test_silence_ends(paths: list[Path], said: bytes) -> None:
    """Of those who say nothing, half a head, or a request and then nothing more; and then others are answered. Broken variant:
    uvicorn's own patience, which begins after the first answer."""
    with running(paths[:1], Limits(connections=10, read_seconds=0.5)) as server, crowd(server.port, 12, said):
        until(lambda: server.ask("POST", "/translate", ASKED)[0] == 200, 9)
        until(lambda: not server.server.server_state.connections, 9)


def test_one_too_many_is_told(paths: list[Path]) -> None:
    with running(paths[:1], Limits(connections=5, read_seconds=60.0)) as server, crowd(server.port, 6, b""):
        until(lambda: len(server.server.server_state.connections) == 6)
        assert server.ask("GET", "/livez")[0] == 503


def test_the_limit_of_open_files_is_raised_where_it_may_be() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(400, hard), hard))
        allow_connections(500)
        now = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        assert 500 < now <= hard or now == hard
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
