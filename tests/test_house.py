"""The floors of the house: a room imports only from below, nothing goes round in a circle, `import glassformer` needs no
more than it says, and files and functions keep to the figures of bench/house.py."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import bench.house
from bench.house import (
    FEW,
    LONG_FILE,
    LONGEST_FILE,
    Figures,
    all_figures,
    documented,
    figures_of,
    long_beside,
)
from tests.programs import run_program

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "glassformer"

# From the ground up. A room may import from any floor below its own; rooms on one floor do not know each other.
HOUSE: list[set[str]] = [
    {"language"},
    {"errors", "machine"},
    {"nn", "config", "plots", "files", "screen"},
    {"accel"},
    {"models", "text"},
    {"decode", "data"},
    {"training", "probe", "tasks"},
    {"evaluation"},
    {"runs"},
    {"formats"},
    {"api"},
    {"inspection"},
    {"serve", "improve"},
    {"cli"},
]
FLOORS = {name: floor for floor, names in enumerate(HOUSE) for name in names}
# Stand outside the floors: the public names, the door to the command line, and the one file that leans on nothing.
OUTSIDE = {"__init__", "__main__", "classic"}

# Heavy or optional: never needed to import the package, only by the function that uses them.
HEAVY = [
    "matplotlib",
    "rich",
    "typer",
    "safetensors",
    "msgspec",
    "sacrebleu",
    "pooch",
    "requests",
    "babel",
    "jieba",
    "transformers",
    "pyarrow",
    "datasets",
    "tensorboard",
    "wandb",
    "scipy",
    "pandas",
    "ctranslate2",
    "sentencepiece",
    "onnx",
    "onnxruntime",
    "gguf",
    "fastapi",
    "starlette",
    "uvicorn",
    "pydantic",
    "httpx",
    "psutil",
    "pytest",
    "hypothesis",
    "beartype",
]


@cache
def modules(package: Path = PACKAGE) -> dict[str, ast.Module]:
    """Every module of the package by its dotted name, parsed."""
    found = {}
    for path in sorted(package.rglob("*.py")):
        parts = [package.name, *path.relative_to(package).with_suffix("").parts]
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = bench.house.parsed(path)[1]
    return found


def imported_by_string(node: ast.AST) -> str:
    """importlib.import_module("a.b") imports a.b. (A name put together at run time is not seen; the package's
    own file has some, decode/engines.py names the engines in formats/, and api/models.py the report that `show` gives.)"""
    if not isinstance(node, ast.Call) or not node.args or not isinstance(node.args[0], ast.Constant):
        return ""
    called = getattr(node.func, "attr", getattr(node.func, "id", ""))
    return str(node.args[0].value) if called == "import_module" else ""


@cache
def importing(tree: ast.Module) -> list[ast.AST]:
    """Whatever in it imports something."""
    return [n for n in ast.walk(tree) if isinstance(n, ast.Import | ast.ImportFrom) or imported_by_string(n)]


def imports(name: str, tree: ast.Module, known: dict[str, ast.Module]) -> Iterator[str]:
    """The full name of every module that `name` imports, anywhere in it: an import inside a function is one too."""
    package = name if any(k.startswith(f"{name}.") for k in known) else name.rpartition(".")[0]
    for node in importing(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                yield inner if inner in known else base
        elif by_string := imported_by_string(node):
            yield by_string


def room(module: str) -> str:
    """`glassformer.nn.attention` is in `nn`; the package's own file is `__init__`."""
    return module.split(".")[1] if "." in module else "__init__"


def upward_imports(known: dict[str, ast.Module]) -> list[str]:
    found = []
    for name, tree in known.items():
        here = room(name)
        if here in ("__init__", "__main__"):
            continue
        for other in imports(name, tree, known):
            if other.split(".")[0] != "glassformer" or room(other) == here:
                continue
            if here == "classic" or room(other) in OUTSIDE or FLOORS[room(other)] >= FLOORS[here]:
                found.append(f"{name} imports {other}")
    return found


