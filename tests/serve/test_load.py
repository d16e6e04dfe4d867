"""Abuse on loopback: requests made from the schema and by hand, and memory that stays flat. A sample in `make test`; full counts
in `make soak`."""

from __future__ import annotations

import gc
import itertools
import json
import os
import random
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import content_type_conformance, status_code_conformance

from glassformer.serve.requests import Limits
from tests.counts import count
from tests.serve.harness import Running, running
from tests.serve.test_trust import ASKED

pytestmark = pytest.mark.slow

SOAK = bool(os.environ.get("GLASSFORMER_SOAK"))


@pytest.fixture(scope="module")
def server(paths: list[Path]) -> Iterator[Running]:
    with running(paths, Limits(text=2000, new_tokens=64, seconds=20.0)) as found:
        yield found


# ---- requests from the schema


def test_requests_made_from_the_schema(server: Running) -> None:
    """Of every route: no crash, no unhandled error, only statuses and types that the schema names."""
    schema = schemathesis.openapi.from_url(server.address + "/openapi.json")
    each = count(fast=6, soak=700)
    made = itertools.count()

    for result in schema.get_all_operations():
        operation = result.ok()

        @settings(
            max_examples=each, deadline=None, database=None, derandomize=not SOAK, phases=[Phase.explicit, Phase.generate],
            suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        @__import__("hypothesis").given(case=operation.as_strategy())
        def one(case: Any) -> None:
            next(made)
            response = case.call(timeout=30)
            case.validate_response(
                response, checks=(not_a_server_error, status_code_conformance, content_type_conformance)
            )

        one()
    assert next(made) >= 10 * min(each, 2)
    books = server.check_books()
    print(f"{books['received']:.0f} requests, {books}")
    assert not books.get("failed"), [line for line in server.log if "failed" in line][:5]


# ---- by hand


EXTREMES: list[Any] = [
    {**ASKED, "q": "\ud800"},
    {**ASKED, "q": "a" * 1999},
    {**ASKED, "q": " \n\t" * 500},
    {**ASKED, "q": "\u202e\u0301" * 300},
    {**ASKED, "q": "😀" * 400},
    {**ASKED, "q": ["", " ", "\n", "a\nb\n\nc"]},
    {**ASKED, "q": []},
    {**ASKED, "q": [[]]},
    {**ASKED, "q": {"a": 1}},
    {**ASKED, "alternatives": 10**30},
    {**ASKED, "alternatives": 1e400},
    {**ASKED, "alternatives": True},
    {**ASKED, "glossary": {"cat": ""}},
    {**ASKED, "glossary": {"": "dog"}},
    {**ASKED, "glossary": {"cat": "\0"}},
    {**ASKED, "glossary": {f"cat{n}": "dog" for n in range(101)}},
    {**ASKED, "glossary": "[1]"},
    {**ASKED, "source": "x" * 21},
    {**ASKED, "target": None},
    {**ASKED, "model": "../../etc/passwd"},
    {**ASKED, "format": "html", "q": "<" * 1000},
    {**ASKED, "format": "html", "q": "<script>" + "a" * 500},
    {**ASKED, "format": "html", "q": "<!--" * 300, "alternatives": 3},
]
WRITTEN: list[Any] = [
    {"prompt": "a" * 1999, "max_tokens": 3},
    {"prompt": "", "max_tokens": 0, "echo": True, "logprobs": 3},
    {"prompt": [[]], "max_tokens": 2, "logprobs": 0, "echo": True},
    {"prompt": [[], [5]], "max_tokens": 2},
    {"prompt": [0, 1, 2, 3], "max_tokens": 2, "logprobs": 20},
    {"prompt": [-1]},
    {"prompt": [2**70]},
    {"prompt": [5.5]},
    {"prompt": [True]},
    {"prompt": ["a", 5]},
    {"prompt": "a", "seed": -(2**63), "max_tokens": 2},
    {"prompt": "a", "temperature": 1e-9, "max_tokens": 2},
    {"prompt": "a", "temperature": 2, "top_p": 1e-12, "max_tokens": 2},
    {"prompt": "a", "stop": [""]},
    {"prompt": "a", "stop": ["\ufffd"], "max_tokens": 4},
    {"prompt": "a", "n": 16, "max_tokens": 2, "stream": True},
]


def test_extremes_made_by_hand(server: Running) -> None:
    for body in EXTREMES:
        status, _, found = server.ask(
            "POST", "/translate", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        assert status in (200, 400, 404), (body, status, found)
        assert status == 200 or (isinstance(found["error"], str) and found["error"]), (body, found)
    for body in WRITTEN:
        asked = json.dumps({"model": "writer", **body}).encode()
        status, _, found = server.ask("POST", "/v1/completions", asked, {"Content-Type": "application/json"})
        assert status in (200, 400), (body, status, found)
        assert status == 200 or set(found["error"]) == {"message", "type", "param", "code"}
    deep = b'{"q":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    for raw in (deep, b'{"q": NaN}', b"\x00" * 100, b'{"q":"\\ud800"}', b'{"q": 1' + b"0" * 5000 + b"}"):
        assert server.ask("POST", "/translate", raw, {"Content-Type": "application/json"})[0] == 400
    assert not server.check_books().get("failed")


RAW = [
    b"\r\n\r\n",
    b"GET / HTTP/1.1\r\n\r\n",
    b"GET / HTTP/9.9\r\nHost: localhost\r\n\r\n",
    b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * 20_000 + b"\r\n",
    b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
    b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999999999999999\r\n\r\n",
    b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"POST /translate HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n",
    b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
    b"GET /%00%ff%2e%2e/ HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET /page/..%2f..%2fapp.py HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
]


def test_what_is_not_http_or_hardly(server: Running) -> None:
    draw = random.Random(0)
    for raw in [*RAW, *(draw.randbytes(draw.randrange(1, 300)) for _ in range(count(fast=20, soak=2000)))]:
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            connection.settimeout(5)
            try:
                connection.sendall(raw)
                connection.shutdown(socket.SHUT_WR)
                answer = connection.recv(100)
            except (OSError, TimeoutError):
                answer = b""
            assert b" 500 " not in answer and b"root:" not in answer, raw[:60]
    assert server.ask("GET", "/readyz")[0] == 200
    assert not server.check_books().get("failed")


# ---- memory


def test_memory_stays_flat(server: Running) -> None:
    """Ten minutes in `make soak`, some seconds here: what is held after the second half is what was held after the first."""
    failed = server.books().get("failed", 0)
    draw, process = random.Random(1), psutil.Process()
    seconds = 600.0 if SOAK else 4.0
    stop, statuses = threading.Event(), Counter[int]()

    def ask(path: str, body: Any) -> None:
        statuses[server.ask("POST", path, body)[0]] += 1

    def client(seed: int) -> None:
        own = random.Random(seed)
        while not stop.is_set():
            kind = own.randrange(4)
            if kind == 0:
                ask("/translate", {**ASKED, "q": "the cat sat. " * own.randrange(1, 12)})
            elif kind == 1:
                asked = {
                    "model": "writer",
                    "prompt": "the cat",
                    "max_tokens": own.randrange(1, 30),
                    "seed": own.randrange(99),
                }
                ask("/v1/completions", asked)
            elif kind == 2:
                ask("/translate", {**ASKED, "q": 5})
            else:
                raw = socket.create_connection(("127.0.0.1", server.port))
                body = json.dumps(ASKED).encode()
                raw.sendall(
                    b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
                )
                raw.close()

    threads = [threading.Thread(target=client, args=(draw.randrange(10**6),), daemon=True) for _ in range(6)]
    for thread in threads:
        thread.start()
    time.sleep(seconds / 2)
    server.log.clear()
    gc.collect()
    half = process.memory_info().rss
    time.sleep(seconds / 2)
    stop.set()
    for thread in threads:
        thread.join(60)
    server.log.clear()
    gc.collect()
    grown = process.memory_info().rss - half
    books = server.check_books()
    print(f"{grown / 2**20:.1f} MiB more in the second half; {books}, {dict(statuses)}")
    assert grown < 64 << 20, f"{grown / 2**20:.0f} MiB more"
    assert set(statuses) <= {200, 400, 504}  # on a machine that is very busy an answer may come too late
    assert books.get("failed", 0) - failed == statuses[504]
