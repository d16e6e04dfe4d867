"""Texts with markup, apart: what is translated, and what has to stand at the right place of the translation.

A segment is a sentence or more with inline tags (`<b>`, `<a href=…>`): its plain text goes to the model whole, never cut at
a tag, and its tags are nodes with places in that text. Tags are found by where HTML's tokenizer begins and ends them, so
that whatever is no text stays as it was, to the byte: lxml and selectolax build a tree and write that anew, with other
quotes, entities and end tags, and the standard library's parser takes half a minute for 20,000 characters of `<a `, which
anybody may send (docs/log.md). Placeholders, addresses and code are nodes, too, whose content is kept as it is.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

MARKUP = re.compile(
    r"""
      <!--.*?(?:-->|\Z)                                                    # a comment
    | <[!?][^>]*+(?:>|\Z)                                                  # a declaration
    | <(script|style)\b.*?(?:</\1\s*>|\Z)                                  # with all that is in it
    | </?[a-z](?:[^>"']++|"[^"]*+(?:"|\Z)|'[^']*+(?:'|\Z))*+(?:>|\Z)       # a tag; in its quotes > is no end of it
    """,
    re.DOTALL | re.IGNORECASE | re.VERBOSE,
)
NAME = re.compile(r"</?([a-z][a-z0-9:-]*)", re.IGNORECASE)
INLINE = frozenset({
    "a", "abbr", "acronym", "b", "bdi", "bdo", "big", "br", "cite", "code", "data", "del", "dfn", "em", "font", "i",
    "img", "ins", "kbd", "label", "mark", "q", "ruby", "s", "samp", "small", "span", "strike", "strong", "sub", "sup",
    "time", "tt", "u", "var", "wbr",
})  # fmt: skip
EMPTY = frozenset(
    ["area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"]
)
DEEPEST, MOST_TAGS = 50, 200  # of one segment: to place tags takes time in proportion to their number and that of words
LITERAL = frozenset(["code", "kbd", "samp", "tt", "var"])  # what is in it is no language
PROTECTED = re.compile(
    r"""
      https?://[^\s<>"']*[^\s<>"'.,;:!?)\]]                  # an address of the web
    | [\w.+-]+@[\w-]+(?:\.[\w-]+)+                            # of mail
    | \$?\{[^{}\s]*\}                                         # {name}, ${name}, {0}, {}
    | %\([^()\s]+\)[\#0\ +-]*[\d.]*[a-zA-Z]                   # %(name)s
    | %[\#0+-]*[\d.]*[sdifgexXcru@](?![a-zA-Z])               # %s, %5.2f
    """,
    re.VERBOSE,
)
BLANKS = re.compile(r"[ \t\r\n\f]+")  # HTML's: others are characters
NUMBER = re.compile(r"(?<![\w.,])\d+(?:[.,:]\d+)*(?![\w])")


@dataclass
class Node:
    """A piece of markup in a segment: around text[start:end], at a point of it (start = end), or in the place of it (`kept`)."""

    start: int
    end: int
    opening: str
    closing: str = ""
    kept: bool = False  # the translation of text[start:end] is `opening`, to the byte
    words: bool = False  # it begins and ends with letters or digits, and not with marks
    children: list[Node] = field(default_factory=list)


@dataclass
class Segment:
    """A text to translate, and the markup in it."""

    text: str
    nodes: list[Node]


def protected_nodes(text: str, *, numbers: bool) -> Iterator[Node]:
    """Placeholders and addresses, and numbers where they are asked for."""
    taken = 0
    found = [*PROTECTED.finditer(text), *(NUMBER.finditer(text) if numbers else ())]
    for match in sorted(found, key=lambda match: (match.start(), -match.end())):
        if match.start() >= taken:
            taken = match.end()
            yield Node(match.start(), match.end(), match[0], kept=True)


def name_of(tag: str) -> str:
    """The name of a tag in small letters; empty for comments and declarations."""
    match = NAME.match(tag)
    return match[1].lower() if match else ""


def unescaped(text: str) -> str:
    """The text with its entities as characters. Python reads no number of thousands of digits, and no character has one."""
    return html.unescape(re.sub(r"&#[xX]?[0-9a-fA-F]{9,};?", "\ufffd", text))


class SegmentParser:
    """Collects texts and inline tags into a segment. Blanks that follow blanks are left out, line breaks are blanks. Deeper than
    `DEEPEST` no tag is around anything: it stands where it is."""

    def __init__(self) -> None:
        self.text, self.tags = "", 0
        self.roots: list[Node] = []
        self.stack: list[tuple[str, Node]] = []

    def siblings(self) -> list[Node]:
        """Where the next node goes."""
        return self.stack[-1][1].children if self.stack else self.roots

    def add_text(self, text: str) -> None:
        """Text, entities already characters."""
        blank = BLANKS.sub(" ", text)
        self.text += blank.lstrip() if not self.text or self.text.endswith(" ") else blank

    def add_tag(self, tag: str) -> None:
        """An inline tag. One that closes nothing, or closes another than the last, stands where it is."""
        name = name_of(tag)
        if name == "br":
            self.add_text(" ")  # words on two lines are two
        at = len(self.text)
        self.tags += 1
        if tag.startswith("</") and self.stack and self.stack[-1][0] == name:
            node = self.stack.pop()[1]
            node.end, node.closing = at, tag
        elif not name or tag.startswith("</") or name in EMPTY or tag.endswith("/>") or len(self.stack) >= DEEPEST:
            self.siblings().append(Node(at, at, tag))
        else:
            node = Node(at, at, tag)
            self.siblings().append(node)
            self.stack.append((name, node))

    def finish(self, *, numbers: bool = False) -> Segment:
        """The segment: what was never closed stands where it was opened, and protected words are nodes among the others."""
        while self.stack:
            node = self.stack.pop()[1]
            self.siblings()[len(self.siblings()) :] = node.children  # behind it, as they came
            node.children = []
        self.protect(self.roots, 0, len(self.text), numbers)
        return Segment(self.text, self.roots)

    def protect(self, nodes: list[Node], start: int, end: int, numbers: bool) -> None:
        """Nodes for the protected words of text[start:end] that no node of these cuts; inside nodes, theirs."""
        for node in nodes:
            node.words = all(
                self.text[at].isalnum() for at in (node.start, node.end - 1) if node.start <= at < node.end
            )
            if name_of(node.opening) in LITERAL and node.closing and not node.children:
                node.children = [Node(node.start, node.end, self.text[node.start : node.end], kept=True)]
            elif node.closing:
                self.protect(node.children, node.start, node.end, numbers)
        for word in protected_nodes(self.text[start:end], numbers=numbers):
            word.start, word.end = word.start + start, word.end + start
            # Of a tag without words: inside it.
            cut = (node.start < word.end and word.start < node.end for node in nodes)
            if not any(cut):
                nodes.append(word)
        nodes.sort(key=lambda node: (node.start, node.end))


def html_segments(page: str, *, numbers: bool = False, entities: bool = True) -> list[str | Segment]:
    """A page as what stays, to the byte, and the segments between: texts with their inline tags. `entities`: `&amp;` is one
    character and not five.

    >>> html_segments("<p>one <b>two</b></p>")[1].text
    'one two'
    """
    out: list[str | Segment] = []
    start, pending = 0, 0  # of what is not yet in `out`; where the run of texts and inline tags began
    parser = SegmentParser()

    def flush(end: int) -> None:
        nonlocal parser, pending
        raw, text = page[pending:end], parser.text
        if any(letter.isalpha() for letter in text):
            lead, tail = len(raw) - len(raw.lstrip()), len(raw.rstrip())
            parser.text = text.rstrip()
            clip(parser.roots, len(parser.text))
            out.extend([raw[:lead], parser.finish(numbers=numbers), raw[tail:]])
        else:
            out.append(raw)
        parser, pending = SegmentParser(), end

    for match in [*MARKUP.finditer(page), None]:
        text = page[start : match.start() if match else len(page)]
        parser.add_text(unescaped(text) if entities else text)
        if match is None:
            flush(len(page))
        elif parser.tags < MOST_TAGS and (name_of(match[0]) in INLINE or match[0].startswith("<!--")):
            parser.add_tag(match[0])
            start = match.end()
        else:
            flush(match.start())
            out.append(match[0])
            start = pending = match.end()
    return [part for part in out if part != ""]


def clip(nodes: list[Node], length: int) -> None:
    """No node reaches past the end of the text, whose last blank was taken off."""
    for node in nodes:
        node.start, node.end = min(node.start, length), min(node.end, length)
        clip(node.children, length)
