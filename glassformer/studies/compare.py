"""Two runs on the same examples: whose scores are better, and is the difference more than luck; where do they differ.

Scores come with an interval by bootstrap (Efron 1979; for translation Koehn 2004): the examples are drawn again, with
replacement, as many as there are, and the score is taken of each draw. The draws are the same for both runs (paired), so
the interval of the difference is that of the difference on one and the same set, which is narrower than two intervals
side by side suggest. BLEU of a draw is computed from the n-gram counts of its sentences, not as a mean of sentence scores.

`p` is the share of draws that disagree with the sign of the difference, doubled, and never said to be less than two in the
number of draws: how often luck in the choice of examples alone would turn the difference round, in either direction.
It says nothing of luck in training (another seed); for that, compare several runs.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int

from glassformer import plots, probe
from glassformer.api import Model
from glassformer.errors import UserError
from glassformer.evaluate import BETTER_WHEN_LOWER, model_inputs
from glassformer.studies.held_out import HeldOut, held_out, told, writes, written
from glassformer.text.languages import is_han

DRAWS = 1000
LEVEL = 0.95

Statistics = Float[np.ndarray, "n k"]
"""For each example a few numbers whose sums over a set are all that the score of the set depends on."""
Combine = Callable[[np.ndarray], np.ndarray]
"""From sums (draws, k) to scores (draws)."""


# ---- bootstrap


def draw_counts(examples: int, draws: int, seed: int = 1) -> Int[np.ndarray, "draws n"]:
    """How often each example is in each draw."""
    generator = np.random.default_rng(seed)
    return generator.multinomial(examples, np.full(examples, 1 / examples), size=draws)


@dataclass(frozen=True)
class Interval:
    value: float
    low: float
    high: float

    def to_dict(self) -> dict[str, float]:
        return {"value": self.value, "low": self.low, "high": self.high}


def interval(value: float, drawn: Float[np.ndarray, "draws"]) -> Interval:
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(drawn, [tail, 1 - tail])
    return Interval(value, float(low), float(high))


@dataclass(frozen=True)
class Paired:
    """One score of two runs, each with its interval, their difference (second less first) with its own, and p."""

    first: Interval
    second: Interval
    difference: Interval
    p: float

    def to_dict(self) -> dict[str, Any]:
        return {
            "first": self.first.to_dict(),
            "second": self.second.to_dict(),
            "difference": self.difference.to_dict(),
            "p": self.p,
        }


def paired_bootstrap(
    first: Statistics, second: Statistics, combine: Combine, *, draws: int = DRAWS, seed: int = 1
) -> Paired:
    counts = draw_counts(len(first), draws, seed).astype(np.float64)
    a, b = combine(counts @ first), combine(counts @ second)
    value_a, value_b = (float(combine(own.sum(0, keepdims=True))[0]) for own in (first, second))
    change, drawn = value_b - value_a, b - a
    if change == 0:
        p = 1.0
    else:
        against = float((drawn <= 0).mean() if change > 0 else (drawn >= 0).mean())
        p = min(1.0, 2 * max(against, 1 / draws))
    return Paired(interval(value_a, a), interval(value_b, b), interval(change, drawn), p)


# ---- scores as sums


def mean(sums: np.ndarray) -> np.ndarray:
    """Of (total, count)."""
    return sums[..., 0] / np.maximum(sums[..., 1], 1e-12)


def perplexity(sums: np.ndarray) -> np.ndarray:
    return np.exp(np.minimum(mean(sums), 50.0))


def percent(sums: np.ndarray) -> np.ndarray:
    return 100 * mean(sums)


def bleu_statistics(written: Sequence[str], wanted: Sequence[str], tokenize: str) -> Statistics:
    """For each sentence, in sacrebleu's tokens: its length, the reference's, and for n-grams of one to four words how many
    are right (no more often than the reference has them) and how many there are."""
    from sacrebleu.metrics import BLEU

    cut = BLEU(tokenize=tokenize, force=True).tokenizer
    rows = []
    for text, reference in zip(written, wanted, strict=True):
        ours, theirs = cut(text.rstrip()).split(), cut(reference.rstrip()).split()
        right, there = [], []
        for n in range(1, 5):
            said, true = (Counter(tuple(w[i : i + n]) for i in range(len(w) - n + 1)) for w in (ours, theirs))
            right.append((said & true).total())
            there.append(said.total())
        rows.append([len(ours), len(theirs), *right, *there])
    return np.array(rows, dtype=np.float64)


def bleu(sums: np.ndarray) -> np.ndarray:
    """exp(sum of log precisions / 4) times the brevity penalty; a precision of zero is smoothed as sacrebleu does (`exp`):
    the first to half of one over its count, the next to a quarter, and so on."""
    length, reference = sums[..., 0], sums[..., 1]
    right, there = sums[..., 2:6], sums[..., 6:10]
    zeros = np.cumsum(right == 0, axis=-1)
    precision = np.where(right == 0, 1 / (2.0**zeros * np.maximum(there, 1)), right / np.maximum(there, 1))
    penalty = np.where(length < reference, np.exp(1 - reference / np.maximum(length, 1e-12)), 1.0)
    score = 100 * penalty * np.exp(np.log(precision).mean(-1))
    return np.where((there > 0).all(-1) & (right > 0).any(-1), score, 0.0)


# ---- what two runs make of the same examples


@dataclass(frozen=True)
class Sentence:
    """One example and what the two runs make of it; where nothing is written, the loss is all there is."""

    number: int
    source: str
    wanted: str
    first: str
    second: str
    first_loss: float  # nats a label
    second_loss: float
    distance: float  # between the two outputs: 0 the same, 1 nothing in common

    @property
    def change(self) -> float:
        return self.second_loss - self.first_loss

    def to_dict(self) -> dict[str, Any]:
        return {k: v for k, v in vars(self).items() if v != "" and not (isinstance(v, float) and math.isnan(v))}


@dataclass(frozen=True)
class Apart:
    """A head of the first run: how far its weights are from those of the second run's head of the same number (None, where
    there is none) and from the nearest head of the same attention. Heads of runs trained apart have their numbers by
    chance, so it is the nearest that counts."""

    same: float | None
    nearest: str
    distance: float

    def to_dict(self) -> dict[str, Any]:
        return {"same": self.same, "nearest": self.nearest, "distance": self.distance}


@dataclass(frozen=True)
class Comparison:
    names: tuple[str, str]
    split: str
    examples: int
    scores: dict[str, Paired]
    sentences: list[Sentence]
    attention: dict[str, Apart] = field(default_factory=dict)  # by head of the first run
    no_attention: str = ""  # why there are none

    def most_changed(self, count: int = 10) -> list[Sentence]:
        """Outputs that are furthest apart; of equal distances, those whose loss changed most."""
        return sorted(self.sentences, key=lambda s: (-s.distance, -abs(s.change)))[:count]

    @property
    def same(self) -> int:
        return sum(s.distance == 0 for s in self.sentences)

    def to_dict(self) -> dict[str, Any]:
        return {
            "first": self.names[0],
            "second": self.names[1],
            "split": self.split,
            "examples": self.examples,
            "draws": DRAWS,
            "level": LEVEL,
            "scores": {name: paired.to_dict() for name, paired in self.scores.items()},
            "sentences": [s.to_dict() for s in self.sentences],
            "attention": {name: apart.to_dict() for name, apart in self.attention.items()},
            "no_attention": self.no_attention,
        }


def edit_distance(first: Sequence[Any], second: Sequence[Any]) -> float:
    """Insertions, deletions and changes, over the longer length (Levenshtein 1966)."""
    if not first and not second:
        return 0.0
    before = list(range(len(second) + 1))
    for i, a in enumerate(first, 1):
        now = [i]
        for j, b in enumerate(second, 1):
            now.append(min(before[j] + 1, now[j - 1] + 1, before[j - 1] + (a != b)))
        before = now
    return before[-1] / max(len(first), len(second))


def as_units(text: str) -> list[str]:
    """Words; in a script without spaces, and for a single word, characters."""
    words = text.split()
    return list(text) if len(words) < 2 or sum(map(is_han, text)) > 0.3 * len(text) else words


FAMILIES = {"transformer": "an encoder-decoder", "gpt": "a GPT", "bert": "a BERT"}
TASKS = {"pairs": "pairs", "text": "text", "classify": "labelled lines", "tag": "tagged words"}


def check_same_task(first: Model, second: Model) -> None:
    a, b = first.recipe.data, second.recipe.data
    if a.task != b.task or writes(first) != writes(second) or (a.task == "text" and first.kind != second.kind):
        one, other = (
            f"{FAMILIES[run.recipe.model.family]} that learned from {TASKS[run.recipe.data.task]}"
            for run in (first, second)
        )
        raise UserError(
            f"the two runs are of different tasks: one is {one}, the other {other}; compare runs that answer the same question"
        )
    if a.task in ("classify", "tag") and first.tokenizers.labels != second.tokenizers.labels:
        raise UserError("the two runs have different labels; compare runs that answer the same question")


def losses(talk: Model, held: HeldOut, count: int) -> Statistics:
    """(nats, labels) and (right, labels) of each example; zeros for one that is too long for a loss."""
    found = told(talk.model, held.batches)
    table = np.zeros((count, 3))
    for number, one in found.items():
        if number < count:
            table[number] = one.nats, one.labels, one.right
    return table


def tokenizers_agree(first: Model, second: Model) -> bool:
    sides = [(t.tokenizers.source.library.to_str(), t.tokenizers.target.library.to_str()) for t in (first, second)]
    return sides[0] == sides[1]


def describe(talk: Model, held: HeldOut, number: int) -> tuple[str, str]:
    """An example in words: what is given and what is wanted."""
    match talk.recipe.data.task:
        case "pairs" | "classify":
            return held.examples[number]
        case "tag":
            words, tags = held.examples[number]
            return " ".join(words), " ".join(tags)
    for batch in held.batches:
        if number in batch.examples:
            row = batch.rows.tokens[batch.examples.index(number)][batch.rows.real[batch.examples.index(number)]]
            return talk.tokenizers.target.decode(row.tolist()), ""
    return "", ""


def answers(talk: Model, held: HeldOut) -> list[str]:
    """What a run says to each example; nothing, where it says nothing."""
    match talk.kind:
        case "transformer" | "gpt on pairs":
            return written(talk, held.examples)
        case "classify":
            return [labels[0].label for labels in talk.classify([text for text, _ in held.examples])]
        case "tag":
            return [" ".join(t.label for t in line) for line in talk.tag([words for words, _ in held.examples])]
    return []


def score_both(
    talks: tuple[Model, Model], held: HeldOut, tables: tuple[Statistics, Statistics], said: tuple[list[str], list[str]]
) -> dict[str, Paired]:
    """Every score that both runs have. A loss a token is compared only where the two have the same tokens."""
    scores: dict[str, Paired] = {}
    task = talks[0].recipe.data.task
    has_loss = (tables[0][:, 1] > 0) & (tables[1][:, 1] > 0)
    a, b = tables[0][has_loss], tables[1][has_loss]
    if len(a) and (task in ("classify", "tag") or tokenizers_agree(*talks)):
        scores["loss"] = paired_bootstrap(a[:, :2], b[:, :2], mean)
        if talks[0].kind in ("gpt", "mlm"):
            scores["perplexity"] = paired_bootstrap(a[:, :2], b[:, :2], perplexity)
            scores["token_accuracy"] = paired_bootstrap(a[:, [2, 1]], b[:, [2, 1]], percent)
    if writes(talks[0]):
        wanted = [target for _, target in held.examples]
        tokenize = talks[0].recipe.train.bleu_tokenize
        if tokenize == "auto":
            sample = "".join(wanted[:200])
            tokenize = "zh" if sum(map(is_han, sample)) > 0.3 * len(sample) else "13a"

        def exact(texts: list[str]) -> Statistics:
            return np.array([[float(t.strip() == w.strip()), 1.0] for t, w in zip(texts, wanted, strict=True)])

        scores["exact_match"] = paired_bootstrap(exact(said[0]), exact(said[1]), percent)
        counted = [bleu_statistics(texts, wanted, tokenize) for texts in said]
        scores["bleu"] = paired_bootstrap(counted[0], counted[1], bleu)
    elif task == "classify":
        true = [label for _, label in held.examples]
        hits = [np.array([[float(s == w), 1.0] for s, w in zip(own, true, strict=True)]) for own in said]
        scores["accuracy"] = paired_bootstrap(hits[0], hits[1], percent)
    elif task == "tag":
        scores["accuracy"] = paired_bootstrap(tag_hits(held, said[0]), tag_hits(held, said[1]), percent)
    return scores


def tag_hits(held: HeldOut, said: list[str]) -> Statistics:
    rows = []
    for (_, tags), own in zip(held.examples, said, strict=True):
        rows.append([float(sum(a == b for a, b in zip(own.split(), tags, strict=False))), float(len(tags))])
    return np.array(rows)


@torch.no_grad()
def attention_apart(talks: tuple[Model, Model], held: HeldOut) -> tuple[dict[str, Apart], str]:
    """For each head, half the summed absolute difference of the two runs' weights (total variation: 0 the same, 1 nothing in
    common), averaged over all real queries; and why not, where that cannot be."""
    first, second = talks
    if first.model.config.attentions != second.model.config.attentions:
        return {}, "the two models have different layers"
    if not tokenizers_agree(first, second):
        return {}, "the two models read the text in different tokens"
    numbers = [{name: one.numbers for name, one in probe.attentions(talk).items()} for talk in talks]
    total: dict[str, Any] = {}
    count: dict[str, int] = {}
    with probe.record(first, "*.weights") as one, probe.record(second, "*.weights") as two:
        for batch in held.batches:
            for talk in talks:
                talk.model.hidden(*model_inputs(batch))
            for name in numbers[0]:
                rows = batch.source if name.startswith("encoder.") and batch.source is not None else batch.rows
                w, v = one[f"{name}.weights"].float(), two[f"{name}.weights"].float()
                for i in range(w.size(1)):
                    apart = (w[:, i : i + 1] - v).abs().sum(-1).double() / 2
                    sums = (apart * rows.real[:, None]).sum((0, 2)).cpu().numpy()
                    total[f"{name}:{i}"] = total.get(f"{name}:{i}", 0) + sums
                count[name] = count.get(name, 0) + int(rows.real.sum())
    found: dict[str, Apart] = {}
    for name, own in numbers[0].items():
        theirs = numbers[1][name]
        for i, number in enumerate(own):
            apart = total[f"{name}:{i}"] / max(1, count[name])
            if len(theirs):
                best = int(apart.argmin())
                same = float(apart[theirs.index(number)]) if number in theirs else None
                found[f"{name}:{number}"] = Apart(same, f"{name}:{theirs[best]}", float(apart[best]))
    return found, "" if found else "there is no attention in which both models have heads"


def same_reading(first: Model, second: Model) -> bool:
    """Whether the one's batches are the other's, too."""
    if first.recipe.data.task == "text":
        return True
    alike = first.kind == second.kind and first.model.config.block_size == second.model.config.block_size
    return alike and tokenizers_agree(first, second)


def same_examples(first: Model, second: Model, split: str, limit: int) -> HeldOut:
    """The first run's examples as the second run reads them."""
    data = dataclasses.replace(
        first.recipe.data,
        tokenizer=second.recipe.data.tokenizer,
        bpe_dropout=0.0,
        prompt_answer=second.recipe.data.prompt_answer,
        lowercase=second.recipe.data.lowercase,
    )
    reading = Model(second.model, second.tokenizers, dataclasses.replace(second.recipe, data=data))
    return held_out(reading, split, limit)


