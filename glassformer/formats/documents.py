"""Documents whose texts are translated and whose structure stays: HTML, Markdown, subtitles, gettext's .po, XLIFF, TMX and Word.

Each kind is read by a parser of its own (the scanner of text/markup.py, markdown-it, Babel, ElementTree) into segments, which
tasks/markup.py translates, carrying their inline markup over.
"""

from __future__ import annotations

import copy
import functools
import io
import re
import zipfile
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from glassformer.data import tmx
from glassformer.data.tmx import local
from glassformer.errors import UserError, install_hint
from glassformer.language import _
from glassformer.tasks.markup import as_html, translate_segments
from glassformer.text.markup import Node, Segment, SegmentParser, html_segments

Translate = Callable[[list[str | Segment], Callable[[str], str]], list[str]]
"""Parts and how text is escaped, to parts in the other language (`translate_segments` with a model)."""
LONGEST_PART = 64 << 20  # bytes of one file in a .docx
WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
NATIVE = tmx.CODES | {"x", "bx", "ex", "sc", "ec", "cp"}  # of XLIFF: code of another format, nothing to translate


def as_is(text: str) -> str:
    """Text that needs no escaping."""
    return text


def decoded(content: bytes, path: Path) -> str:
    """A document's text."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UserError("{path} is not UTF-8", path=path) from None


def translate_html(content: bytes, path: Path, translate: Translate, numbers: bool) -> bytes:
    """A page: tags stay, to the byte."""
    return "".join(translate(html_segments(decoded(content, path), numbers=numbers), as_html)).encode()


def translate_srt(content: bytes, path: Path, translate: Translate, numbers: bool) -> bytes:
    """Subtitles: a cue is one text, whatever its line breaks; numbers and times stay."""
    parts: list[str | Segment] = []
    for block in re.split(r"((?:\r?\n){2,})", decoded(content, path)):
        head = re.match(r"(?:\s*\d+\s*\n)?[^\n]*-->[^\n]*\n", block)
        text = block[head.end() :] if head else ""
        parts += [head[0] if head else block, *html_segments(text, numbers=numbers, entities=False)]
    return "".join(translate(parts, as_is)).encode()


def translate_po(content: bytes, path: Path, translate: Translate, numbers: bool) -> bytes:
    """A gettext catalogue: messages that have no translation yet get one; plurals are left to a person."""
    try:
        from babel.messages.pofile import PoFileError, read_po, write_po
    except ImportError:
        raise UserError(
            "reading {kind} files needs the package {name}; install it with: {command}",
            kind=".po",
            name="Babel",
            command=install_hint("dates"),
        ) from None
    try:
        catalogue = read_po(io.BytesIO(content), abort_invalid=True)
    except (PoFileError, ValueError, UnicodeDecodeError) as error:
        raise UserError("{path} cannot be read: {reason}", path=path, reason=error) from None
    waiting = [m for m in catalogue if isinstance(m.id, str) and m.id and not m.string]
    lines = [line for message in waiting for line in str(message.id).split("\n")]
    segments = [html_segments(line, numbers=numbers, entities=False) for line in lines]
    done = iter(translate([part for own in segments for part in own], as_is))
    written = iter(["".join(next(done) for _ in own) for own in segments])
    for message in waiting:
        message.string = "\n".join(next(written) for _ in str(message.id).split("\n"))
        message.flags.add("fuzzy")  # nobody has looked at it yet
    out = io.BytesIO()
    write_po(out, catalogue, width=None)  # type: ignore[arg-type]
    return out.getvalue()


# ---------------------------------------------------------------------------------------------------------------- Markdown


def markdown_segment(children: list[Any], numbers: bool) -> Segment:
    """A line of Markdown from markdown-it's inline tokens."""
    parser, links = SegmentParser(numbers=numbers), []
    for token in children:
        at = len(parser.text)
        if token.type in ("text", "softbreak", "hardbreak"):
            parser.add_text(token.content or " ")
        elif token.type == "link_open":
            href, title = token.attrs["href"], token.attrs.get("title")
            links.append(f"]({href}" + (f' "{title}")' if title else ")"))
            parser.stack.append(("link", Node(at, at, "[")))
        elif token.type.endswith("_open"):
            parser.stack.append((token.tag, Node(at, at, token.markup)))
        elif token.type.endswith("_close") and parser.stack:
            node = parser.stack.pop()[1]
            node.end, node.closing = at, links.pop() if token.type == "link_close" else token.markup
            parser.siblings().append(node)
        elif token.type == "code_inline":
            parser.add_kept(f"{token.markup}{token.content}{token.markup}", token.content)
        elif token.type == "image":
            source = f"![{token.content}]({token.attrs['src']})"
            parser.siblings().append(Node(at, at, source))
        else:
            parser.siblings().append(Node(at, at, token.content or token.markup))
    return parser.finish()


