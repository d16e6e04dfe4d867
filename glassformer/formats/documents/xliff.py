"""XLIFF 1.2 and 2: every unit whose target is missing or empty gets one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from xml.etree.ElementTree import Element

from glassformer.data.tmx import local
from glassformer.formats.documents.document import DocumentParts, has_words
from glassformer.formats.documents.xml_text import XmlText, said_of_translation
from glassformer.text.markup import Segment

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
