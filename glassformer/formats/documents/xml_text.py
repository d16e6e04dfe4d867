"""An XML document as its parser reads it, with the place of each element in its text: what is not translated stays to the byte,
declarations, comments and the order of attributes included, which a tree that is written anew would lose."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from glassformer.data import tmx
from glassformer.data.tmx import local
from glassformer.errors import UserError
from glassformer.formats.documents.document import DocumentParts, checked_encoding
from glassformer.text.markup import Segment, SegmentParser

NATIVE = tmx.CODES | {"x", "bx", "ex", "sc", "ec", "cp"}  # of XLIFF: code of another format, nothing to translate
DEEPEST = 100  # elements in one another
CONTROL = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # what no XML may hold
TOKEN = re.compile(
    r"""
      <!--.*?--> | <!\[CDATA\[(?P<plain>.*?)\]\]> | <\?.*?\?>
    | <(?P<kind>[/!]?)(?P<name>[^\s<>/!?][^\s<>/"']*)(?:[^>"'/]++|"[^"]*+"|'[^']*+'|/(?!>))*+(?P<empty>/?)>
    """,
    re.DOTALL | re.VERBOSE,
)


def said_of_translation(element: Element) -> bool | None:
    """Whether what is in an element is translated by its attribute `translate`, or XLIFF's kind of mark; None where it says
    nothing."""
    said = "no" if element.get("mtype") == "protected" else element.get("translate")
    return {"no": False, "yes": True}.get(said or "")


class Place(NamedTuple):
    """Where an element begins, where what is in it does, where its end tag begins and where that ends."""

    start: int
    inside: int
    closing: int
    end: int


def as_xml(text: str) -> str:
    """Text of an XML document."""
    return html.escape(CONTROL.sub("", text), quote=False)


def encoding_of(content: bytes) -> str:
    """The encoding that a document says it has."""
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16"
    said = re.match(rb"<\?xml[^>]*?\sencoding\s*=\s*[\"']([\w.-]+)", content)
    return "utf-8-sig" if content.startswith(b"\xef\xbb\xbf") else said[1].decode() if said else "utf-8"


class XmlText:
    """An XML document: its `text`, the `root` of its tree, and the `places` of its elements."""

    def __init__(self, content: bytes, path: Path) -> None:
        self.encoding = checked_encoding(encoding_of(content), path)
        self.places: dict[Element, Place] = {}
        parser: Any = ElementTree.XMLPullParser(["start", "end"])
        try:
            self.text = content.decode(self.encoding)
            tmx.EntityGuard(path).feed(self.text)
            parser.feed(self.text)
            parser.close()
        except (ElementTree.ParseError, UnicodeError) as error:
            raise UserError("{path} is not XML: {error}", path=path, error=error) from None
        tags = (tag for tag in TOKEN.finditer(self.text) if tag["name"] and tag["kind"] != "!")
        above: list[re.Match[str]] = []
        for event, element in parser.read_events():  # elements and tags come in the same order
            if event == "end" and above[-1]["empty"]:
                tag = above.pop()
                self.places[element] = Place(tag.start(), tag.end(), tag.end(), tag.end())
                continue
            tag = next(tags)
            if event == "end":
                begun = above.pop()
                self.places[element] = Place(begun.start(), begun.end(), tag.start(), tag.end())
                continue
            if not above:
                self.root: Element = element
            above.append(tag)
            if len(above) > DEEPEST:
                raise UserError("{path} has more than {count} elements in one another", path, DEEPEST)

    def raw(self, element: Element) -> str:
        """An element as it stands in the text."""
        place = self.places[element]
        return self.text[place.start : place.end]

    def name(self, element: Element) -> str:
        """The name of an element as it stands in the text, with its prefix."""
        return re.split(r"[\s/>]", self.raw(element)[1:], maxsplit=1)[0]

    def beside(self, element: Element) -> str:
        """The blanks in front of an element, to put another one behind it."""
        text = self.text[: self.places[element].start]
        return text[len(text.rstrip()) :]

    def filled(self, element: Element, inside: Sequence[str | Segment]) -> tuple[int, int, list[str | Segment]]:
        """An element with something else inside, as an edit: from where to where, and what comes there."""
        place = self.places[element]
        if place.closing < place.end:
            notes = "<" in self.text[place.inside : place.closing]
            return place.closing if notes else place.inside, place.closing, [*inside]
        opening = self.raw(element)
        return place.start, place.end, [f"{opening[:-2].rstrip()}>", *inside, f"</{self.name(element)}>"]

    def encoded(self, text: str) -> bytes:
        """The text in the document's encoding."""
        return text.encode(self.encoding, "xmlcharrefreplace")

    def document(self, edits: Sequence[tuple[int, int, list[str | Segment]]], left: int) -> DocumentParts:
        """The document with these edits, no two of which touch the same text."""
        parts: list[str | Segment] = []
        at = 0
        for start, end, new in sorted(edits, key=lambda edit: edit[:2]):
            parts += [self.text[at:start], *new]
            at = end
        return DocumentParts([*parts, self.text[at:]], as_xml, lambda done: self.encoded("".join(done)), left)

    def segment(self, parent: Element, numbers: bool) -> list[str | Segment] | None:
        """What is in an element: a segment, and the blanks around it; None where there is too much in it."""
        parser = SegmentParser(numbers=numbers)

        def add_raw(start: int, end: int) -> None:
            at = start
            for token in TOKEN.finditer(self.text, start, end):
                parser.add_text(self.text[at : token.start()], entities=True)
                if token["plain"] is not None:
                    parser.add_text(as_xml(token["plain"]), entities=True)
                else:
                    parser.add_point(token[0])
                at = token.end()
            parser.add_text(self.text[at:end], entities=True)

        def add(element: Element) -> None:
            at = self.places[element].inside
            for child in element:
                own = self.places[child]
                add_raw(at, own.start)
                if said_of_translation(child) is False:
                    parser.add_kept(self.raw(child), tmx.plain_text(child))
                elif local(child) in NATIVE or not "".join(child.itertext()).strip():
                    parser.add_point(self.raw(child))
                else:
                    parser.open(child.tag, self.text[own.start : own.inside])
                    add(child)
                    parser.close(child.tag, self.text[own.closing : own.end])
                at = own.end
            add_raw(at, self.places[element].closing)

        add(parent)
        if parser.full or parser.too_deep:
            return None
        inside = self.text[self.places[parent].inside : self.places[parent].closing]
        lead, tail = len(inside) - len(inside.lstrip()), len(inside.rstrip())
        return [inside[:lead], parser.finish(), inside[tail:]]
