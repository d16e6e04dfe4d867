"""Writes docs/settings.md and its Chinese page from the configs in glassformer/config: `python3 docs/make_settings.py`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from glassformer.config import PARTS
from glassformer.config.recipe import settings_of
from glassformer.language import in_language

HEAD = """# Settings

Everything a recipe may say, made by `python3 docs/make_settings.py` from the fields in
`glassformer/config/`. On the command line: `glassformer info --settings [model|data|train|decode]`, and any of them
as `part.name=value` behind `glassformer train RECIPE`. `none` stands for a setting that is not set."""
CHINESE_HEAD = """# 设置

配方里能写的一切，由 `python3 docs/make_settings.py` 从 `glassformer/config/` 里的各字段和屏幕的译文生成。
在命令行上：`glassformer info --settings [model|data|train|decode]`；每一项都可以写成 `part.name=value`，
放在 `glassformer train RECIPE` 后面。`none` 表示没有设。"""


def settings_page(which: str = "en") -> str:
    """docs/settings.md, or with zh docs/settings.zh.md."""
    columns = "| 设置 | 写什么 | 默认值 | |" if which == "zh" else "| setting | takes | default | |"
    lines = [CHINESE_HEAD if which == "zh" else HEAD]
    for part in PARTS:
        lines += ["", f"## [{part}]", "", columns, "| --- | --- | --- | --- |"]
        for setting in settings_of(part):
            takes, about = (in_language(text, which) for text in (setting.takes, setting.about))
            cells = [f"`{setting.name}`", takes, f"`{setting.default}`", about]
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    Path(__file__).with_name("settings.md").write_text(settings_page(), encoding="utf-8")
    Path(__file__).with_name("settings.zh.md").write_text(settings_page("zh"), encoding="utf-8")
