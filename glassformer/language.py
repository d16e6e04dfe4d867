"""The language of the screen: English, or Chinese where GLASSFORMER_LANG or the locale says so, by gettext.

    GLASSFORMER_LANG=zh glassformer --help

What the package says to a person is marked by `_`, with names in braces for what is put in:

    say(_("{count:,} lines are left", count))
    raise UserError("there is no file {path}", path)            an error marks its own sentence

This gives a `Message`: a str, the English sentence, which remembers what it was made of. Whoever shows it to a person says
`localized(message)`, and only there is it translated (screen.py and the command line do so). Everywhere else (a run's
files, JSON, the server's answers, an exception in somebody's program) it is English. A message that is put into another one
is translated with it; one that is joined to other text by + or an f-string has become plain text, and is not.

The catalogue is locale/zh/LC_MESSAGES/glassformer.po; docs/make_messages.py brings it up to date and compiles it.
"""

from __future__ import annotations

import functools
import gettext
import os
import string
from collections.abc import Sequence
from pathlib import Path
from typing import Any

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


class Message(str):
    """An English sentence of ours that can be said in another language: it keeps its template and the values put in."""

    template: str
    values: dict[str, Any]

    def __str__(self) -> str:
        return self  # so that str(error) is still a message


@functools.cache
def names_in(template: str) -> tuple[str, ...]:
    """The names of a template's values, in the order in which they first appear."""
    fields = (name for _text, name, _form, _conversion in string.Formatter().parse(template) if name)
    return tuple(dict.fromkeys(name.partition(".")[0] for name in fields))


def _(template: str, /, *given: Any, **values: Any) -> str:
    """A sentence of ours, a `Message`, with values in the places of their names, as `str.format` puts them there: in the order of
    the names, or each by its name.

    >>> _("there is no file {path}", "a.tsv"), _("there is no file {path}", path="a.tsv")
    ('there is no file a.tsv', 'there is no file a.tsv')
    """
    if isinstance(template, Message):
        return template
    if given:
        values |= zip([name for name in names_in(template) if name not in values], given, strict=True)
    values = {name: str(value) if isinstance(value, Exception) else value for name, value in values.items()}
    message = Message(template.format(**values) if values else template)
    message.template, message.values = template, values
    return message


def joined_sentences(sentences: Sequence[str]) -> str:
    """Several sentences as one, with semicolons between.

    >>> joined_sentences(["a", "b", "c"])
    'a; b; c'
    """
    return functools.reduce(lambda first, second: _("{first}; {second}", first, second), sentences)


def in_language(text: str, which: str) -> str:
    """What the package says, in a language that is given; what has no translation stays English.

    >>> in_language(_("there is no file {path}", path="a.tsv"), "zh")
    '没有文件 a.tsv'
    """
    if which == "en" or not text:
        return text
    look_up = translations(which).gettext
    if not isinstance(text, Message) or not text.values:
        return look_up(text)
    values = {k: in_language(v, which) if isinstance(v, Message) else v for k, v in text.values.items()}
    return look_up(text.template).format(**values)


def localized(text: str) -> str:
    """What the package says, in the person's language."""
    return in_language(text, language())


def in_both(text: str) -> dict[str, str]:
    """What the package says in English and in Chinese, for a page or a report that has the two."""
    return {which: in_language(text, which) for which in ("en", "zh")}


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
