"""Texts with markup, apart: what is translated, and what has to stand at the right place of the translation.

A segment is a sentence or more with inline tags (`<b>`, `<a href=…>`): its plain text goes to the model whole, never cut at
a tag, and its tags are nodes with places in that text. Tags are found by where HTML's tokenizer begins and ends them, so
that whatever is no text stays as it was, to the byte: lxml and selectolax build a tree and write that anew, with other
quotes, entities and end tags, and the standard library's parser takes half a minute for 20,000 characters of `<a `, which
anybody may send (docs/log.md). Placeholders, addresses and code are nodes, too, which stay as they are in the source.
"""

from __future__ import annotations

import heapq
import html
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from glassformer.text.elements import EMPTY, INLINE, MARKUP, OpenElements, end_of, is_kept, name_of

# A rule for placeholders that is too wide leaves a word untranslated, one that is too narrow breaks a program. So `%` after a
# number is a per cent sign, unless what follows can be nothing else, and `:name` stands alone, no letter or digit before it.
FORMAT = r"[-+0\#']*(?:\d+|\*)?(?:\.(?:\d+|\*))?(?:hh?|ll?|[Lqjzt](?=[a-zA-Z]))?"  # of printf: flags, width, precision, length
OUTSIDE = r"\s<>\"'，。；：！？、（）「」"  # of an address
BRACKETS = rf"\([^{OUTSIDE}()\[\]]*\)|\[[^{OUTSIDE}()\[\]]*\]"  # within one, and so they belong to it
PLACEHOLDER = re.compile(
    rf"""
      (?:(?i:https?|ftps?|sftp)://|(?<![\w.])(?i:www)\.(?=\w))        # an address of the web
        (?:{BRACKETS}|(?!{BRACKETS})[^{OUTSIDE}])*(?:{BRACKETS}|[^{OUTSIDE}.,;:!?()\[\]])
    | (?<![\w.%+-])[a-zA-Z0-9_.%+-]++@[a-zA-Z0-9-]+(?:\.[a-zA-Z0-9-]+)+   # of mail
    | <%(?:[^<%]|%(?!>))*+%>                                          # <%= x %>
    | \{{{{2,3}}[^{{}}]*\}}{{2,3}} | \{{%[^{{}}]*%\}}                          # {{{{name}}}}, {{% if x %}}
    | \{{\s*\w+\s*,\s*(?:plural|select|selectordinal)\s*,             # ICU's, whole
        (?:[^{{}}]++|\{{(?:[^{{}}]++|\{{[^{{}}]*+\}})*+\}})*+\}}
    | [$%\#]?\{{(?:\s*[^{{}}\s]+(?:\s+[^{{}}\s]+){{0,2}}\s*)?\}}      # {{name}}, {{0}}, {{}}, {{user name}}, ${{name}}, %{{n}}
    | %\([^()]+\){FORMAT}[a-zA-Z]                                     # %(name)s
    | %\d+\${FORMAT}[a-zA-Z@]                                         # %1$s
    | %%
    | (?<![\d%])(?<!\d[ \xa0])%(?:L?\d\d?(?!\w|\.\d)|{FORMAT}[a-zA-Z@](?![a-zA-Z]{{3}}))  # %s, %-5.2f, %dms, %1
    | (?:(?<=\d)|(?<=\d[ \xa0]))%{FORMAT}[sd@](?![a-zA-Z'’])          # 3 %s, 3%s, and not 50 % der
    | (?<![^\s("'\[«“‘]):(?!([a-zA-Z])\1+(?!\w))[a-zA-Z_][a-zA-Z0-9_]+(?!\w)   # :name, and not :D or :DD
    """,
    re.VERBOSE,
)
NUMBER = re.compile(r"(?<![\w.,])\d+(?:[.,:]\d+)*(?![\w])")


def placeholders(text: str, before: str = "", *, numbers: bool = False) -> Iterator[tuple[int, int]]:
    """Where the placeholders and addresses of a text begin and end, and its numbers where they are asked for. `before`: what
    stands in front of it.

    >>> [("%s of {n}, 50 % sure")[a:b] for a, b in placeholders("%s of {n}, 50 % sure")]
    ['%s', '{n}']
    """
    whole, at = before + text, len(before)
    matches = (PLACEHOLDER.finditer(whole, at), NUMBER.finditer(whole, at) if numbers else ())
    taken = 0
    for match in heapq.merge(*matches, key=lambda match: (match.start(), -match.end())):
        if match.start() >= taken:
            taken = match.end()
            yield match.start() - at, match.end() - at


