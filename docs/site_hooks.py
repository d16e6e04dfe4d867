"""What `make docs` does to a page beyond Markdown (mkdocs calls the functions named on_...).

- A line `[code: attention](../../glassformer/nn/attention.py)` becomes the lines of that function, class or method, read from
  the source as it is now. A name that is gone breaks the build, so no page shows code that is not there.
- A line `[measured: scaling](../how-to/studies.md)` becomes the verdict of that study, as the package
  keeps it, with machine and date; `[verdict: scaling](../how-to/studies.md)` within a line the verdict alone.
- A line `[report: maps](../how-to/looking-inside.md)` becomes that view of a report of `glassformer look`, to click through; its
  numbers are docs/assets/report.json (make_report.py), its page is the package's.
- The search finds the tour before the log.
- A notebook of docs/notebooks becomes a page, with what its cells have shown; a link to its file leads there.
- A link to a file of the repository outside docs/ leads to a page with that file, so that the site is whole by itself.
- Formulas become MathML, which browsers draw without a script.
"""

from __future__ import annotations

import ast
import functools
import json
import logging
import posixpath
import re
import tomllib
from html import unescape
from pathlib import Path
from typing import Any

logging.getLogger("jieba").setLevel(logging.WARNING)  # it cuts Chinese for the search, and tells so
ROOT = Path(__file__).resolve().parents[1]
CODE = re.compile(r"^\[code: ([\w.]+)\]\(((?:\.\./)+[\w/.-]+\.py)\)$", re.MULTILINE)
MEASURED = re.compile(r"^\[measured: ([\w-]+)\]\(([\w/.-]+)\)$", re.MULTILINE)
REPORT = re.compile(r"^\[report: (\w+)\]\([\w/.-]+\)$", re.MULTILINE)
BOOST = {"tour": 4, "how-to": 2, "log": 0.2, "results": 0.5}  # of what the search finds, by folder or page
VERDICT = re.compile(r"\[verdict: ([\w-]+)\]\(([\w/.-]+)\)")
OUTSIDE = re.compile(r"\]\(((?:\.\./)+)([\w/.-]+)((?:#[\w-]*)?)\)")
CHINESE_LINK = re.compile(r"(\]\((?!\.\./\.\./README|\.\./README)[\w./-]+)\.zh\.md")
"""In the checkout a Chinese page links to Chinese pages by their files; the site finds the page of its language by itself."""
NOTEBOOK = re.compile(r"(\]\([\w./-]*notebooks/[\w-]+)(?:\.zh)?\.ipynb\)")
FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)
FULL_WIDTH = "\u3000-\u303f\uff00-\uffef\u201c\u201d\u2018\u2019"
HAN = f"\u4e00-\u9fff{FULL_WIDTH}"
CODE_IN_CELL = re.compile(r"(?<=<code>)[^<]{12,}")
LONG_NAME = re.compile(r"<code>[^<]{25,}")
ENGLISH_ONLY = "这一页只有英文。"
CHINESE_BREAK = re.compile(
    f"(?<=[{FULL_WIDTH}])\n *|\n *(?=[{FULL_WIDTH}])|(?<=[{HAN}])\n *(?=[{HAN}])|(?<=[{HAN}])\n *(?=<(?:a|em|strong)[ >])"
)
LANGUAGES = {".py": "python", ".toml": "toml", ".md": "markdown", ".json": "json", ".cff": "yaml", ".yml": "yaml"}


class Gone(Exception):
    """A page asks for something that the repository does not have."""


@functools.cache
def parsed(path: Path) -> tuple[str, ast.Module]:
    """A source file and its tree, read once."""
    text = path.read_text(encoding="utf-8")
    return text, ast.parse(text)


def lines_of(path: Path, name: str) -> str:
    """The source of a function, class or method (`Block.add_and_norm`) of a file, decorators and comments included.

    >>> lines_of(ROOT / "glassformer/nn/attention.py", "attention_scores").startswith("def attention_scores(")
    True
    """
    if not path.is_file():
        raise Gone(f"there is no file {path}")
    text, tree = parsed(path)
    body: list[ast.stmt] = tree.body
    found: Any = None
    for part in name.split("."):
        named = [node for node in body if part in names_bound(node)]
        if not named:
            raise Gone(f"{path.name} has no {name}: the page that shows it must follow the code")
        found = named[-1]
        body = getattr(found, "body", [])
    first = min([found.lineno, *(d.lineno for d in getattr(found, "decorator_list", []))])
    lines = text.splitlines()[first - 1 : found.end_lineno]
    indent = len(lines[0]) - len(lines[0].lstrip())
    return "\n".join(line[indent:] for line in lines)


