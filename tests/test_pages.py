"""What the pages point at is there: every file, test, object, figure and command; and English and Chinese say the same.

A page that names a test that was renamed, a command whose option is gone, or a function that moved fails here by its name."""

from __future__ import annotations

import doctest
import functools
import importlib.util
import json
import re
import shlex
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer

from glassformer.cli.verbs import make_app
from glassformer.config.model import PRESETS
from glassformer.config.recipe import read_recipe, recipe_names
from glassformer.inspection.data import FORMAT
from glassformer_lab.sweep.variants import ready_sets

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(p for folder in ("tour", "tables", "how-to") for p in (DOCS / folder).glob("*.md"))
PAGES += [DOCS / "index.md", DOCS / "index.zh.md", DOCS / "errata.md", DOCS / "errata.zh.md"]
PAGES += [DOCS / "promises.md", DOCS / "promises.zh.md"]
ENGLISH = [p for p in PAGES if not p.name.endswith(".zh.md") and p.with_suffix(".zh.md").exists()]
LINK = re.compile(r"!?\[([^\]]*)\]\(([^)#\s]+)(?:#[\w-]*)?\)")
TEST = re.compile(r"`(tests/[\w/]+\.py)(?:::(test_\w+))?`")
COMMAND = re.compile(r"`(glassformer [^`]+)`")


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@functools.cache
def hooks() -> ModuleType:
    return loaded("site_hooks")


def loaded(name: str) -> ModuleType:
    """A program of docs/ as a module."""
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@functools.cache
def app() -> Any:
    return typer.main.get_command(make_app())


def commands_of(text: str) -> list[str]:
    """The commands a page gives: in backticks, and in indented or fenced lines that begin with the program's name."""
    lines = re.findall(r"^(?: {4})?(glassformer [^\n#]+)", text, re.MULTILINE)
    found = [one.strip() for one in COMMAND.findall(text) + lines]
    return [one for one in found if not re.search(r"\b[A-Z]{2,}\b|…|\.\.\.|[\[{<]", one)]


@functools.cache
def fault_of(command: str) -> str | None:
    """What is wrong with a command, without running it: its verb, its options, its study, recipe and settings."""
    words = shlex.split(command.split(" | ")[0].split(" > ")[0])[1:]
    verb = app()
    while words and words[0] in getattr(verb, "commands", {}):
        verb = verb.commands[words.pop(0)]
    if getattr(verb, "commands", None):
        return None if not words or words[0] in ("--help", "--version") else f"there is no verb {words[0]}"
    options = {name for p in verb.params for name in (*p.opts, *p.secondary_opts)} | {"--help"}
    for word in words:
        if word.startswith("--") and word.split("=")[0] not in options:
            return f"{verb.name} has no option {word}"
    valued = {name for p in verb.params if not getattr(p, "is_flag", False) for name in p.opts}
    plain = [w for before, w in zip(["", *words], words) if not w.startswith("-") and before not in valued]
    if verb.name == "study" and plain:
        return next((f"there is no study {w}" for w in plain if w not in hooks().study_names()), None)
    if verb.name in ("train", "plan", "sweep") and plain:
        known = {*recipe_names(), *(sweep.name for sweep in ready_sets())}
        if (
            plain[0] not in known
            and not plain[0].endswith((".toml", ".tsv", ".csv", ".txt"))
            and not plain[0].startswith("runs/")
        ):
            return f"there is no recipe {plain[0]}"
        base = plain[0] if plain[0] in recipe_names() else "dates"
        varied = [words[i + 1] for i, word in enumerate(words) if word == "--vary"]
        changes = [w for w in plain[1:] if w not in varied and re.fullmatch(r"(model|train|decode)\.\w+=\S+", w)]
        read_recipe(base, changes)  # an unknown setting is an error with its name
        for one in " ".join(varied).split():
            key, _, values = one.partition("=")
            for value in () if key.startswith("data.") else values.split(","):
                read_recipe(base, [*changes, f"{key}={value}"])
    if verb.name == "info" and plain and "--settings" not in words and not plain[0].startswith("runs/"):
        return None if plain[0] in PRESETS or plain[0] in recipe_names() else f"there is no preset {plain[0]}"
    return None


