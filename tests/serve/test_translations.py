"""The options of a search over HTTP, and the words that a vocabulary does not have."""

from __future__ import annotations

from typing import Any

import pytest

from glassformer import tasks
from tests.serve.harness import BOUNDARY, Running, events_of, form_of
from tests.serve.test_trust import ASKED

pytestmark = pytest.mark.slow


def test_options_of_the_search(server: Running, translator: Any) -> None:
    """A list in one request is answered in its order, alternatives are its n best with their scores."""
    texts = ["the cat sat on the mat.", "a dog & a cat?"]
    asked = {**ASKED, "q": texts, "alternatives": 2, "num_beams": 5, "length_penalty": 1.5, "scores": True}
    found = server.post("/translate", asked)
    for at, expected in enumerate(tasks.translate(translator, texts, n_best=3, beam=5, alpha=1.5)):
        assert [found["translatedText"][at], *found["alternatives"][at]] == [answer.text for answer in expected]
        scores = [score["score"] for score in found["scores"][at]]
        assert scores == pytest.approx([answer.score for answer in expected], abs=1e-4)


def test_translations_that_are_drawn(server: Running) -> None:
    asked = {**ASKED, "q": "the cat", "temperature": 1.0, "top_k": 20, "alternatives": 3, "seed": 3, "max_tokens": 9}
    first, second = (server.post("/translate", asked) for _ in range(2))
    assert first == second and len({first["translatedText"], *first["alternatives"]}) > 1
    others = [server.post("/translate", {**asked, "seed": None}) for _ in range(2)]
    assert others[0] != others[1]


@pytest.mark.parametrize(
    ("asked", "word"),
    [
        ({"num_beams": 10**6}, "num_beams"),
        ({"top_p": 0.5}, "top_p"),
        ({"temperature": 1, "num_beams": 4}, "beam"),
        ({"temperature": 3}, "temperature"),
        ({"q": ["a", "b"], "stream": True}, "stream"),
        ({"num_beams": 3, "stream": True}, "stream"),
    ],
)
def test_translations_refused(server: Running, asked: dict[str, Any], word: str) -> None:
    status, _, body = server.ask("POST", "/translate", {**ASKED, **asked})
    assert status == 400 and word in body["error"]


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
