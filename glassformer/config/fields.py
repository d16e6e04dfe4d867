"""What a setting is: a field of a config with its type, its default and its bounds (`setting`), explained in the docstring of its
class (`explanations`). From a TOML value, or the text after `key.sub=` on a command line, to the value that its type asks for
(`coerce`); a config held to its bounds and choices, wherever it comes from (`check`)."""

from __future__ import annotations

import contextlib
import difflib
import functools
import inspect
import math
import re
import tomllib
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields, is_dataclass
from typing import Any, Literal, TypeVar

from glassformer.errors import ConfigError
from glassformer.language import _

T = TypeVar("T")
NARROW = 10  # a range that ends no later is told whole; of a wider one, the bound that was passed


@dataclass(frozen=True)
class Bounds:
    """The range of a setting: at least `ge` or above `gt`, at most `le` or below `lt`. It is always finite."""

    ge: float | None = None
    gt: float = -math.inf
    le: float | None = None
    lt: float = math.inf

    def hold(self, value: Any) -> bool:
        """Whether a number is within them; what is no number, or not finite, never is."""
        try:
            above = value > self.gt if self.ge is None else value >= self.ge
            return bool(above and (value < self.lt if self.le is None else value <= self.le))
        except (TypeError, ValueError):
            return False


def setting(default: T, **bounds: float) -> T:
    """A number among the fields of a config: its default and its `Bounds`. An `le` far beyond what anybody means keeps what is
    computed with a setting from bringing the machine down.

    >>> @dataclass
    ... class Oven:
    ...     heat: int = setting(180, ge=50, le=300)
    >>> check(Oven(heat=400), "oven")
    Traceback (most recent call last):
    ...
    glassformer.errors.ConfigError: oven.heat must be at most 300, not 400
    """
    return field(default=default, metadata={"bounds": Bounds(**bounds)})


def bounds_of(own: Field[Any]) -> Bounds:
    """The bounds of a field; those of one that has none hold any number."""
    return own.metadata.get("bounds", Bounds())  # type: ignore[no-any-return]


@functools.cache
def explanations(config: type) -> dict[str, str]:
    """The explanations of a config's fields by name, from "Attributes:" in its docstring."""
    entries = inspect.cleandoc(config.__doc__ or "").partition("Attributes:\n")[2]
    found = re.findall(r"^    (\w+): (.*(?:\n     .*)*)", entries, re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in found}


@functools.cache
def type_hints(kind: Any) -> dict[str, Any]:
    """The types of a class' fields by name. Reading them takes a millisecond, and settings are made for each request."""
    return typing.get_type_hints(kind)


def did_you_mean(word: str, known: Sequence[str]) -> str:
    """ "; did you mean X?" where something known is spelt much like it, else nothing."""
    close = difflib.get_close_matches(word, [str(k) for k in known], n=1, cutoff=0.5)
    return _(" (did you mean {name!r}?)", close[0]) if close else ""


def not_among(name: Any, known: Iterable[str]) -> tuple[Any, str, str]:
    """For a sentence about a name that is none of those known: the name, what was probably meant, and all there are."""
    names = list(known)
    return name, did_you_mean(str(name), names), ", ".join(names)


def listed(value: Any, name: str) -> Any:
    """A list that was written on a command line as TOML writes it; anything else as it is."""
    if not isinstance(value, str) or not value.lstrip().startswith("["):
        return value
    try:
        return tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError as error:
        raise ConfigError("{name} is not a list as TOML writes it: {error}", name, error) from None


def number(value: Any, name: str) -> float:
    """A finite number, or the text of one."""
    try:
        found = None if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        found = None
    if found is None or not math.isfinite(found):
        raise ConfigError("{name} must be a number, not {value}", name, shortened(value))
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
        raise ConfigError("{name} must be a whole number, not {value}", name, shortened(value))
    if not -(2**63) <= found < 2**63:
        raise ConfigError(
            "{name} must be a whole number of at most 64 bits; this one has {bit_length}", name, found.bit_length()
        )
    return found


def shortened(value: Any) -> str:
    """The value as Python writes it, abbreviated where it is long."""
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
            "{name} must hold texts and tables such as {example}, not {value}", name, kind.example, shortened(value)
        )
    for key in value:
        if key not in hints:
            raise ConfigError(
                "there is no {key!r} in an entry of {name}{suggestion}", key, name, did_you_mean(str(key), list(hints))
            )
    if (first := next(iter(hints))) not in value:
        raise ConfigError("an entry of {name} has no {first!r}; write it as {example}", name, first, kind.example)
    return kind(**{key: coerce(item, hints[key], f"{name}.{key}") for key, item in value.items() if item is not None})


