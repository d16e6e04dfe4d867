"""Rows of tokens: the one shape in which text reaches a model.

A batch is a rectangle of tokens. Every token carries a *segment* (which sentence of the row it belongs to; 0 is padding)
and a *position* (0, 1, 2 … in that sentence). One sentence a row is ordinary padding; several sentences a row is packing.
Both are the same rectangle read by the same code, so there is one rule for who may attend to whom:

    a token sees the tokens of its own segment; a decoder also never sees a later position.

Padding is known from the lengths, never from a token id: a model whose text contains the padding id by accident is not
a broken model. Padding tokens may attend to anything. Nobody attends to them, so it changes nothing, and no softmax
ever runs over an empty set.

The `layout` is what the maker of the rows knows for certain. It lets attention take the kernel without a mask where the
mask would change nothing; it is a fact about the rows, never a request.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from glassformer.nn.modes import is_symbolic


def on_device(numbers: Any, device: torch.device) -> Int[Tensor, "..."]:
    """What the host knows, on the device. From pinned memory: from any other the host would wait for what is under way there."""
    made = torch.as_tensor(numbers)
    return (made.pin_memory() if device.type == "cuda" else made).to(device, non_blocking=True)


def most_of(numbers: Int[Tensor, "n"]) -> int:
    """The largest of some numbers of the host, none of them negative."""
    return int(numbers.max()) if numbers.numel() else 0


def move_slots(tensors: Sequence[Tensor], from_slots: Sequence[int], to_slots: Sequence[int]) -> None:
    """tensor[to_slots] = tensor[from_slots], for each tensor."""
    slots = on_device([from_slots, to_slots], tensors[0].device)
    for tensor in tensors:
        if tensor.numel():
            tensor.index_copy_(0, slots[1], tensor.index_select(0, slots[0]))


Layout = Literal["whole", "padded", "packed"]
"""whole: each row is one sentence and full.  padded: one sentence from column 0, then padding.  packed: anything."""


@dataclass(frozen=True)
class Rows:
    """Token ids (B, T), each with its segment (0: padding) and its position in that segment.

    Rows.from_lists([[5, 6, 7], [8, 9]])      # one sentence a row, padded
    Rows.pack([[[5, 6, 7], [8, 9]]], 8)       # both in one row of 8

    >>> Rows.from_lists([[5, 6, 7], [8, 9]]).real.tolist()
    [[True, True, True], [True, True, False]]
    """

    tokens: Int[Tensor, "B T"]
    segments: Int[Tensor, "B T"]
    positions: Int[Tensor, "B T"]
    layout: Layout = "packed"

    @staticmethod
    def whole(tokens: Int[Tensor, "B T"]) -> Rows:
        """Every row is one sentence, and all have the same length."""
        positions = torch.arange(tokens.size(1), device=tokens.device).expand_as(tokens)
        return Rows(tokens, torch.ones_like(tokens), positions, "whole")

    @staticmethod
    def padded(tokens: Int[Tensor, "B T"], lengths: Sequence[int]) -> Rows:
        """One sentence a row, starting at column 0; what lies beyond its length is padding, whatever it holds."""
        width = tokens.size(1)
        if len(lengths) != tokens.size(0):
            raise ValueError(f"{tokens.size(0)} rows came with {len(lengths)} lengths; each row needs one")
        if any(not 0 <= length <= width for length in lengths):
            raise ValueError(f"lengths must lie between 0 and the row width {width}, not {list(lengths)}")
        if all(length == width for length in lengths):
            return Rows.whole(tokens)
        positions = torch.arange(width, device=tokens.device).expand_as(tokens)
        ends = torch.tensor(list(lengths), device=tokens.device)
        return Rows(tokens, (positions < ends[:, None]).to(tokens.dtype), positions, "padded")

    @staticmethod
    def from_lists(sentences: Sequence[Sequence[int]], *, side: Literal["right", "left"] = "right") -> Rows:
        """One sentence a row, padded to the longest."""
        width = max((len(s) for s in sentences), default=0)
        lengths = [len(s) for s in sentences]
        if side == "right" or min(lengths, default=0) == width:
            tokens = torch.tensor([[*s, *[0] * (width - len(s))] for s in sentences], dtype=torch.long)
            return Rows.padded(tokens.view(len(sentences), width), lengths)
        tokens = torch.tensor([[*[0] * (width - len(s)), *s] for s in sentences], dtype=torch.long)
        columns = torch.arange(width).expand_as(tokens) - (width - torch.tensor(lengths))[:, None]
        return Rows(tokens, (columns >= 0).long(), columns.clamp(min=0), "packed")

    @staticmethod
    def pack(rows: Sequence[Sequence[Sequence[int]]], width: int) -> Rows:
        """Several sentences a row: `rows[b]` lists the sentences of row b; segments count 1, 2, 3 … within the row."""
        tokens = torch.zeros(len(rows), width, dtype=torch.long)
        segments, positions = torch.zeros_like(tokens), torch.zeros_like(tokens)
        for b, sentences in enumerate(rows):
            start = 0
            for number, sentence in enumerate(sentences, 1):
                end = start + len(sentence)
                if end > width:
                    raise ValueError(f"row {b} holds more than its {width} tokens")
                tokens[b, start:end] = torch.tensor(sentence, dtype=torch.long)
                segments[b, start:end] = number
                positions[b, start:end] = torch.arange(len(sentence))
                start = end
        return Rows(tokens, segments, positions, "packed")

    @property
    def real(self) -> Bool[Tensor, "B T"]:
        """True where a token is no padding."""
        return self.segments > 0

    @property
    def broadcast_positions(self) -> Int[Tensor, "P T"]:
        """The positions, (B, T), or one row of them, (1, T), where all rows have the same: what is looked up once need not be
        looked up (nor its gradient gathered) for every row."""
        return self.positions if self.layout == "packed" else self.positions[:1]

    @property
    def n_positions(self) -> int | None:
        """The largest position plus one, or more. Of packed rows it is looked up, or None where that is not possible: compiled,
        traced or captured, whoever made the rows answers for their positions."""
        if self.layout != "packed":
            return self.tokens.size(1)
        if is_symbolic() or (self.positions.is_cuda and torch.cuda.is_current_stream_capturing()):
            return None
        return int(self.positions.max()) + 1 if self.positions.numel() else 0

    @property
    def shape(self) -> torch.Size:
        """(B, T)"""
        return self.tokens.shape

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Rows:
        """The same rows on another device."""
        moved = [t.to(device, non_blocking=non_blocking) for t in (self.tokens, self.segments, self.positions)]
        return Rows(moved[0], moved[1], moved[2], self.layout)


Lengths = Sequence[int] | Tensor | None
"""How many tokens of each row are real; None: all of them."""


def as_rows(tokens: Rows | Int[Tensor, "B T"], lengths: Lengths = None) -> Rows:
    """Plain ids as rows: each row is one whole sentence, or its first `lengths[row]` tokens. Rows stay what they are.

    >>> import torch
    >>> as_rows(torch.tensor([[5, 6, 7]])).layout
    'whole'
    >>> as_rows(torch.tensor([[5, 6, 7], [8, 0, 0]]), lengths=[3, 1]).real.tolist()
    [[True, True, True], [True, False, False]]
    """
    if isinstance(tokens, Rows):
        if lengths is not None:
            raise ValueError("Rows know their lengths already; give `lengths` beside plain ids alone")
        return tokens
    if not isinstance(tokens, Tensor):
        raise TypeError(
            f"a model reads token ids, a LongTensor (B, T) or Rows, not {type(tokens).__name__}; "
            "what `glassformer.load(run)` gives reads texts"
        )
    if tokens.dim() != 2 or tokens.is_floating_point():
        raise ValueError(f"ids are whole numbers in rows, (B, T), not {tokens.dtype} of shape {tuple(tokens.shape)}")
    if lengths is None:
        return Rows.whole(tokens)
    if not isinstance(lengths, Tensor):
        return Rows.padded(tokens, lengths)
    columns = torch.arange(tokens.size(1), device=tokens.device).expand_as(tokens)
    return Rows(tokens, (columns < lengths.to(tokens.device)[:, None]).to(tokens.dtype), columns, "padded")


def next_token_labels(rows: Rows, ignore: int = -100) -> Int[Tensor, "B T"]:
    """The labels of a language model: at each position the token that follows in the same sentence, else `ignore`.

    >>> next_token_labels(Rows.from_lists([[5, 6, 7], [8, 9]])).tolist()
    [[6, 7, -100], [9, -100, -100]]
    """
    following, same = rows.tokens.roll(-1, 1), rows.segments.roll(-1, 1) == rows.segments
    last = torch.arange(rows.tokens.size(1), device=rows.tokens.device) == rows.tokens.size(1) - 1
    return following.masked_fill(~(same & rows.real) | last, ignore)
