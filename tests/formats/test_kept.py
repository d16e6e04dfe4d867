"""What translation has no reason to change stays: a document whose texts are their own translations comes out as it went in."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from glassformer.errors import UserError
from glassformer.formats.documents.document import DocumentParts
from glassformer.formats.documents.reader import read_document
from glassformer.formats.documents.word import read_docx
from glassformer.tasks.markup import Aligned, render, token_spans
from glassformer.text.markup import Segment, as_html

W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
MC = "http://schemas.openxmlformats.org/markup-compatibility/2006"
HEAD = (
    f'<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n<w:document xmlns:mc="{MC}" xmlns:w="{W}" xmlns:w14="urn:w14" '
    'xmlns:r="urn:r" xmlns:wp14="urn:wp14" mc:Ignorable="w14 wp14"><w:body>'
)


def done(document: DocumentParts, translate: Callable[[str], str] = str) -> bytes:
    """The document with its texts translated letter by letter."""
    parts = []
    for part in document.parts:
        if isinstance(part, Segment):
            spans = token_spans(list(part.text), part.text)
            aligned = Aligned(translate(part.text), spans, spans, np.eye(len(spans)))
            whole = 0, len(part.text)
            parts.append(render(part.nodes, aligned, whole, whole, as_html if part.is_html else document.escape))
        else:
            parts.append(part)
    return document.written(parts)


def read(text: str, name: str, **options: object) -> DocumentParts:
    return read_document(text.encode(), Path(name), **options)  # type: ignore[arg-type]


def texts(document: DocumentParts) -> list[str]:
    return [part.text for part in document.parts if isinstance(part, Segment)]


CATALOGUE = """# A catalogue of ours.
msgid ""
msgstr ""
"Project-Id-Version: ours 1\\n"
"Content-Type: text/plain; charset=UTF-8\\n"
"Plural-Forms: nplurals=3; plural=(n==1 ? 0 : 1);\\n"
"X-Generator: hand 2.0\\n"

#: a.py:1
msgid "the %s cat"
msgstr ""

#  said at the door
#, python-format
#| msgid "the other"
msgctxt "door"
msgid ""
"the\\n"
"dog"
msgstr ""
msgid "one"
msgid_plural "more"
msgstr[0] ""
msgstr[1] ""

msgid   "the sun"
msgstr "le soleil"

#~ msgid "gone"
#~ msgstr ""
"""


def test_a_catalogue_changes_where_it_is_translated() -> None:
    """Broken variant: Babel's own writer, which has a header and flags of its own."""
    document = read(CATALOGUE, "a.po")
    wanted = CATALOGUE.replace(
        '#: a.py:1\nmsgid "the %s cat"\nmsgstr ""', '#: a.py:1\n#, fuzzy\nmsgid "the %s cat"\nmsgstr "THE %s CAT"'
    )
    wanted = wanted.replace("#, python-format", "#, fuzzy, python-format")
    wanted = wanted.replace('"dog"\nmsgstr ""', '"dog"\nmsgstr ""\n"THE\\n"\n"DOG"')
    wanted = wanted.replace('msgid "one"', '#, fuzzy\nmsgid "one"').replace('msgstr[0] ""', 'msgstr[0] "ONE"')
    wanted = wanted.replace('msgstr[1] ""', 'msgstr[1] "MORE"\nmsgstr[2] "MORE"')
    assert done(document, lambda text: text.upper().replace("%S", "%s")).decode() == wanted
    assert not document.left and texts(document) == ["the %s cat", "the", "dog", "one", "more"], "each text once"
    assert done(read(CATALOGUE.replace("\n", "\r\n"), "a.po"), str.upper).decode().count("\n") == wanted.count("\n")
    latin = read(CATALOGUE.replace("UTF-8", "latin-1"), "a.po")
    with pytest.raises(UserError, match="is in latin-1"):
        done(latin, lambda text: "猫" * len(text))


LATIN = 'msgid ""\nmsgstr "Content-Type: text/plain; charset=ISO-8859-1\\n"\n\n{}msgid "café"\nmsgstr ""\n'


@pytest.mark.parametrize("before", ["", "# é\n", 'msgctxt "é"\n', 'msgid "a"\nmsgstr ""\n\n'])
def test_a_catalogue_is_read_in_the_characters_that_its_header_says(before: str) -> None:
    """Broken variant: what follows the header is read as UTF-8, until a message shows that the header has ended."""
    text = LATIN.format(before).encode("latin-1")
    document = read_document(text, Path("a.po"))
    assert texts(document)[-1] == "café"
    assert done(document, str.upper).endswith('msgid "café"\nmsgstr "CAFÉ"\n'.encode("latin-1"))
    with pytest.raises(UserError, match="cannot be read"):
        read_document(text.replace(b"ISO-8859-1", b"UTF-8"), Path("a.po"))


