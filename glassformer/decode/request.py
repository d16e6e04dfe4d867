"""What is asked of a model and what it answers: requests, constraints, hypotheses. Everything here is data.

    Request            the source or the prompt as ids, with what its answer must be like
    TokenConstraints   what an answer must and must not contain, in ids
    SpecialTokens      the ids that steer a model
    Hypothesis         one answer; several of them, best first, are the result of a request

Every engine takes the same requests and gives the same results; one that cannot do what a request asks says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from torch import nn

from glassformer.config import DecodeConfig
from glassformer.decode.streaming import Decode
from glassformer.errors import ConfigError, UserError

Spellings = tuple[tuple[int, ...], ...]
"""The ways to write one glossary term, each as ids."""
Ending = Literal["eos", "stop", "length"]
"""eos: it ended by itself.  stop: a stop string was written.  length: it was cut at the limit."""
Fate = Literal["kept", "ended", "dropped"]


@dataclass(frozen=True)
class SpecialTokens:
    """The ids that steer a model. `never` are those it must not write; `more_ends` end a text as EOS does (the chats of Llama 3
    and Qwen have two or three such)."""

    bos: int = 1
    eos: int | None = 2
    unknown: int | None = 3
    never: tuple[int, ...] = (0, 1, 4)
    more_ends: tuple[int, ...] = ()

    @property
    def ends(self) -> tuple[int, ...]:
        """Every id that ends a text, EOS first."""
        return self.more_ends if self.eos is None else (self.eos, *self.more_ends)

    def banned(self, allow_unknown: bool) -> tuple[int, ...]:
        """Every id that is never written."""
        unknown = () if allow_unknown or self.unknown is None else (self.unknown,)
        return tuple(dict.fromkeys((*self.never, *unknown)))


@dataclass(frozen=True)
class TokenConstraints:
    """The constraints on one answer. Everything is in ids, but for the stop strings."""

    prefix: tuple[int, ...] = ()  # it begins so
    unscored: int = 0  # tokens of the prefix that every answer begins with: they do not count in the search
    banned: tuple[tuple[int, ...], ...] = ()  # sequences, of one token or several, that never occur
    terms: tuple[Spellings, ...] = ()  # each occurs, in one of its spellings
    stops: tuple[str, ...] = ()  # the text ends before the first of them

    def __bool__(self) -> bool:
        return bool(self.prefix or self.banned or self.terms or self.stops)

    def token_at(self, place: int) -> int | None:
        """The token that must stand there, if any."""
        return self.prefix[place] if place < len(self.prefix) else None

    def check(self, vocab_size: int, special: SpecialTokens) -> None:
        """Refuse in a sentence what no answer could meet."""
        for name, sequences in (
            ("prefix", [self.prefix]),
            ("banned", self.banned),
            ("terms", [spelling for term in self.terms for spelling in term]),
        ):
            for sequence in sequences:
                for token in sequence:
                    if not 0 <= token < vocab_size:
                        raise UserError(
                            "{name}: token id {token} is not in the vocabulary of {vocab_size}", name, token, vocab_size
                        )
        if any(not sequence for sequence in self.banned):
            raise UserError("banned: an empty sequence cannot be banned; leave it out")
        for term in self.terms:
            if not term or any(not spelling for spelling in term):
                raise UserError("terms: a glossary term without any token cannot appear; leave it out")
            for spelling in term:
                self.refuse_forbidden(spelling, special, "a glossary term")
        self.refuse_forbidden(self.prefix, special, "the prefix")
        if self.terms and self.stops:
            raise UserError(
                "glossary terms cannot be promised together with stop strings, which may cut one in two; ask for one of them"
            )
        if any(not stop for stop in self.stops):
            raise UserError("stops: an empty stop string would end every text at once; leave it out")

    def refuse_forbidden(self, sequence: tuple[int, ...], special: SpecialTokens, name: str) -> None:
        """Refuse a sequence that is asked for and may not be written."""
        if any(token in special.never or token in special.ends for token in sequence):
            raise UserError("{name} contains a control id, which stands for no text and cannot be asked for", name)
        for banned in self.banned:
            if any(sequence[i : i + len(banned)] == banned for i in range(len(sequence))):
                raise UserError("{name} is asked for and contains a sequence that is banned; drop one of the two", name)


NO_CONSTRAINTS = TokenConstraints()


@dataclass(slots=True)  # not frozen: thousands are made while a device waits, and freezing triples what one costs
class Request:
    """One text to be answered. `ids` are the source of an encoder-decoder or the prompt of a GPT, as the model was trained
    to see them. `limits`: the fewest and most new tokens, and `seed`: of its draws, in place of what the settings say of
    all."""

    ids: Sequence[int]
    constraints: TokenConstraints = NO_CONSTRAINTS
    limits: tuple[int, int] | None = None
    seed: int | None = None


@dataclass(frozen=True)
class Candidate:
    """A token that a hypothesis of the beam might have gone on with."""

    parent: int  # the beam's slot, after the step before, that it continues
    token: int
    logprob: float  # of this token
    total: float  # what the search adds up, over the hypothesis so far
    score: float  # the same under the length rule
    fate: Fate
    slot: int | None = None  # kept: its place in the beam


@dataclass
class BeamTrace:
    """Step by step, the best candidates in order of their rank, and what became of each."""

    steps: list[list[Candidate]] = field(default_factory=list)


@dataclass(slots=True)
class Hypothesis:
    """One answer."""

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
        """Did it end by itself, and not at the limit?"""
        return self.ended != "length"


def ranked(hypotheses: list[Hypothesis]) -> list[Hypothesis]:
    """Best first; what was cut at the limit behind what ended; of equals, the one that was found first."""
    return sorted(hypotheses, key=lambda h: (not h.complete, -h.score))


def check_request(
    model: Any, request: Request, config: DecodeConfig, special: SpecialTokens, text: Decode | None = None
) -> None:
    """Refuse in a sentence what no text could be answered with."""
    constraints = request.constraints
    if constraints.terms and config.temperature > 0:
        raise ConfigError("glossary terms need a search; set decode.temperature to 0")
    if constraints.stops and text is None:
        raise ValueError("stop strings need `text`, the function that turns ids into text")
    constraints.check(model.config.vocab_size, special)


def check_ids(model: Any, index: int, ids: Sequence[int]) -> None:
    """Refuse in a sentence ids that the model does not know, and more of them than it has positions for."""
    c, has_source = model.config, model.config.family == "transformer"
    vocab_size = (c.source_vocab_size or c.vocab_size) if has_source else c.vocab_size
    if (min(ids) < 0 or max(ids) >= vocab_size) and isinstance(getattr(model, "decoder", None), nn.Module):
        wrong = next(i for i in ids if not 0 <= i < vocab_size)
        raise ValueError(
            f"token id {wrong} is not in the vocabulary, whose ids run from 0 to {vocab_size - 1}; "
            "was the text encoded with another tokenizer?"
        )
    if has_source and c.positions == "learned" and len(ids) > c.block_size:
        raise UserError(
            "source {index} has {n_ids} tokens, and this model has learned positions for {block_size}; "
            "split it into sentences",
            index + 1,
            len(ids),
            c.block_size,
        )
