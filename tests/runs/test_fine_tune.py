"""Fine-tuning: a run begins with another's weights and tokenizers, learns all of them, some, or corrections beside them; and a
run that is stopped anywhere and resumed is the one that was never stopped, without the run it came from.

Broken variants these catch: a resume before the first checkpoint that begins from random weights; corrections that are lost in
the final weights; a frozen tensor that weight decay still moves; new tokens that change how old texts are cut.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import glassformer
from glassformer import runs
from glassformer.cli.verbs import run_command
from glassformer.config import Recipe
from glassformer.config.changes import fine_tuned
from glassformer.errors import ConfigError, UserError
from glassformer.files import durable
from glassformer.formats.adapter import export_adapter
from glassformer.formats.import_run import read_source, write_run
from glassformer.nn.lora import adapter_tensors, merge_lora
from glassformer.runs.checkpoint import read_checkpoint, write_checkpoint
from glassformer.runs.folder import RunFolder
from glassformer.text.tokenizer import CONTROL, UNK, Tokenizer
from glassformer.text.tokenizers import extend
from glassformer.training.progress import StepReport
from tests.commands import call
from tests.external_models import marian
from tests.small_runs import small_run, write_data

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A run on numbers written in German and English, by characters."""
    return small_run(tmp_path_factory.mktemp("base"), "pairs", steps=12, save_every=12, validate_every=12)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    write_data(folder, "pairs", 80)
    return folder / "train.tsv"


def recipe_of(start: runs.RunFolder, data: Path, **train: Any) -> Recipe:
    often = {"steps": 8, "save_every": 4, "validate_every": 8, "log_every": 1, "validate_examples": 4, "history": False}
    values = {"data": {"train": str(data), "batch_tokens": 200}, "train": often | train}
    return fine_tuned(start.recipe, values, name="tuned")


def final(run: Path) -> dict[str, torch.Tensor]:
    return read_checkpoint(run / "final")[0]["model"]


class Crash(Exception):
    pass


