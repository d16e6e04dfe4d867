"""What goes wrong and can be put right by the person at the keyboard: one sentence each."""

from __future__ import annotations

import importlib.metadata
import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from glassformer.language import _


class UserError(ValueError):
    """Something the person at the keyboard can put right; the message is one sentence that says what, where and how.

    >>> str(UserError("there is no file {path}", "a.tsv"))
    'there is no file a.tsv'
    """

    exit_code = 2

    def __init__(self, sentence: str = "", /, *given: Any, **values: Any) -> None:
        super().__init__(_(sentence, *given, **values))


class ConfigError(UserError):
    """A setting of a recipe, a parameter or an option that cannot be, or that another one rules out."""


class UnknownName(UserError, KeyError):
    """A name that nothing has, looked up as in a dictionary."""

    __str__ = ValueError.__str__  # a KeyError shows its sentence in quotation marks


@contextmanager
def writing(path: Any) -> Iterator[None]:
    """Inside, what the system refuses to write is one sentence about the path."""
    try:
        yield
    except OSError as error:
        raise UserError("{filename} cannot be written: {reason}", path, error.strerror) from None


class Notice(UserWarning):
    """A warning with a sentence of ours. As a str it is plain text: whoever collects warnings may send them elsewhere."""

    def __str__(self) -> str:
        return "".join(self.args)


def packages_of(extra: str) -> list[str]:
    """The packages that an extra of ours asks for, by their names; empty where the package was never installed."""
    try:
        asked = importlib.metadata.requires("glassformer") or []
    except importlib.metadata.PackageNotFoundError:
        return []
    found: list[str] = []
    for line in asked:
        what, _sign, condition = line.partition(";")
        if not re.search(rf"""extra == ['"]{re.escape(extra)}['"]""", condition):
            continue
        if own := re.match(r"glassformer\[(.*)\]", what.strip()):
            found += [name for other in own[1].split(",") for name in packages_of(other.strip())]
        else:
            found.append(re.split(r"[^\w.-]", what.strip())[0])
    return list(dict.fromkeys(found))


def is_installed(package: str) -> bool:
    """Whether a distribution of this name is there."""
    try:
        importlib.metadata.distribution(package)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def install_hint(extra: str) -> str:
    """The command that brings what an extra asks for. The package is on no index: a checkout is installed anew with the extra,
    and beside an installed wheel the missing packages go by their own names."""
    checkout = Path(__file__).resolve().parents[1]
    if (checkout / "pyproject.toml").exists() and (checkout / "constraints.txt").exists():
        here = "" if checkout == Path.cwd() else f"{checkout}/"
        pins, own = f"{here}constraints.txt", f"{here.rstrip('/') or '.'}[{extra}]"
        return f"pip install -c {shlex.quote(pins)} -e {shlex.quote(own)}"
    packages = packages_of(extra)
    return f"pip install {' '.join([name for name in packages if not is_installed(name)] or packages)}"
