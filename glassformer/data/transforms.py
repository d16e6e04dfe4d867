"""What changes an example before it is learned: small letters, the sentences before it, and text as people paste it.

Sentences with those before them: the k sentences before a pair, of its document, joined to both of its sides by a separator
(Tiedemann and Scherrer 2017, "Neural machine translation with extended context"):

    the lamp is old . ‖ it is heavy .        die lampe ist alt . ‖ sie ist schwer .

What decides a word may stand in the sentence before: here the gender of the pronoun. A document ends at a blank line, or where a
field of the records says so.

Text as people paste it: in capitals, as a title, in small letters, with typos, without its full stop, with an emoji, in lines.

A model that has only seen tidy sentences breaks on these. With `data.augment` a share of the training pairs is changed so, each
copy of a pair otherwise (`data.segmentations` says how many copies, or that each epoch is drawn anew, as with BPE-dropout), and
`glassformer evaluate RUN --perturb upper` scores on a test set so changed. An emoji is carried over into the target, which else
stays.

Capitals and line breaks are not learned, since a model would need most of its vocabulary once more for them. A run that was
trained with `data.augment` has seen sources in small letters, so a text in capitals or as a headline is put into those before
it is read, and what answers capitals is written in capitals (`Recased`). Lines are put together (decode/longtext.py).
"""

from __future__ import annotations

import random
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from glassformer.config import DataConfig
from glassformer.data.files import Document
from glassformer.data.oddities import is_blank
from glassformer.data.readers import LocatedExample
from glassformer.text.languages import lowercase

SEPARATOR = " ‖ "  # one character, so one token of every tokenizer
Pair = tuple[str, str]
Change = Callable[[str, str, random.Random], Pair]
EMOJI = ["😀", "😂", "😊", "😉", "😍", "😢", "😡", "👍", "🙏", "🎉", "❤️", "🔥"]
TYPOS = 0.15  # of the words of four letters or more, about one in an English sentence
FIRST_OF_HAN = "\u2e80"  # from here on a character is no letter of a word
WIDTH = 30  # characters of a line
NO_WORD = re.compile(r"[/@{}<>%$&_=#|\\\d]")
FEWEST_WORDS = {"capitals": 2, "headline": 3}  # a word by itself may be an abbreviation, two a name
LONG = 4  # letters of a word that a headline always begins with a capital; shorter ones may be small
Truecase = Callable[[str], str]
"""How a word is usually spelled inside a sentence, whatever letters it was written in."""


def learned(config: DataConfig, example: Any, tag: str = "") -> Any:
    """The example as the model will see it: in small letters, turned round, with a tag before its source, as the settings say;
    labels stay as they are."""
    if config.lowercase:
        match config.task:
            case "pairs":
                example = lowercase(example[0]), lowercase(example[1])
            case "classify":
                example = lowercase(example[0]), example[1]
            case "tag":
                example = [lowercase(token) for token in example[0]], example[1]
            case "text":
                example = Document(lowercase(example.text), example.ends)
    if config.swap and config.task == "pairs":
        example = example[1], example[0]
    return (f"{tag} {example[0]}", example[1]) if tag else example


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


def pick(items: str | list[str], draw: random.Random) -> str:
    """One of some, by `random()` alone: what Python's other draws give may differ between its versions."""
    return items[int(draw.random() * len(items))]


def by_word(text: str, change: Callable[[str], str]) -> str:
    """The text with its words changed, but for addresses, placeholders and names with digits in them; its blanks stay."""
    return re.sub(r"\S+", lambda word: word[0] if NO_WORD.search(word[0]) else change(word[0]), text)


def sentence_case(text: str, truecase: Truecase = str.lower) -> str:
    """A text in small letters but for its first, and for what is usually spelled otherwise."""
    small = by_word(text, truecase)
    first = next((n for n, letter in enumerate(small) if letter.isalpha()), 0)
    return small[:first] + text[first : first + 1] + small[first + 1 :]


def upper(source: str, target: str, draw: random.Random) -> Pair:
    """Both in capitals."""
    return by_word(source, str.upper), by_word(target, str.upper)


def lower(source: str, target: str, draw: random.Random) -> Pair:
    """The source in small letters, every other time but for its first."""
    return sentence_case(source) if draw.random() < 0.5 else by_word(source, str.lower), target


