"""README.zh.md in step with README.md: the same headings, commands, code, tables and links; only the words differ."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ENGLISH, CHINESE = ((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "README.zh.md"))


def headings(text: str) -> list[str]:
    """The levels of the headings, in order: their words differ."""
    outside = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"^(#+) ", outside, re.MULTILINE)


def commands(text: str) -> list[str]:
    """Every line of code, indented or fenced, without its comment; and every command in backticks."""
    fenced = "\n".join(re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL))
    lines = [*fenced.splitlines(), *re.findall(r"^ {4}(.*)$", text, re.MULTILINE)]
    written = [re.sub(r"\s*#.*", "", line).strip() for line in lines]
    return [line for line in written if line] + re.findall(r"`(glassformer [^`]+)`", text)


def tables(text: str) -> list[str]:
    """For each table its rows, as a number."""
    return [f"a table of {block.count(chr(10))} lines" for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)]


def links(text: str) -> list[str]:
    """Where links lead; a page that there is in Chinese stands for the English one."""
    found = (link.replace(".zh.md", ".md") for link in re.findall(r"\]\(([^)]+)\)", text))
    return [link for link in found if link != "README.md"]


@pytest.mark.parametrize("what", [headings, commands, tables, links], ids=lambda f: f.__name__)
def test_the_chinese_readme_is_in_step(what: object) -> None:
    english, chinese = Counter(what(ENGLISH)), Counter(what(CHINESE))  # type: ignore[operator]
    missing, extra = sorted((english - chinese).elements()), sorted((chinese - english).elements())
    told = f"README.zh.md is out of step with README.md in its {what.__name__}: "  # type: ignore[attr-defined]
    assert not missing and not extra, told + f"it lacks {missing} and has {extra} that README.md has not"


def test_both_lead_to_each_other_and_to_files_that_are_there() -> None:
    assert "(README.zh.md)" in ENGLISH and "(README.md)" in CHINESE
    for text in (ENGLISH, CHINESE):
        for link in re.findall(r"\]\(([^)#]+)", text):
            assert "://" in link or (ROOT / link).exists(), link


def test_a_difference_would_be_seen() -> None:
    """Broken variants: a command left out, a row left out, a heading of another level."""
    assert Counter(commands(ENGLISH)) != Counter(commands(ENGLISH.replace("glassformer plan", "glassformer plans")))
    assert tables(ENGLISH) != tables(re.sub(r"^\| `copy`.*\n", "", ENGLISH, flags=re.MULTILINE))
    assert headings(ENGLISH) != headings(ENGLISH.replace("## What is built in", "### What is built in"))
