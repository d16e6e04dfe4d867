"""From text to a run folder: what is in it, and that each kind of data gets there. Real runs, a few steps each."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from glassformer import runs
from glassformer.api import load
from glassformer.config import Recipe
from glassformer.data.prepare import chunks, complete_model, open_files, prepare
from glassformer.data.report import DataReport
from glassformer.data.store import run_examples
from glassformer.data.tokens import TokenFile
from glassformer.errors import ConfigError, UserError
from glassformer.nn.loss import IGNORE
from glassformer.runs.checkpoint import read_checkpoint
from glassformer.runs.folder import RunFolder
from glassformer.runs.session import is_historic
from glassformer.studies.curves import draw_curves
from glassformer.studies.score import score_split
from glassformer.text.tokenizer import EOS, UNK, Tokenizer
from glassformer.text.tokenizers import Tokenizers
from tests.programs import run_program

GERMAN = ["eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun", "zehn"]
ENGLISH = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]


def pairs(n: int, seed: int = 0) -> list[tuple[str, str]]:
    draw = random.Random(seed)
    rows = [[draw.randrange(10) for _ in range(draw.randint(1, 6))] for _ in range(n)]
    return [(" ".join(GERMAN[i] for i in row), " ".join(ENGLISH[i] for i in row)) for row in rows]


def recipe(folder: Path, *, model: Any = None, data: Any = None, **train: Any) -> Recipe:
    return Recipe.from_dict(
        {
            "name": "numbers",
            "model": {"n_layer": 1, "n_head": 2, "n_embd": 16, "n_hidden": 32, "block_size": 32, "dropout": 0.0}
            | (model or {}),
            "data": {"path": str(folder), "train": "train.tsv", "tokenizer": "word", "batch_tokens": 256}
            | (data or {}),
            "train": {"steps": 6, "validate_every": 3, "save_every": 3, "log_every": 2, "warmup": 2, "device": "cpu"}
            | {"validate_examples": 8}
            | train,
            "decode": {"max_ratio": 1.0, "max_extra": 4},
        }
    )


def write_tsv(path: Path, rows: list[tuple[str, str]]) -> None:
    path.write_text("".join(f"{a}\t{b}\n" for a, b in rows), encoding="utf-8")


def final_weights(run: RunFolder) -> dict[str, torch.Tensor]:
    return read_checkpoint(run.final)[0]["model"]


@pytest.fixture(scope="module")
def tsv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pairs")
    write_tsv(folder / "train.tsv", pairs(120))
    return folder


@pytest.fixture(scope="module")
def trained(tsv: Path, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return runs.train(recipe(tsv, tensorboard=True), tmp_path_factory.mktemp("runs") / "numbers")


# What a run folder holds ------------------------------------------------------------------------------------------------


def test_a_run_is_a_folder(trained: RunFolder) -> None:
    """Everything a verb needs, in formats that can be read without running anything. Broken variant: a pickle."""
    names = {p.relative_to(trained.path).as_posix() for p in trained.path.rglob("*") if p.is_file()}
    for name in ("run.json", "tokenizer.json", "metrics.jsonl", "samples.jsonl", "final/model.safetensors"):
        assert name in names, name
    assert {"checkpoints/step-00000003/model.safetensors", "checkpoints/step-00000006/training.safetensors"} <= names
    known = (".json", ".jsonl", ".safetensors", ".tokens", ".examples.gz", "SEAL", ".lock", ".sha256", ".log")
    assert all(n.endswith(known) or n.startswith("tensorboard/") for n in names), names
    facts = json.loads((trained.path / "run.json").read_text(encoding="utf-8"))
    assert facts["recipe"]["model"]["vocab_size"] == Tokenizer.load(trained.path / "tokenizer.json").vocab_size == 25
    assert Recipe.from_dict(facts["recipe"]) == trained.recipe


def test_metrics_have_a_line_for_each_interval_and_each_validation(trained: RunFolder) -> None:
    """Broken variants: times among the numbers, which would make two equal runs differ; a validation that is lost."""
    logged = [r for r in trained.metrics() if "loss" in r]
    validated = [r for r in trained.metrics() if "val_loss" in r]
    assert [r["step"] for r in logged] == [2, 4, 6] and [r["step"] for r in validated] == [3, 6]
    assert all(r.keys() == {"step", "loss", "lr", "grad_norm", "tokens", "epoch", "clock"} for r in logged)
    assert logged[0]["lr"] == pytest.approx(1e-3), "the end of the warm-up"
    tokens = [r["tokens"] for r in logged]
    assert tokens == sorted(tokens) and tokens[0] > 0
    wanted = {"loss", "perplexity", "token_accuracy", "exact_match", "bleu", "chrf"}
    assert all(r.keys() == {"step", "clock"} | {f"val_{k}" for k in wanted} for r in validated)
    assert all(r["val_perplexity"] == pytest.approx(np.exp(r["val_loss"])) for r in validated)


def test_samples_are_kept(trained: RunFolder) -> None:
    samples = [json.loads(line) for line in (trained.path / "samples.jsonl").read_text(encoding="utf-8").splitlines()]
    assert {s["step"] for s in samples} == {3, 6} and len(samples) >= 4
    german = dict(zip(GERMAN, ENGLISH, strict=True))
    for sample in samples:
        assert sample["wanted"] == " ".join(german[w] for w in sample["source"].split())
        assert isinstance(sample["written"], str)


def test_curves_are_drawn_from_the_metrics(trained: RunFolder) -> None:
    png, svg = draw_curves(trained)
    assert (png.name, svg.name) == ("curves.png", "curves.svg")
    assert png.read_bytes().startswith(b"\x89PNG") and "<svg" in svg.read_text(encoding="utf-8")[:1000]


def test_tensorboard_holds_the_same_numbers(trained: RunFolder) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(trained.path / "tensorboard"))
    found.Reload()
    for name in ("loss", "lr", "val_loss", "val_bleu"):
        shown = [(e.step, e.value) for e in found.Scalars(name)]
        written = [(r["step"], r[name]) for r in trained.metrics() if name in r]
        assert [s for s, _ in shown] == [s for s, _ in written]
        assert [v for _, v in shown] == pytest.approx([v for _, v in written], rel=1e-5)


def test_the_same_recipe_gives_the_same_run(tsv: Path, trained: RunFolder, tmp_path: Path) -> None:
    """Bit for bit on a CPU. Broken variant: anything drawn from a generator that is not seeded."""
    again = runs.train(recipe(tsv), tmp_path / "again")

    def without_clock(run: RunFolder) -> list[dict[str, Any]]:
        return [{k: v for k, v in r.items() if k != "clock"} for r in run.metrics()]

    assert without_clock(again) == without_clock(trained)
    one, other = final_weights(again), final_weights(trained)
    assert one.keys() == other.keys() and all(torch.equal(one[n], other[n]) for n in one)
    different = runs.train(recipe(tsv, seed=2), tmp_path / "different")
    assert without_clock(different)[0]["loss"] != without_clock(trained)[0]["loss"]


# A folder that holds a run ----------------------------------------------------------------------------------------------


def test_what_a_family_does_not_learn_from_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    """The file is not there, and nobody looks for it. Caught: refused after a large text has been read and cut."""
    for model, task in (("gpt", "pairs"), ("bert", "pairs"), ("transformer", "text"), ("gpt", "tag")):
        data = {"train": str(tmp_path / "missing.tsv"), "task": task}
        with pytest.raises(ConfigError, match=r"learn|needs"):
            runs.train(Recipe.from_dict({"model": {"family": model}, "data": data}), tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_training_into_a_run_is_refused_and_overwriting_is_said(tsv: Path, tmp_path: Path) -> None:
    """Broken variant: a new run on top of an old one, with the old one's checkpoints among its own."""
    run = runs.train(recipe(tsv), tmp_path / "run")
    before = {p: p.read_bytes() for p in run.path.rglob("*") if p.is_file()}
    with pytest.raises(UserError, match=r"holds a run already.*--resume.*--out.*--overwrite"):
        runs.train(recipe(tsv), tmp_path / "run")
    assert {p: p.read_bytes() for p in run.path.rglob("*") if p.is_file()} == before
    runs.train(recipe(tsv, steps=2, validate_every=2, save_every=2), tmp_path / "run", overwrite=True)
    assert RunFolder(run.path).checkpoints.steps() == [2]
    assert {r["step"] for r in RunFolder(run.path).metrics()} == {2}


