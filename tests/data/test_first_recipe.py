"""The recipe that is chosen for pairs: by how many there are, and by the characters of their scripts."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import pytest
import torch

from glassformer.config import RECIPE_FOLDER, Recipe, read_recipe
from glassformer.config.data import DataFile
from glassformer.config.recipe import plain_recipe, recipe_names
from glassformer.data.doctor.roles import arrange
from glassformer.data.first_recipe import (
    LOOKED_AT,
    MOST_STEPS,
    PairCount,
    count_pairs,
    first_recipe,
    recipe_for_pairs,
    vocabulary_for,
)
from glassformer.runs.overview import schedule_warnings
from tests.small_runs import small_run


def write_pairs(path: Path, count: int, letters: str = "abcdefgh") -> Path:
    draw = random.Random(1)
    words = ["".join(draw.choices(letters, k=draw.randint(5, 9))) for _ in range(2 * count)]
    sides = [f"{word} {word}" for word in words]
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


COUNTS = (1, 20, 100, 700, 2_000, 5_000, 30_000, 104_145, 500_000, 1_000_000, 10_000_000)
LENGTHS = (3, 10, 30, 100, 300)
"""Tokens of a target: from a word's few letters to a page."""


def facts(pairs: int, tokens: int, words: bool) -> PairCount:
    """Of pairs whose targets have so many tokens: letters of words, or pieces of sentences."""
    letters = tokens if words else 4 * tokens
    return PairCount(pairs, 2.0 * letters, 100, float(letters), single_words=words)


@pytest.mark.parametrize("gpu", [False, True])
@pytest.mark.parametrize("words", [False, True])
def test_a_default_never_warns_of_itself(gpu: bool, words: bool) -> None:
    """A law over sizes and lengths. What is chosen is a recipe, its warm-up a small part of it, and nothing that `train` and
    `plan` warn of; it learns from each pair ten times or as often as there is time for, and at most a thousand times (800 is what
    the literature has for words, 670 what was best here for 5,000 sentences). Caught: 1,000 steps with 2,000 of warm-up, hundreds
    of epochs without an end, a single validation."""
    for pairs, tokens in itertools.product(COUNTS, LENGTHS):
        found = facts(pairs, tokens, words)
        recipe = Recipe.from_dict(recipe_for_pairs(found, gpu, {}))
        steps, epoch = recipe.train.steps, max(1.0, pairs * (tokens + words) / recipe.data.batch_tokens)
        assert recipe.train.warmup <= steps / 5 and recipe.train.validate_every <= steps / 2
        assert 10 <= steps / epoch <= 1000 or steps == MOST_STEPS or steps == 100, (pairs, tokens)
        if recipe.train.ema is not None:
            assert 1 / (1 - recipe.train.ema) <= steps / 4
        for real in (epoch / 2, epoch, 2 * epoch):  # how many tokens there are is known only roughly
            assert list(schedule_warnings(recipe, real, pairs)) == [], (pairs, tokens)


def test_few_steps_are_averaged_over_few() -> None:
    """Fewer steps, said by a person, shorten the average of the weights, too. Caught: weights half those of the beginning
    after 300 steps."""
    for steps, ema in ((2500, 0.998), (300, 0.9833), (60, 0.9167), (2, 0.5)):
        values = recipe_for_pairs(facts(1000, 10, False), False, {"train.steps": str(steps)})
        assert values["train"]["ema"] == ema


@pytest.mark.parametrize("gpu", [False, True])
def test_more_to_learn_from_never_has_a_smaller_model(gpu: bool) -> None:
    """By pairs and by their length, and none is wider than what fewer than 50,000 sentences were measured to need. Caught: the
    width for half a million sentences for as many words of three letters."""
    for words, varied in itertools.product((False, True), (COUNTS, LENGTHS)):
        grids = itertools.product(COUNTS, LENGTHS) if varied is LENGTHS else itertools.product(LENGTHS, COUNTS)
        for _, row in itertools.groupby(grids, key=lambda at: at[0]):
            found = [facts(*(at if varied is LENGTHS else at[::-1]), words) for at in row]
            models = [recipe_for_pairs(count, gpu, {})["model"] for count in found]
            for name in ("n_layer", "n_embd", "n_hidden"):
                assert [model[name] for model in models] == sorted(model[name] for model in models)
    assert recipe_for_pairs(facts(104_145, 3, False), gpu, {})["model"]["n_embd"] == 256
    pieces = [vocabulary_for(PairCount(10**n, 80, 100)) for n in range(1, 10)]
    assert pieces == sorted(pieces) and pieces[0] == 1100 and pieces[-1] == 32_000