def compare(
    talks: tuple[Model, Model],
    names: tuple[str, str],
    split: str,
    limit: int,
    folders: tuple[Path | None, Path | None] = (None, None),
    tell: Callable[[str], None] = lambda _: None,
) -> Comparison:
    """Both runs on the first run's examples; each reads them with its own tokenizer."""
    check_same_task(*talks)
    tell("reading the examples")
    block = min(talk.model.config.block_size for talk in talks)
    if talks[0].recipe.data.task == "text":
        if not tokenizers_agree(*talks):
            raise UserError(
                "the two runs cut their text into different tokens, so their blocks are not the same text; compare runs "
                "that share a tokenizer (data.tokenizer_file)"
            )
        held = held_out(talks[0], split, limit, folders[0], block_size=block)
    else:
        held = held_out(talks[0], split, limit, folders[0])
    other = held if same_reading(*talks) else same_examples(talks[0], talks[1], split, limit)
    count = held.count
    tables = losses(talks[0], held, count), losses(talks[1], other, count)
    tell("what they say")
    said = answers(talks[0], held), answers(talks[1], HeldOut(other.batches, held.examples, count))
    tell("drawing again")
    scores = score_both(talks, held, tables, said)
    sentences = []
    for i in range(count):
        given, wanted = describe(talks[0], held, i)
        mine, theirs = (said[0][i], said[1][i]) if said[0] else ("", "")
        loss = [float(t[i, 0] / t[i, 1]) if t[i, 1] else math.nan for t in tables]
        apart = edit_distance(as_units(mine), as_units(theirs)) if said[0] else 0.0
        sentences.append(Sentence(i, given, wanted, mine, theirs, loss[0], loss[1], apart))
    tell("where they look")
    attention, why_not = attention_apart(talks, held)
    return Comparison(names, split, count, scores, sentences, attention, why_not)


