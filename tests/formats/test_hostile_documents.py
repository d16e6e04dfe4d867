"""Documents made to do harm: each is refused in a sentence before it costs anything, and none is a defect."""

from __future__ import annotations

import io
import random
import struct
import zipfile
from contextlib import suppress
from pathlib import Path

import pytest

from glassformer.errors import UserError
from glassformer.formats.documents.reader import read_document
from tests.counts import count
from tests.formats.test_kept import done, letter, run

PARAGRAPH = f"<w:p>{run('the cat')}</w:p>"
TYPE = "<!DOCTYPE r [<!ENTITY e 'hidden'>]>"
XLIFF = "<x><source>the cat</source></x>"
SOUND = {
    "a.md": b"| a | b |\n|---|---|\n| c | `d` |\n\n> q\n\n1. x\n   - y [l](u)\n\n<div>\nhi\n</div>\n\n[^1]: note\n",
    "a.po": b'msgid ""\nmsgstr "Plural-Forms: nplurals=2;\\n"\n\nmsgid "a"\nmsgid_plural "b %d"\nmsgstr[0] ""\nmsgstr[1] ""\n',
    "a.xlf": b"<?xml version='1.0' encoding='utf-8'?><x><source>a <g id='1'>b</g></source><target/></x>",
    "a.vtt": b"WEBVTT\n\n1\n00:01.000 --> 00:02.000\n- <v A>the cat</v>\n- no\n",
    "a.html": b"<p>the <b>cat</b></p><pre>a  dog</pre>",
    "a.docx": letter(PARAGRAPH),
}
SPOILERS = [
    *(b"\r", b"\0", b"|", b"```", b"<", b"]]>", b"\xff", b"[", b"msgid", b"-->", b"&#x41;", b'"', b"\xe2\x80\xa8")
]


def packed(entries: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """A container with a body that is right, and these entries."""
    out = io.BytesIO(letter(PARAGRAPH))
    with zipfile.ZipFile(out, "a", method) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    return out.getvalue()


def listed_again(content: bytes, times: int, rename: bool) -> bytes:
    """A container whose directory has the record of its last entry so many times more, under its own name or others."""
    end = content.rindex(b"PK\5\6")
    number, size, begin = struct.unpack("<HII", content[end + 10 : end + 20])
    directory = content[begin : begin + size]
    last = directory[directory.rindex(b"PK\1\2") :]
    more = b"".join(last.replace(b"aaaa", f"{n:04}".encode()) if rename else last for n in range(times))
    count = struct.pack("<HHII", number + times, number + times, size + len(more), begin)
    return content[:begin] + directory + more + content[end : end + 8] + count + b"\0\0"


@pytest.mark.parametrize(
    "content",
    [
        listed_again(packed({"aaaa": bytes(1000)}), 50, rename=False),
        listed_again(packed({"aaaa": bytes(1000)}), 50, rename=True),
        packed({str(n): b"" for n in range(4100)}),
        packed({"aaaa": bytes(1000)}, zipfile.ZIP_LZMA),
    ],
    ids=["one name many times", "one place under many names", "very many records", "packed as Word does not"],
)
def test_a_directory_that_word_does_not_write_is_refused_unopened(
    content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """15,000 records of 200 MB each are hours. Broken variants: sizes added up by name; a look at what has been unpacked."""
    monkeypatch.delattr(zipfile.ZipFile, "open")
    with pytest.raises(UserError, match="not a Word document: its directory"):
        read_document(content, Path("a.docx"))


@pytest.mark.parametrize("encoding", ["undefined", "punycode", "idna", "utf-7", "rot13", "nonsense", "x" * 5000])
@pytest.mark.parametrize("name", ["a.xlf", "a.po"])
def test_an_encoding_that_no_text_has_is_refused(encoding: str, name: str) -> None:
    """Broken variant: whatever codec Python knows, whose errors are no UnicodeDecodeError."""
    text = f"<?xml version='1.0' encoding='{encoding}'?>{XLIFF}"
    header = f'msgid ""\nmsgstr "Content-Type: text/plain; charset={encoding}\\n"\n\nmsgid "a"\nmsgstr ""\n'
    with pytest.raises(UserError, match="save it as UTF-8"):
        read_document((header if name == "a.po" else text).encode(), Path(name))


@pytest.mark.parametrize(
    "content",
    [
        f"<?xml version='1.0' encoding='iso2022_jp'?>{TYPE}{XLIFF}".encode().replace(b"ENT", b"E\x1b(BNT"),
        f"<?xml version='1.0' encoding='utf-16'?>{TYPE}{XLIFF}".encode("utf-16"),
        f"<!--{'a' * 100_000}-->{TYPE}{XLIFF}".encode(),
    ],
    ids=["spelled by escapes", "in two bytes each", "behind a long comment"],
)
def test_entities_are_found_however_they_are_spelled(content: bytes) -> None:
    """Broken variants: bytes looked at in place of what the parser reads; their first 64 KiB alone."""
    with pytest.raises(UserError, match="entities can grow"):
        read_document(content, Path("a.xlf"))
    with pytest.raises(UserError, match="not a Word document"):
        read_document(content, Path("a.docx"))


def test_a_plain_document_type_is_none_of_them() -> None:
    document = read_document(f"<!DOCTYPE x SYSTEM 'x.dtd'>{XLIFF}".encode(), Path("a.xlf"))
    assert b"<target>the cat</target>" in done(document)


@pytest.mark.parametrize(
    "text", ["| a | b |\r|---|---|\r| c\r d | e |\r\n\nmore\r", "one\rtwo\r\r# three\r<div>\rfour\r</div>\r"]
)
def test_a_lone_carriage_return_ends_a_line_of_markdown(text: str) -> None:
    """Old Macintoshes end lines so, and markdown-it counts them. Broken variant: line feeds are counted, an IndexError."""
    document = read_document(text.encode(), Path("a.md"))
    assert done(document).split() == text.encode().split() and not document.left
    shouted = done(read_document(text.encode(), Path("a.md")), str.upper).decode()
    assert "|---|" not in text or shouted.startswith("| A | B |\r|---|---|\r| C\r")


@pytest.mark.parametrize("name", SOUND)
def test_whatever_a_document_holds_it_is_read_or_refused(name: str) -> None:
    """Flipped, cut, repeated, and marks of its kind in the wrong place. Caught: a directory of a container that is damaged
    (ValueError, UnicodeDecodeError), a form of a plural without a number."""
    draw = random.Random(name)
    for _ in range(count(fast=150, soak=20_000)):
        content = bytearray(SOUND[name])
        for _again in range(draw.choice([1, 1, 3])):
            at = draw.randrange(len(content) + 1)
            how = draw.choice(["flip", "insert", "cut", "repeat"])
            if how == "flip" and content:
                content[at - 1] ^= 1 << draw.randrange(8)
            elif how == "insert":
                content[at:at] = draw.choice(SPOILERS)
            elif how == "cut":
                del content[at : at + draw.randrange(20)]
            else:
                content[at:at] = content[max(0, at - draw.randrange(40)) : at]
        with suppress(UserError):
            done(read_document(bytes(content), Path(name)))
