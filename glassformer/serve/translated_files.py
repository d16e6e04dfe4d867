"""Text files, translated line by line and kept for a while under a name that cannot be guessed."""

from __future__ import annotations

import secrets
import time
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import ClassVar

from starlette.datastructures import UploadFile
from starlette.requests import Request
from starlette.responses import Response

from glassformer.serve.answers import unknown_of
from glassformer.serve.api_errors import APIError, bad_request
from glassformer.serve.fields import DocumentedRoute, missing, read_fields
from glassformer.serve.responses import as_json
from glassformer.serve.service import Service
from glassformer.serve.translation import TranslationJob, TranslationOptions
from glassformer.serve.worker import check_rows
from glassformer.tasks import check_text

KEPT_SECONDS = 600.0
KEPT = 32


class TranslatedFiles:
    """Translated files, kept for a while in the server's folder for them, under names that cannot be guessed."""

    KINDS: ClassVar[tuple[str, ...]] = (".txt", ".md", ".srt")

    def __init__(self, service: Service) -> None:
        self.service = service

    async def translate_file(self, request: Request) -> Response:
        """Translate a text file, line by line; the answer says where it is to be fetched."""
        values = await read_fields(request)
        file = values.get("file")
        if not isinstance(file, UploadFile):
            raise bad_request("file: a file is needed, as multipart/form-data", "file")
        kind = PurePosixPath(file.filename or "").suffix.lower()
        if kind not in self.KINDS:
            raise bad_request(f"file: its name must end in one of {', '.join(self.KINDS)}", "file")
        try:
            text = (await file.read()).decode("utf-8-sig")
        except UnicodeDecodeError:
            raise bad_request("file: it is not UTF-8", "file") from None
        lines = text.splitlines()
        texts = [check_text(line) for line in lines if line.strip()]
        check_rows(len(texts), self.service.limits.rows)
        for name in ("source", "target"):
            if name not in values:
                raise missing(name)
        source, target = values["source"], values["target"]
        if not isinstance(source, str) or not isinstance(target, str):
            raise bad_request("source and target are codes of languages", "source")
        run, _, _ = await self.service.run_for(source[:20], target[:20], [text[:2000]])
        job = TranslationJob(texts, TranslationOptions())
        answers = iter(await self.service.ask(run, job))
        done = "\n".join(next(answers)[0].text if line.strip() else line for line in lines) + ("\n" if lines else "")
        name = self.keep(kind, done.encode())
        url = f"{request.scope['scheme']}://{request.headers['host']}/download_file/{name}"
        return as_json({"translatedFileUrl": url} | unknown_of(job.unknown))

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
        (self.service.files / name).write_bytes(content)
        return name

    async def download_file(self, request: Request) -> Response:
        """The translated file of this name as a download; 404 once it is kept no more."""
        name = request.path_params["name"]
        kept = self.kept().get(name)
        if kept is None:
            raise APIError(404, "there is no such file, or it was kept long enough")
        headers = {"Content-Disposition": f'attachment; filename="{name}"'}
        return Response(kept[1].read_bytes(), media_type="text/plain; charset=utf-8", headers=headers)

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
