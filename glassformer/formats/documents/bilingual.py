"""Files of texts beside their translations: in XLIFF 1.2 and 2 every unit whose target is missing or empty gets one, in a
translation memory (TMX) every unit without a text in the target language."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from xml.etree.ElementTree import Element
from xml.sax.saxutils import quoteattr

from glassformer.data import tmx
from glassformer.data.tmx import local
from glassformer.errors import UserError
from glassformer.formats.documents.document import DocumentParts, has_words
from glassformer.formats.documents.xml_text import XmlText, said_of_translation
from glassformer.language import _
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


def languages_of(xml: XmlText, path: Path, sources: tuple[str, ...], target: str | None) -> tuple[str, str]:
    """The languages to translate from and into: those that the run reads and writes; where it does not know, the header's
    srclang and the other one of the file."""
    header = next((own for own in xml.root.iter() if local(own) == "header"), None)
    spoken = list(dict.fromkeys(tmx.language_of(own) for own in xml.root.iter() if local(own) == "tuv"))
    known = [code for code in spoken if any(tmx.same_language(code, own) for own in sources)]
    source = known[0] if known else "*all*" if header is None else header.get("srclang", "*all*")
    source = source if source != "*all*" or not spoken else spoken[0]
    others = [code for code in spoken if not tmx.same_language(code, source)]
    target = next((code for code in others if target and tmx.same_language(code, target)), target)
    if target is None and len(others) != 1:
        raise UserError(
            "{path} has texts in {languages}, and the run does not say which language it writes; train it with "
            "data.target_language",
            path,
            ", ".join(spoken) or _("no language"),
        )
    return source, target or others[0]


def read_tmx(
    content: bytes, path: Path, *, numbers: bool, languages: tuple[tuple[str, ...], str | None] = ((), None)
) -> DocumentParts:
    """A memory. `languages`: those that the run reads and the one it writes."""
    xml = XmlText(content, path)
    source, target = languages_of(xml, path, *languages)
    edits: list[tuple[int, int, list[str | Segment]]] = []
    left = 0
    for unit in xml.root.iter():
        variants = [] if local(unit) != "tu" else tmx.variants_of(unit, source)
        segment = tmx.segment_of(variants[0]) if variants else None
        if segment is None or not has_words(tmx.plain_text(segment)):
            continue
        there = next((own for own in variants[1:] if tmx.same_language(tmx.language_of(own), target)), None)
        written = None if there is None else tmx.segment_of(there)
        if written is not None and (tmx.plain_text(written).strip() or len(written)):
            continue
        inside = xml.segment(segment, numbers)
        if inside is None:
            left += 1
        elif written is not None:
            edits.append(xml.filled(written, inside))
        elif there is not None:
            edits.append(xml.filled(there, ["<seg>", *inside, "</seg>"]))
        else:
            last = max(variants, key=lambda own: xml.places[own].end)
            opening = f"{xml.beside(last)}<tuv xml:lang={quoteattr(target)}><seg>"
            edits.append((xml.places[last].end, xml.places[last].end, [opening, *inside, "</seg></tuv>"]))
    return xml.document(edits, left)
