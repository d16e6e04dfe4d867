"""Compiles the Chinese of the screen:  python3 docs/make_messages.py  (needs Babel, which the extra `dates` brings)."""

from __future__ import annotations

import io
from datetime import datetime
from pathlib import Path

from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po

PO = Path(__file__).parents[1] / "glassformer" / "locale" / "zh" / "LC_MESSAGES" / "glassformer.po"


def compiled() -> bytes:
    """The catalogue as gettext reads it."""
    out = io.BytesIO()
    catalogue = read_po(io.BytesIO(PO.read_bytes()), locale="zh")
    catalogue.creation_date = catalogue.revision_date = datetime(2026, 1, 1)  # the same source leaves the same file
    write_mo(out, catalogue)
    return out.getvalue()


if __name__ == "__main__":
    PO.with_suffix(".mo").write_bytes(compiled())
