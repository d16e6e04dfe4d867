"""`glassformer sweep`: what is varied, what is refused, the paired test over seeds, and trials that are stopped and go on."""

from __future__ import annotations

import json
import re
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from glassformer.errors import ConfigError, UserError
from glassformer.evaluation.significance import percent, seeds_and_examples
from glassformer.machine import cores
from glassformer.runs import STOPPED
from glassformer_lab.sweep import sweep as study
from glassformer_lab.sweep.report import SweepReport, draw, markdown
from glassformer_lab.sweep.scores import TrialScores, make_rows, paired
from glassformer_lab.sweep.sweep import make_sweep, share_of_cores
from glassformer_lab.sweep.variants import Variant, make_variants, parse_vary, ready_sets, resolve
from tests.commands import begin, call
from tests.counts import count

# What is varied ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("model.n_head=1,2", [("model.n_head=1",), ("model.n_head=2",)]),
        (" train.betas=[0.9,0.98],[0.8,0.9] ", [("train.betas=[0.9,0.98]",), ("train.betas=[0.8,0.9]",)]),
        (
            "model.n_head=1,8 model.head_size=64,8",
            [("model.n_head=1", "model.head_size=64"), ("model.n_head=8", "model.head_size=8")],
        ),
        ("data.train=a b.txt,c.txt", [("data.train=a b.txt",), ("data.train=c.txt",)]),
    ],
)
def test_vary_is_read(text: str, settings: list[tuple[str, ...]]) -> None:
    """Broken variants: a list cut at its comma; a blank in a value taken for the next setting."""
    assert parse_vary(text) == settings


@pytest.mark.parametrize(
    "text", ["", "n_head=1,2", "model.n_head", "model.n_head=1,,2", "model.n_head=1,2 model.head_size=8"]
)
def test_vary_that_says_nothing_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--vary"):
        parse_vary(text)


def test_one_at_a_time_or_all_combinations() -> None:
    vary = ["model.n_head=1,2", "model.dropout=0.0,0.1,0.2"]
    alone, crossed = make_variants(vary), make_variants(vary, cross=True)
    assert [v.name for v in alone] == [
        "model.n_head=1", "model.n_head=2", "model.dropout=0.0", "model.dropout=0.1", "model.dropout=0.2",
    ]  # fmt: skip
    assert len(crossed) == 6 and crossed[5].settings == ("model.n_head=2", "model.dropout=0.2")
    with pytest.raises(ConfigError, match="varied twice"):
        make_variants(["model.n_head=1", "model.n_head=2"])


def test_the_recipe_itself_is_the_base_and_no_variant() -> None:
    """dates has 4 heads: the value 4 is the base's own row."""
    found = resolve("dates", [], make_variants(["model.n_head=2,4"]))
    assert list(found) == ["base", "model.n_head=2"]
    with pytest.raises(ConfigError, match="nothing is varied"):
        resolve("dates", [], make_variants(["model.n_head=4"]))


@pytest.mark.parametrize(
    ("setting", "why"),
    [
        ("model.n_head=3", "not divisible by model.n_head 3"),
        ("model.layers=3", "no setting 'layers'"),
        ("train.metric=accuracy", "is not measured"),
        ("data.builtin=datse", "no built-in data 'datse'"),
        ("model.norm=batches", "must be one of"),
    ],
)
def test_a_variant_that_cannot_be_is_refused_by_its_name(setting: str, why: str) -> None:
    with pytest.raises(ConfigError, match=rf"the variant {re.escape(repr(setting))} cannot be: .*{re.escape(why)}"):
        make_sweep("dates", [f"{setting},{setting}"])


