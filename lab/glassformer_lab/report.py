"""What an experiment leaves behind: a page and its numbers as Markdown and JSON, figures, and on which machine
it was done, with what and when."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from glassformer import machine, plots
from glassformer.config import VERSION
from glassformer.files.durable import to_json, write_atomically
from glassformer.files.owned import OwnedFiles


def processor() -> str:
    """The processor that trials run on, whatever else there is, in words."""
    return f"{machine.cores()} cores, {platform.machine()} {machine.cpu_name()}"


def device_name(device: torch.device) -> str:
    """The device as a person would name it."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    threads = torch.get_num_threads()
    return f"CPU ({platform.machine()}), {threads} thread{'s' * (threads != 1)}"


def made_with() -> dict[str, Any]:
    """The versions and the date, as every report's JSON has them."""
    return {"torch": torch.__version__, "glassformer": VERSION, "date": datetime.now(UTC).date().isoformat()}


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: bool = False) -> list[str]:
    """The lines of a table; with `numbers` every column but the first is aligned to the right.

    >>> markdown_table(["a", "b"], [["1", "2"]], numbers=True)
    ['| a | b |', '| --- | ---: |', '| 1 | 2 |']
    """
    rule = "| --- |" + (" ---: |" if numbers else " --- |") * (len(columns) - 1)
    return ["| " + " | ".join(columns) + " |", rule, *("| " + " | ".join(row) + " |" for row in rows)]


def write_report(
    out: Path,
    name: str,
    numbers: Mapping[str, Any],
    page: str = "",
    figures: Mapping[str, Any] | None = None,
) -> list[Path]:
    """Leaves NAME.json in a folder, NAME.md where there is a page, and each figure as PNG and SVG under its name; only
    what this command made before is replaced."""
    contents = {".md": page.encode(), ".json": to_json(numbers)}
    endings = [ending for ending, content in contents.items() if content]
    paths = OwnedFiles(out).claim(*(f"{name}{ending}" for ending in endings))
    for path, ending in zip(paths, endings, strict=True):
        write_atomically(path, contents[ending])
    return [*paths, *(path for figure, fig in (figures or {}).items() for path in plots.save(fig, out / figure))]