def test_a_fault_is_found() -> None:
    """The checker itself. Broken variant: one that takes every command for right."""
    assert fault_of("glassformer train dates train.steps=200") is None
    assert "option" in str(fault_of("glassformer translate runs/dates --alternatives 3"))
    assert "study" in str(fault_of("glassformer study scalling --device cuda"))
    assert "recipe" in str(fault_of("glassformer train date"))
    assert "verb" in str(fault_of("glassformer trian dates"))
    with pytest.raises(Exception, match="scale_attention"):
        fault_of("glassformer sweep dates --vary model.scale_attention=true,false")


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_what_a_page_points_at_is_there(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for label, link in LINK.findall(re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)):
        if "://" in link:
            continue
        target = (path.parent / link).resolve()
        assert target.exists(), f"{link} is not there"
        code = label.removeprefix("code: ") if label.startswith("code: ") else label.strip("`") if "`" in label else ""
        if target.suffix == ".py" and code and not code.endswith(".py") and "/" not in code:
            hooks().lines_of(target, code)
    for file, test in TEST.findall(text):
        assert (ROOT / file).is_file(), f"{file} is not there"
        if test:
            assert f"def {test}(" in (ROOT / file).read_text(encoding="utf-8"), f"{file} has no {test}"
    for command in commands_of(text):
        assert fault_of(command) is None, f"{command}: {fault_of(command)}"
    for study, _ in hooks().MEASURED.findall(text):
        assert study in hooks().study_names()


def test_the_walks_for_contributors_name_what_is_there() -> None:
    """Every file in backticks, and in `name` (`file`) or `name` of `file` the name too. Caught: a file that was renamed."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    walks = text[text.index("## Walks") : text.index("## Words")]
    files = re.findall(r"`([\w/]+\.(?:py|md))`", walks)
    found = {name: next((p for p in (ROOT / name, ROOT / "glassformer" / name) if p.exists()), None) for name in files}
    assert len(files) > 20 and [name for name, path in found.items() if path is None] == []
    named = re.findall(r"`([\w.]+)`\s(?:\(|of )`([\w/]+\.py)`", walks)
    assert len(named) > 6
    for name, file in named:
        path = found[file]
        assert path is not None and re.search(rf"\b{name.split('.')[-1]}\b", path.read_text(encoding="utf-8")), name


def test_errata_name_tests_that_are_there() -> None:
    """In errata a bare `test_...` is one of tests/classic/."""
    tests = ROOT / "tests"
    known = {p.relative_to(tests).as_posix(): p.read_text(encoding="utf-8") for p in tests.rglob("test_*.py")}
    classic = "".join(p.read_text(encoding="utf-8") for p in (tests / "classic").glob("test_*.py"))
    for file, test in re.findall(
        r"`(?:((?:\w+/)*test_\w+\.py)::)?(test_\w+)`", (DOCS / "errata.md").read_text(encoding="utf-8")
    ):
        assert f"def {test}(" in (known[file] if file else classic), test


@pytest.mark.parametrize("path", ENGLISH, ids=name_of)
def test_both_languages_have_the_same(path: Path) -> None:
    """The same code, figures, tests, commands, formulas and rows of tables, in the same order, under as many headings; only
    words between them differ, and those in a figure (figure.zh.svg)."""
    english, chinese = (p.read_text(encoding="utf-8") for p in (path, path.with_suffix(".zh.md")))
    kinds = {
        "code": lambda text: hooks().CODE.findall(text),
        "studies": lambda text: [
            (name, link.replace(".zh.md", ".md")) for name, link in hooks().MEASURED.findall(text)
        ],
        "figures": lambda text: re.findall(r"\]\(([\w/.-]+?)(?:\.zh)?\.(?:svg|png)\)", text),
        "tests": lambda text: sorted(TEST.findall(text)),
        "commands": lambda text: sorted(commands_of(text)),
        "links": lambda text: sorted(
            re.sub(r"\.zh(?=\.(svg|png|md|ipynb)$)", "", link) for _, link in LINK.findall(text)
        ),
        "headings": lambda text: [len(h) for h in re.findall(r"^(#+) ", text, re.MULTILINE)],
        "formulas": lambda text: len(re.findall(r"^\$\$", text, re.MULTILINE)),
        "rows": lambda text: len(re.findall(r"^\|", text, re.MULTILINE)),
    }
    for kind, found in kinds.items():
        assert found(english) == found(chinese), f"{path.name} and its Chinese page differ in {kind}"
    assert re.search(r"[\u4e00-\u9fff]", chinese)


def listing(text: str) -> list[str]:
    """The lines of a page's code blocks, fenced or indented, without their comments."""
    inside, found = False, []
    for line in text.splitlines():
        if line.startswith("```"):
            inside = not inside
        elif inside or line.startswith("    "):
            found.append(re.split(r"(?:^|\s)\s*#\s", line)[0].rstrip())
    return found


