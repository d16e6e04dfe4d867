"""`glassformer look`: a page and pictures, or one sentence that says what to put right."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

import glassformer
from glassformer.errors import UserError
from glassformer.files.owned import LIST
from glassformer.inspection.inspection import Inspection, look_inside
from glassformer.inspection.pictures import save_pictures
from tests.commands import call
from tests.inspection.families import FAMILIES, TEXT, page_of, with_checkpoints
from tests.talking import make_run

pytestmark = pytest.mark.slow


def check_pictures(folder: Path, names: set[str]) -> None:
    from matplotlib.image import imread

    assert {p.stem for p in folder.glob("*.png")} == {p.stem for p in folder.glob("*.svg")} == names
    for name in names:
        assert imread(folder / f"{name}.png").std() > 0.01, name
        assert ElementTree.parse(folder / f"{name}.svg").getroot().tag.endswith("svg")


EVERYWHERE = {"maps", "map", "tokens", "lens", "rollout"}
PICTURES = {
    "transformer": EVERYWHERE | {"alignment", "beam"},
    "gpt": EVERYWHERE | {"beam"},
    "classify": EVERYWHERE,
}


@pytest.mark.parametrize("name", ["gpt", "classify"])
def test_pictures_of_every_view(insides: dict[str, Inspection], tmp_path: Path, name: str) -> None:
    """An untrained model says anything, control characters too. Caught: an SVG that is not XML."""
    save_pictures(insides[name], tmp_path)
    check_pictures(tmp_path, PICTURES[name])


def test_the_command_writes_a_page_and_pictures(tmp_path: Path) -> None:
    path = make_run(tmp_path / "run", **FAMILIES["transformer"])
    with_checkpoints(path, [5, 10])
    done = call("look", path, TEXT, "--across", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "look.html" in done.stdout
    data = page_of((path / "look" / "look.html").read_text(encoding="utf-8"))
    assert data["text"] == TEXT and len(data["across"]) == 2
    check_pictures(path / "look", PICTURES["transformer"])


def test_the_command_without_pictures(runs: dict[str, Path], tmp_path: Path) -> None:
    done = call("look", runs["gpt"], TEXT, "--out", tmp_path / "out", "--no-pictures", "--new", 2, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert [p.name for p in (tmp_path / "out").iterdir() if p.name != LIST] == ["look.html"]


LONG = "the cat sat on the mat. " * 20
BAD: list[tuple[str, list[str], str]] = [
    ("transformer", [""], "is empty"),
    ("transformer", ["   "], "is empty"),
    ("transformer", ["the \u2603"], "U+2603"),
    ("transformer", [LONG], "reads 47 at once"),
    ("transformer", [TEXT, "--target", ""], "the target is empty"),
    ("transformer", [TEXT, "--target", LONG], "the target has"),
    ("transformer", [TEXT, "--beam", "0"], "beam must be at least 1"),
    ("transformer", [TEXT, "--across"], "keeps 1 checkpoint"),
    ("transformer", ["a\0b"], "NUL"),
    ("gpt", [TEXT, "--target", "x"], "goes on with a text"),
    ("gpt", [LONG * 3], "at once; shorten it"),
    ("gpt on pairs", [TEXT, "--target", LONG], "together"),
    ("mlm", [TEXT, "--target", "x"], "fills in masks"),
    ("mlm", [" "], "is empty"),
    ("mlm", [TEXT, "--beam", "3"], "searches nothing"),
    ("classify", [TEXT, "--target", "fr"], "classifies texts"),
    ("tag", [LONG], "at once; shorten it"),
    ("tag", ["the \u2603"], "U+2603"),
]


@pytest.mark.parametrize(("name", "arguments", "sentence"), BAD)
def test_bad_input_gets_one_sentence(
    runs: dict[str, Path], tmp_path: Path, name: str, arguments: list[str], sentence: str
) -> None:
    if any("\0" in argument for argument in arguments):  # no command line can hold it
        with pytest.raises(UserError, match=sentence):
            look_inside(glassformer.load(runs[name]), arguments[0])
        return
    done = call("look", runs[name], *arguments, "--out", tmp_path / "out", cwd=tmp_path)
    assert done.returncode == 2 and done.stdout == ""
    assert sentence in done.stderr and len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert not (tmp_path / "out").exists()


def test_a_folder_that_is_no_run_and_a_place_that_cannot_be_written(runs: dict[str, Path], tmp_path: Path) -> None:
    done = call("look", tmp_path, TEXT, cwd=tmp_path)
    assert done.returncode == 2 and "is not a run" in done.stderr
    (tmp_path / "file").write_text("")
    done = call("look", runs["classify"], TEXT, "--out", tmp_path / "file" / "out", cwd=tmp_path)
    assert done.returncode == 2 and "cannot be written" in done.stderr, done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
