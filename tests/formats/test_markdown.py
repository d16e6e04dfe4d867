"""Markdown: what is not translated is written as it was."""

from __future__ import annotations

import pytest

from tests.formats.test_kept import done, read, texts

MARKDOWN = """---
title: the cat   # a note
list: [one, two]
---

# the *cat*

- [ ] a task
- [x] another **task** with `a  b`
- [no] task

> quoted <b>words</b>

<https://a.example/x> and {user name} ![alt](a.png "title")
"""


def test_markdown_stays() -> None:
    """Broken variants: what stands in front is a heading; a box is two brackets."""
    document = read(MARKDOWN, "a.md")
    assert done(document).decode() == MARKDOWN.replace("[no]", r"\[no\]") and not document.left
    assert texts(document)[:3] == ["the cat", "a task", "another task with a b"]
    assert done(read("+++\na = 1\n+++\nthe cat\r\nand\r\n\r\nthe dog\r\n", "a.md")) == (
        b"+++\na = 1\n+++\nthe cat and\r\n\r\nthe dog\r\n"
    )
    table = read("| a | b |\n| - | - |\n| one \\| two | three |\n", "a.md")
    assert table.left == 1 and "one \\| two | three" in done(table).decode(), "what cannot be carried over is counted"


WRITTEN = r"""Code `` `tick` `` and `x` in [one](<a b(c.html>) and [two](y 'say "hi"') at [three](http://x.com/中文 (a title)).

See <http://x.com/中文> and <me@x.org>, [four][ref], [five `a`][] and [Ref], ![a [b] c](<p q.png> 'r'), ![ref]; now[^1] and[^two].

[ref]: a.html
[five `a`]: b.html
[^1]: Word
[^two]: the other
[^three]: `code` and words

> [^4]: quoted

<details class=x>
<summary>six &amp; *seven*</summary>

eight

</details>

> <p>nine
> ten</p>
> <hr>
"""


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_what_markdown_is_written_with_stays(end: str) -> None:
    """Broken variants: code, the target of a link and its title as the parser understands them, written anew; a link to what its
    text names, which is translated; a footnote's mark is two brackets, and footnotes below each other are one paragraph; HTML
    between paragraphs stays, or its text is written as Markdown, and nobody is told."""
    text = WRITTEN.replace("\n", end)
    document = read(text, "a.md")
    said = texts(document)
    assert said[0] == "Code `tick` and x in one and two at three." and said[2:7] == [
        *("Word", "the other", "code and words", "quoted", "six & *seven*")
    ]
    wanted = text.replace("[five `a`][]", "[five `a`][five `a`]").replace("and [Ref]", "and [Ref][Ref]")
    assert done(document).decode() == wanted and document.left == 1, "what stands in a quotation has another form"
    assert done(read("a <b>5 * 3</b>\n\n<div>5 * 3 &lt; x</div>\n", "a.md")).decode() == (
        "a <b>5 \\* 3</b>\n\n<div>5 * 3 &lt; x</div>\n"
    )


def test_what_holds_no_words_is_not_translated() -> None:
    """Broken variant: the empty text of a picture goes to the model."""
    text = "![a](x.png)\n\n`code`\n\n[![b](c)](d) <i>1</i>\n"
    document = read(text, "a.md")
    assert texts(document) == [] and done(document).decode() == text
