"""gettext's catalogues: messages without a translation get one, marked fuzzy; every other line stays as it is.

Babel reads them. It would write them anew, with a header and flags of its own, so only the lines of the translations are made
here.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from glassformer.errors import UserError, install_hint
from glassformer.formats.documents.document import DocumentParts, as_is, checked_encoding
from glassformer.text.markup import html_segments

if TYPE_CHECKING:
    from babel.messages.catalog import Catalog, Message

MOST_FORMS = 9  # of a plural; no language of gettext's has more than six
HEAD = re.compile(rb".*?^[ \t]*msgstr.*?(?=^[ \t]*msg(?:ctxt|id)\b|\Z)", re.DOTALL | re.MULTILINE)  # the first message
PLURAL_FORMS = re.compile(
    rf'^[^#\n]*(?:"|\\n)Plural-Forms: *nplurals *= *([1-{MOST_FORMS}])\b', re.IGNORECASE | re.MULTILINE
)


def parsed(text: str) -> Catalog:
    """A catalogue as Babel reads it, where a plural may have more forms than the header says, or than two where it is silent."""
    from babel.messages import catalog, pofile

    class AnyForms(catalog.Catalog):
        @property
        def num_plurals(self) -> int:
            return MOST_FORMS

    found = AnyForms()
    pofile.PoFileParser(found, abort_invalid=True).parse(text.split("\n"))
    return found


def charset_of(content: bytes) -> str:
    """The character set that a catalogue's header says it is in, in which whatever follows the header is to be read."""
    head = HEAD.match(content)
    return parsed((head[0] if head else content).decode("latin-1")).charset or "utf-8"


def translation_of(lines: list[str], number: int) -> tuple[int, int, int]:
    """Where the lines of a message's translation begin and end, and how many plural forms they have. `number`: of the line where
    the message begins, from 1."""
    first = next(at for at in range(number - 1, len(lines)) if lines[at].lstrip().startswith("msgstr"))
    last, forms = first, 0
    for at in range(first, len(lines)):
        line = lines[at].strip()
        if line.startswith("msgstr["):
            forms = max(forms, int(line.removeprefix("msgstr[").partition("]")[0]) + 1)
        if line.startswith(("msgstr", '"')):
            last = at + 1
        elif line:
            break
    return first, last, forms


def forms_of(message: Message, lines: list[str], said: int) -> list[tuple[str, str]]:
    """The forms of a message's translation: the keyword of each and the text that it translates. The only form of a plural
    stands for every number, so it translates the plural; of several the first translates the singular. `said`: how many a
    plural has by the header, 0 where that does not say. None where the file has no place for them."""
    if isinstance(message.id, str):
        return [("msgstr", message.id)]
    standing = translation_of(lines, message.lineno or 1)[2]
    count = standing and (said or standing)
    return [(f"msgstr[{number}]", message.id[number > 0 or count == 1]) for number in range(count)]


def fill(lines: list[str], number: int, texts: list[str], fuzzy: bool) -> None:
    """Writes the forms of a message's translation into the lines of a catalogue, and above it that nobody has looked at it yet.
    `number`: of the line where the message begins, from 1."""
    first = number - 1
    end = "\r" if lines[first].endswith("\r") else ""
    at, last, _ = translation_of(lines, number)
    lines[at:last] = [f"{line}{end}" for text in texts for line in text.split("\n")]
    if fuzzy:
        return
    above = first
    while above and lines[above - 1].startswith('"'):
        above -= 1
    if above and lines[above - 1].startswith("msgctxt"):
        first = above - 1
    above = first
    while above and lines[above - 1].startswith("#") and not lines[above].startswith("#,"):
        above -= 1
    if lines[above].startswith("#,"):
        lines[above] = lines[above].replace("#,", "#, fuzzy,", 1)
        return
    while first and lines[first - 1].startswith("#|"):
        first -= 1
    lines[first] = f"#, fuzzy{end}\n{lines[first]}"


def read_po(content: bytes, path: Path, *, numbers: bool) -> DocumentParts:
    """A catalogue. A plural has as many forms afterwards as the header says; where that does not say, as it had."""
    try:
        from babel.messages import pofile
    except ImportError:
        raise UserError(
            "reading {kind} files needs the package {name}; install it with: {command}",
            kind=".po",
            name="Babel",
            command=install_hint("dates"),
        ) from None
    try:
        charset = checked_encoding(charset_of(content), path)
        whole = content.decode(charset)
        catalogue = parsed(whole)
        lines, header = whole.split("\n"), PLURAL_FORMS.search(whole)
        count = int(header[1]) if header else 0
        untranslated = [m for m in catalogue if m.id and m.lineno and not any(m.string or ())]
        waiting = [(m, forms) for m in untranslated if (forms := forms_of(m, lines, count))]
    except UserError:
        raise
    except (pofile.PoFileError, ValueError, LookupError) as error:
        raise UserError("{path} cannot be read: {reason}", path=path, reason=error) from None
    segments = [
        {text: [html_segments(line, numbers=numbers, entities=False) for line in text.split("\n")] for _, text in forms}
        for _, forms in waiting
    ]

    def written(parts: list[str]) -> bytes:
        done, new = iter(parts), list(lines)
        made = [
            {text: "\n".join("".join(next(done) for _ in x) for x in own[text]) for text in own} for own in segments
        ]
        ready = [*zip(waiting, made, strict=True)]
        for (message, forms), own in reversed(ready):  # the lines above keep their numbers
            texts = [f"{keyword} {pofile.normalize(own[text], width=0)}" for keyword, text in forms]
            fill(new, message.lineno or 1, texts, message.fuzzy)
        try:
            return "\n".join(new).encode(charset)
        except UnicodeEncodeError as error:
            wrong = error.object[error.start : error.end]
            raise UserError(
                "{path} is in {charset}, which cannot write {text!r}; make it UTF-8", path, charset, wrong
            ) from None

    parts = [p for own in segments for text in own.values() for line in text for p in line]
    return DocumentParts(parts, as_is, written, len(untranslated) - len(waiting))
