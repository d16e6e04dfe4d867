"""`treebank`: sentences of a small grammar of our own, and their trees in one line, as Vinyals et al. 2015 write them:

    the judge sees the cat with the telescope        (S (NP XX XX )NP (VP XX (NP XX XX )NP (PP XX (NP XX XX )NP )PP )VP )S

XX stands for a word, every bracket says which it is. What makes it a task and no copying: `with` a tool belongs to the verb and
`with` a feature to the noun before it, and clauses stand inside clauses, so brackets close far from where they open."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

from glassformer.data.builtin.toys import stretch_of
from glassformer.data.splits import Split

NOUNS = ("judge", "law", "child", "cat", "doctor", "teacher", "dog", "king", "farmer", "queen", "student", "bird")
TOOLS, FEATURES = ("telescope", "hammer", "key", "spoon"), ("beard", "hat", "tail", "scarf")
ADJECTIVES = ("old", "small", "clever", "quiet", "young", "just")
SEES, SLEEPS = ("sees", "helps", "finds", "likes", "paints"), ("sleeps", "sings", "falls", "waits")
SAYS = ("says", "knows")
DEEPEST = 3  # clauses and phrases inside one another

Tree = tuple[Any, ...]
"""A label, then trees and words."""


def noun_phrase(draw: Random, deep: int) -> Tree:
    """A noun with its article (or `its`), an adjective at times, and what belongs to it: a feature, a clause, another noun."""
    simple = ("NP", draw.choice(("the", "a", "its")), *draw.sample(ADJECTIVES, draw.random() < 0.3), draw.choice(NOUNS))
    chance = draw.random()
    if deep >= DEEPEST or chance < 0.6:
        return simple
    if chance < 0.75:
        return ("NP", simple, ("PP", "with", ("NP", "the", draw.choice(FEATURES))))
    if chance < 0.88:
        return ("NP", simple, ("SBAR", "that", verb_phrase(draw, deep + 1)))
    return ("NP", simple, "and", noun_phrase(draw, deep + 1))


def verb_phrase(draw: Random, deep: int) -> Tree:
    """A verb and what it needs: nothing, a noun, a noun and a tool, or a clause."""
    chance = draw.random()
    if chance < 0.2:
        return ("VP", draw.choice(SLEEPS))
    if chance > 0.85 and deep < DEEPEST:
        return ("VP", draw.choice(SAYS), ("SBAR", "that", clause(draw, deep + 1)))
    tool = [("PP", "with", ("NP", "the", draw.choice(TOOLS)))] if draw.random() < 0.35 else []
    return ("VP", draw.choice(SEES), noun_phrase(draw, deep + 1), *tool)


def clause(draw: Random, deep: int = 0) -> Tree:
    """Somebody does something."""
    return ("S", noun_phrase(draw, deep), verb_phrase(draw, deep))


def words_of(tree: Tree) -> list[str]:
    """The sentence."""
    return [word for part in tree[1:] for word in ([part] if isinstance(part, str) else words_of(part))]


def in_one_line(tree: Tree) -> str:
    """The tree with XX for words.

    >>> in_one_line(("S", ("NP", "the", "cat"), ("VP", "sleeps")))
    '(S (NP XX XX )NP (VP XX )VP )S'
    """
    inside = " ".join("XX" if isinstance(part, str) else in_one_line(part) for part in tree[1:])
    return f"({tree[0]} {inside} ){tree[0]}"


def short_sentences(draw: Random, longest: int) -> Iterator[tuple[str, str]]:
    """Sentences of at most so many words without end, with their trees."""
    while True:
        tree = clause(draw)
        words = words_of(tree)
        if len(words) <= longest:
            yield " ".join(words), in_one_line(tree)


def treebank(split: Split, size: int, longest: int = 24) -> list[tuple[str, str]]:
    """Distinct sentences with their trees."""
    return stretch_of(short_sentences(Random("trees of a grammar"), longest), split, size)
