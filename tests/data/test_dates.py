"""The built-in dates: days that are held out in every language, writings that are Babel's own, tags that are exact."""

from __future__ import annotations

import datetime
import random
import re
import unicodedata

import pytest

from glassformer.data.builtin import examples_in_ten_languages
from glassformer.data.builtin.dates import (
    FORMATS,
    LOCALES,
    NEWS,
    Writing,
    date_tokens,
    days_of,
    is_readable_anywhere,
    tag_date,
    writings_of,
)
from tests.builtin_sets import SPLITS, opened
from tests.counts import count

pytestmark = pytest.mark.slow


def all_writings() -> list[Writing]:
    return [writing for locale in LOCALES for writing in writings_of(locale)]


def a_year(year: int) -> list[datetime.date]:
    first = datetime.date(year, 1, 1)
    days = [first + datetime.timedelta(days) for days in range(366)]
    return [day for day in days if day.year == year]


# dates


def month_name(locale: str, width: str, month: int) -> str:
    from babel import Locale

    return Locale.parse(locale).months["format"][width][month]


def test_many_locales_and_scripts() -> None:
    assert len(set(LOCALES)) >= 24
    assert all(writings_of(locale) for locale in LOCALES)
    letters = {letter for writing in all_writings() for piece in writing.pieces for letter in "".join(piece.texts)}
    scripts = {unicodedata.name(letter).split()[0] for letter in letters if letter.isalpha()}
    assert len(scripts) >= 12
    assert {"LATIN", "GREEK", "CYRILLIC", "ARABIC", "HEBREW", "DEVANAGARI", "THAI", "CJK", "HANGUL"} <= scripts


def test_fast_writing_is_babels_own() -> None:
    """Catches a month table in the stand-alone form, weekdays that start on Sunday, a lost quote, an unpadded day."""
    from babel.dates import format_date

    generator = random.Random(7)
    days = days_of("train")
    for writing in all_writings():
        for day in generator.choices(days, k=count(fast=40, soak=400)):
            assert writing.write(day) == format_date(day, writing.format, locale=writing.locale)  # type: ignore[arg-type]


def test_what_is_left_out_is_only_what_is_ambiguous_or_a_repetition() -> None:
    """Catches a locale silently losing its patterns: each format not used is numeric day-first or an exact repetition."""
    from babel import Locale

    for locale in LOCALES:
        used = {writing.format for writing in writings_of(locale)}
        patterns = [Locale.parse(locale).date_formats[format].pattern for format in FORMATS if format in used]
        for format in set(FORMATS) - used:
            pattern = Locale.parse(locale).date_formats[format].pattern
            numeric_month = "M" in pattern and "MMM" not in pattern
            assert pattern in patterns or (numeric_month and pattern.index("d") < pattern.index("y"))
    assert not is_readable_anywhere(["dd", "MM", "y"])
    assert not is_readable_anywhere(["MM", "dd", "y"])
    assert not is_readable_anywhere(["d", "MMM", "yy"])
    assert is_readable_anywhere(["y", "MM", "dd"])


def test_a_written_date_means_one_day_whatever_its_language() -> None:
    """Catches a locale that reads a string otherwise ("4 Kas 2024": November in Turkish, May in Taita, dav)."""
    meaning: dict[str, datetime.date] = {}
    for day in a_year(2024) + a_year(1979):
        for writing in all_writings():
            assert meaning.setdefault(writing.write(day), day) == day


def test_days_are_split_once_for_all_locales_and_spread_over_the_years() -> None:
    """Catches a split by example or by (locale, day): the same day would turn up in two splits in two languages."""
    days = {
        split: {target for _, target in opened("dates", split, size=count(fast=20_000, soak=100_000))}
        for split in SPLITS
    }
    assert not days["train"] & days["val"] and not days["train"] & days["test"] and not days["val"] & days["test"]
    assert len(days["test"]) == len(days["val"]) == 1000  # a thousand different days
    assert sum(len(days_of(split)) for split in SPLITS) == 73049  # all of 1900 to 2099
    for split in SPLITS:
        assert {day.year for day in days_of(split)} == set(range(1900, 2100))


