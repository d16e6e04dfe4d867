"""Python's own source by the character: a text that every machine has."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import torch
from jaxtyping import Int
from torch import Tensor

from glassformer.models import GPT

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


def summed_loss_of(model: GPT, rows: Int[Tensor, "B T"]) -> tuple[Tensor, int]:
    """The loss of every next character of these rows together, and how many there are."""
    inputs, labels = rows[:, :-1].contiguous(), rows[:, 1:].contiguous()
    return model.loss(inputs, labels), labels.numel()


def drawn_rows(
    model: GPT, count: int, width: int, seed: int, seen: Int[Tensor, " N"] | None = None
) -> Callable[[int], tuple[Tensor, int]]:
    """The loss of a step, for `lab.train`: so many rows of what may be seen (the first nine tenths), drawn by the seed."""
    whole, draw = characters()[0], torch.Generator().manual_seed(seed)
    text = whole[: int(0.9 * len(whole))] if seen is None else seen

    def loss(_: int) -> tuple[Tensor, int]:
        starts = torch.randint(len(text) - width - 1, (count,), generator=draw).tolist()
        return summed_loss_of(model, torch.stack([text[s : s + width + 1] for s in starts]))

    return loss


@torch.no_grad()
def held_out_loss(model: GPT, width: int, rows: int) -> float:
    """Nats a character on rows of the last tenth, which no training sees."""
    text = characters()[0]
    cut = int(0.9 * len(text))
    model.eval()
    total, count = summed_loss_of(model, text[cut : cut + rows * width + 1].unfold(0, width + 1, width))
    return float(total) / count
