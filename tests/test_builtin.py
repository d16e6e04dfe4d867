"""The built-in data keep their promises: what is held out is held out, and what is written is right."""

from __future__ import annotations

import datetime
import hashlib
import math
import os
import random
import subprocess
import sys
import unicodedata
from collections import Counter
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import pytest

from glassformer.config import DataConfig
from glassformer.data.builtin import (
    LANGUAGES,
    TASKS,
    DataSet,
    examples_in_ten_languages,
    languages,
    open_builtin,
    stdlib,
)
from glassformer.data.builtin.dates import (
    FORMATS,
    LOCALES,
    all_writings,
    date_tokens,
    days_of,
    is_readable_anywhere,
    tag_date,
    writings_of,
)
from glassformer.errors import ConfigError, UserError
from tests.counts import count

SPLITS = ("train", "val", "test")
OURS = [name for name in TASKS if name != "phrases"]


def opened(name: str, split: Any, size: int | None = None) -> DataSet:
    return open_builtin(DataConfig(builtin=name, task=TASKS[name], size=size), split)  # type: ignore[arg-type]


def a_year(year: int) -> list[datetime.date]:
    first = datetime.date(year, 1, 1)
    days = [first + datetime.timedelta(days) for days in range(366)]
    return [day for day in days if day.year == year]


# every data set


@pytest.mark.parametrize("name", OURS)
def test_each_iter_starts_over_and_the_length_is_true(name: str) -> None:
    """Catches a generator handed out as a data set: its second epoch would be empty."""
    examples = opened(name, "test")
    first, second = list(examples), list(examples)
    assert len(first) == len(examples) > 0
    assert first == second


@pytest.mark.parametrize("name", [name for name in OURS if name != "stdlib"])
def test_size_counts_training_examples_only(name: str) -> None:
    assert len(opened(name, "train", size=123)) == 123
    assert len(opened(name, "val", size=123)) == len(opened(name, "test")) == 1000


@pytest.mark.parametrize("name", [name for name in OURS if name != "stdlib"])
def test_no_example_is_in_two_splits_or_twice_in_one(name: str) -> None:
    inputs = {
        split: [str(example[0]) for example in opened(name, split, size=count(fast=3000, soak=100_000))]
        for split in SPLITS
    }
    for one, other in combinations(SPLITS, 2):
        assert not set(inputs[one]) & set(inputs[other])
    if name != "date-parts":  # two texts may have the same tokens: only their spaces differ
        assert all(len(set(texts)) == len(texts) for texts in inputs.values())


def digest_of_all() -> str:
    texts = [str(list(opened(name, split, size=20))) for name in OURS if name != "stdlib" for split in ("train", "val")]
    files = [file.name for file in stdlib.stdlib_files("train", 20).files]
    return hashlib.sha256("".join(texts + files).encode()).hexdigest()