def test_dates_are_right_by_an_independent_reader() -> None:
    """Each source's numbers hold the target's year and day, and its month is Babel's name or the month's number."""
    names = {
        (locale, month): {month_name(locale, width, month).casefold() for width in ("wide", "abbreviated")}
        for locale in LOCALES
        for month in range(1, 13)
    }
    for source, target in opened("dates", "test"):
        day = datetime.date.fromisoformat(target)
        numbers = [int(token) for token in date_tokens(source) if token.isdecimal()]
        assert day.year in numbers and day.day in numbers
        named = any(name in source.casefold() for locale in LOCALES for name in names[locale, day.month])
        assert named or day.month in numbers


def test_known_dates() -> None:
    written = {(w.locale, w.format): w for w in all_writings()}
    assert written["fr", "full"].write(datetime.date(1979, 5, 3)) == "jeudi 3 mai 1979"
    assert written["en", "long"].write(datetime.date(1979, 5, 3)) == "May 3, 1979"
    assert written["zh", "full"].write(datetime.date(2024, 3, 5)) == "2024年3月5日星期二"
    assert written["he", "long"].write(datetime.date(1979, 5, 3)) == "3 במאי 1979"


def test_ten_languages() -> None:
    examples = examples_in_ten_languages("test")
    assert len({language for language, _, _ in examples}) == 10
    test_days = {day.isoformat() for day in days_of("test")}
    assert all(target in test_days for _, _, target in examples)
    assert [language for language, _, _ in examples][:3] == ["English", "French", "German"]


# news


def test_news_has_one_date_and_it_is_the_answer() -> None:
    """By Babel's own writing of the wanted day, with nothing of ours. Caught: a number beside it that is filled into the date, a
    day of another split, a sentence of one language around a date of another."""
    from babel.dates import format_date

    for split in SPLITS:
        held = {day.isoformat() for day in days_of(split)}
        alone = 0
        for text, iso in opened("news", split, size=400):
            day = datetime.date.fromisoformat(iso)
            ways = {format_date(day, way, locale=locale) for way in FORMATS for locale in NEWS}  # type: ignore[arg-type]
            way = max((way for way in ways if way in text or way.capitalize() in text), key=len)
            rest = text.replace(way, "").replace(way.capitalize(), "")
            alone += not rest
            assert iso in held and not re.search(r"\d{4}|\d\D+\d{3}", rest)
            assert not rest or any("\u4e00" <= c <= "\u9fff" for c in rest) == ("年" in way)
        assert 0.15 < alone / len(list(opened("news", split, size=400))) < 0.35


# date-parts


def test_tags_are_exact() -> None:
    """The tokens under a tag spell that field and nothing else; catches a shifted span or a swapped day and month."""
    for writing in all_writings():
        for day in a_year(2024)[::13] + a_year(1911)[3::31]:
            parts = writing.parts(day)
            tokens, tags = tag_date(writing, day)
            assert tokens == date_tokens(writing.write(day))
            assert len(tokens) == len(tags)
            assert "".join(tokens) == "".join("".join(date_tokens(text)) for text, _ in parts)
            said = {tag: "".join(t for t, own in zip(tokens, tags, strict=True) if own == tag) for tag in set(tags)}
            assert int(said["DAY"]) == day.day and said["YEAR"] == str(day.year)
            field = {tag: "".join(date_tokens(text)) for text, tag in parts if tag != "O"}
            assert set(field) == set(said) - {"O"}
            grown = {"he": ("ב", ""), "th": ("", "ที่")}  # a particle written together with the name
            before, after = grown.get(writing.locale, ("", ""))
            for tag in field:
                assert said[tag] in (field[tag], before + field[tag], field[tag] + after)


def test_no_token_holds_two_fields() -> None:
    for writing in all_writings():
        for day in a_year(2023)[::11]:
            tags = {tag for _, tag in writing.parts(day)}
            assert set(tag_date(writing, day)[1]) | {"O"} == tags | {"O"}


def test_tokens_of_a_chinese_date() -> None:
    writing = writings_of("zh")[0]
    assert list(zip(*tag_date(writing, datetime.date(2024, 3, 10)), strict=True)) == [
        *(("2024", "YEAR"), ("年", "O"), ("3", "MONTH"), ("月", "O"), ("10", "DAY"), ("日", "O")),
        *(("星", "WEEKDAY"), ("期", "WEEKDAY"), ("日", "WEEKDAY")),
    ]