def cycle(known: dict[str, ast.Module]) -> list[str]:
    """Modules that import each other in a circle, or nothing."""
    edges = {name: [o for o in imports(name, tree, known) if o in known] for name, tree in known.items()}
    done: set[str] = set()

    def walk(name: str, path: list[str]) -> list[str]:
        if name in path:
            return [*path[path.index(name) :], name]
        if name in done:
            return []
        for other in edges[name]:
            if other != name and (found := walk(other, [*path, name])):
                return found
        done.add(name)
        return []

    return next((found for name in edges if (found := walk(name, []))), [])


def parsed(**sources: str) -> dict[str, ast.Module]:
    return {name.replace("__", "."): ast.parse(text) for name, text in sources.items()}


def test_every_room_has_a_floor() -> None:
    rooms = {room(name) for name in modules()}
    assert rooms <= set(FLOORS) | OUTSIDE


def test_no_room_imports_upwards_or_sideways() -> None:
    assert upward_imports(modules()) == []


def test_nothing_goes_round_in_a_circle() -> None:
    assert cycle(modules()) == []


# The equations, and what is assembled from them, are never fast by import: accel is installed on them from outside.
WITHOUT_ACCEL = {"nn", "models", "config", "text", "data", "evaluation", "probe"}


def test_what_explains_does_not_lean_on_what_is_fast() -> None:
    for name, tree in modules().items():
        if room(name) in WITHOUT_ACCEL:
            assert not [o for o in imports(name, tree, modules()) if o.startswith("glassformer.accel")], name


def test_the_package_does_not_know_the_laboratory() -> None:
    """It is a package of its own, which uses this and is used by none of it, not even by a name in a string. Broken variant: a
    verb of the core that imports glassformer_lab."""
    assert [path for path in PACKAGE.rglob("*.py") if "glassformer_lab" in path.read_text(encoding="utf-8")] == []


@cache
def figures() -> list[Figures]:
    return all_figures()


def test_no_file_is_too_long_and_few_are_long() -> None:
    assert {f.path for f in figures() if f.lines > LONGEST_FILE} == set()
    assert len([f for f in figures() if f.lines > LONG_FILE and not f.exempt]) <= FEW


