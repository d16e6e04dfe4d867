"""What existing clients say, and what they hear: LibreTranslate's and OpenAI's own, and the errors of both."""

from __future__ import annotations

import html
import math
import re
from typing import Any
from urllib.parse import urlencode

import pytest

from glassformer import tasks
from glassformer.serve.completion import starts_of
from glassformer.text.tokenizer import Tokenizer
from tests.serve.harness import BOUNDARY, Running, events_of, form_of
from tests.talking import SENTENCES

pytestmark = pytest.mark.slow


# ---- LibreTranslate


def test_libretranslatepy(server: Running, translator: Any) -> None:
    from libretranslatepy import LibreTranslateAPI

    client = LibreTranslateAPI(server.address)
    text = "the cat sat on the mat."
    assert client.translate(text, "en", "de") == str(translator.translate(text))
    assert client.languages() == [
        {"code": "de", "name": "German", "targets": []},
        {"code": "en", "name": "English", "targets": ["de"]},
    ]
    found = client.detect("Wo ist bitte der Bahnhof, und wann fährt der nächste Zug?")
    assert found[0]["language"] == "de" and 50 < found[0]["confidence"] <= 100


def test_deep_translator(server: Running, translator: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from deep_translator import LibreTranslator

    client = LibreTranslator(source="en", target="de", api_key="none", custom_url=server.address + "/")
    assert client.translate("a dog & a cat?") == str(translator.translate("a dog & a cat?"))


@pytest.mark.parametrize("way", ["json", "form", "query", "multipart"])
def test_every_way_of_saying_it(server: Running, translator: Any, way: str) -> None:
    text = "Anna & Tom = 100%; naïve, 你好?"
    said = {"q": text, "source": "en", "target": "de", "alternatives": "2"}
    if way == "json":
        status, _, found = server.ask("POST", "/translate", {**said, "alternatives": 2})
    elif way == "form":
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        status, _, found = server.ask("POST", "/translate", urlencode(said).encode(), headers)
    elif way == "query":
        status, _, found = server.ask("POST", "/translate?" + urlencode(said))
    else:
        status, _, found = server.ask("POST", "/translate", form_of(said), BOUNDARY)
    assert status == 200, found
    wanted = translator.translate(text, n_best=3)
    assert found.pop("unknown") == list("&=%ï你好?")
    assert found == {"translatedText": wanted.texts[0], "alternatives": wanted.texts[1:]}


def test_what_is_there_only_when_asked_for(server: Running) -> None:
    """`detectedLanguage` only for auto, `alternatives` only above 0, lists for lists."""
    plain = server.post("/translate", {"q": "the cat", "source": "en", "target": "de", "alternatives": 0})
    assert set(plain) == {"translatedText"} and isinstance(plain["translatedText"], str)
    auto = server.post("/translate", {"q": ["the cat sat on the mat", ""], "source": "auto", "target": "de"})
    assert set(auto) == {"translatedText", "detectedLanguage"} and auto["translatedText"][1] == ""
    assert [one["language"] for one in auto["detectedLanguage"]] == ["en", "en"]


def test_our_own_fields(server: Running, translator: Any) -> None:
    text, glossary = "the cat sat on the mat.", {"cat": "Tom"}
    asked = {"q": text, "source": "en", "target": "de", "scores": True, "alignment": True}
    found = server.post("/translate", asked)
    wanted = tasks.translate(translator, [text], align=True)[0][0]
    assert found["translatedText"] == wanted.text
    assert math.isclose(found["scores"][0]["logprob"], wanted.logprob, abs_tol=1e-4)
    (part,) = found["alignment"]["parts"]
    assert part["sourceTokens"] == wanted.parts[0].source_tokens and part["links"] == [list(x) for x in wanted.links]
    assert all(math.isclose(sum(row), 1, abs_tol=1e-2) for row in part["weights"])
    told = server.post("/translate", {"q": text, "source": "en", "target": "de", "glossary": glossary})
    assert "Tom" in told["translatedText"] and "Tom" not in found["translatedText"]


def test_markup_keeps_its_tags(server: Running, translator: Any) -> None:
    """A sentence goes to the model whole, whatever tags are in it. Caught: one that is cut at its tags."""
    page = '<p class="x">the <b>cat</b> sat</p><script>the("cat")</script> <hr>a &lt;dog<p>42</p>'
    found = server.post("/translate", {"q": page, "source": "en", "target": "de", "format": "html"})["translatedText"]
    cat, dog = (str(translator.translate(text)) for text in ("the cat sat", "a <dog"))
    assert (
        re.sub("</?b>", "", html.unescape(found))
        == f'<p class="x">{cat}</p><script>the("cat")</script> <hr>{dog}<p>42</p>'
    )
    assert found.count("<b>") == found.count("</b>") == 1 and found.index("<b>") < found.index("</b>") < found.index(
        "</p>"
    )
    many = server.post("/translate", {"q": [page, "<i></i>", ""], "source": "en", "target": "de", "format": "html"})
    assert many["translatedText"] == [found, "<i></i>", ""]


def test_a_stream_says_what_the_answer_says(server: Running, translator: Any) -> None:
    text = " ".join(SENTENCES)
    _, headers, body = server.ask(
        "POST", "/translate", {"q": text, "source": "en", "target": "de", "stream": True, "scores": True}
    )
    assert headers["content-type"].startswith("text/event-stream")
    events = events_of(body)
    said = "".join(event["delta"] for event in events[:-1])
    assert len(events) > 10 and said == events[-1]["translatedText"] == str(translator.translate(text, beam=1))


def test_settings_of_the_frontend(server: Running) -> None:
    found = server.ask("GET", "/frontend/settings")[2]
    assert found["language"]["source"]["code"] == "en" and found["keyRequired"] is False
    assert server.ask("GET", "/health")[2] == {"status": "ok"}


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ({"source": "en", "target": "de"}, "q"),
        ({"q": "a", "source": "en"}, "missing target parameter"),
        ({"q": "a", "target": "de"}, "missing source parameter"),
        ({"q": "a", "source": "en", "target": "xx"}, "xx is not supported"),
        ({"q": "a", "source": "fr", "target": "de"}, "fr is not supported"),
        ({"q": 3, "source": "en", "target": "de"}, "q"),
        ({"q": "a", "source": "en", "target": "de", "format": "pdf"}, "format"),
        ({"q": "a", "source": "en", "target": "de", "alternatives": 99}, "at most 10"),
        ({"q": "a", "source": "en", "target": "de", "alternatives": -1}, "alternatives"),
        ({"q": "a" * 20_001, "source": "en", "target": "de"}, "20,000"),
        ({"q": ["a"] * 129, "source": "en", "target": "de"}, "128"),
        ({"q": "a\0b", "source": "en", "target": "de"}, "NUL"),
        ({"q": "a", "source": "en", "target": "de", "model": "nobody"}, "no model"),
        ({"q": "a", "source": "en", "target": "de", "model": "writer"}, "does not translate"),
        (b"{", "JSON"),
        (b"[1]", "object"),
        (b"\xff\xfe", "JSON or a form"),
    ],
)
def test_errors_of_libretranslate(server: Running, body: Any, word: str) -> None:
    status, _, found = server.ask(
        "POST", "/translate", body, {"Content-Type": "text/x" if body == b"\xff\xfe" else "application/json"}
    )
    assert status in (400, 404) and set(found) == {"error"} and word in found["error"], found
    assert "cat" not in found["error"] and "Traceback" not in found["error"]


