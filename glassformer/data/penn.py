"""Trees as the Penn Treebank writes them, made pairs: a sentence, and its tree in one line (data/builtin/treebank.py).

    ( (S (NP-SBJ (NNP Mr.) (NNP Vinken) ) (VP (VBZ is) (NP-PRD (NN chairman) )) (. .) ))
    Mr. Vinken is chairman        (S (NP XX XX )NP (VP XX (NP XX )NP )VP )S

Traces are left out with whatever holds nothing else, and labels stand without function tags and indices (NP-SBJ-1). Punctuation
is left out of both sides: evalb deletes it before it counts, so that brackets are counted as evalb counts them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from glassformer.data.builtin.treebank import Tree, in_one_line, words_of

TOKEN = re.compile(r"[()]|[^\s()]+")
LEFT_OUT = {"-NONE-", ",", ".", ":", "``", "''"}  # parts of speech: of traces, and of what evalb deletes
BRACKETS = {"-LRB-": "(", "-RRB-": ")", "-LCB-": "{", "-RCB-": "}"}
DEEPEST = 200  # brackets inside one another; no sentence comes near it


@dataclass
class Bracket:
    """One that is open: its label ("" of the outermost), its word if it holds one, and what has closed inside it."""

    label: str = ""
    word: str = ""
    inside: list[Tree | str] = field(default_factory=list)


def read_trees(text: str) -> Iterator[Tree]:
    """The trees of a file; what is no bracketing raises a ValueError.

    >>> list(read_trees("( (S (NP-SBJ (PRP It) ) (VP (VBZ works) (NP (-NONE- *) )) (. .) ))"))
    [('S', ('NP', 'It'), ('VP', 'works'))]
    """
    opened: list[Bracket] = []
    for token in TOKEN.findall(text):
        if token == "(":
            opened.append(Bracket())
            if len(opened) > DEEPEST:
                raise ValueError(f"more than {DEEPEST} brackets inside one another")
        elif not opened:
            raise ValueError(f"{token!r} stands outside of all brackets")
        elif token != ")":
            one = opened[-1]
            if one.word or one.inside:
                raise ValueError(f"{token!r} stands where a bracket should")
            one.label, one.word = (one.label, BRACKETS.get(token, token)) if one.label else (token, "")
        else:
            one = opened.pop()
            if not opened:
                yield from (part for part in one.inside if not isinstance(part, str))
            elif one.inside:
                opened[-1].inside.append((re.split("[-=]", one.label)[0], *one.inside))
            elif one.word and one.label not in LEFT_OUT:
                opened[-1].inside.append(one.word)
    if opened:
        raise ValueError("a bracket is not closed")


def tree_pairs(text: str) -> list[tuple[str, str]]:
    """The sentences of a file, each with its tree in one line."""
    return [(" ".join(words_of(tree)), in_one_line(tree)) for tree in read_trees(text)]
