"""Small files of data, plain or compressed by their name."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any


def write(path: Path, text: str | bytes) -> Path:
    data = text.encode("utf-8") if isinstance(text, str) else text
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def lines(items: Any) -> str:
    return "".join(f"{item}\n" for item in items)
