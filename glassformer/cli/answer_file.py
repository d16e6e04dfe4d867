"""A file of answers that can be gone on with: the answers, and beside them FILE.job, which says whose they are.

The record holds the fingerprint of the job (the input's bytes, the run's weights and tokenizers, the verb and its options)
and how far it is: so many lines, so many bytes, and their SHA-256. It is there before the file of answers is, and is brought
up to date about once a second, after the answers themselves are on the disk. `--resume` compares all of it before a byte is
touched; what a kill left behind the last record is cut off and answered again. A file that this command did not begin is
never touched.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from glassformer.config import VERSION
from glassformer.errors import UserError, writing
from glassformer.files import structured
from glassformer.files.durable import to_json, write_all, write_atomically
from glassformer.files.owned import exclusive_lock
from glassformer.language import _

FORMAT = 1
EVERY = 1.0  # seconds between two records


@dataclass(frozen=True)
class AnswerRecord:
    """Whose answers a file has, and how far it is."""

    format: int
    job: dict[str, Any]
    lines: int
    bytes: int
    sha256: str
    done: bool
    glassformer: str = "unknown"


def record_of(path: Path) -> Path:
    """Where the record of an answer file lies."""
    return Path(f"{path}.job")


def read_record(path: Path) -> AnswerRecord | None:
    """The record beside an answer file; None where there is none that this command wrote."""
    try:
        record: AnswerRecord = structured.read(record_of(path), AnswerRecord, 1 << 20)
    except (OSError, structured.Unreadable):
        return None
    return record if record.format == FORMAT else None


def difference(there: Mapping[str, Any], asked: Mapping[str, Any]) -> str | None:
    """What a job that was begun and one that is asked for differ in, in words."""
    others = {"verb": _("of another command"), "input": _("of another input file"), "run": _("of other weights")}
    for key, other in others.items():
        if there.get(key) != asked.get(key):
            return other
    old, new = there.get("options") or {}, asked.get("options") or {}
    changed = sorted(key for key in {*old, *new} if old.get(key) != new.get(key))
    return _("with another setting of {changed}", ", ".join(changed)) if changed else None


class AnswerFile:
    """Answers, line by line, in a file of their own. `job` is what they depend on, by the names of `difference`."""

    def __init__(self, path: Path, job: Mapping[str, Any], *, resume: bool) -> None:
        self.path, self.job = path, json.loads(to_json(dict(job)))
        self.lines = self.bytes = 0
        self.done = False
        self.digest = hashlib.sha256()
        self.recorded = 0.0
        self.held = contextlib.ExitStack()
        is_there, record = os.path.lexists(path), read_record(path)
        # A kill at the very start leaves an empty file, and the record that it is ours.
        is_begun = is_there and record is not None and not record.bytes and path.is_file() and not path.stat().st_size
        if is_there and not (resume or is_begun):
            raise UserError(
                "{path} is there already; go on with it by --resume, or delete it, or choose another --out", path
            )
        if not is_there and record is None and os.path.lexists(record_of(path)):
            raise UserError("{record} is in the way and is not glassformer's; choose another --out", record_of(path))
        with writing(path):
            if not is_there:
                self.write_record()
            elif record is None:
                raise UserError(
                    "{path} was not begun by this command (there is no {name} beside it), so it "
                    "is left as it is; choose another --out, or delete it",
                    path,
                    record_of(path).name,
                )
            elif (why := difference(record.job, self.job)) is not None:
                raise UserError(
                    "{path} has the answers {why}, so it is left as it is; choose another --out, or delete it",
                    path,
                    why,
                )
            refusal = _("another process is writing {path}; let it end, or choose another --out", path)
            self.held.enter_context(exclusive_lock(path, refusal))
            self.file = self.held.enter_context(path.open("r+b", buffering=0))
            if is_there:
                self.go_on()

    def go_on(self) -> None:
        """Behind the last whole answer of an interrupted job. Every byte that is kept is one that was written; behind the answers
        of a job that ended there is nothing."""
        record = read_record(self.path)
        assert record is not None
        left = record.bytes
        while left > 0 and (block := self.file.read(min(left, 1 << 20))):
            self.digest.update(block)
            left -= len(block)
        longer = record.done and bool(self.file.read(1))
        if left or longer or self.digest.hexdigest() != record.sha256:
            self.held.close()
            raise UserError(
                "{path} has been changed since its answers were written, so it is left as it is; choose another "
                "--out, or delete it",
                self.path,
            )
        self.lines, self.bytes, self.done = record.lines, record.bytes, record.done
        self.file.truncate(self.bytes)
        self.file.seek(self.bytes)

    def write(self, text: str, lines: int) -> None:
        """The answers to so many lines more."""
        content = text.encode("utf-8")
        write_all(self.file.fileno(), content)
        self.digest.update(content)
        self.lines, self.bytes = self.lines + lines, self.bytes + len(content)
        if time.monotonic() - self.recorded > EVERY:
            self.record()

    def record(self) -> None:
        """Put the answers on the disk, and then the record that says so."""
        os.fsync(self.file.fileno())
        self.write_record()

    def write_record(self) -> None:
        """Whose answers these are, and how far they are."""
        facts = AnswerRecord(FORMAT, self.job, self.lines, self.bytes, self.digest.hexdigest(), self.done, VERSION)
        write_atomically(record_of(self.path), to_json(asdict(facts)))
        self.recorded = time.monotonic()

    def __enter__(self) -> AnswerFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.done = self.done or error is None
        with self.held, contextlib.suppress(*() if error is None else (OSError,)):
            self.record()
