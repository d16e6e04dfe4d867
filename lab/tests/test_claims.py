"""Studies: trials that are kept and resumed, what is judged of them, and each study in small."""

from __future__ import annotations

import inspect
import json
import os
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch

from glassformer.errors import UserError
from glassformer.language import in_language
from glassformer_lab.claims import decoder_only, heads, parts, rnn, timing, training
from glassformer_lab.claims.claim import (
    DEFAULT,
    NAMES,
    QUICK,
    Budget,
    Claim,
    Results,
    all_claims,
    claim_named,
    parse_claim,
)
from glassformer_lab.claims.decoder_only import rank_of
from glassformer_lab.claims.judgement import judge
from glassformer_lab.claims.report import markdown, run
from glassformer_lab.claims.rnn import RecurrentTranslator
from glassformer_lab.claims.scale import power_law
from glassformer_lab.claims.training import Letters, Strings, TrainArgs, exact_match, make_pairs, summed_loss
from glassformer_lab.runner import KEPT, TrialCall, run_trials
from glassformer_lab.verdict import verdict

TINY = Budget("quick", 1, 0.002)


# ---- carrying out


CALLS: list[int] = []


def counted(budget: Budget, size: int, seed: int) -> dict[str, float]:
    CALLS.append(size)
    if size == 3 and len(CALLS) < 4:
        raise KeyboardInterrupt
    return {"value": size + torch.rand(()).item() / 100}


MADE_UP = """
name = "made-up"
claim = "it is so"
said_by = "a test"
minutes = 0
trial = "counted"

[[grid]]
size = [1, 3]

[[judge]]
[[judge.condition]]
rule = "larger"
text = "three is more than one"
key = "value"
ours = { size = 3 }
theirs = { size = 1 }
margin = 1.0

[[table]]
title = "values"
columns = ["size", "value"]
[[table.rows]]
each = ["size first"]
cells = ["{size}", { key = "value", digits = 2 }]

[[panel]]
title = "values"
up = "value"
across = "size"
name = "value"
x = "size"
key = "value"
"""


def made_up() -> Claim:
    return parse_claim(MADE_UP, __name__)


def test_a_study_that_was_broken_off_goes_on_and_finds_the_same(tmp_path: Path) -> None:
    CALLS.clear()
    with pytest.raises(KeyboardInterrupt):
        run(made_up(), QUICK, tmp_path / "broken", jobs=1)
    assert len((tmp_path / "broken" / KEPT).read_text().splitlines()) == 2
    with (tmp_path / "broken" / KEPT).open("a") as file:
        file.write('{"key": "torn')
    report = run(made_up(), QUICK, tmp_path / "broken", jobs=1)
    run(made_up(), QUICK, tmp_path / "broken", jobs=1)
    assert CALLS == [1, 1, 3, 3, 3]  # none of the kept ones again
    whole = run(made_up(), QUICK, tmp_path / "whole", jobs=1)
    assert report.finding == whole.finding
    assert report.finding.told()["en"] == "holds (1 of 1)"
    assert "**holds (1 of 1)**" in markdown(report)
    assert (
        json.loads((tmp_path / "whole" / "made-up.json").read_text())["parts"][0]["conditions"][0]["outcome"] == "holds"
    )
    assert (tmp_path / "whole" / "made-up.png").stat().st_size > 1000


def test_other_people_s_files_stay(tmp_path: Path) -> None:
    """And are seen before the first trial. Broken variant: after the last, hours later."""
    CALLS.clear()
    (tmp_path / "made-up.md").write_text("mine")
    with pytest.raises(UserError, match="was not written by this command"):
        run(made_up(), QUICK, tmp_path, jobs=1)
    assert (tmp_path / "made-up.md").read_text() == "mine" and not CALLS


def test_every_study_is_planned_at_every_effort_and_named_once() -> None:
    assert [claim.name for claim in all_claims()] == list(NAMES) and len(set(NAMES)) == len(NAMES) >= 18
    assert {path.stem for path in Path(training.__file__).parent.glob("*.toml")} == set(NAMES)
    for claim in all_claims():
        quick, default = claim.plan(QUICK), claim.plan(DEFAULT)
        assert 0 < len(quick) <= len(default)
        assert len({json.dumps(one, sort_keys=True) for one in default}) == len(default)
        assert in_language(claim.claim, "zh") != claim.claim and callable(claim.run_trial)
    with pytest.raises(UserError, match="did you mean 'norms'"):
        claim_named("norm")


