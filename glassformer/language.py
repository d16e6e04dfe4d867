"""The language of the screen: English, or Chinese where GLASSFORMER_LANG or the locale says so, by gettext.

    GLASSFORMER_LANG=zh glassformer --help

The catalogue is locale/zh/LC_MESSAGES/glassformer.po (docs/make_messages.py makes the .mo of it). Help is looked up paragraph by
paragraph. A sentence with names in it stands in the catalogue with `{}` for each, and the names are carried over as they are;
`{s}` is a part that is a sentence of ours itself, and is looked up in turn. What has no translation appears in English. Only what
this package says is ever looked up: answers, data and JSON are not.
"""

from __future__ import annotations

import functools
import gettext
import os
import re
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).with_name("locale")
PLACE = re.compile(r"\{(s?)\}")


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


class Pattern(NamedTuple):
    """A sentence with names in it: how it is recognised, which names are sentences themselves, and what it becomes."""

    pieces: tuple[str, ...]
    regex: re.Pattern[str]
    sentences: tuple[bool, ...]
    template: str

    def applied(self, text: str, which: str) -> str | None:
        """The sentence in the other language; None where this is another sentence."""
        if not text.startswith(self.pieces[0]) or any(piece not in text for piece in self.pieces):
            return None
        match = self.regex.fullmatch(text)
        if match is None:
            return None
        parts = zip(match.groups(), self.sentences, strict=True)
        return self.template.format(*(in_language(part, which) if is_sentence else part for part, is_sentence in parts))


@functools.cache
def patterns(which: str) -> list[Pattern]:
    """The catalogue's sentences that have names in them, longest first, so that the most particular one is tried first."""
    catalogue: dict[str, str] = getattr(translations(which), "_catalog", {})
    found = []
    for key in sorted((key for key in catalogue if isinstance(key, str) and PLACE.search(key)), key=len, reverse=True):
        pieces = tuple(PLACE.sub("\0", key).split("\0"))
        regex = re.compile("(.*?)".join(map(re.escape, pieces)), re.DOTALL)
        sentences = tuple(place == "s" for place in PLACE.findall(key))
        found.append(Pattern(pieces, regex, sentences, catalogue[key]))
    return found


def localized(sentence: str) -> str:
    """What the package says, in the person's language; names in it are kept as they are, and so are blanks around it."""
    return in_language(sentence, language())


def in_language(sentence: str, which: str) -> str:
    """The same in a language that is given.

    >>> in_language("there is no file a.tsv", "zh")
    '没有文件 a.tsv'
    """
    if which == "en" or not (text := sentence.strip()):
        return sentence
    start = sentence.index(text)
    before, after = sentence[:start], sentence[start + len(text) :]
    found = translations(which).gettext(text)
    if found == text:
        applied = (pattern.applied(text, which) for pattern in patterns(which))
        found = next((other for other in applied if other is not None), text)
    return f"{before}{found}{after}"


def width(text: str) -> int:
    """How many columns of a terminal a text takes: a Chinese character takes two.

    >>> width("model"), width("模型")
    (5, 4)
    """
    from rich.cells import cell_len

    return cell_len(text)


def padded(text: str, columns: int) -> str:
    """The text, with blanks behind it up to so many columns."""
    return text + " " * (columns - width(text))
