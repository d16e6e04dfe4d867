"""`dates`, `news` and `date-parts`: dates as the world writes them, "jeudi 3 mai 1979", "2024年3月5日星期二", "3 במאי 1979".

The patterns and the names come from CLDR, the Unicode consortium's collection, through Babel (an extra). A `Writing` is
one locale's full, long or medium pattern, taken apart once into pieces, each with a table of what it can say; writing a
date is then a few look-ups, several times faster than `babel.dates.format_date`, whose output it equals.
Because the pieces are the pattern's own fields, the exact place of day, month, year and weekday in the text is known,
which is what `tag_date` reports.

Left out is what cannot be read without knowing the locale: years of two digits, and months written as bare numbers
(05/03/1979) unless year, month and day come in this order. Calendars other than the Gregorian do not appear.

A day belongs to one split for ever, by a hash of its ISO form, whatever the locale: a day in the test set is never seen
in training in any language.
"""

from __future__ import annotations

import datetime
import hashlib
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Any, Literal

from glassformer.config import not_among
from glassformer.data.splits import Split
from glassformer.errors import ConfigError, UserError, install_hint

DateTag = Literal["DAY", "MONTH", "YEAR", "WEEKDAY", "O"]

FIRST_YEAR, LAST_YEAR = 1900, 2099
FORMATS = ("full", "long", "medium")
LOCALES = (
    *("en", "en_GB", "de", "fr", "es", "it", "pt", "nl", "sv", "fi", "pl", "cs", "hu", "ro", "tr", "vi", "id"),
    *("el", "ru", "uk", "ar", "fa", "he", "hi", "bn", "ta", "th", "ka", "hy", "am", "zh", "ja", "ko"),
)

# By the pattern letters of Unicode Technical Standard 35.
FIELD_TAGS: dict[str, DateTag] = {"d": "DAY", "M": "MONTH", "L": "MONTH", "y": "YEAR", "E": "WEEKDAY", "c": "WEEKDAY"}


def draw(generator: Random, n: int) -> int:
    """A number below n. Of the random module only random() is promised to be the same on every Python."""
    return int(generator.random() * n)


def shuffled(generator: Random, items: list[Any]) -> list[Any]:
    """The items in a random order that is the same on every Python."""
    return sorted(items, key=lambda _: generator.random())


def require_babel(what: str) -> None:
    try:
        import babel  # noqa: F401
    except ImportError:
        raise UserError(
            "the built-in data {what!r} needs Babel; install it with: {command}", what, install_hint("dates")
        ) from None


def splits_of(keys: Iterable[str], held_out: int = 5) -> list[Split]:
    """The split each key belongs to, `held_out` percent for each of val and test; the same on every machine."""
    splits: list[Split] = []
    for key in keys:
        number = int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "big") % 100
        splits.append("test" if number < held_out else "val" if number < 2 * held_out else "train")
    return splits


@cache
def days_of(split: Split) -> tuple[datetime.date, ...]:
    first, last = datetime.date(FIRST_YEAR, 1, 1), datetime.date(LAST_YEAR, 12, 31)
    days = [datetime.date.fromordinal(number) for number in range(first.toordinal(), last.toordinal() + 1)]
    splits = splits_of(day.isoformat() for day in days)
    return tuple(day for day, its_split in zip(days, splits, strict=True) if its_split == split)


@dataclass(frozen=True)
class Piece:
    """A field of a pattern, or the text between two fields (tag O); `texts` holds what it says for each value."""

    tag: DateTag
    texts: tuple[str, ...]


@dataclass(frozen=True)
class Writing:
    """One way of writing a date."""

    locale: str
    format: str
    pieces: tuple[Piece, ...]

    def parts(self, day: datetime.date) -> list[tuple[str, DateTag]]:
        value = {"DAY": day.day, "MONTH": day.month, "YEAR": day.year - FIRST_YEAR, "WEEKDAY": day.weekday(), "O": 0}
        return [(piece.texts[value[piece.tag]], piece.tag) for piece in self.pieces]

    def write(self, day: datetime.date) -> str:
        return "".join([text for text, _ in self.parts(day)])


def is_readable_anywhere(fields: Sequence[str]) -> bool:
    """Whether the pattern's fields, in their order, leave no doubt about day, month and year."""
    tags = [FIELD_TAGS.get(field[0]) for field in fields]
    if sorted(tag for tag in tags if tag in ("DAY", "MONTH", "YEAR")) != ["DAY", "MONTH", "YEAR"]:
        return False
    if len(fields[tags.index("YEAR")]) == 2:
        return False
    month_is_a_number = len(fields[tags.index("MONTH")]) <= 2
    return not month_is_a_number or tags.index("YEAR") < tags.index("MONTH") < tags.index("DAY")


