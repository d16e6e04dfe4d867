"""Markup that anybody may send: what is a text and what is not, that what is not stays as it was, and how long it takes."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from glassformer.tasks.markup import Aligned, as_html, free_runs, render, token_spans
from glassformer.text.markup import MOST_TAGS, Segment, html_segments, raw_places, unescaped


@pytest.mark.parametrize(
    ("page", "texts"),
    [
        ("<b>one</b> &amp; two<br>three", ["one & two three"]),
        ("<P CLASS=x data-a='1'>a<hr/>b<LI>c &eacute;</P><x-y/>\n d", ["a", "b", "c é", "d"]),
        ('<a title="1 > 0">one</a><a title=\'"> <\'>two</a>', ["onetwo"]),
        ("1 < 2 <b>and</b> 3 > 2", ["1 < 2 and 3 > 2"]),
        ('<script>if (a < b) c("<b>");</script><STYLE>a > b {}</STYLE>one<!-- <b>no</b> -->', ["one"]),
        ("<!DOCTYPE html><?xml version='1.0'?>one", ["one"]),
        ("one<script>never closed", ["one"]),
        ("one<!-- never closed", ["one"]),
        ('one<a title="never closed> two', ["one"]),
        ("<<<", []),
        ("<td>42</td>", []),
        ("", []),
        (" \n ", []),
    ],
)
def test_texts_are_found(page: str, texts: list[str]) -> None:
    """Broken variants: a tag ends at the first `>`, also in quotes; every `<` begins one."""
    assert [part.text for part in html_segments(page) if isinstance(part, Segment)] == texts


def by_place(text: str) -> Aligned:
    """A text as its own translation, letter by letter."""
    spans = token_spans(list(text), text)
    return Aligned(text, spans, spans, np.eye(len(text)))


@pytest.mark.parametrize(
    "page",
    [
        "<p>one <b>two</b> three</p> <i>four</i>",
        "<div>a <br>b <a href='x'>c <em>d</em></a></div>",
        "one<!-- a note --> two &amp; <b>three</b>",
        "<p><b>one</b></p><p><i>two </i></p>",
        "one <code>a  <b>b</b>\n &quot;c</code> two",
        "<pre>one\n  two <b>three</b></pre> four <TEXTAREA>five\n six</textarea>",
        "one <code>two &amp; three",
        "&lt;b&gt; <%= link_to 'x' %> {a\n  b} https://a.example/?b=1&c=2 &amp; https://a.example/?b=1&amp;c=2 one",
    ],
)
def test_a_text_that_is_its_own_translation_stays_to_the_byte(page: str) -> None:
    parts = html_segments(page)
    filled = [
        part if isinstance(part, str) else render(part.nodes, by_place(part.text), *[(0, len(part.text))] * 2, as_html)
        for part in parts
    ]
    assert "".join(filled) == page.replace(" </i>", "</i>")


def test_code_is_no_text() -> None:
    """Broken variant: blocks of code whose lines are sentences."""
    page = "<pre><code>def f():\n    one\n</code></pre><textarea>two</textarea><p>three <code>a  b</code></p>"
    assert [part.text for part in html_segments(page) if isinstance(part, Segment)] == ["three a b"]


def test_the_places_of_unescaped_characters() -> None:
    """Each character of the unescaped text is what its stretch of the raw text says."""
    draw = np.random.default_rng(0)
    for _ in range(500):
        raw = "".join(draw.choice(["&", "amp", ";", "#65", "#x41", "lt", "notin", ",", "é", " ", "a"], 8))
        places, text = raw_places(raw), unescaped(raw)
        assert len(places) == len(text) + 1 and places[-1] == len(raw), raw
        assert all(
            unescaped(raw[places[i] :]) == text[i:] for i in range(len(text)) if i == 0 or places[i] > places[i - 1]
        )


@pytest.mark.parametrize(
    "start",
    [
        "<",
        "<a ",
        "<a a=",
        "<a a='",
        "</",
        "<!",
        "<!--",
        "<script>",
        "<script></",
        "&#",
        "</script ",
        "<code>",
        "</code ",
        "{a} ",
        "&lt;%s",
    ],
)
def test_what_anybody_may_send_is_read_in_one_pass(start: str) -> None:
    """Broken variant: the standard library's parser, which for some of these takes hours."""
    page = (start * 1_000_000)[:1_000_000]
    parts = html_segments(page)
    assert sum(len(part if isinstance(part, str) else part.text) for part in parts) <= len(page)


def test_very_many_tags_are_placed_in_parts() -> None:
    """As many as a request may have: in segments of some hundreds. Broken variant: every tag beside every other and every word,
    which takes minutes."""
    page = "<b>a</b> " * 2200
    segments = [part for part in html_segments(page) if isinstance(part, Segment)]
    assert sum(len(segment.nodes) for segment in segments) > 2000
    assert max(len(segment.nodes) for segment in segments) <= MOST_TAGS
    filled = [render(s.nodes, by_place(s.text), *[(0, len(s.text))] * 2, as_html) for s in segments]
    assert sum(page.count("<b>") for page in filled) > 2000


def test_free_runs_are_those_of_the_rule() -> None:
    """Against the rule written out."""
    draw = np.random.default_rng(0)
    for _ in range(200):
        text = "x" * int(draw.integers(5, 40))
        cuts = np.sort(draw.integers(0, len(text) + 1, 12))
        target = [(int(a), int(b)) for a, b in pairwise(cuts)]
        start, end = sorted(int(n) for n in draw.integers(0, len(text) + 1, 2))
        taken = [(a, min(len(text), a + 3)) for a in draw.integers(0, len(text), 2).tolist()]
        expected: list[list[int]] = [[]]
        for token, (a, b) in enumerate(target):
            free = a >= start and b <= end and a < b and not any(a < high and low < b for low, high in taken)
            if free:
                expected[-1].append(token)
            elif a < b:
                expected.append([])
        aligned = Aligned(text, target, target, np.zeros((len(target), len(target))))
        assert free_runs(aligned, (start, end), taken) == [run for run in expected if run]
