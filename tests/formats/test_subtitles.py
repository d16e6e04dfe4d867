"""Subtitles: numbers, times and whoever speaks stay where they are, whatever parts the cues."""

from __future__ import annotations

import pytest

from tests.formats.test_kept import done, read, texts

FILM = """1
00:00:01,000 --> 00:00:02,000
- Hello.
- Hi,
my friend.

2
00:00:03,000 --> 00:00:04,000
<i>one sentence
on two lines</i>

3
00:00:05,000 --> 00:00:06,000
- one
speaker
"""


def test_each_speaker_of_a_dialogue_is_a_text() -> None:
    """Broken variant: the lines of a cue as one sentence, whoever says them."""
    document = read(FILM, "a.srt")
    assert texts(document) == ["Hello.", "Hi, my friend.", "one sentence on two lines", "- one speaker"]
    kept = (
        FILM.replace("Hi,\nmy", "Hi, my").replace("sentence\non", "sentence on").replace("one\nspeaker", "one speaker")
    )
    assert done(document).decode() == kept


CUES = """\ufeff1
00:00:01,000 --> 00:00:02,000
one
 \t
2
00:00:03,000 --> 00:00:04,000 X1:1
two
three
3
00:00:05,000 --> 00:00:06,000
-->
00:00:06.000-->00:00:07.000
four

4a
00:00:07,000 --> 00:00:08,000
five

x
00:00:09,000 --> 00:00:10,000
"""


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_cues_are_parted_by_their_times(end: str) -> None:
    """Broken variants: the blank line between two cues holds a blank or is missing, and the model writes the second's number and
    time anew; a cue whose name is no number stays untranslated."""
    film = CUES.replace("\n", end)
    document = read(film, "a.srt")
    assert texts(document) == ["one", "two three", "four", "five"]
    assert done(document, str.upper).decode() == end.join(
        line.upper() if line in ("one", "four", "five") else line
        for line in CUES.replace("two\nthree", "TWO THREE").split("\n")
    )


WEB = """\ufeffWEBVTT - a film

STYLE
::cue(.big) { color: red }

NOTE of ours
00:01.000 --> 00:02.000 align:start
<v Ann>one &amp; <c.big>two</c>

4a
00:02.000 --> 00:03.000
<00:02.000>three <00:02.500>four
"""


def test_subtitles_of_the_web_stay() -> None:
    """Broken variants: a style or the header is translated; &amp;amp; in the place of &amp;; times between words are text."""
    for film in (WEB, WEB.replace("\n\n", "\n \n")):
        document = read(film, "a.vtt")
        assert texts(document) == ["one & two"] and document.left == 1
        assert done(document).decode() == film


@pytest.mark.parametrize("name", ["a.srt", "a.vtt", "a.html", "a.md"])
def test_an_empty_document_stays_empty(name: str) -> None:
    for text in ("", "\n", "\ufeff"):
        assert done(read(text, name)).decode() == text
