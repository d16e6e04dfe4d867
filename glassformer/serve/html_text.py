"""Markup whose texts are translated and whose tags stay: what stands between tags is a text, but not in scripts and styles.

Whatever is no text stays as it was, to the byte (text/markup.py).
"""

from __future__ import annotations

import html
from collections.abc import Sequence

from glassformer.serve.api_errors import bad_request
from glassformer.text.markup import MARKUP


def unescaped(text: str) -> str:
    """The text with its entities as characters. Python reads no number of thousands of digits, and no character has one."""
    try:
        return html.unescape(text)
    except ValueError:
        raise bad_request(
            "q: the markup names a character by a number of thousands of digits, which no character has", "q"
        ) from None


class HtmlTexts:
    """Several pieces of markup as one list of texts.

    >>> page = HtmlTexts(["<b>one</b> &amp; two"])
    >>> page.texts
    ['one', '& two']
    >>> page.filled(["eins", "< zwei"])
    ['<b>eins</b> &lt; zwei']
    """

    def __init__(self, pages: Sequence[str]) -> None:
        self.texts: list[str] = []
        self.pages: list[list[str | int]] = []  # of each: what stays, and the numbers of its texts
        for page in pages:
            pieces: list[str | int] = []
            start = 0
            for markup in [*MARKUP.finditer(page), None]:
                between = page[start : markup.start() if markup else len(page)]
                if text := between.strip():
                    before, _, after = between.partition(text)
                    pieces += [before, len(self.texts), after]
                    self.texts.append(unescaped(text))
                else:
                    pieces.append(between)
                if markup is not None:
                    pieces.append(markup[0])
                    start = markup.end()
            self.pages.append(pieces)

    def by_page(self, words: Sequence[Sequence[str]]) -> list[list[str]]:
        """The words of each text, put together for each piece of markup; each word once."""
        texts_of = [[piece for piece in pieces if isinstance(piece, int)] for pieces in self.pages]
        return [list(dict.fromkeys(word for text in texts for word in words[text])) for texts in texts_of]

    def filled(self, translations: Sequence[str]) -> list[str]:
        """The markup with other texts."""
        escaped = [html.escape(text, quote=False) for text in translations]
        return ["".join(escaped[p] if isinstance(p, int) else p for p in pieces) for pieces in self.pages]
