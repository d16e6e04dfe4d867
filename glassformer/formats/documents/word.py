"""Word documents (.docx): the paragraphs of the body, headers, footers and notes, tables and text boxes included; everything
else stays to the byte.

A paragraph is rendered inside one run that looks as most of it does. A tag that is put into it ends that run, says what it has
to say and begins the run again; runs without text that come of this are taken out in the end. Control characters, which no XML
may hold, mark where our runs begin and end (0), where their look ends (1), where the text of a paragraph goes (2), and breaks,
in front of which no blank is kept (3).
"""

from __future__ import annotations

import copy
import io
import re
import zipfile
import zlib
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from xml.etree.ElementTree import Element

from glassformer.errors import UserError
from glassformer.formats.documents.document import LARGEST, DocumentParts, has_words
from glassformer.formats.documents.xml import XmlText, as_xml, local
from glassformer.language import _
from glassformer.text.markup import Segment, SegmentParser

BODY, COMMENTS = "word/document.xml", "word/comments.xml"
MOST_ENTRIES = 4096  # of a container; a document has some dozens, and one for each picture
HEADER = 30  # bytes in front of a packed entry, at least
TEXTS = re.compile(r"word/(?:document|(?:header|footer)[^/]*|footnotes|endnotes|comments)\.xml")
SEPARATORS = frozenset(["separator", "continuationSeparator"])  # notes that are the line above the notes
PARAGRAPH = ("{http://schemas.openxmlformats.org/wordprocessingml/", "{http://purl.oclc.org/ooxml/wordprocessingml/")
AROUND = frozenset(
    ["hyperlink", "ins", "moveTo", "smartTag", "customXml", "fldSimple", "sdt", "sdtContent", "bdo", "dir"]
)
NOTHING = frozenset(["proofErr", "lastRenderedPageBreak", "softHyphen"])  # of the text as it was set
BLANK = frozenset(["tab", "br", "cr", "ptab"])
MARKER = re.compile(r"(.+)(Start|End)")  # bookmarkStart, commentRangeEnd
LANGUAGE = re.compile(r"<\w+:(?:lang|noProof)\b[^>]*/>")  # of the source, and not of its translation


class NotCarriedOverError(Exception):
    """A paragraph with something in it that cannot be moved along with the words."""


def number_of(element: Element) -> str:
    """The number of a bookmark or comment."""
    return next((value for key, value in element.attrib.items() if key.endswith("}id")), "")


def field_chars(run: Element) -> list[str]:
    """What a run says of a field: that it begins, that its result follows, that it ends."""
    return [
        next(iter(v for k, v in c.attrib.items() if k.endswith("fldCharType")), "")
        for c in run
        if local(c) == "fldChar"
    ]


