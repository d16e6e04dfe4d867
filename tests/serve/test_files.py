"""Files that are translated over HTTP: documents as the command does it, of a plain text the lines."""

from __future__ import annotations

import http.client
import io
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from glassformer.formats.documents.reader import translate_document
from glassformer.serve.libretranslate import READER
from glassformer.serve.requests import Limits
from tests.serve.harness import BOUNDARY, Running, form_of, running, until

pytestmark = pytest.mark.slow
WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"


def translated_file(server: Running, name: str, content: bytes) -> tuple[int, Any, bytes]:
    """What the server says to a file, and the file that comes of it."""
    form = form_of({"source": "en", "target": "de"}, (name, content))
    status, _, said = server.ask("POST", "/translate_file", form, BOUNDARY)
    url = said["translatedFileUrl"].removeprefix(server.address) if status == 200 else ""
    return status, said, server.ask("GET", url)[2] if url else b""


def letter() -> bytes:
    """A document of Word's with a paragraph that can be translated, and one that cannot."""
    out = io.BytesIO()
    run = "<w:r><w:t>the cat</w:t></w:r>"
    body = f'<w:p>{run}</w:p><w:p>{run}<w:r><w:fldChar w:fldCharType="end"/></w:r></w:p>'
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("word/document.xml", f'<w:document xmlns:w="{WORD}"><w:body>{body}</w:body></w:document>')
    return out.getvalue()


DOCUMENTS = {
    "a.md": b"---\na: b\n---\n# the cat\n\n```\ncode\n```\n\n- [ ] a *dog*\n",
    "a.srt": b"1\n00:00:01,000 --> 00:00:02,000\nthe cat\nand the dog\n",
    "a.html": b"<p>the <b>cat</b></p><pre>a  dog</pre>",
    "a.po": b'msgid "the cat"\nmsgstr ""\n',
    "a.xlf": b"<x><source>the cat</source></x>",
    "a.docx": letter(),
}


def unpacked(content: bytes) -> bytes:
    """A document without the hour at which it was packed."""
    if not content.startswith(b"PK"):
        return content
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return archive.read("word/document.xml")


@pytest.mark.parametrize("name", DOCUMENTS)
def test_documents_are_translated_as_the_command_does_it(
    server: Running, translator: Any, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Broken variants: times, fences and tags go to the model, line by line; what had to be left is not told."""
    (tmp_path / name).write_bytes(DOCUMENTS[name])
    status, said, found = translated_file(server, name, DOCUMENTS[name])
    assert status == 200, said
    wanted = translate_document(translator, tmp_path / name)
    assert unpacked(found) == unpacked(wanted) != unpacked(DOCUMENTS[name])
    left = 1 if name == "a.docx" else None
    assert said.get("paragraphsLeft") == left and ("1 paragraphs of" in capsys.readouterr().err) == bool(left)


@pytest.mark.parametrize(
    ("name", "content", "word"),
    [
        ("a.docx", b"no zip", "not a Word document"),
        ("a.xlf", b"<x>", "not XML"),
        ("a.po", b"msgid msgid", "cannot be read"),
        ("a.md", b"\xff", "UTF-8"),
        ("a.exe", b"", "must end in one of"),
        ("a.md", b"the cat " * 5000, "a paragraph of"),
    ],
)
def test_what_is_no_such_document_is_refused(server: Running, name: str, content: bytes, word: str) -> None:
    status, said, _ = translated_file(server, name, content)
    assert status == 400 and word in said["error"], said


def readers() -> list[psutil.Process]:
    """The programs of this process's server that read documents now."""
    found = []
    for child in psutil.Process().children():
        with suppress(psutil.Error):  # it has just ended
            found += [child] if READER in child.cmdline() else []
    return found


@pytest.mark.parametrize("bounds", [{"file_seconds": 1.0}, {"file_memory": 1}], ids=["time", "memory"])
def test_a_file_gets_no_more_than_is_given_to_it(paths: Any, bounds: dict[str, Any]) -> None:
    """Brackets that take markdown-it a quarter of a minute: refused, and nothing is left at work. Broken variant: a thread of the
    server, which nothing ends."""
    with running(paths, Limits(**bounds)) as server:
        status, said, _ = translated_file(server, "a.md", b"[[a]" * 60_000)
        assert status == 400 and "memory" in said["error"], said
        assert not readers()


def test_who_leaves_takes_the_reader_along(server: Running) -> None:
    """Broken variant: the program goes on to read for nobody."""
    form = form_of({"source": "en", "target": "en"}, ("a.md", b"[[a]" * 60_000))
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    connection.request("POST", "/translate_file", form, BOUNDARY)
    until(lambda: readers())
    connection.close()
    until(lambda: not readers())


def test_a_plain_text_is_translated_line_by_line(server: Running, translator: Any) -> None:
    lines = ["the cat {name}.", "", "- a <b>dog</b> ran."]
    said, found = translated_file(server, "a.txt", "\r\n".join(lines).encode())[1:]
    assert found.decode() == "".join((str(translator.translate(line)) if line else "") + "\n" for line in lines)
    headers = server.ask("GET", said["translatedFileUrl"].removeprefix(server.address))[1]
    assert "attachment" in headers["content-disposition"]
    assert server.ask("GET", "/download_file/other.txt")[0] == 404
