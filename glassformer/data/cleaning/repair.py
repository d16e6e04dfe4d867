"""What can be put right in a text, one small function a kind; what it cannot put right is left for a rule to find."""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Callable

from glassformer.data.cleaning.alignment import Pair
from glassformer.data.oddities import HTML, INVISIBLE, is_quoted_alone, unquoted

ENTITY = re.compile("&(?:[a-z][a-z0-9]{1,30}|#[0-9]{1,7}|#x[0-9a-f]{1,6});", re.I)
TAG = re.compile(HTML.partition("|&")[0], re.I)
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f\x80-\x9f\u2028\u2029\ufff9-\ufffb]")
TWICE = 2  # "&amp;amp;lt;": what was escaped twice


def fix_mojibake(text: str) -> str:
    """UTF-8 that was read in another encoding, read anew (ftfy). Its other habits are left alone: it would make the quotation
    marks of Chinese and German, and Chinese punctuation, ASCII."""
    if text.isascii():
        return text
    import ftfy

    return ftfy.fix_encoding(text)


def fix_entities(text: str) -> str:
    """Entities as what they stand for, and without the tags of a page.

    >>> fix_entities("R&amp;amp;D &lt;b&gt;now&lt;/b&gt; &#8211; <br/>AT&T;")
    'R&D now – AT&T;'
    """
    for _turn in range(TWICE):
        if "&" in text:
            text = ENTITY.sub(lambda found: html.unescape(found[0]), text)
    return TAG.sub("", text) if "<" in text else text


def fix_invisible(text: str) -> str:
    """Without control characters and blanks of no width; letters composed (NFC); any run of blanks as one."""
    text = unicodedata.normalize("NFC", INVISIBLE.sub("", CONTROL.sub(" ", text)))
    return " ".join(text.split())


def fix_quotes(source: str, target: str) -> Pair:
    """Both sides, one of which stood in quotation marks as a cell of a table does, without them."""
    if is_quoted_alone(source, target):
        return unquoted(source), target
    return (source, unquoted(target)) if is_quoted_alone(target, source) else (source, target)


def each_side(fix: Callable[[str], str]) -> Callable[[str, str], Pair]:
    """A repair of a text, made on both sides."""
    return lambda source, target: (fix(source), fix(target))


REPAIRS: dict[str, Callable[[str, str], Pair]] = {
    "mojibake": each_side(fix_mojibake),
    "entities": each_side(fix_entities),
    "invisible": each_side(fix_invisible),
    "quotes": fix_quotes,
}
"""By name, in the order in which they are made: mojibake may hold control characters, entities may stand for blanks."""
