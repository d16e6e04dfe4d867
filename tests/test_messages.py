"""Every sentence that the package says to a person has its Chinese: what is raised as an error and what is said on stderr."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from glassformer import language
from tests.test_language import CHINESE

ROOT = Path(__file__).parents[1] / "glassformer"
SAID_BY = {"UserError", "ConfigError", "WrongVerb", "UnknownName", "BadLine", "warn", "say"}


def sentence_of(node: ast.expr) -> str | None:
    """The text of an expression with \\1 for what is put in; None where it is made elsewhere."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "\1" for part in node.values)
    return None


def sentences(source: str) -> Iterator[tuple[int, str]]:
    """The line and the text of everything that a file of the package says."""
    for node in ast.walk(ast.parse(source)):
        if not (
            isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in SAID_BY and node.args
        ):
            continue
        is_line = node.func.id == "BadLine" and len(node.args) > 3
        text = sentence_of(node.args[3 if is_line else 0])
        if text is not None and len(re.findall("[A-Za-z]", text.removeprefix("glassformer: "))) >= 4:
            yield node.lineno, f"a.tsv, line 3: {text}" if is_line else text.removeprefix("glassformer: ")


def told(text: str) -> str:
    """In Chinese, with names put in; where the last thing is a suggestion it may be there or not."""
    return language.in_language(text.replace("\1\1", "\1").replace("\1", "x1"), "zh")


def test_nothing_is_said_in_english_alone() -> None:
    """A new sentence needs its entry in locale/zh/LC_MESSAGES/glassformer.po (then: python3 docs/make_messages.py)."""
    english, count = [], 0
    for path in sorted(ROOT.rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        for line, text in sentences(path.read_text(encoding="utf-8")):
            count += 1
            if not CHINESE.search(told(text)):
                english.append(f"{name}:{line}: {text}")
    assert count > 600 and english == [], "\n" + "\n".join(english)


def test_a_sentence_without_chinese_is_found() -> None:
    source = 'raise UserError(f"there is no fyle {path}")\nsay("one text a line; end with Ctrl-D")'
    assert [CHINESE.search(told(text)) is None for _, text in sentences(source)] == [True, False]
