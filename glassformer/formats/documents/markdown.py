"""Markdown, read by markdown-it: paragraphs, headings, list items and cells are texts, whatever their line breaks."""

from __future__ import annotations

import re
from itertools import groupby
from pathlib import Path
from typing import Any

from glassformer.formats.documents.document import DocumentParts, decoded, has_words, joined_like
from glassformer.text.markup import Segment, SegmentParser

FRONT_MATTER = re.compile(r"(---|\+\+\+)[ \t]*\r?\n(?:.*\n)*?(?:\1|\.\.\.)[ \t]*(?:\r?\n|\Z)")
TASK = re.compile(r"\[[ xX]\][ \t]+")


def as_markdown(text: str) -> str:
    """Text in which nothing is a mark of Markdown by accident."""
    return re.sub(r"([\\`*\[\]<>]|(?<!\w)_|_(?!\w))", r"\\\1", text)


def add_token(parser: SegmentParser, token: Any, links: list[str]) -> None:
    """One of markdown-it's inline tokens that is no text. `links`: the ends of those that are open."""
    title = f' "{token.attrs["title"]}"' if token.attrs.get("title") else ""
    if token.type == "link_open":
        links.append(">" if token.markup == "autolink" else f"]({token.attrs['href']}{title})")
        parser.open("a", "<" if token.markup == "autolink" else "[")
    elif token.type == "link_close":
        parser.close("a", links.pop())
    elif token.type.endswith("_open"):
        parser.open(token.tag, token.markup)
    elif token.type.endswith("_close"):
        parser.close(token.tag, token.markup)
    elif token.type == "code_inline":
        parser.add_kept(f"{token.markup}{token.content}{token.markup}", token.content)
    elif token.type == "image":
        parser.add_point(f"![{token.content}]({token.attrs['src']}{title})")
    elif token.type == "html_inline":
        parser.add_tag(token.content)
    else:
        parser.add_point(token.content or token.markup)


def markdown_segment(children: list[Any], box: str, numbers: bool) -> Segment | None:
    """A text of Markdown from markdown-it's inline tokens; None where there is too much in it. `box`: what it begins with and
    is no text."""
    parser = SegmentParser(numbers=numbers)
    links: list[str] = []
    text = ("text", "softbreak", "hardbreak")
    for is_text, group in groupby(children, lambda token: token.type in text):
        if is_text:
            words = "".join(token.content or " " for token in group)
            parser.add_text(words if parser.text else words.removeprefix(box))
            continue
        for token in group:
            add_token(parser, token, links)
        if parser.full or parser.too_deep:
            return None
    return parser.finish()


def read_markdown(content: bytes, path: Path, *, numbers: bool) -> DocumentParts:
    """A text in Markdown; what stands in front of it between lines of dashes stays, and so does code."""
    from markdown_it import MarkdownIt

    whole = decoded(content, path)
    front = FRONT_MATTER.match(whole)
    text = whole[front.end() :] if front else whole
    parts: list[str | Segment] = [whole[: front.end()] if front else ""]
    starts = [0, *(match.end() for match in re.finditer("\n", text)), len(text)]
    tokens = MarkdownIt("gfm-like", {"linkify": False}).parse(text)
    taken = left = 0
    for number, token in enumerate(tokens):
        if token.type != "inline" or not token.map or not token.children or not has_words(token.content):
            continue
        first, last = token.map
        in_list = number > 1 and tokens[number - 2].type == "list_item_open"
        box = TASK.match(token.content) if in_list else None
        segment = markdown_segment(token.children, box[0] if box else "", numbers)
        begin, *rest = token.content.split("\n")
        at = text.find(begin, max(taken, starts[first]), starts[first + 1])
        if at < 0 or segment is None:
            left += 1  # a form of the line that is not its text (an escape in a table's cell), or too much in it
            continue
        end = starts[last] if rest else at + len(begin)
        while rest and text[end - 1 : end] in ("\n", "\r"):
            end -= 1
        parts += [text[taken : at + (box.end() if box else 0)], segment]
        taken = end
    parts.append(text[taken:])
    return DocumentParts(parts, as_markdown, joined_like(content), left)
