"""Names under which the course's GPT knows two settings of a model: `no_res` is residual=false, `no_pos` is positions=none.

They are understood wherever a setting is: in a recipe, behind a command, in Python. A recipe that says both things of one
matter is refused; what is said later (behind a command) takes the place of what a file says under either name.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from glassformer.config.fields import coerce, shortened
from glassformer.errors import ConfigError

OTHER_NAMES = {"no_res": "residual", "no_pos": "positions"}
"""Of settings of the model: the other name, and the setting's own."""

T = TypeVar("T")


def with_own_names(values: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a model, each under its own name; a ConfigError where the two names contradict each other.

    >>> with_own_names({"no_res": True, "no_pos": True, "n_layer": 4})
    {'n_layer': 4, 'residual': False, 'positions': 'none'}
    """
    found = {name: value for name, value in values.items() if name not in OTHER_NAMES}
    for other in (name for name in OTHER_NAMES if name in values):
        own = OTHER_NAMES[other]
        without = coerce(values[other], bool, f"model.{other}")
        if own not in found:
            if other == "no_res":
                found[own] = not without
            elif without:
                found[own] = "none"
            continue
        said = found[own] if own == "positions" else coerce(found[own], bool, f"model.{own}")
        if (said == "none" if own == "positions" else not said) != without:
            raise ConfigError(
                "model.{other}={without} and model.{own}={said} contradict each other; leave one of them out",
                other=other,
                without=str(without).lower(),
                own=own,
                said=shortened(said).strip(chr(39)).lower(),
            )
    return found


def put(section: dict[str, Any], name: str, value: Any) -> None:
    """Sets a setting of a model in place of what was said of the matter before, under whichever name. That there are
    positions (no_pos=false) does not say which: what was said before stays."""
    other = {**OTHER_NAMES, **{own: other for other, own in OTHER_NAMES.items()}}.get(name)
    if other is not None and not (name == "no_pos" and not coerce(value, bool, "model.no_pos")):
        section.pop(other, None)
    section[name] = value


def takes_other_names(kind: type[T]) -> type[T]:
    """A config that can be made with the other names, too: ModelConfig(no_res=True)."""
    own: Callable[..., None] = kind.__init__

    @functools.wraps(own)
    def called(self: Any, **values: Any) -> None:
        own(self, **(with_own_names(values) if OTHER_NAMES.keys() & values.keys() else values))

    kind.__init__ = called  # type: ignore[method-assign, assignment]
    return kind
