"""Markup: what is a text and what is not, and that what is not stays as it was."""

from __future__ import annotations

import pytest

from glassformer.serve.html_text import HtmlTexts


@pytest.mark.parametrize(
    ("page", "texts"),
    [
        ("<b>one</b> &amp; two", ["one", "& two"]),
        ("<P CLASS=x data-a='1'>a<br/>b<LI>c &eacute;</P><x-y/>\n d", ["a", "b", "c é", "d"]),
        ('<a title="1 > 0">one</a><a title=\'"> <\'>two</a>', ["one", "two"]),
        ("1 < 2 <b>and</b> 3 > 2", ["1 < 2", "and", "3 > 2"]),
        ('<script>if (a < b) c("<b>");</script><STYLE>a > b {}</STYLE>one<!-- <b>no</b> -->', ["one"]),
        ("<!DOCTYPE html><?xml version='1.0'?>one", ["one"]),
        ("one<script>never closed", ["one"]),
        ("one<!-- never closed", ["one"]),
        ('one<a title="never closed> two', ["one"]),
        ("<<<", ["<<<"]),
        ("", []),
        (" \n ", []),
    ],
)
def test_texts_are_found_and_all_else_stays(page: str, texts: list[str]) -> None:
    """Broken variants: a tag ends at the first `>`, also in quotes; every `<` begins one."""
    markup = HtmlTexts([page, "<i>more</i>"])
    assert markup.texts == [*texts, "more"]
    places = [f"[{number}]" for number in range(len(markup.texts))]
    filled, more = markup.filled(places)
    assert more == f"<i>[{len(texts)}]</i>"
    for number, text in enumerate(texts):  # each place is where its text was, and nothing else has changed
        raw = next(raw for raw in (text, text.replace("&", "&amp;"), text.replace("é", "&eacute;")) if raw in page)
        filled = filled.replace(f"[{number}]", raw, 1)
    assert filled == page


def test_what_is_unknown_is_told_of_each_page_once() -> None:
    markup = HtmlTexts(["a<b>b</b>a", "<i>c</i>", "<br>"])
    assert markup.by_page([["x"], ["y", "x"], ["x"], ["z"]]) == [["x", "y"], ["z"], []]


@pytest.mark.parametrize(
    "start", ["<", "<a ", "<a a=", "<a a='", "</", "<!", "<!--", "<script>", "<script></", "&#", "</script "]
)
def test_what_anybody_may_send_is_read_in_one_pass(start: str) -> None:
    """Broken variant: the standard library's parser, which for some of these takes hours."""
    page = (start * 1_000_000)[:1_000_000]
    markup = HtmlTexts([page])
    assert markup.filled([page] if markup.texts else []) == [
        page if not markup.texts else page.replace("&", "&amp;").replace("<", "&lt;")
    ]
