"""Data that needs no download, to try every kind of task in minutes.

    dates                pairs     a date as one of many locales writes it, to ISO 8601
    news                 pairs     a sentence with a date in it, in four languages, to that date
    phrases              pairs     everyday sentences in English, Chinese and German (see phrases.py)
    copy, reverse, sort  pairs     a short row of letters, repeated, turned round, put in order
    in-context           pairs     a made-up table in the prompt, and a question that only it answers
    treebank             pairs     a sentence of a small grammar, to its tree in one line
    stdlib               text      the source of the Python that is running, one document a file
    languages            classify  a line of names and dates, to the language it is written in
    date-parts           tag       the tokens of a written date, each with DAY, MONTH, YEAR, WEEKDAY or O

Everything follows from fixed seeds and from stable hashes, so two machines with the same Babel hold the same data. What
is held out is never a mere line: in `dates`, `news` and `date-parts` it is the day, in `languages` the names of countries,
languages and currencies, in `stdlib` the file. `size` sets the number of training examples; validation and test keep
theirs, so that scores of different sizes can be compared.

This module does not know how text becomes tokens; it yields strings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol, runtime_checkable

from glassformer.config import DataConfig, not_among
from glassformer.data.builtin.dates import LOCALES, date_pairs, date_parts, examples_in_ten_languages, news
from glassformer.data.builtin.languages import LANGUAGES, language_lines
from glassformer.data.builtin.phrases import open_phrases
from glassformer.data.builtin.stdlib import stdlib_files
from glassformer.data.builtin.toys import HELD_OUT_SIZE, in_context, reverse, rows_and_answers
from glassformer.data.builtin.treebank import treebank
from glassformer.data.splits import Split
from glassformer.errors import ConfigError

PHRASES_SEED = 1


@runtime_checkable
class DataSet(Protocol):
    """What a data set is to its users: it has a length, and every `iter()` starts again at the first example."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Any]: ...


TASKS = dict.fromkeys(("dates", "news", "phrases", "copy", "reverse", "sort", "in-context", "treebank"), "pairs")
TASKS |= {"stdlib": "text", "languages": "classify", "date-parts": "tag"}
MADE_BY: dict[str, Callable[[Split, int], DataSet]] = {
    "news": news,
    "date-parts": date_parts,
    "languages": language_lines,
    "in-context": in_context,
    "treebank": treebank,
}
USUAL_SIZE = 50_000  # training examples; stdlib and phrases give all they have
SIZES = {"dates": 100_000, "languages": 48_000}


def check_builtin(config: DataConfig) -> str:
    """The name of the built-in set, once it is known to be one and to fit the settings around it."""
    name = config.builtin
    if name not in TASKS:
        raise ConfigError("there is no built-in data {name!r}{suggestion}; there are {tasks}", *not_among(name, TASKS))
    if config.task != TASKS[name]:
        raise ConfigError(
            'the built-in data {name!r} is for data.task="{tasks}", not "{task}"', name, TASKS[name], config.task
        )
    if config.direction is not None and name != "phrases":
        raise ConfigError("data.direction belongs to the built-in phrases; {name!r} has only one", name)
    if config.locales and name != "dates":
        raise ConfigError("data.locales belongs to the built-in dates, not to {name!r}", name)
    if config.test_lengths and name not in ("copy", "reverse", "sort"):
        raise ConfigError("data.test_lengths belongs to the built-in copy, reverse and sort, not to {name!r}", name)
    return name


def open_builtin(config: DataConfig, split: Split) -> DataSet:
    """The examples of one split: (source, target), Document, (line, label) or (tokens, tags), as the task has it."""
    name = check_builtin(config)
    limit = config.size if split == "train" else None  # None: as many as the data set gives by itself
    size = limit or (SIZES.get(name, USUAL_SIZE) if split == "train" else HELD_OUT_SIZE)
    lengths = (config.test_lengths[0], config.test_lengths[1]) if config.test_lengths else None
    match name:
        case "dates":
            return date_pairs(split, size, config.locales or LOCALES)
        case "copy" | "reverse" | "sort":
            answers: dict[str, Callable[[list[str]], list[str]]] = {"copy": list, "reverse": reverse, "sort": sorted}
            return rows_and_answers(answers[name], split, size, lengths)
        case "stdlib":
            return stdlib_files(split, limit)
        case "phrases":
            # Made once and kept: a tokenizer and an encoder each go over them more than once.
            return list(open_phrases(config.direction or "zh-en", split, limit, seed=PHRASES_SEED))
        case _:
            return MADE_BY[name](split, size)


__all__ = ["LANGUAGES", "TASKS", "DataSet", "check_builtin", "examples_in_ten_languages", "open_builtin"]
