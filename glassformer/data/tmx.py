"""Translation memories: TMX 1.4, by the standard library's XML parser.

A unit is a record with the text of each language under its code (xml:lang), and, so that a memory of two languages needs no
settings, `source` (the header's srclang, or the first) and `target` (the first of another language). Codes of another format
(`<bpt>`, `<ph>` and so on) are no text, and what `<hi>` marks is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree
from xml.parsers import expat

from glassformer.data.files import BadLine, ReadContext
from glassformer.errors import UserError
from glassformer.language import _

CODES = frozenset({"bpt", "ept", "ph", "it", "ut"})  # of another format: nothing to translate
LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang"
BLOCK = 1 << 16  # bytes


class EntityGuard:
    """Refuses a document that declares entities, which can grow without end; a plain document type declares none.

    A parser of its own reads what stands in front of the first element, however long that is, as the parser of the elements
    will: bytes say little, which an encoding may spell in many ways. What is no XML is for that one to refuse."""

    def __init__(self, path: Path) -> None:
        self.path, self.over = path, False
        self.parser = expat.ParserCreate()
        self.parser.StartDoctypeDeclHandler = self.look_at_type
        self.parser.StartElementHandler = self.end

    def look_at_type(self, name: str, system: str | None, public: str | None, declares: bool) -> None:
        """Refuse a document type with declarations of its own."""
        if declares:
            raise UserError(
                "{path} has a document type, whose entities can grow without end; take it out", path=self.path
            )

    def end(self, *_element: Any) -> None:
        """The first element has begun: no document type comes after it."""
        raise StopIteration

    def feed(self, block: str | bytes) -> None:
        """The next piece of the document, before any other parser has it."""
        if self.over:
            return
        try:
            self.parser.Parse(block, False)
        except UserError:
            raise
        except (expat.ExpatError, ValueError, LookupError, StopIteration):
            self.over = True


def local(element: ElementTree.Element) -> str:
    """An element's name without its namespace."""
    return str(element.tag).rpartition("}")[2]


def language_of(variant: ElementTree.Element) -> str:
    """The code of a variant's language, as it is written; TMX 1.1 calls it lang."""
    return variant.get(LANGUAGE) or variant.get("lang") or ""


def same_language(first: str, second: str) -> bool:
    """Whether two codes name one language, whatever their regions: en and en-GB."""
    return re.split("[-_]", first.lower())[0] == re.split("[-_]", second.lower())[0]


def segment_of(variant: ElementTree.Element) -> ElementTree.Element | None:
    """The segment of a variant."""
    return next((child for child in variant if local(child) == "seg"), None)


def plain_text(element: ElementTree.Element) -> str:
    """The text of a segment without the codes in it."""
    inside = ((plain_text(child) if local(child) not in CODES else "") + (child.tail or "") for child in element)
    return re.sub(r"[ \t\r\n]+", " ", (element.text or "") + "".join(inside))


def variants_of(unit: ElementTree.Element, source_language: str) -> list[ElementTree.Element]:
    """The variants of a unit, that of the source language first."""
    variants = [child for child in unit if local(child) == "tuv"]
    return sorted(variants, key=lambda variant: not same_language(language_of(variant), source_language))


def tmx_records(path: Path, context: ReadContext) -> Iterator[tuple[int, dict[str, str]]]:
    """The units of a translation memory, by their number."""
    parser: Any = ElementTree.XMLPullParser(["start", "end"])
    number, source_language = 0, "*all*"
    above: list[ElementTree.Element] = []
    with context.opened(path) as file:
        guard = EntityGuard(path)
        while True:
            block = file.read(BLOCK)
            guard.feed(block)
            try:
                parser.feed(block) if block else parser.close()
                events = list(parser.read_events())
            except (ElementTree.ParseError, ValueError, LookupError) as error:  # also of an encoding
                raise UserError("{path} is not XML: {error}", path=path, error=error) from None
            for event, element in events:
                if event == "start":
                    above.append(element)
                    continue
                above.pop()
                if local(element) == "header":
                    source_language = element.get("srclang", source_language)
                if local(element) != "tu":
                    continue
                number += 1
                variants = variants_of(element, element.get("srclang", source_language))
                texts = {language_of(one): plain_text(seg) for one in variants if (seg := segment_of(one)) is not None}
                above[-1].remove(element)  # a memory may be larger than the machine's
                if len(texts) < 2:
                    problem = _("a unit without two languages")
                    context.complain(BadLine("languages", path, number, problem))
                    continue
                source, target, *_more = texts.values()
                yield number, {"source": source, "target": target} | texts
            if not block:
                return