def piece_of_field(locale: str, field: str) -> Piece:
    from babel.dates import DateTimeFormat

    def say(year: int = 2000, month: int = 1, day: int = 1) -> str:
        return DateTimeFormat(datetime.date(year, month, day), locale)[field]

    tag = FIELD_TAGS.get(field[0], "O")
    if tag == "DAY":
        return Piece(tag, ("", *(say(day=day) for day in range(1, 32))))
    if tag == "MONTH":
        return Piece(tag, ("", *(say(month=month) for month in range(1, 13))))
    if tag == "YEAR":
        return Piece(tag, tuple(say(year=year) for year in range(FIRST_YEAR, LAST_YEAR + 1)))
    if tag == "WEEKDAY":
        return Piece(tag, tuple(say(day=3 + weekday) for weekday in range(7)))  # 3 January 2000 was a Monday
    if field[0] == "G":  # the era, the same for all our years
        return Piece("O", (say(),))
    raise ValueError(f"locale {locale} writes dates with a field {field!r} that has no place in a plain date")


@cache
def writings_of(locale: str) -> tuple[Writing, ...]:
    """The distinct readable writings of one locale; a format that repeats an earlier one's pattern adds nothing."""
    from babel import Locale
    from babel.dates import tokenize_pattern

    writings: dict[str, Writing] = {}
    for format in FORMATS:
        pattern = Locale.parse(locale).date_formats[format].pattern
        # Text between fields comes as text, a field as its letter and how often it stands there.
        tokens = [value if isinstance(value, str) else value[0] * value[1] for _, value in tokenize_pattern(pattern)]
        is_field = [kind == "field" for kind, _ in tokenize_pattern(pattern)]
        fields = [token for token, field in zip(tokens, is_field, strict=True) if field]
        if pattern in writings or not is_readable_anywhere(fields):
            continue
        pieces = [
            piece_of_field(locale, token) if field else Piece("O", (token,))
            for token, field in zip(tokens, is_field, strict=True)
        ]
        writings[pattern] = Writing(locale, format, tuple(pieces))
    return tuple(writings.values())


@cache
def kind_of_character(character: str) -> Literal["space", "digit", "letter", "alone"]:
    """Han and kana stand alone, as does punctuation; marks and joiners belong to the letters around them."""
    if character.isdecimal():
        return "digit"
    if character in "\u200c\u200d":
        return "letter"
    category = unicodedata.category(character)
    if character.isspace() or category == "Cf":
        return "space"
    if category[0] not in "LM" or unicodedata.name(character, "").startswith(("CJK", "HIRAGANA", "KATAKANA")):
        return "alone"
    return "letter"


def token_spans(text: str) -> list[tuple[int, int]]:
    spans: list[tuple[int, int]] = []
    previous = "space"
    for place, character in enumerate(text):
        kind = kind_of_character(character)
        if kind == previous and kind in ("digit", "letter"):
            spans[-1] = (spans[-1][0], place + 1)
        elif kind != "space":
            spans.append((place, place + 1))
        previous = kind
    return spans


def date_tokens(text: str) -> list[str]:
    """The tokens that `date-parts` tags: a number, a word, one Han or kana character, one punctuation mark.

    It looks at nothing but the text, so that a line typed by a person is cut as the training lines were.
    """
    return [text[start:end] for start, end in token_spans(text)]


def tag_date(writing: Writing, day: datetime.date) -> tuple[list[str], list[DateTag]]:
    """The tokens of a written date and a tag for each.

    A word takes the tag of the field whose letters it holds, so a particle grown onto a name goes with it (Hebrew
    במאי, "in May"); no token holds letters of two fields. A dot that CLDR counts as part of an abbreviated name
    carries the name's tag.
    """
    parts = writing.parts(day)
    text = "".join([part for part, _ in parts])
    tag_of_character = [tag for part, tag in parts for _ in part]
    tokens: list[str] = []
    tags: list[DateTag] = []
    for start, end in token_spans(text):
        tokens.append(text[start:end])
        tags.append(next((tag for tag in tag_of_character[start:end] if tag != "O"), "O"))
    return tokens, tags


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