# ---- pictures


def draw(found: Comparison, attentions: Sequence[str], n_head: int, out: Path) -> list[Path]:
    scores = {name: (p.difference.value, p.difference.low, p.difference.high) for name, p in found.scores.items()}
    better = {name: name not in BETTER_WHEN_LOWER for name in scores}
    paths = plots.save(plots.differences(scores, better, found.names), out / "scores")
    pairs = [(s.first_loss, s.second_loss) for s in found.sentences if not math.isnan(s.first_loss + s.second_loss)]
    if pairs:
        a, b = np.array(pairs).T
        paths += plots.save(plots.losses_apart(a, b, found.names), out / "sentences")
    if found.attention:
        grid = np.full((len(attentions), n_head), np.nan)
        words = [["" for _ in range(n_head)] for _ in attentions]
        for name, apart in found.attention.items():
            module, _, head = name.partition(":")
            row = attentions.index(module)
            grid[row, int(head)] = apart.distance
            words[row][int(head)] = f"→ {apart.nearest.partition(':')[2]}\n{apart.distance:.2f}"
        rows = [name.replace(".", " ").replace("attention", "self") for name in attentions]
        figure = plots.head_distances(grid, words, rows, [str(i) for i in range(n_head)], found.names)
        paths += plots.save(figure, out / "attention")
    return paths