class CrashAt:
    """A callback that brings the process down, as far as the run can tell."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_log(self, report: StepReport) -> None:
        if report.step == self.step:
            raise Crash

    def on_message(self, text: str) -> None:
        """Nothing."""


WAYS: dict[str, dict[str, Any]] = {
    "full": {},
    "lora": {"lora_rank": 2, "weight_decay": 0.1},
    "frozen": {"freeze": ["encoder.*", "*embedding*"], "weight_decay": 0.1, "decay_embeddings": True},
    "average": {"lora_rank": 2, "lora_targets": ["*.query", "*.value"], "ema": 0.5},
}


@pytest.mark.parametrize("way", WAYS)
def test_resumed_is_never_stopped_without_the_run_it_came_from(
    way: str, base: RunFolder, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(base.path, tmp_path / "base")
    start = runs.RunFolder.open(tmp_path / "base")
    recipe = recipe_of(start, data, **WAYS[way])
    runs.train(recipe, tmp_path / "whole", start=start)
    wanted = final(tmp_path / "whole")
    for step in (2, 6):  # before the first checkpoint, and after it
        with pytest.raises(Crash):
            runs.train(recipe, tmp_path / f"crash{step}", start=start, callbacks=[CrashAt(step)])

    def full_disk(place: str) -> None:
        if place == "before-prepared":
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(durable, "fault_point", full_disk)
        with pytest.raises(KeyboardInterrupt):
            runs.train(recipe, tmp_path / "prepared", start=start)
    assert runs.resume(tmp_path / "prepared") is not None
    shutil.rmtree(tmp_path / "base")
    for name in ("crash2", "crash6"):
        assert runs.resume(tmp_path / name) is not None
    for name in ("crash2", "crash6", "prepared"):
        found = final(tmp_path / name)
        assert found.keys() == wanted.keys()
        assert all(torch.equal(found[n], wanted[n]) for n in wanted), name


def test_it_begins_with_the_weights_of_the_run(base: RunFolder, data: Path, tmp_path: Path) -> None:
    start = runs.RunFolder.open(base.path)
    run = runs.train(recipe_of(start, data, steps=1, learning_rate=1e-12, history=True), tmp_path / "run", start=start)
    before, after = final(base.path), final(run.path)
    assert all(torch.allclose(before[n], after[n], atol=1e-9) for n in before)
    first = read_checkpoint(run.history.path(0))[0]["model"]
    assert all(torch.equal(before[n], first[n]) for n in before)
    assert run.recipe.model == base.recipe.model
    texts = ["eins zwei", "drei"]
    assert run.tokenizers.source.encode_batch(texts) == base.tokenizers.source.encode_batch(texts)


def test_corrections_alone_learn_and_are_in_the_final_weights(base: RunFolder, data: Path, tmp_path: Path) -> None:
    start = runs.RunFolder.open(base.path)
    run = runs.train(recipe_of(start, data, lora_rank=2, learning_rate=0.01), tmp_path / "run", start=start)
    before, after = final(base.path), final(run.path)
    raw = read_checkpoint(run.checkpoints.path(8))[0]["model"]
    assert all(torch.equal(before[n], raw[n]) for n in before)  # what was there is as it was
    changed = {n for n in before if not torch.equal(before[n], after[n])}
    assert changed == {n.replace("lora_a", "weight") for n in raw if n.endswith("lora_a")}
    whole = run.path / "final" / "model.safetensors"
    adapter = load_file(run.path / "final" / "adapter.safetensors")
    assert adapter.keys() == adapter_tensors(raw).keys()
    assert sum(t.numel() for t in adapter.values()) < 0.4 * sum(t.numel() for t in before.values())
    again = merge_lora({**before, **adapter})
    assert all(torch.equal(again[n], after[n]) for n in after)
    plain, beside = (
        glassformer.load(run.path),
        glassformer.load(base.path, adapter=whole.with_name("adapter.safetensors")),
    )
    assert plain.translate("eins zwei", n_best=2, beam=2).texts == beside.translate("eins zwei", n_best=2, beam=2).texts
    assert glassformer.load(base.path).metrics and not beside.metrics, "those of the run without the adapter"
    at_step = run.load_model(step=4)
    assert set(dict(at_step.named_parameters())) == set(before)


def test_an_adapter_goes_out_alone_and_comes_back_as_a_run(base: RunFolder, data: Path, tmp_path: Path) -> None:
    """By the command line; beside other weights, and where more than corrections learned, it is refused."""
    start = runs.RunFolder.open(base.path)
    run = runs.train(recipe_of(start, data, lora_rank=2, learning_rate=0.01), tmp_path / "run", start=start)
    assert run_command(["export", str(run.path), "--to", "adapter"]) == 0
    out = tmp_path / "run-adapter"
    assert (
        sorted(os.listdir(out)) == ["README.md", "adapter.safetensors", "glassformer.json"]
        and "rank 2" in (out / "README.md").read_text()
    )
    assert (out / "adapter.safetensors").stat().st_size < 0.5 * (run.final / "model.safetensors").stat().st_size
    given = ["--adapter", str(out / "adapter.safetensors"), "--out"]
    assert run_command(["import", str(base.path), *given, str(tmp_path / "both")]) == 0
    whole, both = final(run.path), final(tmp_path / "both")
    assert whole.keys() == both.keys() and all(torch.equal(whole[n], both[n]) for n in whole)
    assert str(glassformer.load(tmp_path / "both").translate("eins")) == str(
        glassformer.load(run.path).translate("eins")
    )
    with pytest.raises(UserError, match="learned beside other weights"):
        glassformer.load(run.path, adapter=out / "adapter.safetensors")
    for nameless in (tmp_path / "adapter.safetensors", tmp_path / "final" / "adapter.safetensors"):
        nameless.parent.mkdir(exist_ok=True)
        nameless.write_bytes((run.final / "adapter.safetensors").read_bytes())  # it says nothing by itself
        with pytest.raises(UserError, match="does not say which weights it was learned beside"):
            glassformer.load(base.path, adapter=nameless)
    with pytest.raises(UserError, match="learned beside other weights"):
        glassformer.load(run.path, adapter=run.final / "adapter.safetensors")
    with pytest.raises(UserError, match="not empty"):
        run_command(["export", str(run.path), "--to", "adapter"])
    assert run_command(["export", str(run.path), "--to", "adapter", "--overwrite"]) == 0
    with pytest.raises(UserError, match="has no adapter"):
        export_adapter(base, tmp_path / "none")
    weights, state = read_checkpoint(run.start)
    weights["model"]["decoder.0.mlp.up.bias"] += 1  # as if it had learned, too
    shutil.rmtree(run.start)
    write_checkpoint(run.start, weights, state)
    with pytest.raises(UserError, match=r"decoder.0.mlp.up.bias learned too"):
        export_adapter(run, tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_what_is_frozen_does_not_move(base: RunFolder, data: Path, tmp_path: Path) -> None:
    start = runs.RunFolder.open(base.path)
    patterns = {"freeze": ["encoder.*", "*.norm.*"], "weight_decay": 0.5}
    run = runs.train(recipe_of(start, data, **patterns), tmp_path / "run", start=start)
    before, after = final(base.path), final(run.path)
    still = {n for n in before if torch.equal(before[n], after[n])}
    assert {n for n in before if n.startswith("encoder.")} <= still
    assert "decoder.0.mlp.up.weight" not in still
    with pytest.raises(ConfigError, match="matches no parameter"):
        runs.train(recipe_of(start, data, freeze=["encodr.*"]), tmp_path / "other", start=start)
    with pytest.raises(ConfigError, match="nothing to learn"):
        runs.train(recipe_of(start, data, freeze=["*"]), tmp_path / "other", start=start)
    assert not (tmp_path / "other").exists()


def test_a_recipe_that_contradicts_the_run_is_told_so(base: RunFolder) -> None:
    for table, values in (("model", {"n_layer": 5}), ("data", {"tokenizer": "unigram"}), ("model", {"preset": "gpt2"})):
        with pytest.raises(ConfigError, match="leave it out"):
            fine_tuned(base.recipe, {table: values})
    same = fine_tuned(base.recipe, {"model": {"n_layer": base.recipe.model.n_layer, "dropout": 0.3}})
    assert same.model.dropout == 0.3
    assert same.train.learning_rate == pytest.approx(base.recipe.train.learning_rate / 10)
    assert fine_tuned(base.recipe, {"train": {"learning_rate": 0.5}}).train.learning_rate == 0.5


# ------------------------------------------------------------------------------------------------------- a larger vocabulary


def test_what_was_chosen_for_pieces_of_words_gives_way_to_a_run_of_whole_words(
    base: RunFolder, data: Path, tmp_path: Path
) -> None:
    """What a person wrote is refused, not dropped. Caught: a recipe's own setting that disappears without a word."""
    with pytest.raises(ConfigError, match=r"bpe_dropout is for"):
        fine_tuned(base.recipe, {"data": {"train": str(data), "bpe_dropout": 0.1}})
    short = [
        "train.steps=2",
        "train.validate_every=2",
        "train.save_every=2",
        "train.device=cpu",
        "data.batch_tokens=64",
    ]
    command = ("train", data, *short, "--from", base.path, "--out", tmp_path / "tuned")
    refused = call(*command, "data.bpe_dropout=0.1")
    assert refused.returncode == 2 and "bpe_dropout is for" in refused.stderr and not (tmp_path / "tuned").exists()
    assert call(*command).returncode == 0
    assert RunFolder.open(tmp_path / "tuned").recipe.data.bpe_dropout == 0
    (tmp_path / "words.tsv").write_text("hund\tdog\nkatze\tcat\nmaus\tmouse\n" * 10)  # read by the character, as such
    own_words = ("train", tmp_path / "words.tsv", *short, "--from", base.path, "--out", tmp_path / "words")
    assert call(*own_words).returncode == 0
    assert RunFolder.open(tmp_path / "words").recipe.data.tokenizer == base.recipe.data.tokenizer != "char"


