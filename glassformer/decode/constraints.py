"""Glossary terms: the choice of a beam that meets them.

A glossary term is met when one of its spellings (as ids) stands in the answer. The search for it is the grid of Post and
Vilar (2018, "Fast lexically constrained decoding with dynamic beam allocation"): at every step the candidates are those the
model likes best, the best continuation of each hypothesis, and every token that begins or continues an unmet term; they
are sorted into banks by how much of the terms they have met, and the beam is shared out among the banks, so that
hypotheses with more terms are not pushed out by likelier ones with fewer. What makes it certain that all terms appear is a
second rule: a candidate that no longer leaves room for the unmet terms before the length limit is not considered.

How much room they need is counted as if the unmet terms stood one after the other, the one that has begun first: where terms
overlap it is less. Nothing is remembered from step to step: what is met is read off the tokens written, so an accidental
occurrence counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence

from jaxtyping import Float
from torch import Tensor

from glassformer.decode.request import Spellings, TokenConstraints
from glassformer.errors import UserError

Terms = Sequence[Spellings]
"""The glossary terms of a request."""
Tokens = tuple[int, ...]


def contains(written: Tokens, spelling: Tokens) -> bool:
    """Does this spelling stand somewhere in the text?"""
    width = len(spelling)
    return any(written[start : start + width] == spelling for start in range(len(written) - width + 1))


def begun(written: Tokens, spelling: Tokens) -> int:
    """How many of the spelling's first tokens the text ends with (fewer than all)."""
    for length in range(min(len(spelling) - 1, len(written)), 0, -1):
        if written[-length:] == spelling[:length]:
            return length
    return 0


def unmet_terms(terms: Terms, written: Tokens) -> list[Spellings]:
    """The terms that a text does not have yet."""
    return [term for term in terms if not any(contains(written, spelling) for spelling in term)]


def tokens_missing(terms: Terms, written: Tokens) -> int:
    """A number of further tokens that meets every term."""
    shortest = {term: min(map(len, term)) for term in unmet_terms(terms, written)}
    saved = [shortest[term] - len(way) + begun(written, way) for term in shortest for way in term]
    return sum(shortest.values()) - max(saved, default=0)


def next_tokens(terms: Terms, written: Tokens) -> set[int]:
    """Every token that begins or continues an unmet term."""
    ways = [spelling for term in unmet_terms(terms, written) for spelling in term]
    return {way[place] for way in ways for place in (0, begun(written, way))}


def tokens_given(constraints: TokenConstraints) -> int:
    """The number of new tokens in an answer whatever the terms overlap with: the prefix, or the longest term."""
    longest = max((min(map(len, term)) for term in constraints.terms if term), default=0)
    return max(longest, len(constraints.prefix))


def tokens_needed(constraints: TokenConstraints) -> int:
    """A number of new tokens that is enough for the prefix, the terms and EOS."""
    return len(constraints.prefix) + tokens_missing(constraints.terms, constraints.prefix) + 1


def choose_with_terms(
    terms: Terms,
    written: Sequence[Sequence[int]],
    totals: Sequence[float],
    allowed: Float[Tensor, "K V"],
    logprobs: Float[Tensor, "K V"],
    *,
    tokens_left: int,
    width: int,
    ends: Collection[int],
) -> list[tuple[float, int, int]]:
    """The `width` candidates of one sentence as (sum, hypothesis, token), shared out among the banks. `tokens_left` tokens may
    still be written, EOS included. A token of a term is considered even where another filter is against it."""
    banks: dict[int, list[tuple[float, int, int]]] = {}
    likely, tokens = (part.tolist() for part in allowed.topk(min(width, allowed.size(1))))
    for k, total in enumerate(totals):
        if total == -math.inf:
            continue
        text = tuple(written[k])
        candidates = {token: value for value, token in zip(likely[k], tokens[k]) if value > -math.inf}
        candidates |= {token: float(logprobs[k, token]) for token in next_tokens(terms, text)}
        missing_before = tokens_missing(terms, text)
        for token, value in candidates.items():
            missing = missing_before if token in ends else tokens_missing(terms, (*text, token))
            if token in ends and missing:
                continue
            if missing and missing + 1 > tokens_left - 1 and missing >= missing_before:
                continue  # no room would be left (or less than there was)
            banks.setdefault(missing, []).append((total + value, k, token))
    ordered = [sorted(banks[missing], reverse=True) for missing in sorted(banks)]
    chosen: list[tuple[float, int, int]] = []
    while len(chosen) < width and any(ordered):
        for bank in ordered:
            if bank and len(chosen) < width:
                chosen.append(bank.pop(0))
    return chosen


def spellings(encode: Callable[[str], list[int]], term: str, *, unknown: int | None = 3) -> Spellings:
    """A term as it is written at the start of a text and, after a space, inside it."""
    spelled: dict[tuple[int, ...], None] = {}
    for text in (" " + term, term):
        ids = tuple(encode(text))
        if ids and unknown not in ids:
            spelled[ids] = None
    if not term.strip() or not spelled:
        raise UserError("the glossary term {term!r} cannot be written with this model's vocabulary; leave it out", term)
    return tuple(spelled)
