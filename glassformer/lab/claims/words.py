"""A sentence in the languages that the pages and tables of the studies have."""

from __future__ import annotations

from typing import NamedTuple


class Words(NamedTuple):
    """The same sentence in English and in Chinese.

    >>> Words("attention", "注意力").in_language("zh")
    '注意力'
    """

    en: str
    zh: str

    def in_language(self, language: str) -> str:
        """The sentence in that language; English for any that there is none of."""
        return self.zh if language == "zh" else self.en
