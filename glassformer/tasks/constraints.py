"""What an answer must and must not contain: as text, as a person says it, and as the tokens of a vocabulary."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from glassformer.config import DecodeConfig
from glassformer.decode import Request, TokenConstraints, check_request, spellings
from glassformer.errors import ConfigError, UserError
from glassformer.tasks.text_model import LONGEST_TEXT, TextModel
from glassformer.text.languages import is_unspaced
from glassformer.text.tokenizer import UNK


@dataclass(frozen=True)
class TextConstraints:
    """What answers must and must not contain, as text. The vocabulary decides how it is spelled, and a banned text is
    banned in the spelling it has at the start of a text and the one it has after a space."""

    terms: tuple[str, ...] = ()  # each appears in every answer
    glossary: Mapping[str, str] = field(default_factory=dict)  # where the source has the key, the answer has the value
    prefix: str = ""  # every answer begins so
    banned: tuple[str, ...] = ()
    stops: tuple[str, ...] = ()  # an answer ends before the first of them


def occurs(word: str, text: str) -> bool:
    """As a word of its own, in any case; in a script without spaces, anywhere."""
    if not word.strip():
        return False
    before = "" if is_unspaced(word[0]) or not word[0].isalnum() else r"(?<!\w)"
    after = "" if is_unspaced(word[-1]) or not word[-1].isalnum() else r"(?!\w)"
    return re.search(before + re.escape(word) + after, text, re.IGNORECASE) is not None


def wanted_terms(constraints: TextConstraints, text: str, *, first: bool) -> tuple[str, ...]:
    """The terms that must appear in the answer to one part of a text; those for every answer go into its first."""
    everywhere = constraints.terms if first else ()
    here = (term for word, term in constraints.glossary.items() if occurs(word, text))
    return tuple(dict.fromkeys((*everywhere, *here)))


def token_constraints(
    model: TextModel, constraints: TextConstraints, terms: Sequence[str], *, first: bool = True
) -> TokenConstraints:
    """What the answer to one part of a text must be like, in tokens. A prefix belongs to the first part."""
    tokenizer = model.tokenizers.target
    for text in (constraints.prefix, *constraints.banned, *terms):
        if len(text) > LONGEST_TEXT:
            raise UserError(
                "the prefix, or a text to have or to ban, has {n_text:,} characters, and at most {longest_text:,} are taken; "
                "shorten it",
                len(text),
                LONGEST_TEXT,
            )
    prefix = tuple(tokenizer.encode(constraints.prefix)) if first else tokenizer.before
    if UNK in prefix:
        raise UserError(
            "the prefix {prefix!r} cannot be written with this model's vocabulary", constraints.prefix[:200]
        )
    banned = dict.fromkeys(
        ids
        for banned in constraints.banned
        for ids in (tuple(tokenizer.encode_inside(banned)), tuple(tokenizer.encode_inside(" " + banned)))
        if ids and UNK not in ids
    )
    return TokenConstraints(
        prefix=prefix,
        unscored=len(tokenizer.before),
        banned=tuple(banned),
        terms=tuple(spellings(tokenizer.encode_inside, term, unknown=UNK) for term in terms),
        stops=constraints.stops,
    )


def check_constraints(model: TextModel, constraints: TextConstraints, config: DecodeConfig) -> None:
    """Refuse at once what no text could be answered with."""
    if constraints == TextConstraints():
        return
    for word in constraints.banned:
        if not word.strip():
            raise UserError("an empty text cannot be banned; leave it out")
    if constraints.glossary and (config.temperature > 0 or config.groups > 1 or constraints.stops):
        raise ConfigError(
            "a glossary is met by a plain beam search; it goes with no temperature, no groups and no stop strings"
        )
    asked = token_constraints(model, constraints, constraints.terms)
    decode = model.tokenizers.target.decode
    check_request(model._model, Request((), asked), config, model.special_tokens, decode)
