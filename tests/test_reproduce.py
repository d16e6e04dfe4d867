"""`glassformer reproduce`: the way to a verdict on small data, both verdicts, and each metric beside a computation of its own."""

from __future__ import annotations

import json
import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sacrebleu
import torch
import torch.nn.functional as F

from glassformer import runs
from glassformer.config import DataConfig, ModelConfig, read_recipe, recipe_names
from glassformer.config.costs import costs
from glassformer.data.download import COLLECTIONS
from glassformer.errors import UserError
from glassformer.models import GPT
from glassformer.nn.rows import Rows
from glassformer.runs.folder import RunFolder
from glassformer.studies.reproduce import reproduction as study
from glassformer.studies.reproduce.metrics import random_batches_loss, score, validation_tokens, whole_loss
from glassformer.studies.reproduce.report import Outcome
from glassformer.studies.reproduce.reproduction import data_settings, size_problem
from glassformer.studies.reproduce.table import REPRODUCTIONS
from glassformer.studies.reproduce.times import Times, times_of
from glassformer.text.tokenizer import Tokenizer
from tests.commands import call
from tests.test_runs import pairs

CPU = torch.device("cpu")
SMALL = ["model.n_layer=1", "model.n_head=2", "model.n_embd=32", "model.n_hidden=64", "model.dropout=0"]
SMALL_PAIRS = [*SMALL, "data.batch_tokens=512", "data.vocab_size=400", "model.block_size=64", "train.warmup=20"]


def numbers(n: int, seed: int) -> tuple[list[str], list[str]]:
    """Tokenised, lower-cased text as the publisher of Multi30k leaves it."""
    found = pairs(n, seed)
    return [f"{a} &apos;s ." for a, _ in found], [f"{b} &quot; ." for _, b in found]


