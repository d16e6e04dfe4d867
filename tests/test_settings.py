"""Settings can be looked up: every field of a recipe has its comment, on the screen and in docs/settings.md."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from glassformer import machine
from glassformer.accel import tuning
from glassformer.cli.verbs import run_command
from glassformer.config import PARTS, PRESETS
from glassformer.config.documentation import comments, settings_of, settings_page
from glassformer.errors import ConfigError
from glassformer.language import in_language

ROOT = Path(__file__).parents[1]


@dataclasses.dataclass
class Sample:
    plain: int = 1  # behind it
    # above it,
    # in two lines
    above: str = "#"
    nothing: int = 2
    longer: str = "a"  # inside
    # not of the next one

    last: bool = True


def test_comments_are_those_of_their_field() -> None:
    """Caught: the comment of the line above taken for one's own, a `#` in a default."""
    assert comments(Sample) == {
        "plain": "behind it",
        "above": "above it, in two lines",
        "nothing": "",
        "longer": "inside",
        "last": "",
    }


@pytest.mark.parametrize("part", PARTS)
def test_every_setting_is_explained(part: str) -> None:
    assert [s.name for s in settings_of(part) if len(s.about) < 10] == []
    assert [s.name for s in settings_of(part) if in_language(s.about, "zh") == s.about] == [], "not told in Chinese"


def test_the_page_is_what_the_script_makes() -> None:
    """Caught: a setting that is new, or another default. Make it again with: python3 docs/make_settings.py"""
    assert (ROOT / "docs" / "settings.md").read_text(encoding="utf-8") == settings_page()
    assert (ROOT / "docs" / "settings.zh.md").read_text(encoding="utf-8") == settings_page("zh")


def test_settings_on_the_screen(capsys: pytest.CaptureFixture[str]) -> None:
    for part, kind in PARTS.items():
        run_command(["info", "--settings", part])
        text = capsys.readouterr().out
        assert all(field.name in text for field in dataclasses.fields(kind)) and f"[{part}]" in text
    run_command(["info", "--settings"])
    everything = capsys.readouterr().out
    assert all(f"[{part}]" in everything for part in PARTS)
    run_command(["info", "--settings", "train.schedule"])
    text = capsys.readouterr().out
    assert "cosine" in text and "warmup" not in text.split("schedule", 1)[0]
    run_command(["info", "--presets"])
    text = capsys.readouterr().out
    assert all(name in text for name in PRESETS)
    with pytest.raises(ConfigError, match="did you mean 'train'"):
        run_command(["info", "--settings", "trian"])
    with pytest.raises(ConfigError, match="did you mean 'steps'"):
        run_command(["info", "--settings", "train.step"])
    with pytest.raises(ConfigError, match="say what to look at"):
        run_command(["info"])


def test_the_machine_and_its_paths_are_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    run_command(["info", "--machine"])
    shown = capsys.readouterr().out
    for path in tuning.PATHS:
        assert path.name in shown
    assert machine.cpu_name() in shown
