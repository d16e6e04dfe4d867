"""The one place that opens a person's data: each file once, read from its first byte to its last, hashed on the way.

What is opened is a regular file, or a pipe that the shell has opened for this process (`<(command)` arrives as /dev/fd/63).
A device, a socket or a named pipe nobody may ever write to is refused before it is opened. A line has an end, and what is
packed may not unpack to absurd sizes: a few kilobytes that become gigabytes are no text. UTF-16 with
its byte order mark is read as UTF-8. Whatever goes wrong is one sentence that names the file.
"""

from __future__ import annotations

import codecs
import gzip
import hashlib
import io
import os
import stat
import zlib
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, cast

from glassformer.errors import UserError
from glassformer.language import _

LONGEST_LINE = 64 << 20
UTF_16 = (b"\xff\xfe", b"\xfe\xff")  # the byte order marks
UTF_32 = b"\xff\xfe\x00\x00"
EXPANSION_WATCHED_FROM = 256 << 20  # bytes of unpacked text, and from there on:
MOST_EXPANSION = 300  # times the packed size; prose packs to a third, tables of numbers to a twentieth
BLOCK = 1 << 20
GIVEN_BY_SHELL = ("/dev/fd/", "/dev/stdin", "/proc/self/fd/")  # so begin the pipes that are open already
PACKED = {
    b"PK\x03\x04": _("a zip archive (or a spreadsheet); unpack it (or save it as CSV) and give the file inside"),
    b"BZh": _("packed by bzip2; unpack it first"),
    b"\xfd7zXZ": _("packed by xz; unpack it first"),
    b"\x28\xb5\x2f\xfd": _("packed by zstd; unpack it first"),
    b"\x1f\x8b": _("packed by gzip but not called so; let its name end in .gz"),
}


@dataclass(frozen=True)
class FileFacts:
    """What is remembered of a file that was read whole: by this it is known again. `modified` is in nanoseconds."""

    path: str
    size: int
    sha256: str
    modified: int


class HashedReader(io.RawIOBase):
    """A file's raw bytes, each hashed the first time it is read; one that cannot go back (a pipe) still reads on."""

    def __init__(self, raw: io.FileIO) -> None:
        self.raw = raw
        self.digest = hashlib.sha256()
        self.hashed = self.position = 0

    def readable(self) -> bool:
        """True."""
        return True

    def seekable(self) -> bool:
        """As the file underneath."""
        return self.raw.seekable()

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        """Reads, and hashes what had not been read before."""
        count = self.raw.readinto(buffer) or 0
        new = self.position + count - self.hashed
        if new > 0:
            self.digest.update(memoryview(buffer)[count - new : count])
            self.hashed += new
        self.position += count
        return count

    def rewind(self) -> None:
        """Back to the beginning; what was hashed stays hashed."""
        self.raw.seek(0)
        self.position = 0

    def close(self) -> None:
        """Closes the file underneath too."""
        self.raw.close()
        super().close()


class Utf16Reader(io.RawIOBase):
    """UTF-16 with a byte order mark, read as UTF-8; what is no whole character comes out as bytes that are no UTF-8, either."""

    def __init__(self, source: io.BufferedIOBase) -> None:
        self.source, self.decoder, self.held = source, codecs.getincrementaldecoder("utf-16")("surrogatepass"), b""

    def readable(self) -> bool:
        """True."""
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        """Reads some characters."""
        while not self.held:
            block = self.source.read(BLOCK)
            self.held = self.decoder.decode(block).encode("utf-8", "surrogatepass")
            if not block:  # the end; half a character may be left
                self.held += b"\xff" * bool(self.decoder.getstate()[0])
                self.decoder.reset()
                break
        count = min(len(buffer), len(self.held))
        buffer[:count], self.held = self.held[:count], self.held[count:]
        return count


def why_not_readable(path: Path, found: os.stat_result) -> str | None:
    """What it is, if it is nothing to read data from."""
    mode = found.st_mode
    if stat.S_ISREG(mode):
        return None
    if stat.S_ISDIR(mode):
        return _("is a folder, not a file")
    if stat.S_ISFIFO(mode):
        given_by_shell = path.as_posix().startswith(GIVEN_BY_SHELL)
        return None if given_by_shell else _("is a named pipe, which may never end; write its content to a file first")
    return _("is a device or a socket, not a file")


