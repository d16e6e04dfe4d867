"""Scores: what they mean, checked by hand and against other ways to compute them."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from glassformer.config import ModelConfig, Recipe
from glassformer.data.batches import Batch, SentenceBatches
from glassformer.data.examples import Pairs
from glassformer.data.tokens import TokenFile
from glassformer.evaluation.metrics import is_better, label_scores, text_scores, written_scores
from glassformer.evaluation.teacher_forced import example_losses, teacher_forced, validated_examples
from glassformer.models import build_model
from glassformer.nn.loss import IGNORE
from glassformer.nn.rows import Rows
from glassformer.nn.taps import replace as replace_tap
from tests.trainers import WORDS, lines

ENGLISH = [
    "the cat sat on the mat .",
    "a dog ran to the river and swam .",
    "it rains today .",
    "she reads a long book .",
]
WRITTEN = ["the cat sat on a mat .", "a dog ran to the river .", "it rains today .", "he reads a very long book ."]
CHINESE = ["今天天气真好", "我喜欢你的猫", "他每天早上喝咖啡", "我们明天去北京"]
CHINESE_WRITTEN = ["今天天气很好", "我喜欢你的猫", "他早上喝咖啡", "我们明天去上海"]


def test_loss_and_accuracy_are_over_every_real_position_and_no_other() -> None:
    """Sentence by sentence, alone and without padding, gives the same sums. Broken variants: a mean of batch means; padding
    that counts; perplexity in bits."""
    torch.manual_seed(0)
    config = ModelConfig(vocab_size=WORDS, block_size=32, n_layer=1, n_head=2, n_embd=16, dropout=0.5)
    model = build_model(config).train()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p), alpha=0.3)
    pairs = Pairs(TokenFile.of(lines(30, 1), WORDS), TokenFile.of(lines(30, 2), WORDS))
    batches = SentenceBatches(pairs, budget=90, limit=32, layout="padded", seed=1)
    found = teacher_forced(model, batches.in_order(), "cpu")
    assert model.training, "it leaves the model as it was"
    model.eval()
    total, right, count = 0.0, 0, 0
    for i in range(30):
        batch = batches.batch_of(torch.tensor([i]).numpy(), None)
        log_p = model(batch.source, batch.rows)[0].log_softmax(-1)
        for place, label in enumerate(batch.labels[0].tolist()):
            if label != IGNORE:
                total -= float(log_p[place, label].detach())
                right += int(log_p[place].argmax()) == label
                count += 1
    assert found.values["loss"] == pytest.approx(total / count, rel=1e-5)
    assert found.values["perplexity"] == pytest.approx(math.exp(total / count), rel=1e-5)
    assert found.values["token_accuracy"] == pytest.approx(100 * right / count)


@pytest.mark.parametrize("family", ["transformer", "gpt", "bert"])
def test_logits_are_made_a_few_at_a_time_and_the_scores_stay(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken variants: logits of all positions of a batch; a piece's last positions left out; losses of another position."""
    config = ModelConfig(family=family, vocab_size=WORDS, block_size=64, n_layer=1, n_head=2, n_embd=16)  # type: ignore[arg-type]
    model = build_model(config).eval()
    torch.manual_seed(3)
    rows = Rows.padded(torch.randint(WORDS, (6, 9)), [9, 4, 7, 1, 9, 2])
    labels = torch.where(rows.real, torch.randint(WORDS, (6, 9)), IGNORE)
    source = rows if family == "transformer" else None
    batch = Batch(source, rows, labels, int(rows.real.sum()), tuple(range(6)))
    whole, each = teacher_forced(model, [batch]).values, example_losses(model, [batch])
    monkeypatch.setattr("glassformer.evaluation.teacher_forced.LOGITS_AT_A_TIME", 5 * WORDS)
    sizes: list[int] = []

    def watch(logits: torch.Tensor) -> torch.Tensor:
        sizes.append(logits.numel())
        return logits

    with replace_tap(model, "logits", watch):
        assert teacher_forced(model, [batch]).values == pytest.approx(whole, rel=1e-6)
        for number, loss in example_losses(model, [batch]).items():
            assert loss.nats == pytest.approx(each[number].nats, rel=1e-6)
            assert (loss.labels, loss.right) == (each[number].labels, each[number].right)
    assert max(sizes) <= 5 * WORDS and sum(sizes) == 2 * int(rows.real.sum()) * WORDS


def test_a_validation_takes_a_tenth_of_the_training_between_two() -> None:
    """By the recipe's numbers: a step is three forward passes. Broken variants: all of 20,000 examples after every twenty
    steps; fewer than 1,000; steps that the run never takes counted as training."""
    pairs = Pairs(TokenFile.of(lines(4000, 1), WORDS), TokenFile.of(lines(4000, 2), WORDS))
    batches = SentenceBatches(pairs, budget=512, limit=32, layout="padded", seed=1)

    def examples(every: int, steps: int = 10_000) -> int:
        train = {"steps": steps, "validate_every": every}
        return validated_examples(batches, Recipe.from_dict({"data": {"batch_tokens": 512}, "train": train}))

    assert examples(1) == 1000 and examples(10**6, 10**6) == 20_000
    a_tenth = 0.3 * 200 * 512
    assert 0.9 * a_tenth < int(batches.target[: examples(200)].sum()) < 1.1 * a_tenth
    assert examples(10_000, steps=200) == examples(200)


