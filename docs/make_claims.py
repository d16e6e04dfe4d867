"""Writes docs/claims.md with all verdicts and docs/claims/NAME.md, a page a claim, both also in Chinese, from what `glassformer
study` left in folders (or was put into docs/figures/claims before). The answers in a sentence are in claims_answers.toml, the
words of the Chinese tables and figures in claims_tables.toml.

    python3 docs/make_claims.py runs/studies/default

The verdicts also go to lab/glassformer_lab/claims/measured.json, which `glassformer study` lists.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import tomllib
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "lab"))

from site_hooks import verdict_marks

from glassformer import plots
from glassformer.language import in_language
from glassformer_lab.claims.claim import DEFAULT, Claim, all_claims
from glassformer_lab.claims.judgement import draw
from glassformer_lab.claims.report import planned_trials, results_of
from glassformer_lab.runner import KEPT as TRIALS
from glassformer_lab.runner import read_kept

DOCS = Path(__file__).parent
KEPT = DOCS / "figures" / "claims"
MEASURED = DOCS.parent / "lab" / "glassformer_lab" / "claims" / "measured.json"

PAGE = {
    "title": {"en": "# Claims, measured", "zh": "# 论断与测量"},
    "intro": {
        "en": "What the texts say of the Transformer, each put to the test by a command that a laptop can run. A claim "
        "is made into conditions, each with a margin that was fixed beforehand, and judged over five seeds or more, each with "
        "held-out examples of its own: it holds if the whole interval of the paired differences lies above the margin, fails if "
        "all of it lies below, and is open otherwise. Intervals are at 95% for all conditions of a claim together (Bonferroni), "
        "so many looks find no more than one would. A condition is void, and does not count, where neither arm has "
        "learned anything (of text: no more than a table of bigrams knows), and where one arm should be better and both are at a "
        "ceiling. Three quarters or more hold: the claim *holds*; three quarters or more fail: it *does not hold*; half or more "
        "are open: *not settled*; else it *does not hold* where no condition holds, *holds* where none fails, and is *mixed* "
        "where some do either. A "
        "sentence that makes several claims has a verdict for each. Times are for two cores; a GPU (`--device cuda`) takes "
        "minutes.",
        "zh": "教程与论文关于 Transformer 的种种说法，每一条都用一条笔记本电脑即可运行的命令来检验。"
        "论断拆成若干条件，每个条件事先定好幅度，用五个以上的随机种子成对比较，每个种子有自己的留出样本："
        "若差值的区间整个高于该幅度，条件成立；整个低于它，则不成立；否则未定。"
        "区间按一个论断的全部条件合计 95% 计算（Bonferroni 校正），多看几眼不会凭空多出发现。"
        "两方都没学到东西（对文本而言：不如二元频率表），或一方本应更好而两方都到了上限，该条件作废，不计入。"
        "四分之三以上成立即“成立”，四分之三以上不成立即“不成立”，一半以上未定即“尚无定论”；"
        "其余的，没有一条成立即“不成立”，没有一条不成立即“成立”，有成有不成即“不一”。"
        "一句话里有几个论断，就各有一个结论。用时按两个核心计；用 GPU（`--device cuda`）只需几分钟。",
    },
    "columns": {"en": "study | claim | verdict | time | said by", "zh": "研究 | 论断 | 结论 | 用时 | 出处"},
    "minutes": {"en": "min", "zh": "分钟"},
    "missing": {"en": "Not yet measured at its default size:", "zh": "尚未按默认规模测量："},
    "all": {"en": "[All claims](../claims.md)", "zh": "[全部论断](../claims.zh.md)"},
    "cost": {
        "en": "{command}, {trials} trials, {seconds:.0f} s of computing on {machine}, {date}.",
        "zh": "{command}，{trials} 次试验，共计算 {seconds:.0f} 秒，{machine}，{date}。",
    },
}
RETIRED = {"vision": 60, "optimizers": 600}
"""Experiments that have left the package, by their minutes: their numbers and pages stay."""
LEFT = {"en": "study {name} (which has left the package since)", "zh": "study {name}（后来已从本包中去掉）"}
ANSWERS = tomllib.loads((DOCS / "claims_answers.toml").read_text(encoding="utf-8"))
CHINESE = tomllib.loads((DOCS / "claims_tables.toml").read_text(encoding="utf-8"))


def said(text: str, language: str) -> str:
    """Words of a table or a figure in the language of the page, where they have some. A name in braces stands for anything.

    >>> said("training of 8 blocks", "zh")
    '8 层的训练'
    """
    if language != "zh" or text in CHINESE:
        return str(CHINESE.get(text, text)) if language == "zh" else text
    for template, chinese in CHINESE.items():
        if "{" in template and (found := pattern(template).fullmatch(text)):
            return str(chinese).format(**{name: said(part, language) for name, part in found.groupdict().items()})
    return "，".join(said(part, language) for part in text.split(", ")) if ", " in text else text


def pattern(template: str) -> re.Pattern[str]:
    """What a template with names in braces can have become."""
    parts = re.split(r"\{(\w+)\}", template)
    return re.compile(
        "".join(f"(?P<{part}>.+)" if i % 2 else re.escape(part) for i, part in enumerate(parts)), re.DOTALL
    )


def draw_figures(claim: Claim, folder: Path) -> None:
    """The claim's figure, with the words of each language, from the trials that a folder keeps."""
    from matplotlib.text import Text

    kept = read_kept(folder / TRIALS)
    results = results_of(planned_trials(claim, DEFAULT), kept)
    for language, ending in (("en", ""), ("zh", ".zh")):
        figure = draw(claim, results)
        for text in figure.findobj(Text):
            text.set_text(said(text.get_text(), language))
        plots.save(figure, KEPT / f"{claim.name}{ending}.svg", ("svg",))


