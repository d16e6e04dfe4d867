"""What one example is made of: the tokens a model reads and the labels it is to find, for each task.

    pairs      source = ids EOS     row = BOS ids                  labels = ids EOS
    prompts    (decoder alone)      row = BOS source EOS target    labels = target EOS, from the place of that first EOS
    classify                        row = BOS ids                  label = the class, at BOS (a GPT: at the last token)
    tag                             row = BOS ids                  labels = a tag at the first piece of each word

A tagged sentence longer than a row is several rows, overlapping windows of it, with each tag in one of them.
With data.close_texts the rows of the last two end with EOS, as BERT's own do.

A label at a place is what the model should say *at* that place; -100 says nothing is learned there. Examples come in
bulk, end to end, because that is how they are laid into rows; where in a row they go is not known here.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from glassformer.data.tokens import TokenFile
from glassformer.errors import UserError
from glassformer.text.flat import ranges
from glassformer.text.tokenizer import BOS, EOS

IGNORE = -100

Flat = Int[np.ndarray, " m"]
Ids = Int[np.ndarray, " n"]


class Examples:
    """`source_lengths` and `row_lengths` count control tokens; source lengths are 0 where there is only one side."""

    has_source = False

    def __init__(self, row_lengths: Ids, source_lengths: Ids | None = None) -> None:
        self.row_lengths = row_lengths
        self.source_lengths = np.zeros_like(row_lengths) if source_lengths is None else source_lengths

    def numbers(self, ids: Ids) -> Ids:
        """The numbers of these examples in their file: their own, but where a long one is several."""
        return ids

    def sources(self, ids: Ids) -> Flat:
        """The source tokens of these examples, one after the other."""
        raise TypeError("these examples have one side only")

    def rows(self, ids: Ids) -> tuple[Flat, Flat]:
        """Tokens and labels, equally long."""
        raise NotImplementedError


class Window(NamedTuple):
    """A stretch of a text longer than a model reads at once: tokens `start` to `end` are read, `first` to `last` answered.

    Each token is learned, measured and answered in exactly one of the overlapping windows: the one in which it stands farthest
    from an edge. It sees at least a quarter of a window on either side there, unless the text begins or ends nearer."""

    start: int
    end: int
    first: int
    last: int


def windows(length: int, most: int) -> list[Window]:
    """A text of `length` tokens in windows of at most `most`, of which neighbours share about half, or more.

    >>> windows(5, 8)
    [Window(start=0, end=5, first=0, last=5)]
    >>> windows(12, 8)
    [Window(start=0, end=8, first=0, last=6), Window(start=4, end=12, first=6, last=12)]
    """
    if length <= most:
        return [Window(0, length, 0, length)]
    count = -(-(length - most) // max(1, most - most // 2)) + 1
    starts = [number * (length - most) // (count - 1) for number in range(count)]
    borders = [0, *((begin + end + most) // 2 for end, begin in itertools.pairwise(starts)), length]
    return [
        Window(start, start + most, first, last)
        for start, first, last in zip(starts, borders, borders[1:], strict=False)
    ]


def causal_windows(length: int, most: int) -> list[Window]:
    """The same for a model that reads from left to right: a token is answered in the first window that holds it, so that it
    sees at least half a window before it.

    >>> causal_windows(12, 8)
    [Window(start=0, end=8, first=0, last=8), Window(start=4, end=12, first=8, last=12)]
    """
    starts = range(0, max(1, length - most + max(1, most // 2)), max(1, most // 2))
    ends = [0, *(min(start + most, length) for start in starts)]
    return [Window(start, end, first, end) for start, first, end in zip(starts, ends, ends[1:], strict=False)]


class TokenWindows:
    """Stretches of the sequences of a token file, which may overlap, read as if each were a sequence."""

    def __init__(self, file: TokenFile, begins: Ids, lengths: Ids) -> None:
        self.file, self.begins, self.lengths = file, begins, lengths

    def take(self, ids: Ids) -> Flat:
        """The stretches with these numbers, end to end."""
        return self.file.tokens[ranges(self.begins[ids], self.lengths[ids])].astype(np.int64)


def starts_of(lengths: Ids) -> Ids:
    """Where each of several stretches begins when they stand one after the other."""
    return np.cumsum(lengths) - lengths


def around(file: TokenFile | TokenWindows, ids: Ids, first: int | None = BOS, last: int | None = EOS) -> Flat:
    """`first` (if any), the sequence, `last` (if any); for each id."""
    lengths = file.lengths[ids] + (first is not None) + (last is not None)
    out, inside = np.empty(int(lengths.sum()), np.int64), np.ones(int(lengths.sum()), bool)
    for token, places in ((first, starts_of(lengths)), (last, np.cumsum(lengths) - 1)):
        if token is not None:
            out[places], inside[places] = token, False
    out[inside] = file.take(ids)
    return out


def after(first: int, file: TokenFile | TokenWindows, ids: Ids) -> Flat:
    """`first`, then the sequence; for each id."""
    return around(file, ids, first, None)


def before(last: int, file: TokenFile, ids: Ids) -> Flat:
    """The sequence, then `last`; for each id."""
    return around(file, ids, None, last)


class Pairs(Examples):
    """Source and target for the encoder-decoder: the source closed by EOS, the target from BOS on, its labels one place on."""

    has_source = True

    def __init__(self, source: TokenFile, target: TokenFile) -> None:
        check_equal(len(source), len(target), "source", "target")
        self.source, self.target = source, target
        super().__init__(target.lengths + 1, source.lengths + 1)

    def sources(self, ids: Ids) -> Flat:
        """The tokens of these sources, each closed by EOS, one after the other."""
        return before(EOS, self.source, ids)

    def rows(self, ids: Ids) -> tuple[Flat, Flat]:
        """BOS target, and target EOS as labels."""
        return after(BOS, self.target, ids), before(EOS, self.target, ids)


class Prompts(Examples):
    """Pairs for a decoder alone: EOS closes the prompt, the loss is on the answer and the EOS that closes it."""

    def __init__(self, source: TokenFile, target: TokenFile) -> None:
        check_equal(len(source), len(target), "source", "target")
        self.source, self.target = source, target
        super().__init__(source.lengths + target.lengths + 2)

    def rows(self, ids: Ids) -> tuple[Flat, Flat]:
        """BOS source EOS target, with labels on the target alone."""
        prompt, answer = self.source.lengths[ids] + 1, self.target.lengths[ids] + 1
        # Pieces alternate: BOS source, EOS target, BOS source, …
        pieces = np.stack([prompt, answer], axis=1).reshape(-1)
        of_answer = np.repeat(np.arange(len(pieces)) % 2 == 1, pieces)
        tokens = np.empty(len(of_answer), np.int64)
        tokens[~of_answer] = after(BOS, self.source, ids)
        tokens[of_answer] = after(EOS, self.target, ids)
        labels = np.full(len(tokens), IGNORE, np.int64)
        labels[of_answer] = before(EOS, self.target, ids)
        return tokens, labels


def paired(family: str, files: Mapping[str, TokenFile]) -> Pairs | Prompts:
    """Pairs as a family of models learns them: as source and target, or (a decoder alone) as prompt and answer."""
    return (Pairs if family == "transformer" else Prompts)(files["source"], files["target"])


class Classify(Examples):
    """A text and its class, which is the label of the first place (or of the last, `at_the_end`); the others have none."""

    def __init__(
        self, text: TokenFile, classes: Int[np.ndarray, " n"], *, at_the_end: bool = False, closed: bool = False
    ) -> None:
        check_equal(len(text), len(classes), "text", "labels")
        self.text, self.classes, self.at_the_end, self.closed = text, classes, at_the_end, closed
        super().__init__(text.lengths + 1 + closed)

    def rows(self, ids: Ids) -> tuple[Flat, Flat]:
        """BOS text (EOS), with the class as the label of BOS (for a GPT: of the last token)."""
        tokens = around(self.text, ids) if self.closed else after(BOS, self.text, ids)
        labels = np.full(len(tokens), IGNORE, np.int64)
        lengths = self.row_lengths[ids]
        labels[starts_of(lengths) + (lengths - 1 if self.at_the_end else 0)] = self.classes[ids]
        return tokens, labels


class Tag(Examples):
    """`tags` has a number for each token of the text: the tag at a word's first piece, IGNORE at its other pieces. A text of
    more than `limit` tokens, control tokens included, is read in windows, each tag being the label of one of them."""

    def __init__(self, text: TokenFile, tags: TokenFile, *, closed: bool = False, limit: int | None = None) -> None:
        check_equal(len(text), len(tags), "text", "labels")
        wrong = np.flatnonzero(text.lengths != tags.lengths)
        if len(wrong):
            raise UserError(
                "example {number} has {n_tokens} tokens and {n_tags} tags; "
                "each token needs one (-100 where there is none)",
                wrong[0],
                text.lengths[wrong[0]],
                tags.lengths[wrong[0]],
            )
        most = None if limit is None else max(1, limit - 1 - closed)
        whole = np.arange(len(text)) if most is None else np.flatnonzero(text.lengths <= most)
        zeros, lengths = np.zeros_like(whole), text.lengths[whole]
        uncut = np.stack([whole, zeros, lengths, zeros, lengths], axis=1)
        long = np.setdiff1d(np.arange(len(text)), whole).tolist()
        cut = [(number, *window) for number in long for window in windows(int(text.lengths[number]), most or 1)]
        pieces = np.concatenate([uncut, np.array(cut, np.int64).reshape(-1, 5)])
        number, start, end, first, last = pieces[np.lexsort((pieces[:, 1], pieces[:, 0]))].T
        self.number, self.first, self.last = number, first - start, last - start  # answered: within the window
        begins = text.offsets[number] + start
        self.text, self.tags = TokenWindows(text, begins, end - start), TokenWindows(tags, begins, end - start)
        self.closed = closed
        super().__init__(self.text.lengths + 1 + closed)

    def numbers(self, ids: Ids) -> Ids:
        """The number of the sentence that each window is of."""
        return self.number[ids]

    def rows(self, ids: Ids) -> tuple[Flat, Flat]:
        """BOS text (EOS), with a label a token that is answered."""
        tokens, tags = around(self.text, ids, BOS, EOS if self.closed else None), self.tags.take(ids)
        lengths = self.text.lengths[ids]
        place = np.arange(len(tags)) - np.repeat(starts_of(lengths), lengths)
        answered = (place >= np.repeat(self.first[ids], lengths)) & (place < np.repeat(self.last[ids], lengths))
        labels = np.full(len(tokens), IGNORE, np.int64)
        ends = np.cumsum(lengths + 1 + self.closed)
        labels[ranges(ends - lengths - self.closed, lengths)] = np.where(answered, tags, IGNORE)
        return tokens, labels


def check_equal(first: int, second: int, first_name: str, second_name: str) -> None:
    """Refuses two files that should have as many examples as each other."""
    if first != second:
        raise UserError(
            "{first_name} has {first} examples and {second_name} has {second}; they must be as many, line for line",
            first_name,
            first,
            second_name,
            second,
        )
