"""Writes docs/paper.md and docs/paper.zh.md, the paper's tables and figures beside what was made here, from the numbers and
figures in docs/figures/paper. Each piece names the command that made it.

    python3 docs/make_paper.py
"""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from glassformer_lab.report import markdown_table

DOCS = Path(__file__).parent
KEPT = DOCS / "figures" / "paper"
PIECES = ("table1", "table2", "table3", "table4", "figures")
CHINESE = tomllib.loads((DOCS / "paper_words.toml").read_text(encoding="utf-8"))
TITLE = "Attention Is All You Need, made again"
INTRO = {
    "en": "[中文](paper.zh.md)\n\nThe tables and figures of Vaswani et al. 2017, each made by the command below it ([how]"
    "(how-to/reproducing.md)), each number beside theirs, at a size that fits. Which code is which equation: [from the paper to "
    "the code](tables/paper.md).",
    "zh": "[English](paper.md)\n\nVaswani 等人 2017 年论文的表与图，各由其下的命令做出（[做法]"
    "(how-to/reproducing.zh.md)），每个数都放在论文的数旁边，规模以本机能承受为限。哪段代码对应哪个公式，见"
    "[从论文到代码](tables/paper.zh.md)。",
}


def page(language: str) -> str:
    """Every piece as a section of Markdown."""

    def said(texts: list[str]) -> list[str]:
        return [str(CHINESE.get(text, text)) if language == "zh" else text for text in texts]

    lines = [f"# {said([TITLE])[0]}", "", INTRO[language], ""]
    for name in PIECES:
        piece = json.loads((KEPT / f"{name}.json").read_text(encoding="utf-8"))["piece"]
        lines += [f"## {said([piece['title']])[0]}", ""]
        lines += [*markdown_table(said(piece["columns"]), [said(row) for row in piece["rows"]]), ""]
        for figure in (Path(file).stem for file in piece["figures"]):
            lines += [f"![{figure}](figures/paper/{figure}.svg)", ""]
        lines += [*said(piece["notes"]), "", f"`{piece['command']}`, {piece['machine']}, {piece['date']}.", ""]
    return "\n".join(lines)


def main(docs: Path = DOCS) -> None:
    """The two pages."""
    for language, ending in (("en", ""), ("zh", ".zh")):
        (docs / f"paper{ending}.md").write_text(page(language), encoding="utf-8")


if __name__ == "__main__":
    main()
