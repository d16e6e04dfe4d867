"""The built-in data keep their promises: what is held out is held out, and what is written is right."""

from __future__ import annotations

import hashlib
import math
import os
import re
import sys
from collections import Counter
from itertools import combinations, pairwise
from typing import Any

import pytest

from glassformer.config import DataConfig
from glassformer.data.builtin import LANGUAGES, languages, open_builtin, stdlib
from glassformer.errors import ConfigError, UserError, install_hint
from tests.builtin_sets import OURS, SPLITS, digest_of_all, opened
from tests.counts import count
from tests.programs import run_program

pytestmark = pytest.mark.slow

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


def test_data_do_not_depend_on_the_hash_seed_of_the_process() -> None:
    """Catches hash() or the order of a set used anywhere on the way: both change with PYTHONHASHSEED."""
    other_seed = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
    assert run_program("digest_of_builtin_data", PYTHONHASHSEED=other_seed).strip() == digest_of_all()


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


@pytest.mark.parametrize("name", ["dates", "news", "date-parts", "languages"])
def test_without_babel_the_error_says_what_to_install(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "babel", None)
    with pytest.raises(UserError, match=re.escape(f"needs Babel; install it with: {install_hint('dates')}")):
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
        ("sort", lambda row, answer: Counter(row) == Counter(answer) and all(a <= b for a, b in pairwise(answer))),
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