def names_bound(node: ast.stmt) -> set[str]:
    """The names that a statement defines: a function's, a class's, those it assigns to."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return {node.name}
    if isinstance(node, ast.Assign):
        return {target.id for target in node.targets if isinstance(target, ast.Name)}
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return {node.target.id}
    return set()


def in_repository(page: str, link: str) -> str | None:
    """The path in the repository that a link of docs/`page` leads to; None where it leads nowhere, or to a page."""
    target = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), link))
    if target.startswith("..") or (target.startswith("docs/") and not target.endswith(".py")):
        return None
    return target


def show_code(markdown: str, page: str) -> str:
    """The page with every `[code: name](file)` line replaced by the lines themselves."""

    def shown(match: re.Match[str]) -> str:
        name, link = match.groups()
        target = in_repository(page, link)
        code = lines_of(ROOT / (target or "nowhere"), name)
        return f"[`{target}`]({link}), `{name}`:\n\n```python\n{code}\n```"

    return CODE.sub(shown, markdown)


VERDICTS_FILE = ROOT / "lab" / "glassformer_lab" / "claims" / "measured.json"
TOLD = {
    "en": (
        "Measured: {verdict} ({machine}, {date})",
        "the rule",
        "the whole table",
        "Not measured yet at its default size",
    ),
    "zh": ("实测：{verdict}（{machine}，{date}）", "判定规则", "完整的表", "尚未按默认规模测量"),
}


def verdict_marks(verdict: dict[str, str], language: str) -> str:
    """Verdicts, each in its colour (docs/assets/site.css).

    >>> verdict_marks({"en": "holds (2 of 2); not settled (0 of 1)", "zh": "成立; 尚无定论"}, "en")[:51]
    '<span class="verdict holds">holds (2 of 2)</span> <'
    """
    both = zip(verdict["en"].split("; "), verdict[language].split("; "), strict=True)
    kinds = [(english.partition(" (")[0].replace(" ", "-"), shown) for english, shown in both]
    return " ".join(f'<span class="verdict {kind}">{shown}</span>' for kind, shown in kinds)


def show_measured(markdown: str, language: str, has_claims: bool, up: str) -> str:
    """The page with every `[measured: name](link)` line replaced by what was found."""
    if not MEASURED.search(markdown) and not VERDICT.search(markdown):
        return markdown
    found = json.loads(VERDICTS_FILE.read_text(encoding="utf-8")) if VERDICTS_FILE.is_file() else {}
    told, rule, table, missing = TOLD[language]

    def shown(match: re.Match[str]) -> str:
        name, link = match.groups()
        if name not in study_names():
            raise Gone(f"there is no study {name}: the page that shows its verdict must follow the code")
        if name not in found:
            return f"*{missing}: `glassformer study {name}` ([{rule}]({link}))*"
        one = dict(found[name])
        one["verdict"] = verdict_marks(one["verdict"], language)
        more = f"; [{table}]({up}claims/{name}.md)" if has_claims else ""
        answer = answers()[name][language] if name in answers() else ""
        return f"*{told.format(**one)}: `glassformer study {name}` ([{rule}]({link}){more})* {answer}".rstrip()

    def in_a_word(match: re.Match[str]) -> str:
        name, link = match.groups()
        if name not in study_names() | found.keys():
            raise Gone(f"there is no study {name}: the page that shows its verdict must follow the code")
        if name not in found:
            return f"[{missing.lower()}]({link})"
        verdict = found[name]["verdict"][language]
        return f"[{verdict}]({up}claims/{name}.md)" if has_claims else f"[{verdict}]({link})"

    return VERDICT.sub(in_a_word, MEASURED.sub(shown, markdown))


@functools.cache
def answers() -> dict[str, dict[str, str]]:
    """What the studies found, in a sentence or two."""
    return tomllib.loads((ROOT / "docs" / "claims_answers.toml").read_text(encoding="utf-8"))


@functools.cache
def study_names() -> set[str]:
    """The studies there are, by their files."""
    return {path.stem for path in (ROOT / "lab" / "glassformer_lab" / "claims").glob("*.toml")}


def show_report(markdown: str, address: str, language: str) -> str:
    """A line that names a view becomes that view of the site's report; `address`: the page's."""
    report = posixpath.relpath("assets/report.html", posixpath.dirname(address) or ".")

    def frame(match: re.Match[str]) -> str:
        title = {"en": "A report of glassformer look", "zh": "glassformer look 的报告"}[language]
        source = f"{report}#view={match[1]}&amp;language={language}"
        return f'<iframe class="report" loading="lazy" title="{title}" src="{source}"></iframe>'

    return REPORT.sub(frame, markdown)


def source_page(target: str) -> str:
    """Where the site keeps a file of the repository."""
    return f"source/{target}.md"


def source_content(target: str) -> str:
    """A file (or the names in a folder) as a page."""
    path = ROOT / target
    if path.is_dir():
        names = sorted(p.name + "/" * p.is_dir() for p in path.iterdir() if not p.name.startswith(("_", ".")))
        body = "\n".join(f"- `{name}`" for name in names)
    else:
        body = f"````{LANGUAGES.get(path.suffix, 'text')}\n{path.read_text(encoding='utf-8')}\n````"
    return f"---\nsearch:\n  exclude: true\n---\n# {target}\n\n{body}\n"


def notebook_content(path: Path) -> str:
    """A notebook as a page: its text, its code, and what that has shown."""
    parts = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            text = "".join(output.get("text", data.get("text/plain", "")))
            if "image/png" in data:
                parts.append(f'<p><img alt="" src="data:image/png;base64,{"".join(data["image/png"]).strip()}"></p>')
            elif "text/html" in data:
                parts.append(f'<div class="shown">{"".join(data["text/html"])}</div>')
            elif text:
                parts.append(f"```text\n{text.rstrip()}\n```")
    return "\n\n".join(parts) + "\n"


def formula(latex: str, block: bool) -> str:
    """A formula as MathML."""
    from latex2mathml.converter import convert

    drawn = convert(unescape(latex), display="block" if block else "inline")
    return f'<div class="formula">{drawn}</div>' if block else drawn


# ---- what mkdocs calls


def on_config(config: Any) -> Any:
    """The navigation holds what is there: how-to pages that are not listed join at the end, the page of claims once it has been
    made (docs/make_claims.py)."""
    for section in config.nav:
        pages = next(iter(section.values())) if isinstance(section, dict) else []
        if isinstance(section, dict) and "Tables" in section and (ROOT / "docs" / "claims.md").is_file():
            pages[:] = ["claims.md", *(page for page in pages if page != "claims.md")]
        if isinstance(section, dict) and "How to" in section:
            there = [
                f"how-to/{p.name}" for p in sorted((ROOT / "docs" / "how-to").glob("*.md")) if ".zh." not in p.name
            ]
            listed = [page for page in pages if page in there]
            pages[:] = listed + [page for page in there if page not in listed]
    return config


def in_language(file: Any, config: Any) -> Any:
    """A page that was made here, in the part of the site that is being built: the Chinese one has its own, so that menus and the
    search stay in the reader's language."""
    if config.theme["language"] == "zh":
        file.dest_uri = f"zh/{file.dest_uri}"
    return file