def title(source: str, target: str, draw: random.Random) -> Pair:
    """The source As A Headline."""
    return by_word(source, lambda word: word[:1].upper() + word[1:]), target


def typos(source: str, target: str, draw: random.Random) -> Pair:
    """A letter of the source left out, doubled or exchanged with the next one, here and there inside a word."""

    def slip(word: str) -> str:
        inside = [i for i in range(1, len(word) - 1) if word[i : i + 2].isalpha() and word[i] < FIRST_OF_HAN]
        if len(inside) < 2 or draw.random() >= TYPOS:
            return word
        place, kind = inside[int(draw.random() * len(inside))], pick("-+x", draw)
        first, second = word[place], word[place + 1]
        put = {"-": second, "+": first + first + second, "x": second + first}[kind]
        return word[:place] + put + word[place + 2 :]

    return by_word(source, slip), target


def stops(source: str, target: str, draw: random.Random) -> Pair:
    """The source without the mark that ends it."""
    return source.rstrip(".!。！… ") or source, target


def emoji(source: str, target: str, draw: random.Random) -> Pair:
    """An emoji behind both."""
    one = pick(EMOJI, draw)
    return f"{source} {one}", f"{target} {one}"


def lines(source: str, target: str, draw: random.Random) -> Pair:
    """The source as a mail program breaks it."""
    return re.sub(rf"(.{{{WIDTH},}}?) ", r"\1\n", source), target


PERTURBATIONS: dict[str, Change] = {
    "upper": upper,
    "title": title,
    "lower": lower,
    "typos": typos,
    "stops": stops,
    "emoji": emoji,
    "lines": lines,
}
"""By name."""
LEARNED = ["lower", "typos", "stops", "emoji"]


def perturbed(pairs: Iterable[Pair], kind: str, seed: int = 0) -> Iterator[Pair]:
    """Every pair changed in one way; the same pairs and seed give the same texts."""
    draw = random.Random(f"{kind} {seed}")
    for source, target in pairs:
        yield PERTURBATIONS[kind](source, target, draw)


@dataclass(frozen=True)
class Recased:
    """How a run with `data.augment` reads a text: in capitals or as a headline it is put into small letters, else it stays.

    >>> Recased.of("TWO DOGS RUN"), Recased.of("Two Big Dogs Running Through Grass").text
    (Recased(text='Two dogs run', uppercase=True), 'Two big dogs running through grass')
    >>> Recased.of("Our Dog Likes Tom", lambda word: word if word == "Tom" else word.lower()).text
    'Our dog likes Tom'
    """

    text: str
    uppercase: bool = False  # so is the answer to be

    @classmethod
    def of(cls, text: str, truecase: Truecase = str.lower) -> Recased:
        """By its words of two letters and more: all of them in capitals; or all with a capital first, where the short ones need
        none if there are enough long ones."""
        words = [re.sub(r"\W", "", word) for word in text.split() if not NO_WORD.search(word)]
        words = [word for word in words if len(word) > 1 and word.lower() != word.upper()]
        if len(words) >= FEWEST_WORDS["capitals"] and all(word.isupper() for word in words):
            return cls(sentence_case(text, truecase), uppercase=True)
        long = [word for word in words if len(word) >= LONG]
        told = long if len(long) >= FEWEST_WORDS["headline"] else words
        headline = len(told) >= FEWEST_WORDS["headline"] and all(word[0].isupper() for word in told)
        return cls(sentence_case(text, truecase) if headline else text)

    def answer(self, text: str) -> str:
        """The answer, in capitals where the text was."""
        return by_word(text, str.upper) if self.uppercase else text


@dataclass(frozen=True)
class Augmented:
    """Training pairs, each `times`, of which a share is changed: a re-iterable that gives the same texts each time. A tag that a
    source begins with stays as it is."""

    pairs: Iterable[Pair]
    share: float
    seed: int | str
    times: int = 1
    tags: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[Pair]:
        draw = random.Random(f"augment {self.seed}")
        for source, target in self.pairs:
            tag = next((f"{tag} " for tag in self.tags if source.startswith(f"{tag} ")), "")
            for _turn in range(self.times):
                if draw.random() >= self.share:
                    yield source, target
                    continue
                own, answer = PERTURBATIONS[pick(LEARNED, draw)](source[len(tag) :], target, draw)
                yield tag + own, answer
