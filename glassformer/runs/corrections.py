"""The corrections of a run as they lie in its folder, where `serve --suggestions` keeps them and `doctor` looks: of each a line
of `corrections/corrections.tsv` with its source, target, number, who gave it, and when. `train --from` reads the first two."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from pathlib import Path

from glassformer.errors import UserError
from glassformer.files.structured import read_regular
from glassformer.language import _

FOLDER, FILE = "corrections", "corrections.tsv"
# Earlier versions, which learned each correction at once, have a sixth column: what became of that.
LINE = re.compile(r"([^\t]+)\t([^\t]+)\t([0-9]{1,9})\t([^\t]*)\t([^\t]*)(?:\t[^\t]*)?")


@dataclass(frozen=True)
class Correction:
    """A source and the target that it should have had, its number, who gave it, and when."""

    source: str
    target: str
    number: int
    author: str
    at: str

    def line(self) -> str:
        """The line of corrections.tsv."""
        return "\t".join(map(str, astuple(self))) + "\n"


def read_corrections(path: Path) -> tuple[list[Correction], list[bytes]]:
    """The corrections of a file in the order in which they came, of a source that was corrected again the last one; and the
    lines that are none."""
    corrections: dict[str, Correction] = {}
    strange = []
    for line in (read_regular(path) if path.exists() else b"").split(b"\n"):
        match = LINE.fullmatch(line.decode(errors="replace"))
        if match is not None and "\ufffd" not in match[0]:
            source, target, number, author, at = match.groups()
            corrections.pop(source, None)
            corrections[source] = Correction(source, target, int(number), author, at)
        elif line:
            strange.append(line)
    return list(corrections.values()), strange


def correction_problems(run: Path) -> Iterator[tuple[str, str | None]]:
    """The file of a run's corrections by its name in the run, where there is one, and what is wrong with it."""
    path = run / FOLDER / FILE
    try:
        strange = read_corrections(path)[1]
    except (OSError, UserError) as error:
        yield f"{FOLDER}/{FILE}", _("cannot be read: {reason}", error)
        return
    if path.exists():
        yield (
            f"{FOLDER}/{FILE}",
            _("has {count:,} lines that are no corrections", len(strange)) if strange else None,
        )
