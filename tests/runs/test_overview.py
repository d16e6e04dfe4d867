"""What `train` says before its first step and after its last."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from glassformer.cli.train import print_next
from glassformer.runs.folder import RunFolder
from glassformer.runs.overview import overview, rows_of, warnings, which_weights
from glassformer.runs.setup import make_session
from tests.small_runs import small_run

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, RunFolder]:
    folder = tmp_path_factory.mktemp("overview")
    return {kind: small_run(folder / kind, kind, steps=4, validate_every=2) for kind in ("pairs", "text", "tag")}


def session(run: RunFolder, **changes: Any) -> Any:
    recipe = replace(run.recipe, train=replace(run.recipe.train, **changes))
    return make_session(run, recipe, run.tokenizers)


def test_the_first_screen_tells_what_will_happen(runs: dict[str, RunFolder]) -> None:
    rows = rows_of(session(runs["pairs"]))
    for label, part in {
        "device": "CPU",
        "model": f"{session(runs['pairs']).model.num_params():,} parameters",
        "examples": "train ",
        "vocabulary": f"word, {runs['pairs'].tokenizers.target.vocab_size:,} tokens",
        "steps": "4, ",
        "best is by": "BLEU on val, every 2 steps",
        "cost": "FLOP",
    }.items():
        assert part in rows[label], (label, rows[label])
    counts = [int(part.split()[1].replace(",", "")) for part in rows["examples"].split(";")[0].split(", ")]
    assert sum(counts) <= 160 and "taken out of train" in rows["examples"]
    assert "loss on val" in rows_of(session(runs["text"]))["best is by"]
    assert "blocks of 24 tokens" in rows_of(session(runs["text"]))["examples"]
    assert "accuracy on val" in rows_of(session(runs["tag"]))["best is by"]


def test_what_is_too_long_is_counted(runs: dict[str, RunFolder]) -> None:
    run = runs["pairs"]
    recipe = replace(run.recipe, data=replace(run.recipe.data, max_length=5))
    narrow = make_session(run, recipe, run.tokenizers)
    dropped = narrow.trainer.batches.dropped
    assert dropped > 0 and rows_of(narrow)["left out"] == f"{dropped} too long"
    assert "left out" not in rows_of(session(run))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"steps": 100_000}, ["epochs of", "by heart", "train.steps=", "train.patience=5"]),
        ({"steps": 100_000, "patience": 3}, []),
        ({"warmup": 4}, ["train.warmup=4 is not over when the run is (train.steps=4)"]),
        ({"warmup": 4, "schedule": "constant"}, []),
        ({"validate_every": 50}, ["train.validate_every=50 is more than all 4 steps"]),
        ({}, []),
    ],
)
def test_warnings_where_it_will_not_work(runs: dict[str, RunFolder], changes: dict[str, Any], said: list[str]) -> None:
    found = list(warnings(session(runs["pairs"], **changes)))
    assert all(part in " ".join(found) for part in said) and bool(found) == bool(said), found
    assert [line for line in overview(session(runs["pairs"], **changes)) if line.startswith("warning: ")] == [
        f"warning: {text}" for text in found
    ]


def test_targets_that_no_answer_can_be_as_long_as(runs: dict[str, RunFolder]) -> None:
    """Told with the ratio that lets all be written. Broken variant: nothing said, and two answers in three cut off."""
    run = runs["pairs"]

    def warned(**decode: Any) -> list[str]:
        recipe = replace(run.recipe, decode=replace(run.recipe.decode, **decode))
        return list(warnings(make_session(run, recipe, run.tokenizers)))

    (told,) = warned(max_ratio=0.5, max_extra=0)
    better = re.search(r"decode.max_ratio=(\d+) would do", told)
    assert "val targets are longer than decode.max_ratio=0.5 and decode.max_extra=0 allow" in told and better
    assert warned(max_ratio=float(better[1]), max_extra=0) == []
    assert warned(max_ratio=0.5, max_extra=0, max_new_tokens=100) == []


def test_a_vocabulary_too_large_for_its_text(runs: dict[str, RunFolder], monkeypatch: pytest.MonkeyPatch) -> None:
    """8,000 pieces for some hundred sentences. Caught: no warning; one that a sensible vocabulary gets as well."""
    run = runs["pairs"]
    found = make_session(run, replace(run.recipe, data=replace(run.recipe.data, tokenizer="bpe")), run.tokenizers)
    assert list(warnings(found)) == []
    monkeypatch.setattr(run.tokenizers.target, "vocab_size", 8000)
    (said,) = warnings(found)
    assert "a vocabulary of 8,000 for" in said and "data.vocab_size=512" in said


def test_the_last_screen_says_which_weights_and_why(runs: dict[str, RunFolder], tmp_path: Path) -> None:
    run = runs["text"]
    losses = {line["step"]: line["val_loss"] for line in run.metrics() if "val_loss" in line}
    best = min(losses, key=lambda step: losses[step])
    assert f"the weights of step {best}, with the best loss on val ({losses[best]:.4f}" in which_weights(
        run, run.recipe
    )
    mean = small_run(tmp_path, "text", name="mean", steps=4, save_every=2, average_last=2)
    assert "the mean of the weights at 2 steps, 2 to 4" in which_weights(mean, mean.recipe)


def test_what_to_do_next_is_quoted_and_has_its_split(
    runs: dict[str, RunFolder], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Caught: `evaluate` of a text, which has no test split; a path in which the shell sees two words."""
    print_next(runs["text"].recipe, runs["text"].path)
    assert capsys.readouterr().out.rstrip().endswith(f"glassformer evaluate {runs['text'].path} --split val")
    print_next(runs["pairs"].recipe, tmp_path / "two words")
    said = capsys.readouterr().out.splitlines()
    assert all(f"'{tmp_path}/two words'" in line for line in said) and not said[-1].endswith("--split val")
