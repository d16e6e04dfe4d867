"""docs/classic/: the two files of glassformer/classic with Chinese comments and docstrings, and the same code to the token."""

from __future__ import annotations

import io
import re
import token
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SILENT = {tokenize.COMMENT, token.NL, token.NEWLINE, token.INDENT, token.DEDENT}


def split(source: str) -> tuple[list[str], list[str]]:
    """The tokens of the code, and its comments and docstrings (strings that are a statement by themselves), in order."""
    code, told, begins = [], [], True
    for one in tokenize.generate_tokens(io.StringIO(source).readline):
        if one.type == tokenize.COMMENT or (one.type == token.STRING and begins):
            told.append(one.string)
        elif one.type not in SILENT:
            code.append(one.string)
        if one.type in (token.NEWLINE, token.INDENT, token.DEDENT):
            begins = True
        elif one.type not in (tokenize.COMMENT, token.NL):
            begins = False
    return code, told


@pytest.mark.parametrize("name", ["gpt", "transformer"])
def test_the_chinese_twin_is_in_step(name: str) -> None:
    """Broken variants: a line of code that was changed in one of them; a new comment without its Chinese."""
    english, chinese = (
        split((ROOT / path).read_text(encoding="utf-8"))
        for path in (f"glassformer/classic/{name}.py", f"docs/classic/{name}.zh.py")
    )
    assert english[0] == chinese[0]
    assert len(english[1]) == len(chinese[1]) > 25
    for ours, theirs in zip(english[1], chinese[1], strict=True):
        words = re.findall(r"\b[a-z]{3,}\b", re.sub(r"`[^`]*`|fmt: skip", "", ours))
        assert re.search("[\u4e00-\u9fff]", theirs) or not words, (ours, theirs)
        assert ("RIGHT" in ours) == ("RIGHT" in theirs)
