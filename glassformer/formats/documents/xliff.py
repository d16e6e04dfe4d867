"""XLIFF 1.2 and 2: every unit whose target is missing or empty gets one."""

from __future__ import annotations

from pathlib import Path

from glassformer.data.tmx import local
from glassformer.formats.documents.document import DocumentParts, has_words
from glassformer.formats.documents.xml_text import XmlText
from glassformer.text.markup import Segment


def read_xliff(content: bytes, path: Path, *, numbers: bool) -> DocumentParts:
    """The units without a target."""
    xml = XmlText(content, path)
    edits: list[tuple[int, int, list[str | Segment]]] = []
    left = 0
    for parent in xml.root.iter():
        source = next((child for child in parent if local(child) == "source"), None)
        target = next((child for child in parent if local(child) == "target"), None)
        filled = target is not None and ("".join(target.itertext()).strip() or len(target))
        if source is None or filled or not has_words("".join(source.itertext())):
            continue
        inside = xml.segment(source, numbers)
        if inside is None:
            left += 1
        elif target is not None:
            edits.append(xml.filled(target, inside))
        else:
            name, end = xml.name(source).replace("source", "target"), xml.places[source].end
            edits.append((end, end, [f"{xml.beside(source)}<{name}>", *inside, f"</{name}>"]))
    return xml.document(edits, left)