def test_exact_match_counts_whole_texts() -> None:
    scores = text_scores(["a b", " c ", "d", "e f"], ["a b", "c", "D", "e  f"]).values
    assert scores["exact_match"] == 50.0, "space around a text does not count, all else does"


def test_bleu_has_the_hypothesis_first() -> None:
    """The brevity penalty is for what was written, so exchanging the two sides gives another number. Broken variant: the
    arguments the wrong way round, as sacrebleu takes two lists of strings either way without a word."""
    from sacrebleu import corpus_bleu, corpus_chrf

    found = text_scores(WRITTEN, ENGLISH)
    swapped = text_scores(ENGLISH, WRITTEN)
    assert found.values["bleu"] == pytest.approx(corpus_bleu(WRITTEN, [ENGLISH]).score)
    assert found.values["chrf"] == pytest.approx(corpus_chrf(WRITTEN, [ENGLISH]).score)
    assert abs(found.values["bleu"] - swapped.values["bleu"]) > 0.1
    short = text_scores(["the cat"], ["the cat sat on the mat and slept"]).values["bleu"]
    assert short < text_scores(["the cat sat on the mat and"], ["the cat sat on the mat and slept"]).values["bleu"]
    assert "tok:13a" in found.signatures["bleu"] and "nrefs:1" in found.signatures["bleu"]
    assert "nc:6" in found.signatures["chrf"]


def test_chinese_is_scored_by_the_character() -> None:
    """As words of one character each. Broken variant: 13a, to which a Chinese sentence is a single word."""
    found = text_scores(CHINESE_WRITTEN, CHINESE)
    assert "tok:zh" in found.signatures["bleu"]
    apart = text_scores([" ".join(text) for text in CHINESE_WRITTEN], [" ".join(text) for text in CHINESE], "none")
    assert found.values["bleu"] == pytest.approx(apart.values["bleu"], abs=1e-9)
    as_words = text_scores(CHINESE_WRITTEN, CHINESE, "13a")
    assert "tok:13a" in as_words.signatures["bleu"] and abs(as_words.values["bleu"] - found.values["bleu"]) > 10
    assert "tok:13a" in text_scores(["Das Wort 猫 heißt Katze"], ["Das Wort 猫 heißt Katze"]).signatures["bleu"]


def test_text_that_is_left_tokenised_is_scored_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    found = text_scores(["a man 's hat ."] * 120, ["a man 's hat ."] * 120, "none")
    assert "tok:none" in found.signatures["bleu"] and found.values["bleu"] == pytest.approx(100)
    assert not caplog.records, "and nobody is warned of what a recipe asked for"


def test_f1_by_hand() -> None:
    """cat: 2 hits, found 3 times, wanted 3 times: 4/6. dog: 1 hit, found 2, wanted 2: 2/4. fish: found once, never wanted: 0.
    cow: wanted once, never found: 0. Broken variants: labels never wanted left out; micro instead of macro."""
    wanted = ["cat", "cat", "cat", "dog", "dog", "cow"]
    found = ["cat", "cat", "dog", "dog", "fish", "cat"]
    scores = label_scores(found, wanted).values
    assert scores["accuracy"] == pytest.approx(100 * 3 / 6)
    assert scores["f1"] == pytest.approx(100 * (4 / 6 + 2 / 4 + 0 + 0) / 4)
    assert label_scores(wanted, wanted).values == {"accuracy": 100.0, "f1": 100.0}
    assert label_scores(found, wanted).values["f1"] == label_scores(wanted, found).values["f1"], "it is symmetric"


@pytest.mark.parametrize(
    ("metric", "better", "worse"), [("loss", 1.0, 2.0), ("bleu", 30.0, 20.0), ("accuracy", 90.0, 10.0)]
)
def test_better_is_lower_for_a_loss_and_higher_for_a_score(metric: str, better: float, worse: float) -> None:
    assert is_better(metric, better, worse) and not is_better(metric, worse, better)
    assert is_better(metric, worse, None) and not is_better(metric, better, better), "a tie is no progress"


@pytest.mark.parametrize("metric", ["bleu", "exact_match", "chrf", "accuracy", "f1"])
def test_where_scores_say_nothing_the_loss_decides(metric: str) -> None:
    """Equal ones, and two at noise level; never against a score that says something. Broken variants: a tie for the earlier; a
    BLEU of 0.24 over one of 0.09."""
    for new, old in ((0.0, 0.0), (100.0, 100.0), (0.09, 0.24), (0.24, 0.09)):
        assert is_better(metric, new, old, 1.0, 2.0) and not is_better(metric, new, old, 2.0, 1.0)
        assert not is_better(metric, new, old, 1.0, 1.0) and not is_better(metric, new, old, 1.0, None)
    assert is_better(metric, 1.5, 0.9, 2.0, 1.0) and not is_better(metric, 0.9, 1.5, 1.0, 2.0)
    assert not is_better("loss", 1.0, 1.0, 1.0, 1.0)


def test_samples_are_spread_over_the_set() -> None:
    pairs = [(f"source {i}", f"target {i}") for i in range(103)]
    asked: list[Any] = []

    def write(sources: list[str]) -> list[str]:
        asked.extend(sources)
        return [s.replace("source", "target") for s in sources]

    scores = written_scores(write, pairs, samples=5)
    assert asked == [s for s, _ in pairs] and scores.values["exact_match"] == 100
    assert [s for s, _, _ in scores.samples] == [f"source {i}" for i in (0, 20, 40, 60, 80)]
    assert all(wanted == written for _, wanted, written in scores.samples)
    assert len(written_scores(write, pairs[:2]).samples) == 2
