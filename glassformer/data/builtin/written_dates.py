"""`dates` and `date-parts`: a date as one of many locales writes it, to ISO 8601, or each of its tokens to what it stands for."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from random import Random
from typing import Any

from glassformer.data.builtin.dates import (
    LOCALES,
    DateTag,
    Split,
    Writing,
    days_of,
    require_babel,
    tag_date,
    writings_of,
)
from glassformer.data.builtin.draws import draw
from glassformer.errors import ConfigError


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