# ---- OpenAI


@pytest.fixture(scope="module")
def client(server: Running) -> Any:
    from openai import OpenAI

    return OpenAI(base_url=server.address + "/v1", api_key="none", max_retries=0)


def test_models(client: Any) -> None:
    assert [model.id for model in client.models.list()] == ["translator", "writer"]
    assert client.models.retrieve("writer").owned_by == "glassformer"


def test_completions(client: Any, writer: Any) -> None:
    how = {"temperature": 0.7, "top_p": 0.9, "seed": 11}
    found = client.completions.create(model="writer", prompt="the cat", max_tokens=9, n=3, **how)
    wanted = tasks.generate(writer, ["the cat"], max_new_tokens=9, num_samples=3, **how)[0]
    assert [choice.text for choice in found.choices] == [answer.text for answer in wanted]
    assert found.usage.prompt_tokens == 7 and found.usage.completion_tokens == sum(len(a.ids) for a in wanted)
    greedy = client.completions.create(model="writer", prompt=["the cat", "a dog"], max_tokens=4, temperature=0, n=2)
    alone = tasks.generate(writer, ["the cat", "a dog"], max_new_tokens=4, beam=1)
    assert [c.text for c in greedy.choices] == [a[0].text for a in alone for _ in range(2)]
    assert {c.finish_reason for c in greedy.choices} <= {"stop", "length"}


