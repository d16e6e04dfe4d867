"""Which of the museum's mistakes a run's curve looks like: signs that its losses and scores show, each with its numbers.

    start     the first loss is far above ln V, that of one who knows nothing
    flat      answers are often right, and yet the loss never fell below ln(e + V - 1) - 1, the least that a softmax of
              probabilities allows
    promise   of tokens so many are right, the right ones before them given, that whole texts should be; what is written has
              far fewer (greedy decoding is right where every such token is)
    gap       the training loss is beyond belief, and no validation was better than a table: what is trained is not what is asked
    table     the validation loss is no better than that of a table of the token before and its place, which sees no source

A sign stands for every mistake that would leave it; `audit` tells them apart.
"""

from __future__ import annotations

import math
import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from glassformer.data.batches import make_batches
from glassformer.data.encoding import open_files
from glassformer.errors import UserError
from glassformer.language import _
from glassformer.nn.loss import IGNORE
from glassformer.runs.folder import RunFolder

TOKENS = 400_000  # of the training data, for the table; half of them count, half are asked
HIGH, OFTEN, MISSED, NO_BETTER, BELIEVED = 1.5, 25.0, 20.0, 0.97, 0.1
"""Times ln V; per cent of tokens that are right; points of exact match; and of the table's loss two shares."""
OF_ENCODERS = ("answer-in-encoder", "source-unread")


@cache
def museum() -> dict[str, dict[str, str]]:
    """The mistakes by their names, from museum.toml."""
    return tomllib.loads(Path(__file__).with_name("museum.toml").read_text(encoding="utf-8"))["mistake"]


@dataclass(frozen=True)
class Curve:
    """What the log of a run and its data tell: the first loss, the least, the last validation; the size of the vocabulary, the
    mean number of target tokens, the loss of a table of the token before and its place (nats a token); the least validation."""

    first: float
    least: float
    validation: dict[str, float]
    vocab: int
    length: float
    table: float
    least_validation: float


def table_loss(labelled: list[tuple[tuple[int, int], int]]) -> float:
    """Of (context, label) pairs: contexts of the first half are counted, the second half is asked; nats a token. A context gives
    its own counts and one more shared out as all labels are."""
    half = len(labelled) // 2
    every, known = Counter(label for _c, label in labelled[:half]), defaultdict[Any, Counter[int]](Counter)
    for context, label in labelled[:half]:
        known[context][label] += 1
    size = len({label for _c, label in labelled})
    total = 0.0
    for context, label in labelled[half:]:
        counts, shared = known[context], (every[label] + 1) / (half + size)
        total -= math.log((counts[label] + shared) / (counts.total() + 1))
    return total / max(1, len(labelled) - half)


def read_curve(run: RunFolder) -> Curve:
    """The curve of a run; refused where it has no validation yet."""
    records, recipe = run.metrics(), run.recipe
    losses = [r["loss"] for r in records if "loss" in r]
    validations = [{k.removeprefix("val_"): v for k, v in r.items()} for r in records if "val_loss" in r]
    if not losses or not validations:
        raise UserError(
            "{path} has no validation in metrics.jsonl yet; train it further, or with a lower train.validate_every",
            run.path,
        )
    files, family, head = open_files(recipe.data, "train", run.path / "data"), recipe.model.family, recipe.model.head
    batches = make_batches(
        recipe.data, family, head, files, recipe.model.block_size, 0, layout="padded", training=False
    )
    labelled: list[tuple[tuple[int, int], int]] = []
    examples = 0
    in_text = recipe.data.task == "text"  # the place in a block tells nothing
    for batch in batches.in_order():
        real = batch.labels != IGNORE
        places = [0] * int(real.sum()) if in_text else batch.rows.positions[real].tolist()
        labelled += zip(zip(places, batch.rows.tokens[real].tolist()), batch.labels[real].tolist(), strict=True)
        examples += len(batch.examples) or len(batch.labels)
        if len(labelled) > TOKENS:
            break
    best = min(v["loss"] for v in validations)
    length = len(labelled) / max(1, examples)
    least = min(best, *losses)
    return Curve(losses[0], least, validations[-1], recipe.model.vocab_size, length, table_loss(labelled), best)


def start(curve: Curve) -> str | None:
    """The first loss."""
    known = math.log(curve.vocab)
    return (
        _("the first loss is {first:.2f}; one who knows nothing has ln V = {known:.2f}", curve.first, known)
        if curve.first > HIGH * known
        else None
    )


def flat(curve: Curve) -> str | None:
    """The least that a softmax of probabilities allows."""
    floor, right = math.log(math.e + curve.vocab - 1) - 1, curve.validation["token_accuracy"]
    return (
        _(
            "{right:.0f}% of tokens are right, and the loss never fell below {floor:.2f} = ln(e + V - 1) - 1 (it is {loss:.2f})",
            right,
            floor,
            curve.validation["loss"],
        )
        if right > OFTEN and curve.least >= 0.999 * floor
        else None
    )


def promise(curve: Curve) -> str | None:
    """Texts without an error, as teacher forcing promises and as they are written; of running text, a loss beyond belief."""
    right, loss = curve.validation["token_accuracy"], curve.validation["loss"]
    if "exact_match" not in curve.validation:
        return (
            _(
                "the validation loss is {loss:.3f}, where a table of the token before has {table:.2f}: no text is so easy",
                loss,
                curve.table,
            )
            if loss < BELIEVED * curve.table
            else None
        )
    promised, written = 100 * (right / 100) ** curve.length, curve.validation["exact_match"]
    return (
        _(
            "with the right tokens before each, {right:.0f}% of tokens are right, which promises {promised:.0f}% of texts "
            "without an error; by itself it writes {written:.0f}%",
            right,
            promised,
            written,
        )
        if written < promised / 2 and promised - written > MISSED
        else None
    )


def gap(curve: Curve) -> str | None:
    """A training loss beyond belief beside validations that are no better than a table's, from the first to the last."""
    return (
        _(
            "the training loss fell to {least:.3f} and the validation loss never below {validation:.2f}; a table of the token "
            "before and its place has {table:.2f}: what is trained is not what is asked",
            curve.least,
            curve.least_validation,
            curve.table,
        )
        if curve.least < BELIEVED * curve.table and curve.least_validation > NO_BETTER * curve.table
        else None
    )


def table(curve: Curve) -> str | None:
    """No better than a table."""
    return (
        _(
            "the validation loss is {loss:.2f}; a table of the token before and its place, which reads nothing else, has "
            "{table:.2f}",
            curve.validation["loss"],
            curve.table,
        )
        if curve.validation["loss"] > NO_BETTER * curve.table
        else None
    )


SIGNS: dict[str, Callable[[Curve], str | None]] = {
    "start": start,
    "flat": flat,
    "promise": promise,
    "gap": gap,
    "table": table,
}


def diagnose(run: RunFolder) -> dict[str, str]:
    """By each of the mistakes that a run's curve looks like, the evidence in a sentence; empty: it looks like none of them. The
    first sign is told alone: what comes after it may follow from it."""
    curve, family = read_curve(run), run.recipe.model.family
    for name, sign in SIGNS.items():
        if (said := sign(curve)) is not None:
            named = [one for one, about in museum().items() if about.get("sign") == name]
            return {one: said for one in named if family == "transformer" or one not in OF_ENCODERS}
    return {}
