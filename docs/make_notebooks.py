"""Runs the notebooks and keeps what they show:  python3 docs/make_notebooks.py  (needs nbclient, which the extra `dev` brings).

NAME.ipynb is run in an empty folder; its outputs go into NAME.zh.ipynb as well, whose code cells are the same
(tests/test_documents.py holds that). The page that `look` shows is left out: it is a program of its own, and large.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import nbclient
import nbformat

FOLDER = Path(__file__).parent / "notebooks"


def executed(path: Path, folder: str) -> Any:
    """The notebook with what its cells show, run in `folder`."""
    notebook = nbformat.read(path, as_version=4)
    client = nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": folder}})
    client.execute(env={**os.environ, "PYTHONPATH": str(FOLDER.parents[1])})
    return notebook


def kept(cell: Any) -> list[Any]:
    """The outputs of a cell that are stored."""
    return [o for o in cell.get("outputs", []) if "iframe" not in o.get("data", {}).get("text/html", "")]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for path in sorted(FOLDER.glob("*.ipynb")):
            if path.stem.endswith(".zh"):
                continue
            run = executed(path, folder)
            for own in (path, path.with_suffix(".zh.ipynb")):
                notebook = nbformat.read(own, as_version=4)
                for cell, done in zip(notebook.cells, run.cells, strict=True):
                    if cell.cell_type == "code":
                        cell.outputs, cell.execution_count = kept(done), done.execution_count
                nbformat.write(notebook, own)


if __name__ == "__main__":
    main()
