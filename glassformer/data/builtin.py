"""Data that needs no download, to try every kind of task in minutes.

    dates                pairs     a date as one of many locales writes it, to ISO 8601
    phrases              pairs     everyday sentences in English, Chinese and German (see phrases.py)
    copy, reverse, sort  pairs     a short row of letters, repeated, turned round, put in order
    stdlib               text      the source of the Python that is running, one document a file
    languages            classify  a line of names and dates, to the language it is written in
    date-parts           tag       the tokens of a written date, each with DAY, MONTH, YEAR, WEEKDAY or O

Everything follows from fixed seeds and from stable hashes, so two machines with the same Babel hold the same data. What
is held out is never a mere line: in `dates` and `date-parts` it is the day, in `languages` the names of countries,
languages and currencies, in `stdlib` the file. `size` sets the number of training examples; validation and test keep
theirs, so that scores of different sizes can be compared.

This module does not know how text becomes tokens; it yields strings.
"""

from __future__ import annotations

import datetime
import string
import sysconfig
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from glassformer.config import DataConfig, did_you_mean
from glassformer.data.dates import (
    LOCALES,
    DateTag,
    Split,
    Writing,
    days_of,
    require_babel,
    splits_of,
    tag_date,
    writings_of,
)
from glassformer.errors import ConfigError

if TYPE_CHECKING:
    from glassformer.data.files import Document

HELD_OUT_SIZE = 1000  # examples in validation, and in test
PHRASES_SEED = 1


