"""Text as it comes: whole characters only, and nothing that may turn out to be part of a stop string.

A token of a byte-level vocabulary may be a piece of a character. Decoded too early it shows as U+FFFD; only the last
character of a text can be such a piece, so that one is held back until it is whole or the text is over. A beginning of a
stop string is held back likewise, and the stop string itself never appears.

The whole text is decoded at every token. That is quadratic, and for texts of some thousand tokens it is nothing beside the
model; in exchange any tokenizer will do, also one that puts spaces between words by rule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

Decode = Callable[[Sequence[int]], str]
UNFINISHED = "\N{REPLACEMENT CHARACTER}"


def find_stop(text: str, stops: Sequence[str]) -> int | None:
    """Where the first of the stop strings begins."""
    places = [place for place in (text.find(stop) for stop in stops) if place >= 0]
    return min(places, default=None)


def cut_at_stop(text: str, stops: Sequence[str]) -> str:
    """The text before the first stop string."""
    return text[: find_stop(text, stops)]


def stopping_criterion(decode: Decode, stops: Sequence[str]) -> Callable[[Sequence[int]], bool] | None:
    """Says of the ids written so far whether a stop string is among them. They are decoded whole: a tokenizer of words puts
    spaces by what came before (a quote opens or closes), so the end alone may read otherwise."""
    if not stops:
        return None
    return lambda ids: find_stop(decode(ids), stops) is not None


def overlap(text: str, stop: str) -> int:
    """How many characters of the stop string, but not all, the text ends with."""
    lengths = range(min(len(stop) - 1, len(text)), 0, -1)
    return next((length for length in lengths if text.endswith(stop[:length])), 0)


class Streamer:
    """Ids in, one at a time; text out, as soon as it is certain."""

    def __init__(self, decode: Decode, stops: Sequence[str] = ()) -> None:
        self.decode, self.stops = decode, stops
        self.composes = getattr(
            getattr(decode, "__self__", None), "composes", False
        )  # the last letter may get an accent
        self.ids: list[int] = []
        self.shown = 0  # characters
        self.stopped = False

    def push(self, token: int) -> str:
        """What can be shown now that was not before."""
        if self.stopped:
            return ""
        self.ids.append(token)
        text = self.decode(self.ids)
        end = len(text) - (text.endswith(UNFINISHED) or self.composes)
        place = find_stop(text[:end], self.stops)
        if place is not None:
            self.stopped = True
            return self.show(text, place)
        return self.show(text, end - self.held_back(text[:end]))

    def flush(self) -> str:
        """The text is over: what was held back."""
        if self.stopped:
            return ""
        text = self.decode(self.ids)
        place = find_stop(text, self.stops)
        return self.show(text, len(text) if place is None else place)

    def show(self, text: str, end: int) -> str:
        """What lies between what was shown and `end`."""
        new = text[self.shown : end]
        self.shown = max(self.shown, end)
        return new

    def held_back(self, text: str) -> int:
        """The length of the longest end of the text with which a stop string begins."""
        return max((overlap(text, stop) for stop in self.stops), default=0)