HEADER = 'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=UTF-8\\n"\n"Language: zh\\n"\n'
FORMS = 'msgstr[0] "{}"\nmsgstr[1] "{}"\n'
PLURAL = """
#, python-format
msgctxt "door"
msgid "%d \\"file\\" of %(name)s\\n"
msgid_plural ""
"%d \\\\ files\\n"
"of %(name)s"
"""


@pytest.mark.parametrize("blank", ["", "\n", '""\n'])
@pytest.mark.parametrize("standing", [1, 2, 3])
@pytest.mark.parametrize("said", [0, 1, 2, 3, 6])
def test_a_plural_has_the_forms_of_its_language(said: int, standing: int, blank: str) -> None:
    """Translated into itself a form is the text that it stands for: the first the singular, the others the plural, and so is the
    only one of a language, without which its number is lost. Broken variants: two forms whatever the header says; those of the
    language where the header says nothing; lines of the old ones that stay, or of the next message that go; the last line of a
    text alone; \\n for \\r\\n; the forms counted by the number of the last one."""
    from babel.messages.pofile import read_po

    head = HEADER + f'"Plural-Forms: nplurals={said}; plural=0;\\n"\n' * bool(said)
    old = blank.join(f'msgstr[{number}] ""\n' for number in reversed(range(standing))) + (
        blank if blank != "\n" else ""
    )
    text = f'{head}{PLURAL}{old}\nmsgid "the"\nmsgstr "la"\n'
    found = done(read(text, "a.po")).decode()
    assert done(read(text.replace("\n", "\r\n"), "a.po")).decode() == found.replace("\n", "\r\n")
    count = said or standing
    assert re.findall(r"msgstr\[(\d)\]", found) == [str(number) for number in range(count)]
    assert found.startswith(head + PLURAL.replace("#, p", "#, fuzzy, p")) and found.endswith(
        '\n\nmsgid "the"\nmsgstr "la"\n'
    )
    if said or standing == 1:  # where the header says nothing, Babel goes by the language, which has one form
        catalogue = read_po(io.BytesIO(found.encode()), abort_invalid=True)
        (message,) = (own for own in catalogue if own.pluralizable)
        one, more = '%d "file" of %(name)s\n', "%d \\ files\nof %(name)s"
        assert message.id == (one, more)
        assert [*(message.string or ())][:count] == ([one, *[more] * 5][:count] if count > 1 else [more])
    assert done(read(found, "a.po"), str.upper).decode() == found, "what is translated stays"


@pytest.mark.parametrize(
    ("entry", "left"),
    [
        (PLURAL + FORMS.format("a", ""), 0),
        ("#, fuzzy" + PLURAL + FORMS.format("a", "b"), 0),
        ((PLURAL + FORMS.format("", "")).replace("\nm", "\n#~ m").replace('\n"', '\n#~ "'), 0),
        ('msgid "a"\nmsgid_plural "b"\nmsgstr ""\n', 1),
        ('msgid "a"\nmsgstr ""\n\nmsgid "a"\nmsgid_plural "b"\n' + FORMS.format("", ""), 1),
    ],
)
def test_plurals_that_are_translated_or_have_no_place_for_it_stay(entry: str, left: int) -> None:
    """Broken variants: what a person has begun is written over; a plural's forms in the place of a text that has none."""
    for text in (f"{HEADER}\n{entry}", f'{HEADER}"Plural-Forms: nplurals=2; plural=0;\\n"\n\n{entry}'):
        document = read(text, "a.po")
        assert done(document, str.upper).decode() == text and document.left == left


@pytest.mark.parametrize(
    ("header", "count"),
    [
        ('msgstr "Content-Type: text/plain; charset=UTF-8\\nplural-forms: nplurals=3; plural=0;\\n"', 3),
        ('msgstr ""\n"Content-Type: text/plain; charset=UTF-8\\n"\n"Plural-Forms: nplurals=0; plural=0;\\n"', 2),
        ('msgstr ""\n"Content-Type: text/plain; charset=UTF-8\\n"\n"Plural-Forms: nplurals=9999; plural=0;\\n"', 2),
    ],
)
def test_the_header_says_how_many_forms(header: str, count: int) -> None:
    """Broken variants: one line of a header alone is read, or a comment's; as many forms as fill the memory."""
    text = (
        '# "Plural-Forms: nplurals=4;"\nmsgid ""\n'
        + header
        + '\n\nmsgid "a"\nmsgid_plural "b"\n'
        + FORMS.format("", "")
    )
    assert re.findall(r'msgstr\[\d\] "(\w)"', done(read(text, "a.po")).decode()) == ["a", *"b" * (count - 1)]