def joined(html: str) -> str:
    """Chinese has no blanks between lines: a line break beside a full-width sign, or between two characters, is none.

    >>> joined("<p>对应到\\n我们的，\\n<a>内存</a>\\nand</p>").count("\\n")
    1
    """
    parts = re.split(r"(<pre.*?</pre>)", html, flags=re.DOTALL)
    parts[::2] = [CHINESE_BREAK.sub("", part) for part in parts[::2]]
    return "".join(parts)


def breakable(html: str) -> str:
    """Names in the cells of a table break between their words; a cell with long ones is wide enough for some words.

    >>> breakable("<td><code>tests/test_a.py::test_attention_is_a_weighted_mean</code></td>")[:54]
    '<td class="names"><code>tests/<wbr>test_<wbr>a.<wbr>py'
    >>> breakable("<td><code>q</code></td>")
    '<td><code>q</code></td>'
    """

    def cell(match: re.Match[str]) -> str:
        parted = CODE_IN_CELL.sub(lambda name: re.sub(r"(::|[/_=,]|\b\.\b)", r"\1<wbr>", name[0]), match[2])
        names = ' class="names"' if LONG_NAME.search(match[2]) else ""
        return f"<td{names}{match[1]}>{parted}</td>"

    return re.sub(r"<td((?: [^>]*)?)>(.*?)</td>", cell, html, flags=re.DOTALL)


