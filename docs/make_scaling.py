"""Writes the table of docs/how-to/several-gpus.md and its Chinese twin: what four trainings need on 1, 8, 64 and 512 GPUs.

    python3 docs/make_scaling.py

The speeds of one GPU are an H200's, from docs/results.md; all else is computed as by `glassformer plan --gpus` (runs/scaling.py).
"""

from __future__ import annotations

from pathlib import Path

from glassformer.config import Recipe
from glassformer.config.recipe import read_values
from glassformer.language import in_language
from glassformer.runs.scaling import Cluster, needs, stated
from glassformer.screen import roughly

PAGES = {
    "en": Path(__file__).parent / "how-to/several-gpus.md",
    "zh": Path(__file__).parent / "how-to/several-gpus.zh.md",
}
BEGIN, END = "<!-- docs/make_scaling.py writes from here -->", "<!-- to here -->"
GPUS = (1, 8, 64, 512)
TRAININGS = {  # the recipe, its changes, and the tokens a second of one H200
    "base": ("wmt14-en-de-base", [], 831e3),
    "big": ("wmt14-en-de-big", [], 325e3),
    "GPT-2 124M": ("gpt2-124m", [], 553e3),
    "GPT-2 1.5B": ("gpt2-124m", ["model.preset=gpt2-xl", "train.accumulate=32"], 47.8e3),
}
HEADS = {
    "en": "| training | GPUs | tokens a GPU | memory a GPU | traffic a step | a step | of it network | all steps | binds first |",
    "zh": "| 训练 | GPU 数 | 每块 GPU 的词元 | 每块 GPU 的内存 | 每步流量 | 一步 | 其中网络 | 全部步数 | 先卡在哪里 |",
}


def table(language: str) -> str:
    """The table, in Markdown."""
    lines = [HEADS[language], "| --- |" + " ---: |" * 7 + " --- |"]
    for name, (recipe, changes, speed) in TRAININGS.items():
        values, own = read_values(recipe, changes)
        one = stated(Recipe.from_dict(values, name=own), speed)
        for gpus in GPUS:
            need = needs(one, gpus, Cluster())
            sizes = (
                f"{need.micro_tokens * need.accumulate:,.0f} | {need.memory / 1e9:.1f} GB | {need.traffic / 1e9:.2f} GB"
            )
            times = f"{need.step * 1e3:,.1f} ms | {need.wait * 1e3:,.1f} ms | {roughly(need.seconds)}"
            lines.append(f"| {name} | {gpus} | {sizes} | {times} | {in_language(need.binds, language)} |")
    return "\n".join(lines)


def written(page: str, language: str) -> str:
    """The page with its table."""
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n\n{table(language)}\n\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    for language, path in PAGES.items():
        path.write_text(written(path.read_text(encoding="utf-8"), language), encoding="utf-8")
