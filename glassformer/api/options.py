"""The keyword options of the verbs that write: the fields of `DecodeConfig` and of `TextConstraints`.

`help()` and a notebook's Tab key read the signature, in which `spelled_out` writes every option of its own.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, get_type_hints

from glassformer.config import DecodeConfig
from glassformer.errors import ConfigError
from glassformer.tasks import TextConstraints

F = TypeVar("F", bound=Callable[..., Any])
CONSTRAINTS = get_type_hints(TextConstraints)


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


def spelled_out(function: F) -> F:
    """A decorator: in the signature that `help()` and completion show, `**options` becomes the names of all options."""
    signature = inspect.signature(function)
    parameters = [p for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    parameters += [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=FromRecipe(), annotation=hint)
        for name, hint in (get_type_hints(DecodeConfig) | CONSTRAINTS).items()
    ]
    function.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return function
