"""Data without a recipe: `train FILE` chooses one and says so, `init FILE` writes it down with every setting and its comment."""

from __future__ import annotations

import gzip
import random
import re
from pathlib import Path
from typing import Any

import pytest

from glassformer.cli.recipes import sorted_words, with_data
from glassformer.cli.verbs import run_command
from glassformer.config import Recipe, read_recipe
from glassformer.config.recipe import PARTS, settings_of
from glassformer.errors import UserError
from glassformer.runs.folder import RunFolder
from tests.test_language import CHINESE


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with data of every kind, and the shell in it."""
    draw, words = random.Random(1), ["eins\tone", "zwei\ttwo", "drei\tthree", "vier\tfour"]
    lines = [draw.choices(words, k=4) for _ in range(60)]
    sides = [[" ".join(word.split("\t")[side] for word in line) for line in lines] for side in (0, 1)]
    (tmp_path / "pairs.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in zip(*sides)))
    (tmp_path / "a.de").write_text("\n".join(sides[0]) + "\n")
    (tmp_path / "a.en").write_text("\n".join(sides[1]) + "\n")
    (tmp_path / "prose.txt.gz").write_bytes(gzip.compress(b"the cat sat on the mat. " * 3000))
    (tmp_path / "labels.tsv").write_text("".join(f"{'odd' if i % 2 else 'even'}\tword {i}\n" for i in range(60)))
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "one.txt").write_text("a text of one's own. " * 500)
    (tmp_path / "mine.toml").write_text('[data]\nbuiltin = "copy"\ntokenizer = "char"\n')
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("words", "family", "files"),
    [
        ("pairs.tsv", "transformer", {"train": "pairs.tsv"}),
        ("a.de a.en", "transformer", {"train": "a.de", "train_target": "a.en"}),
        ("prose.txt.gz train.steps=7", "gpt", {"train": "prose.txt.gz"}),
        ("texts", "gpt", {"train": "texts"}),
        ("labels.tsv data.task=classify", "bert", {"train": "labels.tsv"}),
    ],
)
def test_the_model_follows_from_what_a_file_holds(words: str, family: str, files: dict[str, str], home: Path) -> None:
    """By its place and by --data; what is said on the command line is obeyed."""
    said: list[str] = []
    first, *others = words.split()
    values, name = with_data(*sorted_words(first, [], others), say=said.append)
    recipe = Recipe.from_dict(values, name=name)
    assert recipe.model.family == family and recipe.name == first.split(".")[0]
    assert {key: getattr(recipe.data, key) for key in files} == {key: str(home / own) for key, own in files.items()}
    assert recipe.train.steps == (7 if "steps" in words else 1000)
    assert len(said) == 1 and said[0].startswith(f"{first}: a") and "glassformer init" in said[0]
    if not any("=" not in word for word in others):
        again, _ = with_data(*sorted_words(others[0] if others else None, [Path(first)], others[1:]))
        assert again == values


def test_data_in_the_place_of_a_recipes_own(home: Path) -> None:
    values, name = with_data(*sorted_words("mine.toml", [Path("pairs.tsv")], ["train.steps=3"]))
    recipe = Recipe.from_dict(values, name=name)
    assert (recipe.name, recipe.data.builtin, recipe.data.tokenizer, recipe.train.steps) == ("mine", None, "char", 3)
    assert recipe.data.train == str(home / "pairs.tsv")


def test_data_in_two_places_is_refused_with_the_command_that_works(home: Path) -> None:
    """Caught: a file of data that is read as a recipe, without a word of what is wrong."""
    with pytest.raises(
        UserError, match=r"pairs\.tsv is a file of data, as --data is; .*: glassformer train pairs\.tsv a\.de"
    ):
        sorted_words("pairs.tsv", [Path("a.de")], [])


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        ("data.tokenizer=char", {"data.augment": 0.15, "data.bpe_dropout": 0.0}),
        ("data.tokenizer=unigram", {"data.bpe_dropout": 0.0}),
        ("train.steps=500", {"train.warmup": 100, "train.validate_every": 125}),
        ("train.steps=500 train.warmup=400", {"train.warmup": 400}),
        ("train.optimizer=adamw", {"train.learning_rate": 1e-3, "train.ema": None}),
        ("train.shard=true", {"train.optimizer": "adamw"}),
        ("train.lora_rank=4", {"train.optimizer": "adamw"}),
        ("model.dropout=0 train.device=cuda", {"train.r_drop": 0.0}),
        ("train.precision=fp8 train.device=cuda", {"train.r_drop": 0.0}),
    ],
)
def test_what_is_chosen_gives_way_to_what_is_said(words: str, kept: dict[str, Any], home: Path) -> None:
    """Caught: a setting refused because of another that nobody wrote; a warm-up as long as the training; a rate for another
    optimizer."""
    recipe = Recipe.from_dict(with_data(*sorted_words("pairs.tsv", [], words.split()))[0])
    for change in words.split():
        key, _, value = change.partition("=")
        assert str(setting_of(recipe, key)).lower() == value.lower() or float(setting_of(recipe, key)) == float(value)
    assert {key: setting_of(recipe, key) for key in kept} == kept


def setting_of(recipe: Recipe, key: str) -> Any:
    part, name = key.split(".")
    return getattr(getattr(recipe, part), name)


def test_what_contradicts_itself_is_still_refused(home: Path) -> None:
    """Of two settings that a person wrote none gives way. Caught: one of them left out in silence."""
    with pytest.raises(UserError, match="bpe_dropout"):
        Recipe.from_dict(with_data(*sorted_words("pairs.tsv", [], ["data.tokenizer=char", "data.bpe_dropout=0.1"]))[0])


@pytest.mark.parametrize("words", ["pairs.tsv", "a.de a.en", "prose.txt.gz", "labels.tsv --task classify", ""])
def test_what_init_writes_is_the_recipe_and_every_other_line_its_default(words: str, home: Path) -> None:
    """A law: with every comment made a setting, the file says the same. And a file that is there is left alone."""
    (home / "sub").mkdir()
    run_command(["init", *words.split(), "--out", "sub/new.toml"])
    path = home / "sub" / "new.toml"
    text = path.read_text(encoding="utf-8")
    recipe = read_recipe(str(path))
    for part in PARTS:
        section = text.partition(f"[{part}]\n")[2].partition("\n[")[0]
        for setting in settings_of(part):
            assert re.search(rf"^# .*\n#?{setting.name} = ", section, re.M), (part, setting.name)
            assert setting.about in section
    everything = home / "sub" / "all.toml"
    everything.write_text(re.sub(r"^#(\w+ = )", r"\1", text, flags=re.M), encoding="utf-8")
    assert read_recipe(str(everything)).to_dict() | {"name": ""} == recipe.to_dict() | {"name": ""}
    if words:
        task = ["data.task=classify"] if "task" in words else []
        values, _ = with_data(*sorted_words(words.split()[0], [], [w for w in words.split()[1:] if "." in w] + task))
        assert Recipe.from_dict(values, name="new") == recipe
    with pytest.raises(UserError, match="is there already; choose another name with --out"):
        run_command(["init", *words.split(), "--out", "sub/new.toml"])
    assert path.read_text(encoding="utf-8") == text


def test_init_speaks_chinese(home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("GLASSFORMER_LANG", "zh")
    run_command(["init", "pairs.tsv"])
    assert all(CHINESE.search(line) for line in capsys.readouterr().out.splitlines())
    comments = [
        line for line in (home / "pairs.toml").read_text(encoding="utf-8").splitlines() if line.startswith("# ")
    ]
    assert len(comments) > 100 and all(CHINESE.search(line) for line in comments)
    assert read_recipe("pairs.toml").data.train == str(home / "pairs.tsv")


@pytest.mark.slow
def test_both_ways_train_the_same_run(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`train FILE`, and `init FILE` with `train` of what it wrote; the recipe is in the run as ever."""
    small = ["train.steps=2", "model.n_embd=16", "model.n_hidden=16", "model.n_layer=1", "train.device=cpu"]
    small += [
        "train.warmup=1",
        "train.validate_every=2",
        "train.patience=5",
        "train.ema=0.5",
    ]  # which would follow from the steps
    assert run_command(["train", "pairs.tsv", *small]) == 0
    assert "pairs.tsv: an encoder-decoder, since it holds pairs" in capsys.readouterr().err
    run_command(["init", "pairs.tsv"])
    assert run_command(["train", "pairs.toml", *small, "--out", "runs/again"]) == 0
    one, other = RunFolder(home / "runs" / "pairs").recipe, RunFolder(home / "runs" / "again").recipe
    assert one == other


def test_columns_are_named_alike_everywhere(home: Path) -> None:
    """`data.source_field=` for init, check, clean and train FILE. Caught: "there is no file data.source_field=de"; a recipe that
    cannot run."""
    rows = "".join(f"{i};Good day {i};Guten Tag {i};Anna\n" for i in range(30))
    (home / "excel.csv").write_text("Nr;en;de;by\n" + rows, encoding="utf-8")
    names = ["data.source_field=de", "data.target_field=en"]
    run_command(["init", "excel.csv", *names])
    data = read_recipe("excel.toml").data
    assert (data.task, data.source_field, data.target_field) == ("pairs", "de", "en")
    run_command(["data", "check", "excel.csv", *names])
    run_command(["data", "clean", "excel.csv", *names, "--out", "clean.jsonl"])
    assert '"de": "Guten Tag 3", "en": "Good day 3"' in (home / "clean.jsonl").read_text(encoding="utf-8")
    values, _ = with_data(*sorted_words("excel.csv", [], names))
    assert Recipe.from_dict(values, name="excel").data.source_field == "de"
