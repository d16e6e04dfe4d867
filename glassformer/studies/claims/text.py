"""Python's own source by the character: a text that every machine has."""

from __future__ import annotations

from functools import cache

import torch
from jaxtyping import Int
from torch import Tensor

LETTERS = "\t\n" + "".join(chr(code) for code in range(32, 127))
"""Tab, line break and what ASCII prints; anything else is one more token."""


@cache
def characters(count: int = 2_000_000) -> tuple[Int[Tensor, " N"], int]:
    """The beginning of the library's files, in their order, as tokens; and how many tokens there are."""
    from glassformer.data.builtin.stdlib import stdlib_files

    number = {letter: i for i, letter in enumerate(LETTERS)}
    found: list[int] = []
    for document in stdlib_files("train", None):
        found += [number.get(letter, len(LETTERS)) for letter in document.text]
        if len(found) >= count:
            break
    return torch.tensor(found[:count]), len(LETTERS) + 1
