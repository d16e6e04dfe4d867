"""What the tasks answer with; and the alignment of an answer by words: links of tokens gathered into links of words, as Pharaoh
wrote them (0-0 1-2 …)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from glassformer.decode import BeamTrace, Ending, Hypothesis
from glassformer.text.languages import is_han
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


def words_of_pieces(pieces: Sequence[str]) -> list[int | None]:
    """For each piece of a text the number of the word that its first letter belongs to; None for one of blanks alone. Words
    stand between blanks; a Chinese character is one by itself.

    >>> words_of_pieces(["The", " ho", "use", " ", "sta", "nds"])
    [0, 1, 1, None, 2, 2]
    """
    found: list[int | None] = []
    word, inside = -1, False
    for piece in pieces:
        first = None
        for letter in piece:
            if letter.isspace():
                inside = False
                continue
            alone = is_han(letter)
            if not inside or alone:
                word += 1
            inside = not alone
            first = word if first is None else first
        found.append(first)
    return found


def word_links(answer: Answer, *, tokens_are_words: bool = False) -> list[tuple[int, int]]:
    """(source word, answer word), counted from 0 through all parts, each link once. `tokens_are_words`: for a tokenizer whose
    pieces are words and hold no blanks."""
    links: set[tuple[int, int]] = set()
    before_source = before_target = 0
    for part in answer.parts:
        numbered: list[list[int | None]] = [
            list(range(len(side))) if tokens_are_words else words_of_pieces(side)
            for side in (part.source_tokens, part.tokens)
        ]
        source, target = numbered
        for s, t in part.links:
            if s < len(source) and t < len(target) and source[s] is not None and target[t] is not None:
                links.add((before_source + int(source[s] or 0), before_target + int(target[t] or 0)))
        before_source += 1 + max((w for w in source if w is not None), default=-1)
        before_target += 1 + max((w for w in target if w is not None), default=-1)
    return sorted(links)