def write_multi30k(folder: Path, *, shuffled: bool = False) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for split, size in (("train", 600), ("val", 40), ("test_2016_flickr", 60)):
        english, german = numbers(size, len(split))
        if shuffled and split == "train":
            random.Random(0).shuffle(german)
        for side, lines in (("en", english), ("de", german)):
            (folder / f"{split}.lc.norm.tok.{side}").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def write_tatoeba(folder: Path) -> Path:
    """English TAB Chinese, as `data get` leaves it."""
    folder.mkdir(parents=True, exist_ok=True)
    digits = "一二三四五六七八九十"
    draw = random.Random(3)
    words = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
    for split, size in (("train", 600), ("val", 40), ("test", 60)):
        rows = [[draw.randrange(10) for _ in range(draw.randint(2, 6))] for _ in range(size)]
        lines = [" ".join(words[i] for i in row) + ".\t" + "".join(digits[i] for i in row) + "。" for row in rows]
        (folder / f"{split}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


LINES = [
    "To be, or not to be, that is the question.\n",
    "All the world's a stage.\n",
    "The rest is silence.\n",
    "Exeunt.\n",
]


def write_shakespeare(folder: Path, characters: int = 30_000) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    draw = random.Random(5)
    text = "".join(draw.choice(LINES) for _ in range(characters // 15))[:characters]
    (folder / "input.txt").write_text(text, encoding="utf-8")
    return folder


# What is listed


def test_the_table_names_recipes_and_collections_that_exist() -> None:
    for one in REPRODUCTIONS:
        assert {one.name, *([one.beside] if one.beside else [])} <= set(recipe_names())
        assert one.collection is None or one.collection in COLLECTIONS
        assert (one.goal is None) == (one.beside is not None)
        recipe = read_recipe(one.name)
        assert (recipe.data.builtin is None) == (one.collection is not None)
        if one.metric.startswith("bleu-"):
            # What a recipe was chosen by on validation is what it is judged by.
            assert recipe.train.bleu_tokenize == one.metric.removeprefix("bleu-")
    assert len({one.name for one in REPRODUCTIONS}) == len(REPRODUCTIONS)


def test_the_list() -> None:
    done = call("reproduce")
    assert done.returncode == 0
    for one in REPRODUCTIONS:
        assert one.name in done.stdout
    told = json.loads(call("reproduce", "--json").stdout)
    assert {one["name"]: one["goal"] for one in told}["multi30k-en-de"] == 41.02


def sentence(done: Any) -> str:
    assert done.returncode == 2 and done.stdout == "", done.stderr
    assert "Traceback" not in done.stderr and done.stderr.count("\n") == 1, done.stderr
    return str(done.stderr)


def test_an_unknown_name_is_a_sentence(tmp_path: Path) -> None:
    assert "did you mean 'multi30k-en-de'?" in sentence(call("reproduce", "multi30k-en-fr", cwd=tmp_path))


@pytest.mark.parametrize("name", ["multi30k-en-de", "shakespeare-char", "tatoeba-zh-en"])
def test_missing_data_is_a_sentence_with_the_command(name: str, tmp_path: Path) -> None:
    said = sentence(call("reproduce", name, cwd=tmp_path))
    assert f"`glassformer data get {study.reproduction(name).collection}`" in said and "--data DIR" in said
    assert not (tmp_path / "runs").exists()
    assert "there is no file" in sentence(call("reproduce", name, "--data", tmp_path / "no", cwd=tmp_path))


def test_other_things_to_put_right(tmp_path: Path) -> None:
    assert "leave out --data" in sentence(call("reproduce", "copy", "--data", tmp_path, cwd=tmp_path))
    assert "--seeds must be at least 1" in sentence(call("reproduce", "copy", "--seeds", "0", cwd=tmp_path))
    assert "there is no setting 'stepz'" in sentence(call("reproduce", "copy", "train.stepz=3", cwd=tmp_path))


# From data to a verdict


SHAKESPEARE = [
    *SMALL,
    *("model.attention_dropout=0", "model.block_size=32", "data.batch_tokens=1024"),
    *("train.steps=150", "train.warmup=10", "train.learning_rate=1e-2", "train.validate_every=75", "train.min_rate=0"),
]


@pytest.mark.slow
def test_a_recipe_that_learns_passes_and_one_that_does_not_fails(tmp_path: Path) -> None:
    """The broken recipe has a learning rate of nothing. Broken variants: a verdict that does not look at the score; an exit
    code that does not follow the verdict; lower taken for worse."""
    data = write_shakespeare(tmp_path / "data")
    done = call("reproduce", "shakespeare-char", "--data", data, "--seeds", 2, "--json", *SHAKESPEARE, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    out = tmp_path / "runs" / "reproduce" / "shakespeare-char"
    assert told == json.loads((out / "shakespeare-char.json").read_text(encoding="utf-8"))
    assert "about" in done.stderr and "of training, 2 times" in done.stderr and "measured here" in done.stderr
    scores = [run["score"] for run in told["runs"]]
    assert len(set(scores)) == 2, "two seeds are two runs"
    assert told["passed"] and told["median"] == statistics.median(scores) and told["mean"] == statistics.fmean(scores)
    assert told["deviation"] == pytest.approx(statistics.stdev(scores)) and max(scores) < 1.4684 == told["goal"]
    assert (
        told["published"] == 1.4697 and "nanoGPT" in told["source"] and "do not overlap" in told["runs"][0]["signature"]
    )
    for run in told["runs"]:
        assert run["steps"] == 150 and 0.9 * 150 * 1024 < run["tokens"] <= 150 * 1024
        assert run["tokens_per_second"] == pytest.approx(run["tokens"] / run["times"]["training"])
        (estimate,) = run["others"].values()
        assert abs(estimate - run["score"]) < 0.05
        trained = RunFolder.open(tmp_path / run["folder"])
        assert trained.recipe.train.seed == run["seed"] and trained.finished() == 150
    # The border is nanoGPT's: at the character.
    text = (data / "input.txt").read_text(encoding="utf-8")
    assert (out / "text" / "train.txt").read_text(encoding="utf-8") == text[: int(0.9 * len(text))]

    again = call("reproduce", "shakespeare-char", "--data", data, "--no-plan", *SHAKESPEARE, cwd=tmp_path)
    assert "holds a run already" in sentence(again)
    broken = [*SHAKESPEARE, "train.learning_rate=1e-9", "--out", str(tmp_path / "broken"), "--no-plan"]
    done = call("reproduce", "shakespeare-char", "--data", data, *broken, cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert "FAIL" in done.stdout and "PASS" not in done.stdout and "of training" not in done.stderr
    assert not json.loads((tmp_path / "broken" / "shakespeare-char.json").read_text(encoding="utf-8"))["passed"]
    for part in ("1.4697", "≤ 1.4684", "nanoGPT", "training", "compilation", "evaluation", "target tokens/s", "median"):
        assert part in done.stdout, part


MULTI30K = [
    *SMALL_PAIRS,
    *("model.n_embd=64", "model.n_hidden=128", "model.pre_norm=true", "model.final_norm=true"),
    *("train.schedule=cosine", "train.learning_rate=3e-3", "train.steps=400", "train.validate_every=400"),
    *("train.snapshot_every=5", "decode.beam=2"),
]


@pytest.mark.slow
def test_translations_are_judged_and_shuffled_targets_fail(tmp_path: Path) -> None:
    """The score is sacrebleu's own on what lies in the run's folder, untokenised. Broken variants: another tokenizer, hypothesis
    and reference exchanged, a detokeniser in between, the validation split scored."""
    data = write_multi30k(tmp_path / "data")
    report = study.reproduce(
        "multi30k-en-de", tmp_path / "out", data=data, seeds=1, overrides=MULTI30K, measure_first=False
    )
    assert report.passed and report.median > 60, report.median
    folder = Path(report.outcomes[0].folder)
    written, wanted = (
        (folder / f"test.{name}.txt").read_text(encoding="utf-8").splitlines() for name in ("written", "wanted")
    )
    assert wanted == numbers(60, len("test_2016_flickr"))[1]
    own = sacrebleu.corpus_bleu(written, [wanted], tokenize="none", force=True).score
    assert report.outcomes[0].score == pytest.approx(own, abs=1e-9)
    assert "tok:none" in report.outcomes[0].signature and "tok:13a" not in report.outcomes[0].signature
    assert report.in_time is None, "the time is asked for on an H200"

    shuffled = write_multi30k(tmp_path / "shuffled", shuffled=True)
    settings = [*MULTI30K, "train.steps=150", "--out", str(tmp_path / "broken"), "--no-plan", "--seeds", "1"]
    done = call("reproduce", "multi30k-en-de", "--data", shuffled, *settings, cwd=tmp_path)
    assert done.returncode == 1 and "FAIL" in done.stdout, done.stderr


@pytest.mark.slow
def test_a_recipe_is_held_against_the_plain_one_beside_it(tmp_path: Path) -> None:
    data = write_tatoeba(tmp_path / "data")
    changes = [*SMALL_PAIRS, "train.steps=60", "train.learning_rate=5e-3", "train.validate_every=60"]
    report = study.reproduce("tatoeba-zh-en", tmp_path / "out", data=data, overrides=changes, measure_first=False)
    assert [one.recipe for one in report.outcomes + report.beside] == ["tatoeba-zh-en", "tatoeba-zh-en-plain"]
    plain = report.beside[0].score
    assert report.goal == plain + 3 and report.passed == (report.median >= plain + 3)
    assert report.beside[0].steps == report.outcomes[0].steps, "as many updates"
    assert "tok:13a" in report.outcomes[0].signature
    told = json.loads((tmp_path / "out" / "tatoeba-zh-en.json").read_text(encoding="utf-8"))
    assert told["runs_beside"][0]["score"] == plain and told["goal"] == report.goal


def test_a_larger_model_is_no_fair_comparison() -> None:
    what = study.reproduction("shakespeare-char-best")
    best, plain = (read_recipe(name, ["model.vocab_size=70"]) for name in (what.name, "shakespeare-char"))
    counted = [costs(one.model).parameters for one in (best, plain)]
    assert counted[0] <= counted[1]
    done = Outcome("x", 1, "x", 1.0, "", {}, Times(0.0, 0.0, 0.0, 0.0, 0.0), 1, 1, counted[0])
    assert size_problem(what, [done], best) == ""
    assert f"{counted[1]:,}" in size_problem(what, [replace(done, parameters=counted[1] + 1)], best)
    assert size_problem(study.reproduction("shakespeare-char"), [replace(done, parameters=10**9)], plain) == ""


def test_what_counts_as_reached() -> None:
    """Lower is better for a loss alone, and the goal itself is enough."""
    loss, bleu = study.reproduction("shakespeare-char"), study.reproduction("multi30k-en-de")
    assert loss.reached(1.4684, 1.4684) and loss.reached(1.4, 1.4684) and not loss.reached(1.4685, 1.4684)
    assert bleu.reached(41.02, 41.02) and bleu.reached(42.0, 41.02) and not bleu.reached(41.01, 41.02)


# The metrics beside computations of their own


@pytest.fixture(scope="module")
def model() -> GPT:
    torch.manual_seed(0)
    return GPT(
        ModelConfig(family="gpt", vocab_size=11, block_size=8, n_layer=1, n_head=2, n_embd=16, dropout=0.5)
    ).eval()


def surprise(model: GPT, before: Sequence[int], following: int) -> float:
    """Of one token after those before it in its block, by the definition."""
    scores = model(Rows.whole(torch.tensor([list(before)])))[0, -1].double()
    return -math.log(float(scores.exp()[following] / scores.exp().sum()))


@pytest.mark.parametrize("length", [9, 17, 30, 5, 100])
@torch.no_grad()
def test_the_loss_of_the_whole_text(model: GPT, length: int) -> None:
    """Token by token. Broken variants: the rest after the last full block left out; the first token of a block not asked for
    (it belongs to the block before); a mean of blocks of different lengths."""
    tokens = torch.randint(0, 11, (length,), generator=torch.Generator().manual_seed(length))
    text = tokens.tolist()
    by_hand = [surprise(model, text[(i - 1) // 8 * 8 : i], text[i]) for i in range(1, length)]
    assert len(by_hand) == length - 1
    assert whole_loss(model, tokens, 8, CPU) == pytest.approx(statistics.fmean(by_hand), abs=1e-5)


@torch.no_grad()
def test_the_estimate_is_the_one_of_nanogpt(model: GPT) -> None:
    """`get_batch` and `estimate_loss` of its train.py, with torch's own cross-entropy. Broken variants: a sum for a mean, labels
    not shifted, starts that leave out the last place."""
    data = torch.randint(0, 11, (40,), generator=torch.Generator().manual_seed(2))
    draw = torch.Generator().manual_seed(1337)
    losses = torch.zeros(200)
    for k in range(200):
        ix = torch.randint(len(data) - 8, (64,), generator=draw)
        x = torch.stack([data[i : i + 8] for i in ix])
        y = torch.stack([data[i + 1 : i + 1 + 8] for i in ix])
        logits = model(Rows.whole(x))
        losses[k] = F.cross_entropy(logits.view(-1, logits.size(-1)), y.view(-1))
    assert random_batches_loss(model, data, 8, CPU) == pytest.approx(float(losses.mean()), abs=1e-5)
    assert random_batches_loss(model, data[:9], 8, CPU, batches=2) > 0, "one block and the next token"
    with pytest.raises(UserError, match="no block"):
        random_batches_loss(model, data[:8], 8, CPU)


def test_the_sign_that_ends_a_text_is_not_scored(tmp_path: Path) -> None:
    write_shakespeare(tmp_path, 3000)
    settings = [
        *SHAKESPEARE,
        "train.steps=1",
        *data_settings(study.reproduction("shakespeare-char"), tmp_path, tmp_path),
    ]
    recipe = read_recipe("shakespeare-char", settings)
    run = runs.train(recipe, tmp_path / "run")
    tokens = validation_tokens(run)
    text = (tmp_path / "input.txt").read_text(encoding="utf-8")
    assert run.tokenizers.target.decode(tokens.tolist()) == text[int(0.9 * len(text)) :]
    assert len(tokens) == len(text) - int(0.9 * len(text))


def test_tokenised_text_comes_back_as_it_was() -> None:
    """Words stay apart by the spaces the publisher put there: what is scored is what was written."""
    english, german = numbers(300, 0)
    odd = [
        "t-shirt &apos;s",
        "a &quot; b &amp; c",
        "ein(e) 3,5-m-brett .",
        "un@@ known @-@ joined",
        "größe , schwarz-weiß !",
    ]
    tokenizer = Tokenizer.train("bpe", english + german, 10_000)
    for text in [*odd, *english[:50], *german[:50]]:
        assert tokenizer.decode(tokenizer.encode(text)) == text


# The clock


def test_times_are_told_apart() -> None:
    """A log of known making: 7 s of compilation, steps of 0.1 s, validations of 3 s at 20 and of 5 s at 45, which is no line of
    the log, a save of 2 s at 55. Broken variants: validation counted as training; the first interval counted as training;
    the save counted in the usual time of a step."""
    lines = [
        {"step": 10, "loss": 3.0, "clock": 8.0},
        {"step": 20, "loss": 2.0, "clock": 9.0},
        {"step": 20, "val_loss": 2.0, "clock": 12.0},
        {"step": 30, "loss": 1.5, "clock": 13.0},
        {"step": 40, "loss": 1.5, "clock": 14.0},
        {"step": 45, "val_loss": 1.5, "clock": 19.5},
        {"step": 50, "loss": 1.4, "clock": 20.0},
        {"step": 60, "loss": 1.4, "clock": 23.0},
        {"step": 70, "loss": 1.4, "clock": 24.0},
    ]
    times = times_of(lines, before_log=2.0, whole=27.0)
    assert times.preparation == 2.0
    assert times.compilation == pytest.approx(7.0) and times.validation == pytest.approx(8.0)
    assert times.training == pytest.approx(7.0) and times.saving == pytest.approx(2.0 + 1.0), (
        "another second at the end"
    )
    told = (times.preparation, times.compilation, times.training, times.validation, times.saving)
    assert sum(told) == pytest.approx(27.0)
    short = times_of([{"step": 10, "loss": 3.0, "clock": 8.0}], before_log=2.0, whole=23.0)
    assert short == Times(2.0, 0.0, 21.0, 0.0, 0.0), "too short to tell apart"


# Every recipe starts


def test_the_plain_recipe_is_plain_and_has_as_many_updates() -> None:
    ours, plain = (read_recipe(name) for name in ("tatoeba-zh-en", "tatoeba-zh-en-plain"))
    for name in ("steps", "accumulate"):
        assert getattr(ours.train, name) == getattr(plain.train, name)
    assert ours.data.batch_tokens == plain.data.batch_tokens
    assert plain.train.schedule == "noam" and plain.model.dropout == 0.1 and plain.train.label_smoothing == 0
    assert plain.train.average_last == 0 and plain.train.ema is None and plain.decode.beams == 1


@pytest.mark.parametrize(
    ("name", "steps", "dropout", "average", "parameters"),
    [("base", 100_000, 0.1, 5, 63_082_496), ("big", 300_000, 0.3, 20, 214_245_376)],
)
def test_the_settings_of_the_paper(name: str, steps: int, dropout: float, average: int, parameters: int) -> None:
    recipe = read_recipe(f"wmt14-en-de-{name}")
    train, decode = recipe.train, recipe.decode
    assert (train.steps, recipe.model.dropout, train.average_last) == (steps, dropout, average)
    assert (train.schedule, train.warmup, train.label_smoothing, train.betas, train.eps) == (
        "noam",
        4000,
        0.1,
        (0.9, 0.98),
        1e-9,
    )
    assert (recipe.data.vocab_size, recipe.data.batch_tokens, recipe.data.separate_vocabularies) == (
        37000,
        25000,
        False,
    )
    assert (decode.beams, decode.alpha, decode.length_rule, decode.max_ratio, decode.max_extra) == (
        4,
        0.6,
        "gnmt",
        1.0,
        50,
    )
    assert costs(recipe.model).parameters == parameters


def write_aligned(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, size in (("train", 300), ("newstest2013", 30), ("newstest2014", 30)):
        english, german = numbers(size, len(name))
        (folder / f"{name}.en").write_text("\n".join(english) + "\n", encoding="utf-8")
        (folder / f"{name}.de").write_text("\n".join(german) + "\n", encoding="utf-8")
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
    small = [
        *SMALL,
        "model.dropout=0.1",
        "model.block_size=64",
        "train.steps=4",
        "data.vocab_size=300",
        "data.workers=0",
    ]
    small += ["data.batch_tokens=512", "train.accumulate=1", "train.snapshot_every=2"]
    if name.startswith("multi30k"):
        return [*small, f"data.path={write_multi30k(folder)}"]
    if name.startswith("tatoeba"):
        return [*small, f"data.path={write_tatoeba(folder)}"]
    if name.startswith("wmt14"):
        return [*small, f"data.path={write_aligned(folder)}"]
    if name.startswith("shakespeare"):
        return [*small, f"data.train={write_shakespeare(folder, 4000) / 'input.txt'}"]
    return [*small, f"data.train={write_web(folder)}", "data.val_fraction=0.1"]


REAL_DATA = [name for name in recipe_names() if read_recipe(name).data.builtin is None]


@pytest.mark.slow
@pytest.mark.parametrize("name", REAL_DATA)
def test_every_recipe_starts_on_a_small_file_of_its_format(name: str, tmp_path: Path) -> None:
    recipe = read_recipe(name, small_start(name, tmp_path / "data"))
    run = runs.train(recipe, tmp_path / "run")
    assert run.finished() == 4
    last = [line for line in run.metrics() if "val_loss" in line][-1]
    assert last["step"] == 4 and math.isfinite(last["val_loss"])
    if recipe.data.task == "pairs":
        scored = score(run, "bleu-none")
        assert 0 <= scored.value <= 100


def test_a_web_corpus_may_be_jsonl(tmp_path: Path) -> None:
    pages = write_jsonl(tmp_path / "web")
    settings = [*small_start("gpt2-124m", tmp_path / "unused"), f"data.train={pages}"]
    run = runs.train(read_recipe("gpt2-124m", settings), tmp_path / "run")
    assert run.finished() == 4
    assert isinstance(run.recipe.data, DataConfig) and run.recipe.data.task == "text"
    assert costs(read_recipe("gpt2-124m").model).parameters == 124_439_808