def test_cases_are_the_combinations_that_were_tried() -> None:
    """In the order of the plan, the first setting varying slowest. Broken variants: combinations that nobody tried; values in
    the order of the trials and not of each setting."""
    sizes = [{"kind": "a", "size": 2}, {"kind": "a", "size": 1}, {"kind": "b", "size": 1}]
    results = Results(tuple((one, {"value": float(one["size"])}) for one in sizes))
    assert results.cases(["kind", "size"]) == sizes
    assert results.cases(["size sorted", "kind"])[0] == {"size": 1, "kind": "a"}
    assert results.cases(["size last"]) == results.cases(["size 7"]) == [{"size": 1}]
    assert results.cases(["kind but a", "size first"]) == [] and results.cases(["size 2"]) == [{"size": 2}]
    assert results.mean_std("other") == "–", "a number that no trial has"


def test_a_condition_without_its_trials_is_left_out_and_a_template_names_its_case() -> None:
    """A smaller budget has fewer arms. Broken variants: a pair made of two lengths; a condition judged on nothing."""
    text = MADE_UP.replace("ours = { size = 3 }", "ours = { size = 4 }") + '[names.size]\n1 = "one"\n'
    results = Results(tuple(({"size": n, "seed": s}, {"value": float(n + s)}) for n in (1, 3) for s in (0, 1)))
    assert judge(parse_claim(text, __name__), results).parts[0].conditions == ()
    found = judge(parse_claim(text.replace("size = 4", "size = 3"), __name__), results)
    assert found.parts[0].conditions[0].outcome == "holds" and found.tables[0].rows == (("one", "1.50 ± 0.71"),)