# Which weights are kept -------------------------------------------------------------------------------------------------


def test_the_final_weights_are_the_mean_of_the_last_snapshots(tsv: Path, tmp_path: Path) -> None:
    """Of the last three of five. Broken variants: the last weights alone; all snapshots; a mean of means."""
    settings = {"steps": 10, "average_last": 3, "snapshot_every": 2, "save_every": 2, "keep_last": 10}
    run = runs.train(recipe(tsv, **settings), tmp_path / "run")
    assert run.snapshots.steps() == [6, 8, 10], "older ones are dropped"
    sets = [read_checkpoint(run.checkpoints.path(s))[0]["model"] for s in (6, 8, 10)]
    for name, weight in final_weights(run).items():
        mean = np.mean([s[name].double().numpy() for s in sets], axis=0)
        np.testing.assert_allclose(weight.numpy(), mean, rtol=1e-6, atol=1e-9)
    assert any(not torch.equal(final_weights(run)[n], sets[-1][n]) for n in sets[-1])


def test_a_small_model_keeps_its_beginnings(tsv: Path, tmp_path: Path) -> None:
    """Weights at steps 0, 10 and 30, those of step 0 untrained; none where the recipe says no. Caught: a history that is pruned
    with the checkpoints, a step 0 that is already trained."""
    assert [s for s in range(2000) if is_historic(s)] == [0, 10, 30, 100, 300, 1000]
    settings = {"steps": 12, "save_every": 4, "validate_every": 12, "keep_last": 1, "metric": "loss"}
    run = runs.train(recipe(tsv, **settings), tmp_path / "run")
    assert run.history.steps() == [0, 10]
    first, second = (read_checkpoint(run.history.path(step))[0]["model"] for step in (0, 10))
    assert any(not torch.equal(first[name], second[name]) for name in first)
    assert runs.train(recipe(tsv, history=False, steps=1, metric="loss"), tmp_path / "quiet").history.steps() == []


