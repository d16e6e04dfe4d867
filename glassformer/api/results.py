"""Answers one can use as what they are (a text, a label, a list of words) and that still know everything else.

A `Translation` is a `str`: print it, compare it, write it to a file. It also has its score, its tokens, its alternatives
and, where asked for, its alignment.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from glassformer.tasks import Answer, Filled, Label, Tagged


class Written(str):
    """A text that a model wrote: the best answer, or the first that was drawn.

    >>> from glassformer.tasks import Answer
    >>> text = Written([Answer("un", []), Answer("deux", [])])
    >>> text, text.texts, text.upper()
    ('un', ['un', 'deux'], 'UN')
    """

    __slots__ = ("answers",)  # a dictionary for each of thousands of answers would cost more than all the rest

    answers: list[Answer]

    def __new__(cls, answers: Sequence[Answer]) -> Written:
        self = super().__new__(cls, answers[0].text)
        self.answers = answers if isinstance(answers, list) else list(answers)
        return self

    def __getnewargs__(self) -> Any:
        return (self.answers,)

    @property
    def best(self) -> Answer:
        """Everything about the text itself."""
        return self.answers[0]

    @property
    def texts(self) -> list[str]:
        """All answers, as many as `n_best` or `num_samples` asked for."""
        return [answer.text for answer in self.answers]

    @property
    def alternatives(self) -> list[Answer]:
        """The other answers."""
        return self.answers[1:]

    @property
    def score(self) -> float:
        """What the search ranked it by."""
        return self.best.score

    @property
    def logprob(self) -> float:
        """The model's own log-probability, in nats."""
        return self.best.logprob

    @property
    def tokens(self) -> list[str]:
        """The tokens it was written in, to be read."""
        return [token for part in self.best.parts for token in part.tokens]

    @property
    def source_tokens(self) -> list[str]:
        """The tokens of what it answers, to be read."""
        return [token for part in self.best.parts for token in part.source_tokens]

    @property
    def alignment(self) -> list[tuple[str, str]]:
        """(source token, answer token) for each answer token, where `align=True` asked for it."""
        return [(self.source_tokens[s], self.tokens[t]) for s, t in self.best.links]


class Translation(Written):
    """A text in answer to a text."""

    __slots__ = ()


class Generation(Written):
    """A text that goes on where a prompt ended, without the prompt."""

    __slots__ = ()


class Filling(str):
    """A text with the likeliest word in the place of each mask."""

    masks: list[list[Label]]

    def __new__(cls, filled: Filled) -> Filling:
        self = super().__new__(cls, filled.text)
        self.masks = filled.masks
        return self

    def __getnewargs__(self) -> Any:
        return (Filled(str(self), self.masks),)


class Classification(str):
    """The likeliest label; `labels` has all of them, the likeliest first."""

    labels: list[Label]

    def __new__(cls, labels: Sequence[Label]) -> Classification:
        self = super().__new__(cls, labels[0].label)
        self.labels = list(labels)
        return self

    def __getnewargs__(self) -> Any:
        return (self.labels,)

    @property
    def probability(self) -> float:
        """How likely the label is."""
        return self.labels[0].probability


class Tagging(list[Tagged]):
    """The words of a sentence, each with its likeliest label."""

    @property
    def labels(self) -> list[str]:
        """The labels alone."""
        return [word.label for word in self]
