"""`glassformer compare`: the bootstrap against a slow one and against sacrebleu's, and two runs side by side."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sacrebleu import corpus_bleu

from glassformer import probe
from glassformer.api import load
from glassformer.errors import UserError
from glassformer.evaluation.examples import as_units, edit_distance, held_out, written
from glassformer.evaluation.metrics import text_scores
from glassformer.evaluation.significance import (
    bleu,
    bleu_statistics,
    draw_counts,
    mean,
    paired_bootstrap,
    percent,
    perplexity,
)
from glassformer.evaluation.teacher_forced import model_inputs, teacher_forced
from glassformer.inspection import compare as study
from glassformer.inspection.compare import Comparison, Sentence, head_distances
from glassformer.runs.folder import RunFolder
from tests.commands import call
from tests.counts import count
from tests.small_runs import small_run
from tests.test_plots import check_pictures

pytestmark = pytest.mark.slow

WORDS = ["the", "cat", "sat", "on", "a", "mat", "and", "slept", ".", "dogs", "bark"]


def sentences(n: int, seed: int) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choice(WORDS) for _ in range(draw.randint(1, 12))) for _ in range(n)]


def spoilt(texts: list[str], share: float, seed: int) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(w if draw.random() > share else draw.choice(WORDS) for w in t.split()) for t in texts]


WANTED = sentences(60, 0)
GOOD, BAD = spoilt(WANTED, 0.2, 1), spoilt(WANTED, 0.5, 2)


# The bootstrap -----------------------------------------------------------------------------------------------------------


def test_bleu_from_sums_is_sacrebleu() -> None:
    """Of any set, also tiny ones where precisions are zero, and of Chinese. Broken variants: the brevity penalty the wrong
    way round; no smoothing; n-grams counted more often than the reference has them."""
    counted = bleu_statistics(BAD, WANTED, "13a")
    draw = random.Random(0)
    for _ in range(count(fast=30, soak=500)):
        some = [draw.randrange(60) for _ in range(draw.randint(1, 8))]
        ours = float(bleu(counted[some].sum(0)))
        theirs = corpus_bleu([BAD[i] for i in some], [[WANTED[i] for i in some]]).score
        assert ours == pytest.approx(theirs, abs=1e-9)
    chinese = ["今天天气真好", "我喜欢你的猫"], ["今天天气很好", "我喜欢他的猫 ."]
    assert float(bleu(bleu_statistics(*chinese, "zh").sum(0))) == pytest.approx(
        corpus_bleu(chinese[0], [chinese[1]], tokenize="zh").score
    )
    assert float(bleu(bleu_statistics([""], ["a b"], "13a").sum(0))) == 0.0


def test_each_draw_is_the_score_of_the_text_drawn() -> None:
    """Slowly: the sentences themselves are drawn, and sacrebleu scores each draw. Broken variants: sentence scores averaged;
    the two systems drawn apart."""
    draws = 40
    counts = draw_counts(60, draws, seed=7)
    assert counts.shape == (draws, 60) and (counts.sum(1) == 60).all()
    both = []
    for texts in (BAD, GOOD):
        slow = []
        for row in counts:
            some = [i for i, n in enumerate(row) for _ in range(n)]
            slow.append(corpus_bleu([texts[i] for i in some], [[WANTED[i] for i in some]]).score)
        both.append(np.array(slow))
    found = paired_bootstrap(
        bleu_statistics(BAD, WANTED, "13a"), bleu_statistics(GOOD, WANTED, "13a"), bleu, draws=draws, seed=7
    )
    apart = np.sort(both[1] - both[0])
    assert found.difference.low == pytest.approx(np.quantile(apart, 0.025))
    assert found.difference.high == pytest.approx(np.quantile(apart, 0.975))
    assert found.first.value == pytest.approx(corpus_bleu(BAD, [WANTED]).score)
    assert found.second.low == pytest.approx(np.quantile(both[1], 0.025))
    assert found.p == pytest.approx(2 / draws), "not one draw turns it round; less cannot be told from so few"


def test_an_interval_of_95_percent_holds_the_truth_95_times_of_a_hundred() -> None:
    """Accuracies of known chances, many times over. Broken variants: intervals of one standard deviation (68%)."""
    generator = np.random.default_rng(0)
    trials, inside, alarms = count(fast=300, soak=2000), 0, 0
    for trial in range(trials):
        hits = (generator.random((200, 2)) < 0.8).astype(float)
        first, second = (np.stack([hits[:, i], np.ones(200)], 1) for i in range(2))
        found = paired_bootstrap(first, second, percent, draws=400, seed=trial)
        inside += found.first.low <= 80 <= found.first.high
        alarms += not found.difference.low <= 0 <= found.difference.high
    assert 0.91 < inside / trials < 0.98
    assert alarms / trials < 0.09


def test_means_of_sums() -> None:
    """A mean over tokens, not over sentences. Broken variant: long sentences weigh as short ones."""
    sums = np.array([[10.0, 5.0], [1.0, 5.0]])
    assert mean(sums).tolist() == [2.0, 0.2] and percent(sums).tolist() == [200.0, 20.0]
    assert perplexity(sums)[1] == pytest.approx(np.exp(0.2))
    found = paired_bootstrap(sums, sums + np.array([1.0, 0.0]), mean)
    assert found.first.value == pytest.approx(1.1) and found.difference.value == pytest.approx(0.2)


def test_edit_distance() -> None:
    assert edit_distance("kitten", "sitting") == pytest.approx(3 / 7)
    assert edit_distance([], []) == 0 and edit_distance("", "abc") == 1 and edit_distance("abc", "abc") == 0
    assert as_units("one two") == ["one", "two"] and as_units("1979-05-03") == list("1979-05-03")
    assert as_units("今天 天气") == list("今天 天气")


def test_most_changed_first() -> None:
    made = [
        Sentence(i, "", "", "x", "y", 1.0, 1.0 + c, d) for i, (d, c) in enumerate([(0.0, 5), (0.5, 0.1), (0.5, -2)])
    ]
    found = Comparison(("a", "b"), "test", 3, {}, made)
    assert [s.number for s in found.most_changed()] == [2, 1, 0] and found.same == 1


# Two runs ----------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def runs_of(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[RunFolder, RunFolder]]:
    """Of each task two: the second with other weights, and for pairs with more layers."""
    place = tmp_path_factory.mktemp("compare")
    found = {}
    for kind in ("pairs", "text", "classify", "tag", "prompts", "decoder classify"):
        small: dict[str, Any] = {"n_layer": 1}
        other = {"n_layer": 2} if kind == "pairs" else {"n_layer": 1, "n_head": 4}
        found[kind] = (
            small_run(place / kind, kind, name="first", model=small),
            small_run(place / kind, kind, name="second", model=other, seed=2, learning_rate=2e-2),
        )
    return found


@pytest.mark.parametrize("kind", ["pairs", "text", "classify", "tag", "prompts", "decoder classify"])
def test_two_runs_side_by_side(kind: str, runs_of: dict[str, tuple[RunFolder, RunFolder]], tmp_path: Path) -> None:
    """The scores are those that `evaluate` would give each, example by example. Broken variants: the runs exchanged; an
    output beside another example's."""
    paths = tuple(run.path for run in runs_of[kind])
    done = call("compare", *paths, "--split", "val", "--examples", 20, "--json", "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert json.loads((tmp_path / "out" / "compare.json").read_text())["scores"] == found["scores"]
    expected = {
        "pairs": {"loss", "exact_match", "bleu"},
        "text": {"loss", "perplexity", "token_accuracy"},
        "classify": {"loss", "accuracy"},
        "tag": {"loss", "accuracy"},
    }
    task = {"prompts": "pairs", "decoder classify": "classify"}.get(kind, kind)  # a GPT's scores are those of its task
    assert set(found["scores"]) == expected[task]
    for side, path in zip(("first", "second"), paths, strict=True):
        model = load(path)
        held = held_out(model, "val", 20, path / "data")
        values = teacher_forced(model.model, held.batches).values
        assert found["scores"]["loss"][side]["value"] == pytest.approx(values["loss"], rel=1e-4)
        if task == "pairs":
            wrote = [s.get(side, "") for s in found["sentences"]]
            assert wrote == written(model, held.examples)
            scores = text_scores(wrote, [t for _, t in held.examples]).values
            for name in ("bleu", "exact_match"):
                assert found["scores"][name][side]["value"] == pytest.approx(scores[name], abs=1e-6)
        elif task != "text":
            assert found["scores"]["accuracy"][side]["value"] == pytest.approx(values["token_accuracy"], abs=1e-6)
    check_pictures([tmp_path / "out" / "scores.png", tmp_path / "out" / "scores.svg"])
    if kind == "pairs":
        assert found["no_attention"] == "the two models have different layers" and not found["attention"]
    else:
        assert len(found["attention"]) == 2 and not found["no_attention"]
    shown = call("compare", *paths, "--split", "val", "--examples", 20)
    assert shown.returncode == 0 and "95% from" in shown.stdout and "difference" in shown.stdout


def test_a_run_is_no_different_from_itself(runs_of: dict[str, tuple[RunFolder, RunFolder]]) -> None:
    for kind in ("pairs", "text", "classify", "prompts", "decoder classify"):
        path = runs_of[kind][0].path
        found = study.compare((load(path), load(path)), ("a", "b"), "val", 12)
        assert all((p.difference.value, p.p) == (0.0, 1.0) for p in found.scores.values())
        assert found.same == found.examples == len(found.sentences)
        for name, apart in found.attention.items():
            assert apart.same == apart.distance == 0.0 and apart.nearest == name


def test_how_far_apart_two_heads_look(runs_of: dict[str, tuple[RunFolder, RunFolder]]) -> None:
    """One sentence a row, by hand. With the heads of one run exchanged, each finds itself under its new number. Broken
    variants: padding counted; heads of the same number only."""
    path = runs_of["pairs"][0].path
    first, second = load(path), load(path)
    with torch.no_grad():
        attention: Any = second.model.get_submodule("encoder.0.attention")
        swap = [*range(8, 16), *range(8)]
        for part in (attention.query, attention.key, attention.value):
            part.weight.copy_(part.weight[swap])
            part.bias.copy_(part.bias[swap])
        attention.out.weight.copy_(attention.out.weight[:, swap])
    held = held_out(first, "val", 10)
    found, why_not = head_distances((first, second), held)
    assert why_not == ""
    assert found["encoder.0.attention:0"].nearest == "encoder.0.attention:1"
    assert found["encoder.0.attention:0"].distance == pytest.approx(0.0, abs=1e-6)
    total = queries = 0.0
    with torch.no_grad(), probe.record(first, "encoder.0.attention.weights") as seen:
        for batch in held.batches:
            first.model.hidden(*model_inputs(batch))
            assert batch.source is not None
            for row, n in enumerate(batch.source.real.sum(1).tolist()):
                w = seen["encoder.0.attention.weights"][row, :, :n, :n]
                total += float((w[0] - w[1]).clamp(min=0).sum())  # total variation: what one has more than the other
                queries += n
    same = found["encoder.0.attention:0"].same
    assert same == pytest.approx(total / queries, rel=1e-4) and same > 0.001


def test_other_tokens_same_examples(runs_of: dict[str, tuple[RunFolder, RunFolder]], tmp_path: Path) -> None:
    """A run with another tokenizer is asked the first run's examples in its own tokens: text is compared, losses are not."""
    first = runs_of["pairs"][0]
    data = Path(str(first.recipe.data.path))
    from dataclasses import replace

    from glassformer import runs

    recipe = replace(first.recipe, data=replace(first.recipe.data, tokenizer="char", path=str(data)))
    recipe = recipe.with_model(vocab_size=0, block_size=48)
    second = runs.train(recipe, tmp_path / "letters")
    folders = first.path / "data", second.path / "data"
    found = study.compare((load(first.path), load(second.path)), ("a", "b"), "val", 6, folders)
    assert set(found.scores) == {"exact_match", "bleu"}
    assert found.no_attention == "the two models read the text in different tokens"
    assert [s.source for s in found.sentences] == [
        a for a, _ in held_out(load(first.path), "val", 6, first.path / "data").examples
    ]


def test_what_cannot_be_compared(runs_of: dict[str, tuple[RunFolder, RunFolder]], tmp_path: Path) -> None:
    pairs, text, labels = (runs_of[kind][0].path for kind in ("pairs", "text", "classify"))
    for first, second in ((pairs, text), (pairs, labels), (text, labels)):
        with pytest.raises(UserError, match="different tasks"):
            study.compare((load(first), load(second)), ("a", "b"), "val", 4)
    done = call("compare", pairs, tmp_path)
    assert done.returncode == 2 and "is not a run" in done.stderr and done.stderr.count("\n") == 1
    done = call("compare", pairs, text)
    assert done.returncode == 2 and "different tasks" in done.stderr
    assert "examples must be at least 1" in call("compare", pairs, pairs, "--examples", 0).stderr
    assert "split is train, val or test" in call("compare", pairs, pairs, "--split", "dev").stderr
