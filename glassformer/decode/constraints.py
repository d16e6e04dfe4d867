"""What a text must and must not contain: demands on one answer, and the choice of a beam that meets them.

A glossary term is met when one of its spellings (as ids) stands in the answer. The search for it is the grid of Post and
Vilar (2018, "Fast lexically constrained decoding with dynamic beam allocation"): at every step the candidates are those the
model likes best, the best continuation of each hypothesis, and every token that begins or continues an unmet term; they
are sorted into banks by how much of the terms they have met, and the beam is shared out among the banks, so that
hypotheses with more terms are not pushed out by likelier ones with fewer. What makes it certain that all terms appear is a
second rule: a candidate that no longer leaves room for the unmet terms before the length limit is not considered.

Nothing here is remembered from step to step: what is met is read off the tokens written, so an accidental occurrence
counts and overlapping terms need no special case.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from jaxtyping import Float
from torch import Tensor

from glassformer.errors import UserError

Spellings = tuple[tuple[int, ...], ...]
"""The ways to write one term, each as ids."""


@dataclass(frozen=True)
class Controls:
    """The ids that steer a model. `never` are those it must not write."""

    bos: int = 1
    eos: int | None = 2
    unknown: int | None = 3
    never: tuple[int, ...] = (0, 1, 4)


@dataclass(frozen=True)
class Demands:
    """What one answer must be like. Everything is in ids, but for the stop strings."""

    prefix: tuple[int, ...] = ()  # it begins so
    forced: Mapping[int, int] = field(default_factory=dict)  # place (from 0) to token
    banned: tuple[tuple[int, ...], ...] = ()  # sequences, of one token or several, that never occur
    terms: tuple[Spellings, ...] = ()  # each occurs, in one of its spellings
    stops: tuple[str, ...] = ()  # the text ends before the first of them

    def token_at(self, place: int) -> int | None:
        """The token that must stand there, if any."""
        if place < len(self.prefix):
            return self.prefix[place]
        return self.forced.get(place)

    def check(self, vocab_size: int, controls: Controls) -> None:
        for name, sequences in (
            ("prefix", [self.prefix]),
            ("forced", [tuple(self.forced.values())]),
            ("banned", self.banned),
            ("terms", [spelling for term in self.terms for spelling in term]),
        ):
            for sequence in sequences:
                for token in sequence:
                    if not 0 <= token < vocab_size:
                        raise UserError(f"{name}: token id {token} is not in the vocabulary of {vocab_size}")
        if any(not sequence for sequence in self.banned):
            raise UserError("banned: an empty sequence cannot be banned; leave it out")
        for term in self.terms:
            if not term or any(not spelling for spelling in term):
                raise UserError("terms: a glossary term without any token cannot appear; leave it out")
            for spelling in term:
                self.refuse_forbidden(spelling, controls, "a glossary term")
        for place, token in self.forced.items():
            if place < len(self.prefix) and self.prefix[place] != token:
                raise UserError(f"the prefix and the forced tokens ask for two different tokens at place {place}")
        self.refuse_forbidden(self.prefix, controls, "the prefix")
        if self.terms and (self.forced or self.stops):
            raise UserError(
                "glossary terms cannot be promised together with forced places or stop strings, which may cut one in two; "
                "ask for one of them"
            )
        if any(not stop for stop in self.stops):
            raise UserError("stops: an empty stop string would end every text at once; leave it out")

    def refuse_forbidden(self, sequence: tuple[int, ...], controls: Controls, name: str) -> None:
        if any(token in controls.never or token == controls.eos for token in sequence):
            raise UserError(f"{name} contains a control id, which stands for no text and cannot be asked for")
        for banned in self.banned:
            if any(sequence[i : i + len(banned)] == banned for i in range(len(sequence))):
                raise UserError(f"{name} is asked for and contains a sequence that is banned; drop one of the two")

    def room(self) -> int:
        """So many new tokens it takes at least, with EOS."""
        last_forced = max(self.forced, default=-1) + 1
        return max(last_forced, len(self.prefix)) + Terms(self.terms).missing(self.prefix) + 1


@dataclass(frozen=True)
class Terms:
    all: tuple[Spellings, ...]

    def unmet(self, written: Sequence[int]) -> list[Spellings]:
        written = tuple(written)
        return [term for term in self.all if not any(contains(written, spelling) for spelling in term)]

    def missing(self, written: Sequence[int]) -> int:
        """So many further tokens are enough to meet every term: one that has begun is finished, the others follow."""
        written = tuple(written)
        unmet = self.unmet(written)
        shortest = {term: min(len(spelling) for spelling in term) for term in unmet}
        saved = [shortest[term] - (len(spelling) - begun(written, spelling)) for term in unmet for spelling in term]
        return sum(shortest[term] for term in unmet) - max(saved, default=0)

    def next_tokens(self, written: Sequence[int]) -> list[int]:
        """Every token that begins or continues an unmet term."""
        written = tuple(written)
        tokens: dict[int, None] = {}
        for term in self.unmet(written):
            for spelling in term:
                tokens[spelling[0]] = None
                tokens[spelling[begun(written, spelling)]] = None
        return list(tokens)


def contains(written: tuple[int, ...], spelling: tuple[int, ...]) -> bool:
    return any(written[i : i + len(spelling)] == spelling for i in range(len(written) - len(spelling) + 1))


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
    slots: int,
    width: int,
    eos: int | None,
) -> list[tuple[float, int, int]]:
    """The `width` candidates of one sentence as (sum, hypothesis, token), shared out among the banks. `slots` tokens may
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
        missing = terms.missing(written[k] if token == eos else after)
        if token == eos and missing:
            continue
        if missing and missing + 1 > slots - 1 and missing >= terms.missing(written[k]):
            continue  # no room would be left
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
    found: dict[tuple[int, ...], None] = {}
    for text in (" " + term, term):
        ids = tuple(encode(text))
        if ids and unknown not in ids:
            found[ids] = None
    if not term.strip() or not found:
        raise UserError(f"the glossary term {term!r} cannot be written with this model's vocabulary; leave it out")
    return tuple(found)