def on_files(files: Any, config: Any) -> Any:
    """One more page for every notebook, and for every file of the repository that some page links to."""
    from mkdocs.structure.files import File

    ending = ".zh.ipynb" if config.theme["language"] == "zh" else ".ipynb"
    for path in sorted((ROOT / "docs" / "notebooks").glob("*.zh.ipynb")):
        name = path.name.removesuffix(".zh.ipynb")
        content = notebook_content(path.with_name(name + ending))
        files.append(in_language(File.generated(config, f"notebooks/{name}.md", content=content), config))

    wanted: set[str] = set()
    for file in files:
        if file.src_uri.endswith(".md"):
            for up, path, _ in OUTSIDE.findall(file.content_string):
                target = in_repository(file.src_uri, up + path)
                if target is not None and (ROOT / target).exists():
                    wanted.add(target)
    for target in sorted(wanted):
        file = File.generated(config, source_page(target), content=source_content(target))
        files.append(in_language(file, config))
    return files


on_files.mkdocs_priority = -200  # type: ignore[attr-defined]  # after the languages were sorted out


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Code put in, links to the repository turned to its pages."""
    here = page.file.src_uri
    if here.startswith(("source/", "notebooks/")):
        return markdown
    if config.theme["language"] == "zh" and not here.endswith(".zh.md"):
        page.meta["search"] = {"exclude": True}  # it is English, and found once already
    else:
        page.meta.setdefault("search", {"boost": BOOST.get(re.split(r"[/.]", here)[0], 1)})
    if not re.search(r"^## ", markdown, re.MULTILINE):
        page.meta["hide"] = ["toc"]  # there is none, and tables can use the place
    language = "zh" if here.endswith(".zh.md") else "en"
    markdown = NOTEBOOK.sub(r"\1.md)", CHINESE_LINK.sub(r"\1.md", markdown))
    has_claims = (ROOT / "docs" / "claims.md").is_file()
    markdown = show_measured(show_code(markdown, here), language, has_claims, "../" * here.count("/"))
    markdown = show_report(markdown, page.url, config.theme["language"])
    if config.theme["language"] == "zh" and language == "en":
        markdown = re.sub(
            r"^# .*\n", lambda title: f"{title[0]}\n*{ENGLISH_ONLY}*\n", markdown, count=1, flags=re.MULTILINE
        )

    def turned(match: re.Match[str]) -> str:
        up, path, _ = match.groups()
        target = in_repository(here, up + path)
        if target is None:
            return match[0]
        if not (ROOT / target).exists():
            raise Gone(f"{here} links to {target}, which is not there")
        return "](" + posixpath.relpath(source_page(target), posixpath.dirname(here) or ".") + ")"

    return OUTSIDE.sub(turned, markdown)


def on_page_content(html: str, page: Any, config: Any, files: Any) -> str:
    """Formulas drawn, long names in tables breakable, Chinese without blanks at line breaks."""
    html = breakable(FORMULA.sub(lambda match: formula(match[3].strip(), match[2] == "["), html))
    return joined(html) if page.file.src_uri.endswith(".zh.md") else html


def on_page_context(context: Any, page: Any, config: Any, nav: Any) -> Any:
    """A page that was made here leads to itself in the other language; the plugin knows only of pages that have a file."""
    if page.file.src_uri.startswith(("source/", "reference/", "notebooks/")):
        plain = page.url.removeprefix("zh/")
        links = {"en": plain, "zh": f"zh/{plain}"}
        config.extra.alternate = [{**other, "link": links[other["lang"]]} for other in config.extra["alternate"]]
    return context


on_page_context.mkdocs_priority = -200  # type: ignore[attr-defined]  # after the plugin


def on_post_build(config: Any) -> None:
    """What the search reads from the disk is what it would read over http: all languages, not the last that was built. And the
    report that pages show."""
    from glassformer.inspection.page import page_html

    assets = Path(config.site_dir) / "assets"
    data = json.loads((assets / "report.json").read_text(encoding="utf-8"))
    (assets / "report.html").write_text(page_html(data), encoding="utf-8")
    folder = Path(config.site_dir) / "search"
    index = (folder / "search_index.json").read_text(encoding="utf-8")
    (folder / "search_index.js").write_text(f"var __index = {index}", encoding="utf-8")


on_post_build.mkdocs_priority = -200  # type: ignore[attr-defined]  # after the languages were put together
