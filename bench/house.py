"""The figures of the house: how long files and functions are, how many parameters they take, what has no docstring.

    python bench/house.py            # the figures, and every place that does not meet them yet
    python bench/house.py --rooms    # a line a room

`tests/test_house.py` holds them. Word lists and tables of data are exempt from docstrings and from the count of long files.
"""

from __future__ import annotations

import argparse
import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE, LAB = ROOT / "glassformer", ROOT / "lab" / "glassformer_lab"
BESIDE = ("tests", "lab/tests", "bench", "docs")
LONGEST_FILE, LONG_FILE, FEW = 400, 300, 44  # of a package with few files, since small ones join their noun
LONGEST_FUNCTION, LONGEST_KERNEL = 70, 120
MOST_PARAMETERS, MOST_OF_A_KERNEL = 10, 20
WORD_LISTS = ("data/builtin/",)  # sentences and names, with the small functions that choose among them

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass
class Figures:
    """What was found in one file."""

    path: str
    lines: int
    public: int = 0
    undocumented: list[str] = field(default_factory=list)
    long_functions: dict[str, int] = field(default_factory=dict)
    wide_signatures: dict[str, int] = field(default_factory=dict)
    unannotated: list[str] = field(default_factory=list)

    @property
    def room(self) -> str:
        """The folder below the package, or the file's own name; the laboratory is one."""
        return self.path.split("/")[0].removesuffix(".py")

    @property
    def exempt(self) -> bool:
        """Whether it is a list of words or a table of data."""
        return self.path.startswith(WORD_LISTS)


def is_kernel(function: Function) -> bool:
    """Whether it is compiled by Triton, whose parameters are pointers and strides without annotations."""
    return any("jit" in ast.unparse(decorator) for decorator in function.decorator_list)


def is_overload(node: ast.AST) -> bool:
    """Whether it only tells a type checker of one way to call what is documented below it."""
    return any("overload" in ast.unparse(decorator) for decorator in getattr(node, "decorator_list", ()))


def parameters(function: Function) -> list[ast.arg]:
    """Those that a caller gives."""
    given = function.args
    found = [*given.posonlyargs, *given.args, *given.kwonlyargs]
    return found[1:] if found and found[0].arg in ("self", "cls") else found


def is_command(path: str, function: Function) -> bool:
    """Whether its parameters are the options of a command: a person reads them one by one, with help for each."""
    return path.startswith(("cli/", f"{LAB.name}/cli/")) and "\nExample: " in (ast.get_docstring(function) or "")


def definitions(node: ast.AST, path: str = "", public: bool = True) -> Iterator[tuple[str, ast.AST, bool]]:
    """Every class and function with its dotted name, and whether it is public: no underscore, and in no function."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            name = f"{path}{child.name}"
            seen = public and not child.name.startswith("_")
            yield name, child, seen
            yield from definitions(child, f"{name}.", seen and isinstance(child, ast.ClassDef))
        else:
            yield from definitions(child, path, public)


@cache
def parsed(file: Path) -> tuple[str, ast.Module]:
    """The text of a file, and what Python reads in it; read once."""
    text = file.read_text(encoding="utf-8")
    return text, ast.parse(text, str(file))


def figures_of(file: Path) -> Figures:
    """The figures of one file."""
    text, tree = parsed(file)
    found = Figures(
        file.relative_to(LAB.parent if file.is_relative_to(LAB) else PACKAGE).as_posix(), len(text.splitlines())
    )
    for name, node, public in definitions(tree):
        full = f"{found.path}:{name}"
        public = public and not is_overload(node)
        found.public += public
        if public and ast.get_docstring(node) is None:  # type: ignore[arg-type]
            found.undocumented.append(full)
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        kernel = is_kernel(node)
        length = (node.end_lineno or node.lineno) - node.lineno + 1
        if is_command(found.path, node):
            length -= len((ast.get_docstring(node) or "").splitlines())  # the help of its options
        if length > (LONGEST_KERNEL if kernel else LONGEST_FUNCTION):
            found.long_functions[full] = length
        if len(parameters(node)) > (MOST_OF_A_KERNEL if kernel else MOST_PARAMETERS) and not is_command(
            found.path, node
        ):
            found.wide_signatures[full] = len(parameters(node))
        if not kernel and (node.returns is None or any(p.annotation is None for p in parameters(node))):
            found.unannotated.append(full)
    return found


def all_figures() -> list[Figures]:
    """Of every file of the package and of the laboratory beside it."""
    return [figures_of(file) for package in (PACKAGE, LAB) for file in sorted(package.rglob("*.py"))]


def long_beside() -> list[str]:
    """Files of tests, benchmarks and documents that are longer than a file may be; tables count there too."""
    files = [file for folder in BESIDE for file in sorted((ROOT / folder).rglob("*.py"))]
    counted = {file: len(file.read_text(encoding="utf-8").splitlines()) for file in files}
    return [f"{file.relative_to(ROOT).as_posix()}: {n}" for file, n in counted.items() if n > LONGEST_FILE]


def documented(files: list[Figures]) -> float:
    """The share of public classes, functions and methods that have a docstring."""
    counted = [f for f in files if not f.exempt]
    public = sum(f.public for f in counted)
    return 1 - sum(len(f.undocumented) for f in counted) / public if public else 1.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rooms", action="store_true")
    given = parser.parse_args()
    files = all_figures()
    counted = [f for f in files if not f.exempt]
    over = [f"{f.path}: {f.lines}" for f in files if f.lines > LONGEST_FILE]
    long = [f"{f.path}: {f.lines}" for f in counted if LONG_FILE < f.lines <= LONGEST_FILE]
    lines, words = sum(f.lines for f in files), sum(f.lines for f in files if f.exempt)
    print(f"{len(files)} files, {lines:,} lines, {words:,} of them word lists")
    print(
        f"docstrings: {documented(files):.1%} of {sum(f.public for f in counted):,} public classes, functions and methods"
    )
    for title, found in (
        (f"files over {LONGEST_FILE} lines", over),
        (f"files over {LONG_FILE} lines", long),
        (f"files of tests, bench and docs over {LONGEST_FILE} lines", long_beside()),
        ("functions too long", [f"{k}: {v}" for f in files for k, v in f.long_functions.items()]),
        ("signatures too wide", [f"{k}: {v}" for f in files for k, v in f.wide_signatures.items()]),
        ("public without a docstring", [name for f in counted for name in f.undocumented]),
        ("not annotated", [name for f in files for name in f.unannotated]),
    ):
        print(f"{title}: {len(found)}", *found, sep="\n  ")
    if given.rooms:
        for room in sorted({f.room for f in files}):
            here = [f for f in files if f.room == room]
            print(
                f"{room:12} {len(here):3} files {sum(f.lines for f in here):6,} lines  docstrings {documented(here):.0%}"
            )


if __name__ == "__main__":
    main()
