"""The page of a report: one file that holds all it needs, the modules, the style and the data put together.

There is no build step: the modules are plain ES modules and are served as they are; for a file that is opened from a disk, each
becomes a function. Only the words in Chinese are made, of those in English by the catalogue of the screen.

Arrays go into a page as bytes, rounded to what an eye can use; in a file compressed, in base64. Of a short text every weight is
kept to 1/65535; of a long one each row has 255 steps up to its largest weight, so that a row that looks at five hundred tokens
evenly is not rounded away. Queries, keys and values are half-precision floats, then bytes, then left out from the first layer on,
as much as the file has room for.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import math
import re
import zlib
from collections.abc import Callable
from importlib.resources import files
from typing import Any

import numpy as np

from glassformer.language import translations

FINE = 128  # texts of so many tokens keep 16 bits a weight
THUMB = 64  # pixels of a small map of a longer text
NUMBERS_BUDGET = 1_700_000  # bytes for queries, keys and values before base64
Array = np.ndarray
Packed = dict[str, Any]

EXPORT = re.compile(r"^export (?:async )?(?:function|const|class) (\w+)", re.MULTILINE)
WORD = re.compile(r'^  (\w+): ("(?:[^"\\]|\\.)*"),$', re.MULTILINE)


def english_words(source: str) -> dict[str, str]:
    """The words of a module of words, by their keys."""
    return {key: json.loads(text) for key, text in WORD.findall(source)}


def with_chinese(modules: dict[str, str]) -> dict[str, str]:
    """The modules, and beside each `…_en.js` the one with the same words in Chinese."""
    look_up = translations("zh").pgettext
    translated = {}
    for name, source in modules.items():
        if name.endswith("_en.js"):
            room = name.removesuffix("_en.js")
            chinese = {key: look_up(room, text) for key, text in english_words(source).items()}
            names = "\n".join(EXPORT.findall(source)).replace("EN", "ZH")
            translated[f"{room}_zh.js"] = f"export const {names} = {json.dumps(chinese, ensure_ascii=False)};\n"
    return modules | translated


def page_files() -> dict[str, str]:
    """The modules, the style and the template, by name."""
    entries = files("glassformer.inspection.page").iterdir()
    endings = (".js", ".css", ".html")
    return with_chinese({e.name: e.read_text(encoding="utf-8") for e in entries if e.name.endswith(endings)})


IMPORT = re.compile(r'^import \{([^}]*)\} from "\./([\w.]+)";\n', re.MULTILINE)


def bundled(modules: dict[str, str], entry: str) -> str:
    """The modules that `entry` needs, in order, each a function that returns what it exports; then `show`. Imports are of one
    form, `import { a, b } from "./other.js";`, without renaming."""
    written: dict[str, str] = {}

    def identifier(name: str) -> str:
        return "module_" + name.removesuffix(".js")

    def add(name: str, above: tuple[str, ...]) -> None:
        if name in above:
            raise ValueError(f"the modules import each other in a circle: {' > '.join((*above, name))}")
        if name in written:
            return
        source = modules[name]
        for _, other in IMPORT.findall(source):
            add(other, (*above, name))
        body = IMPORT.sub(lambda found: f"const {{{found[1]}}} = {identifier(found[2])};\n", source)
        names = EXPORT.findall(source)
        body = re.sub(r"^export ", "", body, flags=re.MULTILINE)
        if re.search(r"^import\b", body, re.MULTILINE):
            raise ValueError(f"{name} has an import of another form than this understands")
        written[name] = f"const {identifier(name)} = (() => {{\n{body}\nreturn {{ {', '.join(names)} }};\n}})();"

    add(entry, ())
    return "\n".join([*written.values(), f"const {{ show }} = {identifier(entry)};"])


def squeezed(raw: bytes) -> str:
    """Bytes compressed, as text that fits in a page."""
    return base64.b64encode(zlib.compress(raw, 6)).decode("ascii")


def packed(array: Array, dtype: str, **more: Any) -> Packed:
    """An array as bytes that the page reads."""
    little = np.dtype(dtype).newbyteorder("<")
    return {"dtype": dtype, "shape": list(array.shape), "data": array.astype(little).tobytes(), **more}


def packed_weights(weights: Array) -> Packed:
    """Shares between 0 and 1."""
    if max(weights.shape[-2:], default=0) <= FINE:
        return packed(np.rint(np.clip(weights, 0, 1) * 65535), "uint16", unit=1 / 65535)
    return packed_rows(weights)


def packed_rows(values: Array, steps: int = 255, dtype: str = "uint8") -> Packed:
    """Each row (the last dimension) in `steps` up to its own largest size."""
    top = np.abs(values).max(axis=-1, keepdims=True) if values.size else np.zeros((*values.shape[:-1], 1))
    scale = np.where(top > 0, top / steps, 1.0).astype("<f4")
    return packed(np.rint(values / scale), dtype, scale=scale.tobytes())


def packed_numbers(values: Array, coarse: bool) -> Packed:
    """Numbers of either sign."""
    return packed_rows(values, 127, "int8") if coarse else packed(values, "float16")


def thumbnails(weights: Array) -> Array:
    """The largest weight of each block of cells, no more than THUMB on a side."""
    for axis in (-2, -1):
        length = weights.shape[axis]
        if length > THUMB:
            starts = [math.ceil(i * length / THUMB) for i in range(THUMB)]
            weights = np.maximum.reduceat(weights, starts, axis=axis)
    return weights


def few_digits(values: Array) -> Any:
    """As a list of numbers with six significant digits."""
    return [few_digits(v) for v in values] if values.ndim > 1 else [float(f"{v:.6g}") for v in values.tolist()]


def as_json(value: Any, *wholly: str) -> Any:
    """Dataclasses as dictionaries, their arrays as lists of numbers with six significant digits; those of the fields named in
    `wholly` as 32-bit floats."""

    def field_as_json(name: str, value: Any) -> Any:
        if name in wholly and isinstance(value, dict):
            return {key: packed(array, "float32") for key, array in value.items()}
        return packed(value, "float32") if name in wholly and value is not None else as_json(value, *wholly)

    if dataclasses.is_dataclass(value):
        return {
            field.name: field_as_json(field.name, getattr(value, field.name)) for field in dataclasses.fields(value)
        }
    if isinstance(value, dict):
        return {key: as_json(item, *wholly) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(item, *wholly) for item in value]
    if isinstance(value, np.ndarray):
        return few_digits(value) if value.dtype.kind == "f" else value.tolist()
    return value


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