DEEPEST, MOST_TAGS = 50, 200  # of one segment: to place tags takes time in proportion to their number and that of words
BLANKS = re.compile(r"[ \t\r\n\f]+")  # HTML's: others are characters
ENTITY = re.compile(r"&#?\w+;?")


@dataclass
class Node:
    """A piece of markup in a segment: around text[start:end], at a point of it (start = end), or in the place of it (`kept`)."""

    start: int
    end: int
    opening: str
    closing: str = ""
    kept: str = ""  # where the translation of text[start:end] is `opening`, to the byte: text[start:end]
    words: bool = False  # it begins and ends with letters or digits, and not with marks
    children: list[Node] = field(default_factory=list)


@dataclass
class Segment:
    """A text to translate, and the markup in it."""

    text: str
    nodes: list[Node]
    is_html: bool = False  # where its document is of another kind


def as_html(text: str) -> str:
    """Text of an HTML page."""
    return html.escape(text, quote=False)


def unescaped(text: str) -> str:
    """The text with its entities as characters. Python reads no number of thousands of digits, and no character has one."""
    return html.unescape(re.sub(r"&#[xX]?[0-9a-fA-F]{9,};?", "\ufffd", text))


def clip(nodes: list[Node], text: str) -> None:
    """No node reaches past the end of the text, whose last blank was taken off. Each learns if it begins and ends with words."""
    for node in nodes:
        node.start, node.end = min(node.start, len(text)), min(node.end, len(text))
        node.words = all(text[at].isalnum() for at in (node.start, node.end - 1) if node.start <= at < node.end)
        clip(node.children, text)


def raw_places(raw: str) -> list[int]:
    """Where each character of the unescaped text begins in the raw one; last, the end of it."""
    places: list[int] = []
    at = 0
    for entity in [*ENTITY.finditer(raw), None]:
        stop = entity.start() if entity else len(raw)
        places += range(at, stop)
        if entity:
            places += [stop] * len(unescaped(entity[0]))
            at = entity.end()
    return [*places, len(raw)]


class TextPiece(NamedTuple):
    """A stretch of a text: where it begins in the raw text, what it is there, how it reads, and whether it stays."""

    start: int
    raw: str
    text: str
    kept: bool


def text_pieces(raw: str, before: str, *, numbers: bool, entities: bool) -> Iterator[TextPiece]:
    """A raw text cut at its placeholders. `before`: the character in front of it."""
    text, at = unescaped(raw) if entities else raw, 0
    places: Sequence[int] = range(len(raw) + 1)
    for start, end in placeholders(text, before, numbers=numbers):
        if text != raw and not at:
            places = raw_places(raw)
        for first, last, kept in ((at, start, False), (start, end, True)):
            yield TextPiece(places[first], raw[places[first] : places[last]], text[first:last], kept)
        at = end
    yield TextPiece(places[at], raw[places[at] :], text[at:], False)


