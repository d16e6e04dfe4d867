"""The exercises, from homework.toml, and the file that a reader fills in."""

from __future__ import annotations

import tomllib
from pathlib import Path

EXERCISES: dict[str, dict[str, str]] = tomllib.loads(
    Path(__file__).with_name("homework.toml").read_text(encoding="utf-8")
)
HEAD = """from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.classic import transformer as classic
"""


def listing(names: list[str], file: str) -> str:
    """A Python file with these exercises' holes, and their hints in two languages."""
    parts = [
        f'"""Homework: {", ".join(names)}. Fill in what raises, then: glassformer homework --check {file}"""\n\n{HEAD}'
    ]
    for name in names:
        one = EXERCISES[name]
        before, _, after = one["code"].strip("\n").partition("HOLE")
        indent = before.rpartition("\n")[2]
        hole = f"# {one['hint']}\n{indent}# {one['zh']}\n{indent}raise NotImplementedError"
        parts.append(f"# {name}: {one['about']}\n{before}{hole}{after}\n")
    return "\n\n".join(parts)
