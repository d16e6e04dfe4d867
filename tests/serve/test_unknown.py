"""Words and characters that a vocabulary does not have are told in every kind of answer, and nothing is where there are none."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.serve.harness import Running, make_runs, running
from tests.serve.test_rows import MULTIPART
from tests.serve.test_trust import ASKED

pytestmark = pytest.mark.slow

LOST = "the Ω cat Ω 你"  # of these letters the runs know none but those of `the cat`


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(make_runs(tmp_path_factory.mktemp("runs"), "translator", "writer")) as found:
        yield found


def events(body: bytes) -> list[Any]:
    return [json.loads(line[6:]) for line in body.decode().split("\n\n") if line.startswith("data: {")]


def test_translations(server: Running) -> None:
    def told(**changes: Any) -> Any:
        return server.post("/translate", {**ASKED, **changes}).get("unknown")

    assert told() is None and told(q=["the cat", "a dog"]) is None
    assert told(q=LOST) == ["Ω", "你"] and told(q="the\ncat Ω") == ["Ω"]
    assert told(q=["the cat", LOST, "Ω"]) == [[], ["Ω", "你"], ["Ω"]]
    assert told(q="<b>Ω</b> the <i>你 Ω</i>", format="html") == ["Ω", "你"]
    assert told(q=["<b>a</b>", "<i>Ω</i>"], format="html") == [[], ["Ω"]]
    for text, wanted in ((LOST, ["Ω", "你"]), ("the cat", None)):
        streamed = events(server.ask("POST", "/translate", {**ASKED, "q": text, "stream": True})[2])
        assert streamed[-1].get("unknown") == wanted
        fields = {"source": ("en", ""), "target": ("de", ""), "file": (f"a\n{text}\n", '; filename="a.txt"')}
        form = "".join(
            f'--b\r\nContent-Disposition: form-data; name="{k}"{x}\r\n\r\n{v}\r\n' for k, (v, x) in fields.items()
        )
        found = server.ask("POST", "/translate_file", (form + "--b--\r\n").encode(), MULTIPART)[2]
        assert found.get("unknown") == wanted


@pytest.mark.parametrize("model", ["writer", "translator"])
def test_completions_and_chats(server: Running, model: str) -> None:
    for path, asked in (
        ("completions", lambda text: {"prompt": text}),
        ("chat/completions", lambda text: {"messages": [{"role": "user", "content": text}]}),
    ):
        for text, wanted in ((LOST, ["Ω", "你"]), ("the cat", None)):
            body = {"model": model, "max_tokens": 2, **asked(text)}
            assert server.post(f"/v1/{path}", body).get("unknown") == wanted
            streamed = events(server.ask("POST", f"/v1/{path}", {**body, "stream": True})[2])
            ends = [e for e in streamed if e["choices"] and e["choices"][0]["finish_reason"]]
            assert [e.get("unknown") for e in ends] == [wanted] and not any(
                "unknown" in e for e in streamed if e not in ends
            )
