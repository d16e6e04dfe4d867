"""Headers, footers and notes of a Word document: translated as its body is, everything else to the byte."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from xml.etree import ElementTree

import pytest

from glassformer.errors import UserError
from glassformer.formats.documents.reader import read_document
from glassformer.formats.documents.word import read_docx
from tests.formats.test_kept import BOLD, BOX, CHAR, END, FIELD, START, T, W, done, run, texts

PARTS = {  # as Word packs them, the body not first, with what stands around their paragraphs
    "[Content_Types].xml": "<Types/>",
    "word/footnotes.xml": '<w:footnotes {}><w:footnote w:type="separator" w:id="-1"><w:p><w:r><w:separator/></w:r><w:r><w:t>line'
    '</w:t></w:r></w:p></w:footnote><w:footnote w:type="continuationSeparator" w:id="0"><w:p><w:r><w:t>on</w:t></w:r></w:p>'
    '</w:footnote><w:footnote w:id="1">{}</w:footnote></w:footnotes>',
    "word/document.xml": "<w:document {}><w:body>{}<w:sectPr/></w:body></w:document>",
    "word/header2.xml": "<w:hdr {}>{}</w:hdr>",
    "word/header10.xml": "<w:hdr {}><w:tbl><w:tr><w:tc>{}</w:tc></w:tr></w:tbl></w:hdr>",
    "word/footer1.xml": "<w:ftr {}>{}</w:ftr>",
    "word/endnotes.xml": '<w:endnotes {}><w:endnote w:id="1">{}</w:endnote></w:endnotes>',
    "word/comments.xml": '<w:comments {}><w:comment w:id="0">{}</w:comment></w:comments>',
    "word/_rels/header2.xml.rels": "<Relationships/>",
    "word/styles.xml": "<w:styles {}>{}</w:styles>",
}
TRANSLATED = [name for name, form in PARTS.items() if "{}" in form and "comments" not in name and "styles" not in name]
HEAD = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\r\n'


def letter(inside: dict[str, str]) -> bytes:
    """A document with these paragraphs in its parts."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, form in PARTS.items():
            archive.writestr(name, HEAD + form.format(f'xmlns:w="{W}" xmlns:r="urn:r"', inside.get(name, "")))
    return out.getvalue()


def parts_of(content: bytes) -> dict[str, str]:
    """The parts of a document, in their order, each XML that can be read."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        found = {name: archive.read(name).decode() for name in archive.namelist()}
    for text in found.values():
        ElementTree.fromstring(text)
    return found


def paragraph(text: str) -> str:
    return f"<w:p>{run(text)}</w:p>"


def test_every_part_gets_its_own_translation_and_all_else_stays_to_the_byte() -> None:
    """Broken variants: only the body; the texts of one part in another; lines above the notes and comments translated; comments
    that stay without a word."""
    inside = {
        name: paragraph(f"in {name}") + paragraph("and again") * (number % 3) for number, name in enumerate(PARTS)
    }
    inside["word/comments.xml"] += f"<w:p>{BOX.format(run('boxed'))}</w:p>"
    document = read_document(letter(inside), Path("a.docx"))
    assert document.left == 3, "each paragraph of the comments"
    wanted = dict(inside)
    for name in TRANSLATED:
        wanted[name] = inside[name].replace(f"in {name}", f"in {name}".upper()).replace("and again", "AND AGAIN")
    before, after = letter(inside), done(document, str.upper)
    assert parts_of(after) == parts_of(letter(wanted)) and list(parts_of(after)) == list(parts_of(before))
    assert parts_of(done(document)) == parts_of(before)


@pytest.mark.parametrize("name", [name for name in TRANSLATED if name != "word/document.xml"])
@pytest.mark.parametrize(
    "body",
    [
        f"<w:p>{run('one ')}{run('two', BOLD)}{run(' three')}</w:p>",
        f"<w:p><w:pPr><w:jc/></w:pPr><w:r>{T}one</w:t><w:tab/>{T}two</w:t></w:r></w:p>",
        f'<w:p><w:r><w:rPr><w:rStyle w:val="a"/></w:rPr><w:footnoteRef/></w:r>{run(" one {x} ")}{START}{run("two")}{END}</w:p>',
        f'<w:p>{run("see ")}<w:hyperlink r:id="i">{run("the page")}</w:hyperlink>{run(" now")}</w:p>',
        f"<w:p>{run('page ')}{FIELD}{run('one')}{CHAR.format('end')}{run(' of two')}</w:p>",
        f"<w:p>{run('one')}{BOX.format(run('in it'))}</w:p>",
        f"<w:p>{FIELD}{run('one')}</w:p>{paragraph('two')}",
        f"<w:p>{(run('a') + run('b', BOLD)) * 300}</w:p>",
    ],
)
def test_a_paragraph_of_a_part_is_one_of_the_body(name: str, body: str) -> None:
    """Broken variants: another reader for the other parts; what they have to leave is not counted."""
    found = []
    for place in (name, "word/document.xml"):
        document = read_document(letter({place: body}), Path("a.docx"))
        text = parts_of(done(document, lambda text: text[::-1]))[place]
        begin, end = PARTS[place].format(f'xmlns:w="{W}" xmlns:r="urn:r"', "\0").split("\0")
        found.append((texts(document), document.left, text.removeprefix(HEAD + begin).removesuffix(end)))
    assert found[0] == found[1] and (found[0][2] != body or found[0][1])


def test_parts_without_text_stay_to_the_byte_whatever_their_encoding() -> None:
    """Broken variant: every part is written anew, with the order of bytes of this machine."""
    wide = f'<?xml version="1.0" encoding="utf-16"?><w:hdr xmlns:w="{W}"><w:p/></w:hdr>'.encode("utf-16-be")
    out = io.BytesIO(letter({"word/document.xml": paragraph("one")}))
    with zipfile.ZipFile(out, "a") as archive:
        archive.writestr("word/header3.xml", b"\xfe\xff" + wide)
    document = read_document(out.getvalue(), Path("a.docx"))
    with zipfile.ZipFile(io.BytesIO(done(document, str.upper))) as archive:
        assert archive.read("word/header3.xml") == b"\xfe\xff" + wide and b"ONE" in archive.read("word/document.xml")


def test_the_texts_of_all_parts_have_one_limit() -> None:
    """Broken variant: the body alone is measured, or each part by itself."""
    content = letter(dict.fromkeys(["word/header2.xml", "word/footer1.xml"], paragraph("a" * 6_000)))
    assert not read_docx(content, Path("a.docx"), numbers=False, largest=20_000).left
    with pytest.raises(UserError, match="more text than any document"):
        read_docx(content, Path("a.docx"), numbers=False, largest=10_000)
