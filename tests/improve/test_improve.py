"""`glassformer improve`: steps that are kept where held-out pairs say so, nothing held out is learned from, and it goes on."""

from __future__ import annotations

import json
import random
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from glassformer import runs
from glassformer.api.evaluation import evaluate_run
from glassformer.cli.improve import pair_writer
from glassformer.data.doctor.roles import pairs_to_clean
from glassformer.data.sources import open_split
from glassformer.data.splits import normalized
from glassformer.errors import UserError
from glassformer.improve import improve as study
from glassformer.improve import trial
from glassformer.improve.held_out import keys_of, prepare_pairs, read_jsonl, write_jsonl
from glassformer.improve.trial import Answered
from glassformer.runs.runner import KEPT
from tests.commands import call
from tests.faults.processes import Runner
from tests.number_pairs import pairs, write_tsv

for module in ("ftfy", "datasketch", "py3langid"):
    pytest.importorskip(module)

pytestmark = pytest.mark.usefixtures("as_in_production")  # whole trainings: the rooms below hold models to their shapes
STEPS = ["clean", "back-translated", "fine-tuned", "averaged"]
SMALL = ("data.tokenizer=word", "model.n_layer=1", "model.n_head=2", "model.n_embd=16", "model.n_hidden=16")
SMALL += ("train.steps=20", "train.learning_rate=0.02", "train.warmup=2", "data.batch_tokens=512", "model.dropout=0.0")
SMALL += ("train.optimizer=adamw", "data.augment=0")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Number pairs of which one in eight is a copy of its source, and text of the target language."""
    folder = tmp_path_factory.mktemp("improve")
    rows = [pair for pair in pairs(500) if len(pair[0].split()) > 2]
    draw = random.Random(3)
    write_tsv(folder / "pairs.tsv", [(a, a if draw.random() < 0.125 else b) for a, b in rows])
    texts = [target for _source, target in pairs(120, seed=1)] + [target for _source, target in rows[:40]]
    (folder / "mono.txt").write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    return folder


def improved(home: Path, out: Path, **options: Any) -> study.ImprovementReport:
    write = pair_writer("improve", None, "cpu", answer_first=True)
    settings: dict[str, Any] = {"text": home / "mono.txt", "overrides": SMALL, "device": "cpu"} | options
    return study.improve([home / "pairs.tsv"], out, write, **settings)


@pytest.fixture(scope="module")
def done(home: Path) -> tuple[Path, study.ImprovementReport]:
    return home / "out", improved(home, home / "out")


@pytest.mark.slow
def test_nothing_that_is_held_out_is_learned_from(done: tuple[Path, study.ImprovementReport]) -> None:
    """Caught: a held-out source or target among raw, clean or synthetic pairs; copies held out, which cleaning takes."""
    out, found = done
    held = read_jsonl(out / "val.jsonl") + read_jsonl(out / "test.jsonl")
    sources, targets = keys_of(held)
    assert all(a != b for a, b in held) and found.pairs["val"] + found.pairs["test"] == len(held) > 40
    synthetic = [tuple(line.split("\t")) for line in (out / "synthetic.tsv").read_text(encoding="utf-8").splitlines()]
    for learned in (read_jsonl(out / "raw.jsonl"), read_jsonl(out / "clean.jsonl"), synthetic):
        assert learned
        assert not any(normalized(b) in targets for _a, b in learned)
    for learned in (read_jsonl(out / "raw.jsonl"), read_jsonl(out / "clean.jsonl")):
        assert not any(normalized(a) in sources for a, _b in learned)
    mono = (out / "mono.txt").read_text(encoding="utf-8").splitlines()
    assert {b for _a, b in synthetic} <= set(mono)  # the text is the target


@pytest.mark.slow
def test_every_step_is_told_and_the_best_is_the_last_that_was_kept(
    done: tuple[Path, study.ImprovementReport],
) -> None:
    """By scores that `evaluate` gives. Caught: val and test exchanged, a gain over another run than is said."""
    out, found = done
    assert [one["step"] for one in found.steps] == STEPS
    best, scores = "plain", {"plain": found.plain}
    for one in found.steps:
        scores[one["step"]] = evaluate_run(out / one["step"], split="val", device="cpu").scores.values[found.metric]
        assert one["against"] == best
        assert one["difference"]["value"] == pytest.approx(scores[one["step"]] - scores[best], abs=0.02)
        assert one["kept"] == (one["difference"]["low"] > 0 and scores[one["step"]] >= 1)
        best = one["step"] if one["kept"] else best
    assert found.best == str(out / best)
    for side, run in (("first", "plain"), ("second", best)):
        own = evaluate_run(out / run, split="test", device="cpu").scores.values[found.metric]
        assert found.test[side]["value"] == pytest.approx(own, abs=0.02)
    told = (out / "improve.md").read_text(encoding="utf-8")
    assert {line.split("\t")[0] for line in (out / "removed.tsv").read_text(encoding="utf-8").splitlines()} > {"copy"}
    assert "What was taken stands in removed.tsv" in told
    assert all(f"| {step} |" in told for step in STEPS)
    assert json.loads((out / "improve.json").read_text(encoding="utf-8"))["steps"] == found.steps


@pytest.mark.slow
def test_killed_again_and_again_it_goes_on_to_the_same_report(
    home: Path, done: tuple[Path, study.ImprovementReport]
) -> None:
    """By SIGKILL, in turns in the middle of a training and before a file is complete. Caught: a step made twice, or decided anew
    by other numbers; a file half written that is taken for a whole one."""
    out = home / "killed"
    arguments = ["improve", *map(str, (home / "pairs.tsv", *SMALL, "--text", home / "mono.txt", "--out", out))]
    moments = [{"at": "before-fsync", "nth": 2}, {"at": "step", "nth": 45}, {"at": "before-fsync", "nth": 90}]
    codes = list[int]()
    while not codes or codes[-1]:
        fault = moments[len(codes) % len(moments)] | {"do": "kill"}
        ended = Runner(out).command([*arguments, "--device", "cpu"], fault).wait()
        codes.append(ended.code)
        assert ended.code in (0, -signal.SIGKILL) and len(codes) < 30, ended.said
    assert len(codes) > 5
    journal = (out / KEPT).read_bytes()
    again = improved(home, out)
    first, second = (one.to_dict() | {"best": "", "facts": {}} for one in (done[1], again))
    assert first == second
    assert (out / KEPT).read_bytes().strip() == journal.strip()
    with pytest.raises(UserError, match="was begun with other minutes; choose another --out, or remove it"):
        improved(home, out, minutes=7.0)


def test_pairs_with_separators_of_unicode_are_read_as_they_were_written(tmp_path: Path) -> None:
    """Broken variant: lines that end at U+2028 or U+0085, as str.splitlines has it."""
    rows = [("one\u2028two\x85three", "一\u2029二"), ("a", "b\x1cc")]
    write_jsonl(tmp_path / "pairs.jsonl", rows)
    assert read_jsonl(tmp_path / "pairs.jsonl") == rows


def right_in(first: int, last: int) -> Answered:
    """A run that is right in these of 1,000 pairs, and in no other."""
    hits = np.zeros(1000)
    hits[first:last] = 1.0
    return Answered("exact_match", np.stack([hits, np.ones(1000)], 1), 1.0)


@pytest.mark.parametrize(
    ("plain", "new", "kept"),
    [
        ((0, 500), (0, 600), True),
        ((0, 500), (0, 400), False),
        ((0, 500), (250, 755), False),  # better by five pairs, but right elsewhere: luck
        ((0, 0), (0, 8), False),  # surely better, and nothing learned
    ],
)
def test_a_step_is_kept_only_if_all_of_its_interval_is_above_zero(
    plain: tuple[int, int], new: tuple[int, int], kept: bool, tmp_path: Path
) -> None:
    """And what was decided is not decided again. Caught: the mean taken for the interval, the sides exchanged."""
    work = study.Improvement(tmp_path, "cpu", 60.0, False, ())
    work.answers = {("plain", "val"): right_in(*plain), ("new", "val"): right_in(*new)}
    gain = work.consider("new", lambda: None)  # type: ignore[arg-type, return-value]
    assert gain == pytest.approx((new[1] - new[0] - plain[1] + plain[0]) / 10)
    assert work.best == ("new" if kept else "plain")
    again = study.Improvement(tmp_path, "cpu", 60.0, False, ())
    assert again.consider("new", lambda: 1 / 0) == gain  # type: ignore[arg-type, return-value]
    assert again.best == work.best


@pytest.mark.parametrize("has_text", [True, False])
def test_the_steps_share_out_all_of_the_time(has_text: bool, tmp_path: Path) -> None:
    work = study.Improvement(tmp_path, "cpu", 600.0, has_text, ())
    used = [name for name in study.SHARES if has_text or name not in study.NEED_TEXT]
    assert sum(map(work.share, used)) == pytest.approx(600.0)


@pytest.mark.slow
def test_what_cannot_be_improved_is_refused_in_a_sentence(home: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "plain").write_text("thesis")
    write_tsv(tmp_path / "few.tsv", pairs(3))
    write_tsv(tmp_path / "fewer.tsv", pairs(2))
    (tmp_path / "blank.txt").write_text(" \n\n")
    for words, sentence in (
        (("improve", home / "pairs.tsv", "--text", tmp_path / "blank.txt", "--out", tmp_path / "q"), "has no line to"),
        (("improve", tmp_path / "nowhere.tsv"), "there is no file"),
        (("improve", tmp_path / "few.tsv", "--out", tmp_path / "few"), "too few to hold some out"),
        (
            ("improve", tmp_path / "fewer.tsv", "--out", tmp_path / "few"),
            "too few to hold some out",
        ),  # not: other pairs
        (("improve", home / "pairs.tsv", "--out", tmp_path / "mine"), "is there already"),
        (
            ("improve", home / "pairs.tsv", "--text", tmp_path / "no.txt", "--out", tmp_path / "o"),
            "no.txt cannot be read",
        ),
        (("improve", home / "pairs.tsv", "model.n_layer=none", "--out", tmp_path / "p"), "n_layer"),
    ):
        ended = call(*words, cwd=tmp_path)
        assert ended.returncode == 2 and sentence in ended.stderr, ended.stderr
    assert (tmp_path / "mine" / "plain").read_text() == "thesis" and not (tmp_path / "p").exists()


@pytest.mark.parametrize("names", [["test.csv"], ["val.de", "test.en"]])
def test_pairs_are_read_as_they_are_asked_to_be(
    names: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fields by their names, two aligned files, files with names of another split; the trainings read what was written of them.
    Broken variants: the fields source and target whatever is said; the names asked of the files of the improvement, too."""
    rows, begun = pairs(300), []
    sides = [[row[side] for row in rows] for side in (0, 1)] if len(names) == 2 else [["de,en", *map(",".join, rows)]]
    for name, lines in zip(names, sides, strict=True):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")

    def begin(recipe: Any, out: Path) -> Any:
        begun.append(recipe)
        raise runs.Stopped

    monkeypatch.setattr(study, "train_or_resume", begin)
    monkeypatch.setattr(study.Improvement, "step_seconds", lambda self: 0.1)
    fields = ["data.source_field=de", "data.target_field=en"] if len(names) == 1 else []
    files = [tmp_path / name for name in names]
    with pytest.raises(runs.Stopped):
        study.improve(files, tmp_path / "out", lambda *_: None, overrides=[*SMALL, *fields], device="cpu")
    assert set(read_jsonl(tmp_path / "out" / "raw.jsonl")) <= set(rows)
    read = list(open_split(begun[0].data, "train"))
    assert len(read) > 150 and set(read) <= set(rows) and begun[0].model.n_layer == 1


def test_what_cleaning_took_stands_beside_where_too_little_is_left(tmp_path: Path) -> None:
    """Broken variant: it is written only once there are pairs to hold out."""
    write_tsv(tmp_path / "p.tsv", [("the same words here", "the same words here")])
    files = {name: tmp_path / f"{name}.jsonl" for name in study.FILES}
    with pytest.raises(UserError, match=r"0 of 1 pairs are left .* taken: .*removed\.tsv"):
        prepare_pairs(pairs_to_clean([tmp_path / "p.tsv"], {}), None, files)
    assert (tmp_path / "removed.tsv").read_text().startswith("copy\t1\tthe same")


def test_the_speed_of_a_model_is_that_of_many_sentences(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU needs as long for a few sentences as for a thousand. Broken variant: the speed of the few that are asked first."""
    now, asked = [0.0], []

    def written(model: Any, texts: list[str]) -> None:
        asked.append(len(texts))
        now[0] += 0.3 + len(texts) / 10_000

    monkeypatch.setattr(trial, "translations", written)
    monkeypatch.setattr(trial.time, "perf_counter", lambda: now[0])
    assert 5_000 < trial.writing_speed(None, ["a", "b"] * 32) < 10_000  # type: ignore[arg-type]
    assert len(asked) < 10
