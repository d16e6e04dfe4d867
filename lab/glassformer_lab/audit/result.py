"""What becomes of a law, the place in somebody's file that broke it, and what is known of its mistake."""

from __future__ import annotations

import contextlib
import inspect
import tomllib
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from torch import nn


@cache
def known() -> dict[str, Any]:
    """What is said of every law, of every mistake and of listings that do not run, from mistakes.toml."""
    return tomllib.loads(Path(__file__).with_name("mistakes.toml").read_text(encoding="utf-8"))


def file_and_line(path: Path, line: int) -> str:
    """file:line, the file as seen from the working directory; empty for a library's."""
    if "site-packages" in path.parts:
        return ""
    with contextlib.suppress(ValueError):
        path = path.relative_to(Path.cwd())
    return f"{path}:{line}"


def line_of(module: nn.Module, words: Sequence[str] = ()) -> str:
    """file:line in a module's forward, of the first of the words that it has, or else of its def; empty for a library's."""
    try:
        lines, start = inspect.getsourcelines(type(module).forward)
        path = Path(inspect.getsourcefile(type(module).forward) or "")
    except (OSError, TypeError):
        return ""
    hits = [i for word in words for i, line in enumerate(lines) if word in line.partition("#")[0] and i]
    return file_and_line(path, start + (hits or [0])[0])


def calling_line() -> str:
    """file:line of the innermost call on the stack that is neither a library's nor the audit's."""
    calls = [(Path(f.filename), f.lineno or 0) for f in reversed(traceback.extract_stack())]
    places = (file_and_line(path, line) for path, line in calls if path.parent != Path(__file__).parent)
    return next((place for place in places if place), "")


@dataclass(frozen=True)
class AuditResult:
    """What became of one law: it holds, or the name of a mistake and its place; with neither, it could not be asked."""

    law: str
    holds: bool = False
    mistake: str = ""
    measured: str = ""
    where: str = ""


def judged(
    law: str, holds: bool, mistake: str, measured: str, module: nn.Module, words: Sequence[str] = ()
) -> AuditResult:
    """A finding, with its place where the law is broken."""
    return (
        AuditResult(law, True, "", measured)
        if holds
        else AuditResult(law, False, mistake, measured, line_of(module, words))
    )
