"""What is a placeholder or an address, what only looks like one, and how long it takes to tell."""

from __future__ import annotations

import pytest

from glassformer.text.markup import html_segments, placeholders


def found(text: str) -> list[str]:
    return [text[start:end] for start, end in placeholders(text)]


KEPT = [
    *[
        "%s",
        "%d",
        "%1$s",
        "%(name)s",
        "%-5.2f",
        "%5.1f",
        "%lld",
        "%@",
        "%%",
        "%1",
        "{name}",
        "{0}",
        "{}",
        "{{name}}",
        "${name}",
        "%{n}",
        "#{n}",
        ":name",
        ":user_id",
    ],
    *["www.example.org/x", "https://a.example/x?y=1&z#f", "ftp://a.example/f", "me.too@mail.example.org"],
    *("https://a.example/Berlin_(Stadt)", "https://a.example/a(b)c[1]", "http://[::1]/x"),
    *("%(user name)d", "{user name}", "{{ user.name | upper }}", "{% if x %}", "<%= x %>"),
    "{n, plural, one {# file} other {{n} files}}",
]


@pytest.mark.parametrize("kept", KEPT)
def test_placeholders_are_found(kept: str) -> None:
    """Alone, in a sentence, before its full stop, and in brackets."""
    for text in (kept, f"see {kept} there", f"see {kept}.", f"see ({kept}), there"):
        assert found(text) == [kept], text


@pytest.mark.parametrize(
    "text",
    [
        "100% sure, 50 % der Leute, 5 %; 100%der, 5%d'eau, 100%, 100%.",
        "at 10:30, in 2:1",
        "a smile :D or :DD or :) or :-P",
        "std::vector and a:b, Note: this; 3 :",
        "set {of the words that are not kept}",
        "20 %d'eau",
        "me @ home, a < b % c > d",
        "awww.that www. is",
    ],
)
def test_what_only_looks_like_one_is_text(text: str) -> None:
    assert found(text) == []


def test_each_kind_of_number() -> None:
    assert found("%d%% of %ds, 3 %s left: %Y-%m-%d, %dms") == ["%d", "%%", "%d", "%s", "%Y", "%m", "%d", "%d"]
    assert found("100%s, 5%d left at 3%.1d: 3 % s, 100%%") == ["%s", "%d", "%.1d", "%%"]
    assert found("(https://a.example/a_(b)), [https://a.example/c].") == [
        "https://a.example/a_(b)",
        "https://a.example/c",
    ]
    assert found("https://a.example/a(b, (https://a.example/(") == ["https://a.example/a(b", "https://a.example/"]
    assert [*placeholders(":name", "a")] == [] and [*placeholders(":name", " ")] == [(0, 5)], "what stands before it"


@pytest.mark.parametrize(
    "start",
    [
        "{",
        "{{",
        "{a,plural,{",
        "<%a",
        "a@",
        "a-",
        "%(",
        "http://.",
        "www.a,",
        ":a",
        "%5.",
        "{a\n",
        "%d ",
        "http://a(",
        "(a)",
        "(a.",
    ],
)
def test_it_takes_one_pass(start: str) -> None:
    """Broken variant: every letter of a long word as the beginning of an address, which takes minutes."""
    list(placeholders((start * 100_000)[:100_000]))
    list(placeholders("http://" + (start * 100_000)[:100_000]))
    html_segments((start * 100_000)[:100_000])