@pytest.mark.slow
def test_data_do_not_depend_on_the_hash_seed_of_the_process() -> None:
    """Catches hash() or the order of a set used anywhere on the way: both change with PYTHONHASHSEED."""
    other_seed = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
    done = subprocess.run(
        [sys.executable, "-c", "from tests.test_builtin import digest_of_all; print(digest_of_all())"],
        env={**os.environ, "PYTHONHASHSEED": other_seed},
        cwd=Path(__file__).parent.parent,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == digest_of_all()


def test_unknown_names_wrong_tasks_and_wrong_sizes_are_refused_in_a_sentence() -> None:
    with pytest.raises(ConfigError, match=r"no built-in data 'date'.*did you mean 'dates'"):
        open_builtin(DataConfig(builtin="date"), "train")
    with pytest.raises(ConfigError, match='"pairs", not "classify"'):
        open_builtin(DataConfig(builtin="dates", task="classify"), "train")
    with pytest.raises(ConfigError, match="direction"):
        open_builtin(DataConfig(builtin="dates", direction="zh-en"), "train")
    with pytest.raises(ConfigError, match="at least 1"):
        opened("sort", "train", size=0)
    with pytest.raises(ConfigError, match="at most"):
        opened("dates", "train", size=10**9)
    with pytest.raises(ConfigError, match="files"):
        opened("stdlib", "train", size=10**9)


@pytest.mark.parametrize("name", ["dates", "date-parts", "languages"])
def test_without_babel_the_error_says_what_to_install(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "babel", None)
    with pytest.raises(UserError, match=r"needs Babel: pip install 'glassformer\[dates\]'"):
        opened(name, "test")


def test_phrases_go_in_the_direction_asked_for() -> None:
    """Catches a direction that is lost on the way: Chinese would be on the wrong side."""
    for direction, chinese in (("zh-en", 0), ("en-zh", 1)):
        for pair in open_builtin(DataConfig(builtin="phrases", direction=direction, size=50), "train"):
            assert any("\u4e00" <= character <= "\u9fff" for character in pair[chinese])
            assert max(pair[1 - chinese]) < "\u4e00"
    default = open_builtin(DataConfig(builtin="phrases", size=50), "train")
    assert len(default) == 50
    assert list(default) == list(open_builtin(DataConfig(builtin="phrases", direction="zh-en", size=50), "train"))


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


@pytest.mark.slow
def test_a_written_date_means_one_day_whatever_its_language() -> None:
    """Catches a locale that reads a string otherwise ("4 Kas 2024": November in Turkish, May in Taita, dav)."""
    meaning: dict[str, datetime.date] = {}
    for day in a_year(2024) + a_year(1979):
        for writing in all_writings():
            assert meaning.setdefault(writing.write(day), day) == day


@pytest.mark.slow
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


# languages


def test_every_language_is_in_every_split_about_as_often() -> None:
    assert len(LANGUAGES) >= 10
    for split in SPLITS:
        labels = Counter(label for _, label in opened("languages", split, size=2400))
        assert set(labels) == set(LANGUAGES)
        assert max(labels.values()) - min(labels.values()) <= 1


def test_names_are_held_out_in_all_languages_together() -> None:
    """Catches a split of names by language: "Kenya" would be a test word in one and a training word in the next."""
    for language in LANGUAGES:
        rows = {split: languages.names_of_split(language, split) for split in SPLITS}
        assert [len(row) for row in rows["test"]] == [len(row) for row in languages.names_of_split("en", "test")]
        assert all(len(row) >= 10 for split in SPLITS for row in rows[split])
        total = sum(len(row) for split in SPLITS for row in rows[split])
        assert total == sum(len(names) for names in languages.names_in(language).values())


def test_no_line_could_stand_in_another_language() -> None:
    """At least two of a line's names are spelt so in its language alone; catches "Mali, Togo, Cuba" with six answers."""
    spelling: dict[str, set[str]] = {}
    for language in LANGUAGES:
        for names in languages.names_in(language).values():
            for name in names.values():
                spelling.setdefault(name.casefold(), set()).add(language)
    for line, label in opened("languages", "test"):
        names = {name for row in languages.names_of_split(label, "test") for name in row if name in line}
        assert sum(spelling[name.casefold()] == {label} for name in names) >= 2


@pytest.mark.slow
def test_languages_can_be_told_apart_by_what_training_shows() -> None:
    """Naive Bayes on letter trigrams, another method altogether, reaches 98% on held-out names from 2,400 lines."""

    def grams(line: str) -> list[str]:
        return [f" {line} "[i : i + n] for n in (1, 2, 3) for i in range(len(line) + 3 - n)]

    seen: dict[str, Counter[str]] = {language: Counter() for language in LANGUAGES}
    for line, label in opened("languages", "train", size=2400):
        seen[label].update(grams(line))
    kinds = len(set().union(*seen.values()))
    totals = {language: seen[language].total() + 0.1 * kinds for language in LANGUAGES}

    def guess(line: str) -> str:
        parts = grams(line)
        return max(LANGUAGES, key=lambda x: sum(math.log((seen[x][part] + 0.1) / totals[x]) for part in parts))

    test = list(opened("languages", "test"))[: count(fast=300, soak=1000)]
    assert sum(guess(line) == label for line, label in test) / len(test) >= 0.98


# stdlib


def test_stdlib_is_split_by_file() -> None:
    """Catches a split by position within the text: one file's classes would be on both sides."""
    digests = {
        split: {hashlib.sha256(document.text.encode()).hexdigest() for document in opened("stdlib", split)}
        for split in SPLITS
    }
    for one, other in combinations(SPLITS, 2):
        assert not digests[one] & digests[other]
    sizes = {split: len(digests[split]) for split in SPLITS}
    assert sizes["train"] > 0.8 * sum(sizes.values()) and min(sizes.values()) >= 5


@pytest.mark.slow
def test_stdlib_is_python_and_the_library_only() -> None:
    files = [file for split in SPLITS for file in stdlib.stdlib_files(split, None).files]  # type: ignore[arg-type]
    names = {file.name for file in files}
    assert {"argparse.py", "heapq.py", "dataclasses.py"} <= names
    assert len(set(files)) == len(files)
    assert not any({"site-packages", "test", "tests", "idlelib"} & set(file.parts) for file in files)
    for document in list(opened("stdlib", "test")):
        compile(document.text, "a file", "exec")
        assert document.ends
    assert len(opened("stdlib", "train", size=7)) == 7


# copy, reverse, sort


@pytest.mark.parametrize(
    ("name", "law"),
    [
        ("copy", lambda row, answer: answer == row),
        ("reverse", lambda row, answer: all(answer[-1 - i] == row[i] for i in range(len(row)))),
        (
            "sort",
            lambda row, answer: Counter(row) == Counter(answer) and all(a <= b for a, b in pairwise(answer)),
        ),
    ],
)
def test_answers_are_right(name: str, law: Any) -> None:
    """And no split asks for a length that training does not have. Broken: rows of one letter, all of which the test takes."""
    for split in SPLITS:
        lengths = set()
        for source, target in opened(name, split, size=2000):
            row, answer = source.split(" "), target.split(" ")
            assert len(row) == len(answer) and law(row, answer)
            lengths.add(len(row))
        assert lengths == set(range(2, 17))


def test_a_rule_in_the_prompt_alone_answers_it() -> None:
    """Read by hand. Caught: an answer from another table, a prompt in two splits."""
    found = {
        split: list(open_builtin(DataConfig(builtin="in-context", size=300), split))
        for split in ("train", "val", "test")
    }
    for pairs in found.values():
        for prompt, answer in pairs[:300]:
            shots, asked = prompt.split(" ? ")
            table = dict(shot.split() for shot in shots.split(" , "))
            assert len(asked.split()) == 6 and 2 <= len(table) <= 6
            assert answer.split() == [word for key in asked.split() for word in (key, table[key])]
    prompts = [prompt for pairs in found.values() for prompt, _ in pairs]
    assert len(set(prompts)) == len(prompts)


def test_other_lengths_in_test_than_in_training() -> None:
    for name, answer in (("copy", list), ("reverse", lambda row: row[::-1]), ("sort", sorted)):
        config = DataConfig(builtin=name, size=200, test_lengths=(20, 30))
        test = list(open_builtin(config, "test"))
        lengths = {len(source.split()) for source, _ in test}
        assert lengths == set(range(20, 31)) and len(test) == 1000
        assert all(target.split() == list(answer(source.split())) for source, target in test)
        plain = DataConfig(builtin=name, size=200)
        for split in ("train", "val"):
            assert list(open_builtin(config, split)) == list(open_builtin(plain, split))
    for wrong in ((5,), (9, 3), (1, 4)):
        with pytest.raises(ConfigError, match="test_lengths"):
            DataConfig(builtin="copy", test_lengths=wrong)
    with pytest.raises(ConfigError, match="test_lengths"):
        open_builtin(DataConfig(builtin="dates", test_lengths=(20, 30)), "test")
