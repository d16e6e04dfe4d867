"""/v1/translations: what is answered is what the model answers, and whatever is refused is named."""

from __future__ import annotations

import json
from typing import Any

import pytest

from glassformer import tasks
from tests.serve.harness import BOUNDARY, Running, events_of, form_of
from tests.serve.test_trust import ASKED

pytestmark = pytest.mark.slow


def test_translations(server: Running, translator: Any) -> None:
    """A list in one request is answered in its order as the model answers each, alternatives as its n best, with their scores."""
    texts = ["the cat sat on the mat.", "a dog & a cat?", "the cat sat on the mat."]
    status, _, body = server.ask("POST", "/v1/translations", {"input": texts})
    assert status == 200 and [d["index"] for d in body["data"]] == [0, 1, 2]
    assert (body["model"], body["source"], body["target"]) == ("translator", "en", "de")
    assert [d["text"] for d in body["data"]] == [str(t) for t in translator.translate(texts)]
    asked = {"model": "translator", "input": texts[1], "n": 3, "num_beams": 5, "length_penalty": 1.5, "scores": True}
    (only,) = server.ask("POST", "/v1/translations", asked)[2]["data"]
    expected = tasks.translate(translator, [texts[1]], n_best=3, beam=5, alpha=1.5)[0]
    entries = [only, *only["alternatives"]]
    assert [e["text"] for e in entries] == [answer.text for answer in expected]
    assert [e["scores"]["score"] for e in entries] == pytest.approx([answer.score for answer in expected], abs=1e-4)


def test_translations_that_are_drawn(server: Running) -> None:
    asked = {"input": "the cat", "temperature": 1.0, "top_k": 20, "n": 4, "seed": 3}
    first, second = (server.ask("POST", "/v1/translations", asked)[2]["data"] for _ in range(2))
    assert first == second and len({first[0]["text"], *(e["text"] for e in first[0]["alternatives"])}) > 1
    others = [server.ask("POST", "/v1/translations", {**asked, "seed": None})[2]["data"] for _ in range(2)]
    assert others[0] != others[1]


def test_translations_streamed(server: Running, translator: Any) -> None:
    text = "the cat sat on the mat."
    body = server.ask("POST", "/v1/translations", {"input": text, "stream": True, "alignment": True})[2]
    *events, done, rest = body.decode().split("\n\n")
    assert (done, rest) == ("data: [DONE]", "")
    *chunks, last = [json.loads(event.removeprefix("data: ")) for event in events]
    written = "".join(chunk["data"][0]["delta"] for chunk in chunks)
    assert written == last["data"][0]["text"] == str(translator.translate(text, beam=1))
    assert last["data"][0]["alignment"]["parts"][0]["weights"] and last["usage"]["completion_tokens"] > 0


@pytest.mark.parametrize(
    ("asked", "param"),
    [
        ({}, "input"),
        ({"input": []}, "input"),
        ({"input": "a", "beams": 3}, "beams"),
        ({"input": "a", "num_beams": 10**6}, "num_beams"),
        ({"input": "a", "top_p": 0.5}, "top_p"),
        ({"input": "a", "temperature": 1, "num_beams": 4}, "num_beams"),
        ({"input": "a", "target": "fr"}, "target"),
        ({"input": "a", "source": "fr"}, "source"),
        ({"input": "a", "model": "writer"}, "model"),
        ({"input": ["a", "b"], "stream": True}, "stream"),
    ],
)
def test_translations_refused(server: Running, asked: dict[str, Any], param: str) -> None:
    status, _, body = server.ask("POST", "/v1/translations", asked)
    assert status == 400 and body["error"]["param"] == param and body["error"]["message"]
    assert server.ask("POST", "/v1/translations", {"input": "a", "model": "nobody"})[0] == 404


# ---- words that the vocabulary does not have are told in every kind of answer, and nothing is where there are none


LOST = "the Ω cat Ω 你"  # of these letters the runs know none but those of `the cat`


def test_unknown_words_of_translations(server: Running) -> None:
    def told(**changes: Any) -> Any:
        return server.post("/translate", {**ASKED, **changes}).get("unknown")

    assert told() is None and told(q=["the cat", "a dog"]) is None
    assert told(q=LOST) == ["Ω", "你"] and told(q="the\ncat Ω") == ["Ω"]
    assert told(q=["the cat", LOST, "Ω"]) == [[], ["Ω", "你"], ["Ω"]]
    assert told(q="<b>Ω</b> the <i>你 Ω</i>", format="html") == ["Ω", "你"]
    assert told(q=["<b>a</b>", "<i>Ω</i>"], format="html") == [[], ["Ω"]]
    for text, wanted in ((LOST, ["Ω", "你"]), ("the cat", None)):
        streamed = events_of(server.ask("POST", "/translate", {**ASKED, "q": text, "stream": True})[2])
        assert streamed[-1].get("unknown") == wanted
        form = form_of({"source": "en", "target": "de"}, ("a.txt", f"a\n{text}\n".encode()))
        found = server.ask("POST", "/translate_file", form, BOUNDARY)[2]
        assert found.get("unknown") == wanted


@pytest.mark.parametrize("model", ["writer", "translator"])
def test_unknown_words_of_completions_and_chats(server: Running, model: str) -> None:
    for path, asked in (
        ("completions", lambda text: {"prompt": text}),
        ("chat/completions", lambda text: {"messages": [{"role": "user", "content": text}]}),
    ):
        for text, wanted in ((LOST, ["Ω", "你"]), ("the cat", None)):
            body = {"model": model, "max_tokens": 2, **asked(text)}
            assert server.post(f"/v1/{path}", body).get("unknown") == wanted
            streamed = events_of(server.ask("POST", f"/v1/{path}", {**body, "stream": True})[2])
            ends = [e for e in streamed if e["choices"] and e["choices"][0]["finish_reason"]]
            assert [e.get("unknown") for e in ends] == [wanted] and not any(
                "unknown" in e for e in streamed if e not in ends
            )
