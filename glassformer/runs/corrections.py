"""The corrections of a run as they lie in its folder `corrections/`, where `serve --learn` keeps them and `doctor` looks.

corrections.tsv      source, target, number, who taught it, when, and what became of it: the SHA-256 of its update, or that it was
                     refused (see `REFUSED`); nothing while it is not learned, and where an earlier version learned it
000001.safetensors   the update of correction 1
set-aside.tsv        lines of corrections.tsv that were no corrections
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from glassformer.errors import UserError
from glassformer.files.structured import read_regular
from glassformer.language import _

FOLDER, FILE, SET_ASIDE = "corrections", "corrections.tsv", "set-aside.tsv"
REFUSED = "refused-"
"""Before the first 16 digits of the fingerprint of the run's own weights, which could not learn this without losing something."""
COLUMNS = (r"[^\t]+", r"[^\t]+", r"[0-9]{1,9}", r"[^\t]*", r"[^\t]*")
LINE = re.compile("\t".join(f"({column})" for column in COLUMNS) + rf"(?:\t([0-9a-f]{{64}}|{REFUSED}[0-9a-f]{{16}}))?")
LARGEST_UPDATE = 1 << 30


@dataclass(frozen=True)
class Correction:
    """A source and the target that it should have had, its number, who taught it when, and what became of it."""

    source: str
    target: str
    number: int
    teacher: str
    at: str
    outcome: str = ""

    @property
    def pair(self) -> tuple[str, str]:
        """The source and target that a model learns."""
        return self.source, self.target

    @property
    def update(self) -> str:
        """The name of the file with its update."""
        return f"{self.number:06}.safetensors"

    @property
    def digest(self) -> str | None:
        """The SHA-256 of its update; None where none is known."""
        return None if self.outcome.startswith(REFUSED) else self.outcome or None

    def line(self) -> str:
        """The line of corrections.tsv."""
        columns = [self.source, self.target, str(self.number), self.teacher, self.at]
        return "\t".join([*columns, self.outcome] if self.outcome else columns) + "\n"


def read_corrections(path: Path) -> tuple[list[Correction], list[bytes]]:
    """The corrections of a file in the order in which they came, of a source that was corrected again the last one; and the
    lines that are none, such as one without its end."""
    *lines, torn = read_regular(path).split(b"\n") if path.exists() else [b""]
    kept: dict[str, Correction] = {}
    strange = [torn] if torn else []
    for line in lines:
        try:
            match = LINE.fullmatch(line.decode())
        except UnicodeDecodeError:
            match = None
        if match is None:
            strange.append(line)
            continue
        source, target, number, teacher, at, outcome = match.groups()
        kept.pop(source, None)
        kept[source] = Correction(source, target, int(number), teacher, at, outcome or "")
    return list(kept.values()), strange


def update_problem(path: Path, digest: str | None) -> str | None:
    """The problem of the update of a correction, in words; None where it is what was learned. Earlier versions kept no
    digest: of theirs it is asked whether they hold numbers."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    if path.is_symlink() or not path.is_file():
        return _("is not a regular file") if path.exists() else _("is missing")
    try:
        content = read_regular(path, LARGEST_UPDATE)
        if digest is not None and hashlib.sha256(content).hexdigest() != digest:
            return _("has changed since it was written")
        tensors = load(content)
    except (OSError, UserError, SafetensorError, ValueError, KeyError) as error:
        return _("cannot be read: {reason}", " ".join(str(error).split())[:200])
    return None if all(bool(t.isfinite().all()) for t in tensors.values()) else _("holds numbers that are not finite")


def correction_problems(run: Path) -> Iterator[tuple[str, str | None]]:
    """Each file of a run's corrections by its name in the run, and what is wrong with it."""
    path = run / FOLDER / FILE
    try:
        corrections, strange = read_corrections(path)
    except (OSError, UserError) as error:
        yield f"{FOLDER}/{FILE}", _("cannot be read: {reason}", error)
        return
    if path.exists():
        yield (
            f"{FOLDER}/{FILE}",
            _("has {count:,} lines that are no corrections", len(strange)) if strange else None,
        )
    for correction in corrections:
        update = path.with_name(correction.update)
        if correction.digest is not None or update.exists():
            yield f"{FOLDER}/{correction.update}", update_problem(update, correction.digest)
