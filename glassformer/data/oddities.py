"""What a text should not hold: traces of a wrong encoding, of a binary file, of a page, of lost line breaks."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from glassformer.language import _

LONG = 10_000  # characters; no line that a person wrote is so long
ZERO_WIDTH = "\u200b\u2060\ufeff"  # the joiners of other scripts (U+200C, U+200D) have a meaning
INVISIBLE = re.compile(f"[{ZERO_WIDTH}]")
# A letter that begins a character in UTF-8, and those that may go on with it, as Windows' Western code page shows these bytes.
WESTERN = re.compile(
    "[\u00c2-\u00ef][\u0080-\u00bf\u0152\u0153\u0160\u0161\u0178\u017d\u017e\u0192\u02c6\u02dc\u2013-\u203a\u20ac\u2122]{1,2}"
)
CHINESE_RUN = re.compile("[\u2e80-\u9fff]{3,}")
USUAL = re.compile("[\u00a0-\u017f\u0370-\u04ff\u2010-\u2044\u20ac\u3000-\u9fff\uff00-\uffef]")
"""What is usually behind mojibake: letters of Europe, punctuation, Chinese and Japanese."""


def western_bytes(text: str) -> bytes:
    """The bytes that a Western code page shows so; what it has no sign for stands for itself."""
    return b"".join(c.encode("latin-1") if ord(c) < 256 else c.encode("cp1252", errors="replace") for c in text)


def is_mojibake(text: str) -> bool:
    """Whether UTF-8 was once read in another encoding: Western (café as cafÃ©) or Chinese (你好 as 浣犲ソ).

    >>> is_mojibake("cafÃ©"), is_mojibake("donâ€™t"), is_mojibake("浣犲ソ鍚楋紝"), is_mojibake("café, Ärger, 你好吗")
    (True, True, True, False)
    """
    for match in WESTERN.finditer(text):
        for length in (3, 2):
            try:
                behind = western_bytes(match[0][:length]).decode("utf-8")
            except UnicodeDecodeError:
                continue
            if len(behind) == 1 and USUAL.match(behind):
                return True
    for run in CHINESE_RUN.findall(text):
        raw = run.encode("gbk", errors="ignore")
        for cut in (len(raw), len(raw) - 1, len(raw) - 2):
            try:
                behind = raw[:cut].decode("utf-8")
            except UnicodeDecodeError:
                continue
            if len(behind) > 1 and all(map(USUAL.match, behind)) and max(behind) > "\u2e80":
                return True
    return "锟斤拷" in text


HTML = r"</?(?:p|br|div|span|a|b|i|em|strong|li|ul|td|tr|table|img|font|h[1-6])\b[^<>]*>|&(?:[a-z]{2,8}|#\d+);"
ODD: dict[str, Callable[[str], object]] = {
    "NUL": re.compile("\0").search,
    "replacement characters": re.compile("\ufffd").search,
    "control characters": re.compile("[\x01-\x08\x0b\x0c\x0e-\x1f\x7f]").search,
    "HTML": re.compile(HTML, re.I).search,
    _("zero-width blanks"): INVISIBLE.search,
    _("mojibake (UTF-8 that was read in another encoding)"): is_mojibake,
    _("line ends of old Macintoshes (CR alone)"): re.compile("\r(?!\n|$)").search,
    _("a line of more than {long:,} characters", LONG): lambda text: any(len(line) > LONG for line in text.split("\n")),
}
"""By its name, what finds it."""
QUOTES = _("quotation marks around one side alone")

COLUMN_NAMES = """
source target src tgt trg text label tag sentence translation original input output question answer
word words lemma form features phonemes pronunciation ipa en de fr es it pt nl ru zh ja ko ar
eng deu ger fra spa rus zho english german french spanish italian portuguese dutch russian chinese japanese korean arabic
deutsch englisch français anglais español inglés
原文 译文 源语言 目标语言 源文 句子 文本 标签 英文 中文 英语 汉语 德语 法语 日语 词 读音
"""


def is_header(columns: Sequence[str]) -> bool:
    """Whether a line's first columns are names that people give to columns.

    >>> is_header(["English", "German"]), is_header(["原文", "译文", "x"]), is_header(["yes", "ja"]), is_header(["word"])
    (True, True, False, False)
    """
    names = [column.strip().casefold() for column in columns[:2]]
    return len(set(names)) == 2 and set(names) <= set(COLUMN_NAMES.split())


ANY_QUOTE = re.compile('["“”„«»「」『』‘’‚‹›]')


def unquoted(text: str) -> str:
    """A text without the quotation marks of a table around the whole of it, the doubled ones inside being single.

    >>> unquoted('"He said ""yes""."'), unquoted('"Yes", he said, "and no"')
    ('He said "yes".', '"Yes", he said, "and no"')
    """
    inner = text[1:-1].replace('""', "")
    is_quoted = len(text) > 2 and text[0] == text[-1] == '"' and '"' not in inner
    return text[1:-1].replace('""', '"') if is_quoted else text


def is_quoted_alone(text: str, other: str) -> bool:
    """Whether a text stands in quotation marks as a whole, and the other side has none at all."""
    return unquoted(text) != text and not ANY_QUOTE.search(other)


def is_blank(text: str) -> bool:
    """Whether nothing in a text can be seen.

    >>> is_blank(" \\u200b"), is_blank(" a")
    (True, False)
    """
    return not text or text.isspace() or (text[0] in ZERO_WIDTH + " " and not INVISIBLE.sub("", text).strip())
