"""One file that holds all it needs: the modules, the style and the data of a page put together.

There is no build step: the modules are plain ES modules and are served as they are; for a file that is opened from a disk, each
becomes a function. Only the words in Chinese are made, of those in English by the catalogue of the screen.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from importlib.resources import files
from typing import Any

from glassformer.inspection.packing import squeezed
from glassformer.language import translations

EXPORT = re.compile(r"^export (?:async )?(?:function|const|class) (\w+)", re.MULTILINE)
WORD = re.compile(r'^  (\w+): ("(?:[^"\\]|\\.)*"),$', re.MULTILINE)


def english_words(source: str) -> dict[str, str]:
    """The words of a module of words, by their keys."""
    return {key: json.loads(text) for key, text in WORD.findall(source)}


def with_chinese(modules: dict[str, str]) -> dict[str, str]:
    """The modules, and beside each `…_en.js` the one with the same words in Chinese."""
    look_up = translations("zh").pgettext
    made = {}
    for name, source in modules.items():
        if name.endswith("_en.js"):
            room = name.removesuffix("_en.js")
            chinese = {key: look_up(room, text) for key, text in english_words(source).items()}
            names = "\n".join(EXPORT.findall(source)).replace("EN", "ZH")
            made[f"{room}_zh.js"] = f"export const {names} = {json.dumps(chinese, ensure_ascii=False)};\n"
    return modules | made


def page_files() -> dict[str, str]:
    """The modules, the style and the template, by name."""
    folder = files("glassformer.inspection") / "page"
    found = {
        entry.name: entry.read_text(encoding="utf-8")
        for entry in folder.iterdir()
        if entry.name.endswith((".js", ".css", ".html"))
    }
    return with_chinese(found)


IMPORT = re.compile(r'^import \{([^}]*)\} from "\./([\w.]+)";\n', re.MULTILINE)


def bundled(modules: dict[str, str], entry: str) -> str:
    """The modules that `entry` needs, in order, each a function that returns what it exports; then `show`. Imports are of one
    form, `import { a, b } from "./other.js";`, without renaming."""
    done: list[str] = []
    written: list[str] = []

    def identifier(name: str) -> str:
        return "module_" + name.removesuffix(".js")

    def add(name: str, above: tuple[str, ...]) -> None:
        if name in above:
            raise ValueError(f"the modules import each other in a circle: {' > '.join((*above, name))}")
        if name in done:
            return
        source = modules[name]
        for _, other in IMPORT.findall(source):
            add(other, (*above, name))
        done.append(name)
        body = IMPORT.sub(lambda found: f"const {{{found[1]}}} = {identifier(found[2])};\n", source)
        names = EXPORT.findall(source)
        body = re.sub(r"^export ", "", body, flags=re.MULTILINE)
        if re.search(r"^import\b", body, re.MULTILINE):
            raise ValueError(f"{name} has an import of another form than this understands")
        written.append(f"const {identifier(name)} = (() => {{\n{body}\nreturn {{ {', '.join(names)} }};\n}})();")

    add(entry, ())
    return "\n".join([*written, f"const {{ show }} = {identifier(entry)};"])


def page_json(data: dict[str, Any], place: Callable[[bytes], Any] = squeezed) -> str:
    """The data of a page as JSON. `place`: what stands for the bytes of an array; as they are meant for a file, the bytes
    themselves, as text."""
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=place)


def page_html(data: dict[str, Any]) -> str:
    """One file that holds all it needs."""
    parts, text = page_files(), page_json(data)
    # Nothing in a text may end the element it stands in.
    text = text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    fillings = {"STYLE": parts["style.css"], "MODULES": bundled(parts, "page.js"), "DATA": text}
    return re.sub(r"/\*(STYLE|MODULES|DATA)\*/", lambda found: fillings[found[1]], parts["template.html"])
