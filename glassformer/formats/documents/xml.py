"""An XML document as its parser reads it, with the place of each element in its text: what is not translated stays to the byte,
declarations, comments and the order of attributes included, which a tree that is written anew would lose.

XLIFF (1.2 and 2) holds texts beside their translations: every unit whose target is missing or empty gets one.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree
from xml.etree.ElementTree import Element
from xml.parsers import expat

from glassformer.errors import UserError
from glassformer.formats.documents.document import DocumentParts, checked_encoding, has_words
from glassformer.text.markup import Segment, SegmentParser

CODES = frozenset({"bpt", "ept", "ph", "it", "ut"})  # of another format: nothing to translate
NATIVE = CODES | {"x", "bx", "ex", "sc", "ec", "cp"}  # of XLIFF: code of another format, nothing to translate
DEEPEST = 100  # elements in one another
CONTROL = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # what no XML may hold
TOKEN = re.compile(
    r"""
      <!--.*?--> | <!\[CDATA\[(?P<plain>.*?)\]\]> | <\?.*?\?>
    | <(?P<kind>[/!]?)(?P<name>[^\s<>/!?][^\s<>/"']*)(?:[^>"'/]++|"[^"]*+"|'[^']*+'|/(?!>))*+(?P<empty>/?)>
    """,
    re.DOTALL | re.VERBOSE,
)


def refuse_entities(text: str, path: Path) -> None:
    """Refuses a document that declares entities, which can grow without end; a plain document type declares none.

    A parser of its own reads what stands in front of the first element, as the parser of the elements will: characters say
    little, which may be spelled in many ways. What is no XML is for that one to refuse."""

    def look_at_type(name: str, system: str | None, public: str | None, declares: bool) -> None:
        if declares:
            raise UserError("{path} has a document type, whose entities can grow without end; take it out", path=path)

    def end(*_element: Any) -> None:
        raise StopIteration

    parser = expat.ParserCreate()
    parser.StartDoctypeDeclHandler, parser.StartElementHandler = look_at_type, end
    with suppress(expat.ExpatError, StopIteration):
        parser.Parse(text, False)


def local(element: Element) -> str:
    """An element's name without its namespace."""
    return str(element.tag).rpartition("}")[2]


def plain_text(element: Element) -> str:
    """The text of a segment without the codes in it."""
    inside = ((plain_text(child) if local(child) not in CODES else "") + (child.tail or "") for child in element)
    return re.sub(r"[ \t\r\n]+", " ", (element.text or "") + "".join(inside))


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
            refuse_entities(self.text, path)
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
                    parser.add_kept(self.raw(child), plain_text(child))
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


LOOKED_AT = frozenset(["alt-trans", "match"])  # other translations, of version 1.2 and of version 2


def translated(element: Element, above: bool = True) -> Iterator[Element]:
    """An element and those in it that are to be translated; not what is there for a translator to look at. `above`: whether
    what is around it is."""
    said = said_of_translation(element)
    above = above if said is None else said
    if above:
        yield element
    for child in element:
        if local(child) not in LOOKED_AT:
            yield from translated(child, above)


def words_of(element: Element) -> str:
    """The text of an element without what is not to be translated in it."""
    inside = ("" if said_of_translation(child) is False else words_of(child) for child in element)
    tails = (child.tail or "" for child in element)
    return "".join([element.text or "", *inside, *tails])


def read_xliff(content: bytes, path: Path, *, numbers: bool) -> DocumentParts:
    """The units without a target."""
    xml = XmlText(content, path)
    edits: list[tuple[int, int, list[str | Segment]]] = []
    left = 0
    for parent in translated(xml.root):
        children = {local(child): child for child in reversed(parent)}
        source, target = children.get("source"), children.get("target")
        filled = target is not None and ("".join(target.itertext()).strip() or len(target))
        if source is None or filled or not has_words(words_of(source)):
            continue
        inside = xml.segment(source, numbers)
        if inside is None:
            left += 1
        elif target is not None:
            edits.append(xml.filled(target, inside))
        else:
            name, end = xml.name(source).replace("source", "target"), xml.places[children.get("seg-source", source)].end
            edits.append((end, end, [f"{xml.beside(source)}<{name}>", *inside, f"</{name}>"]))
    return xml.document(edits, left)
