"""How text is written: the recipe's `[decode]`, changed by options of the same names (`beam=8`, `temperature=0.7`).

An option that asks for a search puts aside what the recipe says of sampling, and the other way round; two options that
contradict each other are refused.

What an answer must and must not contain (`TextConstraints`) is text here, as a person says it, and becomes the tokens of a
vocabulary.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import Any

from glassformer.config import DecodeConfig
from glassformer.config.fields import coerce, type_hints
from glassformer.config.recipe import refuse_unknown
from glassformer.decode import Request, TokenConstraints, check_request, spellings
from glassformer.errors import ConfigError, UserError
from glassformer.tasks.text_model import LONGEST_TEXT, TextModel
from glassformer.text.languages import is_unspaced
from glassformer.text.tokenizer import UNK

NO_SEARCH: dict[str, Any] = {"beam": None, "n_best": 1}
NO_SAMPLING: dict[str, Any] = {"temperature": 0.0, "top_k": None, "top_p": None, "min_p": None, "num_samples": 1}
USUAL_TEMPERATURE = 0.8  # a GPT whose recipe and caller leave it open samples at this


def checked(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options by the names, and of the types, that DecodeConfig has."""
    hints = type_hints(DecodeConfig)
    refuse_unknown(options, list(hints), "decode")
    return {name: coerce(value, hints[name], f"decode.{name}") for name, value in options.items()}


def changed(config: DecodeConfig, options: Mapping[str, Any]) -> DecodeConfig:
    """The config with options on top. Searching and sampling exclude each other: what is asked for now wins."""
    values, options = asdict(config), checked(options)
    samples = (options.get("temperature") or 0) > 0
    searches = not samples and any(options.get(name) is not None for name in ("beam", "n_best", "temperature"))
    if samples:
        values |= NO_SEARCH
    if searches:
        values |= NO_SAMPLING
    if options.get("beam") is not None:
        values |= {name: default for name, default in NO_SEARCH.items() if name != "beam"}
    values |= options
    # More answers than the recipe's beam keeps: it is as wide as they are many, unless a width was asked for, too.
    kept = values["beam"] or DecodeConfig().beams
    if options.get("beam") is None and not samples and values["n_best"] > kept:
        values["beam"] = values["n_best"]
    return DecodeConfig(**values)


def decode_settings(model: TextModel, config: DecodeConfig | None = None, **options: Any) -> DecodeConfig:
    """How this model writes: `config`, or the recipe's, with options on top. A GPT of plain text that is told nothing
    samples; one that is told to search is greedy until a beam is asked for."""
    base, samples = model.recipe.decode if config is None else config, model.kind == "gpt" and config is None
    try:
        return settings_on_top(base, samples, **options)
    except TypeError:  # a value that cannot be remembered, such as a list: checked as any other
        return settings_on_top.__wrapped__(base, samples, **options)


@lru_cache(256, typed=True)  # a server asks for the same settings with every request, and they take long to check
def settings_on_top(base: DecodeConfig, samples: bool, /, **options: Any) -> DecodeConfig:
    """The settings with options on top; `samples`: it is a GPT's, which samples unless it is told to search."""
    options = checked(options)
    if samples and base.beam is None:
        asked = [name for name in ("beam", "n_best", "temperature") if options.get(name) is not None]
        if not asked and base.temperature == 0:
            options = {"temperature": USUAL_TEMPERATURE, **options}
        elif asked == ["temperature"] and options["temperature"] == 0:
            options = {"beam": 1, **options}
    return changed(base, options)


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
    if constraints.glossary and (config.temperature > 0 or constraints.stops):
        raise ConfigError("a glossary is met by a plain beam search; it goes with no temperature and no stop strings")
    asked = token_constraints(model, constraints, constraints.terms)
    decode = model.tokenizers.target.decode
    check_request(model._model, Request((), asked), config, model.special_tokens, decode)
