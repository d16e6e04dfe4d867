"""How one verb answers: texts in, lines out. A text that cannot be answered costs one sentence and keeps its place."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from glassformer.cli.line_input import Line
from glassformer.errors import ConfigError, UserError
from glassformer.language import _, localized
from glassformer.screen import say, warn

CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f]")
BATCH = 32
"""Texts at a time for a model that reads, where nobody says otherwise."""
SHOWN = 5  # pieces that are named of those no vocabulary has


def as_line(facts: dict[str, Any]) -> str:
    """Facts as a line of JSON."""
    return json.dumps(facts, ensure_ascii=False)


def escaped(text: str) -> str:
    """The text in one line: line breaks and other control characters are written as Python writes them, \\n and so on."""
    return CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


@dataclass(slots=True)  # not frozen: one is made for every line of a file
class Output:
    """The answer to one text: its lines, and how many tokens were written for it."""

    lines: list[str]
    tokens: int = 0


@dataclass
class Unknown:
    """What of the texts is not in the model's vocabulary: `pieces` finds it in one. It is told once a command, of the first texts
    that have any, and stands in the JSON of each."""

    pieces: Callable[[str], list[str]]
    told: bool = False
    say: Callable[[str], None] = say

    def tell(self, texts: Iterable[str]) -> None:
        """Say it of the first few pieces, unless it was said already."""
        if self.told or not (found := list(dict.fromkeys(piece for text in texts for piece in self.pieces(text)))):
            return
        self.told = True
        shown = ", ".join(repr(piece) for piece in found[:SHOWN])
        told = _("not in this model's vocabulary, and read as unknown: {shown}", shown)
        more = len(found) - SHOWN
        told = _("{told} and {more:,} more", told, more) if more > 0 else told
        if any(piece != piece.lower() and not self.pieces(piece.lower()) for piece in found):
            told = _(
                "{told}; in small letters it is known: a run trained with data.lowercase=true reads both alike", told
            )
        self.say(told)

    def fact(self, text: str) -> dict[str, Any]:
        """The field of a text's JSON, where there is anything to tell."""
        return {"unknown": found} if (found := self.pieces(text)) else {}


@contextmanager
def suppress_one_text() -> Iterator[None]:
    """What is wrong with one text is left for later; what is wrong with the command is not."""
    try:
        yield
    except ConfigError:
        raise
    except UserError:
        pass


@dataclass(frozen=True)
class TextJob:
    """How texts are answered. `answer` gives for each text its lines of output, `wide` of them; in JSON, the answer to a
    blank line is its source and `nothing`, and the answer to one that cannot be answered is the reason. `verb`, `run` (a
    fingerprint) and `options` are all that an answer depends on, besides its text."""

    verb: str
    run: str
    options: dict[str, Any]
    answer: Callable[[Sequence[str]], Iterable[Output]]
    as_json: bool
    nothing: dict[str, Any]
    wide: int = 1
    batch: int = BATCH
    group: int = 8 * BATCH  # lines that are answered together, at most
    begins: bool = False  # without a text, one begins
    escape: Callable[[str], str] = str  # of an argument's answer; lines of a file have no line breaks in them
    unknown: Unknown = field(default_factory=lambda: Unknown(lambda text: []))
    warn: Callable[[str], None] = warn

    def blank(self, text: str) -> Output:
        """The answer to a text in which there is nothing."""
        return Output([as_line({"source": text, **self.nothing})] if self.as_json else [text] * self.wide)

    def failed(self, problem: str) -> Output:
        """What stands in the place of an answer that could not be given."""
        return Output([as_line({"error": problem})] if self.as_json else [""] * self.wide)

    def reply(self, lines: Sequence[Line], called: str = "line") -> Iterator[tuple[Output, bool]]:
        """The output for each line, as it comes, and whether it is an answer."""
        begins = self.begins and len(lines) == 1
        real = [line.text for line in lines if line.problem is None and (begins or not line.blank)]
        self.unknown.tell(real)
        together: Iterator[Output] | None = None
        with suppress_one_text():
            together = iter(self.answer(real)) if real else iter(())
        for line in lines:
            problem = line.problem
            if problem is None and not begins and line.blank:
                yield self.blank(line.text), True
                continue
            if problem is None and together is not None:
                try:
                    output = next(together)
                except ConfigError:
                    raise
                except UserError:
                    together = None
                else:
                    yield output, True
                    continue
            if problem is None:
                # Something is wrong with one of them; which one shows when each is asked alone.
                try:
                    yield next(iter(self.answer([line.text]))), True
                    continue
                except ConfigError:
                    raise
                except UserError as error:
                    problem = str(error)
            self.warn(f"glassformer: {called} {line.number}: {localized(problem)}")
            yield self.failed(problem), False