def test_the_final_weights_are_those_of_the_best_validation(tsv: Path, tmp_path: Path) -> None:
    """A rate that ruins the model after a good start. Broken variant: the last weights, whatever they are worth."""
    settings = {"steps": 8, "validate_every": 2, "save_every": 2, "keep_last": 1, "metric": "loss"}
    run = runs.train(
        recipe(tsv, **settings, learning_rate=3.0, warmup=40, schedule="constant", clip=None), tmp_path / "r"
    )
    losses = {r["step"]: r["val_loss"] for r in run.metrics() if "val_loss" in r}
    best = min(losses, key=lambda step: losses[step])
    assert best < 8, losses
    kept = read_checkpoint(run.checkpoints.path(best))[0]["model"]
    assert all(torch.equal(w, kept[n]) for n, w in final_weights(run).items())


def test_the_moving_average_is_what_is_validated_and_used(tsv: Path, tmp_path: Path) -> None:
    run = runs.train(recipe(tsv, ema=0.5, metric="loss"), tmp_path / "run")
    best = min((r for r in run.metrics() if "val_loss" in r), key=lambda r: r["val_loss"])
    tensors, _ = read_checkpoint(run.checkpoints.path(best["step"]))
    averaged = {n.removeprefix("ema/"): t for n, t in tensors["training"].items() if n.startswith("ema/")}
    final = final_weights(run)
    assert all(torch.equal(final[n], averaged[n]) for n in final)
    assert any(not torch.equal(final[n], tensors["model"][n]) for n in final)
    assert score_split(run.path, "val")[0].values["loss"] == pytest.approx(best["val_loss"], rel=1e-6)


def test_early_stopping(tsv: Path, tmp_path: Path) -> None:
    """Nothing is learned at such a rate, so each validation is no better: patience 2 ends the run at the third. Broken
    variants: a tie that counts as progress; a patience counted in steps."""
    settings = {"steps": 40, "validate_every": 2, "patience": 2, "learning_rate": 1e-12, "metric": "exact_match"}
    run = runs.train(recipe(tsv, **settings), tmp_path / "run")
    assert [r["step"] for r in run.metrics() if "val_loss" in r] == [2, 4, 6]
    final = read_checkpoint(run.final)[1]
    assert (final["step"], final["weights"]) == (6, {"step": 2})
    assert runs.resume(run.path) is None, "it is at its end, though not at its last step"
    patient = runs.train(recipe(tsv, **settings | {"steps": 8, "patience": None}), tmp_path / "patient")
    assert patient.metrics()[-1]["step"] == 8