def test_token_ids_and_stop(client: Any, writer: Any) -> None:
    ids = writer.tokenizer.encode("the cat")
    text = client.completions.create(model="writer", prompt=ids, max_tokens=8, temperature=0).choices[0].text
    assert (
        text == client.completions.create(model="writer", prompt="the cat", max_tokens=8, temperature=0).choices[0].text
    )
    cut = client.completions.create(model="writer", prompt="the cat", max_tokens=8, temperature=0, stop=[text[2:4]])
    assert cut.choices[0].text == text[: text.index(text[2:4])] and cut.choices[0].finish_reason == "stop"


def test_what_an_evaluation_harness_sends(client: Any, writer: Any) -> None:
    """echo, logprobs=1 and max_tokens=1: the log-probability of a continuation, and whether it is the greedy one."""
    context, continuation = "the cat", " sat"
    ids = [*writer.tokenizer.encode(context), *writer.tokenizer.encode(continuation)]
    found = client.completions.create(
        model="writer", prompt=[ids, ids[:4]], echo=True, logprobs=1, max_tokens=1, temperature=0, seed=1
    )
    own = found.choices[0].logprobs
    assert own.token_logprobs[0] is None and own.top_logprobs[0] is None
    assert own.tokens[: len(ids)] == list(context + continuation) and own.text_offset[:3] == [0, 1, 2]
    wanted = writer.score(context, continuation)
    start = len(writer.tokenizer.encode(context))
    assert own.token_logprobs[start : len(ids)] == pytest.approx(wanted.token_logprobs, abs=1e-4)
    assert len(own.tokens) <= len(ids) + 1 and all(len(top) <= 2 for top in own.top_logprobs[1:])
    assert all(top[t] == v for t, v, top in zip(own.tokens[1:], own.token_logprobs[1:], own.top_logprobs[1:]))
    assert all(v <= max(top.values()) + 1e-5 for v, top in zip(own.token_logprobs[1:], own.top_logprobs[1:]))
    nothing = client.completions.create(model="writer", prompt="the cat", echo=True, logprobs=0, max_tokens=0)
    assert nothing.choices[0].text == "the cat" and nothing.usage.completion_tokens == 0


