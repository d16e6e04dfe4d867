"""Shapes written in signatures are checked while tests run; in production they are only documentation.

Property tests try the same examples at every run of `make test`, so that it fails for everyone or for no one; `make soak`
looks for new ones."""

import os
import tempfile

import pytest
import torch
from hypothesis import settings
from jaxtyping import install_import_hook

settings.register_profile("same", derandomize=True, deadline=None)
settings.register_profile("new", deadline=None)
settings.load_profile("new" if os.environ.get("GLASSFORMER_SOAK") else "same")

os.environ["GLASSFORMER_LANG"] = "en"  # whatever the locale

# What a machine's trials find lies in the user's cache folder; tests have one of their own, theirs and their commands'.
if "GLASSFORMER_CACHE" not in os.environ:
    cache = tempfile.TemporaryDirectory(prefix="glassformer-tests-")
    os.environ["GLASSFORMER_CACHE"] = cache.name

hook = install_import_hook("glassformer", "beartype.beartype")
hook.__enter__()


# For `make check`: the same laws on a few of their cases, and none of the tests that train or run a command from end to end.
QUICK_CASES = 2
END_TO_END = {
    *(
        "test_api",
        "test_builtin",
        "test_cli_talk",
        "test_cli_train",
        "test_compare",
        "test_data_doctor",
        "test_download",
        "test_fp8",
    ),
    *("test_figures", "test_heads", "test_look", "test_phrases", "test_plan", "test_plots"),
    *("test_info", "test_isolation", "test_reproduce", "test_runs", "test_sources", "test_train"),
    *("test_ablate", "test_cli_lines", "test_documents", "test_fine_tune", "test_import_runs", "test_look_attribution"),
    *("test_score", "test_self_contained", "test_bpe_dropout"),
}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not torch.cuda.is_available():
        for item in items:
            if item.get_closest_marker("cuda") is not None:
                item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))
    if not os.environ.get("GLASSFORMER_QUICK"):
        return
    by_function: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.path.stem not in END_TO_END:
            by_function.setdefault(item.nodeid.split("[")[0], []).append(item)
    kept = {id(m) for cases in by_function.values() for m in cases[:: -(-len(cases) // QUICK_CASES)]}
    config.hook.pytest_deselected(items=[item for item in items if id(item) not in kept])
    items[:] = [item for item in items if id(item) in kept]
