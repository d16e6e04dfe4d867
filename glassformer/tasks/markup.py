"""Markup carried over by word alignment: each tag of a segment goes around the words that translate its words.

    s_t = (attention of answer token t to the tag's source tokens, as a share of that to all of them) - 1/2

The tag goes around the run of answer tokens with the largest sum of s (Kadane), widened to whole words; tags inside it stay
inside it and beside it beside it, so that the answer is as well-formed as the source. Attention is the mean of all
cross-attention heads, balanced between the two sides: on dates, where the right place is known, the mean points at the right
words more often than any single head (docs/log.md).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from glassformer.tasks.results import Answer
from glassformer.tasks.text_model import TextModel
from glassformer.tasks.translate import translate_each
from glassformer.text.languages import is_han
from glassformer.text.markup import Node, Segment, as_html

Span = tuple[int, int]
ROUNDS = 3  # of balancing; more change nothing


def token_spans(pieces: Sequence[str], text: str) -> list[Span]:
    """Where each token stands in its text. Tokens that are spelled otherwise there (bytes of a character, another case, a
    normalised form) share what lies between those that are found.

    >>> token_spans(["The", " ho", "use"], "The house")
    [(0, 3), (4, 6), (6, 9)]
    """
    folded = text.lower() if len(text.lower()) == len(text) else text
    found: list[Span | None] = []
    at = 0
    for piece in pieces:
        word = piece.strip()
        plain = word.lower() if folded is not text else word
        place = folded.find(plain, at, at + len(plain) + 32) if plain else -1
        found.append((place, place + len(plain)) if place >= 0 else None)
        at = place + len(plain) if place >= 0 else at
    spans: list[Span] = []
    for number, span in enumerate(found):
        if span is None:
            before = max((own[1] for own in found[:number] if own), default=0)
            after = next((own[0] for own in found[number + 1 :] if own), len(text))
            span = before, max(before, after)
        spans.append(span)
    return spans


def balanced(weights: Float[np.ndarray, "T S"]) -> Float[np.ndarray, "T S"]:
    """Attention as an alignment. A source token that more is looked at than one answer token can look is divided among those that
    do, in a few rounds (as Sinkhorn and Knopp 1967 balance a matrix): an adjective that agrees with its noun looks at both, and
    the noun has an answer token of its own. Rows add up to one, or are empty."""
    for number in range(1 + ROUNDS):
        weights = weights / np.maximum(weights.sum(0), 1) if number else weights
        total = weights.sum(1, keepdims=True)
        weights = np.divide(weights, total, out=np.zeros_like(weights), where=total > 1e-9)
    return weights


@dataclass(frozen=True)
class Aligned:
    """An answer beside its source: where tokens stand in both texts, and the share of each in each by balanced attention."""

    text: str
    source: list[Span]
    target: list[Span]
    weights: Float[np.ndarray, "T S"]

    @staticmethod
    def of(source: str, answer: Answer) -> Aligned:
        """From an answer with its alignment; its parts were decoded one by one, and look at their own source alone."""
        read = [part.source_tokens[:-1] for part in answer.parts]  # without EOS
        written = [part.tokens for part in answer.parts]
        weights = np.zeros((sum(map(len, written)), sum(map(len, read))))
        row = column = 0
        for part, ours, theirs in zip(answer.parts, read, written, strict=True):
            for t, own in enumerate((part.hypothesis.alignment or [])[: len(theirs)]):
                weights[row + t, column : column + len(ours)] = own[: len(ours)]
            row, column = row + len(theirs), column + len(ours)
        weights = balanced(weights)
        source_pieces, target_pieces = ([piece for own in side for piece in own] for side in (read, written))
        return Aligned(
            answer.text, token_spans(source_pieces, source), token_spans(target_pieces, answer.text), weights
        )

    def shares(self, start: int, end: int) -> Float[np.ndarray, "T"]:
        """The share of each answer token's attention that goes to source[start:end]."""
        inside = [a < end and start < b for a, b in self.source]
        return self.weights[:, inside].sum(1)

    def is_joined(self, at: int) -> bool:
        """Does a word go on across this place of the answer?"""
        if not 0 < at < len(self.text):
            return False
        left, right = self.text[at - 1], self.text[at]
        return left.isalnum() and right.isalnum() and not is_han(left) and not is_han(right)


