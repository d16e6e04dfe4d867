"""Cleaning of pairs: what can be repaired is, what teaches wrong things is taken out and kept in a file beside, with the rule.

The pairs are held in memory, some 500 bytes each.
"""

from __future__ import annotations

import importlib
from collections.abc import Collection, Sequence

from glassformer.config import DataConfig
from glassformer.data.cleaning.cleaned import Cleaned, Tally, as_tsv, read_pairs
from glassformer.data.cleaning.rules import REPAIRS, RULES, language_codes
from glassformer.errors import UserError, install_hint
from glassformer.language import _
from glassformer.screen import watched

__all__ = ["NEEDED", "Cleaned", "as_tsv", "clean", "need_extra"]

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


def clean(
    config: DataConfig,
    *,
    languages: Sequence[str] = (),
    without: Collection[str] = (),
) -> Cleaned:
    """The pairs of data.train without what the rules take. `languages`: of source and target, where they are not to be found out;
    `without`: rules and repairs to be left out."""
    need_extra()
    languages = language_codes(languages)
    if unknown := sorted(set(without) - {*RULES, *REPAIRS}):
        raise UserError("there is no rule {name!r}; there are {known}", unknown[0], ", ".join({**REPAIRS, **RULES}))
    cleaned = read_pairs(config)
    cleaned.repairs = {name: Tally(_("repaired")) for name in REPAIRS if name not in without}
    pairs = watched(cleaned.kept, _("repairing"), len(cleaned.kept), every=1000)
    cleaned.kept = [cleaned.repair(pair, line) for pair, line in zip(pairs, cleaned.lines, strict=True)]
    rules = {name: rule for name, rule in RULES.items() if name not in without}
    for name, (why, rule) in watched(rules.items(), _("cleaning"), len(rules)):
        cleaned.take(name, why, rule, languages)
    return cleaned
