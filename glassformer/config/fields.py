"""From a TOML value, or the text after `key.sub=` on a command line, to the value that a setting's type asks for."""

from __future__ import annotations

import difflib
import math
import types
import typing
from collections.abc import Sequence
from typing import Any, Literal

from glassformer.errors import ConfigError


def did_you_mean(word: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(word, [str(k) for k in known], n=1, cutoff=0.5)
    return f" (did you mean {close[0]!r}?)" if close else ""


def coerce(value: Any, hint: Any, name: str) -> Any:
    """A TOML value or the text of an override, as the type the field declares; anything else is a clear error."""
    options = typing.get_args(hint)
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        if value is None or (isinstance(value, str) and value.lower() in ("none", "null")):
            return None
        return coerce(value, next(o for o in options if o is not type(None)), name)
    if typing.get_origin(hint) is Literal:
        if value not in options:
            raise ConfigError(
                f"{name} must be one of {', '.join(map(str, options))}, not {value!r}{did_you_mean(str(value), options)}"
            )
        return value
    if typing.get_origin(hint) is tuple:
        parts = [p for p in value.strip("[]() ").split(",") if p.strip()] if isinstance(value, str) else value
        if options[-1] is Ellipsis:
            if not isinstance(parts, list | tuple):
                raise ConfigError(f"{name} must be a list, not {value!r}")
            return tuple(coerce(p.strip() if isinstance(p, str) else p, options[0], name) for p in parts)
        if not isinstance(parts, list | tuple) or len(parts) != len(options):
            raise ConfigError(f"{name} must be {len(options)} numbers, not {value!r}")
        return tuple(coerce(p, o, name) for p, o in zip(parts, options, strict=True))
    if hint is bool:
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and value.lower() in ("true", "false"):
            return value.lower() == "true"
        raise ConfigError(f"{name} must be true or false, not {value!r}")
    if hint in (int, float):
        try:
            number = float(value) if not isinstance(value, bool) else None
        except (TypeError, ValueError):
            number = None
        if number is None or not math.isfinite(number) or (hint is int and number != int(number)):
            raise ConfigError(f"{name} must be {'a whole number' if hint is int else 'a number'}, not {value!r}")
        return hint(number)
    if hint is str:
        if not isinstance(value, str):
            raise ConfigError(f"{name} must be text, not {value!r}")
        return value
    raise TypeError(f"{name}: no rule for {hint}")


def check_choices(config: Any) -> None:
    """A config built in Python is held to the same words as one from a file."""
    for name, hint in typing.get_type_hints(type(config)).items():
        if typing.get_origin(hint) is Literal:
            coerce(getattr(config, name), hint, name)
