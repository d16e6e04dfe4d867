"""Examples a run has not learned from, as text and as batches, and what a model makes of them: for the studies that measure one
model many times, or two models on the same examples.

The losses are teacher-forced and kept apart for each example; what is written is written greedily, since most of these
studies ask how an answer changes and not how good it could get (`glassformer evaluate` writes as the recipe says).
"""

from __future__ import annotations

import itertools
import operator
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from glassformer.data.batches import Batch, recipe_batches
from glassformer.data.encoding import encode_split, open_files
from glassformer.data.files import numbered_lines
from glassformer.data.store import run_examples
from glassformer.data.transforms import SEPARATOR, joined
from glassformer.errors import UserError
from glassformer.evaluation.generated import greedy
from glassformer.evaluation.metrics import bleu_tokenize
from glassformer.evaluation.significance import Combine, Statistics, bleu, bleu_statistics, mean, percent
from glassformer.evaluation.teacher_forced import example_losses
from glassformer.tasks import TextModel, classify, tag, translations
from glassformer.tasks.score import score
from glassformer.tasks.text_model import FAMILIES
from glassformer.text.languages import is_han

SPLITS = ("train", "val", "test")


@dataclass(frozen=True)
class HeldOut:
    """`examples` are as the data has them: pairs, (text, label), (words, tags). A text has none; its examples are blocks."""

    batches: list[Batch]
    examples: list[Any]
    count: int