def in_chinese(detail: str) -> str:
    """The numbers of a condition with Chinese words between them."""
    words = {
        " against ": " 对 ",
        ", margin ": "，幅度 ",
        "(one seed)": "（一个种子）",
        " bytes a token and head": " 字节，每个 token 每个头",
        "largest difference ": "最大差 ",
        "smallest difference ": "最小差 ",
        " of full rank": "，相对满秩",
        " times as many": " 倍",
    }
    for english, chinese in words.items():
        detail = detail.replace(english, chinese)
    detail = re.sub(
        r"(\d+) and (\d+) of (\d+) trainings diverged", r"各 \3 次训练中，发散的分别有 \1 次和 \2 次", detail
    )
    detail = re.sub(r"(\d+) of (\d+) trainings diverged", r"\2 次训练中 \1 次发散", detail)
    return str(CHINESE.get(detail, detail))


def source_of(found: dict[str, Any], language: str) -> str:
    """Who says so: in the words of the catalogue, or, of what has left the package, in those kept here."""
    kept = language == "zh" and found["said_by"] in CHINESE
    return str(CHINESE[found["said_by"]]) if kept else in_language(found["said_by"], language)


def claim_page(found: dict[str, Any], language: str) -> str:
    """The page of one claim."""
    ending = ".zh" if language == "zh" else ""
    lines = [
        f"# {found['name']}",
        "",
        verdict_marks(found["verdict"], language),
        "",
        f"> {found['claim'][language]}",
        "",
    ]
    lines += [source_of(found, language), ""]
    lines += [ANSWERS[found["name"]][language], ""] if found["name"] in ANSWERS else []
    for part in found["parts"]:
        says = part["says"].get(language, "")
        lines += [f"**{part['told'][language]}**" + (f": {says}" if says else ""), ""]
        for one in part["conditions"]:
            outcome = in_language(one["outcome"], language)
            detail = one["detail"] if language == "en" else in_chinese(one["detail"])
            lines.append(f"- *{outcome}*: {one['text'][0 if language == 'en' else 1]} ({detail})")
        lines.append("")
    for table in found["tables"]:
        columns = [said(column, language) for column in table["columns"]]
        lines += ["", f"{said(table['title'], language)}:", "", "| " + " | ".join(columns) + " |"]
        lines.append("|" + " --- |" * len(table["columns"]))
        lines += ["| " + " | ".join(said(cell, language) for cell in row) + " |" for row in table["rows"]]
    lines += ["", f"![{found['name']}](../figures/claims/{found['name']}{ending}.svg)", ""]
    lines += [note[language] for note in found["notes"]]
    told = PAGE["cost"][language]
    command = LEFT[language].format(name=found["name"]) if found["name"] in RETIRED else f"`{found['command']}`"
    facts = {**found, "seconds": found["trial_seconds"], "command": command}
    if language == "zh":
        facts["machine"] = found["machine"].replace(" cores, ", " 核，").replace(" and ", " 与 ")
    return "\n".join([*lines, "", told.format(**facts), "", PAGE["all"][language]]) + "\n"


def page(everything: dict[str, dict[str, Any]], language: str) -> str:
    """The page of all verdicts in one language."""
    ending = ".zh" if language == "zh" else ""
    other = "[English](claims.md)" if language == "zh" else "[中文](claims.zh.md)"
    lines = [PAGE["title"][language], "", other, ""]
    lines += [
        PAGE["intro"][language],
        "",
        f"| {PAGE['columns'][language]} |",
        "|" + " --- |" * 5,
    ]
    for name, minutes in ({study.name: study.minutes for study in all_claims()} | RETIRED).items():
        if found := everything.get(name):
            verdict, claim = verdict_marks(found["verdict"], language), found["claim"][language]
            source = source_of(found, language)
            cost = f"{minutes} {PAGE['minutes'][language]}"
            lines.append(f"| [{name}](claims/{name}{ending}.md) | {claim} | {verdict} | {cost} | {source} |")
    missing = [study.name for study in all_claims() if study.name not in everything]
    if missing:
        lines += ["", f"{PAGE['missing'][language]} {', '.join(missing)}."]
    return "\n".join(lines) + "\n"


def main(folders: list[Path]) -> None:
    """Pages and verdicts from the numbers and figures that docs/ keeps, after those of some folders have been put there. Numbers
    of a claim that has been changed since are not shown."""
    for study in all_claims():
        for folder in folders:
            if (folder / f"{study.name}.json").is_file():
                KEPT.mkdir(parents=True, exist_ok=True)
                shutil.copy(folder / f"{study.name}.json", KEPT / f"{study.name}.json")
                draw_figures(study, folder)
    kept = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in KEPT.glob("*.json")}
    found = {one.name: kept[one.name] for one in all_claims() if kept.get(one.name, {}).get("version") == one.version}
    found |= {name: kept[name] for name in RETIRED if name in kept}
    shutil.rmtree(DOCS / "claims", ignore_errors=True)
    for language, ending in (("en", ""), ("zh", ".zh")):
        (DOCS / f"claims{ending}.md").write_text(page(found, language), encoding="utf-8")
        for name, one in found.items():
            (DOCS / "claims").mkdir(exist_ok=True)
            (DOCS / "claims" / f"{name}{ending}.md").write_text(claim_page(one, language), encoding="utf-8")
    verdicts = {name: {key: one[key] for key in ("verdict", "date", "machine")} for name, one in found.items()}
    MEASURED.write_text(json.dumps(verdicts, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main([Path(folder) for folder in sys.argv[1:]])
