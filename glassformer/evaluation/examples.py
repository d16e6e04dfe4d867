"""The same examples for two runs: whether they can be compared at all, what each says and loses."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from glassformer.errors import UserError
from glassformer.evaluation.bootstrap import Combine, Statistics, bleu, bleu_statistics, mean, percent
from glassformer.evaluation.held_out import HeldOut, held_out, writes, written
from glassformer.evaluation.metrics import bleu_tokenize
from glassformer.evaluation.teacher_forced import example_losses
from glassformer.language import _
from glassformer.tasks import TextModel, classify, tag
from glassformer.text.languages import is_han


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


FAMILIES = {"transformer": _("an encoder-decoder"), "gpt": _("a GPT"), "bert": _("a BERT")}


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
    found = example_losses(model._model, held.batches)
    table = np.zeros((count, 3))
    for number, one in found.items():
        if number < count:
            table[number] = one.nats, one.labels, one.right
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
    data = dataclasses.replace(
        first.recipe.data,
        tokenizer=second.recipe.data.tokenizer,
        bpe_dropout=0.0,
        augment=0.0,
        prompt_answer=second.recipe.data.prompt_answer,
        lowercase=second.recipe.data.lowercase,
    )
    reading = TextModel(second.model, second.tokenizers, dataclasses.replace(second.recipe, data=data))
    return held_out(reading, split, len(held.examples), examples=held.examples)


def tag_hits(held: HeldOut, said: list[str]) -> Statistics:
    """Right tags and all tags of every sentence."""
    rows = []
    for (_unused, tags), own in zip(held.examples, said, strict=True):
        rows.append([float(sum(a == b for a, b in zip(own.split(), tags, strict=False))), float(len(tags))])
    return np.array(rows)


COMBINE: dict[str, Combine] = {
    "exact_match": percent,
    "bleu": bleu,
    "accuracy": percent,
    "loss": mean,
    "token_accuracy": percent,
}
"""From the summed numbers of some examples to the score of them all."""


def answer_statistics(model: TextModel, held: HeldOut, said: list[str]) -> dict[str, Statistics]:
    """What a model said to each example as the numbers that its task's scores are made of (`COMBINE`)."""

    def hits(wanted: list[str]) -> Statistics:
        return np.array([[float(s.strip() == w.strip()), 1.0] for s, w in zip(said, wanted, strict=True)])

    if writes(model):
        wanted = [target for _, target in held.examples]
        tokenize = bleu_tokenize(wanted, model.recipe.train.bleu_tokenize)
        return {"exact_match": hits(wanted), "bleu": bleu_statistics(said, wanted, tokenize)}
    match model.recipe.data.task:
        case "classify":
            return {"accuracy": hits([label for _, label in held.examples])}
        case "tag":
            return {"accuracy": tag_hits(held, said)}
    return {}


def example_statistics(model: TextModel, held: HeldOut) -> dict[str, Statistics]:
    """Every score of `COMBINE` that this kind of model has."""
    table = losses(model, held, held.count)
    found = answer_statistics(model, held, answers(model, held))
    return found | {"loss": table[:, :2], "token_accuracy": table[:, [2, 1]]}