def test_log_probabilities_of_what_stands_in_the_text(client: Any, writer: Any) -> None:
    """The drawn token is among its alternatives, nothing is told of what stands behind a stop, and offsets are those into prompt
    and completion, shown or not."""
    prompt = "the cat"
    how: dict[str, Any] = {"model": "writer", "prompt": prompt, "max_tokens": 12, "seed": 4, "temperature": 2}
    whole = client.completions.create(**how).choices[0].text
    for stop, echo in ((None, False), (None, True), (whole[5:7], False), (whole[5:7], True)):
        found = client.completions.create(**how, logprobs=2, stop=stop, echo=echo).choices[0]
        own, text = found.logprobs, prompt + found.text.removeprefix(prompt if echo else "")
        assert [text[at : at + len(t)] for at, t in zip(own.text_offset, own.tokens)] == own.tokens
        assert "".join(own.tokens) == found.text and own.text_offset[0] == (0 if echo else len(prompt))
        for token, value, top in zip(own.tokens[echo:], own.token_logprobs[echo:], own.top_logprobs[echo:]):
            assert top[token] == value and 2 <= len(top) <= 3
    ids = (
        client.completions.create(**{**how, "prompt": writer.tokenizer.encode(prompt)}, logprobs=1).choices[0].logprobs
    )
    assert ids.text_offset[0] == len(prompt)


@pytest.mark.parametrize("kind", ["char", "word", "bpe", "unigram"])
def test_where_a_token_begins(kind: str) -> None:
    """With every kind of vocabulary, a character of several tokens included: the text from there on is what follows."""
    tokenizer = Tokenizer.train(kind, [*SENTENCES, "naïve 你好"] * 3, 400)
    ids = [1, *tokenizer.encode("the cat, 你好 naïve"), 2]
    text, starts = tokenizer.decode(ids), starts_of(tokenizer, ids)
    assert starts == sorted(starts) and starts[0] == 0 and starts[-1] == len(text) and len(starts) == len(ids)
    for i, start in enumerate(starts):
        assert text[start:].strip() == tokenizer.decode(ids[i:]).strip() or "\ufffd" in tokenizer.decode(ids[i:])


def test_nothing_to_be_written(server: Running, client: Any) -> None:
    """No token may be written: an empty text, streamed or not; a translator and a chat refuse it."""
    how: dict[str, Any] = {"model": "writer", "prompt": ["the cat", "a dog"], "max_tokens": 0, "n": 2}
    found = client.completions.create(**how)
    assert [(c.text, c.finish_reason) for c in found.choices] == [("", "length")] * 4
    assert found.usage.completion_tokens == 0 < found.usage.prompt_tokens
    chunks = [c.choices[0] for c in client.completions.create(**{**how, "prompt": "the cat"}, stream=True)]
    assert [(c.index, c.text, c.finish_reason) for c in chunks] == [(0, "", "length"), (1, "", "length")]
    chat = {"messages": [{"role": "user", "content": "a"}]}
    for path, asked in (
        ("completions", how | {"model": "translator"}),
        ("chat/completions", chat | {"model": "writer"}),
    ):
        status, _, body = server.ask("POST", f"/v1/{path}", asked | {"max_tokens": 0})
        assert status == 400 and body["error"]["param"] == "max_tokens"


def test_streams_of_openai(server: Running, client: Any) -> None:
    how: dict[str, Any] = {"model": "writer", "prompt": ["the cat", "a dog"], "max_tokens": 7, "n": 2, "seed": 5}
    whole = client.completions.create(**how)
    texts = [""] * 4
    ends: dict[int, str] = {}
    for chunk in client.completions.create(**how, stream=True):
        assert chunk.usage is None
        for choice in chunk.choices:
            texts[choice.index] += choice.text
            if choice.finish_reason:
                ends[choice.index] = choice.finish_reason
    assert texts == [c.text for c in whole.choices] and [ends[i] for i in range(4)] == [
        c.finish_reason for c in whole.choices
    ]
    body = server.ask("POST", "/v1/completions", {**how, "stream": True})[2]
    assert body.endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize("temperature", [0, 1])
