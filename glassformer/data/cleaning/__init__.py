"""Cleaning of pairs: what can be repaired is, what teaches wrong things is taken out and kept in a file beside, with the rule.

The pairs are held in memory, some 500 bytes each.
"""

from __future__ import annotations

import importlib
from collections.abc import Collection, Sequence

from glassformer.config import DataConfig
from glassformer.data.cleaning.alignment import Pair
from glassformer.data.cleaning.cleaned import SHOWN, Cleaned, Removed, Tally, as_tsv
from glassformer.data.cleaning.reading import read_pairs
from glassformer.data.cleaning.repair import REPAIRS
from glassformer.data.cleaning.rules import RULES, language_codes
from glassformer.data.cleaning.scores import Losses, by_column, by_two_models
from glassformer.errors import UserError, install_hint
from glassformer.language import _
from glassformer.screen import watched

__all__ = ["NEEDED", "Cleaned", "Losses", "as_tsv", "by_two_models", "clean", "need_extra"]

NEEDED = ("ftfy", "datasketch", "py3langid")


def need_extra() -> None:
    """A sentence that says how to get what is missing, before anything is read."""
    for module in NEEDED:
        try:
            importlib.import_module(module)
        except ImportError:
            raise UserError(
                "cleaning needs {module}; install it with: {command}", module, install_hint("clean")
            ) from None


def repaired(pair: Pair, line: int, cleaned: Cleaned) -> Pair:
    """The pair with all that can be put right."""
    for name, tally in cleaned.repairs.items():
        fixed = REPAIRS[name](*pair)
        if fixed != pair:
            tally.count += 1
            tally.examples += [(str(line), *pair, *fixed)] * (len(tally.examples) < SHOWN)
            cleaned.repaired.append(Removed(name, line, *pair))
        pair = fixed
    return pair


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
    cleaned.kept = [repaired(pair, line, cleaned) for pair, line in zip(pairs, cleaned.lines, strict=True)]
    rules = {name: rule for name, rule in RULES.items() if name not in without}
    if column is not None:
        rules["score"] = _("another program's score is too low"), by_column(config, cleaned, column, least)
    if models is not None:
        rules["models"] = _("two models find it unlikely, or do not agree"), by_two_models(*models)
    for name, (why, rule) in watched(rules.items(), _("cleaning"), len(rules)):
        cleaned.take(name, why, rule, languages)
    return cleaned
