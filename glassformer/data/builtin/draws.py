"""Random draws that are the same on every Python: of the random module only random() is promised to stay as it is."""

from __future__ import annotations

from random import Random
from typing import Any


def draw(generator: Random, n: int) -> int:
    return int(generator.random() * n)


def shuffled(generator: Random, items: list[Any]) -> list[Any]:
    return sorted(items, key=lambda _: generator.random())
