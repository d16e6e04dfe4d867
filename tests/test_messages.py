"""Every sentence that the package says to a person is marked by `_` (an error marks its own), and so has its Chinese: what is
raised, what is said on stderr, and the notes and reasons that are made in one place and shown in another."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = (ROOT / "glassformer", ROOT / "lab" / "glassformer_lab")
ERRORS = {"UserError", "ConfigError", "WrongVerb", "UnknownName", "NotFinite", "Damaged", "Unreadable", "ProcessLost"}
SAID_BY = {*ERRORS, "BadLine", "warn", "say"}


def plain_text(node: ast.expr) -> str | None:
    """The text of an expression that is no message, with … for what is put in; None where it is one, or made elsewhere."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
    return None


def unmarked_sentences(source: str) -> Iterator[tuple[int, str]]:
    """The line and the text of everything that a file of the package says and that is not marked."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in SAID_BY and node.args:
            given = node.args[-1 if node.func.id == "BadLine" else 0]
            text = None if node.func.id in ERRORS and isinstance(given, ast.Constant) else plain_text(given)
            if text is not None and len(re.findall("[A-Za-z]", text.removeprefix("glassformer: "))) >= 4:
                yield node.lineno, text


NOTES = re.compile(r"(.*_)?(notes?|lacks|said|why|differs)")
"""Names of what is shown to a person later: `report.notes`, `why`."""
REASONS = ("str | None", "list[str]", "tuple[str, ...]")
"""What a function returns that says what is wrong with a thing, or what should be known of it."""
NOT_SHOWN = ("glassformer/serve", *(f"lab/glassformer_lab/{name}" for name in ("sweep", "claims", "complexity")))
"""A server's log; reports in files, which have the two languages side by side or are in English."""


def name_of(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def texts_in(node: ast.expr | None) -> Iterator[tuple[int, str]]:
    """The sentences that an expression may be: one, either of two, several in a list."""
    match node:
        case ast.List(elts) | ast.Tuple(elts):
            for one in elts:
                yield from texts_in(one)
        case ast.IfExp(body=first, orelse=second):
            yield from texts_in(first)
            yield from texts_in(second)
        case ast.BinOp(left=first):
            yield from texts_in(first)
        case ast.Constant() | ast.JoinedStr():
            text = plain_text(node)
            if text is not None and " " in text and len(re.findall("[A-Za-z]{2,}", text)) >= 4:
                yield node.lineno, text


def unmarked_notes(source: str) -> Iterator[tuple[int, str]]:
    """The line and the text of every note and reason that a file of the package makes and that is not marked."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Attribute(attr="message" | "on_message" | "warn" | "report"), args=[given, *_]):
                yield from texts_in(given)
            case ast.Call(func=ast.Attribute(value=owner, attr="append"), args=[given]) if NOTES.fullmatch(
                name_of(owner)
            ):
                yield from texts_in(given)
            case ast.Assign(targets=[target], value=given) | ast.AnnAssign(target=target, value=given):
                if NOTES.fullmatch(name_of(target)):
                    yield from texts_in(given)
            case ast.FunctionDef(returns=kind) if kind is not None and ast.unparse(kind) in REASONS:
                for inner in ast.walk(node):
                    if isinstance(inner, ast.Return):
                        yield from texts_in(inner.value)


def test_nothing_is_said_in_english_alone() -> None:
    """A sentence is written as _("there is no file {path}", path=path), an error as UserError("there is no file {path}",
    path=path); its Chinese is in the catalogue."""
    found = []
    for path in sorted(path for package in PACKAGES for path in package.rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        source = path.read_text(encoding="utf-8")
        found += [f"{name}:{line}: {text}" for line, text in unmarked_sentences(source)]
        if not name.startswith(NOT_SHOWN):
            found += [f"{name}:{line}: {text}" for line, text in unmarked_notes(source)]
    assert found == [], "\n" + "\n".join(found)


def test_a_sentence_that_is_not_marked_is_found() -> None:
    source = """
def why(path: str) -> str | None:
    notes.append(f"the file {path} was left aside")
    self.report.notes = [_("the model has no token that ends a text")]
    if path:
        raise UserError(f"there is no file {path}")
    if not path:
        raise UserError("there is no file {path}", path=path)
    say(_("one text a line; end with Ctrl-D"))
    return "no such thing is here" if path else None
"""
    assert [text for _line, text in unmarked_sentences(source)] == ["there is no file …"]
    notes = sorted(text for _line, text in unmarked_notes(source))
    assert notes == ["no such thing is here", "the file … was left aside"]
