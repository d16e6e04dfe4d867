"""How large each room may be, and how large it is.

    python bench/house.py            # rooms beside their ceilings, and what the last commit did to them
    python bench/ceilings.py --lower # ceilings.toml anew, with each ceiling that was above its room lowered to it

Lines of code: no blank lines, no comments, no docstrings, so that explaining costs nothing. `tests/test_house.py` fails where a
room is above its ceiling, and where a ceiling hangs far above its room: what was taken out does not grow back.
"""

from __future__ import annotations

import argparse
import ast
import functools
import io
import subprocess
import tarfile
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).parents[1]
FILE = Path(__file__).with_name("ceilings.toml")
SLACK = 40  # lines that a ceiling may hang above its room


def code_lines(text: str) -> int:
    """The number of lines that hold code. Every line of a text that goes over several lines does, whatever stands in it."""
    docstrings: set[int] = set()
    texts: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
            first = node.body[0]
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                docstrings.update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
        elif isinstance(node, ast.Constant | ast.JoinedStr) and (node.end_lineno or 0) > node.lineno:
            texts.update(range(node.lineno, (node.end_lineno or 0) + 1))
    lines = enumerate(text.splitlines(), 1)
    code = {number for number, line in lines if line.strip() and not line.lstrip().startswith("#")}
    return len((code | texts) - docstrings)


def lines_of_rooms(package: Path) -> Counter[str]:
    """Lines of code by room: a folder of the package, or all files that lie beside the folders."""
    rooms: Counter[str] = Counter()
    for path in package.rglob("*.py"):
        parts = path.relative_to(package).parts
        rooms[parts[0] if len(parts) > 1 else "top"] += code_lines(path.read_text(encoding="utf-8"))
    return rooms


def modules_by_string(package: Path) -> Iterator[str]:
    """Places where a module of the package is named by a string, which no arrow of the plan shows."""
    for path in sorted(package.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            called = getattr(getattr(node, "func", None), "attr", "")
            named = isinstance(node, ast.Constant) and isinstance(node.value, str)
            if called == "import_module" or (named and is_module(str(node.value), package)):  # type: ignore[attr-defined]
                yield f"{path.relative_to(package).as_posix()}:{node.lineno}"  # type: ignore[attr-defined]


def is_module(text: str, package: Path) -> bool:
    """Is this the dotted name of a module of the package, or the beginning of some?"""
    if not text.startswith(f"{package.name}.") or not text.replace(".", "").replace("_", "").isalnum():
        return False
    path = package.parent / text.rstrip(".").replace(".", "/")
    return path.is_dir() or path.with_suffix(".py").is_file()


def package_circles(package: Path) -> Iterator[str]:
    """Modules that import a neighbour by way of their own package, whose `__init__` imports modules of it in turn."""
    for path in sorted(package.rglob("*.py")):
        own = ".".join(path.relative_to(package.parent).parent.parts)
        if path.name == "__init__.py" or not (path.parent / "__init__.py").read_text(encoding="utf-8").strip():
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        if any(isinstance(node, ast.ImportFrom) and node.module == own for node in ast.walk(tree)):
            yield path.relative_to(package).as_posix()


def verbs() -> dict[str, int]:
    """Our verbs of the command line, and how many options each takes; those of packages beside this are not counted."""
    import typer.main

    from glassformer.cli.verbs import VERBS, make_app, name_of

    own = {"data", *(name_of(verb) for verbs in VERBS.values() for verb in verbs)}
    commands: Mapping[str, Any] = typer.main.get_command(make_app()).commands  # type: ignore[attr-defined]
    return {
        name: sum(any(option.startswith("-") for option in parameter.opts) for parameter in command.params)
        for name, command in commands.items()
        if name in own
    }


@functools.cache
def measured() -> dict[str, dict[str, int]]:
    """Every figure that has a ceiling, as ceilings.toml has them (the number of test cases apart, which pytest counts)."""
    package = ROOT / "glassformer"
    rooms, tests = lines_of_rooms(package), lines_of_rooms(ROOT / "tests")
    options = verbs()
    house = {
        "lines": sum(rooms.values()),
        "files": sum(1 for _ in package.rglob("*.py")),
        "test_lines": sum(tests.values()),
        "verbs": len(options),
        "options_of_a_verb": max(options.values()),
        "package_circles": len(list(package_circles(package))),
        "modules_by_string": len(list(modules_by_string(package))),
        "script_lines": script_lines(package),
    }
    lab = {
        "lines": sum(lines_of_rooms(ROOT / "lab" / "glassformer_lab").values()),
        "test_lines": sum(lines_of_rooms(ROOT / "lab" / "tests").values()),
    }
    return {"house": house, "lab": lab, "rooms": dict(sorted(rooms.items()))}


def script_lines(package: Path) -> int:
    """Lines of JavaScript."""
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in package.rglob("*.js"))