# Settings that reach the trainer ----------------------------------------------------------------------------------------


def test_a_metric_that_is_not_measured_is_refused(tsv: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"train.metric=f1 is not measured .* choose from: loss, exact_match"):
        runs.train(recipe(tsv, metric="f1"), tmp_path / "run")
    assert not RunFolder.is_run(tmp_path / "run")


def test_bf16_is_handed_to_the_trainer(tsv: Path, tmp_path: Path) -> None:
    for precision, expected in (("bf16", torch.bfloat16), ("auto", None), ("fp32", None)):
        run = RunFolder.create(tmp_path / precision, recipe(tsv), "0")
        texts = prepare(recipe(tsv), run.path)
        session = runs.make_session(run, complete_model(recipe(tsv, precision=precision), texts), texts)
        session.log.close()
        assert session.trainer.autocast is expected


@pytest.mark.parametrize("settings", [{"accumulate": 3}, {"optimizer": "muon"}, {"checkpoint_activations": True}])
def test_runs_with_other_settings(tsv: Path, tmp_path: Path, settings: dict[str, Any]) -> None:
    run = runs.train(recipe(tsv, **settings, steps=12, label_smoothing=0.1, learning_rate=5e-3), tmp_path / "run")
    losses = [r["val_loss"] for r in run.metrics() if "val_loss" in r]
    assert losses[-1] < losses[0]


# Tokenizers -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("separate", [False, True])
def test_tokenizers_learn_from_the_training_split_alone(tmp_path: Path, separate: bool) -> None:
    """A word that only validation knows is unknown there. Broken variant: one pass over everything."""
    write_tsv(tmp_path / "train.tsv", pairs(30))
    write_tsv(tmp_path / "val.tsv", [("eins hundert", "one hundred"), ("zwei", "two")])
    settings = recipe(tmp_path, data={"val": "val.tsv", "val_fraction": 0.0, "separate_vocabularies": separate})
    (tmp_path / "run").mkdir()
    texts = prepare(settings, tmp_path / "run")
    for tokenizer, known, unknown in ((texts.source, "eins", "hundert"), (texts.target, "one", "hundred")):
        assert tokenizer.encode(unknown) == [UNK] and tokenizer.encode(known) != [UNK]
    assert (texts.source.encode("one") == [UNK]) == separate
    files = open_files(settings.data, "val", tmp_path / "run" / "data")
    assert files["source"][0].tolist()[1] == files["target"][0].tolist()[1] == UNK
    loaded = Tokenizers.load(tmp_path / "run")
    assert loaded.shared != separate and loaded.source.encode("eins zwei") == texts.source.encode("eins zwei")
    assert (tmp_path / "run" / "tokenizer.json").exists() != separate


def test_what_is_held_out_of_one_file_is_not_seen_by_its_tokenizer(tmp_path: Path) -> None:
    rows = [(f"quelle{i} wort", f"ziel{i} word") for i in range(200)]
    write_tsv(tmp_path / "train.tsv", rows)
    settings = recipe(tmp_path, data={"val_fraction": 0.2})
    (tmp_path / "run").mkdir()
    texts = prepare(settings, tmp_path / "run")
    known = [texts.source.encode(f"quelle{i}") != [UNK] for i in range(200)]
    assert 90 < sum(known) < 150, "about 60% are training"
    val = open_files(settings.data, "val", tmp_path / "run" / "data")["source"]
    assert len(val) > 20 and all(val[i][0] == UNK for i in range(len(val)))


def test_a_finished_tokenizer_is_taken_as_it_is(tsv: Path, tmp_path: Path) -> None:
    given = Tokenizer.train("char", ["abcdefghijklmnopqrstuvwxyzüß "], 100)
    given.save(tmp_path / "mine.json")
    run = runs.train(
        recipe(tsv, data={"tokenizer_file": str(tmp_path / "mine.json")}, model={"block_size": 64}), tmp_path / "run"
    )
    assert run.tokenizers.target.kind == "char" and run.tokenizers.target.vocab_size == given.vocab_size


# Each kind of data, end to end ------------------------------------------------------------------------------------------


