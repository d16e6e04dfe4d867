"""Markup whose texts are translated and whose tags stay: what stands between tags is a text, but not in scripts and styles."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence

from glassformer.serve.api_errors import bad

PARTS = re.compile(r"(<!--.*?(?:-->|$)|<(script|style)\b.*?(?:</\2\s*>|$)|<[^>]*(?:>|$))", re.DOTALL | re.IGNORECASE)


def unescaped(text: str) -> str:
    """The text with its entities as characters. Python reads no number of thousands of digits, and no character has one."""
    try:
        return html.unescape(text)
    except ValueError:
        raise bad(
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
        self.pages: list[list[str | tuple[str, int, str]]] = []
        for page in pages:
            parts: list[str | tuple[str, int, str]] = []
            at = 0
            for tag in [*PARTS.finditer(page), None]:
                between = page[at : tag.start() if tag else len(page)]
                if between.strip():
                    text = between.strip()
                    before, after = between[: between.index(text)], between[between.index(text) + len(text) :]
                    parts.append((before, len(self.texts), after))
                    self.texts.append(unescaped(text))
                elif between:
                    parts.append(between)
                if tag is not None:
                    parts.append(tag[0])
                    at = tag.end()
            self.pages.append(parts)

    def gathered(self, found: Sequence[Sequence[str]]) -> list[list[str]]:
        """What was found of each text, for each piece of markup; each thing once."""
        places = [[part[1] for part in parts if not isinstance(part, str)] for parts in self.pages]
        return [list(dict.fromkeys(one for place in own for one in found[place])) for own in places]

    def filled(self, translations: Sequence[str]) -> list[str]:
        """The markup with other texts."""
        out = []
        for parts in self.pages:
            written = [
                part if isinstance(part, str) else part[0] + html.escape(translations[part[1]], quote=False) + part[2]
                for part in parts
            ]
            out.append("".join(written))
        return out
