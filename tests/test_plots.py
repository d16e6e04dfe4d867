"""Figures hold what they were given, and are saved as pictures that open."""

from __future__ import annotations

import logging
import warnings
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from glassformer import plots
from glassformer.plots import fonts

pytestmark = pytest.mark.slow

RECORDS = [
    {"step": 10, "loss": 3.0, "lr": 1e-3},
    {"step": 20, "loss": 2.0, "lr": 2e-3},
    {"step": 20, "val_loss": 2.5, "val_bleu": 10.0},
    {"step": 30, "loss": 0.1, "lr": 1e-3},
    {"step": 40, "val_loss": 1.5, "val_bleu": 20.0},
]


def lines_of(axis) -> dict[str, tuple[list[float], list[float]]]:
    return {line.get_label(): (list(line.get_xdata()), list(line.get_ydata())) for line in axis.get_lines()}


def check_pictures(paths: list[Path]) -> None:
    from matplotlib.image import imread

    assert [p.suffix for p in paths] == [".png", ".svg"]
    assert imread(paths[0]).std() > 0.01, "not one colour all over"
    root = ElementTree.parse(paths[1]).getroot()
    assert root.tag.endswith("svg") and len(list(root.iter())) > 50


@pytest.mark.parametrize("score", ["bleu", None])
def test_curves_show_the_records(tmp_path: Path, score: str | None) -> None:
    """Broken variant: validation losses drawn at the place of training losses, or lost."""
    fig = plots.curves(RECORDS, score, title="a run")
    loss, rate, *rest = fig.axes
    assert lines_of(loss) == {"training": ([10, 20, 30], [3.0, 2.0, 0.1]), "validation": ([20, 40], [2.5, 1.5])}
    assert lines_of(rate)["learning rate"] == ([10, 20, 30], [1e-3, 2e-3, 1e-3])
    assert len(rest) == (1 if score else 0)
    if score:
        assert lines_of(rest[0])["bleu"] == ([20, 40], [10.0, 20.0])
    assert loss.get_title() == "a run" and fig.axes[-1].get_xlabel() == "step"
    assert loss.get_yscale() == "log", "a loss that falls by more than a factor of 20"
    check_pictures(plots.save(fig, tmp_path / "curves"))


def test_curves_of_a_run_that_has_hardly_begun(tmp_path: Path) -> None:
    """Nothing logged, or one line, or a validation alone: a picture all the same."""
    for records in ([], RECORDS[:1], RECORDS[2:3]):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            plots.save(plots.curves(records, None), tmp_path / "few")


def test_what_cannot_be_seen_is_shown() -> None:
    assert [plots.visible(p) for p in (" the", "\n", "", "x")] == ["␣the", "⏎", "·", "x"]


def test_histogram(tmp_path: Path) -> None:
    fig = plots.histogram({"source": [1, 2, 2, 3], "target": [5]}, "lengths", "tokens")
    assert [t.get_text() for t in fig.axes[0].get_legend().get_texts()] == ["source", "target"]
    check_pictures(plots.save(fig, tmp_path / "lengths"))
    plots.histogram({"source": []}, "nothing", "tokens")


def test_a_character_is_drawn_by_whatever_font_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A letter that only a font has which matplotlib's list does not know (one installed since), and one that no font has but
    those that have a box for everything. Caught: boxes though the advised font is there; a box that passes for a letter."""
    from matplotlib import font_manager

    letter, nothing = "\ue00e", "\U0010f123"  # of STIX's private letters; of nobody's
    manager = font_manager.fontManager
    private = [entry for entry in manager.ttflist if entry.name == "STIXNonUnicode"]
    monkeypatch.setattr(manager, "ttflist", [entry for entry in manager.ttflist if entry.name != "STIXNonUnicode"])
    monkeypatch.setattr(font_manager, "findSystemFonts", lambda: [entry.fname for entry in private])
    monkeypatch.setattr(fonts, "FOUND", [])
    monkeypatch.setattr(fonts, "ASKED", set())
    fig, axis = plots.figure(2.0, 1.0)
    axis.set_title(f"a{letter}{nothing}")
    with plots.missing_glyphs() as missing:
        plots.save(fig, tmp_path / "letters")
    assert missing == {nothing} and fonts.FOUND == ["STIXNonUnicode"]
    fig, axis = plots.figure(2.0, 1.0)
    assert axis.title.get_fontfamily()[-1] == "STIXNonUnicode", "the next figure begins with it"
    axis.text(0.5, 0.5, letter)  # written by matplotlib's own family, and its letter has been asked for before
    with plots.missing_glyphs() as missing:
        plots.save(fig, tmp_path / "more")
    assert not missing


def test_a_missing_glyph_is_no_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    fig = plots.curves(RECORDS, None, title="दिन \U0001f600")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plots.save(fig, tmp_path / "glyphs")
    assert not [r for r in caplog.records if r.levelno >= logging.WARNING]


@pytest.mark.parametrize("width", [2.5, 4.8, 12.0])
def test_a_heading_stays_on_its_figure(width: float) -> None:
    """Caught: a title longer than a narrow picture, cut off on both sides."""
    fig, _ = plots.figure(width, 3.0)
    plots.heading(fig, "alignment: cross-attention, MEAN OF ALL LAYERS and heads (WWW)")
    fig.canvas.draw()
    box = fig._suptitle.get_window_extent()
    assert box.x0 >= 0 and box.x1 <= fig.bbox.width


def test_no_difference_has_a_sober_axis() -> None:
    """Two runs that say the same differ by exactly nothing. Caught: an axis of billionths around it."""
    fig = plots.differences({"bleu": (0.0, 0.0, 0.0)}, {"bleu": True}, ("a", "b"))
    low, high = fig.axes[0].get_xlim()
    assert low <= -0.5 and high >= 0.5


@pytest.mark.parametrize(
    "words",
    [
        "yesterday evening somebody helped the grandparents",
        "昨天晚上的时候 外祖父母们都在 火车站旁边的 图书馆里面的 了不起的法官",
    ],
)
def test_words_over_a_map_do_not_run_into_each_other(words: str) -> None:
    """Those that are wider than their columns lie on their side. Broken variant: the labels below turned, which nobody sees."""
    from glassformer.inspection.map_pictures import map_figure

    tokens = words.split()
    figure = map_figure(np.eye(len(tokens)), tokens, tokens, "a head", "weight", 1.0)
    figure.canvas.draw()
    boxes = [text.get_window_extent() for text in figure.axes[0].get_xticklabels()]
    assert len(boxes) == len(tokens)
    assert all(left.x1 <= right.x0 + 1 for left, right in pairwise(boxes))
