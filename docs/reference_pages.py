"""The reference: pages made of the docstrings when `make docs` runs (mkdocs calls on_files).

Nothing is imported. The public names are followed from `glassformer/__init__.py` to where they are defined, by the imports
between; a room's page shows every public class and function of its modules. Examples in docstrings are run by
tests/test_documents.py.
"""

from __future__ import annotations

import ast
import functools
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "glassformer"
FOLDER = "reference"
PUBLIC = f"{FOLDER}/public.md"
Defined = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


class Place(NamedTuple):
    """Where a name is defined."""

    path: Path
    node: Defined


@functools.cache
def tree(path: Path) -> ast.Module:
    """A file, parsed once."""
    return ast.parse(path.read_text(encoding="utf-8"))


def file_of(module: str) -> Path:
    """glassformer.nn.masks is glassformer/nn/masks.py, and a package its __init__.py."""
    path = ROOT.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def find(module: str, name: str) -> Place:
    """The definition of a name, wherever the module has it from.

    >>> find("glassformer.api", "load").path.name
    'loading.py'
    """
    path = file_of(module)
    for node in tree(path).body:
        if isinstance(node, Defined) and node.name == name:
            return Place(path, node)
        if isinstance(node, ast.ImportFrom) and node.module and any((a.asname or a.name) == name for a in node.names):
            return find(node.module, next(a.name for a in node.names if (a.asname or a.name) == name))
    raise LookupError(f"{module} has no {name}")


def public_homes() -> Iterator[tuple[str, str]]:
    """Every public name of the package and the module it is fetched from: what HOMES of its __init__.py says."""
    for node in tree(PACKAGE / "__init__.py").body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "HOMES":
            for module, names in ast.literal_eval(node.value).items():
                yield from ((name, module) for name in names)


def escaped(line: str) -> str:
    """Text as Markdown shows it: code in backticks stays, signs that Markdown or HTML would read are escaped."""
    parts = line.split("`")
    parts[::2] = [re.sub(r"([*<$\[\]|#])", r"\\\1", part) for part in parts[::2]]
    return "`".join(parts)


def shown(docstring: str) -> str:
    """A docstring as Markdown: paragraphs, indented code, and examples as code."""
    out: list[str] = []
    in_example = False
    for line in docstring.splitlines():
        if line.lstrip().startswith(">>>") and not in_example:
            out += ["", "```pycon"]
            in_example = True
        elif in_example and not line.strip():
            out.append("```")
            in_example = False
        out.append(
            line.strip()
            if in_example and not line.startswith(" ")
            else line
            if in_example or line[:4] == "    "
            else escaped(line)
        )
    return "\n".join([*out, "```"] if in_example else out)


def signature(node: Defined) -> str:
    """The head of a definition, as it stands but for its body."""
    if isinstance(node, ast.ClassDef):
        bases = ", ".join(ast.unparse(base) for base in node.bases)
        return f"class {node.name}({bases})" if bases else f"class {node.name}"
    arguments = ast.unparse(node.args)
    returns = f" -> {ast.unparse(node.returns)}" if node.returns is not None else ""
    flat = f"{node.name}({arguments}){returns}"
    if len(flat) <= 100:
        return flat
    parts = split_arguments(arguments)
    return f"{node.name}(\n    " + ",\n    ".join(parts) + f",\n){returns}"


def split_arguments(arguments: str) -> list[str]:
    """Cut at the commas that are in no bracket.

    >>> split_arguments("a: dict[str, int], b=1")
    ['a: dict[str, int]', 'b=1']
    """
    parts, depth, quote = [""], 0, ""
    for letter in arguments:
        quote = "" if letter == quote else quote or (letter if letter in "'\"" else "")
        depth += (letter in "([{") - (letter in ")]}") if not quote else 0
        if letter == "," and not depth and not quote:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]


def is_public(node: ast.stmt) -> bool:
    """A class or function that has a docstring and no underscore."""
    return isinstance(node, Defined) and not node.name.startswith("_") and ast.get_docstring(node) is not None


def bases_of(place: Place) -> Iterator[Place]:
    """The class and those of ours that it is made from, nearest first."""
    yield place
    for base in getattr(place.node, "bases", []):
        if isinstance(base, ast.Name):
            module = ".".join(place.path.relative_to(ROOT).with_suffix("").parts)
            try:
                found = find(module, base.id)
            except (LookupError, FileNotFoundError):
                continue
            yield from bases_of(found)


def entry(place: Place, name: str, level: int = 2, inherited: bool = False) -> list[str]:
    """One name: signature, docstring, and of a class its public methods."""
    file = place.path.relative_to(ROOT).as_posix()
    lines = [f"{'#' * level} {name} {{ #{name} }}", "", "```python", signature(place.node), "```", ""]
    lines += [shown(inspect.cleandoc(ast.get_docstring(place.node) or "")), "", f"[`{file}`](../../{file})", ""]
    if isinstance(place.node, ast.ClassDef):
        seen: set[str] = set()
        for one in bases_of(place) if inherited else [place]:
            for node in getattr(one.node, "body", []):
                if is_public(node) and node.name not in seen:
                    seen.add(node.name)
                    lines += [f"{'#' * (level + 1)} {name}.{node.name} {{ #{name}.{node.name} }}", ""]
                    lines += ["```python", signature(node), "```", "", shown(ast.get_docstring(node) or ""), ""]
    return lines


def public_page() -> str:
    """Every name that `import glassformer` gives."""
    lines = ["# The public names", "", "What `import glassformer` gives, with its examples.", ""]
    for name, module in sorted(public_homes(), key=lambda pair: pair[0].lower()):
        lines += entry(find(module, name), name, inherited=True)
    return "\n".join(lines)


def rooms() -> list[str]:
    """The folders of the package that hold modules."""
    return sorted(path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists())


def room_page(room: str) -> str:
    """Every module of a room: what it says of itself, and its public names."""
    lines = [f"# {room}", ""]
    first = ast.get_docstring(tree(PACKAGE / room / "__init__.py"))
    lines += [shown(first), ""] if first else []
    for path in sorted((PACKAGE / room).rglob("*.py")):
        if path.name == "__init__.py":
            continue
        module = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        lines += [f"## {module} {{ #{module} }}", "", shown(ast.get_docstring(tree(path)) or ""), ""]
        for node in tree(path).body:
            if is_public(node) and isinstance(node, Defined):
                lines += [f"### {node.name} {{ #{module}.{node.name} }}", "", "```python", signature(node), "```", ""]
                lines += [shown(ast.get_docstring(node) or ""), ""]
    return "\n".join(lines)


def pages() -> dict[str, str]:
    """Every page of the reference by its place in the site."""
    return {PUBLIC: public_page()} | {f"{FOLDER}/{room}.md": room_page(room) for room in rooms()}


def on_files(files: Any, config: Any) -> Any:
    """The pages join the site. Those of the rooms are not searched: the words in them are everywhere."""
    from mkdocs.structure.files import File

    folder = "zh/" if config.theme["language"] == "zh" else ""  # each language has its own, with its own menus
    for place, content in pages().items():
        head = "" if place == PUBLIC else "---\nsearch:\n  exclude: true\n---\n"
        file = File.generated(config, place, content=head + content)
        file.dest_uri = folder + file.dest_uri
        files.append(file)
    return files


on_files.mkdocs_priority = -150  # type: ignore[attr-defined]  # after the languages, before the sources that these pages link to
