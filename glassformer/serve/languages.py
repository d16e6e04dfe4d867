"""Which languages a run reads and writes, and which language a text is in (by lingua)."""

from __future__ import annotations

import re
import threading
from collections.abc import Collection
from functools import cache
from typing import Any

from glassformer.config import Recipe
from glassformer.errors import ConfigError

UNKNOWN = "und"  # ISO 639: a language that nobody has named
COMMON = ("en", "zh", "de", "fr", "es")  # told apart even where no run reads them
CODE = re.compile(r"[a-z]{2,3}(-[A-Za-z0-9]{2,8})?")
MOST_READ = 1000  # characters of a text that are looked at


def codes_of(recipe: Recipe) -> tuple[tuple[str, ...], str]:
    """The languages a run reads, and the one it writes: as its recipe says, or as the built-in data has them."""
    data = recipe.data
    if data.source_languages or data.target_language:
        return data.source_languages or (UNKNOWN,), data.target_language or UNKNOWN
    if data.direction and (match := re.fullmatch(r"([a-z]{2})-([a-z]{2})", data.direction)):
        return (match[1],), match[2]
    return (UNKNOWN,), UNKNOWN


def codes_from(text: str) -> tuple[tuple[str, ...], str]:
    """The same from `de,fr:en`, as it is written on a command line."""
    sources, colon, target = text.partition(":")
    codes = tuple(code.strip() for code in sources.split(","))
    if not colon or not all(CODE.fullmatch(code) for code in (*codes, target.strip())):
        raise ConfigError("languages are written as de:en, or de,fr:en for a run that reads two, not {text!r}", text)
    return codes, target.strip()


@cache
def names() -> dict[str, str]:
    """The English name of every language that lingua knows, by its code."""
    from lingua import Language

    return {language.iso_code_639_1.name.lower(): language.name.title() for language in Language.all()} | {
        UNKNOWN: "Undetermined"
    }


def name_of(code: str) -> str:
    """A code's name, or the code itself."""
    return names().get(code.split("-")[0], code)


class Detector:
    """Which language a text is in, among those that are served and a few that are common."""

    def __init__(self, served: Collection[str]) -> None:
        self.codes = sorted({code.split("-")[0] for code in (*served, *COMMON)} & set(names()) - {UNKNOWN})
        self.made: Any = None
        self.lock = threading.Lock()

    def confidences(self, text: str) -> list[tuple[str, float]]:
        """(code, 0 to 100), the likeliest first."""
        from lingua import IsoCode639_1, LanguageDetectorBuilder

        with self.lock:
            if self.made is None:
                codes = [getattr(IsoCode639_1, code.upper()) for code in self.codes]
                self.made = LanguageDetectorBuilder.from_iso_codes_639_1(*codes).build()
        values = self.made.compute_language_confidence_values(text[:MOST_READ])
        return [(value.language.iso_code_639_1.name.lower(), round(value.value * 100, 1)) for value in values]

    def best(self, text: str, among: Collection[str]) -> tuple[str, float]:
        """The likeliest of these; the first of them where nothing speaks for any."""
        plain = {code.split("-")[0]: code for code in reversed(list(among))}
        for code, confidence in self.confidences(text):
            if code in plain:
                return plain[code], confidence
        return next(iter(among)), 0.0
