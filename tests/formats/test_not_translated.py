"""What a document says is not to be translated is not sent to the model and stays."""

from __future__ import annotations

import pytest

from tests.formats.test_kept import done, read, texts

NOT_TRANSLATED = """<xliff xmlns="urn:x"><file translate="no"><{0}><source>a</source></{0}></file><file>
<group translate="no"><{0}><source>b</source></{0}><{0} translate="yes"><source>c</source>{1}</{0}></group>
<{0} translate="no"><source>d</source><target/></{0}>
<{0}><source>e <mrk {2}>f <x id="1"/></mrk> g</source>{3}</{0}><{0}><source><mrk {2}>h</mrk></source></{0}>
<{0}><source>i</source><seg-source><mrk mtype="seg" mid="0">i</mrk></seg-source>{4}<alt-trans><source>j</source></alt-trans></{0}>
<m:match xmlns:m="urn:m"><source>k</source></m:match></file></xliff>
"""


@pytest.mark.parametrize("mark", ['mtype="protected"', 'translate="no"'])
def test_what_is_not_to_be_translated_gets_no_target(mark: str) -> None:
    """Broken variants: translate="no" is not read, or not inherited, or not ended by "yes"; a protected word goes to the model; a
    target stands in front of <seg-source>; another translation gets one."""
    document = read(NOT_TRANSLATED.format("segment", "", mark, "", ""), "a.xlf")
    assert texts(document) == ["c", "e f g", "i"] and not document.left
    targets = "<target>C</target>", f'<target>E <mrk {mark}>f <x id="1"/></mrk> G</target>', "<target>I</target>"
    wanted = NOT_TRANSLATED.format("segment", targets[0], mark, *targets[1:])
    assert done(document, lambda text: text.upper().replace("F", "f")).decode() == wanted


PAGES = [
    ('<p translate="no">one <b>two</b></p><p>three</p>', ["three"]),
    ('<html translate="no"><p>one<p translate=yes>two<div>three</div></html>', ["two"]),
    ("<ul><li translate='NO'>one<li>two</ul><hr><table><tr><td translate=no>a<tr><td>b</table>", ["two", "b"]),
    ('<div translate="no"><p>one<p>two <b translate="yes">three</b> four<br></div>five', ["three", "five"]),
    ("use <span translate=no>One <span>two</span></span> now", ["use One two now"]),
    ("<p translate=no>a<button>b</button>c</p><p title='translate=no' translate>d</p></span>e", ["d", "e"]),
    ("<p>one <span translate=no>two</p><p>three</p>", ["one", "three"]),
    ("<p><code>one</code> <a href=x>{two}</a> 3</p>four", ["four"]),
]


@pytest.mark.parametrize(("page", "wanted"), PAGES)
def test_what_a_page_has_not_to_be_translated_stays(page: str, wanted: list[str]) -> None:
    """Broken variants: translate="no" is not read; it goes on behind the end of its element, which may have no end tag; a word
    of a sentence that is not to be translated parts the sentence; what holds nothing to translate is translated."""
    document = read(page, "a.html")
    assert texts(document) == wanted and done(document).decode() == page