@pytest.mark.parametrize(
    ("source", "target", "what", "tokenizers"),
    [
        ("abîme", "a b i m", "words", ("char", None)),
        ("masör N;ARGNO1S;PL;PST", "masörlerdim", "words", ("char", None)),
        ("<N> <PL> masör", "masörler", "words", ("char", None)),
        ("phân tích", "f ə n ˧˧ t ï k̟̚ ˧˦", "words", ("char", None)),
        ("각도", "k a k̚ t͈ o", "words", ("char", None)),
        ("o'clock", "AH K L AA K", "words", ("char", None)),
        ("Where is he", "Wo ist er", "sentences", ("bpe", None)),
        ("我是从新加坡来的", "I am from Singapore", "sentences", ("bpe", None)),
        ("the cat slept", "I saw 9 cats, and he said: “it's late!”", "sentences", ("bpe", None)),
        ("O=C1CC[C@H](C)CC1", "CC1CCC(=O)CC1", "formal", ("char", None)),
        ("jump twice", "I_JUMP I_JUMP", "formal", ("word", None)),
        ("A girl slept", "girl ( x _ 1 ) AND sleep . agent ( x _ 2 , x _ 1 )", "formal", ("word", None)),
        ("public int size() { return n; }", "public int Size() { return n; }", "formal", ("word", None)),
        ("3 mai 1979", "1979-05-03", "formal", ("char", None)),
    ],
)
def test_what_pairs_are_says_how_they_are_read(
    source: str, target: str, what: str, tokenizers: tuple[str, str | None], tmp_path: Path
) -> None:
    """Of words, formulas and code nothing is changed at random, where a typo is a wrong label. Caught: short Chinese sentences,
    formulas and commands taken for words; features before or behind a word that hide it; sounds spelled by their letters."""
    (tmp_path / "p.tsv").write_text(f"{source}\t{target}\n" * 30, encoding="utf-8")
    made = first_recipe([tmp_path / "p.tsv"])
    recipe = Recipe.from_dict(made.values)
    assert (recipe.data.tokenizer, recipe.data.target_tokenizer) == tokenizers
    assert ("single words: by the character" in made.chosen) == (what == "words")
    assert ("formulas or code" in made.chosen) == (what == "formal")
    assert (recipe.train.metric == "exact_match") == (what != "sentences")
    assert (recipe.data.augment == 0) == (what != "sentences")
    assert recipe.data.decompose == (source == "각도")


def test_an_answer_may_be_as_long_as_the_targets_are(tmp_path: Path) -> None:
    """Broken variant: twice the source and twenty tokens, which cut two of three logical forms off."""
    target = "* girl ( x _ 1 ) ; sleep . agent ( x _ 2 , x _ 1 ) AND boy ( x _ 4 ) AND see ( x _ 4 , x _ 1 )"
    (tmp_path / "p.tsv").write_text(f"A girl slept\t{target}\n" * 30, encoding="utf-8")
    recipe = Recipe.from_dict(first_recipe([tmp_path / "p.tsv"]).values)
    assert recipe.decode.max_ratio * 3 + recipe.decode.max_extra >= len(target.split())


@pytest.mark.parametrize(
    ("lines", "task", "features"),
    [
        (["The\tDT", "cat\tNN", "slept\tVB", ""], "tag", None),
        (["我\tO", "在\tO", "京\tB-LOC", ""], "tag", None),
        (["1\ta fine film {n}", "0\tdull {n} and long"], "classify", None),
        (["体育\t今天比赛赢了{n}", "财经\t股票跌了{n}"], "classify", None),
        (["sing{n}\tsang{n}\tV;PST", "go{n}\tgone{n}\tV;PTCP;PST"], "pairs", "3"),
        (["a girl {n}\tgirl ( x _ {n} )\tin_distribution"], "pairs", None),
        (["hello {n}\thallo {n}", "yes {n}\tja {n}"], "pairs", None),
        (["cat{n}\tK AE T {n}", ""], "pairs", None),
        (["yes\tja", "no\tnein"], "pairs", None),
    ],
)
def test_what_columns_hold_is_seen(lines: list[str], task: str, features: str | None, tmp_path: Path) -> None:
    """Broken variants: words and their tags, or labels and texts, learned as pairs; features dropped."""
    text = "".join(f"{line.format(n=n)}\n" for n in range(100) for line in lines)
    (tmp_path / "a.tsv").write_text(text, encoding="utf-8")
    config = arrange([tmp_path / "a.tsv"], None, {})
    assert (config.task, config.features_field) == (task, features)
    assert arrange([tmp_path / "a.tsv"], "pairs", {"features_field": "1"}).features_field == "1"


def test_a_text_of_any_size_has_no_warning_of_its_own(tmp_path: Path) -> None:
    for size in (100, 30_000):
        (tmp_path / "a.txt").write_text("the cat sat " * (size // 12))
        recipe = Recipe.from_dict(first_recipe([tmp_path / "a.txt"], "text").values)
        assert list(schedule_warnings(recipe, max(1.0, size / 4 / recipe.data.batch_tokens), 1)) == []


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