def ceilings() -> dict[str, dict[str, int]]:
    """What stands in ceilings.toml."""
    return tomllib.loads(FILE.read_text(encoding="utf-8"))


def above(figures: Mapping[str, Mapping[str, int]], limits: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Every figure above its ceiling, or without one."""
    return [
        f"{part}.{name} is {value:,}, its ceiling {limits.get(part, {}).get(name, 0):,}"
        for part, values in figures.items()
        for name, value in values.items()
        if value > limits.get(part, {}).get(name, 0)
    ]


def hanging(figures: Mapping[str, Mapping[str, int]], limits: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Every ceiling that is to be lowered, or whose room is gone."""
    return [
        f"{part}.{name} is {figures[part].get(name, 0):,}, its ceiling {limit:,}: lower it (python bench/ceilings.py --lower)"
        for part, values in limits.items()
        for name, limit in values.items()
        if name != "test_cases"
        and limit > figures[part].get(name, 0) + (SLACK if "lines" in name or part == "rooms" else 0)
    ]


def at_commit(commit: str) -> Counter[str]:
    """Lines of code by room at a commit."""
    archive = subprocess.run(
        ["git", "archive", commit, "glassformer"], cwd=ROOT, capture_output=True, check=True
    ).stdout
    with TemporaryDirectory() as folder, tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        tar.extractall(folder, filter="data")
        return lines_of_rooms(Path(folder) / "glassformer")


def table() -> str:
    """A line a room: lines of code, its ceiling, and what the last commit did."""
    figures, limits = measured(), ceilings()
    try:
        before = at_commit("HEAD~1")
    except (OSError, subprocess.CalledProcessError):  # no git, or nothing before
        before = Counter(figures["rooms"])
    rows = [f"{'room':18} {'lines':>7} {'ceiling':>8} {'last commit':>12}"]
    for name, value in sorted(figures["rooms"].items(), key=lambda row: -row[1]):
        rows.append(f"{name:18} {value:7,} {limits['rooms'].get(name, 0):8,} {value - before[name]:+12,}")
    rows += [
        f"{f'lab {name}' if part == 'lab' else name:18} {value:7,} {limits[part].get(name, 0):8,}"
        for part in ("house", "lab")
        for name, value in figures[part].items()
    ]
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lower", action="store_true")
    if not parser.parse_args().lower:
        print(table())
        return
    figures, limits = measured(), ceilings()
    lines = [
        "# How large the house and its rooms may be; see ceilings.py. A commit that takes something out lowers its ceiling;"
    ]
    lines.append("# one that raises a ceiling lowers another by as much. The sums never rise.")
    for part, values in limits.items():
        names = [name for name in values if name == "test_cases" or name in figures[part]]
        lowered = (f"{name} = {min(values[name], figures[part].get(name, values[name]))}" for name in names)
        lines += ["", f"[{part}]", *lowered]
    FILE.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
