"""The corrections of a run while it is served: kept on the disk (runs/corrections.py), and the answers to their texts.

The model learns nothing by them; `train corrections.tsv --from RUN` does that, with all weights and when one likes. Each change
reads the file anew, under a lock, and replaces it whole: servers of one run share its corrections, and neither a full disk nor
a kill tears a line. Lines that are no corrections stay in it.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from glassformer.files.durable import write_atomically
from glassformer.files.owned import OwnedFiles, exclusive_lock, own_folder
from glassformer.language import _
from glassformer.runs.corrections import FILE, FOLDER, Correction, read_corrections
from glassformer.serve.requests import APIError, bad_request

MOST = 2000  # corrections of a run
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Corrections:
    """The corrections of one run."""

    def __init__(self, run: Path) -> None:
        self.path, self.lock = OwnedFiles(own_folder(run / FOLDER)).claim(FILE, ".lock")
        self.stamp: object = None
        self.targets: dict[str, str] = {}

    def by_source(self) -> dict[str, str]:
        """The target of each corrected source, as the file has them now."""
        status = self.path.stat() if self.path.exists() else None
        stamp = status and (status.st_mtime_ns, status.st_ino, status.st_size)
        if stamp != self.stamp:
            self.targets = {correction.source: correction.target for correction in read_corrections(self.path)[0]}
            self.stamp = stamp
        return self.targets

    @contextmanager
    def changing(self) -> Iterator[dict[int, Correction]]:
        """The corrections by number, to be changed inside and then written; where that cannot be, nothing has changed."""
        try:
            with exclusive_lock(self.lock, _("another server writes {path}; ask again", self.path)):
                corrections, strange = read_corrections(self.path)
                by_number = {correction.number: correction for correction in corrections}
                yield by_number
                lines = [correction.line().encode() for correction in by_number.values()]
                write_atomically(self.path, b"".join([*lines, *(line + b"\n" for line in strange)]))
        except OSError as error:
            status = 507 if error.errno in FULL else 503
            raise APIError(
                status, f"corrections cannot be written here now ({error.strerror}); nothing has changed"
            ) from error

    def add(self, source: str, target: str, author: str) -> int:
        """Keeps a correction, in place of an earlier one of the same source; its number, once it is on the disk."""
        source, target = source.strip(), target.strip()
        if not source or not target or any(len(text.splitlines()) > 1 or "\t" in text for text in (source, target)):
            raise bad_request("a correction is one line of text and one line of translation, without tabs", "s")
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        with self.changing() as corrections:
            number = 1 + max(corrections, default=0)
            for earlier in [c for c in corrections.values() if c.source == source]:
                del corrections[earlier.number]
            if len(corrections) >= MOST:
                raise APIError(507, f"no more corrections are kept than {MOST:,}; take some back by /undo")
            corrections[number] = Correction(source, target, number, author, at)
        return number

    def remove(self, number: int, author: str, *, is_owner: bool) -> None:
        """Takes a correction back; whoever gave it may, and the owner."""
        with self.changing() as corrections:
            if number not in corrections:
                raise bad_request(f"there is no correction {number} of this run", "id")
            if not is_owner and corrections[number].author != author:
                raise APIError(403, "this correction was given with another key")
            del corrections[number]