class Paragraph:
    """A paragraph as a segment. `raw` gives a stretch of the text, with marks for the paragraphs in it (text boxes)."""

    def __init__(self, xml: XmlText, paragraph: Element, raw: Callable[[int, int], str], *, numbers: bool) -> None:
        self.xml, self.raw = xml, raw
        self.prefix = xml.name(paragraph).removesuffix("p")
        self.inside = [child for child in paragraph if local(child) != "pPr"]
        properties = [xml.places[child].end for child in paragraph if local(child) == "pPr"]
        place = xml.places[paragraph]
        self.start, self.end = max([place.inside, *properties]), place.closing
        self.lengths: dict[str, int] = {}
        self.waiting = ""
        self.parser = SegmentParser(numbers=numbers)
        self.measure(self.inside)
        self.usual = self.look = max(self.lengths, key=self.lengths.__getitem__, default="")

    def measure(self, children: Sequence[Element]) -> None:
        """How much of the text has which look."""
        for child in children:
            if local(child) == "r":
                look = self.look_of(child)
                self.lengths[look] = self.lengths.get(look, 0) + len(self.text_of(child))
            elif local(child) in AROUND:
                self.measure(list(child))

    def look_of(self, run: Element) -> str:
        """How a run looks: its properties, as they stand in the text."""
        own = next((self.xml.raw(child) for child in run if local(child) == "rPr"), "")
        look = LANGUAGE.sub("", own)
        return look if re.sub(r"^<[^>]*>|</[^>]*>$", "", look).strip() else ""

    def text_of(self, run: Element) -> str:
        """The text of a run."""
        return "".join(child.text or "" for child in run if local(child) == "t")

    def raw_of(self, element: Element) -> str:
        """An element as it stands in the text."""
        place = self.xml.places[element]
        return self.raw(place.start, place.end)

    def begun(self, look: str) -> str:
        """The beginning of a run of text."""
        return f'\x00<{self.prefix}r>{look}\x01<{self.prefix}t xml:space="preserve">'

    @property
    def ended(self) -> str:
        """The end of a run of text."""
        return f"</{self.prefix}t></{self.prefix}r>\x00"

    def between(self, raw: str) -> str:
        """What stands between two runs of text, with the end of the first and the beginning of the second."""
        return self.ended + raw + self.begun(self.look)

    def flush(self) -> None:
        """The text of several runs that look the same is one text: a placeholder may be cut between them."""
        self.parser.add_text(as_xml(self.waiting), entities=True)
        self.waiting = ""

    def turn(self, look: str) -> None:
        """The text that comes looks like this."""
        if look == self.look:
            return
        self.flush()
        if self.look != self.usual:
            self.look = self.usual
            self.close("run", "")
        if look != self.usual:
            self.parser.open("run", self.ended + self.begun(look))
            self.look = look

    def close(self, name: str, raw: str) -> None:
        """The end of an element, and of whatever was not ended before it."""
        self.flush()
        while self.parser.stack and self.parser.stack[-1][0] != name:
            self.parser.drop()
        self.parser.close(name, self.between(raw))

    def add_point(self, raw: str) -> None:
        """What is no text, between two runs of it."""
        self.flush()
        self.parser.add_point(self.between(raw))

    def add_run(self, run: Element) -> None:
        """A run: its text, and what stands between; one without text stays as it is."""
        own = [child for child in run if local(child) not in NOTHING | {"rPr"}]
        if not any(local(child) in BLANK | {"t", "noBreakHyphen"} for child in own):
            if own:
                self.add_point(self.raw_of(run))
            return
        if self.text_of(run):
            self.turn(self.look_of(run))
        for child in own:
            if local(child) in ("t", "noBreakHyphen"):
                self.waiting += child.text or "" if local(child) == "t" else "\u2011"
                continue
            self.waiting += " " if local(child) in BLANK else ""
            self.flush()
            inner = self.raw_of(child)
            eaten = "\x03" if local(child) in BLANK else ""
            self.parser.add_point(f'{eaten}</{self.prefix}t>{inner}<{self.prefix}t xml:space="preserve">')

    def add(self, children: Sequence[Element]) -> None:
        """What is in a paragraph, or in an element that is around a part of it."""
        begun, depth, fields = 0, 0, 0  # where the field that is being read begins, how many are in it; open results
        for child in children:
            name, place = local(child), self.xml.places[child]
            says = field_chars(child) if name == "r" else []
            if len(says) > 1 or (says and self.text_of(child)):
                raise NotCarriedOverError
            says = says or [""]
            if depth:
                depth += {"begin": 1, "end": -1}.get(says[0], 0)
                if not depth:
                    self.add_point(self.raw(begun, place.end))
                elif depth == 1 and says == ["separate"]:
                    depth, fields = 0, fields + 1
                    self.parser.open("field", self.between(self.raw(begun, place.end)))
            elif says == ["begin"]:
                self.turn(self.usual)
                self.flush()
                begun, depth = place.start, 1
            elif says[0]:
                if says == ["separate"] or not fields:
                    raise NotCarriedOverError
                self.turn(self.usual)
                self.close("field", self.raw(place.start, place.end))
                fields -= 1
            elif name == "r":
                self.add_run(child)
            elif name in AROUND:
                self.add_around(child)
            elif name not in NOTHING:
                self.add_marker(child)
        if depth or fields:
            raise NotCarriedOverError

    def add_around(self, element: Element) -> None:
        """A link, inserted text and the like: a tag around its words."""
        self.turn(self.usual)
        self.flush()
        place, name = self.xml.places[element], local(element)
        inside = [child for child in element if not local(child).endswith("Pr")]
        begin = self.xml.places[inside[0]].start if inside else place.closing
        if place.closing == place.end or not inside:
            self.add_point(self.raw(place.start, place.end))
            return
        self.parser.open(name, self.between(self.raw(place.start, begin)))
        self.add(inside)
        self.turn(self.usual)
        self.close(name, self.raw(place.closing, place.end))

    def add_marker(self, element: Element) -> None:
        """The beginning or the end of a bookmark or of what a comment is about; anything else is a point."""
        self.turn(self.usual)
        self.flush()
        raw, ends = self.raw_of(element), MARKER.fullmatch(local(element))
        if ends and ends[2] == "Start":
            self.parser.open(ends[1] + number_of(element), self.between(raw))
        elif ends and ends[2] == "End":
            self.parser.close(ends[1] + number_of(element), self.between(raw))
        else:
            self.add_point(raw)

    def segment(self) -> Segment:
        """The paragraph's text with its markup."""
        self.add(self.inside)
        self.turn(self.usual)
        self.flush()
        if self.parser.full or self.parser.too_deep:
            raise NotCarriedOverError
        return self.parser.finish()


def without_empty_runs(text: str) -> str:
    """A rendered paragraph without the runs that hold nothing, and without marks."""
    text = re.sub(r" *\x03", "", text)
    text = re.sub(r'<((?:\w+:)?)t xml:space="preserve"></\1t>', "", text)
    return re.sub(r"[\x00\x01]", "", re.sub(r"\x00[^\x00\x01]*\x01</(?:\w+:)?r>\x00", "", text))