def make_data(kind: str, folder: Path) -> dict[str, Any]:
    """Writes a small data set and gives the settings that name it."""
    rows = pairs(90)
    if kind == "two files":
        for name, side in (("train.de", 0), ("train.en", 1)):
            (folder / name).write_text("".join(row[side] + "\n" for row in rows), encoding="utf-8")
        return {"train": "train.de", "train_target": "train.en"}
    if kind == "tsv.gz":
        with gzip.open(folder / "train.tsv.gz", "wt", encoding="utf-8") as file:
            file.writelines(f"{a}\t{b}\n" for a, b in rows)
        return {"train": "train.tsv.gz"}
    if kind == "jsonl":
        records = (json.dumps({"de": a, "en": b}, ensure_ascii=False) + "\n" for a, b in rows)
        (folder / "train.jsonl").write_text("".join(records), encoding="utf-8")
        return {"train": "train.jsonl", "source_field": "de", "target_field": "en"}
    if kind == "labelled lines":
        mixed = [(side, row[side]) for row in rows for side in (0, 1)]
        (folder / "train.tsv").write_text(
            "".join(f"{('de', 'en')[s]}\t{text}\n" for s, text in mixed), encoding="utf-8"
        )
        return {"task": "classify"}
    if kind == "tagged":
        sentences = ["".join(f"{w}\t{'LOW' if w in GERMAN[:5] else 'HIGH'}\n" for w in a.split()) for a, _ in rows]
        (folder / "train.tsv").write_text("\n".join(sentences), encoding="utf-8")
        return {"task": "tag"}
    assert kind == "text"
    (folder / "train.txt").write_text("".join(f"{a} = {b}\n" for a, b in rows), encoding="utf-8")
    return {"train": "train.txt", "task": "text", "val_fraction": 0.2}


