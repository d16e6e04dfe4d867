"""HTML's elements: where tags begin and end, which are open at a place of a page, and what of them is translated."""

from __future__ import annotations

import re
from collections import Counter

MARKUP = re.compile(
    r"""
      <!--.*?(?:-->|\Z)                                                    # a comment
    | <[!?][^>]*+(?:>|\Z)                                                  # a declaration
    | <(script|style|pre|textarea)\b.*?(?:</\1\s*>|\Z)                     # with all that is in it
    | </?[a-z](?:[^>"']++|"[^"]*+(?:"|\Z)|'[^']*+(?:'|\Z))*+(?:>|\Z)       # a tag; in its quotes > is no end of it
    """,
    re.DOTALL | re.IGNORECASE | re.VERBOSE,
)
ATTRIBUTE = re.compile(r"""\s([^\s=>"'/]++)(?:\s*+=\s*+("[^"]*+"|'[^']*+'|[^\s>"']++))?""")
NAME = re.compile(r"</?([a-z][a-z0-9:-]*)", re.IGNORECASE)
CODE = frozenset(["script", "style", "pre", "textarea"])  # a tag with all that is in it
INLINE = frozenset({  # c: WebVTT's
    "a", "abbr", "acronym", "b", "bdi", "bdo", "big", "br", "c", "cite", "code", "data", "del", "dfn", "em", "font", "i",
    "img", "ins", "kbd", "label", "mark", "q", "ruby", "s", "samp", "small", "span", "strike", "strong", "sub", "sup",
    "time", "tt", "u", "var", "wbr",
})  # fmt: skip
EMPTY = frozenset(
    ["area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"]
)
LITERAL = frozenset(["code", "kbd", "samp", "tt", "var"])  # what is in it is no language
BLOCKS = (
    "address article aside blockquote details dialog div dl fieldset figcaption figure footer form h1 h2 h3 h4 h5 h6 header "
    "hgroup hr main menu nav ol p pre search section table ul"
)
ENDED_BY: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(BLOCKS.split(), ("p",)),
    "li": ("li", "p"),
    **dict.fromkeys(["dt", "dd"], ("dt", "dd", "p")),
    **dict.fromkeys(["td", "th"], ("td", "th", "p")),
    "tr": ("tr", "td", "th", "p"),
    "option": ("option",),
}
"""By the name of an element: those whose end tag may be missing in front of it."""


def name_of(tag: str) -> str:
    """The name of a tag in small letters; empty for comments and declarations."""
    match = NAME.match(tag)
    return match[1].lower() if match else ""


def said_of_translation(tag: str) -> bool | None:
    """Whether what is in an element is translated by its attribute `translate`; None where it has none."""
    if "translate" not in tag.lower():
        return None
    said = [match[2] or "" for match in ATTRIBUTE.finditer(tag) if match[1].lower() == "translate"]
    return {"no": False, "yes": True, "": True}.get(said[0].strip("\"'").lower()) if said else None


class OpenElements:
    """The elements that are open at a place of a page, and whether what stands there is translated: an element without the
    attribute `translate` is as the one around it."""

    def __init__(self) -> None:
        self.above: list[tuple[str, bool]] = []
        self.names: Counter[str] = Counter()

    @property
    def translated(self) -> bool:
        """Is what stands here translated?"""
        return not self.above or self.above[-1][1]

    def pop(self) -> str:
        """The last element ends."""
        name = self.above.pop()[0]
        self.names[name] -= 1
        return name

    def add_tag(self, tag: str, name: str) -> None:
        """A tag. The end of one that is not open ends nothing, that of another than the last ends those in it, too."""
        if tag.startswith("</"):
            while self.names[name] and self.pop() != name:
                pass
            return
        while self.above and self.above[-1][0] in ENDED_BY.get(name, ()):
            self.pop()
        if name and name not in EMPTY | CODE and not tag.endswith("/>"):
            said = said_of_translation(tag)
            self.above.append((name, self.translated if said is None else said))
            self.names[name] += 1


def is_kept(tag: str, name: str) -> bool:
    """Does this tag begin an inline element that stays whole, code or what is not to be translated?"""
    is_literal = name in LITERAL or said_of_translation(tag) is False
    return is_literal and not tag.startswith("</") and not tag.endswith("/>")


def end_of(page: str, at: int, name: str) -> re.Match[str] | None:
    """The end tag of an inline element of this name that begins in front of this place. Code ends at the first."""
    depth = 1
    for tag in re.compile(rf"<(/?){name}(?=[\s/>])[^<>]*>", re.IGNORECASE).finditer(page, at):
        depth += -1 if tag[1] else name not in LITERAL and not tag[0].endswith("/>")
        if not depth:
            return tag
    return None
