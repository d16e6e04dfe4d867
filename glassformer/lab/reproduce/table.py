"""What there is to reproduce, as plain data.

The metric belongs to the table, not to the recipe: no setting can change how a run is scored, only what it learned.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from glassformer.config import did_you_mean
from glassformer.errors import UserError

Metric = Literal["bleu-none", "bleu-13a", "bleu-zh", "exact-match", "loss"]


@dataclass(frozen=True, kw_only=True)
class Reproduction:
    """A recipe, what was published for it, and what it must reach here."""

    name: str  # of the recipe too
    what: str
    metric: Metric
    published: float | None = None
    source: str = "no published number; the goal is our own"
    goal: float | None = None  # None: what `beside` reaches, and `margin` more
    beside: str | None = None  # a recipe that is run with it, to be compared
    margin: float = 0.0
    collection: str | None = None  # of `glassformer data get`; None: built in
    seeds: int = 1  # the median over so many, where nothing else is said
    within: float | None = None  # seconds of training ...
    where: str = ""  # ... on this machine
    no_larger_than: str | None = None  # a recipe whose number of parameters is the most

    @property
    def lower_is_better(self) -> bool:
        """A loss should be small, a score large."""
        return self.metric == "loss"

    @property
    def folder(self) -> str:
        """Where `glassformer data get` puts the data."""
        return "" if self.collection is None else f"data/{self.collection.replace(':', '-')}"

    @property
    def goal_text(self) -> str:
        """The goal in a few signs."""
        sign = "≤" if self.lower_is_better else "≥"
        return f"{sign} {self.goal:g}" if self.goal is not None else f"{sign} {self.beside} + {self.margin:g}"

    @property
    def time_text(self) -> str:
        """Empty where no time is asked for."""
        if self.within is None:
            return ""
        return f"{self.within:g} s on two CPU cores" if self.where == "CPU" else f"{self.within:g} s on an {self.where}"

    def reached(self, value: float, goal: float) -> bool:
        """Whether a value is as good as the goal."""
        return value <= goal if self.lower_is_better else value >= goal


WU = "Wu et al., Good for Misconceived Reasons, ACL 2021: Transformer-tiny on text alone"


NANOGPT = "nanoGPT, README (about 3 minutes on an A100)"


CHINESE_NMT = (
    "ChineseNMT's own code on this very split, base size, 11 epochs, 8 minutes on an H200 (measured, not published)"
)


REPRODUCTIONS: tuple[Reproduction, ...] = (
    Reproduction(
        name="multi30k-en-de",
        what="image captions, English to German, the tiny Transformer",
        metric="bleu-none",
        published=41.02,
        source=WU,
        goal=41.02,
        collection="multi30k:en-de",
        seeds=3,
        within=60.0,
        where="H200",
    ),
    Reproduction(
        name="multi30k-en-de-best",
        what="the same test, any recipe from text alone",
        metric="bleu-none",
        published=41.96,
        source="Wu et al., ACL 2021: their best model, with the images",
        goal=42.0,
        collection="multi30k:en-de",
        seeds=3,
        within=60.0,
        where="H200",
    ),
    Reproduction(
        name="shakespeare-char",
        what="tiny Shakespeare by the character, nanoGPT's model",
        metric="loss",
        published=1.4697,
        source=NANOGPT,
        goal=1.4684,
        collection="shakespeare",
        within=8.0,
        where="H200",
    ),
    Reproduction(
        name="shakespeare-char-best",
        what="the same, any recipe of no more parameters",
        metric="loss",
        published=1.4697,
        source=NANOGPT,
        goal=1.42,
        collection="shakespeare",
        no_larger_than="shakespeare-char",
    ),
    Reproduction(
        name="tatoeba-en-zh",
        what="everyday sentences, English to Chinese",
        metric="bleu-zh",
        published=21.6,
        source=CHINESE_NMT,
        goal=26.0,
        collection="tatoeba:en-zh",
        within=120.0,
        where="H200",
    ),
    Reproduction(
        name="tatoeba-zh-en",
        what="everyday sentences, Chinese to English, beside a plain recipe",
        metric="bleu-13a",
        source="no published number; a plain recipe with the same updates is run beside it",
        beside="tatoeba-zh-en-plain",
        margin=3.0,
        collection="tatoeba:en-zh",
    ),
    Reproduction(
        name="dates",
        what="dates in 33 locales to ISO 8601, unseen days",
        metric="exact-match",
        goal=99.5,
        within=180.0,
        where="CPU",
    ),
    Reproduction(
        name="phrases-zh-en",
        what="everyday sentences, Chinese to English, held-out combinations",
        metric="exact-match",
        goal=99.0,
        within=300.0,
        where="CPU",
    ),
    Reproduction(name="copy", what="rows of letters repeated, of the lengths seen", metric="exact-match", goal=100.0),
    Reproduction(
        name="reverse", what="rows of letters turned round, of the lengths seen", metric="exact-match", goal=100.0
    ),
    Reproduction(
        name="sort", what="rows of letters put in order, of the lengths seen", metric="exact-match", goal=100.0
    ),
)


def reproduction(name: str) -> Reproduction:
    """The reproduction of this name; a misspelt one is an error with a suggestion."""
    for one in REPRODUCTIONS:
        if one.name == name:
            return one
    names = [one.name for one in REPRODUCTIONS]
    raise UserError(
        f"there is nothing called {name!r} to reproduce{did_you_mean(name, names)}; there are {', '.join(names)}"
    )
