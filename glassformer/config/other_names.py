"""Other names of settings. The course's GPT calls two otherwise: `no_res` is residual=false, `no_pos` is positions=none; and
earlier versions called batch_invariant `strict`.

They are understood wherever a setting is: in a recipe, in the files of a run, behind a command, in Python. A recipe that says
both things of one matter is refused; what is said later (behind a command) takes the place of what a file says under either name.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from glassformer.config.fields import coerce, shortened
from glassformer.errors import ConfigError

OTHER_NAMES = {"model": {"no_res": "residual", "no_pos": "positions"}, "decode": {"strict": "batch_invariant"}}
"""By the part of a recipe: a setting's other name, and its own."""

T = TypeVar("T")


def with_own_names(values: Mapping[str, Any], part: str) -> dict[str, Any]:
    """The settings of a part, each under its own name; a ConfigError where the two names contradict each other, or an earlier
    name stands beside today's.

    >>> with_own_names({"no_res": True, "no_pos": True, "n_layer": 4}, "model")
    {'n_layer': 4, 'residual': False, 'positions': 'none'}
    >>> with_own_names({"strict": True}, "decode")
    {'batch_invariant': True}
    """
    names = OTHER_NAMES.get(part, {})
    found = {name: value for name, value in values.items() if name not in names}
    for other in (name for name in names if name in values):
        own = names[other]
        told = coerce(values[other], bool, f"{part}.{other}")
        if own not in found:
            if other != "no_pos":
                found[own] = told if other == "strict" else not told
            elif told:
                found[own] = "none"
            continue
        if other == "strict":
            raise ConfigError(
                "{part}.{other} is the earlier name of {part}.{own}; leave one of them out", part, other, own
            )
        said = found[own] if own == "positions" else coerce(found[own], bool, f"model.{own}")
        if (said == "none" if own == "positions" else not said) != told:
            raise ConfigError(
                "model.{other}={without} and model.{own}={said} contradict each other; leave one of them out",
                other,
                str(told).lower(),
                own,
                shortened(said).strip(chr(39)).lower(),
            )
    return found


def put(section: dict[str, Any], part: str, name: str, value: Any) -> None:
    """Sets a setting of a part in place of what was said of the matter before, under whichever name. That there are
    positions (no_pos=false) does not say which: what was said before stays."""
    names = OTHER_NAMES.get(part, {})
    other = {**names, **{own: other for other, own in names.items()}}.get(name)
    if other is not None and not (name == "no_pos" and not coerce(value, bool, "model.no_pos")):
        section.pop(other, None)
    section[name] = value


def takes_other_names(part: str) -> Callable[[type[T]], type[T]]:
    """A decorator: a config that can be made with the other names, too, such as ModelConfig(no_res=True)."""

    def decorate(kind: type[T]) -> type[T]:
        own: Callable[..., None] = kind.__init__

        @functools.wraps(own)
        def called(self: Any, **values: Any) -> None:
            own(self, **(with_own_names(values, part) if OTHER_NAMES[part].keys() & values.keys() else values))

        kind.__init__ = called  # type: ignore[method-assign, assignment]
        return kind

    return decorate