XLIFF = """<?xml version='1.0' encoding="{}"?>
<!-- ours --><?tool  a?>
<xliff  version="1.2" xmlns:o='urn:o' xmlns="urn:x"><file><body>
  <trans-unit id='1'>
    <source>the <g id="1">cat</g><!-- a note --> &amp; <x id="2"/><?here?><![CDATA[a <%= dog %>]]></source>{}
  </trans-unit>
  <trans-unit id='2'><source>the sun</source><target  state="new"{}</trans-unit>
</body></file></xliff>
"""


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "latin-1", "gbk"])
def test_whatever_else_an_xml_document_holds_stays(encoding: str) -> None:
    """Broken variant: a tree that is written anew, without comments, in another encoding."""
    text = XLIFF.format(encoding, "", "/>")
    found = done(read_document(text.encode(encoding), Path("a.xlf"))).decode(encoding)
    first = 'the <g id="1">cat</g><!-- a note --> &amp; <x id="2"/><?here?>a &lt;%= dog %&gt;'
    assert found == XLIFF.format(encoding, f"\n    <target>{first}</target>", ">the sun</target>")
    wide = done(read_document(text.encode(encoding), Path("a.xlf")), lambda text: "ł" * len(text)).decode(encoding)
    assert [own.text for own in ElementTree.fromstring(wide).iter("{urn:x}target")][1] == "łłł łłł".replace(" ", "ł")


def test_xml_in_very_many_elements_is_refused() -> None:
    with pytest.raises(UserError, match="in one another"):
        read("<x>" * 200_000 + "a" + "</x>" * 200_000, "a.xlf")
    assert read(f"<x><source>{'<g>a</g>' * 300}</source></x>", "a.xlf").left == 1


def letter(body: str) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("word/document.xml", f"{HEAD}{body}<w:sectPr/></w:body></w:document>")
        archive.writestr("word/styles.xml", "<styles/>")
    return out.getvalue()


def body_of(content: bytes) -> str:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        text = archive.read("word/document.xml").decode()
    ElementTree.fromstring(text)
    assert text.startswith(HEAD) and text.endswith("<w:sectPr/></w:body></w:document>"), "with all that it declares"
    return text.removeprefix(HEAD).removesuffix("<w:sectPr/></w:body></w:document>")


def run(text: str, look: str = "") -> str:
    return f'<w:r>{look}<w:t xml:space="preserve">{text}</w:t></w:r>'


T = '<w:t xml:space="preserve">'
BOLD = "<w:rPr><w:b/></w:rPr>"
CHAR = '<w:r><w:fldChar w:fldCharType="{}"/></w:r>'
FIELD = CHAR.format("begin") + "<w:r><w:instrText>REF a</w:instrText></w:r>" + CHAR.format("separate")
START, END = '<w:bookmarkStart w:id="0" w:name="a"/>', '<w:bookmarkEnd w:id="0"/>'
BOX = "<w:r><w:pict><w:txbxContent><w:p>{}</w:p></w:txbxContent></w:pict></w:r>"


@pytest.mark.parametrize(
    ("inside", "said", "wanted"),
    [
        (run("one ") + run("two", BOLD) + run(" three"), "one two three", None),
        (
            "<w:r><w:t>one</w:t><w:br/><w:t>two</w:t><w:tab/></w:r>",
            "one two",
            f"<w:r>{T}one</w:t><w:br/>{T}two</w:t><w:tab/></w:r>",
        ),
        ("<w:r><w:t>one </w:t></w:r><w:r><w:lastRenderedPageBreak/><w:t>two</w:t></w:r>", "one two", run("one two")),
        (run("one ") + f'<w:ins w:id="1" w:author="a">{run("two")}</w:ins>' + run(" three"), "one two three", None),
        (run("one ") + '<w:del w:id="1"><w:r><w:delText>no</w:delText></w:r></w:del>' + run("two"), "one two", None),
        (
            run("see ") + f'<w:hyperlink r:id="i">{run("the ")}{run("page", BOLD)}</w:hyperlink>' + run(" now"),
            "see the page now",
            None,
        ),
        (run("see ") + FIELD + run("the page") + CHAR.format("end") + run(" now"), "see the page now", None),
        (run("see ") + START + run("the page") + END + run(" now"), "see the page now", None),
        (START + f'<w:hyperlink r:id="i">{run("page")}{END}</w:hyperlink>', "page", None),
        (f"<w:sdt><w:sdtPr/><w:sdtContent>{run('one')}</w:sdtContent></w:sdt>", "one", None),
        (run("{na") + '<w:proofErr w:type="a"/>' + run("me}") + run(" &amp; x"), "{name} & x", run("{name} &amp; x")),
        (run("one", '<w:rPr><w:lang w:val="en"/></w:rPr>') + run(" two"), "one two", run("one two")),
        (run("one ") + "<w:r><w:drawing/></w:r>" + run("two"), "one two", None),
        ("<w:pPr><w:jc/></w:pPr>" + run("one"), "one", None),
    ],
)
def test_a_paragraph_of_word_is_one_sentence(inside: str, said: str, wanted: str | None) -> None:
    """Broken variants: a run with a break in it is no text; links are left out; names that are declared for `mc:Ignorable`
    alone are dropped, and Word refuses the file."""
    document = read_document(letter(f"<w:p>{inside}</w:p>"), Path("a.docx"))
    assert texts(document) == [said] and not document.left
    assert body_of(done(document)) == f"<w:p>{wanted or inside}</w:p>"
    tags = re.compile(r"<(?!/?w:[rt]\b)[^>]*>")  # not those of runs, of which there may be more or fewer
    translated = body_of(done(document, lambda text: text[::-1]))
    assert sorted(tags.findall(translated)) == sorted(tags.findall(f"<w:p>{wanted or inside}</w:p>"))


