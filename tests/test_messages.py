"""Every sentence that the package says to a person has its Chinese: what is raised as an error, what is said on stderr, and the
notes and reasons that are made in one place and shown in another."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from glassformer import language
from tests.test_language import CHINESE

ROOT = Path(__file__).parents[1] / "glassformer"
SAID_BY = {"UserError", "ConfigError", "WrongVerb", "UnknownName", "BadLine", "warn", "say"}


def sentence_of(node: ast.expr) -> str | None:
    """The text of an expression with \\1 for what is put in; None where it is made elsewhere."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "\1" for part in node.values)
    return None


def sentences(source: str) -> Iterator[tuple[int, str]]:
    """The line and the text of everything that a file of the package says."""
    for node in ast.walk(ast.parse(source)):
        if not (
            isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in SAID_BY and node.args
        ):
            continue
        is_line = node.func.id == "BadLine" and len(node.args) > 3
        text = sentence_of(node.args[3 if is_line else 0])
        if text is not None and len(re.findall("[A-Za-z]", text.removeprefix("glassformer: "))) >= 4:
            yield node.lineno, f"a.tsv, line 3: {text}" if is_line else text.removeprefix("glassformer: ")


NOTES = re.compile(r"(.*_)?(notes?|lacks|said|why|differs)")
"""Names of what is shown to a person later: `report.notes`, `why`."""
REASONS = ("str | None", "list[str]", "tuple[str, ...]")
"""What a function returns that says what is wrong with a thing, or what should be known of it."""
NOT_SHOWN = ("serve", "lab/ablate", "lab/claims", "lab/complexity")
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
            text = sentence_of(node)
            if text is not None and " " in text and len(re.findall("[A-Za-z]{2,}", text)) >= 4:
                yield node.lineno, text


def notes(source: str) -> Iterator[tuple[int, str]]:
    """The line and the text of every note and reason that a file of the package makes."""
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


def is_part(text: str) -> bool:
    """Whether a sentence of the catalogue has this in it: what is put together of parts stands there whole."""
    part = text.replace("\1\1", "\1").replace("\1", "{}")
    return any(part in key.replace("{s}", "{}") for key in language.translations("zh")._catalog if isinstance(key, str))  # type: ignore[attr-defined]


def told(text: str) -> str:
    """In Chinese, with names put in; where the last thing is a suggestion it may be there or not."""
    return language.in_language(text.replace("\1\1", "\1").replace("\1", "x1"), "zh")


def test_nothing_is_said_in_english_alone() -> None:
    """A new sentence needs its entry in locale/zh/LC_MESSAGES/glassformer.po (then: python3 docs/make_messages.py)."""
    english, count = [], 0
    for path in sorted(ROOT.rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        for line, text in sentences(path.read_text(encoding="utf-8")):
            count += 1
            if not CHINESE.search(told(text)):
                english.append(f"{name}:{line}: {text}")
    assert count > 600 and english == [], "\n" + "\n".join(english)


def test_no_note_and_no_reason_is_in_english_alone() -> None:
    """Broken variant: only errors and what is said at once are looked at, and the notes of an import are English."""
    english, count = [], 0
    for path in sorted(ROOT.rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        for line, text in notes(path.read_text(encoding="utf-8")) if not name.startswith(NOT_SHOWN) else ():
            count += 1
            if not CHINESE.search(told(text)) and not is_part(text):
                english.append(f"{name}:{line}: {text}")
    assert count > 60 and english == [], "\n" + "\n".join(english)


def test_a_note_without_chinese_is_found() -> None:
    source = """
def why(path: str) -> str | None:
    notes.append(f"the fyle {path} was left aside")
    self.report.notes = ["the model has no token that ends a text"]
    return "no such thyng is here" if path else None
"""
    assert sorted(text for _, text in notes(source) if not CHINESE.search(told(text))) == [
        "no such thyng is here",
        "the fyle \1 was left aside",
    ]


def test_a_sentence_without_chinese_is_found() -> None:
    source = 'raise UserError(f"there is no fyle {path}")\nsay("one text a line; end with Ctrl-D")'
    assert [CHINESE.search(told(text)) is None for _, text in sentences(source)] == [True, False]
