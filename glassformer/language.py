"""The language of the screen: English, or Chinese where GLASSFORMER_LANG or the locale says so, by gettext.

    GLASSFORMER_LANG=zh glassformer --help

The catalogue is locale/zh/LC_MESSAGES/glassformer.po (docs/make_messages.py makes the .mo of it). Help is looked up paragraph by
paragraph. An error is a sentence with names in it: the catalogue has it with `{}` for each, and the names are carried over. What
has no translation appears in English.
"""

from __future__ import annotations

import functools
import gettext
import os
import re
from collections.abc import Callable
from pathlib import Path

FOLDER = Path(__file__).with_name("locale")


def language() -> str:
    """zh or en: GLASSFORMER_LANG where it is set, else what the locale's variables say.

    >>> from unittest.mock import patch
    >>> with patch.dict(os.environ, GLASSFORMER_LANG="zh_CN.UTF-8"):
    ...     language()
    'zh'
    """
    for name in ("GLASSFORMER_LANG", "LC_ALL", "LC_MESSAGES", "LANG"):
        if value := os.environ.get(name):
            return "zh" if value.lower().startswith("zh") else "en"
    return "en"


@functools.cache
def translations(which: str) -> gettext.NullTranslations:
    """The catalogue of a language; one that changes nothing where there is none."""
    return gettext.translation("glassformer", FOLDER, languages=[which], fallback=True)


def translated(text: str) -> str:
    """A text of the screen in the person's language, paragraph by paragraph.

    >>> translated("a sentence that nobody has translated")
    'a sentence that nobody has translated'
    """
    if language() == "en":
        return text
    look_up = translations(language()).gettext
    return "\n\n".join(look_up(part) if part else part for part in text.split("\n\n"))


@functools.cache
def patterns(which: str) -> list[tuple[re.Pattern[str], str]]:
    """The catalogue's sentences that have names in them, longest first, so that the most particular one is tried first."""
    catalogue: dict[str, str] = getattr(translations(which), "_catalog", {})
    with_names = sorted((key for key in catalogue if isinstance(key, str) and "{}" in key), key=len, reverse=True)
    return [
        (re.compile("(.+?)".join(map(re.escape, key.split("{}"))), re.DOTALL), catalogue[key]) for key in with_names
    ]


def translated_error(sentence: str) -> str:
    """An error's sentence in the person's language, its names kept as they are."""
    if language() == "en":
        return sentence
    whole: Callable[[str], str] = translations(language()).gettext
    if (found := whole(sentence)) != sentence:
        return found
    for pattern, template in patterns(language()):
        if match := pattern.fullmatch(sentence):
            return template.format(*match.groups())
    return sentence