@pytest.mark.parametrize("kind", ["char", "word"])
def test_old_texts_stay_as_they_were_cut_and_new_ones_are_known(kind: str) -> None:
    old, new = ["one two three", "two four"] * 5, ["zwölf größer", "zwölf Größe zwölf"] * 5
    before = Tokenizer.train(kind, old, 290)
    after = extend(before, new, 12)
    assert before.vocab_size < after.vocab_size <= before.vocab_size + 12
    assert after.encode_batch(old) == before.encode_batch(old)
    assert [after.pieces([i]) for i in range(before.vocab_size)] == [
        before.pieces([i]) for i in range(before.vocab_size)
    ]
    assert UNK not in after.encode("zwölf")
    assert all(after.decode(after.encode(text)) == text for text in new) or kind == "word"
    assert extend(before, new, 12).library.to_str() == after.library.to_str()


def test_new_rows_begin_near_those_they_are_made_of(base: RunFolder, tmp_path: Path) -> None:
    path = tmp_path / "new.tsv"
    path.write_text("".join(f"Ωμέγα {n} eins\tömega {n} one\n" for n in range(60)), encoding="utf-8")
    start = runs.RunFolder.open(base.path)
    recipe = fine_tuned(
        start.recipe,
        {"data": {"train": str(path), "extend_vocabulary": 30}, "train": {"steps": 2, "validate_examples": 2}},
        name="more",
    )
    run = runs.train(recipe, tmp_path / "run", start=start)
    old, new = base.tokenizers.target, run.tokenizers.target
    assert new.vocab_size > old.vocab_size and run.recipe.model.vocab_size == new.vocab_size
    begins = read_checkpoint(run.start)[0]["model"]["embedding.weight"]
    table = final(base.path)["embedding.weight"]
    assert torch.equal(begins[: old.vocab_size], table)
    words = table[CONTROL:]
    off = (begins[old.vocab_size :] - words.mean(0)) / words.std(0, correction=0)
    assert 0 < float(off.abs().mean()) < 0.3
    assert glassformer.load(run.path).translate("Ωμέγα") is not None


