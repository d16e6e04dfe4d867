"""Fonts that have the characters a figure is to show: those we name, and where they fail whatever this machine has.

matplotlib keeps a list of the fonts it once found. A font that was installed since (as we advise where characters are
missing) is not in it, and so is looked for again when a character was found in none.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

FONTS = [
    "DejaVu Sans",
    "Noto Sans CJK SC",
    "Noto Sans CJK JP",
    "Noto Sans",
    "Noto Sans Devanagari",
    "PingFang SC",
]
"""In this order: a character is drawn by the first that has it."""

FOUND: list[str] = []
"""Families that were looked up on this machine, because the named ones lacked a character."""

NO_LETTERS = ("Last Resort", "Adobe Blank")
"""Fonts that have a box for every character there is, and so hide that it is missing."""

ASKED: set[str] = set()
"""Characters that were looked up already."""


def families() -> list[str]:
    """What figures are written in: of the named fonts those that are here. (For each text that is drawn matplotlib looks for
    every family it is given.)"""
    from matplotlib import font_manager

    here = {entry.name for entry in font_manager.fontManager.ttflist}
    return [name for name in FONTS if name in here] + FOUND


def take_in_new_fonts() -> None:
    """Fonts that were installed since matplotlib made its list."""
    from matplotlib import font_manager

    known = {entry.fname for entry in font_manager.fontManager.ttflist}
    for path in font_manager.findSystemFonts():
        if path not in known:
            try:
                font_manager.fontManager.addfont(path)
            except Exception:  # FreeType's own, which is of no public kind: a file that is no font it can read
                continue


def how_plain(entry: Any) -> tuple[bool, bool, str]:
    """Fonts to prefer come first: without serifs, neither bold nor slanted."""
    plain = entry.style == "normal" and entry.weight in (400, "normal", "regular", "book")
    return "Sans" not in entry.name, not plain, entry.name


def look_up(characters: Iterable[str]) -> bool:
    """Finds fonts on this machine that have these characters; whether there is anything new to write them in."""
    from matplotlib import font_manager
    from matplotlib.ft2font import FT2Font

    wanted = {ord(character) for character in set(characters) - ASKED}
    if not wanted:
        return False
    ASKED.update(map(chr, wanted))
    take_in_new_fonts()
    new = False
    for entry in sorted(font_manager.fontManager.ttflist, key=how_plain):
        if entry.name.startswith(NO_LETTERS):
            continue
        try:
            has = wanted & FT2Font(entry.fname).get_charmap().keys()
        except Exception:  # FreeType's own: the file is gone or damaged, and another font may do
            continue
        if has:
            wanted -= has
            new = True
            if entry.name not in families():
                FOUND.append(entry.name)
        if not wanted:
            break
    return new
