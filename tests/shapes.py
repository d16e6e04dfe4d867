"""Shapes and types are checked when a function that writes shapes in its signature is called; mypy has looked at the others.

jaxtyping's own import hook wraps every function of a module, those within functions anew at each call, and looks at each
argument twice, before the call and after it: a third of a small model's time. This does the same once, at a function's first
calls of a test, and after that at one call in 64: the thousands that follow in a training or a search are much like them."""

from __future__ import annotations

import functools
import inspect
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jaxtyping
from beartype import beartype

ROOT = Path(__file__).parents[1]
PACKAGES = (ROOT / "glassformer", ROOT / "lab" / "glassformer_lab")
FIRST, THEN_EVERY = 16, 64  # calls that are checked: the first in each test, and one of so many later ones
CALLS: Counter[Any] = Counter()
"""How often each function was called in this test."""
decorate = jaxtyping.jaxtyped


def modules_with_shapes() -> list[str]:
    """The modules that write shapes in their signatures."""
    files = [(p, package.parent) for package in PACKAGES for p in package.rglob("*.py")]
    found = [(p, home) for p, home in files if "jaxtyping" in p.read_text(encoding="utf-8")]
    return [".".join(p.relative_to(home).with_suffix("").parts) for p, home in found]


def writes_shapes(function: Any) -> bool:
    """Whether a name in the annotations is one of jaxtyping's, or stands for one (`Ids = Int[np.ndarray, "n"]`)."""
    words = re.findall(r"\w+", " ".join(map(str, function.__annotations__.values())))
    named = (function.__globals__.get(word) for word in words)
    return any(isinstance(one, type) and one.__module__.startswith("jaxtyping") for one in named)


def checked(function: Any) -> Any:
    """The function, its arguments and what it returns held to the shapes of one call; off while `jaxtyping_disable` is set."""
    if inspect.isclass(function):
        return decorate(function, typechecker=beartype)
    if not writes_shapes(function):
        return function
    strict = beartype(function)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        if jaxtyping.config.jaxtyping_disable:
            return function(*args, **kwargs)
        CALLS[function] += 1
        if CALLS[function] > FIRST and CALLS[function] % THEN_EVERY:
            return function(*args, **kwargs)
        with decorate("context"):
            return strict(*args, **kwargs)

    return call


def check_shapes() -> None:
    """From here on modules of the package are imported so."""

    def jaxtyped(*given: Any, typechecker: Callable[..., Any] | None = None) -> Any:
        return decorate(*given) if given else checked  # what the hook writes above a function has a checker alone

    jaxtyping.jaxtyped = jaxtyped
    jaxtyping.install_import_hook(modules_with_shapes(), "beartype.beartype")
