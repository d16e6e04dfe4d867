"""`languages`: a line of names and dates, to the language it is written in."""

from __future__ import annotations

import datetime
from collections import Counter
from functools import cache
from random import Random

from glassformer.data.builtin.dates import days_of, draw, require_babel, shuffled, splits_of, writings_of
from glassformer.data.splits import Split

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
    length = 3 + draw(generator, 3)
    while len(items) < length or telling < 2:
        of_kind = names[draw(generator, len(names))]
        name = of_kind[draw(generator, len(of_kind))]
        tells = name.casefold() not in shared_names()
        if name not in items and (tells or len(items) < length):
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
