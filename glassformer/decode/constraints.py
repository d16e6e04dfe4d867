"""Glossary terms: the choice of a beam that meets them.

A glossary term is met when one of its spellings (as ids) stands in the answer. The search for it is the grid of Post and
Vilar (2018, "Fast lexically constrained decoding with dynamic beam allocation"): at every step the candidates are those the
model likes best, the best continuation of each hypothesis, and every token that begins or continues an unmet term; they
are sorted into banks by how much of the terms they have met, and the beam is shared out among the banks, so that
hypotheses with more terms are not pushed out by likelier ones with fewer. What makes it certain that all terms appear is a
second rule: a candidate that no longer leaves room for the unmet terms before the length limit is not considered.

How much room they need is counted exactly, overlaps included. Nothing is remembered from step to step: what is met is read
off the tokens written, so an accidental occurrence counts.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Collection, Sequence
from functools import lru_cache

import numpy as np
from jaxtyping import Float
from torch import Tensor

from glassformer.decode.request import Spellings, TokenConstraints
from glassformer.errors import UserError

# With more terms, or more work to count (a second), a bound stands for the exact number of tokens that are missing.
EXACT_TERMS, EXACT_WORK = 12, 10**8


class Terms:
    """Glossary terms as an automaton (Aho and Corasick 1975): which have been met, and how many tokens are still needed."""

    @staticmethod
    @lru_cache(maxsize=256)
    def of(terms: tuple[Spellings, ...]) -> Terms:
        """Those of a request, made once."""
        return Terms(terms)

    def __init__(self, terms: tuple[Spellings, ...]) -> None:
        self.all = terms
        self.alphabet = sorted({token for term in terms for spelling in term for token in spelling})
        self.column = {token: i for i, token in enumerate(self.alphabet)}
        # A node is what a text ends with: the longest beginning of a spelling.
        children: list[dict[int, int]] = [{}]
        met = [0]  # the terms that are met on coming to a node, as bits
        for t, term in enumerate(terms):
            for spelling in term:
                node = 0
                for token in spelling:
                    if token not in children[node]:
                        children[node][token] = len(children)
                        children.append({})
                        met.append(0)
                    node = children[node][token]
                met[node] |= 1 << t
        # By length: where a spelling does not go on, the text goes on from the next longest beginning that it ends with.
        self.next = np.zeros((len(children), len(self.alphabet)), dtype=np.int64)
        shorter, queue = [0] * len(children), deque([0])
        while queue:
            node = queue.popleft()
            if node:
                self.next[node] = self.next[shorter[node]]
                met[node] |= met[shorter[node]]
            for token, child in children[node].items():
                shorter[child] = int(self.next[node, self.column[token]])
                self.next[node, self.column[token]] = child
                queue.append(child)
        self.met = met
        longest = max((len(spelling) for term in terms for spelling in term), default=0)
        exact = len(terms) <= EXACT_TERMS and self.next.size * longest << len(terms) <= EXACT_WORK
        self.distance = self.distances() if exact else None

    def distances(self) -> np.ndarray:
        """For every set of terms met and every node, the fewest tokens that meet the others. Terms may overlap."""
        everything = 1 << len(self.all)
        far = sum(len(spelling) for term in self.all for spelling in term) + 1
        distances = np.full((everything, len(self.met)), far)
        distances[-1] = 0
        gained = np.array(self.met, dtype=np.int64)[self.next]
        for mask in sorted(range(everything - 1), key=lambda mask: -mask.bit_count()):
            while True:
                better = np.minimum(distances[mask], 1 + distances[mask | gained, self.next].min(axis=1))
                if (better == distances[mask]).all():
                    break
                distances[mask] = better
        return distances

    def state(self, written: Sequence[int]) -> tuple[int, int]:
        """(terms met, as bits; node)"""
        mask, node = 0, 0
        for token in written:
            node = int(self.next[node, self.column[token]]) if token in self.column else 0
            mask |= self.met[node]
        return mask, node

    def unmet(self, written: Sequence[int]) -> list[Spellings]:
        """The terms that a text does not have yet."""
        mask, _ = self.state(written)
        return [term for t, term in enumerate(self.all) if not mask >> t & 1]

    def missing(self, written: Sequence[int]) -> int:
        """The number of further tokens that meet every term."""
        if self.distance is not None:
            return int(self.distance[self.state(written)])
        written, unmet = tuple(written), self.unmet(written)
        # Enough in any case: a term that has begun is finished, the others follow.
        shortest = {term: min(len(spelling) for spelling in term) for term in unmet}
        saved = [shortest[term] - (len(spelling) - begun(written, spelling)) for term in unmet for spelling in term]
        return sum(shortest.values()) - max(saved, default=0)

    def next_tokens(self, written: Sequence[int]) -> list[int]:
        """Every token that begins or continues an unmet term."""
        written = tuple(written)
        tokens: dict[int, None] = {}
        for term in self.unmet(written):
            for spelling in term:
                tokens[spelling[0]] = None
                tokens[spelling[begun(written, spelling)]] = None
        return list(tokens)


def tokens_given(constraints: TokenConstraints) -> int:
    """The number of new tokens in an answer whatever the terms overlap with: the prefix, or the longest term."""
    longest = max((min(map(len, term)) for term in constraints.terms if term), default=0)
    return max(longest, len(constraints.prefix))


def tokens_needed(constraints: TokenConstraints) -> int:
    """The fewest new tokens of an answer, with EOS."""
    return len(constraints.prefix) + Terms.of(constraints.terms).missing(constraints.prefix) + 1


def begun(written: tuple[int, ...], spelling: tuple[int, ...]) -> int:
    """How many of the spelling's first tokens the text ends with (fewer than all)."""
    for length in range(min(len(spelling) - 1, len(written)), 0, -1):
        if written[-length:] == spelling[:length]:
            return length
    return 0


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
    candidates: dict[tuple[int, int], float] = {}
    likely, tokens = (part.tolist() for part in allowed.topk(min(width, allowed.size(1))))
    for k, total in enumerate(totals):
        if total == -math.inf:
            continue
        for value, token in zip(likely[k], tokens[k]):
            if value > -math.inf:
                candidates[k, token] = total + value
        for token in terms.next_tokens(written[k]):
            candidates[k, token] = total + float(logprobs[k, token])
    banks: dict[int, list[tuple[float, int, int]]] = {}
    for (k, token), total in candidates.items():
        after = (*written[k], token)
        missing = terms.missing(written[k] if token in ends else after)
        if token in ends and missing:
            continue
        if missing and missing + 1 > tokens_left - 1 and missing >= terms.missing(written[k]):
            continue  # no room would be left (or less than there was)
        banks.setdefault(missing, []).append((total, k, token))
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
