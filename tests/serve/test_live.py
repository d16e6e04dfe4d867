"""What the live page asks for: no other answer changes by it, nobody works for who has gone, and a key is asked for."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from glassformer.serve.auth import Auth
from tests.serve.harness import Running, make_runs, running

TEXT = "the cat ran"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_runs(tmp_path_factory.mktemp("live"), "translator")[0]


@pytest.fixture(scope="module")
def server(path: Path) -> Iterator[Running]:
    with running([path]) as found:
        yield found


@pytest.mark.slow
def test_cuts_and_forced_tokens_are_their_askers_alone(server: Running, path: Path) -> None:
    """While one cuts and forces, others are answered as ever. Broken variant: a cut that outlives its request."""
    asked = {"q": TEXT, "source": "en", "target": "de"}
    look = {"model": path.name, "text": TEXT, "data": True, "explained": False}
    answer = server.post("/translate", asked)["translatedText"]
    changes: list[dict[str, Any]] = [
        {"cut": ["decoder.0.cross", "decoder.0.mlp", "decoder.0.mlp.residual"]},
        {"prefix": [9, 8]},
        {"cut": ["encoder.0.attention"], "prefix": [7]},
    ]
    changed = [server.post("/look", look | change) for change in changes]
    assert all(one["answer"] != answer for one in changed)
    seen: list[Any] = []

    def change_often() -> None:
        for change in changes * 3:
            seen.append(server.post("/look", look | change)["answer"])

    thread = threading.Thread(target=change_often)
    thread.start()
    while thread.is_alive():
        assert server.post("/translate", asked)["translatedText"] == answer
    thread.join()
    assert seen == [one["answer"] for one in changed] * 3


@pytest.mark.slow
def test_a_closed_tab_ends_its_work(server: Running, path: Path) -> None:
    """What waits in the queue for somebody who has gone is never begun; whoever comes then is answered."""
    before = server.check_books().get("cancelled", 0)
    body = json.dumps({"model": path.name, "text": TEXT, "data": True}).encode()
    left = []
    for _ in range(8):
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
        connection.request("POST", "/look", body, {"Content-Type": "application/json"})
        left.append(connection)
    for connection in left:
        connection.close()
    assert server.post("/next", {"model": path.name, "text": TEXT})["ids"]
    assert server.check_books()["cancelled"] - before >= 6  # one or two may have been under way


def test_a_key_is_needed_where_there_is_one(path: Path) -> None:
    """The page and the tour may be read by anyone, as what they show is no secret; a model is asked with the key alone."""
    with running([path], auth=Auth("a-key-of-some-length")) as locked:
        for way in ("/look", "/next"):
            body = {"model": path.name, "text": TEXT}
            assert locked.ask("POST", way, body)[0] == 403
            assert locked.ask("POST", way, body, {"Authorization": "Bearer a-key-of-some-length"})[0] == 200
        assert locked.ask("GET", f"/open/{path.name}/examples")[0] == 403
        assert locked.ask("GET", "/tour/heads")[0] == locked.ask("GET", "/open")[0] == 200
        assert locked.ask("GET", "/tour/nothing")[0] == 404
