"""The examples in the laboratory's docstrings, run."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import glassformer_lab


def test_the_examples_of_docstrings() -> None:
    """Caught: an example that names where a module was before."""
    tried = 0
    for module in pkgutil.walk_packages(glassformer_lab.__path__, "glassformer_lab."):
        found = doctest.testmod(importlib.import_module(module.name), optionflags=doctest.ELLIPSIS)
        assert found.failed == 0, module.name
        tried += found.attempted
    assert tried > 10
