"""Shapes written in signatures are checked while tests run; in production they are only documentation.

Property tests try the same examples at every run of `make test`, so that it fails for everyone or for no one; `make soak`
looks for new ones."""

import gc
import os
import random
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import jaxtyping
import pytest
import torch
from hypothesis import settings

from tests.shapes import CALLS, check_shapes

settings.register_profile("same", derandomize=True, deadline=None)
settings.register_profile("new", deadline=None)
settings.load_profile("new" if os.environ.get("GLASSFORMER_SOAK") else "same")

os.environ["GLASSFORMER_LANG"] = "en"  # whatever the locale

# What a machine's trials find lies in the user's cache folder; tests have one of their own, theirs and their commands'.
if "GLASSFORMER_CACHE" not in os.environ:
    cache = tempfile.TemporaryDirectory(prefix="glassformer-tests-")
    os.environ["GLASSFORMER_CACHE"] = cache.name

QUICK = bool(os.environ.get("GLASSFORMER_QUICK"))  # set by `make check`
ROOT = Path(__file__).parent
SLOW = re.compile(r"^pytestmark = .*pytest\.mark\.slow\b", re.MULTILINE)

check_shapes()
jaxtyping.config.update("jaxtyping_disable", True)  # but where a module is chosen, below


# What holds models to their shapes: these rooms, and one look into each of the others. It is a fifth of a small training's time.
CHECKED = {"nn", "models", "laws", "test_rooms", "test_shapes"}


def set_checked(checked: bool) -> None:
    jaxtyping.config.update("jaxtyping_disable", not checked)


@pytest.fixture
def as_in_production() -> Iterator[None]:
    """Without the types and shapes checked above, which would refuse a wrong word before the package can say its sentence."""
    checked = not jaxtyping.config.jaxtyping_disable
    set_checked(False)
    yield
    set_checked(checked)


@pytest.fixture(autouse=True, scope="module")
def _shapes_are_checked_here(request: pytest.FixtureRequest) -> Iterator[None]:
    """In the modules chosen above, what their own fixtures train included; everywhere in `make soak`."""
    set_checked(bool(os.environ.get("GLASSFORMER_SOAK") or {request.path.parent.name, request.path.stem} & CHECKED))
    yield
    set_checked(False)


@pytest.fixture(autouse=True)
def _shapes_are_checked_from_the_first_call() -> None:
    """Of each function in each test, whatever was called before."""
    CALLS.clear()


@pytest.fixture(autouse=True)
def _the_same_numbers_in_any_order() -> None:
    """Which tests ran before, in this process, does not choose the random numbers of this one."""
    # A hundredth of what `torch.manual_seed` takes, which asks for every kind of device.
    torch.default_generator.manual_seed(0)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(0)
    random.seed(0)


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """What `make check` would not run is not imported for it either."""
    if not QUICK or collection_path.suffix != ".py" or collection_path.parent == ROOT:
        return None
    if collection_path.is_relative_to(ROOT / "lab"):
        return True
    return bool(SLOW.search(collection_path.read_text(encoding="utf-8"))) or None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not torch.cuda.is_available():
        for item in items:
            if item.get_closest_marker("cuda") is not None:
                item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))
    if QUICK:
        # The middle one: the first is often the plainest.
        by_function: dict[str, list[pytest.Item]] = {}
        for item in items:
            by_function.setdefault(item.nodeid.split("[")[0], []).append(item)
        kept = {id(cases[len(cases) // 2]) for cases in by_function.values()}
        config.hook.pytest_deselected(items=[item for item in items if id(item) not in kept])
        items[:] = [item for item in items if id(item) in kept]


def pytest_collection_finish() -> None:
    """What is imported by now stays; the search for cycles need not go through it again and again."""
    gc.collect()
    gc.freeze()
