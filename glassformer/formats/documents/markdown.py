"""Markdown, read by markdown-it: paragraphs, headings, list items and cells are texts, whatever their line breaks."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from glassformer.formats.documents.document import DocumentParts, decoded, has_words, joined_like
from glassformer.text.markup import Segment, SegmentParser, html_segments

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_block import StateBlock
    from markdown_it.rules_inline import StateInline
    from markdown_it.token import Token

LINE_END = re.compile(r"\r\n?|\n")  # a carriage return alone, too: so markdown-it counts lines
FRONT_MATTER = re.compile(r"(---|\+\+\+)[ \t]*\r?\n(?:.*\n)*?(?:\1|\.\.\.)[ \t]*(?:\r?\n|\Z)")
TASK = re.compile(r"\[[ xX]\][ \t]+")
MARK = re.compile(r"\[\^[^\]\[\s]+\]")
FOOTNOTE = re.compile(rf"{MARK.pattern}:[ \t]*")


def as_markdown(text: str) -> str:
    """Text in which nothing is a mark of Markdown by accident."""
    return re.sub(r"([\\`*\[\]<>]|(?<!\w)_|_(?!\w))", r"\\\1", text)


def on_one_line(raw: str) -> str:
    """A piece of a paragraph, whose line breaks are blanks."""
    return re.sub(r"\s*\n\s*", " ", raw)


def is_footnote(state: StateBlock, line: int, last: int, silent: bool) -> bool:
    """A rule for markdown-it's blocks: a footnote begins a paragraph, even in one."""
    from markdown_it.rules_block import paragraph

    start = state.bMarks[line] + state.tShift[line]
    if state.is_code_block(line) or not FOOTNOTE.match(state.src, start, state.eMarks[line]):
        return False
    return silent or paragraph(state, line, last, silent)


def is_mark(state: StateInline, silent: bool) -> bool:
    """A rule for what is in a paragraph: the mark of a footnote is a token."""
    begun = FOOTNOTE.match(state.src) if not state.pos else None
    found = begun or MARK.match(state.src, state.pos)
    if found and not silent:
        state.push("footnote_mark", "", 0).content = found[0]
    state.pos = found.end() if found else state.pos
    return found is not None


def with_source(rule: Callable[..., bool]) -> Callable[..., bool]:
    """One of markdown-it's rules for what is in a paragraph, whose token learns how it is written, as `meta["raw"]`: of a link
    what stands behind its text. What is between < and > is one token."""

    def applied(state: StateInline, silent: bool) -> bool:
        start, count = state.pos, len(state.tokens)
        if not rule(state, silent):
            return False
        places = [at for at in range(count, len(state.tokens)) if state.tokens[at].type != "text"]
        if silent or not places:
            return True
        if state.tokens[places[0]].markup == "autolink":
            del state.tokens[places[0] :], state.tokens_meta[places[0] :]
            state.push("autolink", "", 0)
        elif state.tokens[-1].type == "link_close":
            begin, start = start, state.md.helpers.parseLinkLabel(state, start, True)
            if state.src[start : state.pos] in ("]", "][]"):  # named by its text, which will be another
                state.tokens[-1].meta["raw"] = f"][{on_one_line(state.src[begin + 1 : start])}]"
                return True
        state.tokens[-1].meta["raw"] = on_one_line(state.src[start : state.pos])
        return True

    return applied


def parser_of_markdown() -> MarkdownIt:
    """A parser of Markdown as GitHub has it, by which links, pictures and code can be written as they were."""
    from markdown_it import MarkdownIt
    from markdown_it.rules_inline import autolink, backtick, image, link

    made = MarkdownIt("gfm-like", {"linkify": False})
    for name, rule in (("backticks", backtick), ("link", link), ("image", image), ("autolink", autolink)):
        made.inline.ruler.at(name, with_source(rule))
    made.inline.ruler.before("link", "footnote_mark", is_mark)
    made.block.ruler.before("reference", "footnote", is_footnote, {"alt": ["paragraph"]})
    return made


def add_token(parser: SegmentParser, token: Token) -> None:
    """One of markdown-it's inline tokens that is no text."""
    raw = token.meta.get("raw") or token.content or token.markup
    if token.type == "link_open":
        parser.open("a", "[")
    elif token.type == "link_close":
        parser.close("a", raw)
    elif token.type.endswith("_open"):
        parser.open(token.tag, token.markup)
    elif token.type.endswith("_close"):
        parser.close(token.tag, token.markup)
    elif token.type == "code_inline":
        parser.add_kept(raw, token.content)
    elif token.type == "autolink":
        parser.add_kept(raw, raw[1:-1])
    elif token.type == "html_inline":
        parser.add_tag(token.content)
    else:
        parser.add_point(raw)


def markdown_segment(children: list[Token], box: str, numbers: bool) -> Segment | None:
    """A text of Markdown from markdown-it's inline tokens; None where there is too much in it. `box`: what it begins with and
    is no text."""
    parser = SegmentParser(numbers=numbers)
    text = ("text", "softbreak", "hardbreak")
    for is_text, group in groupby(children, lambda token: token.type in text):
        if is_text:
            words = "".join(token.content or " " for token in group)
            parser.add_text(words if parser.text else words.removeprefix(box))
            continue
        for token in group:
            add_token(parser, token)
        if parser.full or parser.too_deep:
            return None
    return parser.finish()


def html_block(token: Token, raw: str, numbers: bool) -> list[str | Segment] | None:
    """A piece of HTML between paragraphs; None where it has texts in a form that is not its own (in a quotation)."""
    parts = html_segments(raw, numbers=numbers)
    for part in parts:
        if isinstance(part, Segment):
            part.is_html = True
    is_own = LINE_END.sub("\n", raw).strip() == token.content.strip()
    return parts if is_own or all(isinstance(part, str) for part in parts) else None


def read_markdown(content: bytes, path: Path, *, numbers: bool) -> DocumentParts:
    """A text in Markdown; what stands in front of it between lines of dashes stays, and so does code."""
    whole = decoded(content, path)
    front = FRONT_MATTER.match(whole)
    text = whole[front.end() :] if front else whole
    parts: list[str | Segment] = [whole[: front.end()] if front else ""]
    starts = [0, *(match.end() for match in LINE_END.finditer(text)), len(text)]
    tokens = parser_of_markdown().parse(text)
    taken = left = 0
    for number, token in enumerate(tokens):
        if token.type == "html_block" and token.map:
            begin, end = starts[token.map[0]], starts[token.map[1]]
            inside = html_block(token, text[begin:end], numbers)
            if inside is None:
                left += 1
            else:
                parts += [text[taken:begin], *inside]
                taken = end
            continue
        children = token.children or []
        words = "".join(child.content for child in children if child.type == "text")
        if token.type != "inline" or not token.map or not has_words(words):
            continue
        first, last = token.map
        in_list = number > 1 and tokens[number - 2].type == "list_item_open"
        box = TASK.match(token.content) if in_list else None
        segment = markdown_segment(children, box[0] if box else "", numbers)
        line, *rest = token.content.split("\n")
        at = text.find(line, max(taken, starts[first]), starts[first + 1])
        if at < 0 or segment is None:
            left += 1  # a form of the line that is not its text (an escape in a table's cell), or too much in it
            continue
        end = starts[last] if rest else at + len(line)
        while rest and text[end - 1 : end] in ("\n", "\r"):
            end -= 1
        parts += [text[taken : at + (box.end() if box else 0)], segment]
        taken = end
    parts.append(text[taken:])
    return DocumentParts(parts, as_markdown, joined_like(content), left)