@pytest.mark.parametrize("folder", ["tests", "bench"])
def test_no_file_beside_the_package_is_too_long(folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert long_beside() == []
    (tmp_path / folder).mkdir()
    (tmp_path / folder / "all.py").write_text("x = 1\n" * (LONGEST_FILE + 1))
    monkeypatch.setattr("bench.house.ROOT", tmp_path)
    assert long_beside() == [f"{folder}/all.py: {LONGEST_FILE + 1}"], "and one that is would be seen"


def test_no_function_is_too_long_and_no_signature_too_wide() -> None:
    assert {name for f in figures() for name in f.long_functions} == set()
    assert {name for f in figures() for name in f.wide_signatures} == set()


def homes_of_classes(package: Path) -> dict[str, list[str]]:
    """Every top-level class of the package with its modules; the machine of the tutorials and word lists stand alone."""
    homes: dict[str, list[str]] = {}
    for name, tree in modules(package).items():
        if not name.startswith(("glassformer.classic", "glassformer.data.builtin")):
            for node in tree.body:
                if isinstance(node, ast.ClassDef):
                    homes.setdefault(node.name, []).append(name)
    return homes


def test_a_class_has_a_name_of_its_own(tmp_path: Path) -> None:
    """One word, one meaning: no two classes of the package share a name."""
    assert {name: homes for name, homes in homes_of_classes(PACKAGE).items() if len(homes) > 1} == {}
    for room in ("one", "two"):
        (tmp_path / f"{room}.py").write_text("class Part: ...\n")
    assert len(homes_of_classes(tmp_path)["Part"]) == 2, "and two that did would be seen"


def test_everything_is_annotated() -> None:
    assert [name for f in figures() for name in f.unannotated] == []


def test_what_is_public_is_documented() -> None:
    assert [name for f in figures() if not f.exempt for name in f.undocumented] == []
    assert documented(figures()) == 1.0


def test_the_figures_see_what_they_should(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long function, a wide signature, a method without a docstring, one without annotations; and not what is private."""
    monkeypatch.setattr("bench.house.PACKAGE", tmp_path)
    wide = ", ".join(f"p{i}: int" for i in range(11))
    body = "\n".join(f"    x = {i}" for i in range(70))
    (tmp_path / "room.py").write_text(
        f'class A:\n    """A."""\n    def b(self, x):\n        def c(): pass\n    def _d(self) -> None: pass\n'
        f'def long() -> None:\n{body}\ndef wide({wide}) -> None:\n    """Wide."""\n'
    )
    found = figures_of(tmp_path / "room.py")
    assert found.undocumented == ["room.py:A.b", "room.py:long"] and found.public == 4
    assert list(found.long_functions) == ["room.py:long"] and list(found.wide_signatures) == ["room.py:wide"]
    assert found.unannotated == ["room.py:A.b", "room.py:A.b.c"]


def test_the_checks_see_what_they_should() -> None:
    """Upwards, sideways, hidden in a function, relative, out of the package's own file, and round two corners."""
    package = parsed(glassformer="", glassformer__nn="", glassformer__models="", glassformer__text="")
    for here, line in {
        "glassformer.nn.cache": "import glassformer.models",
        "glassformer.models.gpt": "from glassformer.text import tokenizer",
        "glassformer.models.bert": "def f():\n    from glassformer.cli import info",
        "glassformer.nn.rows": "from ..models import GPT",
        "glassformer.text.words": "from glassformer import Rows",
        "glassformer.classic": "from glassformer.nn import attention",
    }.items():
        assert len(upward_imports({**package, here: ast.parse(line)})) == 1, here
    allowed = {
        "glassformer.models.gpt": "from glassformer.nn.rows import Rows\nimport torch\nfrom .parts import BaseModel"
    }
    assert upward_imports({**package, **{k: ast.parse(v) for k, v in allowed.items()}}) == []
    circle = parsed(
        glassformer__nn__a="from glassformer.nn import b",
        glassformer__nn__b="def f():\n    from glassformer.nn.c import x",
        glassformer__nn__c="from .a import y",
    )
    assert set(cycle({**package, **circle})) == set(circle)
    by_string = parsed(
        glassformer__nn__a="import importlib\ndef f():\n    importlib.import_module('glassformer.nn.b')",
        glassformer__nn__b="from glassformer.nn.a import f",
    )
    assert set(cycle({**package, **by_string})) == set(by_string)


# Their functions are written in Triton, which is there where torch knows a CUDA device; they are imported only there.
NEEDS_TRITON = {
    "glassformer.accel.decoding.kernel_start",
    "glassformer.accel.decoding.product_kernels",
    "glassformer.accel.decoding.attention_kernels",
    "glassformer.accel.decoding.source_kernels",
    "glassformer.accel.decoding.vocabulary_kernels",
    "glassformer.accel.decoding.beam_kernels",
    "glassformer.accel.loss_kernels",
}


def test_nn_leans_on_torch_alone() -> None:
    known = modules()
    for name, tree in known.items():
        if room(name) in ("nn", "classic"):
            allowed = {"torch", "jaxtyping", *sys.stdlib_module_names, *(["triton"] if name in NEEDS_TRITON else [])}
            wrong = {o for o in imports(name, tree, known) if o.split(".")[0] not in allowed | {"glassformer"}}
            assert not wrong, f"{name} imports {wrong}"
            if name.startswith("glassformer.classic."):
                assert not any("jaxtyping" in o or "glassformer" in o for o in imports(name, tree, known))


@pytest.mark.slow
def test_importing_the_package_needs_torch_numpy_jaxtyping_and_tokenizers_alone() -> None:
    """With everything else made impossible to import: the package, every room below the command line and the server, and
    a model that runs. Caught: one heavy import at the top of any module."""
    rooms = [name for name in modules() if room(name) not in ("cli", "serve", "__main__") and name not in NEEDS_TRITON]
    run_program("imported_alone", ",".join(HEAVY), *rooms)