def best_run(scores: Float[np.ndarray, "N"]) -> Span:
    """The run of numbers with the largest sum (Kadane), as first and one past the last; at least one."""
    best, where, total, first = -np.inf, (0, 1), 0.0, 0
    for number, score in enumerate(scores.tolist()):
        if total <= 0:
            total, first = 0.0, number
        total += score
        if total > best:
            best, where = total, (first, number + 1)
    return where


def trimmed(text: str, start: int, end: int) -> Span:
    """A stretch without the blanks and marks at its ends; all of it, where there is nothing else."""
    words = [at for at in range(start, end) if text[at].isalnum()]
    return (words[0], words[-1] + 1) if words else (start, end)


def overlapping(aligned: Aligned, spans: Sequence[Span]) -> Bool[np.ndarray, "T"]:
    """Whether each answer token overlaps one of these stretches of the answer."""
    starts, ends = np.array(aligned.target, dtype=np.int64).reshape(-1, 2).T
    covered = np.zeros(len(aligned.text) + 1, dtype=np.int64)
    for start, end in spans:
        covered[start + 1 : end + 1] = 1
    covered = covered.cumsum()
    return np.asarray(covered[ends] != covered[starts])


def free_runs(aligned: Aligned, within: Span, taken: Sequence[Span]) -> list[list[int]]:
    """The answer tokens in a stretch of the answer that nothing else has taken, in runs without a gap."""
    starts, ends = np.array(aligned.target, dtype=np.int64).reshape(-1, 2).T
    seen = np.flatnonzero(starts < ends)  # a token without letters of its own is no gap
    free = (starts >= within[0]) & (ends <= within[1]) & ~overlapping(aligned, taken)
    places = np.flatnonzero(free[seen])
    runs = np.split(seen[places], np.flatnonzero(np.diff(places) > 1) + 1)
    return [run.tolist() for run in runs if len(run)]


def kept_nodes(nodes: Iterable[Node]) -> Iterator[Node]:
    """The nodes that stay as they are in the source, those within tags included."""
    for node in nodes:
        if node.kept:
            yield node
        yield from kept_nodes(node.children)


def as_written(nodes: Sequence[Node], aligned: Aligned) -> list[tuple[Span, Node]]:
    """Where the answer has what is kept as the model read it: each in a place of its own, the longest first, a digit at its ends
    at the end of a number. Of several places the one that is no part of a word, then the one that looks at it most."""
    taken = bytearray(len(aligned.text))
    found: list[tuple[Span, Node]] = []
    for node in sorted(kept_nodes(nodes), key=lambda node: -len(node.kept)):
        before = r"(?<!\d)(?<!\d[.,:])" if node.kept[0].isdigit() else ""
        after = r"(?![.,:]?\d)" if node.kept[-1].isdigit() else ""
        places = (match.span() for match in re.finditer(before + re.escape(node.kept) + after, aligned.text))
        free = [(start, end) for start, end in places if not any(taken[start:end])]
        if not free:
            continue
        looks = np.zeros(len(aligned.text) + 1)  # up to each character
        for (start, end), share in zip(aligned.target, aligned.shares(node.start, node.end), strict=True):
            looks[start + 1 : end + 1] += share
        looks = looks.cumsum()
        start, end = max(
            free, key=lambda span: (not any(map(aligned.is_joined, span)), looks[span[1]] - looks[span[0]])
        )
        taken[start:end] = b"\1" * (end - start)
        found.append(((start, end), node))
    return sorted(found, key=lambda entry: entry[0])


