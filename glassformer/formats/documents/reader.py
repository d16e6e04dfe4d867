"""A document read, or put together again, by a program of its own with bounds of time and memory: some kilobytes can be made to
take hours or gigabytes, and a thread that reads them cannot be stopped.

On stdin comes an `Order` as a line of JSON, and the document behind it. On stdout comes a `Reading` as JSON or, where the order
holds the translated parts, the document; with exit code 2 a sentence.
"""

from __future__ import annotations

import json
import math
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from glassformer.errors import UserError
from glassformer.formats.documents import read_document
from glassformer.formats.documents.document import as_is
from glassformer.formats.documents.markdown import as_markdown
from glassformer.formats.documents.xml_text import as_xml
from glassformer.text.markup import Segment, as_html

ESCAPES = {escape.__name__: escape for escape in (as_is, as_html, as_markdown, as_xml)}
"""How a plain text becomes text of a document's kind, by name."""


@dataclass(frozen=True)
class Order:
    """What to do with a document called `name`. `options`: of its kind. `translated`: its parts in the other language."""

    name: str
    seconds: float  # of processor time
    memory: int  # bytes of addresses
    options: dict[str, Any] = field(default_factory=dict)
    translated: list[str] | None = None

    def encoded(self, content: bytes) -> bytes:
        """The order with the document, as the program reads them."""
        return json.dumps(vars(self)).encode() + b"\n" + content


@dataclass(frozen=True)
class Reading:
    """The parts of a document that was read, the name of their escape, and how many texts are left as they are."""

    parts: list[str | Segment]
    escape: str
    left: int


def limit_this_process(seconds: float, memory: int) -> None:
    """From here on this process ends where it takes more; where the system has no such limits (Windows), whoever started it
    sees to that."""
    try:
        import resource
    except ImportError:
        return
    bounds = {resource.RLIMIT_CPU: math.ceil(seconds), resource.RLIMIT_AS: memory, resource.RLIMIT_CORE: 0}
    for which, most in bounds.items():
        with suppress(ValueError, OSError):  # a lower limit stands already
            resource.setrlimit(which, (most, most))


def carry_out(order: Order, content: bytes) -> bytes:
    """The answer to an order."""
    document = read_document(content, Path(order.name), **order.options)
    if order.translated is not None:
        return document.written(order.translated)
    import msgspec

    return msgspec.json.encode(Reading(document.parts, document.escape.__name__, document.left))


def main() -> int:
    """Reads an order, carries it out within its limits, and writes the answer; the exit code."""
    order = Order(**json.loads(sys.stdin.buffer.readline()))
    limit_this_process(order.seconds, order.memory)
    try:
        answer, code = carry_out(order, sys.stdin.buffer.read()), 0
    except UserError as error:
        answer, code = str(error).encode("utf-8", "replace"), error.exit_code
    except MemoryError:
        answer, code = b"reading this takes more memory than is given to one file", UserError.exit_code
    sys.stdout.buffer.write(answer)
    return code


if __name__ == "__main__":
    sys.exit(main())
