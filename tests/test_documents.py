"""What the documents say, done: examples in docstrings, Python in README and how-tos, and the notebook, cell by cell.

The runs they speak of are made on the spot and never trained, so what a model answers is not compared; that every line
works is."""

from __future__ import annotations

import ast
import doctest
import importlib
import os
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import glassformer
from glassformer.data.tokens import TokenFile
from tests.talking import make_run

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
NEEDS_TRITON = re.compile(r"kernel|triton")
RUNS = {
    "dates": {"model": {"n_layer": 2, "n_head": 4}},
    "mine": {},
    "stdlib-gpt": {"model": {"family": "gpt"}, "data": {"task": "text"}},
    "stdlib-bert": {"tokenizer": "bpe", "model": {"family": "bert"}, "data": {"task": "text"}},
    "languages": {
        "labels": ["de", "fr"],
        "model": {"family": "bert", "head": "classify"},
        "data": {"task": "classify"},
    },
    "date-parts": {
        "labels": ["day", "month"],
        "model": {"family": "bert", "head": "tag"},
        "data": {"task": "tag", "builtin": "date-parts"},
    },
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with the runs that the documents name."""
    folder = tmp_path_factory.mktemp("documents")
    for name, how in RUNS.items():
        make_run(folder / "runs" / name, **how)
    TokenFile.write(folder / "runs" / "dates" / "data" / "train.source", [[5, 6, 7]], 8)
    before = Path.cwd()
    os.chdir(folder)
    yield folder
    os.chdir(before)


def modules() -> list[str]:
    found = (m.name for m in pkgutil.walk_packages(glassformer.__path__, "glassformer."))
    return [name for name in found if not NEEDS_TRITON.search(name) and not name.endswith("__main__")]


def test_the_examples_of_docstrings(place: Path) -> None:
    """All modules in one go: the same interpreter, the same folder."""
    tried = 0
    for name in modules():
        found = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
        assert found.failed == 0, name
        tried += found.attempted
    assert tried > 60


@pytest.mark.parametrize("name", glassformer.__all__)
def test_every_public_name_has_an_example(name: str) -> None:
    thing = getattr(glassformer, name)
    document = thing.__doc__ or ""
    assert ">>>" in document, f"{name} has no example in its docstring"


def blocks(text: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


PAGES = [ROOT / "README.md", *sorted((ROOT / "docs" / "how-to").glob("*.md"))]
DOCUMENTS = [path for path in PAGES if not path.name.endswith(".zh.md")]
IN_CHINESE = [path for path in DOCUMENTS if path.with_suffix(".zh.md").exists() and blocks(path.read_text("utf-8"))]


@pytest.mark.parametrize("path", IN_CHINESE, ids=lambda p: p.stem)
def test_the_python_of_chinese_documents_is_that_of_the_english(path: Path) -> None:
    """So that it need not run twice: only comments differ."""
    english, chinese = (blocks(p.read_text("utf-8")) for p in (path, path.with_suffix(".zh.md")))
    assert [ast.dump(ast.parse(block)) for block in english] == [ast.dump(ast.parse(block)) for block in chinese]


@pytest.mark.parametrize("path", [path for path in DOCUMENTS if blocks(path.read_text("utf-8"))], ids=lambda p: p.stem)
def test_the_python_of_documents_runs(place: Path, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {}
    for number, block in enumerate(blocks(path.read_text("utf-8")), 1):
        exec(compile(block, f"{path.name}, block {number}", "exec"), names)


def test_readme_has_python(place: Path) -> None:
    assert blocks((ROOT / "README.md").read_text("utf-8"))


NOTEBOOKS = ("first-look", "from-the-equation", "look-inside")


def test_the_notebooks_are_there_in_both_languages_with_what_they_show() -> None:
    """The same code and outputs beside other words; a claim in each that can fail; nothing of the machine that ran them. Caught:
    a cell changed in one language; outputs left behind (`python docs/make_notebooks.py` stores them anew)."""
    import nbformat

    folder = ROOT / "docs" / "notebooks"
    assert {path.name.removesuffix(".ipynb") for path in folder.glob("*.ipynb")} == {
        name + language for name in NOTEBOOKS for language in ("", ".zh")
    }
    for name in NOTEBOOKS:
        one, other = (nbformat.read(folder / f"{name}{language}.ipynb", as_version=4).cells for language in ("", ".zh"))
        assert [cell.cell_type for cell in one] == [cell.cell_type for cell in other]
        for ours, theirs in zip(one, other, strict=True):
            if ours.cell_type == "markdown":
                assert ours.source != theirs.source and re.search(r"[\u4e00-\u9fff]", theirs.source)
                assert not re.search(r"[\u4e00-\u9fff]", ours.source)
                continue
            assert ours.source == theirs.source and ours.outputs == theirs.outputs
            assert ours.outputs or ours.source.startswith("model.show("), f"{name}: {ours.source[:40]} shows nothing"
            assert not re.search(r"/(tmp|home|root|work|Users)/|Traceback|Warning", str(ours.outputs))
        assert sum("assert" in cell.source for cell in one) >= 3


def test_the_notebooks_run(tmp_path: Path) -> None:
    """Cell by cell, with what they claim asserted in them, in one kernel, which is emptied between them: the last finds the run
    that the first has trained."""
    import nbclient
    import nbformat

    cells, ends = [], []
    for name in NOTEBOOKS:
        cells += nbformat.read(ROOT / "docs" / "notebooks" / f"{name}.ipynb", as_version=4).cells
        cells.append(nbformat.v4.new_code_cell("%reset -f"))
        ends.append(len(cells))
    together = nbformat.v4.new_notebook(cells=cells)
    for number, cell in enumerate(together.cells):
        cell["id"] = f"cell-{number}"
    client = nbclient.NotebookClient(together, timeout=300, resources={"metadata": {"path": str(tmp_path)}})
    client.execute(env={**os.environ, "PYTHONPATH": str(ROOT)})
    starts = [0, *ends[:-1]]
    for name, start, end in zip(NOTEBOOKS, starts, ends, strict=True):
        shown = [output for cell in together.cells[start:end] for output in cell.get("outputs", [])]
        assert any("image/png" in output.get("data", {}) for output in shown), f"{name} shows no picture"
    told = [output.get("data", {}) for cell in together.cells for output in cell.get("outputs", [])]
    assert any("tensor([[8.]])" in data.get("text/plain", "") for data in told)
    assert any("iframe" in data.get("text/html", "") for data in told)
    assert (tmp_path / "runs" / "turned-round" / "run.json").exists()


LINK = re.compile(r"\]\(([^)#\s:]+\.md)(?:#[^)]*)?\)")


def test_chinese_pages_link_to_chinese_pages() -> None:
    """In the checkout, where nobody finds the page of one's language by itself; but for the way to the same page in English."""
    pages = [ROOT / "README.zh.md", *sorted((ROOT / "docs").rglob("*.zh.md"))]
    links = 0
    for page in pages:
        for target in LINK.findall(page.read_text("utf-8")):
            path = page.parent / target
            links += target.endswith(".zh.md")
            own = path.resolve() == page.with_name(page.name.replace(".zh.md", ".md")).resolve()
            in_english = not target.endswith(".zh.md") and path.with_suffix(".zh.md").exists()
            assert own or not in_english, f"{page.relative_to(ROOT)} links to {target} in English"
    assert links > 200
