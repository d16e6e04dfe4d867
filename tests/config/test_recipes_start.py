"""The recipes for real data: their settings are those of the papers, and each starts on a small file of its format."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import pytest

from glassformer import evaluate, runs
from glassformer.config import DataConfig, read_recipe, recipe_names
from glassformer.models.costs import costs
from tests.small_collections import LINES, SMALL, numbers, write_multi30k, write_shakespeare, write_tatoeba

pytestmark = pytest.mark.slow


def test_the_plain_recipe_is_plain_and_has_as_many_updates() -> None:
    ours, plain = (read_recipe(name) for name in ("tatoeba-zh-en", "tatoeba-zh-en-plain"))
    for name in ("steps", "accumulate"):
        assert getattr(ours.train, name) == getattr(plain.train, name)
    assert ours.data.batch_tokens == plain.data.batch_tokens
    assert plain.train.schedule == "noam" and plain.model.dropout == 0.1 and plain.train.label_smoothing == 0
    assert plain.train.average_last == 0 and plain.train.ema is None and plain.decode.beams == 1


@pytest.mark.parametrize(
    ("name", "steps", "dropout", "average", "parameters"),
    [
        ("en-de-base", 100_000, 0.1, 5, 63_082_496),
        ("en-de-big", 300_000, 0.3, 20, 214_245_376),
        ("en-fr-base", 100_000, 0.1, 5, 60_522_496),
        ("en-fr-big", 300_000, 0.1, 20, 209_125_376),
    ],
)
def test_the_settings_of_the_paper(name: str, steps: int, dropout: float, average: int, parameters: int) -> None:
    recipe = read_recipe(f"wmt14-{name}")
    train, decode = recipe.train, recipe.decode
    assert (train.steps, recipe.model.dropout, train.average_last) == (steps, dropout, average)
    assert (train.schedule, train.warmup, train.label_smoothing) == ("noam", 4000, 0.1)
    assert (train.betas, train.eps) == ((0.9, 0.98), 1e-9)
    words = 32000 if "fr" in name else 37000
    assert (recipe.data.vocab_size, recipe.data.batch_tokens) == (words, 25000)
    assert not recipe.data.separate_vocabularies
    assert (decode.beams, decode.alpha, decode.length_rule) == (4, 0.6, "gnmt")
    assert (decode.max_ratio, decode.max_extra) == (1.0, 50)
    assert costs(recipe.model).parameters == parameters


def write_aligned(folder: Path, language: str = "de") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, size in (("train", 300), ("newstest2013", 30), ("newstest2014", 30)):
        english, other = numbers(size, len(name))
        (folder / f"{name}.en").write_text("\n".join(english) + "\n", encoding="utf-8")
        (folder / f"{name}.{language}").write_text("\n".join(other) + "\n", encoding="utf-8")
    return folder


def write_web(folder: Path) -> Path:
    draw = random.Random(1)
    folder.mkdir(parents=True)
    for number in range(12):
        page = "".join(draw.choice(LINES) for _ in range(60))
        (folder / f"page-{number}.txt").write_text(page, encoding="utf-8")
    return folder


def write_jsonl(folder: Path) -> Path:
    folder.mkdir(parents=True)
    draw = random.Random(1)
    pages = [json.dumps({"text": "".join(draw.choice(LINES) for _ in range(20))}) for _ in range(40)]
    (folder / "pages.jsonl").write_text("\n".join(pages) + "\n", encoding="utf-8")
    return folder / "pages.jsonl"


def small_start(name: str, folder: Path) -> list[str]:
    """The recipe's own format, a few lines of it; the rest is only made smaller."""
    small = [*SMALL, "model.dropout=0.1", "model.block_size=64", "train.steps=4", "data.vocab_size=300"]
    small += ["data.workers=0", "data.batch_tokens=512", "train.accumulate=1", "train.snapshot_every=2"]
    language = "fr" if "-fr" in name else "de"
    if name.startswith("multi30k"):
        return [*small, f"data.path={write_multi30k(folder, language=language)}"]
    if name.startswith("tatoeba"):
        return [*small, f"data.path={write_tatoeba(folder)}"]
    if name.startswith("wmt14"):
        return [*small, f"data.path={write_aligned(folder, language)}"]
    if name.startswith("shakespeare"):
        return [*small, f"data.train={write_shakespeare(folder, 4000) / 'input.txt'}"]
    return [*small, f"data.train={write_web(folder)}", "data.val_fraction=0.1"]


REAL_DATA = [name for name in recipe_names() if read_recipe(name).data.builtin is None]


@pytest.mark.parametrize("name", REAL_DATA)
def test_every_recipe_starts_on_a_small_file_of_its_format(name: str, tmp_path: Path) -> None:
    recipe = read_recipe(name, small_start(name, tmp_path / "data"))
    run = runs.train(recipe, tmp_path / "run")
    assert run.finished() == 4
    last = [line for line in run.metrics() if "val_loss" in line][-1]
    assert last["step"] == 4 and math.isfinite(last["val_loss"])
    if recipe.data.task == "pairs":
        assert 0 <= evaluate(run.path, limit=4)["bleu"] <= 100


def test_a_web_corpus_may_be_jsonl(tmp_path: Path) -> None:
    pages = write_jsonl(tmp_path / "web")
    settings = [*small_start("gpt2-124m", tmp_path / "unused"), f"data.train={pages}"]
    run = runs.train(read_recipe("gpt2-124m", settings), tmp_path / "run")
    assert run.finished() == 4
    assert isinstance(run.recipe.data, DataConfig) and run.recipe.data.task == "text"
    assert costs(read_recipe("gpt2-124m").model).parameters == 124_439_808