def check_name(name: str, what: str) -> None:
    """A name is a name and never a path: what it names stays in the folder it belongs to."""
    if not name or len(name) > 100 or re.search(r"[/\\\x00-\x1f\x7f]", name) or name.strip(". ") == "":
        raise ConfigError(
            "{what} is a name of at most 100 characters, without slashes and control characters, and no path, "
            "not {name}",
            what,
            shortened(name),
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
                "{name} must be one of {options}, not {value}{suggestion}",
                name,
                ", ".join(map(str, options)),
                shortened(value),
                did_you_mean(shortened(value), options),
            )
        return value
    if typing.get_origin(hint) is tuple:
        parts = [p.strip() for p in value.strip("[]() ").split(",") if p.strip()] if isinstance(value, str) else value
        if options[-1] is Ellipsis:
            if not isinstance(parts, list | tuple):
                raise ConfigError("{name} must be a list, not {value}", name, shortened(value))
            return tuple(coerce(p, options[0], name) for p in parts)
        if not isinstance(parts, list | tuple) or len(parts) != len(options):
            raise ConfigError("{name} must be {n_options} numbers, not {value}", name, len(options), shortened(value))
        return tuple(coerce(p, o, name) for p, o in zip(parts, options, strict=True))
    if hint is bool:
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and value.lower() in ("true", "false"):
            return value.lower() == "true"
        raise ConfigError("{name} must be true or false, not {value!r}", name, value)
    if hint is int:
        return whole_number(value, name)
    if hint is float:
        return number(value, name)
    if hint is str:
        if not isinstance(value, str):
            raise ConfigError("{name} must be text, not {value}", name, shortened(value))
        if re.search("[\ud800-\udfff]", value):
            raise ConfigError(
                "{name} must be UTF-8 text, not {value}; give the file a name that is", name, shortened(value)
            )
        return value
    if is_dataclass(hint):
        return table(value, hint, name)
    raise TypeError(f"{name}: no rule for {hint}")


@functools.cache
def choices_and_numbers(kind: Any) -> tuple[dict[str, tuple[Any, ...]], dict[str, tuple[Bounds, bool]]]:
    """The fields of a config that choose a word, with the words; and its numbers, with bounds and whether they may be None."""
    choices, numbers = {}, {}
    for own in fields(kind):
        hint = type_hints(kind)[own.name]
        options, origin = typing.get_args(hint), typing.get_origin(hint)
        if origin is Literal:
            choices[own.name] = options
        elif origin is not tuple and {int, float} & {hint, *options}:
            numbers[own.name] = bounds_of(own), type(None) in options
    return choices, numbers


def check(config: Any, part: str) -> None:
    """Holds a config, whether it comes from a file or was built in Python, to the choices and the bounds of its settings."""
    choices, numbers = choices_and_numbers(type(config))  # type: ignore[arg-type]
    for name, words in choices.items():
        if getattr(config, name) not in words:
            coerce(getattr(config, name), Literal[words], f"{part}.{name}")
    for name, (bounds, may_be_none) in numbers.items():
        value = getattr(config, name)
        if not (bounds.hold(value) or (value is None and may_be_none)):
            refuse_number(f"{part}.{name}", value, bounds)


def refuse_number(name: str, value: Any, bounds: Bounds) -> None:
    """Raises the error for a number that is out of its bounds."""
    low, high = bounds.gt if bounds.ge is None else bounds.ge, bounds.lt if bounds.le is None else bounds.le
    told: dict[str, Any] = {"name": name, "low": low, "high": high, "value": shortened(value)}
    if not Bounds().hold(value):
        said = _("{name} must be a number, not {value}", name, told["value"])
    elif high <= NARROW and (bounds.ge is None) == (bounds.le is None):
        said = _("{name} must lie between {low:g} and {high:g}, not {value}", **told)
    elif high <= NARROW and bounds.le is None:
        said = _("{name} must be at least {low:g} and below {high:g}, not {value}", **told)
    elif high <= NARROW:
        said = _("{name} must be above {low:g} and at most {high:g}, not {value}", **told)
    elif value > low:
        said = _("{name} must be at most {high:,}, not {value}", **told)
    elif bounds.ge is None:
        said = _("{name} must be above {low:g}, not {value}", **told)
    elif low == 0:
        said = _("{name} cannot be negative, and is {value}", **told)
    else:
        said = _("{name} must be at least {low:g}, not {value}", **told)
    raise ConfigError(said)