def test_what_else_is_refused(tmp_path: Path) -> None:
    """Before anything is trained: nothing is left behind, and nobody's folder is written into."""
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "notes.txt").write_text("mine")
    for name, vary, more, why in (
        ("dates", [], {}, "say what to vary"),
        ("tabel3", [], {}, "did you mean 'table3'"),
        ("table3", ["model.n_head=2"], {}, "variants of its own"),
        ("dates", ["model.n_head=2"], {"seeds": 0}, "--seeds must be at least 1"),
    ):
        with pytest.raises(UserError, match=why):
            make_sweep(name, vary, **more)  # type: ignore[arg-type]
    asked = make_sweep("dates", ["model.n_head=2"])
    with pytest.raises(UserError, match="--jobs must be at least 1"):
        study.sweep(asked, tmp_path / "new", jobs=0)
    with pytest.raises(UserError, match="is not empty"):
        study.sweep(asked, tmp_path / "theirs")
    done = call("sweep", "dates", "--vary", "model.n_head=3", cwd=tmp_path)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1 and "the variant 'model.n_head=3'" in done.stderr
    assert [p.name for p in tmp_path.rglob("*")] == ["theirs", "notes.txt"]


# Ready sets -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [one.name for one in ready_sets()])
@pytest.mark.parametrize("quick", [False, True])
def test_ready_sets_build(name: str, quick: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every variant is a recipe that can be, and none is the base again."""
    monkeypatch.chdir(tmp_path)
    files = tmp_path / "data" / "multi30k-en-de"  # where `data get` would put them
    files.mkdir(parents=True)
    for split in ("train", "val", "test_2016_flickr"):
        for language in ("en", "de"):
            (files / f"{split}.lc.norm.tok.{language}").write_text("a\n")
    found = make_sweep(name, quick=quick)
    ready = next(one for one in ready_sets() if one.name == name)
    assert [v.name for v in found.variants] == ["base", *(v.name for v in ready.variants)]
    budgets = {(r.train.steps, r.data.batch_tokens, r.train.patience) for r in found.recipes.values()}
    assert len(budgets) == 1, "equal budgets"
    assert found.seeds == (1 if quick else 3)


def test_table3_has_every_row_of_the_paper() -> None:
    """Heads at constant compute; keys smaller than values; depth, width and hidden size; dropout and smoothing; positions."""
    recipes = make_sweep("table3").recipes
    assert len({r.model.n_head * r.model.key_size for n, r in recipes.items() if n.startswith("(A)")} | {64}) == 1
    letters = [name[1] for name in recipes if name[0] == "("]
    assert {x: letters.count(x) for x in "ABCDE"} == {"A": 4, "B": 4, "C": 7, "D": 4, "E": 1} and "big" in recipes
    assert all(r.model.val_size == 16 > r.model.key_size for n, r in recipes.items() if n.startswith("(B) d_k"))


def test_the_gpt_of_the_course() -> None:
    recipes = make_sweep("gpt-ablation").recipes
    shapes = {name: (r.model.residual, r.model.positions != "none") for name, r in recipes.items()}
    assert shapes == {
        "base": (True, True), "no residuals": (False, True), "no positions": (True, False), "neither": (False, False),
    }  # fmt: skip
    assert all((r.model.n_layer, r.model.n_head) == (4, 4) for r in recipes.values())


def test_the_list_and_what_runs_side_by_side() -> None:
    done = call("sweep")
    assert done.returncode == 0 and all(one.name in done.stdout for one in ready_sets())
    asked = make_sweep("dates", ["model.n_head=2"], ["train.device=cpu"], seeds=200)
    assert share_of_cores(asked, 3) == (3, 1), "a core each, and the same threads however many run at once"
    assert share_of_cores(asked, None) == (cores(), 1)
    told = make_sweep("dates", ["model.n_head=2"], ["train.device=cpu", f"train.threads={cores()}"])
    assert share_of_cores(told, None) == (1, cores())


# The test against the base ------------------------------------------------------------------------------------------------


def made_up(hits: np.ndarray, examples: str = "same", tokens: str = "same") -> TrialScores:
    table = {
        "exact_match": np.stack([hits, np.ones_like(hits)], 1),
        "loss": np.stack([2 - hits, np.ones_like(hits)], 1),
    }
    return TrialScores(
        "test", examples, tokens, "exact_match", {k: v.tolist() for k, v in table.items()}, 10, 20, 5, 100, 1.0
    )


def test_the_test_is_over_seeds_and_examples() -> None:
    """A variant that is right 8 points more often on the same examples is better; one that differs by seeds alone is not.
    Broken variants: the first seed alone; examples of one seed held against another's."""
    draw = np.random.default_rng(0)
    base = [(draw.random(400) < 0.6).astype(float) for _ in range(3)]
    better = [np.maximum(h, draw.random(400) < 0.2) for h in base]
    other = [(draw.random(400) < 0.6).astype(float) for _ in range(3)]
    variants = [Variant("base"), Variant("better"), Variant("other")]
    scored = {
        name: {seed: made_up(h) for seed, h in enumerate(hits)}
        for name, hits in (("base", base), ("better", better), ("other", other))
    }
    rows = make_rows(variants, scored, {})
    wanted = 100 * (np.mean(better) - np.mean(base))
    assert rows[1].tests["exact_match"].difference.value == pytest.approx(wanted)
    assert [row.verdict("exact_match") for row in rows] == ["", "better", "unclear"]
    assert rows[1].verdict("loss") == "better", "a lower loss is better"
    assert (
        rows[1].mean("exact_match") == pytest.approx(100 * np.mean(better)) and (rows[1].spread("exact_match") or 0) > 0
    )


def arms(
    draw: np.random.Generator, seeds: int, luck: float, taste: float, better: float = 0.0
) -> list[list[np.ndarray]]:
    """Hits of two arms on 60 examples: examples differ in how hard they are (and by `taste` in how hard for one arm), trainings
    by `luck`, and the second arm is so much `better`, all in log odds."""
    hard = 0.3 + 1.2 * draw.standard_normal(60)
    made = []
    for gain in (0.0, better):
        own = hard + taste * draw.standard_normal(60) + gain
        levels = [own + luck * draw.standard_normal() for _ in range(seeds)]
        hits = [(draw.random(60) < 1 / (1 + np.exp(-level))).astype(float) for level in levels]
        made.append([np.stack([h, np.ones(60)], 1) for h in hits])
    return made


@pytest.mark.slow
@pytest.mark.parametrize(("seeds", "luck", "taste"), [(2, 0.3, 0.0), (3, 0.3, 0.5), (3, 0.6, 0.0), (5, 0.0, 1.0)])
def test_equal_arms_are_seldom_called_different(seeds: int, luck: float, taste: float) -> None:
    """In at most 7 of 100 simulations, though trainings differ by luck; and where one is much better it is found.
    Broken variant: examples drawn again and seeds not, which calls up to a half of them different."""
    draw = np.random.default_rng(5)

    def different(better: float) -> bool:
        change = seeds_and_examples(*arms(draw, seeds, luck, taste, better), percent).difference
        return not change.low <= 0 <= change.high

    tries = count(fast=100, soak=300)
    assert sum(different(0.0) for _ in range(tries)) <= 0.07 * tries
    assert sum(different(4.0 + 6 * luck) for _ in range(20)) >= 15


def test_one_seed_settles_nothing() -> None:
    """However large the difference: another seed might have turned it round."""
    hits = {"base": np.zeros(50), "other": np.ones(50)}
    for seeds, said in ((1, "unclear"), (2, "better")):
        scored = {name: {seed: made_up(h) for seed in range(seeds)} for name, h in hits.items()}
        rows = make_rows([Variant("base"), Variant("other")], scored, {})
        assert rows[1].verdict("exact_match") == rows[1].verdict("loss") == said


def test_other_examples_are_not_compared() -> None:
    hits = np.ones(5)
    one, two = made_up(hits), made_up(hits, examples="others")
    assert paired([one], [two], "exact_match") is None
    recut = made_up(hits, tokens="others")
    assert paired([one], [recut], "loss") is None and paired([one], [recut], "exact_match") is not None


def test_a_trial_that_did_not_end_is_told_and_the_rest_compared() -> None:
    scored = {"base": {1: made_up(np.ones(6)), 2: made_up(np.ones(6))}, "wild": {2: made_up(np.zeros(6))}}
    rows = make_rows([Variant("base"), Variant("wild", group="w")], scored, {"wild": {1: "the loss is not finite"}})
    assert rows[1].tests["exact_match"].difference.value == -100 and rows[1].failed == {1: "the loss is not finite"}
    facts = {"budget": "b", "notes": ["n"], "machine": "m", "torch": "t", "glassformer": "g", "date": "d"}
    report = SweepReport("x", "about", "glassformer sweep x", rows, "exact_match", {"base": [], "wild": []}, facts)
    page = markdown(report)
    assert "| wild |" in page and "1 did not end" in page and "the loss is not finite" in page
    assert report.failed == {"wild": {1: "the loss is not finite"}} and json.dumps(report.to_dict())
    assert draw(report) == {}, "where nothing was logged"


# The whole thing ----------------------------------------------------------------------------------------------------------

SETTINGS = [
    "model.n_layer=1", "model.n_embd=8", "model.n_head=1", "model.n_hidden=8", "data.size=60", "data.batch_tokens=64",
    "train.steps=100", "train.save_every=10", "train.validate_every=50", "train.validate_examples=4", "train.log_every=5",
    "train.warmup=2", "train.device=cpu",
]  # fmt: skip
TINY = ["copy", *SETTINGS, "--vary", "model.n_head=2", "--seeds", "1", "--jobs", "2"]


def result(out: Path) -> Any:
    """The table without what differs from one time to the next: how long it took."""
    found = json.loads((out / "ablation.json").read_text(encoding="utf-8"))
    return [{k: v for k, v in row.items() if k != "seconds"} for row in found["rows"]]


@pytest.mark.slow
def test_stopped_and_gone_on_with_is_undisturbed(tmp_path: Path) -> None:
    """Two trials side by side are asked to stop as soon as they train, and save; one after the other they go on, and the table is
    that of a sweep which was never disturbed. What was trained with other settings is not taken for its own. Broken variants: a
    worker that is ended before it has saved; a trial that was waiting and is begun after all."""
    straight, stopped = tmp_path / "straight", tmp_path / "stopped"
    asked = begin("sweep", *TINY, "--out", stopped, said=tmp_path)
    deadline = time.monotonic() + 150
    while len(list(stopped.glob("trials/*/checkpoints/step-*"))) < 2:
        assert time.monotonic() < deadline, "no checkpoint came to be"
        time.sleep(0.02)
    asked.send_signal(signal.SIGTERM)
    told = asked.ended()
    assert told.returncode == STOPPED and "go on with: glassformer sweep copy" in told.stderr, told.stderr
    assert not list(stopped.glob("ablation.*"))
    ended = call("sweep", *TINY[:-1], "1", "--out", stopped)
    assert ended.returncode == 0, ended.stderr
    study.sweep(make_sweep("copy", ["model.n_head=2"], SETTINGS, seeds=1), straight, jobs=1)
    rows = result(straight)
    assert result(stopped) == rows
    assert [row["name"] for row in rows] == ["base", "model.n_head=2"] and all(row["seeds"] == [1] for row in rows)
    assert {"ablation.md", "curves.png", "curves.svg"} <= {p.name for p in stopped.iterdir()}
    before = {p: p.stat().st_mtime_ns for p in straight.glob("trials/**/*.safetensors")}
    study.sweep(make_sweep("copy", ["model.n_head=2"], SETTINGS, seeds=1), straight, jobs=1)
    other = make_sweep("copy", ["model.n_head=2"], [*SETTINGS, "train.learning_rate=1"], seeds=1)
    with pytest.raises(UserError, match=r"train\.learning_rate"):
        study.sweep(other, straight, jobs=1)
    assert {p: p.stat().st_mtime_ns for p in straight.glob("trials/**/*.safetensors")} == before