def held_out(
    model: TextModel,
    split: str,
    limit: int,
    folder: Path | None = None,
    *,
    block_size: int | None = None,
    examples: Sequence[Any] | None = None,
) -> HeldOut:
    """The first `limit` examples of a split. `folder`: the data folder of the run, where they and their token files lie.
    `block_size`: no longer than this, where the model could read more. `examples`: these instead of the run's own."""
    if split not in SPLITS:
        raise UserError("split is train, val or test, not {split!r}", split)
    if limit < 1:
        raise UserError("examples must be at least 1, not {limit}", limit)
    limit = min(limit, sys.maxsize)
    recipe = model.recipe
    data = recipe.data
    budget = max(256, min(8192, 2**23 // max(1, recipe.model.vocab_size)))
    stored = run_examples(data, split, folder or Path()) if examples is None else examples  # type: ignore[arg-type]
    with TemporaryDirectory() as temporary:
        multiplied = split == "train" and data.multiplied  # what was learned from is not one example a pair
        there = folder is not None and not multiplied and any(folder.glob(f"{split}.*.tokens")) and examples is None
        if not there:
            some = stored if data.task == "text" else list(itertools.islice(stored, limit))
            encode_split(data, split, some, model.tokenizers, Path(temporary))
        files = open_files(data, split, folder if there and folder is not None else Path(temporary))
        made = recipe_batches(recipe, files, block_size=block_size, layout="padded", training=False)
        batches = [batch.to(model.device) for batch in made.in_order(budget, limit=limit)]
    if not batches:
        raise UserError("the {split} split of this run has nothing to measure on; choose another split", split)
    texts = [] if data.task == "text" else list(itertools.islice(stored, limit))
    return HeldOut(batches, texts, len(texts) or sum(len(b.examples) for b in batches))


def writes(model: TextModel) -> bool:
    """Whether it is asked for texts, and its texts can be compared with those wanted."""
    return model.kind in ("transformer", "gpt on pairs") and model.recipe.data.task == "pairs"


def written(model: TextModel, examples: list[Any]) -> list[str]:
    """What the model writes for each example's source, greedily."""
    quick = TextModel(model._model, model.tokenizers, replace(model.recipe, decode=greedy(model.recipe.decode)))
    return translations(quick, [source for source, _ in examples])


# ---- two models on the same examples


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


TASKS = {"pairs": "pairs", "text": "text", "classify": "labelled lines", "tag": "tagged words"}


def check_same_task(first: TextModel, second: TextModel) -> None:
    """Refuses two runs that have learned to do different things."""
    a, b = first.recipe.data, second.recipe.data
    if a.task != b.task or writes(first) != writes(second) or (a.task == "text" and first.kind != second.kind):
        one, other = (
            f"{FAMILIES[run.recipe.model.family]} that learned from {TASKS[run.recipe.data.task]}"
            for run in (first, second)
        )
        raise UserError(
            "the two runs are of different tasks: one is {one}, the other {other}; "
            "compare runs that answer the same question",
            one,
            other,
        )
    if a.task in ("classify", "tag") and first.tokenizers.labels != second.tokenizers.labels:
        raise UserError("the two runs have different labels; compare runs that answer the same question")


def losses(model: TextModel, held: HeldOut, count: int) -> Statistics:
    """(nats, labels) and (right, labels) of each example; zeros for one that is too long for a loss."""
    table = np.zeros((count, 3))
    for number, loss in example_losses(model._model, held.batches).items():
        if number < count:
            table[number] = loss.nats, loss.labels, loss.right
    return table


def tokenizers_agree(first: TextModel, second: TextModel) -> bool:
    """Whether both cut text into the same tokens."""
    sides = [(t.tokenizers.source.library.to_str(), t.tokenizers.target.library.to_str()) for t in (first, second)]
    return sides[0] == sides[1]


def describe(model: TextModel, held: HeldOut, number: int) -> tuple[str, str]:
    """An example in words: what is given and what is wanted."""
    match model.recipe.data.task:
        case "pairs" | "classify":
            return held.examples[number]
        case "tag":
            words, tags = held.examples[number]
            return " ".join(words), " ".join(tags)
    for batch in held.batches:
        if number in batch.examples:
            row = batch.rows.tokens[batch.examples.index(number)][batch.rows.real[batch.examples.index(number)]]
            return model.tokenizers.target.decode(row.tolist()), ""
    return "", ""


def answers(model: TextModel, held: HeldOut) -> list[str]:
    """What a run says to each example; nothing, where it says nothing."""
    match model.kind:
        case "transformer" | "gpt on pairs" if held.examples:  # of a text there are none
            return written(model, held.examples)
        case "classify":
            return [labels[0].label for labels in classify(model, [text for text, _ in held.examples])]
        case "tag":
            return [" ".join(t.label for t in line) for line in tag(model, [words for words, _ in held.examples])]
    return []


def same_reading(first: TextModel, second: TextModel) -> bool:
    """Whether the one's batches are the other's, too."""
    if first.recipe.data.task == "text":
        return True
    alike = first.kind == second.kind and first.model.config.block_size == second.model.config.block_size
    return alike and tokenizers_agree(first, second)


def same_examples(first: TextModel, second: TextModel, split: str, held: HeldOut) -> HeldOut:
    """The first run's examples as the second run reads them."""
    data = replace(
        first.recipe.data,
        tokenizer=second.recipe.data.tokenizer,
        bpe_dropout=0.0,
        augment=0.0,
        prompt_answer=second.recipe.data.prompt_answer,
        lowercase=second.recipe.data.lowercase,
    )
    reading = TextModel(second.model, second.tokenizers, replace(second.recipe, data=data))
    return held_out(reading, split, len(held.examples), examples=held.examples)


COMBINE: dict[str, Combine] = {
    "exact_match": percent,
    "bleu": bleu,
    "accuracy": percent,
    "loss": mean,
    "token_accuracy": percent,
}
"""From the summed numbers of some examples to the score of them all."""


def answer_statistics(model: TextModel, held: HeldOut, texts: list[str]) -> dict[str, Statistics]:
    """What a model wrote to each example as the numbers that its task's scores are made of (`COMBINE`)."""
    if not writes(model) and model.recipe.data.task not in ("classify", "tag"):
        return {}
    references = [reference for _, reference in held.examples]
    if model.recipe.data.task == "tag":  # right tags and all tags of every sentence
        tagged = [(text.split(), tags) for text, tags in zip(texts, references, strict=True)]
        rows = [(sum(map(operator.eq, written, tags)), len(tags)) for written, tags in tagged]
        return {"accuracy": np.array(rows, dtype=np.float64)}
    hits = [(a.strip() == b.strip(), 1) for a, b in zip(texts, references, strict=True)]
    right = np.array(hits, dtype=np.float64)
    if not writes(model):
        return {"accuracy": right}
    tokenize = bleu_tokenize(references, model.recipe.train.bleu_tokenize)
    return {"exact_match": right, "bleu": bleu_statistics(texts, references, tokenize)}


def example_statistics(model: TextModel, held: HeldOut) -> dict[str, Statistics]:
    """Every score of `COMBINE` that this kind of model has."""
    table = losses(model, held, held.count)
    of_answers = answer_statistics(model, held, answers(model, held))
    return of_answers | {"loss": table[:, :2], "token_accuracy": table[:, [2, 1]]}


# ---- contrastive pairs

AT_ONCE = 256  # contrasts that are scored


@dataclass(frozen=True)
class Contrast:
    """A source with its right and its wrong translation, and the sentences before it on either side."""

    source: str
    right: str
    wrong: str
    source_context: tuple[str, ...] = ()
    target_context: tuple[str, ...] = ()


def read_contrasts(path: Path) -> list[Contrast]:
    """A TSV of source, right, wrong and, where there is any, the context of the source and that of the target, sentences of which
    are parted by ‖."""
    contrasts = []
    for number, line in numbered_lines(path):
        columns = [column.strip() for column in line.split("\t")]
        if not line.strip():
            continue
        if len(columns) not in (3, 5) or not all(columns[:3]):
            raise UserError(
                "{path}, line {line}: a contrast is source, right, wrong, or those and the context of source and target, with "
                "tabs between",
                path,
                number,
            )
        contexts = (tuple(filter(None, map(str.strip, text.split(SEPARATOR.strip())))) for text in columns[3:])
        source, right, wrong = columns[:3]
        contrasts.append(Contrast(source, right, wrong, *contexts))
    if not contrasts:
        raise UserError("{path} is empty", path=path)
    return contrasts


def contrastive(model: TextModel, contrasts: Sequence[Contrast]) -> tuple[int, int]:
    """Of contrastive pairs, two translations that differ in one thing (Sennrich 2017, "How grammatical is character-level neural
    machine translation?"; for context, Müller et al. 2018): how many right translations the model finds likelier than the wrong
    ones, and of how many. Equal is not likelier, and what is longer than the model reads does not count. A model without context
    reads none."""
    model.require("translate")
    size, right, total = model.recipe.data.context, 0, 0
    for start in range(0, len(contrasts), AT_ONCE):
        group = contrasts[start : start + AT_ONCE]
        pairs = []
        for contrast in group:
            before = (
                texts[max(0, len(texts) - size) :] for texts in (contrast.source_context, contrast.target_context)
            )
            of_source, of_target = before
            source = joined(of_source, contrast.source)
            pairs += [(source, joined(of_target, target)) for target in (contrast.right, contrast.wrong)]
        scores = score(model, pairs)
        for good, bad in zip(scores[::2], scores[1::2], strict=True):
            if good is not None and bad is not None:
                right += good.log_probability > bad.log_probability
                total += 1
    return right, total
