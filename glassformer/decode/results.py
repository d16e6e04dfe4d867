"""What a search returns: hypotheses, and on request the whole story of the beam."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Ending = Literal["eos", "stop", "length"]
"""eos: it ended by itself.  stop: a stop string was written.  length: it was cut at the limit."""


@dataclass(frozen=True)
class Candidate:
    """A token that a hypothesis of the beam might have gone on with."""

    parent: int  # the beam's slot, after the step before, that it continues
    token: int
    logprob: float  # of this token
    total: float  # what the search adds up, over the hypothesis so far
    score: float  # the same under the length rule
    fate: Literal["kept", "ended", "dropped"]
    slot: int | None = None  # kept: its place in the beam


@dataclass
class BeamTrace:
    """Step by step, the best candidates in order of their rank, and what became of each."""

    steps: list[list[Candidate]] = field(default_factory=list)


@dataclass(slots=True)  # not frozen: thousands are made while a device waits, and freezing triples what one costs
class Hypothesis:
    ids: list[int]  # without BOS and EOS
    score: float  # what it was ranked by
    logprob: float  # the model's own, EOS included where it ended with one
    token_logprobs: list[float]  # one for each id, then EOS's: they add up to logprob
    ended: Ending
    text: str | None = None
    alignment: list[list[float]] | None = None  # for each id, how much each source token was looked at
    trace: BeamTrace | None = None

    @property
    def complete(self) -> bool:
        return self.ended != "length"


def ranked(hypotheses: list[Hypothesis]) -> list[Hypothesis]:
    """Best first; what was cut at the limit behind what ended; of equals, the one that was found first."""
    return sorted(hypotheses, key=lambda h: (not h.complete, -h.score))