KINDS = {
    "two files": ({}, {"bleu", "exact_match"}),
    "tsv.gz": ({}, {"bleu", "exact_match"}),
    "jsonl": ({}, {"bleu", "exact_match"}),
    "labelled lines": ({"family": "bert", "head": "classify"}, {"accuracy", "f1"}),
    "tagged": ({"family": "bert", "head": "tag"}, {"accuracy", "f1"}),
    "text": ({"family": "gpt"}, {"perplexity"}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_data_trains_end_to_end(kind: str, tmp_path: Path) -> None:
    model, scores = KINDS[kind]
    data = make_data(kind, tmp_path) | {"val_fraction": 0.2}
    run = runs.train(
        recipe(tmp_path, model=model, data=data, steps=16, validate_every=8, learning_rate=1e-2), tmp_path / "r"
    )
    found = [r for r in run.metrics() if "val_loss" in r]
    assert [r["step"] for r in found] == [8, 16] and found[1]["val_loss"] < found[0]["val_loss"]
    assert {f"val_{s}" for s in scores} <= found[0].keys()
    talk = load(run.path)
    if kind == "labelled lines":
        assert run.tokenizers.labels == ["de", "en"]
        assert talk.classify("eins zwei") in ("de", "en")
    elif kind == "tagged":
        assert run.tokenizers.labels == ["HIGH", "LOW"]
        assert [t.word for t in talk.tag([["eins", "zehn"]])[0]] == ["eins", "zehn"]
    elif kind == "text":
        assert isinstance(talk.generate("eins", max_new_tokens=5), str)
    else:
        assert isinstance(talk.translate(["eins zwei"])[0], str)


def test_classes_and_tags_are_learned(tmp_path: Path) -> None:
    """Which of two languages, and which half of the numbers: both are there to be read off a word."""
    for kind, model in (("labelled lines", "classify"), ("tagged", "tag")):
        folder = tmp_path / model
        folder.mkdir()
        data = make_data(kind, folder) | {"val_fraction": 0.2}
        settings = recipe(
            folder, model={"family": "bert", "head": model}, data=data, steps=60, validate_every=60, learning_rate=2e-2
        )
        last = runs.train(settings, folder / "run").metrics()[-1]
        assert last["val_accuracy"] > 95 and last["val_f1"] > 95, (kind, last)


def test_pairs_as_prompt_and_answer(tsv: Path, tmp_path: Path) -> None:
    settings = recipe(tsv, model={"family": "gpt"}, data={"prompt_answer": True}, steps=16, learning_rate=1e-2)
    run = runs.train(settings, tmp_path / "run")
    losses = [r["val_loss"] for r in run.metrics() if "val_loss" in r]
    assert losses[-1] < losses[0]
    with pytest.raises(ConfigError, match=r"data\.prompt_answer=true"):
        runs.train(recipe(tsv, model={"family": "gpt"}), tmp_path / "without")
    assert not RunFolder.is_run(tmp_path / "without"), "nothing that looks like a run"


# Preparing --------------------------------------------------------------------------------------------------------------


def test_tags_stand_on_first_pieces(tmp_path: Path) -> None:
    """Broken variant: a tag on every piece of a word, which would count long words more often."""
    (tmp_path / "train.tsv").write_text("ab\tX\nc\tY\n\nc\tX\nabc\tY\n", encoding="utf-8")
    settings = recipe(tmp_path, data={"task": "tag", "tokenizer": "char", "val": "train.tsv", "test": "train.tsv"})
    (tmp_path / "run").mkdir()
    texts = prepare(settings, tmp_path / "run")
    files = open_files(settings.data, "train", tmp_path / "run" / "data")
    assert [texts.target.decode(files["text"][i].tolist()) for i in range(2)] == ["abc", "cabc"]
    assert files["labels"][0].tolist() == [0, IGNORE, 1] and files["labels"][1].tolist() == [0, 1, IGNORE, IGNORE]


def test_a_text_is_its_documents_with_an_end_each(tmp_path: Path) -> None:
    for name, text in (("a.txt", "one two"), ("b.txt", "three"), ("c.txt", "two two")):
        (tmp_path / "texts" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "texts" / name).write_text(text, encoding="utf-8")
    settings = recipe(tmp_path, data={"train": "texts", "task": "text", "tokenizer": "char", "val": "texts"})
    (tmp_path / "run").mkdir()
    texts = prepare(settings, tmp_path / "run")
    file = open_files(settings.data, "train", tmp_path / "run" / "data")["text"]
    decoded = [texts.target.decode(file[i].tolist()) for i in range(len(file))]
    assert decoded == ["one two", "three", "two two"] and all(file[i][-1] == EOS for i in range(3))


def test_chunks_keep_everything_in_order_and_within_bounds() -> None:
    """Broken variants: the last chunk lost; a bound on the number alone, while texts may be of any length."""
    texts = ["x" * 1_500_000, "", "y" * 3_000_000, *["z"] * 4500]
    made = list(chunks(texts))
    assert [t for chunk in made for t in chunk] == texts
    assert all(sum(map(len, chunk[:-1])) < 4_000_000 and len(chunk) <= 2000 for chunk in made)
    assert len(made) == 4


def test_only_the_beginning_is_read_where_asked(tsv: Path, tmp_path: Path) -> None:
    """Broken variant: a look that reads all of a large corpus, or other examples than the first."""
    for folder, characters in (("whole", None), ("some", 300)):
        prepare(recipe(tsv), tmp_path / folder, characters)
    some, whole = (
        list(run_examples(recipe(tsv).data, "train", tmp_path / name / "data")) for name in ("some", "whole")
    )
    assert 3 < len(some) < 30 and whole[: len(some)] == some
    reports = [DataReport.read(tmp_path / name / "data") for name in ("some", "whole")]
    assert [report is not None and report.cut_short for report in reports] == [True, False]


@pytest.mark.slow
def test_preparing_a_large_text_takes_little_memory(tmp_path: Path) -> None:
    """60 MB of text in one file, by the character: what is resident and is no page of a mapped file grows by less than two
    bytes a character would, whatever the size of the file. Broken variant: a list of all ids, 8 bytes each and more."""
    Tokenizer.train("char", ["".join(map(chr, range(32, 127))) + "\n"], 200).save(tmp_path / "mine.json")
    line = "The quick brown fox jumps over the lazy dog, and 1234567890 times more.\n"
    (tmp_path / "text.txt").write_text(line * (60_000_000 // len(line)), encoding="utf-8")
    grown = int(run_program("memory_of_preparing", tmp_path, timeout=300))
    assert TokenFile.open(tmp_path / "data" / "train.text").tokens.size > 59_000_000
    assert grown < 110_000_000, f"grew by {grown / 1e6:.0f} MB"
