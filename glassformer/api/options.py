"""The keyword options of the verbs that write, spelled out: for completion in an editor, for `help()`, and for a notebook.

An editor reads the TypedDicts (`**options: Unpack[WritingOptions]`); `help()` and a notebook's Tab key read the signature,
in which `spelled_out` writes every option of its own.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypedDict, TypeVar

from glassformer.errors import ConfigError
from glassformer.tasks import TextConstraints


class DecodeOptions(TypedDict, total=False):
    """The settings of `[decode]` by their names; what is left out is as the recipe says. See `DecodeConfig`."""

    beam: int | None
    n_best: int
    length_rule: Literal["gnmt", "power", "power-no-eos"]
    alpha: float
    stop_rule: Literal["auto", "exact", "first-k", "best-now"]
    max_ratio: float
    max_extra: int
    min_ratio: float
    max_new_tokens: int | None
    min_new_tokens: int
    temperature: float
    top_k: int | None
    top_p: float | None
    min_p: float | None
    num_samples: int
    seed: int
    shortlist: bool | None
    repetition_penalty: float
    no_repeat_ngram: int
    allow_unknown: bool
    batch_size: int | None
    engine: str
    precision: str


class WritingOptions(DecodeOptions, total=False):
    """What an answer must and must not contain, and how it is searched for."""

    terms: Sequence[str]
    glossary: Mapping[str, str]
    prefix: str
    banned: Sequence[str]
    stops: Sequence[str]


CONSTRAINTS = ("terms", "glossary", "prefix", "banned", "stops")


class FromRecipe:
    """The default of an option, as a signature shows it."""

    def __repr__(self) -> str:
        return "<the recipe's>"


def split_options(options: Mapping[str, Any]) -> tuple[TextConstraints, dict[str, Any]]:
    """The constraints on the text, and the other options. One term, banned text or stop string may be given by itself."""

    def several(name: str) -> tuple[str, ...]:
        given = options.get(name) or ()
        return (given,) if isinstance(given, str) else tuple(given)

    glossary = options.get("glossary") or {}
    if not isinstance(glossary, Mapping):
        raise ConfigError("glossary is a dictionary of words and their terms, not {kind}", kind=type(glossary).__name__)
    constraints = TextConstraints(
        several("terms"), glossary, options.get("prefix", ""), several("banned"), several("stops")
    )
    return constraints, {name: value for name, value in options.items() if name not in CONSTRAINTS}


F = TypeVar("F", bound=Callable[..., Any])


def spelled_out(options: type) -> Callable[[F], F]:
    """A decorator: in the signature that `help()` and completion show, `**options` becomes its names."""

    def decorate(function: F) -> F:
        own = inspect.signature(function)
        kept = [p for p in own.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
        added = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=FromRecipe(), annotation=hint)
            for name, hint in typing.get_type_hints(options).items()
        ]
        function.__signature__ = own.replace(parameters=[*kept, *added])  # type: ignore[attr-defined]
        return function

    return decorate