def place(
    node: Node,
    aligned: Aligned,
    around: Span,
    within: Span,
    taken: Sequence[Span],
    kept: Sequence[tuple[Span, Node]] = (),
) -> Span:
    """Where a node goes in the answer. `around`: what its parent is around in the source; `within`: in the answer; `kept`: what
    stands in the answer as it was read, which no tag begins or ends in."""
    own = [span for span, inside in kept if node.start <= inside.start and inside.end <= node.end]
    others = [*taken, *(span for span, _ in kept if span not in own)]
    if node.start == node.end:
        return place_point(node.start, aligned, around, within, [*others, *own])
    if not (node.kept or taken) and node.start <= around[0] and node.end >= around[1]:
        return within
    runs = free_runs(aligned, within, others)
    if not runs:
        return place_point(node.start, aligned, around, within, [*others, *own])
    shares = aligned.shares(node.start, node.end) - 0.5
    shares[overlapping(aligned, own)] = len(shares)  # what stood in a tag stays in it
    best = max((own for run in runs for own in [run[slice(*best_run(shares[run]))]]), key=lambda own: shares[own].sum())
    start, end = aligned.target[best[0]][0], aligned.target[best[-1]][1]
    inside = [span for span in own if span[0] < end and start < span[1]]
    start, end = trimmed(aligned.text, start, end) if node.words else (start, end)
    start, end = min([start, *(a for a, _ in inside)]), max([end, *(b for _, b in inside)])
    edges = [edge for span in [*others, *own] for edge in span]
    while aligned.is_joined(start) and start > within[0] and start not in edges:
        start -= 1
    while aligned.is_joined(end) and end < within[1] and end not in edges:
        end += 1
    return start, end


def place_point(at: int, aligned: Aligned, around: Span, within: Span, taken: Sequence[Span]) -> Span:
    """Where a tag without words goes: before the word that translates the next one, at the ends of its parent at the ends."""
    following = [number for number, (a, b) in enumerate(aligned.source) if a >= at and a < around[1] and b > a]
    if at <= around[0]:
        place = within[0]
    elif at >= around[1] or not following:
        place = within[1]
    else:
        free = [token for run in free_runs(aligned, within, ()) for token in run]
        place = within[1]
        if free:
            place = aligned.target[max(free, key=lambda token: aligned.weights[token, following[0]])][0]
    while aligned.is_joined(place) and place > within[0]:
        place -= 1
    for start, end in taken:
        if start < place < end:
            place = start if place - start < end - place else end
    return place, place


def around_nothing(node: Node) -> str:
    """A node that is around no text, with those in it: a link around a picture."""
    return node.opening + "".join(map(around_nothing, node.children)) + node.closing


def render(
    nodes: Sequence[Node],
    aligned: Aligned,
    around: Span,
    within: Span,
    escape: Callable[[str], str],
    kept: Sequence[tuple[Span, Node]] | None = None,
) -> str:
    """The stretch `within` of the answer with these nodes in it. What the answer has as it was read stays there (`kept`); of the
    others larger ones choose their place first."""
    kept = as_written(nodes, aligned) if kept is None else kept
    standing = {id(node) for _, node in kept}
    placed: list[tuple[Span, int, Node]] = []
    for number, node in sorted(enumerate(nodes), key=lambda entry: (not entry[1].kept, entry[1].start - entry[1].end)):
        if id(node) not in standing:
            span = place(node, aligned, around, within, [own for own, *_ in placed if own[0] < own[1]], kept)
            placed.append((span, number, node))

    def words(at: int, stop: int) -> str:
        out = ""
        for (start, end), node in kept:
            if at <= start and end <= stop:
                out += escape(aligned.text[at:start]) + node.opening
                at = end
        return out + escape(aligned.text[at:stop])

    out, at = "", within[0]
    for (start, end), _number, node in sorted(placed, key=lambda entry: (entry[0], entry[1])):
        if node.kept or node.start == node.end:
            inside = "".join(map(around_nothing, node.children))
        else:
            inside = render(node.children, aligned, (node.start, node.end), (start, end), escape, kept)
        out += words(at, start) + node.opening + inside + node.closing
        at = end
    return out + words(at, within[1])


def carried_over(segment: Segment, answer: Answer, escape: Callable[[str], str]) -> str:
    """The answer to a segment's text with the segment's markup in it."""
    escape = as_html if segment.is_html else escape
    if not segment.nodes:
        return escape(answer.text)
    aligned = Aligned.of(segment.text, answer)
    return render(segment.nodes, aligned, (0, len(segment.text)), (0, len(answer.text)), escape)


def translate_segments(
    model: TextModel, parts: Iterable[str | Segment], escape: Callable[[str], str] = as_html, **options: Any
) -> list[str]:
    """Parts of a document: what stays as it was, and segments translated, each whole, with their markup carried over. `escape`
    makes text of the document's kind from a plain one."""
    parts = list(parts)
    texts = [part.text for part in parts if isinstance(part, Segment)]
    answers = iter(translate_each(model, texts, align=True, **options))
    return [carried_over(part, next(answers)[0], escape) if isinstance(part, Segment) else part for part in parts]
