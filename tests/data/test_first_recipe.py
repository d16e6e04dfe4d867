"""The recipe that is chosen for pairs: by how many there are, and by the characters of their scripts."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch

from glassformer.config import RECIPE_FOLDER, Recipe, read_recipe
from glassformer.config.data import DataFile
from glassformer.config.documentation import plain_recipe
from glassformer.config.recipe import recipe_names
from glassformer.data.doctor.roles import arrange
from glassformer.data.first_recipe import (
    LOOKED_AT,
    SIZES,
    PairCount,
    count_pairs,
    first_recipe,
    vocabulary_for,
)
from tests.small_runs import small_run


def write_pairs(path: Path, count: int, letters: str = "abcdefgh") -> Path:
    draw = random.Random(1)
    sides = ["".join(draw.choices(letters, k=draw.randint(5, 9))) for _ in range(2 * count)]
    rows = zip(sides[::2], sides[1::2], strict=True)
    path.write_text("".join(f"{a}\t{b}\n" for a, b in rows), encoding="utf-8")
    return path


@pytest.mark.parametrize("count", [1, 300, LOOKED_AT - 1, LOOKED_AT, 5 * LOOKED_AT])
def test_pairs_are_counted(count: int, tmp_path: Path) -> None:
    """To the one where all are looked at, nearly so beyond. Caught: bytes taken for pairs, one side forgotten."""
    found = count_pairs(arrange([write_pairs(tmp_path / "p.tsv", count)], "pairs", {}))
    assert found.pairs == count if count < LOOKED_AT else abs(found.pairs / count - 1) < 0.02
    sides = [tmp_path / "p.de", tmp_path / "p.en"]
    rows = [line.split("\t") for line in (tmp_path / "p.tsv").read_text().splitlines()]
    for side, path in enumerate(sides):
        path.write_text("".join(f"{row[side]}\n" for row in rows))
    assert count_pairs(arrange(sides, "pairs", {})).pairs == pytest.approx(found.pairs, rel=0.02)


@pytest.mark.parametrize("gpu", [False, True])
def test_more_pairs_never_have_a_smaller_model(gpu: bool) -> None:
    sizes = SIZES[gpu]
    assert [size.pairs for size in sizes] == sorted(size.pairs for size in sizes)
    for place in range(4):  # layers, heads, width, hidden
        assert [size.shape[place] for size in sizes] == sorted(size.shape[place] for size in sizes)
    assert [size.shape[4] for size in sizes] == sorted((size.shape[4] for size in sizes), reverse=True)
    counts = [10**n for n in range(1, 10)]
    pieces = [vocabulary_for(PairCount(count, 80, 100)) for count in counts]
    assert pieces == sorted(pieces) and pieces[0] == 1100 and pieces[-1] == 32_000


def test_a_gpu_reads_every_batch_twice_and_a_cpu_has_no_time_for_it(tmp_path: Path) -> None:
    """By the device that is asked for. Caught: the machine's GPU asked where training is to run on the CPU."""
    path = write_pairs(tmp_path / "p.tsv", 3000)
    chosen = {device: first_recipe([path], device=device).values for device in ("cpu", "cuda", "auto")}
    assert "r_drop" not in chosen["cpu"]["train"] and chosen["cuda"]["train"]["r_drop"] == 1.0
    assert chosen["auto"] == chosen["cuda" if torch.cuda.is_available() else "cpu"]
    for values in chosen.values():
        Recipe.from_dict(values)


def test_a_script_of_many_characters_has_a_piece_for_each(tmp_path: Path) -> None:
    """Chinese by a thousand bytes and pieces of bytes would be spelled out."""
    many = "".join(chr(0x4E00 + i) for i in range(2000))
    few = first_recipe([write_pairs(tmp_path / "few.tsv", 3000)]).values["data"]["vocab_size"]
    assert first_recipe([write_pairs(tmp_path / "many.tsv", 3000, many)]).values["data"]["vocab_size"] >= few + 1900


def test_a_line_that_cannot_be_read_is_left_to_training(tmp_path: Path) -> None:
    path = write_pairs(tmp_path / "p.tsv", 50)
    path.write_bytes(path.read_bytes() + b"only one side\n\xff\xfe\tx\n")
    assert count_pairs(arrange([path], "pairs", {})).pairs == 50


@pytest.mark.parametrize("name", recipe_names())
def test_a_recipe_written_down_is_the_recipe(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A law, for recipes with every kind of value: read from elsewhere it is the one that lies in the folder of the command.
    Caught: a None, a list or a table that TOML reads otherwise, a file that is looked for beside the new recipe."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / f"{name}.toml").write_bytes((RECIPE_FOLDER / f"{name}.toml").read_bytes())
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "again.toml").write_text(plain_recipe(read_recipe(name)), encoding="utf-8")
    assert read_recipe("sub/again.toml") == read_recipe(f"{name}.toml")


def test_a_run_has_its_recipe_to_be_read(tmp_path: Path) -> None:
    run = small_run(tmp_path, "pairs", clip=None)
    assert read_recipe(str(run.path / "recipe.toml")) == run.recipe
    files = (DataFile(path="a.tsv"), DataFile(path='b "c".tsv', weight=0.5, tag="<bt>"))
    recipe = Recipe.from_dict({"data": {"path": str(tmp_path), "train": files}, "train": {"clip": "none"}})
    (tmp_path / "again.toml").write_text(plain_recipe(recipe), encoding="utf-8")
    assert read_recipe(str(tmp_path / "again.toml")) == recipe
