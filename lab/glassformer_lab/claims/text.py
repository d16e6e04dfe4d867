"""Python's own source by the character: a text that every machine has."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from glassformer.models import GPT
from glassformer_lab.claims.training import drawn

LETTERS = "\t\n" + "".join(chr(code) for code in range(32, 127))
"""Tab, line break and what ASCII prints; anything else is one more token."""


@cache
def characters(count: int = 8_000_000) -> tuple[Int[Tensor, " N"], int]:
    """The beginning of the library's files, in their order, as tokens; and how many tokens there are."""
    from glassformer.data.builtin.stdlib import stdlib_files

    number = np.full(256, len(LETTERS))
    number[[ord(letter) for letter in LETTERS]] = range(len(LETTERS))
    found: list[np.ndarray] = []
    for document in stdlib_files("train", None):
        codes = np.frombuffer(document.text.encode("utf-32-le"), np.uint32)
        found.append(number[np.minimum(codes, 255)])
        if sum(map(len, found)) >= count:
            break
    return torch.tensor(np.concatenate(found)[:count]), len(LETTERS) + 1


def summed_loss_of(model: GPT, rows: Int[Tensor, "B T"]) -> tuple[Tensor, int]:
    """The loss of every next character of these rows together, and how many there are."""
    inputs, labels = rows[:, :-1].contiguous(), rows[:, 1:].contiguous()
    return model.loss(inputs, labels), labels.numel()


def drawn_rows(
    model: GPT, count: int, width: int, seed: int, seen: Int[Tensor, " N"] | None = None
) -> tuple[Callable[[], tuple[Tensor]], Callable[[Tensor], tuple[Tensor, int]]]:
    """What `train` needs: a function that draws so many rows of what may be seen (the first nine tenths) by the seed, and their
    loss."""
    whole, generator = characters()[0], torch.Generator().manual_seed(seed)
    text = whole[: int(0.9 * len(whole))] if seen is None else seen

    def draw() -> tuple[Tensor]:
        return (rows_at(text, drawn(0, len(text) - width - 1, count, generator), width),)

    return draw, partial(summed_loss_of, model)


def rows_at(text: Int[Tensor, " N"], starts: list[int], width: int) -> Int[Tensor, "B T"]:
    """Rows of the text and the character after each."""
    return text[torch.tensor(starts)[:, None] + torch.arange(width + 1)]


@cache
def bigrams() -> Float[Tensor, "V V"]:
    """The log probability of a character after another, counted (from one each) in the first nine tenths of the text."""
    text, size = characters()
    seen = text[: int(0.9 * len(text))]
    counts = 1 + torch.bincount(seen[:-1] * size + seen[1:], minlength=size * size).view(size, size)
    return (counts / counts.sum(-1, keepdim=True)).log()


@torch.no_grad()
def held_out(model: GPT, width: int, rows: int, seed: int) -> dict[str, float]:
    """Nats a character on rows drawn from the last tenth, which no training sees, others for every seed: of the model (`loss` on
    one half of them, `val` on the other) and of a table of bigrams (`bigram`), which a model that has learned anything beats."""
    text, draw = characters()[0], torch.Generator().manual_seed(987_654_321 + seed)
    first = int(0.9 * len(text))
    model.eval()
    found = {}
    for name in ("val", "loss"):
        some = rows_at(text, drawn(first, len(text) - width - 1, rows, draw), width)
        total, count = summed_loss_of(model, some)
        found[name] = float(total) / count
    return found | {"bigram": -float(bigrams()[some[:, :-1], some[:, 1:]].mean())}
