"""Documents, and text files line by line, translated and kept for a while under a name that cannot be guessed."""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

import msgspec
from starlette.datastructures import UploadFile
from starlette.requests import Request
from starlette.responses import Response

from glassformer.errors import UserError
from glassformer.files.durable import write_atomically
from glassformer.formats.documents.document import as_is, decoded, joined_like
from glassformer.formats.documents.reader import ESCAPES, KINDS, Order, Reading
from glassformer.serve.answers import unknown_of
from glassformer.serve.api_errors import APIError, bad_request
from glassformer.serve.children import output_of
from glassformer.serve.fields import DocumentedRoute, missing, read_fields
from glassformer.serve.responses import as_json
from glassformer.serve.service import Service, before
from glassformer.serve.translation import MarkupJob, TranslationOptions
from glassformer.serve.worker import check_rows
from glassformer.tasks import check_text
from glassformer.text.markup import Segment

KEPT_SECONDS = 600.0
KEPT = 32
READER = "glassformer.formats.documents.reader"


def read_lines(content: bytes, path: Path) -> Reading:
    """A plain text, of which every line is a text."""
    parts: list[str | Segment] = []
    for line in decoded(content, path).splitlines():
        parts += [Segment(line, []) if line.strip() else line, "\n"]
    return Reading(parts, as_is.__name__, 0)


class TranslatedFiles:
    """Translated files, kept for a while in the server's folder for them, under names that cannot be guessed."""

    KINDS: ClassVar[tuple[str, ...]] = (".txt", *KINDS)

    def __init__(self, service: Service) -> None:
        self.service = service
        self.readers = asyncio.Semaphore(max(2, (os.cpu_count() or 1) // 2))
        self.bounds = service.limits.file_seconds, service.limits.file_memory

    async def translate_file(self, request: Request) -> Response:
        """Translate a document, its markup kept, or a text file, line by line; the answer says where it is to be fetched."""
        values = await read_fields(request)
        file = values.get("file")
        if not isinstance(file, UploadFile):
            raise bad_request("file: a file is needed, as multipart/form-data", "file")
        kind = PurePosixPath(file.filename or "").suffix.lower()
        if kind not in self.KINDS:
            raise bad_request(f"file: its name must end in one of {', '.join(self.KINDS)}", "file")
        for name in ("source", "target"):
            if name not in values:
                raise missing(name)
        source, target = values["source"], values["target"]
        if not isinstance(source, str) or not isinstance(target, str):
            raise bad_request("source and target are codes of languages", "source")
        content, options = await file.read(), self.options_of(kind, source[:20], target[:20])
        if kind == ".txt":
            document = read_lines(content, Path("file.txt"))
        else:
            answer = await self.ask_reader(Order(f"file{kind}", *self.bounds, options), content)
            document = msgspec.json.decode(answer, type=Reading)
        self.check_parts(document.parts, kind)
        job = MarkupJob([document.parts], TranslationOptions(), ESCAPES[document.escape])
        check_rows(len(job.texts), self.service.limits.rows)
        run, _, _ = await self.service.run_for(source[:20], target[:20], ["\n".join(job.texts)[:2000]])
        (parts,) = await self.service.ask(run, job)
        if kind == ".txt":
            done = joined_like(content)(parts)
        else:
            done = await self.ask_reader(Order(f"file{kind}", *self.bounds, options, parts), content)
        name = self.keep(kind, done)
        url = f"{request.scope['scheme']}://{request.headers['host']}/download_file/{name}"
        left = {"paragraphsLeft": document.left} if document.left else {}
        return as_json({"translatedFileUrl": url} | left | unknown_of(job.unknown))

    def options_of(self, kind: str, source: str, target: str) -> dict[str, Any]:
        """What the reader of a kind of documents is told."""
        sources = () if source == "auto" else (source,)
        options: dict[str, dict[str, Any]] = {
            ".tmx": {"languages": (sources, target)},
            ".docx": {"largest": 16 * self.service.limits.file},
        }
        return options.get(kind, {})

    async def ask_reader(self, order: Order, content: bytes) -> bytes:
        """What the program that reads documents says to an order; few of them work at a time."""
        async with before(self.service.deadline()), self.readers:
            code, answer = await output_of(READER, order.encoded(content))
        if code == UserError.exit_code:
            raise bad_request(answer.decode(), "file")
        if code < 0:  # ended by the system
            raise bad_request("file: reading it takes more time or memory than is given to one file", "file")
        if code:
            raise RuntimeError("the reader of documents failed")
        return answer

    def check_parts(self, parts: Sequence[str | Segment], kind: str) -> None:
        """Refuse texts that no model is asked, and paragraphs that are too long for one."""
        most = self.service.limits.text
        for part in parts:
            if isinstance(part, Segment):
                check_text(part.text)
                if kind != ".txt" and len(part.text) > most:
                    raise bad_request(
                        f"file: a paragraph of {len(part.text):,} characters is longer than the {most:,} taken here",
                        "file",
                    )

    def kept(self) -> dict[str, tuple[float, Path]]:
        """What is kept, with its age in seconds; what was kept long enough goes."""
        now, kept = time.time(), {}
        for path in self.service.files.iterdir():
            with suppress(FileNotFoundError):  # another process of this server removed it
                if (age := now - path.stat().st_mtime) < KEPT_SECONDS:
                    kept[path.name] = age, path
                else:
                    path.unlink()
        return kept

    def keep(self, kind: str, content: bytes) -> str:
        """Keeps a file's content and returns the name to fetch it by; the oldest make way."""
        for _, path in sorted(self.kept().values())[KEPT - 1 :]:
            path.unlink(missing_ok=True)
        name = secrets.token_urlsafe(16) + kind
        write_atomically(self.service.files / name, content)
        return name

    async def download_file(self, request: Request) -> Response:
        """The translated file of this name as a download; 404 once it is kept no more."""
        name = request.path_params["name"]
        kept = self.kept().get(name)
        if kept is None:
            raise APIError(404, "there is no such file, or it was kept long enough")
        headers = {"Content-Disposition": f'attachment; filename="{name}"'}
        kind = (
            "application/octet-stream"
            if name.endswith((".docx", ".tmx", ".xlf", ".xliff"))
            else "text/plain; charset=utf-8"
        )
        return Response(kept[1].read_bytes(), media_type=kind, headers=headers)

    def routes(self) -> list[DocumentedRoute]:
        """Both routes, with their schema."""
        properties = {"file": {"type": "string", "format": "binary"}}
        properties |= {name: {"type": "string"} for name in ("source", "target", "api_key")}
        fields = {"type": "object", "required": ["file", "source", "target"], "properties": properties}
        answer, kinds = {"application/json": {"type": "object"}}, ("multipart/form-data",)
        return [
            DocumentedRoute("/translate_file", self.translate_file, answer, fields=fields, kinds=kinds),
            DocumentedRoute("/download_file/{name}", self.download_file, {"text/plain": {}}),
        ]
