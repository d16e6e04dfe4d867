"""From a TOML value, or the text after `key.sub=` on a command line, to the value that a setting's type asks for."""

from __future__ import annotations

import contextlib
import difflib
import math
import re
import tomllib
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, Literal

from glassformer.errors import ConfigError
from glassformer.language import _

HINTS: dict[Any, dict[str, Any]] = {}


def type_hints(kind: Any) -> dict[str, Any]:
    """The types of a class' fields by name. Reading them takes a millisecond, and settings are made for each request."""
    if kind not in HINTS:
        HINTS[kind] = typing.get_type_hints(kind)
    return HINTS[kind]


def did_you_mean(word: str, known: Sequence[str]) -> str:
    """ "; did you mean X?" where something known is spelt much like it, else nothing."""
    close = difflib.get_close_matches(word, [str(k) for k in known], n=1, cutoff=0.5)
    return _(" (did you mean {name!r}?)", name=close[0]) if close else ""


def listed(value: Any, name: str) -> Any:
    """A list that was written on a command line as TOML writes it; anything else as it is."""
    if not isinstance(value, str) or not value.lstrip().startswith("["):
        return value
    try:
        return tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(_("{name} is not a list as TOML writes it: {error}", name=name, error=error)) from None


def number(value: Any, name: str) -> float:
    """A finite number, or the text of one."""
    try:
        found = None if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        found = None
    if found is None or not math.isfinite(found):
        raise ConfigError(_("{name} must be a number, not {value}", name=name, value=shortened(value)))
    return found


def whole_number(value: Any, name: str) -> int:
    """A whole number of at most 64 bits, to its last digit (as a float, 9007199254740993 would lose one)."""
    found = value
    if isinstance(value, str):
        try:
            found = int(value)
        except ValueError:  # "1e5" is a whole number, too
            with contextlib.suppress(ValueError):
                found = float(value)
    if isinstance(found, float) and math.isfinite(found) and found == int(found):
        found = int(found)
    if isinstance(found, bool) or not isinstance(found, int):
        raise ConfigError(_("{name} must be a whole number, not {value}", name=name, value=shortened(value)))
    if not -(2**63) <= found < 2**63:
        raise ConfigError(
            _(
                "{name} must be a whole number of at most 64 bits; this one has {bit_length}",
                name=name,
                bit_length=found.bit_length(),
            )
        )
    return found


def shortened(value: Any) -> str:
    """As Python writes it; a number or a text of a thousand letters not whole."""
    if isinstance(value, int) and value.bit_length() > 400:
        return f"a number of {value.bit_length()} bits"
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:38]}...{text[-39:]}"


def table(value: Any, kind: Any, name: str) -> Any:
    """A table with the fields of a dataclass; its first field alone may be given by itself."""
    known = type_hints(kind)
    hints = {field.name: known[field.name] for field in fields(kind)}
    if isinstance(value, str):
        value = {next(iter(hints)): value}
    if isinstance(value, kind):
        return value
    if not isinstance(value, Mapping):
        raise ConfigError(
            _(
                "{name} must hold texts and tables such as {example}, not {value}",
                name=name,
                example=kind.example,
                value=shortened(value),
            )
        )
    for key in value:
        if key not in hints:
            raise ConfigError(
                _(
                    "there is no {key!r} in an entry of {name}{suggestion}",
                    key=key,
                    name=name,
                    suggestion=did_you_mean(str(key), list(hints)),
                )
            )
    if (first := next(iter(hints))) not in value:
        raise ConfigError(
            _(
                "an entry of {name} has no {first!r}; write it as {example}",
                name=name,
                first=first,
                example=kind.example,
            )
        )
    return kind(**{key: coerce(item, hints[key], f"{name}.{key}") for key, item in value.items() if item is not None})


def check_name(name: str, what: str) -> None:
    """A name is a name and never a path: what it names stays in the folder it belongs to."""
    if not name or len(name) > 100 or re.search(r"[/\\\x00-\x1f\x7f]", name) or name.strip(". ") == "":
        raise ConfigError(
            _(
                "{what} is a name of at most 100 characters, without slashes and control characters, and no path, "
                "not {name}",
                what=what,
                name=shortened(name),
            )
        )


def coerce(value: Any, hint: Any, name: str) -> Any:
    """A TOML value or the text of an override, as the type the field declares; anything else is a clear error."""
    options = typing.get_args(hint)
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        if value is None or (isinstance(value, str) and value.lower() in ("none", "null")):
            return None
        several = next((o for o in options if typing.get_origin(o) is tuple), None)
        if several is not None and str in options:  # one name, or a list of them
            value = listed(value, name)
            return coerce(value, str if isinstance(value, str) else several, name)
        return coerce(value, next(o for o in options if o is not type(None)), name)
    if typing.get_origin(hint) is Literal:
        if value not in options:
            raise ConfigError(
                _(
                    "{name} must be one of {options}, not {value}{suggestion}",
                    name=name,
                    options=", ".join(map(str, options)),
                    value=shortened(value),
                    suggestion=did_you_mean(shortened(value), options),
                )
            )
        return value
    if typing.get_origin(hint) is tuple:
        parts = [p for p in value.strip("[]() ").split(",") if p.strip()] if isinstance(value, str) else value
        if options[-1] is Ellipsis:
            if not isinstance(parts, list | tuple):
                raise ConfigError(_("{name} must be a list, not {value}", name=name, value=shortened(value)))
            return tuple(coerce(p.strip() if isinstance(p, str) else p, options[0], name) for p in parts)
        if not isinstance(parts, list | tuple) or len(parts) != len(options):
            raise ConfigError(
                _(
                    "{name} must be {n_options} numbers, not {value}",
                    name=name,
                    n_options=len(options),
                    value=shortened(value),
                )
            )
        return tuple(coerce(p, o, name) for p, o in zip(parts, options, strict=True))
    if hint is bool:
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and value.lower() in ("true", "false"):
            return value.lower() == "true"
        raise ConfigError(_("{name} must be true or false, not {value!r}", name=name, value=value))
    if hint is int:
        return whole_number(value, name)
    if hint is float:
        return number(value, name)
    if hint is str:
        if not isinstance(value, str):
            raise ConfigError(_("{name} must be text, not {value}", name=name, value=shortened(value)))
        if re.search("[\ud800-\udfff]", value):
            raise ConfigError(
                _(
                    "{name} must be UTF-8 text, not {value}; give the file a name that is",
                    name=name,
                    value=shortened(value),
                )
            )
        return value
    if is_dataclass(hint):
        return table(value, hint, name)
    raise TypeError(f"{name}: no rule for {hint}")


def check_at_most(config: Any, part: str, most: Mapping[str, int | float]) -> None:
    """What is far beyond anything that could be meant is refused before it is computed with."""
    for name, limit in most.items():
        value = getattr(config, name)
        if value is not None and value > limit:
            raise ConfigError(
                _(
                    "{part}.{name} must be at most {limit:,}, not {value}",
                    part=part,
                    name=name,
                    limit=limit,
                    value=shortened(value),
                )
            )


def check_choices(config: Any) -> None:
    """A config built in Python is held to the same words as one from a file."""
    for name, hint in type_hints(type(config)).items():
        if typing.get_origin(hint) is Literal:
            coerce(getattr(config, name), hint, name)