def as_markdown(text: str) -> str:
    """Text in which nothing is a mark of Markdown by accident."""
    return re.sub(r"([\\`*\[\]<>])", r"\\\1", text)


def translate_markdown(content: bytes, path: Path, translate: Translate, numbers: bool) -> bytes:
    """Markdown: paragraphs, headings, list items and cells are texts, whatever their line breaks; code stays."""
    from markdown_it import MarkdownIt

    text = decoded(content, path)
    lines = text.split("\n")
    tokens = [token for token in MarkdownIt("gfm-like", {"linkify": False}).parse(text) if token.type == "inline"]
    tokens = [t for t in tokens if t.map and t.children and any(c.isalpha() for c in t.content)]
    done = translate([markdown_segment(token.children or [], numbers) for token in tokens], as_markdown)
    column: dict[int, int] = {}
    for token, translation in zip(tokens, done, strict=True):
        assert token.map is not None
        first, last = token.map
        begin, *rest = token.content.split("\n")
        at = lines[first].find(begin, column.get(first, 0))
        if at < 0:
            continue  # a form of the line that is not its text (an escape in a table's cell): it stays as it is
        behind = lines[first][at + len(begin) :] if not rest else ""
        lines[first] = lines[first][:at] + translation + behind
        column[first] = at + len(translation)
        for number in range(first + 1, last if rest else first):
            lines[number] = "\0"
    return "\n".join(line for line in lines if line != "\0").encode()


# --------------------------------------------------------------------------------------------------------------------- XML


def xml_tree(content: bytes, path: Path) -> ElementTree.Element:
    """The tree of an XML document, its prefixes kept."""
    tmx.refuse_entities(content, path)
    try:
        for _, (prefix, uri) in ElementTree.iterparse(io.BytesIO(content), ["start-ns"]):
            if not re.fullmatch(r"ns\d+", prefix):
                ElementTree.register_namespace(prefix, uri)
        return ElementTree.fromstring(content)
    except ElementTree.ParseError as error:
        raise UserError("{path} is not XML: {error}", path=path, error=error) from None


def xml_segment(parent: ElementTree.Element, kept: list[ElementTree.Element], numbers: bool) -> Segment:
    """What is in an element as a segment: its children as tags <n0>, <n1> …, which are put into `kept`."""
    parser = SegmentParser(numbers=numbers)

    def add(element: ElementTree.Element) -> None:
        parser.add_text(as_html(element.text or ""), entities=True)
        for child in element:
            number = len(kept)
            kept.append(child)
            if local(child) in NATIVE or not "".join(child.itertext()).strip():
                parser.add_tag(f"<n{number}/>")
            else:
                parser.add_tag(f"<n{number}>")
                add(child)
                parser.add_tag(f"</n{number}>")
            parser.add_text(as_html(child.tail or ""), entities=True)

    add(parent)
    return parser.finish()


def xml_from(markup: str, kept: list[ElementTree.Element]) -> ElementTree.Element:
    """The element that a rendered segment is, its tags the elements that they stand for."""

    def restore(element: ElementTree.Element) -> None:
        for child in element:
            own, tail = kept[int(child.tag[1:])], child.tail
            restore(child)
            child.tag, child.attrib = own.tag, dict(own.attrib)
            if local(own) in NATIVE or not "".join(own.itertext()).strip():
                child.text = own.text
                child[:] = [copy.deepcopy(inner) for inner in own]
            child.tail = tail

    root = ElementTree.fromstring(f"<root>{markup}</root>")
    restore(root)
    return root


