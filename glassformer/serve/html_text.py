"""Markup whose texts are translated and whose tags stay: each sentence goes to the model whole, and the tags inside it around the
words that translate theirs (tasks/markup.py). Whatever is no text stays as it was, to the byte (text/markup.py).
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import Any

from glassformer.serve.translation import TranslationJob, TranslationOptions
from glassformer.tasks import Answer, TextModel
from glassformer.tasks.markup import as_html, carried_over
from glassformer.text.markup import Segment, html_segments


class HtmlJob(TranslationJob):
    """Pieces of markup, translated."""

    def __init__(self, pages: Sequence[str], options: TranslationOptions) -> None:
        self.pages = [html_segments(page) for page in pages]
        segments = [part for parts in self.pages for part in parts if isinstance(part, Segment)]
        aligned = any(segment.nodes for segment in segments)
        super().__init__([segment.text for segment in segments], replace(options, align=aligned))

    def result(self, model: TextModel) -> Generator[None, None, Any]:
        """Each piece of markup in the other language."""
        answers: list[list[Answer]] = yield from super().result(model)
        found, filled = iter(answers), []
        for parts in self.pages:
            page = ""
            for part in parts:
                page += carried_over(part, next(found)[0], as_html) if isinstance(part, Segment) else part
                yield
            filled.append(page)
        return filled

    def unknown_by_page(self) -> list[list[str]]:
        """Of each piece of markup the words and characters that are not in the vocabulary, each once."""
        unknown = iter(self.unknown)
        words = [
            [word for part in parts if isinstance(part, Segment) for word in next(unknown)] for parts in self.pages
        ]
        return [list(dict.fromkeys(own)) for own in words]