def test_a_masked_model_becomes_a_classifier(tmp_path: Path) -> None:
    base = small_run(tmp_path / "a", "masked", steps=3, save_every=3, validate_every=3)
    (tmp_path / "b").mkdir()
    write_data(tmp_path / "b", "classify", 60)
    start = runs.RunFolder.open(base.path)
    values = {
        "data": {"task": "classify", "train": str(tmp_path / "b" / "train.tsv")},
        "train": {"steps": 3, "validate_examples": 4},
    }
    run = runs.train(fine_tuned(start.recipe, values, name="c"), tmp_path / "run", start=start)
    assert run.recipe.model.head == "classify"
    assert glassformer.load(run.path).classify("eins zwei") in ("odd", "even")


# ------------------------------------------------------------------------------------------------------ an imported model


@pytest.mark.parametrize("way", [{}, {"train.lora_rank": 8}], ids=["full", "lora"])
def test_an_imported_marian_learns_and_is_used(way: dict[str, Any], tmp_path: Path) -> None:
    """Of random weights; end to end, by the command line."""
    marian(tmp_path / "theirs")
    write_run(read_source(str(tmp_path / "theirs")), tmp_path / "base")
    pairs = [("the cat sat", "a hat"), ("three mice", "the mat"), ("my cat", "four mice"), ("a hat", "on the mat")]
    (tmp_path / "pairs.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in pairs * 20))
    (tmp_path / "mine.toml").write_text(
        '[data]\ntrain = "pairs.tsv"\nval = "pairs.tsv"\n'
        "[train]\nsteps = 120\nlearning_rate = 0.01\nwarmup = 5\nvalidate_every = 120\nvalidate_examples = 4\n"
        "[model]\ndropout = 0.0\n"
    )
    settings = [f"{key}={value}" for key, value in way.items()]
    done = call("train", "mine.toml", *settings, "--from", "base", "--out", "tuned", cwd=tmp_path, drawn=False)
    assert done.returncode == 0, done.stderr
    shutil.rmtree(tmp_path / "base")
    before = RunFolder(tmp_path / "tuned").metrics()
    losses = [line["loss"] for line in before if "loss" in line]
    assert losses[-1] < 0.5 * losses[0]
    if not way:
        assert [str(t) for t in glassformer.load(tmp_path / "tuned").translate([a for a, _ in pairs])] == [
            b for _, b in pairs
        ]
    assert call("doctor", "tuned", cwd=tmp_path).returncode == 0


def test_python_fine_tunes_too(base: RunFolder, tmp_path: Path) -> None:
    pairs = [(f"eins {n}", f"one {n}") for n in range(40)]
    recipe = {"train": {"steps": 2, "validate_examples": 2}, "data": {"task": "pairs"}}
    model = glassformer.train(recipe, pairs, out=tmp_path / "run", from_run=base.path)
    assert model.recipe.train.learning_rate == pytest.approx(base.recipe.train.learning_rate / 10)
    with pytest.raises(UserError, match="there is no run"):
        glassformer.train(recipe, pairs, out=tmp_path / "other", from_run=tmp_path / "nowhere")
