"""Shapes written in signatures are checked while tests run; in production they are only documentation.

Property tests try the same examples at every run of `make test`, so that it fails for everyone or for no one; `make soak`
looks for new ones."""

import gc
import os
import random
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
TESTS = Path(__file__).parent

check_shapes()


# For `make check`: the same laws on one case each, and none of the files (or folders) that train or run a command from end to
# end.
END_TO_END = {
    *("api/test_calls", "api/test_generate", "api/test_read", "api/test_translate", "data/test_builtin"),
    *("data/test_dates", "data/test_doctor", "data/test_download", "data/test_phrases"),
    *("data/test_preparation", "data/test_sources", "data/test_sources_refused", "evaluation/test_score"),
    *("formats/test_import_runs", "inspection", "inspection/test_compare", "inspection/test_heads"),
    *("lab/test_ablate", "lab/test_reproduce", "lab/test_reproduce_metrics", "runs/test_fine_tune"),
    *("runs/test_overview", "runs/test_runs", "test_bpe_dropout", "test_cli_lines", "test_cli_talk"),
    *("test_cli_train", "test_documents", "test_figures", "test_fp8", "test_info", "test_isolation"),
    *("test_plan", "test_plots", "test_recipes_start", "test_self_contained", "test_threads", "test_train"),
    *("test_train_step"),
}


@pytest.fixture
def as_in_production() -> Iterator[None]:
    """Without the types and shapes checked above, which would refuse a wrong word before the package can say its sentence."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


# Laws run thousands of tiny passes, and what is asked of a server or a page goes through models that the rooms below have held
# to their shapes.
CHECKED_BELOW = ("laws", "serve", "browser")


@pytest.fixture(autouse=True)
def _shapes_are_checked_elsewhere(request: pytest.FixtureRequest) -> None:
    if request.path.relative_to(TESTS).parts[0] in CHECKED_BELOW:
        request.getfixturevalue("as_in_production")


@pytest.fixture(autouse=True)
def _shapes_are_checked_from_the_first_call() -> None:
    """Of each function in each test, whatever was called before."""
    CALLS.clear()


@pytest.fixture(autouse=True)
def _the_same_numbers_in_any_order() -> None:
    """Which tests ran before, in this process, does not choose the random numbers of this one."""
    torch.default_generator.manual_seed(
        0
    )  # a hundredth of what `torch.manual_seed` takes, which asks for every kind of device
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(0)
    random.seed(0)


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """What `make check` would not run is not imported for it either."""
    if not QUICK or collection_path.suffix != ".py":
        return None
    slow = "\npytestmark = pytest.mark.slow\n" in collection_path.read_text(encoding="utf-8")
    where = collection_path.relative_to(TESTS)
    return True if slow or {where.with_suffix("").as_posix(), where.parent.as_posix()} & END_TO_END else None


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
