"""Pictures drawn on the spot: two shapes and a sentence that says what is where, or a digit."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

SIDE, PATCH = 32, 4
COLOURS = {"red": (0.9, 0.1, 0.1), "green": (0.1, 0.7, 0.2), "blue": (0.1, 0.2, 0.9)}
SHAPES = ("circle", "square", "triangle")
RELATIONS = ("left of", "above")
LABELS = [f"{colour} {shape}" for colour in COLOURS for shape in SHAPES]


@dataclass(frozen=True)
class Scene:
    """A picture, what the leftmost or uppermost thing in it is, and the caption."""

    picture: Float[Tensor, "3 H W"]
    label: int
    caption: str


def mask_of(shape: str, x: float, y: float, radius: float) -> Float[Tensor, "H W"]:
    """1 inside the shape, 0 outside."""
    rows, columns = torch.meshgrid(torch.arange(SIDE) + 0.5, torch.arange(SIDE) + 0.5, indexing="ij")
    dx, dy = columns - x, rows - y
    if shape == "circle":
        inside = dx.square() + dy.square() <= radius**2
    elif shape == "square":
        inside = (dx.abs() <= 0.85 * radius) & (dy.abs() <= 0.85 * radius)
    else:
        inside = (dy <= 0.8 * radius) & (dy >= 2 * dx.abs() - radius)
    return inside.float()


def scene(draw: torch.Generator) -> Scene:
    """A fresh picture of two different things, beside or above each other."""

    def pick(count: int) -> int:
        return int(torch.randint(count, (), generator=draw, device=draw.device))

    first, second = (int(i) for i in torch.randperm(len(LABELS), generator=draw)[:2])
    relation = RELATIONS[pick(2)]
    wobble = (torch.rand(6, generator=draw) - 0.5) * 4
    near, far = SIDE * 0.27, SIDE * 0.73
    middle = SIDE / 2
    places = [(near, middle), (far, middle)] if relation == "left of" else [(middle, near), (middle, far)]
    picture = torch.ones(3, SIDE, SIDE) - 0.1 * torch.rand(3, SIDE, SIDE, generator=draw)
    for i, (number, (x, y)) in enumerate(zip((first, second), places, strict=True)):
        colour, shape = LABELS[number].split()
        inside = mask_of(
            shape, x + float(wobble[3 * i]), y + float(wobble[3 * i + 1]), 5.0 + float(wobble[3 * i + 2]) / 3
        )
        picture = torch.where(inside.bool(), torch.tensor(COLOURS[colour])[:, None, None], picture)
    return Scene(picture, first, f"a {LABELS[first]} {relation} a {LABELS[second]}")


# Ten digits on a grid of five by three, row by row.
STROKES = (
    "####.##.##.####", "..#..#..#..#..#", "###..#####..###", "###..####..####", "#.##.####..#..#",
    "####..###..####", "####..####.####", "###..#..#..#..#", "####.#####.####", "####.####..####",
)  # fmt: skip


def digit(number: int, draw: torch.Generator) -> Float[Tensor, "3 H W"]:
    """A digit somewhere in the picture, in some size and colour, on a noisy ground."""
    strokes = torch.tensor([[mark == "#" for mark in STROKES[number][3 * row : 3 * row + 3]] for row in range(5)])
    size = 3 + int(torch.randint(3, (), generator=draw))
    inside = strokes.repeat_interleave(size, 0).repeat_interleave(size, 1)
    top = int(torch.randint(SIDE - inside.size(0) + 1, (), generator=draw))
    left = int(torch.randint(SIDE - inside.size(1) + 1, (), generator=draw))
    picture = torch.ones(3, SIDE, SIDE) - 0.3 * torch.rand(3, SIDE, SIDE, generator=draw)
    colour = 0.6 * torch.rand(3, 1, 1, generator=draw)
    place = picture[:, top : top + inside.size(0), left : left + inside.size(1)]
    place.copy_(torch.where(inside, colour, place))
    return picture


def patches(pictures: Float[Tensor, "B 3 H W"]) -> Float[Tensor, "B N P"]:
    """Pictures cut into squares, row by row: each a vector of its numbers (Dosovitskiy et al. 2021)."""
    cut = pictures.unfold(2, PATCH, PATCH).unfold(3, PATCH, PATCH)  # B 3 rows columns P P
    return cut.permute(0, 2, 3, 1, 4, 5).flatten(3).flatten(1, 2)


WORDS = ["<begin>", "<end>", "a", *COLOURS, *SHAPES, "left", "of", "above"]
NUMBER = {word: i for i, word in enumerate(WORDS)}