def type_of(element: Element) -> str:
    """What kind of note it is; empty for those that a person has written."""
    return next((value for key, value in element.attrib.items() if key.endswith("}type")), "")


class Body:
    """The paragraphs of the body, or of another part of a document, as segments, its text with marks where they go, and how many
    are left as they are."""

    def __init__(self, xml: XmlText, *, numbers: bool) -> None:
        self.xml, self.left = xml, 0
        self.segments: list[Segment] = []
        self.around: list[tuple[str, str]] = []  # of each, the run that it is in
        self.marked: list[tuple[int, int, int]] = []  # from where to where each is, the first last
        written = (own for part in xml.root if type_of(part) not in SEPARATORS for own in part.iter())
        paragraphs = [own for own in written if local(own) == "p" and own.tag.startswith(PARAGRAPH)]
        for element in reversed(paragraphs):  # those that are in another one before it
            own = Paragraph(xml, element, self.raw, numbers=numbers)
            try:
                segment = own.segment()
            except NotCarriedOverError:
                self.left += any(has_words(own.text_of(run)) for run in element.iter() if local(run) == "r")
                continue
            if not has_words(segment.text):
                continue
            while self.marked and self.marked[-1][1] <= own.end:
                self.marked.pop()
            self.marked.append((own.start, own.end, len(self.segments)))
            self.segments.append(segment)
            self.around.append((own.begun(own.usual), own.ended))

    def raw(self, start: int, end: int) -> str:
        """A stretch of the text, with a mark in the place of each paragraph."""
        out = ""
        for first, last, number in reversed(self.marked):
            if first >= end:
                break
            if first >= start:
                out += f"{self.xml.text[start:first]}\x02{number}\x02"
                start = last
        return out + self.xml.text[start:end]

    def filled(self, parts: Sequence[str]) -> str:
        """The body with these parts as its paragraphs."""
        runs = [f"{begin}{part}{end}" for part, (begin, end) in zip(parts, self.around, strict=True)]
        done = [without_empty_runs(run) for run in runs]

        def fill(text: str) -> str:
            return re.sub(r"\x02(\d+)\x02", lambda mark: fill(done[int(mark[1])]), text)

        return fill(self.raw(0, len(self.xml.text)))


def check_directory(archive: zipfile.ZipFile, path: Path, largest: int) -> list[str]:
    """Refuse a container before anything of it is unpacked, unless each of its records has a name and a place of its own, is
    packed as Word packs, and all together unpack to a size that a document may have. Returns the names of the parts with text."""
    entries = sorted(archive.infolist(), key=lambda entry: entry.header_offset)
    sizes = {entry.filename: entry.file_size for entry in archive.infolist()}
    ends = [*(entry.header_offset for entry in entries[1:]), archive.start_dir]
    overlaps = any(
        entry.header_offset + HEADER + entry.compress_size > end for entry, end in zip(entries, ends, strict=True)
    )
    packed = all(entry.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) for entry in entries)
    if len(entries) > MOST_ENTRIES or len(sizes) < len(entries) or overlaps or not packed:
        raise zipfile.BadZipFile(_("its directory is not one that Word writes"))
    names = [BODY, *(name for name in sizes if TEXTS.fullmatch(name) and name != BODY)]
    if sum(sizes[name] for name in names) > largest or sum(sizes.values()) > 16 * largest:
        raise UserError("{path} holds more text than any document", path=path)
    return names


def read_docx(content: bytes, path: Path, *, numbers: bool, largest: int = LARGEST) -> DocumentParts:
    """A Word document. `largest`: the bytes that its text, or all of it, may have unpacked: a few pack very many."""
    try:
        archive = zipfile.ZipFile(io.BytesIO(content))
        names = check_directory(archive, path, largest)
        broken = archive.testzip()
        if broken is not None:
            raise zipfile.BadZipFile(broken)
        bodies = {name: Body(XmlText(archive.read(name), path), numbers=numbers) for name in names}
    except UserError:
        raise
    except (zipfile.BadZipFile, zlib.error, RuntimeError, KeyError, EOFError, ValueError) as error:
        raise UserError("{path} is not a Word document: {error}", path=path, error=error) from None

    comments = bodies.pop(COMMENTS, None)
    left = sum(body.left for body in bodies.values()) + (comments.left + len(comments.segments) if comments else 0)

    def written(parts: list[str]) -> bytes:
        done, out, new = iter(parts), io.BytesIO(), {}
        for name, body in bodies.items():
            if body.segments:
                new[name] = body.xml.encoded(body.filled([*islice(done, len(body.segments))]))
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as made:
            for entry in archive.infolist():
                made.writestr(copy.copy(entry), new.get(entry.filename) or archive.read(entry))
        return out.getvalue()

    return DocumentParts([own for body in bodies.values() for own in body.segments], as_xml, written, left)