def translate_xliff(content: bytes, path: Path, translate: Translate, numbers: bool) -> bytes:
    """XLIFF 1.2 and 2: every unit whose target is missing or empty gets one."""
    tree = xml_tree(content, path)
    units, parts = [], []
    for parent in tree.iter():
        source = next((child for child in parent if local(child) == "source"), None)
        target = next((child for child in parent if local(child) == "target"), None)
        filled = target is not None and ("".join(target.itertext()).strip() or len(target))
        if source is None or filled or not any(c.isalpha() for c in "".join(source.itertext())):
            continue
        if target is None:
            target = ElementTree.Element(source.tag.replace("source", "target"))
            target.tail = source.tail
            parent.insert(list(parent).index(source) + 1, target)
        kept: list[ElementTree.Element] = []
        parts.append(xml_segment(source, kept, numbers))
        units.append((target, kept))
    for (target, kept), markup in zip(units, translate([*parts], as_html), strict=True):
        root = xml_from(markup, kept)
        target.text, target[:] = root.text, list(root)
    return ElementTree.tostring(tree, encoding="utf-8", xml_declaration=True)


def translate_tmx(
    content: bytes,
    path: Path,
    translate: Translate,
    numbers: bool,
    languages: tuple[tuple[str, ...], str | None] = ((), None),
) -> bytes:
    """A translation memory: every unit without a text in the target language gets one. `languages`: those that the run reads
    and the one it writes; where it does not know, the header's srclang and the other one of the file."""
    tree = xml_tree(content, path)
    header = next((own for own in tree.iter() if local(own) == "header"), None)
    spoken = list(dict.fromkeys(tmx.language_of(own) for own in tree.iter() if local(own) == "tuv"))
    sources, target = languages
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
    target = target or others[0]
    units, parts = [], []
    for unit in tree.iter():
        variants = [] if local(unit) != "tu" else tmx.variants_of(unit, source)
        segment = tmx.segment_of(variants[0]) if variants else None
        if segment is None or not any(c.isalpha() for c in tmx.plain_text(segment)):
            continue
        there = next((own for own in variants[1:] if tmx.same_language(tmx.language_of(own), target)), None)
        written = None if there is None else tmx.segment_of(there)
        if written is not None and (tmx.plain_text(written).strip() or len(written)):
            continue
        if there is None:
            there = ElementTree.SubElement(unit, variants[0].tag, {tmx.LANGUAGE: target})
            there.tail = variants[0].tail
        written = ElementTree.SubElement(there, segment.tag) if written is None else written
        kept: list[ElementTree.Element] = []
        parts.append(xml_segment(segment, kept, numbers))
        units.append((written, kept))
    for (written, kept), markup in zip(units, translate([*parts], as_html), strict=True):
        root = xml_from(markup, kept)
        written.text, written[:] = root.text, list(root)
    return ElementTree.tostring(tree, encoding="utf-8", xml_declaration=True)


def run_text(run: ElementTree.Element) -> str | None:
    """The text of a run of Word's; None where it holds anything else."""
    inside = [child for child in run if child.tag != f"{WORD}rPr"]
    return "".join(c.text or "" for c in inside) if all(c.tag == f"{WORD}t" for c in inside) else None


def look_of(run: ElementTree.Element) -> str:
    """How a run looks: its properties."""
    properties = run.find(f"{WORD}rPr")
    return "" if properties is None else ElementTree.tostring(properties, encoding="unicode")


def paragraph_segment(paragraph: ElementTree.Element, kept: list[Any], numbers: bool) -> Segment:
    """A paragraph of Word's: runs that do not look as most of it does are tags, whatever is no run of text stays where it is."""
    parser, runs = SegmentParser(numbers=numbers), [child for child in paragraph if child.tag != f"{WORD}pPr"]
    lengths: dict[str, int] = {}
    for run in runs:
        if run.tag == f"{WORD}r" and (text := run_text(run)):
            lengths[look_of(run)] = lengths.get(look_of(run), 0) + len(text)
    usual = max(lengths, key=lengths.__getitem__, default="")

    def kind(run: ElementTree.Element) -> str | None:
        return look_of(run) if run.tag == f"{WORD}r" and run_text(run) is not None else None

    for look, group in groupby(runs, kind):
        own = list(group)
        if look is None:
            for run in own:
                parser.add_tag(f"<n{len(kept)}/>")
                kept.append(run)
            continue
        number = len(kept)
        kept.append(own[0])
        if look == usual and kept[0] is None:
            kept[0] = own[0]
        parser.add_tag(f"<n{number}>") if look != usual else None
        parser.add_text(as_html("".join(run_text(run) or "" for run in own)), entities=True)
        parser.add_tag(f"</n{number}>") if look != usual else None
    return parser.finish()