def test_whatever_the_alignment_a_paragraph_of_word_keeps_its_elements() -> None:
    """Broken variants: a run within a run; a field whose end comes before its result; what is in a tag without text is lost."""
    link = f'<w:hyperlink r:id="i">{START}{run("li nk")}{run("b", BOLD)}</w:hyperlink>'
    pieces = [run("one "), run("two ", BOLD), f"<w:r>{T}a</w:t><w:br/>{T}b {{x}}</w:t></w:r>", link, START, END]
    pieces += [FIELD + run("fi eld") + CHAR.format("end"), "<w:r><w:drawing/></w:r>", BOX.format(run("box"))]
    draw, tags = np.random.default_rng(1), re.compile(r"<(?!/?w:[rt]\b|/?w:rPr|w:b/)[^>]*>")
    for _ in range(100):
        body = f"<w:p>{''.join(draw.choice(pieces, draw.integers(1, 8)))}</w:p>"
        document, parts = read_document(letter(body), Path("a.docx")), []
        for part in document.parts:
            assert isinstance(part, Segment)
            words, read = draw.choice(["W", "XX", "&", "zz-1"], draw.integers(0, 7)).tolist(), part.text.split()
            answer, weights = " ".join(words), draw.random((len(words), len(read)))
            aligned = Aligned(answer, token_spans(read, part.text), token_spans(words, answer), weights)
            parts.append(render(part.nodes, aligned, (0, len(part.text)), (0, len(answer)), document.escape))
        out = body_of(document.written(parts))
        assert sorted(tags.findall(out)) == sorted(tags.findall(body)) and not document.left
        fields = re.findall(r'fldCharType="(\w+)"', out)
        assert fields == ["begin", "separate", "end"] * (len(fields) // 3)
        tree = ElementTree.fromstring(f'<x xmlns:w="{W}" xmlns:r="urn:r">{out}</x>')
        assert not tree.findall(f".//{{{W}}}r/{{{W}}}r")


def test_a_text_box_is_a_text_of_its_own() -> None:
    inside = run("one ") + BOX.format(run("in it")) + run("two") + BOX.format(BOX.format(run("within")) + run("deep"))
    document = read_document(letter(f"<w:p>{inside}</w:p><w:p>{BOX.format(run('alone'))}</w:p>"), Path("a.docx"))
    assert sorted(texts(document)) == sorted(["one two", "in it", "deep", "within", "alone"])
    assert body_of(done(document)) == f"<w:p>{inside}</w:p><w:p>{BOX.format(run('alone'))}</w:p>"


@pytest.mark.parametrize(
    "inside", [FIELD + run("one"), run("one") + CHAR.format("end"), (run("a") + run("b", BOLD)) * 300]
)
def test_what_cannot_be_carried_over_stays_and_is_counted(inside: str) -> None:
    """A table of contents is one field of many paragraphs. Broken variant: it stays untranslated, and nobody is told."""
    document = read_document(letter(f"<w:p>{inside}</w:p><w:p>{run('two')}</w:p>"), Path("a.docx"))
    assert document.left == 1 and texts(document) == ["two"]
    assert body_of(done(document)) == f"<w:p>{inside}</w:p><w:p>{run('two')}</w:p>"


def test_control_characters_of_an_answer_break_no_xml() -> None:
    document = read_document(letter(f"<w:p>{run('one')}</w:p>"), Path("a.docx"))
    assert body_of(done(document, lambda text: "\0\2" + "x")) == f"<w:p>{run('x')}</w:p>"


def test_what_is_packed_too_well_is_refused() -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("word/document.xml", f"{HEAD}{' ' * 100_000}</w:body></w:document>")
    with pytest.raises(UserError, match="more text than any document"):
        read_docx(out.getvalue(), Path("a.docx"), numbers=False, largest=10_000)
