"""`glassformer train` and `glassformer evaluate` as a person calls them: processes of their own, with exit codes, and for
each mistake its sentence."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import glassformer
from glassformer import runs
from glassformer.cli.train import print_next
from glassformer.config import read_recipe
from glassformer.data.sources import open_split
from glassformer.errors import UserError, install_hint
from glassformer.runs.folder import RunFolder
from glassformer.screen import QUIET
from tests.commands import call, call_by_hand
from tests.number_pairs import pairs, recipe, write_tsv

pytestmark = pytest.mark.slow

RECIPE = """
[model]
n_layer = 1
n_head = 2
n_embd = 16
block_size = 32
dropout = 0.0
[data]
path = "{folder}"
train = "train.tsv"
tokenizer = "word"
batch_tokens = 256
[train]
steps = 6
validate_every = 3
validate_examples = 8
save_every = 3
log_every = 2
warmup = 2
[decode]
max_extra = 4
"""


def sentence(done: subprocess.CompletedProcess[str]) -> str:
    """Of a command that refused: one line, no traceback, exit code 2."""
    assert done.returncode == 2, (done.returncode, done.stdout, done.stderr)
    assert "Traceback" not in done.stderr and done.stdout == ""
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith("glassformer: "), done.stderr
    return lines[0].removeprefix("glassformer: ")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recipe, its data, and a run made from it by the command."""
    folder = tmp_path_factory.mktemp("home")
    write_tsv(folder / "train.tsv", pairs(120))
    (folder / "numbers.toml").write_text(RECIPE.format(folder=folder), encoding="utf-8")
    done = call_by_hand("train", "numbers.toml", "train.steps=7", "decode.beam=2", cwd=folder)
    assert done.returncode == 0, done.stderr
    (folder / "said.json").write_text(json.dumps([done.stdout, done.stderr]), encoding="utf-8")
    return folder


# A good run -------------------------------------------------------------------------------------------------------------


def test_train_leaves_a_run_and_says_what_there_is(home: Path) -> None:
    """Plain lines on stderr where that is no terminal, the ending on stdout. Broken variants: control characters in a log
    file; an override that is not applied."""
    out, err = json.loads((home / "said.json").read_text(encoding="utf-8"))
    run = RunFolder.open(home / "runs" / "numbers")
    assert run.recipe.train.steps == 7 and run.recipe.decode.beam == 2 and run.recipe.name == "numbers"
    assert run.metrics()[-1]["step"] == 7
    assert "the run is in runs/numbers" in out and "curves: runs/numbers/curves.png" in out
    assert "glassformer translate runs/numbers" in out and "glassformer evaluate runs/numbers" in out
    assert all((run.path / f"curves.{kind}").stat().st_size > 1000 for kind in ("png", "svg"))
    assert "\x1b" not in err and "\r" not in err and "Traceback" not in err
    lines = err.splitlines()
    assert any(line.startswith("step 2/7  loss ") and " lr " in line for line in lines)
    shown = [line for line in lines if ": validation  loss " in line]
    assert [line.split(":")[0] for line in shown] == ["step 3", "step 6", "step 7"]
    assert all(name in shown[0] for name in ("perplexity", "token accuracy", "exact match", "BLEU", "chrF"))
    assert any("→" in line for line in lines), "a few samples"
    signed = [line for line in lines if "sacrebleu's" in line and "|version:" in line]
    assert len(signed) == 2, "the signatures of BLEU and chrF, once"


def test_a_run_is_not_trained_over_without_a_word(home: Path) -> None:
    said = sentence(call("train", "numbers.toml", cwd=home))
    assert "runs/numbers holds a run already" in said and "--overwrite" in said and "--resume" in said
    assert RunFolder.open(home / "runs" / "numbers").recipe.train.steps == 7


def test_overwrite_and_out(home: Path) -> None:
    for steps in (2, 4):
        done = call("train", home / "numbers.toml", f"train.steps={steps}", "--out", home / "other", "--overwrite")
        assert done.returncode == 0, done.stderr
        assert RunFolder.open(home / "other").checkpoints.steps()[-1] == steps


