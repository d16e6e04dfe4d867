"""Downloads against a server on this machine: whole and right, or nothing at all."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import io
import json
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import requests

from glassformer.config import DataConfig
from glassformer.data import download
from glassformer.data.sources import open_split
from glassformer.errors import UserError

pytestmark = pytest.mark.slow


class Server:
    """Serves `files`; `behave` says how: well, with a body cut short, with the connection dropped, or with a stall."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.behave = "well"
        self.requests: list[str] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.requests.append(self.path)
                body = server.files.get(self.path.lstrip("/"))
                if body is None:
                    self.send_error(404)
                    return
                self.send_response(200)
                if server.behave == "drop":  # chunked, and gone in the middle of a chunk
                    self.send_header("Transfer-Encoding", "chunked")
                    self.end_headers()
                    self.wfile.write(b"ffff\r\n" + body[: len(body) // 2])
                else:
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body if server.behave == "well" else body[: len(body) // 2])
                    self.wfile.flush()
                    if server.behave == "stall":
                        server.stopped.wait(10)
                self.close_connection = True

            def log_message(self, format: str, *args: object) -> None:
                pass

        Handler.protocol_version = "HTTP/1.1"
        self.stopped = threading.Event()
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self.thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http.server_address[1]}"

    def close(self) -> None:
        self.stopped.set()
        self.http.shutdown()
        self.http.server_close()
        self.thread.join(5)


@pytest.fixture
def server() -> Iterator[Server]:
    running = Server()
    yield running
    running.close()


def get(name: str, folder: Path, server: Server) -> dict[str, int]:
    return download.get(name, folder, {name: server.url})


def tatoeba_archive(n: int = 400, other: str = "Satz") -> bytes:
    """With twins: the same English in other case, and the same foreign sentence under another English one."""
    rows = [f"Sentence {i}!\t{other} {i}.\tCC-BY 2.0 {i}" for i in range(n)]
    rows += [f"sentence {i}\t{other} zwei {i}.\tCC-BY" for i in range(0, n, 3)]
    rows += [f"Another {i}\t{other} {i}\tCC-BY" for i in range(0, n, 4)]
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("_about.txt", "read me")
        archive.writestr("deu.txt", "\n".join(rows) + "\n")
    return packed.getvalue()


def names(folder: Path) -> set[str]:
    """Of the files in a folder, the list of those that are ours aside."""
    return {path.name for path in folder.iterdir()} - {".glassformer-files"} if folder.exists() else set()


def test_tatoeba_is_split_without_leaks(tmp_path: Path, server: Server) -> None:
    """A split by line would put twins on both sides of a border: hundreds of them are in this archive."""
    server.files["deu-eng.zip"] = tatoeba_archive()
    sizes = get("tatoeba:en-de", tmp_path / "data", server)
    rows = {
        split: [tuple(line.split("\t")) for line in (tmp_path / "data" / f"{split}.tsv").read_text().splitlines()]
        for split in ("train", "val", "test")
    }
    assert {split: len(found) for split, found in rows.items()} == sizes
    assert all(len(row) == 2 for found in rows.values() for row in found)
    assert sizes["val"] == sizes["test"] == 12 and sizes["train"] > 500
    sides = {split: {download.bare(side) for row in found for side in row} for split, found in rows.items()}
    assert not sides["train"] & sides["val"] and not sides["train"] & sides["test"] and not sides["val"] & sides["test"]
    first = (tmp_path / "data" / "train.tsv").read_bytes()
    get("tatoeba:en-de", tmp_path / "again", server)
    assert (tmp_path / "again" / "train.tsv").read_bytes() == first
    config = DataConfig(path=str(tmp_path / "data"), train="train.tsv", val="val.tsv", test="test.tsv")
    assert len(list(open_split(config, "train"))) == sizes["train"]
    assert names(tmp_path / "data") == {"deu-eng.zip", "checksums.json", "train.tsv", "val.tsv", "test.tsv"}


def test_a_first_checksum_is_kept_and_held_against_the_next(tmp_path: Path, server: Server) -> None:
    server.files["cmn-eng.zip"] = tatoeba_archive(60, "句子")
    get("tatoeba:en-zh", tmp_path, server)
    lock = json.loads((tmp_path / "checksums.json").read_text())
    assert lock == {"cmn-eng.zip": hashlib.sha256(server.files["cmn-eng.zip"]).hexdigest()}
    get("tatoeba:en-zh", tmp_path, server)
    assert len(server.requests) == 1  # what is there and right is not fetched again
    (tmp_path / "cmn-eng.zip").write_bytes(b"damaged")
    get("tatoeba:en-zh", tmp_path, server)
    assert (tmp_path / "cmn-eng.zip").read_bytes() == server.files["cmn-eng.zip"]
    server.files["cmn-eng.zip"] = tatoeba_archive(61, "句子")
    (tmp_path / "cmn-eng.zip").unlink()
    with pytest.raises(UserError, match=r"SHA-256.*nothing was kept \(if the publisher has a new edition"):
        get("tatoeba:en-zh", tmp_path, server)
    assert "cmn-eng.zip" not in names(tmp_path)


def test_shakespeare(tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another text than the known one is refused, and nothing is left; the right one is cut at nine tenths."""
    text = "First Citizen:\nBefore we proceed, é\n" * 50
    server.files["input.txt"] = text.encode()
    with pytest.raises(UserError, match="is not the file that was expected"):
        get("shakespeare", tmp_path, server)
    assert names(tmp_path) == set()
    known = dataclasses.replace(
        download.collections()["shakespeare"], files={"input.txt": hashlib.sha256(text.encode()).hexdigest()}
    )
    monkeypatch.setitem(download.collections(), "shakespeare", known)
    sizes = get("shakespeare", tmp_path, server)
    train, val = ((tmp_path / f"{split}.txt").read_bytes().decode() for split in ("train", "val"))
    assert train + val == text and sizes == {"train": int(0.9 * len(text)), "val": len(val)}
    assert names(tmp_path) == {"input.txt", "train.txt", "val.txt"}  # a known checksum needs no note


@pytest.mark.parametrize("language", ["de", "fr"])
def test_multi30k(tmp_path: Path, server: Server, language: str) -> None:
    """A tab inside a sentence must not become a third column; a file that lost a line is not believed."""
    for part, n in (("train", 29000), ("val", 1014), ("test_2016_flickr", 1000)):
        for side in ("en", language):
            text = "".join(f"{side}\t{i} \n" for i in range(n)).encode()
            server.files[f"raw/{part}.{side}.gz"] = gzip.compress(text, 1)
            server.files[f"tok/{part}.lc.norm.tok.{side}"] = text
    assert get(f"multi30k:en-{language}", tmp_path, server) == {"train": 29000, "val": 1014, "test": 1000}
    lines = (tmp_path / "test.tsv").read_text().splitlines()
    assert len(lines) == 1000 and lines[7] == f"en 7\t{language} 7"
    assert (tmp_path / f"val.lc.norm.tok.{language}").read_bytes() == server.files[f"tok/val.lc.norm.tok.{language}"]
    server.files[f"raw/val.{language}.gz"] = gzip.compress(b"one\n" * 1013)
    with pytest.raises(UserError, match="1013 lines, not the 1014"):
        get(f"multi30k:en-{language}", tmp_path / "second", server)
    assert not {name for name in names(tmp_path / "second") if name.endswith(".tsv")}


@pytest.mark.parametrize("behave", ["short", "drop", "stall"])
def test_a_broken_download_leaves_nothing(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch, behave: str
) -> None:
    """Written under its own name, or trusted because the connection closed in peace, half a file would stay."""
    monkeypatch.setattr(download, "TIMEOUT", 0.5)
    server.files["deu-eng.zip"] = tatoeba_archive()
    server.behave = behave
    with pytest.raises(UserError, match=r"broke off .*nothing was kept"):
        get("tatoeba:en-de", tmp_path, server)
    assert names(tmp_path) == set()
    server.behave = "well"
    get("tatoeba:en-de", tmp_path, server)
    # A file that was whole before a failed attempt is still whole after it.
    (tmp_path / "checksums.json").unlink()
    server.behave = behave
    with pytest.raises(UserError):
        get("tatoeba:en-de", tmp_path, server)
    assert (tmp_path / "deu-eng.zip").read_bytes() == server.files["deu-eng.zip"]


def test_sentences_for_what_cannot_be(tmp_path: Path, server: Server) -> None:
    with pytest.raises(UserError, match=r"no collection 'tatoeba:en-ja' \(did you mean 'tatoeba:en-"):
        download.get("tatoeba:en-ja", tmp_path)
    with pytest.raises(UserError, match="answered 404"):
        get("shakespeare", tmp_path, server)
    server.files["deu-eng.zip"] = b"no archive"
    with pytest.raises(UserError, match="not an archive"):
        get("tatoeba:en-de", tmp_path / "x", server)
    packed = io.BytesIO(tatoeba_archive())
    locked = bytearray(packed.getvalue())
    for marker, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):  # the bit that says a file is encrypted
        at = locked.find(marker)
        while at >= 0:
            locked[at + place] |= 1
            at = locked.find(marker, at + 1)
    server.files["deu-eng.zip"] = bytes(locked)
    with pytest.raises(UserError, match=r"not an archive of sentence pairs .*encrypted"):
        get("tatoeba:en-de", tmp_path / "y", server)
    closed = server.url
    server.close()
    with pytest.raises(UserError, match="cannot be reached"):
        download.get("shakespeare", tmp_path, {"shakespeare": closed})
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be written"):
        download.get("shakespeare", tmp_path / "file")
    assert "input.txt" not in names(tmp_path)


@pytest.mark.parametrize("host", ["a" * 3000, "127.0.0.1:1", "127.0.0.1:99999999", "[x", "h h"])
def test_an_address_that_cannot_be_is_a_sentence_without_its_password(host: str, tmp_path: Path) -> None:
    """Broken variants: the whole address, or what a library says of it; an error that is none of requests'."""
    with pytest.raises(UserError, match="cannot be") as refused:
        download.get("shakespeare", tmp_path, {"shakespeare": f"http://me:secret@{host}"})
    assert "secret" not in str(refused.value) and len(str(refused.value)) < 600


def test_a_redirect_away_from_https_is_refused() -> None:
    """Broken variant: whoever listens on the way puts a file of his own in its place."""
    answer = requests.Response()
    answer.status_code, answer.url = 302, "https://me:secret@example.org/a"
    answer.headers["location"] = "/b"
    download.refuse_downgrade(answer)
    answer.headers["location"] = "http://example.org/b"
    with pytest.raises(UserError, match="not encrypted") as refused:
        download.refuse_downgrade(answer)
    assert "secret" not in str(refused.value)
    answer.url = "http://127.0.0.1/a"
    download.refuse_downgrade(answer)


def test_an_interrupted_write_leaves_nothing(tmp_path: Path) -> None:
    def interrupted() -> None:
        with download.written(tmp_path / "a.txt") as handle:
            handle.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert names(tmp_path) == set()