class UserFile:
    """A file of a person's, open for one reading. `position` counts bytes of content, unpacked where it is gzipped."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.gzipped = self.path.suffix == ".gz"
        try:
            found = os.stat(self.path)
            if (why := why_not_readable(self.path, found)) is not None:
                raise UserError("{path} {why}", self.path, why)
            self.reader = HashedReader(io.FileIO(self.path, "rb"))
        except UserError:
            raise
        except FileNotFoundError:
            raise UserError("there is no file {path}", self.path) from None
        except OSError as error:
            raise UserError("{path} cannot be read: {reason}", self.path, error.strerror) from None
        except ValueError:  # a NUL in the name
            raise UserError("{path!r} is not the name of a file", str(self.path)) from None
        self.status = os.fstat(self.reader.raw.fileno())
        self.position = 0
        self.unpacked_size = None if self.gzipped else self.status.st_size
        self.is_utf_16 = False
        self.handle = self._unpacked()
        mark = b"" if self.gzipped else self.peek(4)
        if mark.startswith(UTF_16) and mark != UTF_32:
            self.is_utf_16, self.unpacked_size = True, None
            self.handle = io.BufferedReader(Utf16Reader(self.handle), BLOCK)
        if not self.gzipped and (packed := next((p for p in PACKED if self.peek(6).startswith(p)), None)) is not None:
            self.close()
            raise UserError("{path} is {packed}", self.path, PACKED[packed])

    def _unpacked(self) -> io.BufferedIOBase:
        self.buffered = io.BufferedReader(self.reader, BLOCK)
        if self.is_utf_16:
            return io.BufferedReader(Utf16Reader(self.buffered), BLOCK)
        return gzip.GzipFile(fileobj=self.buffered, mode="rb") if self.gzipped else self.buffered

    def __enter__(self) -> UserFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Ends the reading; reading on is an error."""
        self.reader.close()

    @property
    def seekable(self) -> bool:
        """Whether it can be read a second time from the start."""
        return self.reader.seekable()

    def peek(self, size: int) -> bytes:
        """The next few bytes, which stay to be read. Only of a file that is not gzipped."""
        try:
            return cast(io.BufferedReader, self.handle).peek(size)[:size]
        except OSError as error:
            raise UserError("{path} cannot be read: {reason}", self.path, error.strerror) from None

    def read(self, size: int) -> bytes:
        """At most `size` bytes of content; none at the end."""
        return self._checked(self.handle.read, size)

    def read_lines(self) -> bytes:
        """The next lines, about as many as a block holds, each with its newline; nothing at the end."""
        block = self.read(BLOCK)
        rest = self._checked(self.handle.readline, LONGEST_LINE + 1) if block and not block.endswith(b"\n") else b""
        if len(rest) + len(block) - block.rfind(b"\n") - 1 > LONGEST_LINE:
            raise UserError(
                "{path} has a line of more than {longest_line} MiB; this is no file of lines, or its line breaks "
                "are lost",
                self.path,
                LONGEST_LINE >> 20,
            )
        return block + rest

    def _checked(self, read: object, size: int) -> bytes:
        try:
            found: bytes = read(size)  # type: ignore[operator]
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise UserError(
                "{path} is not a whole gzip file ({error}); fetch or pack it again", self.path, error
            ) from None
        except OSError as error:
            raise UserError("{path} cannot be read: {reason}", self.path, error.strerror) from None
        self.position += len(found)
        packed = max(1, self.reader.position)
        if self.gzipped and self.position > max(EXPANSION_WATCHED_FROM, MOST_EXPANSION * packed):
            raise UserError(
                "{path} unpacks to more than {most_expansion} times its size, which no text does; unpack it yourself if "
                "you trust it",
                self.path,
                MOST_EXPANSION,
            )
        return found

    def rewind(self) -> None:
        """Back to the first byte, on the same open file."""
        self.buffered.detach()  # or it would close the file on its way out
        self.reader.rewind()
        self.position = 0
        self.handle = self._unpacked()

    def content_size(self) -> int:
        """Bytes of content. Of a gzipped file it is not known beforehand, so that is read through, and rewound."""
        if self.unpacked_size is None:
            while self.read(BLOCK):
                pass
            self.unpacked_size = self.position
            self.rewind()
        return self.unpacked_size

    def random_access(self) -> IO[bytes]:
        """The open file for a reader that jumps about in it (Parquet); its bytes are hashed first."""
        while self.reader.read(BLOCK):
            pass
        self.reader.raw.seek(0)
        return self.reader.raw

    def facts(self) -> FileFacts:
        """By what the file is known again; what was not read yet is read for it."""
        try:
            if self.seekable and self.reader.position < self.reader.hashed:
                self.reader.raw.seek(self.reader.hashed)
                self.reader.position = self.reader.hashed
            while self.reader.read(BLOCK):
                pass
        except OSError as error:
            raise UserError("{path} cannot be read: {reason}", self.path, error.strerror) from None
        return FileFacts(str(self.path), self.reader.hashed, self.reader.digest.hexdigest(), self.status.st_mtime_ns)