# Evaluate ---------------------------------------------------------------------------------------------------------------


def test_quiet_is_quiet(home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Not a word of a training that goes well, by the command or from Python, gone on with or not; and what goes wrong is
    told. Caught: notes on the data, what is next, the end of a run that is over."""
    words = ("train", "numbers.toml", "train.warmup=9", "data.max_length=5", "--out", "runs/quiet", "--quiet")
    for more in ((), ("--resume",), ("train.steps=8", "--resume", "--accept-changes")):
        done = call(*words, *more, cwd=home)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert "holds a run already" in sentence(call(*words, cwd=home))
    glassformer.train(home / "numbers.toml", out=home / "runs" / "hushed", max_length=5, quiet=True)
    assert capfd.readouterr() == ("", "") and not QUIET.get()


def test_evaluate_a_split(home: Path) -> None:
    """The numbers of a validation come back. Broken variant: another split, or weights of another step."""
    run = RunFolder.open(home / "runs" / "numbers")
    found = json.loads(call("evaluate", "runs/numbers", "--split", "val", "--json", cwd=home).stdout)
    best = run.checkpoints.path(run.metrics()[-1]["step"])
    assert best.exists() and found["on"] == "val" and found["run"] == "runs/numbers"
    losses = [r["val_loss"] for r in run.metrics() if "val_loss" in r]
    assert any(found["loss"] == pytest.approx(loss, rel=1e-5) for loss in losses)
    assert found["signatures"]["bleu"].startswith("nrefs:1|case:mixed") and "chrf" in found["signatures"]
    assert found["examples"] == sum(1 for _ in open_split(run.recipe.data, "val"))


def test_evaluate_files(home: Path) -> None:
    """Sources and references line by line, as a table. Broken variant: the training file's settings mixed into these."""
    rows = pairs(12, seed=5)
    for name, side in (("in.de", 0), ("ref.en", 1)):
        (home / name).write_text("".join(row[side] + "\n" for row in rows), encoding="utf-8")
    done = call("evaluate", "runs/numbers", "--source", "in.de", "--target", "ref.en", "--limit", "10", cwd=home)
    assert done.returncode == 0, done.stderr
    for part in ("in.de and ref.en (10 examples)", "exact match", "BLEU", "chrF", "tok:13a", "→"):
        assert part in done.stdout, part


def test_files_beside_a_run_of_two_files(tmp_path: Path) -> None:
    """A run that was itself given as aligned files, whose files are gone since. Broken variant: their names still in the
    settings with which the new ones are read."""
    for name in ("train", "val"):
        for kind, side in (("de", 0), ("en", 1)):
            text = "".join(row[side] + "\n" for row in pairs(40, len(name)))
            (tmp_path / f"{name}.{kind}").write_text(text, encoding="utf-8")
    data = {"train": "train.de", "train_target": "train.en", "val": "val.de", "val_target": "val.en"}
    run = runs.train(recipe(tmp_path, data=data, steps=2, validate_every=2), tmp_path / "run")
    for name in ("train", "val"):
        for kind in ("de", "en"):
            (tmp_path / f"{name}.{kind}").rename(tmp_path / f"new-{name}.{kind}")
    given = ("--source", tmp_path / "new-val.de", "--target", tmp_path / "new-val.en")
    assert json.loads(call("evaluate", run.path, *given, "--json").stdout)["examples"] == 40
    (tmp_path / "short.en").write_text("one\n", encoding="utf-8")
    said = sentence(call("evaluate", run.path, "--source", tmp_path / "new-val.de", "--target", tmp_path / "short.en"))
    assert "40 lines, but" in said and "has 1" in said
    assert "go together" in sentence(call("evaluate", run.path, "--source", tmp_path / "new-val.de"))
    assert "train, val or test" in sentence(call("evaluate", run.path, "--split", "dev"))


def test_evaluate_a_text(tmp_path: Path) -> None:
    """A GPT on plain text; there is no test text, so it is the validation's, and that is said."""
    (tmp_path / "train.txt").write_text("".join(f"{a} = {b}\n" for a, b in pairs(200)), encoding="utf-8")
    data = {"train": "train.txt", "task": "text", "val_fraction": 0.2}
    run = runs.train(recipe(tmp_path, model={"family": "gpt"}, data=data, steps=4, validate_every=4), tmp_path / "run")
    found = json.loads(call("evaluate", run.path, "--split", "val", "--json").stdout)
    assert found["loss"] == pytest.approx(run.metrics()[-1]["val_loss"], rel=1e-5)
    assert found["examples"] > 1 and "bleu" not in found
    instead = call("evaluate", run.path, "--json")
    assert instead.returncode == 0 and "no test split" in instead.stderr
    assert json.loads(instead.stdout)["loss"] == found["loss"]


# Bad input --------------------------------------------------------------------------------------------------------------


def nothing(folder: Path) -> list[str]:
    (folder / "train.tsv").unlink()
    (folder / "trein.tsv").write_text("a\tb\n", encoding="utf-8")
    return []


def one_column(folder: Path) -> list[str]:
    (folder / "train.tsv").write_text("eins\tone\nzwei\n", encoding="utf-8")
    return ["data.tokenizer=bpe", "data.vocab_size=300"]


def unequal(folder: Path) -> list[str]:
    (folder / "a.de").write_text("eins\nzwei\ndrei\n" * 50, encoding="utf-8")
    (folder / "a.en").write_text("one\ntwo\nthree\n" * 50 + "four\n", encoding="utf-8")
    return ["data.train=a.de", "data.train_target=a.en"]


def empty(folder: Path) -> list[str]:
    (folder / "train.tsv").write_text("", encoding="utf-8")
    return []


def not_utf8(folder: Path) -> list[str]:
    (folder / "train.tsv").write_bytes("eins\tone\nfünf\tfive\n".encode("latin-1") * 3)
    return []


def typo(folder: Path) -> list[str]:
    file = folder / "numbers.toml"
    file.write_text(file.read_text(encoding="utf-8").replace("warmup", "warm_up"), encoding="utf-8")
    return []


def short_text(folder: Path) -> list[str]:
    (folder / "a.txt").write_text("eins zwei drei\nvier fünf\n", encoding="utf-8")
    return ["data.task=text", "data.train=a.txt", "data.val=a.txt", "model.family=gpt"]


def unknown_label(folder: Path) -> list[str]:
    (folder / "train.tsv").write_text("".join(f"de\t{a}\nen\t{b}\n" for a, b in pairs(20)), encoding="utf-8")
    (folder / "val.tsv").write_text("fr\tun deux\n", encoding="utf-8")
    return ["data.task=classify", "data.val=val.tsv", "model.family=bert", "model.head=classify"]


MISTAKES: dict[str, tuple[Callable[[Path], list[str]], list[str]]] = {
    "missing file": (nothing, ["there is no file", "train.tsv", "did you mean 'trein.tsv'"]),
    "one column only": (one_column, ["train.tsv, line 2", "only one column", "tab"]),
    "unequal line counts": (unequal, ["a.de: 150 lines, but", "a.en has 151"]),
    "empty file": (empty, ["train.tsv is empty"]),
    "invalid UTF-8": (not_utf8, ["train.tsv, line 2", "not valid UTF-8 (byte 0xfc)"]),
    "a recipe with a typo": (typo, ["there is no setting 'warm_up' in [train]", "did you mean 'warmup'"]),
    "a text shorter than a block": (short_text, ["less than one block of 32", "model.block_size"]),
    "an unknown label": (unknown_label, ["the label 'fr' in the val data never occurs in training", "de, en"]),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_bad_input_is_a_sentence_and_leaves_no_run(mistake: str, tmp_path: Path) -> None:
    """Exit code 2, one line that says what, where and how, and nothing that looks like a run. Broken variant: a run.json
    written before the data were read."""
    write_tsv(tmp_path / "train.tsv", pairs(60))
    (tmp_path / "numbers.toml").write_text(RECIPE.format(folder=tmp_path), encoding="utf-8")
    spoil, parts = MISTAKES[mistake]
    said = sentence(call("train", "numbers.toml", *spoil(tmp_path), "--out", "run", cwd=tmp_path))
    assert all(part in said for part in parts), said
    assert not (tmp_path / "run").exists() and not list(tmp_path.rglob("*.safetensors"))


def test_after_a_mistake_the_same_folder_can_be_used(tmp_path: Path) -> None:
    """Broken variant: what the failed attempt left behind is in the way, or is mixed into the next."""
    write_tsv(tmp_path / "train.tsv", pairs(60))
    settings = recipe(tmp_path, data={"val": "val.tsv"}, steps=2, validate_every=2)
    (tmp_path / "val.tsv").write_bytes(b"\xff\tone\n")
    with pytest.raises(UserError, match="UTF-8"):
        runs.train(settings, tmp_path / "run")
    write_tsv(tmp_path / "val.tsv", pairs(5, seed=9))
    assert runs.train(settings, tmp_path / "run").metrics()[-1]["step"] == 2


def test_an_unknown_label_at_test_time(tmp_path: Path) -> None:
    """Training knows nothing of the test file; `evaluate` meets it."""
    labelled = "".join(f"de\t{a}\nen\t{b}\n" for a, b in pairs(30))
    (tmp_path / "train.tsv").write_text(labelled, encoding="utf-8")
    (tmp_path / "test.tsv").write_text("de\teins\nfr\tun deux\n", encoding="utf-8")
    data = {"task": "classify", "test": "test.tsv", "val_fraction": 0.1}
    model = {"family": "bert", "head": "classify"}
    run = runs.train(recipe(tmp_path, model=model, data=data, steps=2, validate_every=2), tmp_path / "run")
    said = sentence(call("evaluate", run.path))
    assert "the label 'fr' in the test data never occurs in training, which knows de, en" in said


def test_a_setting_of_the_command_line_is_checked(home: Path) -> None:
    assert "did you mean 'steps'" in sentence(call("train", "numbers.toml", "train.step=3", cwd=home))
    assert "there is no recipe 'datess' (did you mean 'dates'?)" in sentence(call("train", "datess", cwd=home))


@pytest.mark.parametrize(
    ("name", "changes", "command"),
    [
        ("dates", [], 'glassformer translate x "…"'),
        ("stdlib-gpt", [], 'glassformer generate x "…"'),
        ("dates", ["model.family=gpt", "data.prompt_answer=true"], 'glassformer translate x "…"'),
        ("stdlib-bert", [], 'glassformer fill x "… ___ …"'),
        ("languages", [], 'glassformer classify x "…"'),
        ("languages", ["model.family=gpt", "model.head=classify"], 'glassformer classify x "…"'),
        ("date-parts", [], 'glassformer tag x "…"'),
    ],
)
def test_what_to_do_next_can_be_typed(
    name: str, changes: list[str], command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Caught: a text without a mask for `fill`, which is refused."""
    print_next(read_recipe(name, changes), Path("x"))
    assert command in capsys.readouterr().out


@pytest.mark.parametrize("setting", ["tensorboard", "wandb"])
def test_an_extra_that_is_not_installed_is_a_sentence(
    setting: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Caught: a traceback of an import, and a folder that looks like a run."""
    monkeypatch.setitem(sys.modules, setting, None)
    write_tsv(tmp_path / "train.tsv", pairs(60))
    with pytest.raises(
        UserError, match=rf"train.{setting} needs {setting}; install it with: {re.escape(install_hint(setting))}"
    ):
        runs.train(recipe(tmp_path, steps=2, **{setting: True}), tmp_path / "run")
    assert not (tmp_path / "run").exists()
