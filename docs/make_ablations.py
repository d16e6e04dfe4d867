"""Writes docs/ablations.md and docs/ablations.zh.md from what `glassformer sweep` left in folders (or was put into
docs/figures/ablations before).

    python3 docs/make_ablations.py runs/sweep/parts runs/sweep/gpt-ablation
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from glassformer_lab.report import markdown_table

DOCS = Path(__file__).parent
KEPT = DOCS / "figures" / "ablations"
INTRO = {
    "en": "# Ablations\n\n[中文](ablations.zh.md)\n\nA part taken out or exchanged, everything else equal: what `glassformer "
    "sweep` found ([how](how-to/sweep.md)). Each variant is trained with the same seeds as the base and scored on the same "
    "test examples; ± is the standard deviation over seeds, the 95% interval of a difference is Student's, over the seeds "
    "(paired) and the examples. *better* and *worse*: the interval does not hold 0; among twenty rows one does so by luck.",
    "zh": "# 消融\n\n[English](ablations.md)\n\n拿掉或换掉一个部件，其余不变：`glassformer sweep` 的结果（[做法]"
    "(how-to/sweep.zh.md)）。每个变体与基准用相同的随机种子训练，在相同的测试样本上计分；± 是各种子间的标准差，"
    "差值的 95% 区间是 Student 区间，兼顾种子（成对）与样本。“更好”“更差”：区间不含 0；二十行里会有一行纯属偶然。",
}
COLUMNS = {
    "en": ("variant", "settings", "parameters", "{metric}", "difference, 95%", ""),
    "zh": ("变体", "设置", "参数量", "{metric}", "差值，95%", ""),
}
CHINESE = {
    "base": "基准",
    "better": "更好",
    "worse": "更差",
    "unclear": "不明",
    "exact match": "完全匹配率",
    "loss": "损失",
    "norm: kind and order": "归一化：种类与次序",
    "residuals, scales, first weights": "残差、缩放、初始权重",
    "activation": "激活函数",
    "sharing": "共享",
    "positions": "位置",
    "learning rate": "学习率",
    "residuals and positions": "残差与位置",
    "post-norm": "后归一化",
    "no residuals": "无残差",
    "no positions": "无位置",
    "neither": "两者皆无",
    "no 1/√d_k": "无 1/√d_k",
    "no √d_model": "无 √d_model",
    "no scaled init": "初始权重不缩放",
    "output not tied": "输出不绑定",
    "layers shared": "各层共享",
    "learned": "学得",
    "rotary": "旋转",
    "none": "无",
    "base 100 of sinusoids": "正弦底数 100",
    "a quarter of the rates": "学习率的四分之一",
    "half of the rates": "学习率的一半",
    "twice the rates": "学习率的两倍",
    "four times the rates": "学习率的四倍",
    "base 1000000 of sinusoids": "正弦底数 1000000",
    "(A) heads, at constant compute": "(A) 头数，计算量不变",
    "(B) size of keys": "(B) 键的大小",
    "(C) size of the model": "(C) 模型的大小",
    "(D) dropout and label smoothing": "(D) dropout 与标签平滑",
    "(E) positions": "(E) 位置",
    "(E) learned": "(E) 学得",
    "every row of Table 3 of Attention Is All You Need, scaled to the tiny Transformer on Multi30k (data get "
    "multi30k:en-de)": "论文表 3 的每一行，缩到 Multi30k 上的小 Transformer（data get multi30k:en-de）",
    "norms, residuals, scales, first weights, activation, sharing, positions and learning rate on dates": "归一化、残差、缩放、"
    "初始权重、激活函数、共享、位置与学习率，在 dates 上",
    "the course's GPT, 4 layers and 4 heads, on a text: all, no residuals, no positions, neither": "课程的 GPT，4 层 4 头，"
    "在一段文本上：全有、无残差、无位置、两者皆无",
}


def said(text: str, language: str) -> str:
    """Words of a table in the language of the page, where they have some."""
    return CHINESE.get(text, text) if language == "zh" else text


def score(found: dict[str, Any] | None) -> str:
    """Mean ± deviation over seeds."""
    if found is None:
        return "–"
    return f"{found['mean']:.4g}" + ("" if found["spread"] is None else f" ± {found['spread']:.2g}")


def section(name: str, found: dict[str, Any], language: str) -> list[str]:
    """One ablation."""
    metric, rows, group = found["metric"], [], ""
    for row in found["rows"]:
        if row["group"] != group:
            group = row["group"]
            rows.append([f"**{said(group, language)}**", *[""] * 5])
        test = row["tests"].get(metric)
        change = "" if test is None else "{value:+.3g} [{low:+.3g}, {high:+.3g}]".format(**test["difference"])
        settings = " ".join(f"`{own}`" for own in row["settings"])
        verdict = "" if test is None else said(test["verdict"], language)
        parameters = "–" if row["parameters"] is None else f"{row['parameters']:,}"
        rows.append(
            [said(row["name"], language), settings, parameters, score(row["scores"].get(metric)), change, verdict]
        )
    columns = [one.format(metric=said(metric.replace("_", " "), language)) for one in COLUMNS[language]]
    lines = [f"## {name}", "", said(found["about"], language), "", *markdown_table(columns, rows), ""]
    lines += [f"![{name}](figures/ablations/{name}.svg)", ""]
    words = ("seeds", "steps", ", ", ".") if language == "en" else ("个随机种子", "步", "，", "。")
    numbers = f"{found['seeds']} {words[0]}", f"{found['rows'][0]['steps']:,} {words[1]}"
    command = f"`{found['command'] or 'glassformer sweep ' + found['name']}`"
    return [*lines, words[2].join([command, *numbers, found["machine"], found["date"]]) + words[3], ""]


def main(folders: list[Path]) -> None:
    """The two pages."""
    KEPT.mkdir(parents=True, exist_ok=True)
    for folder in folders:
        name = json.loads((folder / "ablation.json").read_text(encoding="utf-8"))["name"]
        shutil.copy(folder / "ablation.json", KEPT / f"{name}.json")
        shutil.copy(folder / "curves.svg", KEPT / f"{name}.svg")
    kept = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(KEPT.glob("*.json"))}
    for language, ending in (("en", ""), ("zh", ".zh")):
        lines = [INTRO[language], "", *(line for name, one in kept.items() for line in section(name, one, language))]
        (DOCS / f"ablations{ending}.md").write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main([Path(folder) for folder in sys.argv[1:]])
