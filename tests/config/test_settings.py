"""Settings can be looked up: every field of a recipe has its comment, on the screen and in docs/settings.md."""

from __future__ import annotations

import dataclasses
import math
import typing
from pathlib import Path

import pytest

from docs.make_settings import settings_page
from glassformer import machine
from glassformer.cli.verbs import run_command
from glassformer.config import PARTS
from glassformer.config.fields import bounds_of, type_hints
from glassformer.config.recipe import settings_of
from glassformer.errors import ConfigError
from glassformer.language import in_language

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("part", PARTS)
def test_every_setting_is_explained(part: str) -> None:
    assert [s.name for s in settings_of(part) if len(s.about) < 10] == []
    assert [s.name for s in settings_of(part) if in_language(s.about, "zh") == s.about] == [], "not told in Chinese"


@pytest.mark.parametrize("part", PARTS)
def test_every_bound_is_held_and_told(part: str) -> None:
    """A number just inside each bound of a setting is taken, one beyond it is refused with the bound in the sentence. Caught: a
    bound that is written beside its setting and looked at by nobody."""
    seen = 0
    for field in dataclasses.fields(PARTS[part]):
        bounds, hint = bounds_of(field), type_hints(PARTS[part])[field.name]
        whole = int in (hint, *typing.get_args(hint))
        for bound, beyond in ((bounds.ge, -1), (bounds.le, 1), (bounds.gt, 0), (bounds.lt, 0)):
            if bound is None or math.isinf(bound):
                continue
            assert bounds.hold(bound) == (beyond != 0), field.name
            wrong = bound + beyond if whole else math.nextafter(bound, beyond * math.inf) if beyond else bound
            with pytest.raises(ConfigError, match=rf"^{part}\.{field.name} (must|cannot) ") as error:
                PARTS[part](**{field.name: wrong})
            assert any(f"{bound:{form}}" in str(error.value) for form in (",", "g")) or "negative" in str(error.value)
            seen += 1
    assert seen > 10


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
    with pytest.raises(ConfigError, match="did you mean 'train'"):
        run_command(["info", "--settings", "trian"])
    with pytest.raises(ConfigError, match="did you mean 'steps'"):
        run_command(["info", "--settings", "train.step"])
    with pytest.raises(ConfigError, match="say what to look at"):
        run_command(["info"])


def test_the_machine_and_its_trial_are_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    run_command(["info", "--machine"])
    shown = capsys.readouterr().out
    assert machine.cpu_name() in shown and "training: our attention" in shown