def new_run(like: ElementTree.Element | None, text: str) -> ElementTree.Element:
    """A run of text that looks like another."""
    run = ElementTree.Element(f"{WORD}r")
    if like is not None and (properties := like.find(f"{WORD}rPr")) is not None:
        run.append(copy.deepcopy(properties))
    inside = ElementTree.SubElement(run, f"{WORD}t", {"{http://www.w3.org/XML/1998/namespace}space": "preserve"})
    inside.text = text
    return run


def translate_docx(content: bytes, path: Path, translate: Translate, numbers: bool) -> bytes:
    """A Word document: the paragraphs of its body, tables included; everything else stays as it is."""
    try:
        archive = zipfile.ZipFile(io.BytesIO(content))
        if archive.getinfo("word/document.xml").file_size > LONGEST_PART:
            raise UserError("{path} holds more text than any document", path=path)
        tree = xml_tree(archive.read("word/document.xml"), path)
    except (zipfile.BadZipFile, KeyError) as error:
        raise UserError("{path} is not a Word document: {error}", path=path, error=error) from None
    found, parts = [], []
    for paragraph in tree.iter(f"{WORD}p"):
        kept: list[Any] = [None]  # first: a run that looks as most of the paragraph
        segment = paragraph_segment(paragraph, kept, numbers)
        if any(c.isalpha() for c in segment.text):
            found.append((paragraph, kept))
            parts.append(segment)
    for (paragraph, kept), markup in zip(found, translate([*parts], as_html), strict=True):
        properties = [child for child in paragraph if child.tag == f"{WORD}pPr"]
        root = ElementTree.fromstring(f"<root>{markup}</root>")
        runs = [new_run(kept[0], root.text)] if root.text else []
        for child in root:
            own, text = kept[int(child.tag[1:])], "".join(child.itertext())
            runs += [new_run(own, text)] if text else [own] if own.tag != f"{WORD}r" or run_text(own) is None else []
            runs += [new_run(kept[0], child.tail)] if child.tail else []
        paragraph[:] = [*properties, *runs]
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as made:
        for entry in archive.infolist():
            same = entry.filename != "word/document.xml"
            own = archive.read(entry) if same else ElementTree.tostring(tree, encoding="utf-8", xml_declaration=True)
            made.writestr(entry, own)
    return out.getvalue()


KINDS: dict[str, Callable[..., bytes]] = {
    **dict.fromkeys((".html", ".htm", ".xhtml"), translate_html),
    **dict.fromkeys((".md", ".markdown"), translate_markdown),
    ".srt": translate_srt,
    ".po": translate_po,
    **dict.fromkeys((".xlf", ".xliff"), translate_xliff),
    ".tmx": translate_tmx,
    ".docx": translate_docx,
}
"""By the ending of a file: how such a document is translated."""


def translate_document(model: Any, path: Path, *, numbers: bool = False, **options: Any) -> bytes:
    """The document of this file in the other language. `numbers`: they stay as they are, to the byte, as placeholders, addresses
    and code do in any case."""
    kind = KINDS.get(path.suffix.lower())
    if kind is None:
        raise UserError(
            "{path}: a document to translate ends in one of {kinds}", path=path, kinds=", ".join(sorted(KINDS))
        )
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UserError("{path} cannot be read: {reason}", path=path, reason=error.strerror or error) from None
    if kind is translate_tmx:
        data = model.recipe.data
        kind = functools.partial(kind, languages=(data.source_languages, data.target_language))
    return kind(content, path, lambda parts, escape: translate_segments(model, parts, escape, **options), numbers)
