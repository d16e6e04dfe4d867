"""Writes docs/claims.md and docs/claims.zh.md from what `glassformer study` left in a folder, with the figures beside them;
the answers in a sentence are in claims_answers.toml, the words of the Chinese tables in claims_tables.toml.

    python3 docs/make_claims.py runs/studies/default

The verdicts also go to glassformer/lab/claims/measured.json, which `glassformer study` shows beside the ones found here.
"""

from __future__ import annotations

import json
import shutil
import sys
import tomllib
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from glassformer.lab.claims import all_claims
from glassformer.language import in_language

DOCS = Path(__file__).parent
MEASURED = DOCS.parent / "glassformer" / "lab" / "claims" / "measured.json"

PAGE = {
    "title": {"en": "# Claims, measured", "zh": "# 论断与测量"},
    "intro": {
        "en": "What the texts say of the Transformer, each put to the test by a command that a laptop can run. A claim "
        "is made into conditions; each is judged over seeds: it holds if the 95% interval of the paired differences lies above "
        "zero and the mean reaches a margin that matters, fails if the interval lies below that margin, and is open otherwise. "
        "All hold: the claim *holds*; some: *holds when*; all fail: *does not hold*; else *not settled*. Times are for two "
        "cores.",
        "zh": "教程与论文关于 Transformer 的种种说法，每一条都用一条笔记本电脑即可运行的命令来检验。"
        "论断拆成若干条件，按随机种子成对比较："
        "若成对差值的 95% 区间在零以上且均值达到有意义的幅度，条件成立；若区间整个低于该幅度，则不成立；否则未定。"
        "全部成立即“成立”，部分成立即“有条件地成立”，全部不成立即“不成立”，其余为“尚无定论”。用时按两个核心计。",
    },
    "columns": {"en": "study | claim | verdict | time | said by", "zh": "研究 | 论断 | 结论 | 用时 | 出处"},
    "minutes": {"en": "min", "zh": "分钟"},
    "missing": {"en": "Not yet measured at its default size:", "zh": "尚未按默认规模测量："},
    "here": {"en": "[中文](claims.zh.md)", "zh": "[English](claims.md)"},
    "cost": {
        "en": "{command}, {trials} trials, {seconds:.0f} s of computing on {machine}, {date}.",
        "zh": "{command}，{trials} 次试验，共计算 {seconds:.0f} 秒，{machine}，{date}。",
    },
}
ANSWERS = tomllib.loads((DOCS / "claims_answers.toml").read_text(encoding="utf-8"))
CHINESE = tomllib.loads((DOCS / "claims_tables.toml").read_text(encoding="utf-8"))


def said(text: str, language: str) -> str:
    """A word of a table in the language of the page, where it has one."""
    return str(CHINESE.get(text, text)) if language == "zh" else text


def section(found: dict[str, Any], language: str) -> list[str]:
    """One study as a section of the page."""
    lines = ["", f"## {found['name']}", "", f"> {found['claim'][language]}", ""]
    lines += [f"**{in_language(found['verdict'], language)}** ({found['said_by']})", ""]
    lines += [ANSWERS[found["name"]][language], ""]
    for one in found["conditions"]:
        outcome = in_language(one["outcome"], language)
        detail = one["detail"] if language == "en" else one["detail"].replace(" against ", " 对 ")
        lines.append(f"- *{outcome}*: {one['text'][0 if language == 'en' else 1]} ({detail})")
    for table in found["tables"]:
        columns = [said(column, language) for column in table["columns"]]
        lines += ["", f"{said(table['title'], language)}:", "", "| " + " | ".join(columns) + " |"]
        lines.append("|" + " --- |" * len(table["columns"]))
        lines += ["| " + " | ".join(said(cell, language) for cell in row) + " |" for row in table["rows"]]
    lines += ["", f"![{found['name']}](figures/claims/{found['name']}.png)", ""]
    lines += [note[language] for note in found["notes"]]
    told = PAGE["cost"][language]
    facts = {**found, "seconds": found["trial_seconds"], "command": f"`{found['command']}`"}
    return [*lines, "", told.format(**facts)]


def page(everything: dict[str, dict[str, Any]], language: str) -> str:
    """The whole page in one language."""
    lines = [PAGE["title"][language], "", PAGE["here"][language], ""]
    lines += [
        PAGE["intro"][language],
        "",
        f"| {PAGE['columns'][language]} |",
        "|" + " --- |" * 5,
    ]
    for study in all_claims():
        if found := everything.get(study.name):
            verdict = in_language(found["verdict"], language)
            minutes = f"{study.minutes} {PAGE['minutes'][language]}"
            claim = found["claim"][language]
            lines.append(f"| [{study.name}](#{study.name}) | {claim} | {verdict} | {minutes} | {study.said_by} |")
    missing = [study.name for study in all_claims() if study.name not in everything]
    if missing:
        lines += ["", f"{PAGE['missing'][language]} {', '.join(missing)}."]
    for study in all_claims():
        if found := everything.get(study.name):
            lines += section(found, language)
    return "\n".join(lines) + "\n"


def main(folder: Path) -> None:
    """Pages, figures and verdicts from one folder."""
    found = {
        study.name: json.loads(path.read_text())
        for study in all_claims()
        if (path := folder / f"{study.name}.json").is_file()
    }
    figures = DOCS / "figures" / "claims"
    figures.mkdir(parents=True, exist_ok=True)
    for name in found:
        shutil.copy(folder / f"{name}.png", figures / f"{name}.png")
    (DOCS / "claims.md").write_text(page(found, "en"), encoding="utf-8")
    (DOCS / "claims.zh.md").write_text(page(found, "zh"), encoding="utf-8")
    verdicts = {name: {key: one[key] for key in ("verdict", "date", "machine")} for name, one in found.items()}
    MEASURED.write_text(json.dumps(verdicts, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
