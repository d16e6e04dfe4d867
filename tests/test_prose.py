"""What prose names exists: files and names in the docstrings and comments of the package, in CONTRIBUTING, decisions and log."""

from __future__ import annotations

import ast
import builtins
import functools
import io
import keyword
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

from tests.test_house import HOUSE

ROOT = Path(__file__).parents[1]
FOLDERS = ("glassformer", "lab", "tests", "bench", "docs", "tools", "examples")
PACKAGE = sorted(path for folder in ("glassformer", "lab/glassformer_lab") for path in (ROOT / folder).rglob("*.py"))
DOCUMENTS = [ROOT / "CONTRIBUTING.md", ROOT / "docs" / "decisions.md", ROOT / "docs" / "log.md"]
FILE = re.compile(r"(?<![\w/.<*:-])([A-Za-z_][\w/-]*\.py)\b")
IN_TICKS = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
FILES = (".py", ".json", ".pkl", ".txt", ".toml", ".md")
THEIRS = {"train.py", "model.py", "utils.py", "my_model.py"}  # files of nanoGPT, one that nobody has, and a reader's


@functools.cache
def files() -> set[str]:
    """Every Python file of the checkout by each end of its path: nn/cache.py, cache.py."""
    paths = [p.relative_to(ROOT).parts for folder in FOLDERS for p in (ROOT / folder).rglob("*.py")]
    return {"/".join(parts[i:]) for parts in paths for i in range(len(parts))}


def words_of(code: Any) -> Iterator[str]:
    """Names that compiled code uses or makes, and words in its texts (keys, options, titles, annotations); compiled without
    docstrings."""
    if isinstance(code, str):
        yield from re.findall(r"[A-Za-z_]\w*", code if "`" not in code else "")
    elif isinstance(code, tuple | frozenset):
        for one in code:
            yield from words_of(one)
    elif isinstance(code, CodeType):
        for name in (code.co_name, *code.co_names, *code.co_varnames, *code.co_cellvars):
            yield from name.split(".")
        yield from words_of(code.co_consts)


@functools.cache
def known() -> set[str]:
    """Every word of code in the checkout."""
    sources = [p for folder in FOLDERS for p in (ROOT / folder).rglob("*.py")]
    compiled = (compile(p.read_text("utf-8"), str(p), "exec", optimize=2) for p in sources)
    found = {word for code in compiled for word in words_of(code)}
    return found | set(dir(builtins)) | set(keyword.kwlist)


def inside(part: Any) -> list[Any]:
    """The statements of a block; a lambda and a conditional expression have none."""
    return part if isinstance(part, list) else []


def prose(path: Path) -> Iterator[str]:
    """The paragraphs of a document, or the docstrings and comments of a module."""
    text = path.read_text("utf-8")
    if path.suffix == ".md":
        yield from re.sub(r"```.*?```", "", text, flags=re.DOTALL).splitlines()
        return
    blocks: list[Any] = [ast.parse(text)]
    for node in blocks:  # statements that hold others, which grow the list
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""
        blocks += [
            one for part in ("body", "orelse", "finalbody", "handlers") for one in inside(getattr(node, part, []))
        ]
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.string


def missing(text: str, *, names: bool = True) -> list[str]:
    """What a text names and the checkout does not have."""
    gone = [name for name in FILE.findall(text) if name not in files() | THEIRS and not Path(name).stem.isupper()]
    for said in IN_TICKS.findall(text) if names else []:
        name = said.removesuffix("()")
        if NAME.fullmatch(name) and Path(name).suffix not in FILES and not set(name.split(".")) <= known():
            gone.append(said)
    return gone


@pytest.mark.slow
def test_what_prose_names_is_there() -> None:
    """Caught: a file that was renamed, a function that is gone. The log also tells of other people's functions, so of it the
    files alone are looked at; what is gone from the checkout it tells in words."""
    found = {
        path.relative_to(ROOT).as_posix(): gone
        for path in [*PACKAGE, *DOCUMENTS]
        if (gone := [one for text in prose(path) for one in missing(text, names=path.name != "log.md")])
    }
    assert found == {}


@pytest.mark.slow
def test_a_name_that_is_gone_would_be_seen() -> None:
    gone = "".join(["Atten", "dance"])
    assert missing(f"see `nn/cash.py` and attention.py, `{gone}` and `KVCache.append()`") == ["nn/cash.py", gone]


def test_the_floors_of_the_guide_are_those_of_the_house() -> None:
    """Caught: a room that moved, and a guide that still shows it where it was."""
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    rows = re.findall(r"^    (\d+) +((?:\w+ \| )*\w+)", text[text.index("## The house") :], re.MULTILINE)
    assert {int(floor): set(rooms.split(" | ")) for floor, rooms in rows} == dict(enumerate(HOUSE))