@pytest.fixture
def few_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight at most to a batch and to a test, and nothing timed twice: all that a trial does, at a fraction of its cost."""

    def at_most(most: int, name: str, function: Any) -> Any:
        signature = inspect.signature(function)

        def called(*args: Any, **kwargs: Any) -> Any:
            given = signature.bind(*args, **kwargs)
            given.apply_defaults()
            given.arguments[name] = min(most, given.arguments[name])
            return function(*given.args, **given.kwargs)

        return called

    for owner in (Letters, Strings):
        for name in ("batch", "test", "val"):
            monkeypatch.setattr(owner, name, at_most(8, "count", getattr(owner, name)))
    rows_at = training.rows_at
    monkeypatch.setattr(training, "rows_at", lambda text, starts, width: rows_at(text, starts[:8], width))
    for module in (decoder_only, heads, parts, rnn):
        monkeypatch.setattr(module, "in_turns", at_most(1, "repeats", timing.in_turns))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_each_study_in_small(name: str, tmp_path: Path, few_examples: None) -> None:
    """Every kind of trial once or twice, its table, its picture and a verdict by the rule."""
    report = run(claim_named(name), TINY, tmp_path, jobs=1)
    assert [part.verdict for part in report.finding.parts] == [
        verdict(part.conditions) for part in report.finding.parts
    ]
    assert all(part.conditions for part in report.finding.parts)
    assert all(len(row) == len(table.columns) for table in report.finding.tables for row in table.rows)
    assert all(table.rows for table in report.finding.tables)
    assert (tmp_path / f"{name}.png").stat().st_size > 3000


# ---- the laboratory


@pytest.mark.slow
def test_right_answers_are_those_that_greedy_decoding_writes() -> None:
    """Counted without decoding, and by decoding token by token."""
    from glassformer.models import Transformer

    torch.manual_seed(0)
    task = Letters("copy", 1, 3, words=4)
    model = Transformer(n_layer=1, n_head=2, n_embd=32, vocab_size=task.vocabulary, block_size=16, dropout=0.0)
    training.train_on(model, task, TrainArgs(80, rate=5e-3, batch=32), 0)
    pairs = task.test(40)
    model.eval()
    right = 0
    for i, length in enumerate(pairs.source_lengths):
        source = pairs.source[i : i + 1, :length]
        written = [training.BEGIN]
        while len(written) < 8 and written[-1] != training.END:
            with torch.no_grad():
                written.append(int(model(source, torch.tensor([written]))[0, -1].argmax()))
        right += written[1:] == [*source[0].tolist(), training.END]
    assert 0 < right < 40
    assert exact_match(model, pairs) == pytest.approx(100 * right / 40)


def test_the_recurrent_translator_does_not_see_padding_nor_the_future() -> None:
    torch.manual_seed(0)
    model = RecurrentTranslator(20, 16, attends=True).double().eval()
    source, target = torch.randint(3, 20, (2, 6)), torch.randint(3, 20, (2, 5))
    alone = model(source[:1, :4], target[:1], [4], [5])
    torch.testing.assert_close(model(source, target, [4, 6], [5, 5])[:1], alone)
    later = target.clone()
    later[:, 3:] = 3
    torch.testing.assert_close(model(source, later, [4, 6])[:, :3], model(source, target, [4, 6])[:, :3])
    pairs = make_pairs([[3, 4], [5]], [[4], [5, 6]])
    assert float(summed_loss(model, pairs).detach()) > 0


def test_ranks_of_known_matrices() -> None:
    assert rank_of(torch.eye(5)[None]) == (1.0, pytest.approx(1.0))
    full, effective = rank_of(torch.full((1, 4, 4), 0.25))
    assert full == 0.25
    assert effective == pytest.approx(0.25)


def test_a_law_with_a_floor_is_found_again() -> None:
    """Broken variant: a straight line on double logarithmic paper, which knows no floor."""
    sizes = [10.0, 100.0, 1000.0, 10000.0]
    floor, factor, exponent = power_law(sizes, [1.2 + 3 * size**-0.3 for size in sizes])
    assert floor == pytest.approx(1.2, abs=2e-3) and exponent == pytest.approx(0.3, abs=2e-3)
    assert factor == pytest.approx(3, abs=0.02)


def where_it_runs(seed: int, timed: bool) -> dict[str, float]:
    return {"process": os.getpid(), "began": time.monotonic()}


def test_timed_trials_come_last_and_alone(tmp_path: Path) -> None:
    """In this process, after all others are done. Broken variant: all in the pool."""
    planned = [{"seed": n, "timed": n < 2} for n in range(4)]
    calls = {str(n): TrialCall(where_it_runs, (), one, timed=one["timed"]) for n, one in enumerate(planned)}
    found = run_trials("made up", calls, tmp_path / KEPT, 2)
    here = {key for key, one in found.items() if one.measured["process"] == os.getpid()}
    assert here == {"0", "1"}
    assert min(found[key].measured["began"] for key in here) > max(found[key].measured["began"] for key in "23")
    assert claim_named("heads").is_timed({"part": "projection", "seed": 0})
    assert not claim_named("heads").is_timed({"part": "heads", "seed": 0})
    assert claim_named("cache").is_timed({"seed": 0}) and not claim_named("norms").is_timed({"seed": 0})


def test_held_out_examples_are_others_for_every_seed_and_never_those_that_choose() -> None:
    task = training.dates(50, 40)
    for one in (task, Letters("copy", 8, 8)):
        first, again, other, val = one.test(30, 0), one.test(30, 0), one.test(30, 1), one.val(30, 0)
        assert first.source.tolist() == again.source.tolist() != other.source.tolist()
        rows = {tuple(row) for row in first.source[:, :8].tolist()}
        if one is not task:
            assert rows.isdisjoint(tuple(row) for row in val.source[:, :8].tolist())
    order = task.order(3)
    assert (
        sorted(order) == list(range(40))
        and len(task.test(40, 3).source_lengths) + len(task.val(40, 3).source_lengths) == 40
    )


def test_a_table_of_bigrams_is_counted() -> None:
    """Against a count of one pair on the same text."""
    text, size = training.characters()
    seen = text[: int(0.9 * len(text))]
    a, b = training.LETTERS.index("i"), training.LETTERS.index("f")
    pairs, firsts = int(((seen[:-1] == a) & (seen[1:] == b)).sum()), int((seen[:-1] == a).sum())
    assert float(training.bigrams()[a, b].exp()) == pytest.approx((pairs + 1) / (firsts + size), rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["SIGTERM", "SIGKILL"])
def test_a_study_that_is_stopped_leaves_nobody_at_work(how: str, tmp_path: Path) -> None:
    """The workers hold the other end of stderr, so it ends only when all of them are gone; a killed study cannot tell them."""
    command = [sys.executable, "-m", "glassformer", "study", "heads", "--quick", "--jobs", "2", "--out", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as study:
        assert study.stderr is not None
        assert "trials" in study.stderr.readline()
        time.sleep(4)  # by then they are at work, or about to be
        study.send_signal(getattr(signal, how))
        _, said = study.communicate(timeout=60)
    if how == "SIGTERM":
        assert study.returncode == 75
        assert "the same command goes on" in said
        assert "Traceback" not in said


def test_every_word_of_the_tables_has_its_chinese() -> None:
    """Titles, headings and fixed cells, as the page in Chinese prints them. (What is filled in is left as it is.)"""
    chinese = tomllib.loads((Path(__file__).parents[2] / "docs" / "claims_tables.toml").read_text(encoding="utf-8"))
    for claim in all_claims():
        for table in claim.table:
            cells = [cell for rows in table.rows for cell in rows.cells if isinstance(cell, str)]
            words = {w for w in (table.title, *table.columns, *cells) if "{" not in w and any(map(str.isalpha, w))}
            assert words <= chinese.keys(), claim.name
