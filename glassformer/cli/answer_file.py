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
from io import RawIOBase
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from glassformer.config import VERSION
from glassformer.errors import ConfigError, UserError
from glassformer.files import structured
from glassformer.files.durable import to_json, write_atomically
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
        found: AnswerRecord = structured.read(record_of(path), AnswerRecord, 1 << 20)
    except (OSError, structured.Unreadable):
        return None
    return found if found.format == FORMAT else None


def sha256_of_input(file: BinaryIO) -> str:
    """Of all that a seekable file holds; it is at its beginning afterwards."""
    digest = hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]
    file.seek(0)
    return digest


def difference(there: Mapping[str, Any], wanted: Mapping[str, Any]) -> str | None:
    """What a job that was begun and one that is asked for differ in, in words."""
    others = {"verb": _("of another command"), "input": _("of another input file"), "run": _("of other weights")}
    for key, other in others.items():
        if there.get(key) != wanted.get(key):
            return other
    old, new = there.get("options") or {}, wanted.get("options") or {}
    changed = sorted(k for k in {*old, *new} if old.get(k) != new.get(k)) if isinstance(old, dict) else ["options"]
    return _("with another setting of {changed}", ", ".join(changed)) if changed else None


def lock(file: RawIOBase, path: Path) -> None:
    """Two jobs that write one file would mix their answers; the second is refused. A kill frees the file."""
    try:
        import fcntl
    except ImportError:
        return  # this system has no such locks
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise UserError("another process is writing {path}; let it end, or choose another --out", path) from None
    except OSError:
        pass  # a file system without locks


class AnswerFile:
    """Answers, line by line, in a file of their own. `job` is what they depend on, by the names of `difference`."""

    def __init__(self, path: Path, job: Mapping[str, Any], *, resume: bool) -> None:
        self.path, self.job = path, json.loads(to_json(dict(job)))
        self.lines = self.bytes = 0
        self.done = False
        self.digest = hashlib.sha256()
        self.recorded = 0.0
        try:
            self.file: BinaryIO = self.go_on() if resume and os.path.lexists(path) else self.begin()  # type: ignore[assignment]
        except OSError as error:
            raise UserError("{filename} cannot be written: {reason}", path, error.strerror) from None

    def begin(self) -> RawIOBase:
        """A new file, once the record says whose it will be; one that is there is never touched, unless it is empty and the
        record says that it was begun so and broken off."""
        record = read_record(self.path)
        flags = os.O_NOFOLLOW | os.O_APPEND
        if os.path.lexists(self.path):
            empty = self.path.is_file() and not self.path.is_symlink() and self.path.stat().st_size == 0
            if not empty or record is None or record.bytes or record.done:
                raise UserError(
                    "{path} is there already; go on with it by --resume, or delete it, or choose another --out",
                    self.path,
                )
        elif os.path.lexists(record_of(self.path)) and record is None:
            raise UserError(
                "{record} is in the way and is not glassformer's; choose another --out", record_of(self.path)
            )
        else:
            self.write_record()
            flags = os.O_CREAT | os.O_EXCL
        file = os.fdopen(os.open(self.path, os.O_WRONLY | flags, 0o666), "wb", buffering=0)
        lock(file, self.path)
        return file

    def go_on(self) -> RawIOBase:
        """The file of an interrupted job, behind its last whole answer, if it is this very job's."""
        flags = os.O_RDWR | getattr(os, "O_NOFOLLOW", 0)
        file = os.fdopen(os.open(self.path, flags), "r+b", buffering=0)
        try:
            lock(file, self.path)
            record = read_record(self.path)
            if record is None:
                raise UserError(
                    "{path} was not begun by this command (there is no {name} beside it), so it "
                    "is left as it is; choose another --out, or delete it",
                    self.path,
                    record_of(self.path).name,
                )
            if (why := difference(record.job, self.job)) is not None:
                raise UserError(
                    "{path} has the answers {why}, so it is left as it is; choose another --out, or delete it",
                    self.path,
                    why,
                )
            self.check_answers(file, record)
            self.lines, self.bytes, self.done = record.lines, record.bytes, record.done
            file.truncate(self.bytes)
            file.seek(self.bytes)
        except BaseException:
            file.close()
            raise
        return file

    def check_answers(self, file: RawIOBase, record: AnswerRecord) -> None:
        """Every byte that is to be kept is one that was written; behind the answers of a job that ended there is nothing."""
        left = record.bytes
        while left > 0 and (block := file.read(min(left, 1 << 20))):
            self.digest.update(block)
            left -= len(block)
        longer = record.done and bool(file.read(1))
        if left or longer or self.digest.hexdigest() != record.sha256:
            raise UserError(
                "{path} has been changed since its answers were written, so it is left as it is; choose another "
                "--out, or delete it",
                self.path,
            )

    def write(self, text: str, lines: int) -> None:
        """The answers to so many lines more."""
        content = text.encode("utf-8")
        place = 0
        while place < len(content):
            place += self.file.write(content[place:])
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
        try:
            self.record()
        except OSError as error:
            self.__exit__(OSError, error, None)
            raise UserError("{filename} cannot be written: {reason}", record_of(self.path), error.strerror) from None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.done = self.done or error is None
        try:
            if error is None:
                self.record()
            else:
                with contextlib.suppress(OSError):
                    self.record()
        finally:
            with contextlib.suppress(OSError):
                self.file.close()


def refuse_same_file(source: Path, out: Path) -> None:
    """Answers are not written over the questions."""
    with contextlib.suppress(OSError):
        if out.samefile(source):
            raise ConfigError("--file and --out are both {source}; the answers need a file of their own", source)
