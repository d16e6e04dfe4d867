"""A real server on a loopback port, in a thread of this process, and small runs for it."""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from glassformer.serve.auth import Auth
from glassformer.serve.models import Models
from glassformer.serve.requests import Limits
from glassformer.serve.served_run import ServedRun
from glassformer.serve.server import Served, Server
from tests.talking import make_run

TRANSLATOR = {"data": {"source_languages": ["en"], "target_language": "de"}, "model": {"positions": "rotary"}}
WRITER = {"model": {"family": "gpt", "positions": "rotary"}, "data": {"task": "text"}}


def make_runs(folder: Path, *kinds: str, **changes: Any) -> list[Path]:
    """Runs that say things at random: `translator` (en to de) and `writer` (a GPT)."""
    table = {"translator": TRANSLATOR, "writer": WRITER}
    return [make_run(folder / kind, **(table[kind] | changes)) for kind in kinds]


class Running:
    """A server that answers, and how to ask it."""

    def __init__(self, served: Served, server: Server, port: int, log: list[str]) -> None:
        self.served, self.server, self.port, self.log = served, server, port, log
        self.address = f"http://127.0.0.1:{port}"

    def ask(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None, timeout: float = 120
    ) -> tuple[int, dict[str, str], Any]:
        """Status, headers and body (JSON where it is) of one request."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            given = dict(headers or {})
            if body is not None and not isinstance(body, bytes):
                body, given = json.dumps(body).encode(), {"Content-Type": "application/json", **given}
            connection.request(method, path, body, given)
            response = connection.getresponse()
            content = response.read()
            found = {name.lower(): value for name, value in response.getheaders()}
            if content and "json" in found.get("content-type", ""):
                content = json.loads(content)
            return response.status, found, content
        finally:
            connection.close()

    def post(self, path: str, body: Any, **headers: str) -> Any:
        """The JSON answer to a request that must be answered."""
        status, _, content = self.ask("POST", path, body, headers)
        assert status == 200, (status, content)
        return content

    def books(self) -> dict[str, float]:
        """The sums of what was received and what became of it."""
        text = self.ask("GET", "/metrics")[2].decode()
        found = {"received": 0.0, "in_flight": 0.0}
        for line in text.splitlines():
            if line.startswith("glassformer_requests_") and not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                key = name.split("{")[0].removeprefix("glassformer_requests_").removesuffix("_total")
                if not key.endswith("created"):
                    found[key] = found.get(key, 0) + float(value)
        return found

    def check_books(self) -> dict[str, float]:
        """The books, which must balance: at once, and with nothing in flight after a moment."""
        end = time.monotonic() + 9  # less than the server lets a connection be silent, so that none ends by that
        while time.monotonic() < end:
            books = self.books()
            ended = sum(books.get(name, 0) for name in ("completed", "rejected", "cancelled", "failed"))
            assert books["received"] == ended + books["in_flight"], books
            if not books["in_flight"]:
                return books
            time.sleep(0.02)
        raise AssertionError(f"something never ended: {books}")

    def worker(self, name: str) -> Any:
        return self.served.models.runs[name].worker


@contextmanager
def running(
    runs: Sequence[Path],
    limits: Limits | None = None,
    auth: Auth | None = None,
    *,
    ready: bool = True,
    examples: bool = False,
    watched: Sequence[Path] = (),
    **how: Any,
) -> Iterator[Running]:
    """A server, from when it is ready until the block is left."""
    started, box, log = threading.Event(), {}, []

    def live() -> None:
        async def serve() -> None:
            bounds = limits or Limits()
            models = Models(
                [ServedRun(run, to_look_at=examples) for run in runs],
                bounds,
                **({"device": "cpu", "report": log.append} | how),
            )
            served = Served(models, auth, log.append, examples=examples, watched=watched)
            server = Server(served.middleware, "127.0.0.1", 0, log.append)
            box.update(served=served, server=server)
            task = asyncio.ensure_future(server._serve())
            while not server.started and not task.done():
                await asyncio.sleep(0.005)
            if server.started:
                box["port"] = server.servers[0].sockets[0].getsockname()[1]
            while ready and not served.models.ready() and not task.done() and not any("cannot" in one for one in log):
                await asyncio.sleep(0.005)
            started.set()
            await task
            models.close()
            served.close()

        try:
            asyncio.run(serve())
        except BaseException as error:
            box["error"] = error
        finally:
            started.set()

    thread = threading.Thread(target=live, daemon=True)
    thread.start()
    assert started.wait(120)
    if "error" in box:
        raise box["error"]
    try:
        yield Running(box["served"], box["server"], box["port"], log)
    finally:
        box["server"].should_exit = True
        thread.join(120)
        assert not thread.is_alive()


BOUNDARY = {"Content-Type": "multipart/form-data; boundary=b"}


def form_of(fields: dict[str, str], file: tuple[str, bytes] | None = None) -> bytes:
    """The body of a multipart form with the boundary of BOUNDARY; `file`: its name and content."""
    parts = [(f'name="{name}"', value.encode()) for name, value in fields.items()]
    if file is not None:
        parts.append((f'name="file"; filename="{file[0]}"', file[1]))
    head = b"--b\r\nContent-Disposition: form-data; "
    return b"".join(head + about.encode() + b"\r\n\r\n" + value + b"\r\n" for about, value in parts) + b"--b--\r\n"


def events_of(body: bytes) -> list[Any]:
    """The server-sent events of a response, without the [DONE] of OpenAI's."""
    return [json.loads(line[6:]) for line in body.decode().split("\n\n") if line.startswith("data: {")]


def until(what: Callable[[], Any], seconds: float = 30) -> Any:
    """The first true value of it."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := what():
            return found
        time.sleep(0.005)
    raise AssertionError("it never came to be")


def begin(server: Running, body: Any, path: str = "/translate") -> http.client.HTTPConnection:
    """A request that is sent, and whose answer nobody has read yet."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.request("POST", path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    return connection


def finish(connection: http.client.HTTPConnection) -> tuple[int, dict[str, str], Any]:
    response = connection.getresponse()
    content = json.loads(response.read())
    connection.close()
    return response.status, {k.lower(): v for k, v in response.getheaders()}, content
