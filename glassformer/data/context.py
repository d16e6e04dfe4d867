"""Sentences with those before them: the k sentences before a pair, of its document, joined to both of its sides by a separator
(Tiedemann and Scherrer 2017, "Neural machine translation with extended context"):

    the lamp is old . ‖ it is heavy .        die lampe ist alt . ‖ sie ist schwer .

What decides a word may stand in the sentence before: here the gender of the pronoun. A document ends at a blank line, or where a
field of the records says so.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence

from glassformer.data.oddities import is_blank
from glassformer.data.readers import LocatedExample

SEPARATOR = " ‖ "  # one character, so one token of every tokenizer


def joined(before: Sequence[str], sentence: str) -> str:
    """A sentence with those before it.

    >>> joined(["One."], "Two.")
    'One. ‖ Two.'
    """
    return SEPARATOR.join([*before, sentence])


def last_sentence(text: str) -> str:
    """The sentence that a text with its context is about.

    >>> last_sentence("Eins. ‖ Zwei."), last_sentence("Zwei.")
    ('Zwei.', 'Zwei.')
    """
    return text.rpartition(SEPARATOR.strip())[2].strip()


def windows(lines: Iterable[str], size: int) -> Iterator[str]:
    """Each line with at most `size` lines before it; a blank one ends a document and stays blank."""
    before: deque[str] = deque(maxlen=size)
    for line in lines:
        if is_blank(line):
            before.clear()
            yield ""
        else:
            yield joined([*before], line)
            before.append(line)


def in_context(
    rows: Iterable[LocatedExample], size: int, *, by_field: bool
) -> Iterator[tuple[LocatedExample, str | None]]:
    """Each pair with at most `size` of its document's before it, and the source that the document begins with: a document is in
    one split. `by_field`: documents are told by a field, not by missing lines. A pair with an empty side comes as it is."""
    before: deque[tuple[str, str]] = deque(maxlen=size)
    first: str | None = None
    last: LocatedExample | None = None
    for row in rows:
        source, target = row.example
        goes_on = last is not None and (row.document == last.document if by_field else row.line == last.line + 1)
        last = row
        if not goes_on or (is_blank(source) and is_blank(target)):
            before.clear()
            first = None
        if is_blank(source) or is_blank(target):
            yield row, first
            continue
        first = source if first is None else first
        sides = [joined([pair[side] for pair in before], row.example[side]) for side in (0, 1)]
        before.append((source, target))
        yield row._replace(example=(sides[0], sides[1])), first
