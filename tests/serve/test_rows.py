"""Requests of very many rows: bounded after cutting, made in slices, with settings made once, so that nobody else waits."""

from __future__ import annotations

import http.client
import random
import re
import typing
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import glassformer
from glassformer.config import DecodeConfig
from glassformer.decode import split_text
from glassformer.serve.requests import Limits
from glassformer.tasks import decode_settings
from tests.serve.harness import BOUNDARY, Running, events_of, form_of, running, until
from tests.serve.test_trust import ASKED

pytestmark = pytest.mark.slow


def file_of(lines: int) -> bytes:
    """The body of a request to translate a file of so many short lines."""
    return form_of({"source": "en", "target": "de"}, ("a.txt", "\n".join("ab"[n % 2] for n in range(lines)).encode()))


@pytest.fixture(scope="module")
def server(paths: list[Path]) -> Iterator[Running]:
    with running(paths, Limits(rows=50)) as found:
        yield found


@pytest.mark.parametrize("way", ["file", "html", "lines", "sentences"])
def test_rows_are_bounded_after_cutting(server: Running, way: str) -> None:
    """However they come about: lines of a file, fragments of markup, lines or sentences of a text."""

    def ask(count: int) -> tuple[int, Any]:
        if way == "file":
            return server.ask("POST", "/translate_file", file_of(count), BOUNDARY)[::2]
        text = {"html": "<p>a</p>" * count, "lines": "a\n" * count, "sentences": "The cat sat on it. " * count}[way]
        return server.ask("POST", "/translate", {**ASKED, "q": text, "format": "html" if way == "html" else "text"})[
            ::2
        ]

    assert ask(50)[0] == 200
    status, body = ask(51 if way != "sentences" else 500)
    assert status == 400 and "50 lines or sentences" in body["error"]
    until(lambda: not server.worker("translator").held)
    assert not server.worker("translator")._rows and not server.worker("translator")._waiting


def test_completions_are_rows_too(server: Running) -> None:
    asked = {"model": "writer", "max_tokens": 1, "n": 10}
    assert server.ask("POST", "/v1/completions", {**asked, "prompt": ["a"] * 5})[0] == 200
    status, _, body = server.ask("POST", "/v1/completions", {**asked, "prompt": ["a"] * 6})
    assert status == 400 and "50" in body["error"]["message"]


def test_a_server_that_makes_very_many_rows_lives_and_looks_who_has_gone(paths: list[Path]) -> None:
    """20,000 lines: while they are made, probes say yes and others are answered; when the client goes, no more are made."""
    limits = Limits(rows=20_000, dead_seconds=5.0, hung_seconds=5.0)
    with running(paths[:1], limits) as server:
        server.post("/translate", ASKED)
        worker = server.worker("translator")
        for leaves_early in (False, True):
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
            connection.request("POST", "/translate_file", file_of(20_000), BOUNDARY)
            (job,) = until(lambda: list(worker._jobs.values()))
            until(lambda: job.where)  # noqa: B023
            if not leaves_early:
                assert server.ask("POST", "/translate", ASKED)[0] == 200
                assert len(job.where) < 20_000 or job.pending_rows > 1
                while len(job.where) < 20_000:
                    assert server.ask("GET", "/livez")[0] == server.ask("GET", "/readyz")[0] == 200
            connection.close()
            until(lambda: worker.held == 0)
            assert not worker._waiting and not worker._rows and not worker._chores
            assert not leaves_early or len(job.where) < 20_000
        server.check_books()


def test_settings_are_made_once(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many rows a request has, and requests there are. Caught: settings that are checked anew with every request, which
    takes longer than to make its rows."""
    made, check = [0], DecodeConfig.__post_init__

    def counted(self: DecodeConfig) -> None:
        made[0] += 1
        check(self)

    monkeypatch.setattr(DecodeConfig, "__post_init__", counted)
    counts = []
    for alternatives, rows in ((7, 1), (7, 40), (7, 1), (8, 1)):
        made[0] = 0
        server.post("/translate", {**ASKED, "q": "a\n" * rows, "alternatives": alternatives})
        counts.append(made[0])
    assert counts[0] > 0 and counts[1:] == [0, 0, counts[0]]


def test_types_of_settings_are_read_once(paths: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    model = glassformer.load(paths[0], device="cpu")
    decode_settings(model, None, beam=2)
    monkeypatch.setattr(typing, "get_type_hints", lambda *_: pytest.fail("read again"))
    assert decode_settings(model, None, beam=3).beam == 3


def test_a_stream_of_many_lines_says_what_the_answer_says(server: Running, paths: list[Path]) -> None:
    model = glassformer.load(paths[0], device="cpu")
    text = "\n".join(f"a cat {n} sat." for n in range(40))
    body = server.ask("POST", "/translate", {**ASKED, "q": text, "stream": True})[2]
    said = "".join(event.get("delta", "") for event in events_of(body))
    assert said == str(model.translate(text, beam=1))


def test_capitals_are_answered_in_capitals_by_the_server_too(paths: list[Path]) -> None:
    """A run that has learned small letters, whole and streamed. Caught: the case of the answer forgotten in one of them."""
    with running(paths[:1], Limits()) as server:
        server.post("/translate", ASKED)
        served, model = server.worker("translator").model, glassformer.load(paths[0], device="cpu")
        for one in (served, model):
            one.recipe = replace(one.recipe, data=replace(one.recipe.data, augment=0.5))
        asked = {**ASKED, "q": "THE CAT SAT.", "stream": True}
        events = events_of(server.ask("POST", "/translate", asked)[2])
        said = "".join(event.get("delta", "") for event in events)
        wanted = str(model.translate("The cat sat.", beam=1)).upper()
        assert said == wanted == str(model.translate("THE CAT SAT.", beam=1))
        whole = server.post("/translate", {**ASKED, "q": "THE CAT SAT."})["translatedText"]
        assert whole == str(model.translate("The cat sat.")).upper() != whole.lower()


def test_texts_are_cut_as_by_the_plainest_pattern() -> None:
    """Runs of blanks and dots at random; and very long ones, which a pattern that begins anew within a run would never finish."""
    draw = random.Random(0)
    for _ in range(300):
        text = "".join(draw.choice(' \n\t.!?")a B') for _ in range(draw.randrange(40)))
        lines = [part.strip() for part in re.split(r"\s*\n\s*", text)]
        assert [p.text for p in split_text(text, lambda _: True)] == ([line for line in lines if line] or [""])
    for run in (" ", ".", "\t", "?!", ".)", "\n "):
        text = "a" + run * 50_000 + "b"
        assert "".join(p.before + p.text + p.after for p in split_text(text, lambda t: len(t) < 1000)) == text
