"""`glassformer figures` draws the figures of the documents, in a checkout of the source."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from glassformer import plots
from glassformer.errors import UserError
from glassformer_lab.cli import figures as verb
from tests.commands import call
from tests.test_figures import figures


@pytest.mark.slow
def test_the_verb_draws_every_figure_the_same_each_time(tmp_path: Path) -> None:
    """Broken variant: a date in the file, so that every build is a change."""
    done = call("figures", tmp_path / "a")
    assert done.returncode == 0, done.stderr
    both = {f"{name}{ending}" for name in figures.FIGURES for ending in ("", ".zh")}
    assert {p.stem for p in (tmp_path / "a").iterdir()} == both
    for path in (tmp_path / "a").iterdir():
        assert len(list(ElementTree.parse(path).getroot().iter())) > 50
        assert path.stat().st_size < 200_000
    for name in ("schedules", "alibi"):
        again = plots.save(figures.FIGURES[name](), tmp_path / name, kinds=("svg",))[0]
        assert again.read_bytes() == (tmp_path / "a" / again.name).read_bytes()
    (tmp_path / "file").write_text("")
    assert "cannot be written" in call("figures", tmp_path / "file" / "x").stderr


def test_without_a_checkout_the_verb_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As from a wheel, which has no docs. Broken variant: a traceback that names a file of ours."""
    monkeypatch.setattr(verb, "DOCS", tmp_path)
    with pytest.raises(UserError, match="in a checkout of the source"):
        verb.figures(tmp_path / "out")
    assert not (tmp_path / "out").exists()