def test_every_choice_of_a_stream_begins_and_ends(client: Any, temperature: float) -> None:
    """Also where one text is every choice (greedy): each has its text, its end and, in a chat, its role; all of them cost."""
    how: dict[str, Any] = {"model": "writer", "max_tokens": 6, "n": 3, "seed": 7, "temperature": temperature}
    once = client.completions.create(**how, prompt="the cat")
    alone = client.completions.create(**{**how, "n": 1}, prompt="the cat")
    assert temperature or once.usage.completion_tokens == 3 * alone.usage.completion_tokens
    said: list[Any] = [{"model": "writer", "messages": [{"role": "user", "content": "the cat"}]}, {"prompt": "the cat"}]
    for asked, ask in ((said[0], client.chat.completions), (said[1], client.completions)):
        is_chat = "messages" in asked
        whole = ask.create(**how | asked).choices
        texts, ends, roles = [""] * 3, [0] * 3, [0] * 3
        for chunk in ask.create(**how | asked, stream=True):
            (own,) = chunk.choices
            texts[own.index] += (own.delta.content or "") if is_chat else own.text
            ends[own.index] += own.finish_reason is not None
            roles[own.index] += is_chat and own.delta.role == "assistant"
        assert texts == [c.message.content if is_chat else c.text for c in whole]
        assert ends == [1] * 3 and roles == [is_chat] * 3


def test_chats(client: Any, translator: Any) -> None:
    messages: Any = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "the cat sat"}]
    found = client.chat.completions.create(model="translator", messages=messages)
    assert found.choices[0].message.content == str(translator.translate("the cat sat"))
    parts = [
        c.choices[0].delta.content or ""
        for c in client.chat.completions.create(model="translator", messages=messages, stream=True)
    ]
    assert "".join(parts) == str(translator.translate("the cat sat", beam=1))


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("completions", {"prompt": "a"}, "model"),
        ("completions", {"model": "nobody", "prompt": "a"}, "model"),
        ("completions", {"model": "writer", "prompt": [99999]}, "prompt"),
        ("completions", {"model": "writer", "prompt": []}, "prompt"),
        ("completions", {"model": "writer", "prompt": "a", "n": 17}, "n"),
        ("completions", {"model": "writer", "prompt": "a", "n": 2, "best_of": 3}, "best_of"),
        ("completions", {"model": "writer", "prompt": "a", "logprobs": 21}, "logprobs"),
        ("completions", {"model": "writer", "prompt": "a", "temperature": 3}, "temperature"),
        ("completions", {"model": "writer", "prompt": "a", "max_tokens": 9999}, "max_tokens"),
        ("completions", {"model": "writer", "prompt": "a", "frequency_penalty": 1}, "frequency_penalty"),
        ("completions", {"model": "writer", "prompt": "a", "stop": ["a"] * 5}, "stop"),
        ("completions", {"model": "translator", "prompt": "a", "echo": True}, "model"),
        ("chat/completions", {"model": "writer", "messages": []}, "messages"),
        (
            "chat/completions",
            {"model": "writer", "messages": [{"role": "user", "content": "a"}], "logprobs": True},
            "logprobs",
        ),
        ("chat/completions", {"model": "writer", "messages": [{"role": "cat", "content": "a"}]}, "messages"),
    ],
)
def test_errors_of_openai(server: Running, path: str, body: Any, param: str) -> None:
    status, _, found = server.ask("POST", f"/v1/{path}", body)
    assert status in (400, 404) and set(found) == {"error"}, found
    assert set(found["error"]) == {"message", "type", "param", "code"} and found["error"]["param"] == param
    assert found["error"]["type"] == "invalid_request_error"


def test_what_is_not_there(server: Running) -> None:
    assert server.ask("GET", "/v1/nothing")[2]["error"]["type"] == "invalid_request_error"
    assert set(server.ask("GET", "/nothing")[2]) == {"error"} and server.ask("GET", "/translate")[0] == 405
    assert server.ask("GET", "/openapi.json")[2]["paths"]["/v1/completions"]
    books = server.check_books()
    assert books["rejected"] >= 3 and not books.get("failed")
