"""`dates`, `news` and `date-parts`: a date as one of many locales writes it, alone or in a sentence, to ISO 8601, or each of its
tokens to what it stands for."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

from glassformer.config import not_among
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

NEWS = {
    "en": (
        ("the bridge", "the new school", "the old market", "platform {number}"),
        ("Lyon", "Turin", "Cork", "Graz"),
        ("{thing} in {place} was opened on {date}.", "On {date} {thing} in {place} was closed for {number} weeks."),
    ),
    "de": (
        ("die Brücke", "die neue Schule", "der alte Markt", "Gleis {number}"),
        ("Lyon", "Turin", "Cork", "Graz"),
        ("Am {date} wurde {thing} in {place} eröffnet.", "Seit dem {date} ist {thing} in {place} für {number} Wochen gesperrt."),
    ),
    "fr": (
        ("le pont", "la nouvelle école", "le vieux marché", "le quai {number}"),
        ("Lyon", "Turin", "Cork", "Graz"),
        ("Le {date}, {thing} de {place} a ouvert.", "Depuis le {date}, {thing} de {place} est fermé pour {number} semaines."),
    ),
    "zh": (
        ("大桥", "新学校", "老市场", "{number} 号站台"),
        ("里昂", "都灵", "科克", "格拉茨"),
        ("{place}的{thing}于{date}开放。", "{date}起，{place}的{thing}关闭 {number} 周。"),
    ),
}  # fmt: skip
"""By locale: things, places, and what is told of them. The number is there to mislead."""


def draw_writings(split: Split, size: int, locales: Sequence[str] = LOCALES) -> Iterator[tuple[Writing, datetime.date]]:
    """Distinct written dates, every locale as often as any other; in validation and test no day comes twice."""
    require_babel("dates")
    if unknown := [name for name in locales if name not in LOCALES]:
        raise ConfigError(
            "data.locales: there is no {unknown!r}{suggestion}; there are {locales}", *not_among(unknown[0], LOCALES)
        )
    days = days_of(split)
    most = len(days) * len(locales) // 2 if split == "train" else len(days)
    if size > most:
        raise ConfigError("data.size={size} is more than the built-in dates hold; ask for at most {most}", size, most)
    generator = Random(f"dates/{split}")
    seen: set[Any] = set()
    while len(seen) < size:
        day = days[draw(generator, len(days))]
        writings = writings_of(locales[draw(generator, len(locales))])
        writing = writings[draw(generator, len(writings))]
        key = writing.write(day) if split == "train" else day
        if key not in seen:
            seen.add(key)
            yield writing, day


def date_pairs(split: Split, size: int, locales: Sequence[str] = LOCALES) -> list[tuple[str, str]]:
    """Written dates of these locales, each with its ISO form; a locale that is named twice comes twice as often."""
    return [(writing.write(day), day.isoformat()) for writing, day in draw_writings(split, size, locales)]


def news(split: Split, size: int) -> list[tuple[str, str]]:
    """Sentences with a date in them, in four languages, each with that date's ISO form; one in four is the date alone."""
    chosen = Random(f"news/{split}")
    pairs = []
    for writing, day in draw_writings(split, size, tuple(NEWS)):
        thing, place, sentence = (options[draw(chosen, len(options))] for options in NEWS[writing.locale])
        number = 2 + draw(chosen, 28)
        text = (sentence if draw(chosen, 4) else "{date}").format(
            thing=thing.format(number=number), place=place, date=writing.write(day), number=number
        )
        pairs.append((text[:1].upper() + text[1:], day.isoformat()))
    return pairs


def date_parts(split: Split, size: int) -> list[tuple[list[str], list[DateTag]]]:
    return [tag_date(writing, day) for writing, day in draw_writings(split, size)]


def examples_in_ten_languages(split: Split) -> list[tuple[str, str, str]]:
    """Ten dates of this split, each in another language: its English name, the written date, the ISO form."""
    require_babel("dates")
    from babel import Locale

    days, generator = days_of(split), Random(f"ten/{split}")
    examples = []
    for locale in ("en", "fr", "de", "es", "el", "ru", "ar", "hi", "zh", "ja"):
        day = days[draw(generator, len(days))]
        examples.append((str(Locale.parse(locale).english_name), writings_of(locale)[0].write(day), day.isoformat()))
    return examples
