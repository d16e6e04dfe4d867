"""Labelled bracket F1 of constituency trees in one line, `(S (NP XX XX )NP (VP XX )VP )S`, by evalb's rule (Sekine and Collins):
a constituent is its label and the words it spans; precision and recall are over all constituents of all sentences together, each
of a sentence's constituents matched once. A tree that is none (brackets that do not close, another number of words than the
sentence has) counts as one without constituents; evalb would leave such a sentence out, which is kinder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

Constituents = Counter[tuple[str, int, int]]
"""How often each label spans which words: (label, first, one after the last)."""


def constituents(line: str) -> tuple[Constituents, int] | None:
    """The constituents of a tree, and its number of words; None where it is no tree.

    >>> constituents("(S (NP XX )NP (VP XX )VP )S")[0] == Counter({("S", 0, 2): 1, ("NP", 0, 1): 1, ("VP", 1, 2): 1})
    True
    """
    found: Constituents = Counter()
    opened: list[tuple[str, int]] = []
    words = 0
    for token in line.split():
        if token.startswith("(") and len(token) > 1:
            if not opened and found:  # a second tree
                return None
            opened.append((token[1:], words))
        elif token.startswith(")"):
            if not opened or opened[-1][0] != token[1:]:
                return None
            label, first = opened.pop()
            found[label, first, words] += 1
        elif opened:
            words += 1
        else:
            return None
    return None if opened or not found else (found, words)


def bracket_f1(written: Sequence[str], wanted: Sequence[str]) -> dict[str, float]:
    """F1, precision, recall and the share of whole trees that are right, in percent.

    >>> round(bracket_f1(["(S (NP XX XX )NP )S"], ["(S (NP XX )NP XX )S"])["f1"], 1)
    50.0
    """
    matched = given = gold = whole = 0
    for ours, theirs in zip(written, wanted, strict=True):
        right = constituents(theirs)
        if right is None:
            raise ValueError(f"no tree: {theirs!r}")
        found = constituents(ours)
        own = found[0] if found is not None and found[1] == right[1] else Counter()
        matched += (own & right[0]).total()
        given, gold = given + own.total(), gold + right[0].total()
        whole += own == right[0]
    return {
        "f1": 200 * matched / max(1, given + gold),
        "precision": 100 * matched / max(1, given),
        "recall": 100 * matched / max(1, gold),
        "exact_match": 100 * whole / max(1, len(wanted)),
    }