@runtime_checkable
class DataSet(Protocol):
    """What a data set is to its users: it has a length, and every `iter()` starts again at the first example."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Any]: ...


# Of the random module only random() is promised to stay the same across Python versions; so all draws go through it.


def draw(generator: Random, n: int) -> int:
    return int(generator.random() * n)


def shuffled(generator: Random, items: list[Any]) -> list[Any]:
    return sorted(items, key=lambda _: generator.random())


# dates and date-parts


def draw_writings(split: Split, size: int) -> Iterator[tuple[Writing, datetime.date]]:
    """Distinct written dates, every locale as often as any other; in validation and test no day comes twice."""
    require_babel("dates")
    days = days_of(split)
    most = len(days) * len(LOCALES) // 2 if split == "train" else len(days)
    if size > most:
        raise ConfigError(f"data.size={size} is more than the built-in dates hold; ask for at most {most}")
    generator = Random(f"dates/{split}")
    seen: set[Any] = set()
    while len(seen) < size:
        day = days[draw(generator, len(days))]
        writings = writings_of(LOCALES[draw(generator, len(LOCALES))])
        writing = writings[draw(generator, len(writings))]
        key = writing.write(day) if split == "train" else day
        if key not in seen:
            seen.add(key)
            yield writing, day


def date_pairs(split: Split, size: int) -> list[tuple[str, str]]:
    return [(writing.write(day), day.isoformat()) for writing, day in draw_writings(split, size)]


def date_parts(split: Split, size: int) -> list[tuple[list[str], list[DateTag]]]:
    return [tag_date(writing, day) for writing, day in draw_writings(split, size)]


def examples_in_ten_languages(split: Split) -> list[tuple[str, str, str]]:
    """Ten dates of this split, each in another language: its English name, the written date, the ISO form."""
    require_babel("dates")
    from babel import Locale

    days, generator = days_of(split), Random(f"ten/{split}")
    found = []
    for locale in ("en", "fr", "de", "es", "el", "ru", "ar", "hi", "zh", "ja"):
        day = days[draw(generator, len(days))]
        found.append((str(Locale.parse(locale).english_name), writings_of(locale)[0].write(day), day.isoformat()))
    return found


# languages

LANGUAGES = (
    *("ar", "cs", "de", "el", "en", "es", "fi", "fr", "he", "hi", "hu", "it"),
    *("ja", "ko", "nl", "pl", "pt", "ro", "ru", "sv", "tr", "uk", "vi", "zh"),
)
NAME_KINDS = ("territories", "languages", "currencies")
NOT_NAMES = {"ZZ", "XA", "XB", "und", "mul", "mis", "zxx", "XXX", "XTS"}  # CLDR's codes for "unknown", "test" and such
TIME_UNITS = ("minute", "hour", "day", "week", "month", "year")


@cache
def names_in(language: str) -> dict[str, dict[str, str]]:
    """By kind and code, for the codes that all our languages have a name for."""
    from babel import Locale

    def common(kind: str) -> list[str]:
        return sorted(set.intersection(*(set(getattr(Locale.parse(code), kind)) for code in LANGUAGES)) - NOT_NAMES)

    return {kind: {code: getattr(Locale.parse(language), kind)[code] for code in common(kind)} for kind in NAME_KINDS}


@cache
def shared_names() -> frozenset[str]:
    """Names that two of our languages spell alike, but for upper and lower case: they tell nothing by themselves."""
    spelt = Counter[str]()
    for language in LANGUAGES:
        spelt.update({name.casefold() for names in names_in(language).values() for name in names.values()})
    return frozenset(name for name, times in spelt.items() if times > 1)


@cache
def names_of_split(language: str, split: Split) -> tuple[tuple[str, ...], ...]:
    """One row of names a kind. A code is held out in all languages together: a test country is new in each."""
    rows = []
    for kind, names in names_in(language).items():
        splits = splits_of((f"{kind}:{code}" for code in names), held_out=10)
        rows.append(tuple(name for name, its_split in zip(names.values(), splits, strict=True) if its_split == split))
    return tuple(rows)


@cache
def time_from_now(language: str, unit: str, amount: int) -> str:
    """ "in 5 days", "vor 3 Wochen" """
    from babel.dates import TIMEDELTA_UNITS, format_timedelta

    delta = datetime.timedelta(seconds=amount * dict(TIMEDELTA_UNITS)[unit])
    return format_timedelta(delta, granularity=unit, threshold=1e12, add_direction=True, locale=language)  # type: ignore[arg-type]


def language_line(generator: Random, language: str, split: Split) -> str:
    """Names, dates and spans of time as a list with "and" or "or".

    At least two names in it are spelt so by no other of our languages: no line could stand in two of them, and one
    unknown word is never all there is to go by.
    """
    from babel.lists import format_list

    names = names_of_split(language, split)
    telling = 0
    items: list[str] = []
    wanted = 3 + draw(generator, 3)
    while len(items) < wanted or telling < 2:
        of_kind = names[draw(generator, len(names))]
        name = of_kind[draw(generator, len(of_kind))]
        tells = name.casefold() not in shared_names()
        if name not in items and (tells or len(items) < wanted):
            items.append(name)
            telling += tells
    extra = draw(generator, 4)
    if extra in (1, 3):
        days, writings = days_of(split), writings_of(language)
        items.append(writings[draw(generator, len(writings))].write(days[draw(generator, len(days))]))
    if extra in (2, 3):
        amount = (2 + draw(generator, 39)) * (1 if draw(generator, 2) else -1)
        items.append(time_from_now(language, TIME_UNITS[draw(generator, len(TIME_UNITS))], amount))
    style = "standard" if draw(generator, 2) else "or"
    return format_list(shuffled(generator, items), style=style, locale=language)  # type: ignore[arg-type]


def language_lines(split: Split, size: int) -> list[tuple[str, str]]:
    require_babel("languages")
    generator = Random(f"languages/{split}")
    lines: dict[str, str] = {}
    while len(lines) < size:
        language = LANGUAGES[len(lines) % len(LANGUAGES)]
        lines.setdefault(language_line(generator, language, split), language)
    return list(lines.items())


# copy, reverse, sort

SHORTEST_ROW, LONGEST_ROW = 2, 16


def letter_rows(split: Split, size: int) -> list[list[str]]:
    """Distinct rows of 2 to 16 letters, from one endless series: first the test, then validation, then training. (There are
    only 26 rows of one letter, and the first two would take them all: training would never see that length.)"""
    start = {"test": 0, "val": HELD_OUT_SIZE, "train": 2 * HELD_OUT_SIZE}[split]
    uniform = Random("rows of letters").random
    letters = string.ascii_lowercase
    rows: dict[str, list[str]] = {}
    while len(rows) < start + size:
        row = [
            letters[int(uniform() * len(letters))]
            for _ in range(SHORTEST_ROW + int(uniform() * (LONGEST_ROW - SHORTEST_ROW + 1)))
        ]
        rows[" ".join(row)] = row
    return list(rows.values())[start:]


def rows_and_answers(answer: Callable[[list[str]], list[str]], split: Split, size: int) -> list[tuple[str, str]]:
    return [(" ".join(row), " ".join(answer(row))) for row in letter_rows(split, size)]


def reverse(row: list[str]) -> list[str]:
    return row[::-1]


# stdlib

# Not programs (tables, generated pages), or not the library itself (its tests, other people's packages).
NOT_LIBRARY = {"site-packages", "dist-packages", "test", "tests", "idlelib", "lib2to3", "encodings", "pydoc_data"}


@dataclass(frozen=True)
class SourceFiles:
    """Python files as documents, read anew each time round."""

    files: tuple[Path, ...]

    def __len__(self) -> int:
        return len(self.files)

    def __iter__(self) -> Iterator[Document]:
        from glassformer.data.files import Document

        for file in self.files:
            yield Document(text=file.read_text(encoding="utf-8"), ends=True)


def is_library_file(relative: Path) -> bool:
    made_for_one_machine = relative.name.startswith("_sysconfigdata") or relative.parts[0].startswith("config-")
    return not made_for_one_machine and NOT_LIBRARY.isdisjoint(relative.parts)


def holds_text(file: Path) -> bool:
    try:
        return bool(file.read_text(encoding="utf-8").strip())
    except (OSError, UnicodeDecodeError):
        return False


def stdlib_files(split: Split, size: int | None) -> SourceFiles:
    """With a size, so many files, chosen by their hash rather than by the alphabet."""
    folder = Path(sysconfig.get_path("stdlib"))
    found = (path.relative_to(folder) for path in folder.rglob("*.py"))
    names = sorted(path.as_posix() for path in found if is_library_file(path))
    names = [name for name, its_split in zip(names, splits_of(names), strict=True) if its_split == split]
    files = [folder / name for name in names if holds_text(folder / name)]
    if size is not None and size > len(files):
        raise ConfigError(f"data.size={size} is more than the {len(files)} files of the built-in stdlib")
    return SourceFiles(tuple(shuffled(Random(f"stdlib/{split}"), files)[:size]))


# all of them by name

TASKS = {
    "dates": "pairs",
    "phrases": "pairs",
    "copy": "pairs",
    "reverse": "pairs",
    "sort": "pairs",
    "stdlib": "text",
    "languages": "classify",
    "date-parts": "tag",
}
DEFAULT_SIZES = {"dates": 100_000, "copy": 50_000, "reverse": 50_000, "sort": 50_000}
DEFAULT_SIZES |= {"languages": 48_000, "date-parts": 50_000}  # stdlib and phrases give all they have


def open_builtin(config: DataConfig, split: Split) -> DataSet:
    """The examples of one split: (source, target), Document, (line, label) or (tokens, tags), as the task has it."""
    name = config.builtin
    if name not in TASKS:
        raise ConfigError(
            f"there is no built-in data {name!r}{did_you_mean(str(name), list(TASKS))}; there are {', '.join(TASKS)}"
        )
    if config.task != TASKS[name]:
        raise ConfigError(f'the built-in data {name!r} is for data.task="{TASKS[name]}", not "{config.task}"')
    if config.direction is not None and name != "phrases":
        raise ConfigError(f"data.direction belongs to the built-in phrases; {name!r} has only one")
    if config.size is not None and config.size < 1:
        raise ConfigError(f"data.size must be at least 1, not {config.size}")
    limit = config.size if split == "train" else None  # None: as many as the data set gives by itself
    size = limit or (DEFAULT_SIZES.get(name, 0) if split == "train" else HELD_OUT_SIZE)
    match name:
        case "dates":
            return date_pairs(split, size)
        case "date-parts":
            return date_parts(split, size)
        case "languages":
            return language_lines(split, size)
        case "copy":
            return rows_and_answers(list, split, size)
        case "reverse":
            return rows_and_answers(reverse, split, size)
        case "sort":
            return rows_and_answers(sorted, split, size)
        case "stdlib":
            return stdlib_files(split, limit)
        case _:
            from glassformer.data.phrases import open_phrases

            # Made once and kept: a tokenizer and an encoder each go over them more than once.
            return list(open_phrases(config.direction or "zh-en", split, limit, seed=PHRASES_SEED))
