"""Writes docs/paper.md and docs/paper.zh.md, the paper's tables and figures beside what was made here, from what `glassformer
reproduce paper` left in folders (or was put into docs/figures/paper before).

    python3 docs/make_paper.py runs/reproduce/paper
"""

from __future__ import annotations

import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "lab"))

from glassformer.files import structured
from glassformer_lab.reproduce.paper import PIECES, PaperPiece, page

DOCS = Path(__file__).parent
KEPT = DOCS / "figures" / "paper"
INTRO = {
    "en": "[中文](paper.zh.md)\n\nThe tables and figures of Vaswani et al. 2017, made by `glassformer reproduce paper` ([how]"
    "(how-to/reproducing.md)), each number beside theirs, at a size that fits. Which code is which equation: [from the paper to "
    "the code](tables/paper.md).",
    "zh": "[English](paper.md)\n\nVaswani 等人 2017 年论文的表与图，由 `glassformer reproduce paper` 做出（[做法]"
    "(how-to/reproducing.zh.md)），每个数都放在论文的数旁边，规模以本机能承受为限。哪段代码对应哪个公式，见"
    "[从论文到代码](tables/paper.zh.md)。",
}
MISSING = {"en": "Not yet made at its full size: {names}.", "zh": "尚未按完整规模做出：{names}。"}


def kept_pieces() -> list[PaperPiece]:
    """The pieces that docs/ keeps, in the order of the paper."""
    found = []
    for name in PIECES:
        path = KEPT / f"{name}.json"
        if path.is_file():
            found.append(structured.convert(structured.read(path, dict[str, Any])["piece"], PaperPiece, path.name))
    return found


def keep(folder: Path) -> None:
    """A folder's pieces of full size, with their figures."""
    KEPT.mkdir(parents=True, exist_ok=True)
    for name in PIECES:
        path = folder / f"{name}.json"
        if not path.is_file() or structured.read(path, dict[str, Any])["quick"]:
            continue
        shutil.copy(path, KEPT / path.name)
        for figure in structured.read(path, dict[str, Any])["piece"]["figures"]:
            shutil.copy((folder / figure).with_suffix(".svg"), KEPT)


def main(folders: list[Path]) -> None:
    """The two pages."""
    for folder in folders:
        keep(folder)
    pieces = [
        replace(one, figures=tuple(f"figures/paper/{Path(name).stem}.svg" for name in one.figures))
        for one in kept_pieces()
    ]
    missing = ", ".join(name for name in PIECES if name not in {one.name for one in pieces})
    for language, ending in (("en", ""), ("zh", ".zh")):
        title, rest = page(pieces, language).split("\n", 1)
        told = f"\n{MISSING[language].format(names=missing)}\n" if missing else ""
        (DOCS / f"paper{ending}.md").write_text(f"{title}\n\n{INTRO[language]}\n{rest}{told}", encoding="utf-8")


if __name__ == "__main__":
    main([Path(folder) for folder in sys.argv[1:]])
