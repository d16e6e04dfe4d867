"""The fence: no room of the house, and not the house itself, is above its ceiling (bench/ceilings.toml)."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.ceilings import (
    above,
    ceilings,
    code_lines,
    hanging,
    lines_of_rooms,
    measured,
    modules_by_string,
    package_circles,
)


def test_nothing_is_above_its_ceiling() -> None:
    """Take as much out elsewhere, in the same commit, and lower that ceiling."""
    assert above(measured(), ceilings()) == []


def test_what_was_taken_out_does_not_grow_back() -> None:
    """A ceiling is lowered by the commit that makes room below it; rooms may be as large as their sum allows, not larger."""
    limits = ceilings()
    assert hanging(measured(), limits) == []
    assert sum(limits["rooms"].values()) <= limits["house"]["lines"] + 40


def test_the_number_of_cases_has_a_ceiling_too(request: pytest.FixtureRequest) -> None:
    """Of whatever was collected for this run: of all tests, where all are run."""
    assert len(request.session.items) <= ceilings()["house"]["test_cases"]


def test_explanations_cost_nothing() -> None:
    head = '"""A module."""\n\n# why\n'
    function = 'def f(x: int) -> int:\n    """The noun.\n\n    More."""\n    return x  # here\n\n\n'
    text = head + function + "TABLE = [\n    1,\n]\n"
    assert code_lines(text) == 5
    assert code_lines("x = '''a\nb'''\n") == 2, "a text is no docstring"


def test_fifty_lines_more_are_seen(tmp_path: Path) -> None:
    """In a room, in a new room, beside the rooms; and a ceiling that hangs above what is left."""
    package = tmp_path / "glassformer"
    (package / "nn").mkdir(parents=True)
    (package / "nn" / "a.py").write_text("x = 1\n" * 50)
    limits = {"rooms": dict(lines_of_rooms(package))}
    assert limits == {"rooms": {"nn": 50}} and above(limits, limits) == [] == hanging(limits, limits)
    (package / "nn" / "b.py").write_text("y = 1\n" * 50)
    (package / "top.py").write_text("z = 1\n")
    assert len(above({"rooms": lines_of_rooms(package)}, limits)) == 2
    assert len(hanging({"rooms": {}}, limits)) == 1


def test_names_of_modules_and_ways_round_are_seen(tmp_path: Path) -> None:
    """A module named by a string, and one that imports its neighbour by way of their package. Not: an import, a text."""
    package = tmp_path / "glassformer"
    (package / "nn").mkdir(parents=True)
    (package / "nn" / "__init__.py").write_text("from glassformer.nn.a import f\n")
    (package / "nn" / "a.py").write_text("f = 'glassformer.nn.b'\ng = 'glassformer translate'\n")
    (package / "nn" / "b.py").write_text("from glassformer.nn import a\nfrom glassformer.nn.a import f\n")
    assert list(modules_by_string(package)) == ["nn/a.py:1"]
    assert list(package_circles(package)) == ["nn/b.py"]