@pytest.mark.parametrize("path", ENGLISH, ids=name_of)
def test_what_is_typed_is_the_same_in_both_languages(path: Path) -> None:
    """Line by line; only comments, and what a screen answers in the reader's language, may differ."""
    english, chinese = (listing(p.read_text(encoding="utf-8")) for p in (path, path.with_suffix(".zh.md")))
    assert len(english) == len(chinese), f"{path.name} and its Chinese page have code of different lengths"
    for ours, theirs in zip(english, chinese, strict=True):
        assert ours == theirs or re.search(r"[\u4e00-\u9fff]", theirs), f"{theirs} should be {ours}"


def test_every_page_for_newcomers_is_there_in_chinese() -> None:
    """Results, decisions and log are English only; settings.zh.md is made (tests/config/test_settings.py)."""
    missing = [name_of(p) for p in PAGES if not p.name.endswith(".zh.md") and p not in ENGLISH]
    assert not missing, f"without a Chinese page: {missing}"


def test_the_tour_is_whole_in_both_languages() -> None:
    """Every part has a formula or a table, code from the source, a figure, something to try and what tutorials get wrong."""
    parts = [p for p in (DOCS / "tour").glob("*.md") if not p.name.startswith("index")]
    english = {p.name for p in parts if not p.name.endswith(".zh.md")}
    assert len(english) == 20
    assert {p.name for p in parts} == english | {name.replace(".md", ".zh.md") for name in english}
    for path in parts:
        text = path.read_text(encoding="utf-8")
        assert "$$" in text and hooks().CODE.search(text) and "](../figures/" in text, path.name
        assert commands_of(text) and TEST.search(text), path.name
        assert len(re.findall(r"^## ", text, re.MULTILINE)) >= 3, path.name
    listed = re.findall(r"tour/([\w-]+\.md)", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    assert set(listed) == english | {"index.md"}


SECTIONS = """引言;1.1 何为 Attention;1.2 深入理解注意力机制;1.3 实现;1.4 Self-Attention;1.5 Causal Self Attention;
1.6 Multi-Head;2.1 Seq2Seq;2.2 FNN;2.3 Layer Norm;2.4 残差连接;2.5 Encoder;2.6 Decoder;3.1 Embedding;
3.2 Position Encoding;3.3 完整的 Transformer;一 1 编码器;一 2 解码器;一 3 注意力机制;一 4 前馈网络;
一 5 嵌入与输出层;一 6 位置编码;二 为什么要使用注意力;掩码自注意力;多头;BatchNorm;3.1 整体模型架构;
3.2 总结与展望;4.1 舍弃 Encoder;4.2 单一注意力;4.3 局限性"""
NAMES = """MultiHeadAttention c_attns c_proj MLP LayerNorm EncoderLayer ln_1 ln_2 ln_3 m_attn Encoder
DecoderLayer Decoder PositionalEncoding PositionEncoding pe Transformer wte wpe drop lm_head
get_num_params _init_weights configure_optimizers generate vocab_size block_size n_layer n_head
n_embd dropout bias attn_dropout resid_dropout flash gelu() ignore_index=-1 GPT TransformerLayer
SelfAttention FFN word_token_embedding word_pos_embedding language_model_head num_layer no_pos
no_res init_weights norm1 norm2 q_layer k_layer v_layer proj_layer attn_drop"""


def test_every_section_and_name_of_the_tutorials_is_in_the_table() -> None:
    text = (DOCS / "tables" / "tutorials.md").read_text(encoding="utf-8")
    for section in SECTIONS.replace("\n", "").split(";"):
        assert f"| {section}" in text, section
    for name in NAMES.split():
        assert re.search(rf"`[^`|]*(?<!\w){re.escape(name)}(?!\w)", text) or f"`{name}`" in text, name
    for row in re.findall(r"^\| .*", text, re.MULTILINE):
        assert row.count("](") or "---" in row or "|" in row


def test_the_papers_numbers_are_in_the_table() -> None:
    text = (DOCS / "tables" / "paper.md").read_text(encoding="utf-8")
    wanted = (
        [f"| equation {n}" for n in (1, 2, 3)] + [f"| table {n}" for n in (1, 2, 3, 4)] + ["| figure 1", "| figure 2"]
    )
    assert all(one in text for one in [*wanted, "| figures 3–5"])


def test_the_report_of_the_site_is_of_this_format() -> None:
    """A page of another format could not draw it: `python docs/make_report.py runs/dates "3 mai 1979"` writes it anew."""
    data = json.loads((ROOT / "docs" / "assets" / "report.json").read_text("utf-8"))
    assert data["format"] == FORMAT and data["attribution"] and data["beam"]


def test_code_that_is_gone_breaks_the_build() -> None:
    """Broken variant: a page that shows nothing, or an old copy, when a function was renamed."""
    tool = hooks()
    page = "[code: attention](../../glassformer/nn/attention.py)"
    assert "attention_weights(q, k, mask, scaled=scaled) @ v" in tool.show_code(page, "tour/dictionary.md")
    assert "def add_and_norm(" in tool.lines_of(ROOT / "glassformer/nn/block.py", "Block.add_and_norm")
    for missing in (
        "[code: attend](../../glassformer/nn/attention.py)",
        "[code: attention](../../glassformer/nn/gone.py)",
    ):
        with pytest.raises(tool.Gone):
            tool.show_code(missing, "tour/dictionary.md")
    with pytest.raises(tool.Gone):
        tool.show_measured("[measured: gone](../how-to/studies.md)", "en", False, "../")


def test_the_examples_of_the_hooks() -> None:
    """What is done to a page's HTML: long names in tables, line breaks in Chinese."""
    found = doctest.testmod(hooks())
    assert found.attempted and not found.failed


def test_verdicts_are_shown_where_there_are_some(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool, line = hooks(), "[measured: scaling](../how-to/studies.md)"
    monkeypatch.setattr(tool, "VERDICTS_FILE", tmp_path / "measured.json")
    assert "Not measured yet" in tool.show_measured(line, "en", False, "../")
    found = {"scaling": {"verdict": {"en": "holds", "zh": "成立"}, "date": "2026-11-16", "machine": "M"}}
    (tmp_path / "measured.json").write_text(json.dumps(found), encoding="utf-8")
    assert ">holds</span> (M, 2026-11-16)" in tool.show_measured(line, "en", False, "../")
    shown = tool.show_measured(line, "zh", True, "../")
    assert 'class="verdict holds">成立<' in shown and "(../claims/scaling.md)" in shown


def test_the_examples_in_help_can_be_typed() -> None:
    """Each verb has one, and it would be understood."""
    from glassformer.cli import data
    from glassformer.cli.options import describe
    from glassformer.cli.verbs import groups, name_of

    verbs = {name: verb for group in groups().values() for name, verb in group.items()}
    for name, verb in (verbs | {name_of(verb): verb for verb in data.VERBS}).items():
        words = describe(verb).example
        assert name in words.split()[:2]
        assert fault_of(f"glassformer {words}") is None, f"{words}: {fault_of(f'glassformer {words}')}"
