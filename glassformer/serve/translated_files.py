"""Text files, translated line by line and kept for a while under a name that cannot be guessed."""

from __future__ import annotations

import asyncio
import secrets
import time
from pathlib import PurePosixPath
from typing import ClassVar

from starlette.datastructures import UploadFile
from starlette.requests import Request
from starlette.responses import Response

from glassformer.serve.answers import unknown_of
from glassformer.serve.service import Service, as_json, ask
from glassformer.serve.fields import missing, said
from glassformer.serve.api_errors import Refused, bad
from glassformer.serve.translation import Asked, Translating
from glassformer.serve.translators import run_for
from glassformer.serve.worker import too_many_rows
from glassformer.tasks import check_text

KEPT_SECONDS = 600.0
KEPT = 32


class TranslatedFiles:
    """Translated files, kept in memory for a while under names that cannot be guessed, until they are fetched."""

    KINDS: ClassVar[tuple[str, ...]] = (".txt", ".md", ".srt")

    def __init__(self) -> None:
        self.kept: dict[str, tuple[float, bytes]] = {}

    async def translate(self, request: Request, service: Service) -> Response:
        """Translate a file; the answer says where it is to be fetched."""
        values = await said(request)
        file = values.get("file")
        if not isinstance(file, UploadFile):
            raise bad("file: a file is needed, as multipart/form-data", "file")
        kind = PurePosixPath(file.filename or "").suffix.lower()
        if kind not in self.KINDS:
            raise bad(f"file: its name must end in one of {', '.join(self.KINDS)}", "file")
        try:
            text = (await file.read()).decode("utf-8-sig")
        except UnicodeDecodeError:
            raise bad("file: it is not UTF-8", "file") from None
        lines = text.splitlines()
        spoken = [check_text(line) for line in lines if line.strip()]
        if len(spoken) > service.limits.rows:
            raise too_many_rows(service.limits.rows)
        for name in ("source", "target"):
            if name not in values:
                raise missing(name)
        source, target = values["source"], values["target"]
        if not isinstance(source, str) or not isinstance(target, str):
            raise bad("source and target are codes of languages", "source")
        run, _, _ = await asyncio.to_thread(run_for, service, source[:20], target[:20], text[:2000])
        work = Translating(spoken, Asked())
        found = iter(await ask(request, service, run, work))
        done = "\n".join(next(found)[0].text if line.strip() else line for line in lines) + ("\n" if lines else "")
        name = self.keep(kind, done.encode())
        url = f"{request.scope['scheme']}://{request.headers['host']}/download_file/{name}"
        return as_json({"translatedFileUrl": url} | unknown_of(work.unknown))

    def keep(self, kind: str, content: bytes) -> str:
        """Keeps a file's content and returns the name to fetch it by; the oldest make way."""
        now = time.monotonic()
        self.kept = {name: one for name, one in self.kept.items() if now - one[0] < KEPT_SECONDS}
        while len(self.kept) >= KEPT:
            del self.kept[min(self.kept, key=lambda name: self.kept[name][0])]
        name = secrets.token_urlsafe(16) + kind
        self.kept[name] = now, content
        return name

    def download(self, name: str) -> Response:
        """The file of this name as a download; 404 once it is kept no more."""
        found = self.kept.get(name)
        if found is None or time.monotonic() - found[0] > KEPT_SECONDS:
            raise Refused(404, "there is no such file, or it was kept long enough")
        headers = {"Content-Disposition": f'attachment; filename="{name}"'}
        return Response(found[1], media_type="text/plain; charset=utf-8", headers=headers)