class SegmentParser:
    """Collects texts and inline tags into a segment. Blanks that follow blanks are left out, line breaks are blanks. Deeper than
    `DEEPEST` no tag is around anything: it stands where it is. `numbers`: they stay as placeholders do."""

    def __init__(self, *, numbers: bool = False) -> None:
        self.text, self.tags, self.numbers = "", 0, numbers
        self.has_words = False  # besides what stays as it is
        self.too_deep = False
        self.roots: list[Node] = []
        self.stack: list[tuple[str, Node]] = []

    @property
    def full(self) -> bool:
        """Has it as many nodes as a segment may have?"""
        return self.tags >= MOST_TAGS

    def siblings(self) -> list[Node]:
        """Where the next node goes."""
        return self.stack[-1][1].children if self.stack else self.roots

    def add_words(self, text: str) -> None:
        """Text that has no placeholders."""
        blank = BLANKS.sub(" ", text)
        if (
            blank.startswith(" ")
            and not self.text
            and self.siblings()
            and not self.siblings()[-1].opening.endswith(" ")
        ):
            self.siblings()[-1].opening += " "  # behind a tag that the text does not begin with
        self.text += blank.lstrip(" ") if not self.text or self.text.endswith(" ") else blank

    def add_text(self, raw: str, *, entities: bool = False) -> None:
        """Text, its placeholders nodes of their own. `entities`: `&amp;` is one character and not five."""
        for piece in text_pieces(raw, self.text[-1:], numbers=self.numbers, entities=entities):
            self.add_piece(piece)

    def add_piece(self, piece: TextPiece) -> None:
        """A piece of text."""
        if piece.kept:
            self.add_kept(piece.raw, piece.text)
        else:
            self.has_words = self.has_words or any(letter.isalpha() for letter in piece.text)
            self.add_words(piece.text)

    def add_kept(self, raw: str, text: str) -> None:
        """What stays as it is, and how the model reads it."""
        at = len(self.text)
        self.add_words(text)
        self.tags += 1
        self.siblings().append(Node(at, len(self.text), raw, kept=self.text[at:].strip()))

    def add_point(self, tag: str) -> None:
        """A tag that is around nothing."""
        self.tags += 1
        self.siblings().append(Node(len(self.text), len(self.text), tag))

    def open(self, name: str, tag: str) -> None:
        """A tag that is around what comes until its end."""
        self.add_point(tag)
        self.too_deep = self.too_deep or len(self.stack) >= DEEPEST
        if len(self.stack) < DEEPEST:
            self.stack.append((name, self.siblings()[-1]))

    def close(self, name: str, tag: str) -> None:
        """The end of a tag. One that closes nothing, or closes another than the last, stands where it is."""
        if self.stack and self.stack[-1][0] == name:
            node = self.stack.pop()[1]
            node.end, node.closing = len(self.text), tag
            self.tags += 1
        else:
            self.add_point(tag)

    def drop(self) -> None:
        """The last tag that is open is around nothing and stands where it was opened."""
        node = self.stack.pop()[1]
        self.siblings()[len(self.siblings()) :] = node.children  # behind it, as they came
        node.children = []

    def add_tag(self, tag: str) -> None:
        """An inline tag of HTML."""
        name = name_of(tag)
        if name == "br":
            self.add_words(" ")  # words on two lines are two
        if tag.startswith("</"):
            self.close(name, tag)
        elif not name or name in EMPTY or tag.endswith("/>"):
            self.add_point(tag)
        else:
            self.open(name, tag)

    def finish(self) -> Segment:
        """The segment, without a blank at its end."""
        while self.stack:
            self.drop()
        last = next((node for node in self.roots if node.start == len(self.text) > 0), None)
        if last is not None and self.text.endswith(" "):
            last.opening = " " + last.opening
        self.text = self.text.rstrip()
        clip(self.roots, self.text)
        return Segment(self.text, self.roots)


def html_segments(page: str, *, numbers: bool = False, entities: bool = True) -> list[str | Segment]:
    """A page as what stays, to the byte, and the segments between: texts with their inline tags. `entities`: `&amp;` is one
    character and not five.

    >>> html_segments("<p>one <b>two</b></p>")[1].text
    'one two'
    """
    out: list[str | Segment] = []
    at, pending = 0, 0  # how far the page is read; where the run of texts and inline tags began
    parser = SegmentParser(numbers=numbers)
    endless: set[str] = set()  # names of what is kept whole and ends nowhere
    around = OpenElements()

    def flush(end: int) -> None:
        nonlocal parser, pending
        raw = page[pending:end]
        if parser.has_words:
            lead, tail = len(raw) - len(raw.lstrip()), len(raw.rstrip())
            out.extend([raw[:lead], parser.finish(), raw[tail:]])
        else:
            out.append(raw)
        parser, pending = SegmentParser(numbers=numbers), end

    while True:
        match = MARKUP.search(page, at)
        stop = match.start() if match else len(page)
        text = page[at:stop] if around.translated else ""
        for piece in text_pieces(text, parser.text[-1:], numbers=numbers, entities=entities):
            if piece.kept and parser.full:
                flush(at + piece.start)
            parser.add_piece(piece)
        if match is None:
            flush(stop)
            return [part for part in out if part != ""]
        tag, name, at = match[0], name_of(match[0]), match.end()
        end = None
        if around.translated and not parser.full and name in INLINE - EMPTY - endless and is_kept(tag, name):
            end = end_of(page, at, name)
            endless |= {name} if end is None else set()
        if end is not None:
            inside = MARKUP.sub("", page[at : end.start()])
            at = end.end()
            parser.add_kept(page[stop:at], unescaped(inside) if entities else inside)
            continue
        translated = around.translated
        around.add_tag(tag, name)
        within = translated and around.translated and (name in INLINE or tag.startswith("<!--"))
        if within and not parser.full:
            parser.add_tag(tag)
            continue
        flush(stop)
        out.append(tag)
        pending = at
