"""Cleaning of pairs: what can be repaired is, what teaches wrong things is taken out and kept in a file beside, with the rule.

The pairs are held in memory, some 500 bytes each.

Beside the rules of a file there are scores: another program's, or those of two models, one for each direction.
Dual conditional cross-entropy (Junczys-Dowmunt, 2018, "Dual conditional cross-entropy filtering of noisy parallel corpora", WMT):
two models, one for each direction, should find a good pair likely, and about equally so. Of a loss alone one cannot say whether
the partner is wrong or the sentence hard, so each is taken against that of the same sentence beside a stranger's. With H the mean
loss of a word, and s', t' of another pair,

    forward = H(t | s') - H(t | s)      backward = H(s | t') - H(s | t)      score = forward + backward - |forward - backward| / 2
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from glassformer.config import DataConfig
from glassformer.data.cleaning.alignment import Pair, border
from glassformer.data.cleaning.cleaned import Cleaned, Tally, as_tsv, read_pairs
from glassformer.data.cleaning.rules import REPAIRS, RULES, Rule, RuleMatch, below_border, beyond, language_codes
from glassformer.data.origins import origins_of, shown
from glassformer.data.readers import RECORD_FORMATS
from glassformer.data.records import value_at
from glassformer.errors import UserError, install_hint
from glassformer.language import _
from glassformer.screen import watched

__all__ = ["NEEDED", "Cleaned", "Losses", "as_tsv", "by_two_models", "clean", "need_extra"]

NEEDED = ("ftfy", "datasketch", "py3langid")
CONFIDENT = 0.5  # of the pairs must look better than nine in ten of the wrong ones, or two runs know too little of them
Losses = Callable[[Sequence[Pair]], Sequence[float | None]]
"""A model's mean loss of a word of the target of each pair, in nats; None of a pair it cannot read."""


def need_extra() -> None:
    """A sentence that says how to get what is missing, before anything is read."""
    for module in NEEDED:
        try:
            importlib.import_module(module)
        except ImportError:
            raise UserError(
                "cleaning needs {module}; install it with: {command}", module, install_hint("clean")
            ) from None


def column_scores(config: DataConfig, cleaned: Cleaned, column: str) -> dict[int, float]:
    """What other programs wrote beside the pairs: of each line the number in a column of a TSV (counted from 1), or in a field of
    records."""
    (origin,) = origins_of(config, "train")
    is_records = origin.format in RECORD_FORMATS
    if not is_records and (origin.target is not None or not column.isdecimal()):
        raise UserError("--score-column is the number of a column of a TSV, or the name of a field of records")
    found: dict[int, float] = {}
    for line, further in cleaned.further.items():
        try:
            number = float(value_at(further, column))
        except (KeyError, TypeError, ValueError):
            continue
        if not math.isnan(number):
            found[line] = number
    return found


def by_column(config: DataConfig, cleaned: Cleaned, column: str, least: float) -> Rule:
    """Pairs whose score, by another program, is below `least`."""
    scores = column_scores(config, cleaned, column)

    def rule(pairs: Sequence[Pair], languages: Sequence[str]) -> RuleMatch:
        missing = next((line for line in cleaned.lines if line not in scores), None)
        if missing is not None:
            (origin,) = origins_of(config, "train")
            raise UserError(
                "{path}, line {line}: there is no number in the column of scores, {column}",
                shown(origin.path),
                missing,
                column,
            )
        return beyond(np.array([scores[line] for line in cleaned.lines]), least, f"< {least:g}")

    return rule


def by_two_models(forward: Losses, backward: Losses) -> Rule:
    """Pairs that two models, one each way, find unlikely or far from equally likely. The border is set by pairs that are wrong
    for certain, as in alignment.py. A pair that a model cannot read is left to the other rules."""

    def losses(pairs: Sequence[Pair], by: int) -> Any:
        """Of each source with the target `by` places on: forward and backward."""
        moved = [
            (source, target) for (source, _own), (_its, target) in zip(pairs, [*pairs[by:], *pairs[:by]], strict=True)
        ]
        both = forward(moved), backward([(target, source) for source, target in moved])
        return np.array([[math.nan if loss is None else loss for loss in way] for way in both])

    def scores(own: Any, stranger: Any) -> Any:
        """Each target's stranger is the source one place before its own, each source's the target one place on."""
        there, back = np.roll(stranger[0], 1) - own[0], stranger[1] - own[1]
        return there + back - abs(there - back) / 2

    def rule(pairs: Sequence[Pair], languages: Sequence[str]) -> RuleMatch:
        own, next_one, second = (losses(pairs, by) for by in range(3))
        right, wrong = scores(own, next_one), scores(next_one, second)
        known, known_wrong = right[~np.isnan(right)], wrong[~np.isnan(wrong)]
        if not len(known_wrong):
            return beyond(np.ones(len(pairs)), 0.0, "")
        told = float((known > np.quantile(known_wrong, 0.9)).mean())
        if told < CONFIDENT:
            raise UserError(
                "--score: by these two runs {told:.0%} of the pairs look better than nine in ten of those that are wrong for "
                "certain, and by guessing 10% would; are they trained to the end, the first from source to target and the "
                "second back?",
                told=told,
            )
        return below_border(np.where(np.isnan(right), math.inf, right), border(known, known_wrong))

    return rule


def clean(
    config: DataConfig,
    *,
    languages: Sequence[str] = (),
    without: Collection[str] = (),
    column: str | None = None,
    least: float = 0.0,
    models: tuple[Losses, Losses] | None = None,
) -> Cleaned:
    """The pairs of data.train without what the rules take. `languages`: of source and target, where they are not to be found out;
    `without`: rules and repairs to be left out; `column` and `least`: scores of another program, and the lowest that is good."""
    need_extra()
    languages = language_codes(languages)
    if unknown := sorted(set(without) - {*RULES, *REPAIRS}):
        raise UserError("there is no rule {name!r}; there are {known}", unknown[0], ", ".join({**REPAIRS, **RULES}))
    cleaned = read_pairs(config)
    cleaned.repairs = {name: Tally(_("repaired")) for name in REPAIRS if name not in without}
    pairs = watched(cleaned.kept, _("repairing"), len(cleaned.kept), every=1000)
    cleaned.kept = [cleaned.repair(pair, line) for pair, line in zip(pairs, cleaned.lines, strict=True)]
    rules = {name: rule for name, rule in RULES.items() if name not in without}
    if column is not None:
        rules["score"] = _("another program's score is too low"), by_column(config, cleaned, column, least)
    if models is not None:
        rules["models"] = _("two models find it unlikely, or do not agree"), by_two_models(*models)
    for name, (why, rule) in watched(rules.items(), _("cleaning"), len(rules)):
        cleaned.take(name, why, rule, languages)
    return cleaned
