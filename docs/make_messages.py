"""Brings the Chinese of the screen up to date:  python3 docs/make_messages.py  (needs Babel, which the extra `dates` brings).

Collects every text that the package shows to people into locale/zh/LC_MESSAGES/glassformer.po (a new one with an empty
msgstr, to be filled in; one that is said no longer is taken out) and compiles it. What is collected: the arguments of `_` and
of errors, the help of the command line, what is told of the settings, the meanings of the taps, and the texts of recipes,
ablations, reproductions, claims and pages.
"""

from __future__ import annotations

import io
import sys
import tomllib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import typer
from babel.messages.catalog import Catalog
from babel.messages.extract import extract_from_dir
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po, write_po

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "lab"))

from glassformer.cli.verbs import make_app
from glassformer.config.recipe import PARTS, settings_of
from glassformer.inspection.page import english_words
from glassformer.nn.taps import SHAPES
from glassformer_lab.claims.claim import all_claims

ROOT = Path(__file__).parents[1]
PACKAGES = (ROOT / "glassformer", ROOT / "lab" / "glassformer_lab")
PO = PACKAGES[0] / "locale" / "zh" / "LC_MESSAGES" / "glassformer.po"
ERRORS = ("UserError", "ConfigError", "UnknownName", "WrongVerb", "NotFinite", "Unreadable", "Damaged", "ProcessLost")
"""Errors that are given their sentence and its values, as `_` is."""
MARKS: dict[str, Any] = dict.fromkeys(("_", *ERRORS))
SHOWN_KEYS = ("about", "what", "time", "says", "cure")
"""Keys of TOML files whose texts are shown."""
TYPERS = ("Options", "Arguments", "Commands", "[required]", "[default: {}]")
"""What Typer itself puts into help."""


def marked() -> Iterator[str]:
    """What is marked in the code."""
    for package in PACKAGES:
        for *_place, text, _comments, _context in extract_from_dir(package, [("**.py", "python")], keywords=MARKS):
            yield text if isinstance(text, str) else text[0]


def help_texts(command: Any) -> Iterator[str]:
    """The help of a command, its options and its verbs, paragraph by paragraph."""
    for thing in (command, *command.params, command.get_help_option(typer.Context(command))):
        for text in (getattr(thing, "help", None), getattr(thing, "rich_help_panel", None)):
            yield from text.split("\n\n") if isinstance(text, str) else ()
    for verb in getattr(command, "commands", {}).values():
        yield from help_texts(verb)


def setting_texts() -> Iterator[str]:
    """What is said of each setting, and what it takes."""
    for part in PARTS:
        for setting in settings_of(part):
            yield setting.about
            if not setting.is_choice:
                yield getattr(setting.takes, "template", setting.takes)


def toml_texts() -> Iterator[str]:
    """The texts of recipes, ablations and reproductions."""

    def shown(value: Any) -> Iterator[str]:
        if isinstance(value, dict):
            yield from (text for key, text in value.items() if key in SHOWN_KEYS and isinstance(text, str))
        for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
            yield from shown(inner)

    for path in (path for package in PACKAGES for path in package.rglob("*.toml")):
        yield from shown(tomllib.loads(path.read_text(encoding="utf-8")))


def claim_texts() -> Iterator[str]:
    """What the claims of the literature say, with their sources, conditions, notes and the names of their arms."""
    for claim in all_claims():
        yield from (claim.claim, claim.said_by, *claim.notes, *(block.says for block in claim.judge))
        yield from (condition.text for block in claim.judge for condition in block.condition)
        yield from (name for names in claim.names.values() for name in names.values())


def texts() -> set[str]:
    """Everything that the package shows to people."""
    command = typer.main.get_command(make_app())
    taps = (meaning for _shape, meaning in SHAPES.values())  # nn knows nothing of languages
    return {*marked(), *help_texts(command), *setting_texts(), *toml_texts(), *claim_texts(), *taps, *TYPERS} - {""}


def page_words() -> set[tuple[str, str]]:
    """The words of the pages, each with the module that has it: the same word may be another in Chinese elsewhere."""
    return {
        (path.name.removesuffix("_en.js"), word)
        for path in PACKAGES[0].rglob("page/*_en.js")
        for word in english_words(path.read_text(encoding="utf-8")).values()
    }


def updated() -> Catalog:
    """The catalogue with the texts of today, and the translations that it has."""
    known = {(one.context, one.id): one.string for one in read_po(io.BytesIO(PO.read_bytes()), locale="zh")}
    day = datetime(2026, 1, 1, tzinfo=UTC)  # the same source leaves the same file
    catalogue = Catalog(locale="zh", project="glassformer", creation_date=day, revision_date=day, fuzzy=False)
    for text in sorted(texts()):
        catalogue.add(text, known.get((None, text), ""))
    for module, word in sorted(page_words()):
        catalogue.add(word, known.get((module, word), ""), context=module)
    return catalogue


def source(catalogue: Catalog) -> bytes:
    """The catalogue as people edit it."""
    out = io.BytesIO()
    write_po(out, catalogue, width=None, omit_header=True)
    head = (
        'msgid ""\nmsgstr ""\n"Language: zh\\n"\n"MIME-Version: 1.0\\n"\n"Content-Type: text/plain; charset=UTF-8\\n"\n'
    )
    return f'{head}"Content-Transfer-Encoding: 8bit\\n"\n\n'.encode() + out.getvalue()


def compiled(catalogue: Catalog) -> bytes:
    """The catalogue as gettext reads it."""
    out = io.BytesIO()
    write_mo(out, catalogue)
    return out.getvalue()


if __name__ == "__main__":
    today = updated()
    PO.write_bytes(source(today))
    PO.with_suffix(".mo").write_bytes(compiled(today))
    for message in today:
        if message.id and not message.string:
            print(f"not translated: {message.id}")
