"""What the tasks answer with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from glassformer.decode import BeamTrace, Ending, Hypothesis
from glassformer.text.tokenizers import Tokenizers


@dataclass(frozen=True)
class Label:
    """A label, or a word for a mask, and how likely it is."""

    label: str
    probability: float


@dataclass(frozen=True)
class Tagged:
    """A word of a sentence and its likeliest label."""

    word: str
    label: str
    probability: float


@dataclass(frozen=True)
class Filled:
    """A text with the likeliest word behind each mask, and for each mask its likeliest words."""

    text: str
    masks: list[list[Label]]


@dataclass(slots=True)  # not frozen, as Hypothesis is not: one is made for every answer
class DecodedPart:
    """What was decoded at once: a whole text, or a sentence of one that was too long."""

    source: Sequence[int]  # ids of the source (a GPT: of the prompt)
    hypothesis: Hypothesis
    tokenizers: Tokenizers = field(repr=False, compare=False)

    @property
    def source_tokens(self) -> list[str]:
        """The source's tokens, to be read."""
        return self.tokenizers.source.pieces(self.source)

    @property
    def tokens(self) -> list[str]:
        """The answer's tokens, to be read."""
        return self.tokenizers.target.pieces(self.hypothesis.ids)

    @property
    def links(self) -> list[tuple[int, int]]:
        """(source token, answer token): for each answer token the source token that was looked at most. One that looked
        at the end of the source, which is where a head looks that has nothing to look for, has no link."""
        links = []
        for target, weights in enumerate(self.hypothesis.alignment or []):
            source = max(range(len(weights)), key=weights.__getitem__)
            if source < len(weights) - 1:
                links.append((source, target))
        return links


@dataclass(slots=True, repr=False)
class Answer:
    """One answer to one text. Score and log-probability are sums over its parts."""

    text: str
    parts: list[DecodedPart]

    def __repr__(self) -> str:
        return f"Answer({self.text!r}, score={self.score:.3f})"

    @property
    def ids(self) -> list[int]:
        """The answer's tokens, without BOS and EOS."""
        return [token for part in self.parts for token in part.hypothesis.ids]

    @property
    def score(self) -> float:
        """What the search ranked it by."""
        return float(sum(part.hypothesis.score for part in self.parts))

    @property
    def logprob(self) -> float:
        """The model's own log-probability, in nats."""
        return float(sum(part.hypothesis.logprob for part in self.parts))

    @property
    def token_logprobs(self) -> list[float]:
        """One for each id, and after each part that of its EOS."""
        return [value for part in self.parts for value in part.hypothesis.token_logprobs]

    @property
    def ended(self) -> Ending:
        """By itself (`eos`), at a stop string (`stop`) or at the limit (`length`)."""
        endings = [part.hypothesis.ended for part in self.parts]
        return next((ending for ending in ("length", "stop") if ending in endings), "eos")

    @property
    def links(self) -> list[tuple[int, int]]:
        """(source token, answer token), both counted through all parts."""
        links, source, target = [], 0, 0
        for part in self.parts:
            links += [(source + s, target + t) for s, t in part.links]
            source, target = source + len(part.source), target + len(part.hypothesis.ids)
        return links

    @property
    def traces(self) -> list[BeamTrace]:
        """The story of the beam, part by part, where it was asked for."""
        return [part.hypothesis.trace for part in self.parts if part.hypothesis.trace is not None]
