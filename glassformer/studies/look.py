"""The report of `look`: one HTML file that opens offline, and every view as a picture.

`page_data` turns what was seen into one JSON object; the modules in page/ draw it and ask nobody for anything. They are plain
ES modules, which a server hands out as they are; a browser that opened a file may not load them, so for the report they are
put one behind the other into the page itself, each in a function of its own (`bundled`).

Arrays travel compressed, and rounded to what an eye can use. `precision` says in words how much was lost: of a short text
every weight is kept to 1/65535; of a long one each row has 255 steps up to its largest weight, so that a row that looks at
five hundred tokens evenly is not rounded away. Queries, keys and values are half-precision floats, then bytes, then left out
from the first layer on, as much as the file has room for.
"""

from __future__ import annotations

import base64
import json
import math
import re
import zlib
from collections.abc import Sequence
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from glassformer.config import VERSION
from glassformer.errors import UserError
from glassformer.studies.inside import AttentionLayer, Inside, Norms, Says, alignment, rollout

FINE = 128  # texts of so many tokens keep 16 bits a weight
THUMB = 64  # pixels of a small map of a longer text
NUMBERS_BUDGET = 1_700_000  # bytes for queries, keys and values before base64
FORMAT = 1

Array = np.ndarray
Packed = dict[str, Any]


# ---- arrays


def squeezed(raw: bytes) -> str:
    return base64.b64encode(zlib.compress(raw, 6)).decode("ascii")


def packed(array: Array, dtype: str, **more: Any) -> Packed:
    little = np.dtype(dtype).newbyteorder("<")
    return {"dtype": dtype, "shape": list(array.shape), "data": squeezed(array.astype(little).tobytes()), **more}


def packed_weights(weights: Array) -> Packed:
    """Shares between 0 and 1."""
    if max(weights.shape[-2:], default=0) <= FINE:
        return packed(np.rint(np.clip(weights, 0, 1) * 65535), "uint16", unit=1 / 65535)
    return packed_rows(weights)


def packed_rows(values: Array) -> Packed:
    """Each row (the last dimension) in 255 steps up to its own largest value."""
    top = values.max(axis=-1, keepdims=True) if values.size else np.zeros((*values.shape[:-1], 1))
    scale = np.where(top > 0, top / 255, 1.0).astype("<f4")
    return packed(np.rint(values / scale), "uint8", scale=squeezed(scale.tobytes()))


def packed_numbers(values: Array, coarse: bool) -> Packed:
    """Numbers of either sign."""
    if not coarse:
        return packed(values, "float16")
    top = np.abs(values).max(axis=-1, keepdims=True) if values.size else np.zeros((*values.shape[:-1], 1))
    scale = np.where(top > 0, top / 127, 1.0).astype("<f4")
    return packed(np.rint(values / scale), "int8", scale=squeezed(scale.tobytes()))


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


# ---- the data object


class Names:
    """Strings that occur often, each written once."""

    def __init__(self, inside: Inside) -> None:
        self.inside = inside
        self.place: dict[int, int] = {}
        self.texts: list[str] = []

    def number(self, ids: Sequence[int]) -> list[int]:
        new = [i for i in dict.fromkeys(int(i) for i in ids) if i not in self.place]
        for i, text in zip(new, self.inside.names(new)):
            self.place[i] = len(self.texts)
            self.texts.append(text)
        return [self.place[int(i)] for i in ids]


def says_data(said: Says, names: Names) -> dict[str, Any]:
    return {
        "logprob": few_digits(said.logprob),
        "rank": said.rank.tolist(),
        "entropy": few_digits(said.entropy),
        "best": [names.number(row) for row in said.best.tolist()],
        "chances": few_digits(said.chances),
    }


def norms_data(norms: Norms) -> dict[str, Any]:
    parts = {name: few_digits(values) for name, values in norms.parts.items()}
    return {"entering": few_digits(norms.entering), "parts": parts, "leaving": few_digits(norms.leaving)}


def numbers_plan(layers: Sequence[AttentionLayer]) -> tuple[bool, set[int]]:
    """Whether queries, keys and values are bytes rather than half floats, and the layers (by their place in the sequence)
    that have them at all: all, or the last that fit."""
    sizes = [layer.q.size + layer.k.size + layer.v.size for layer in layers]
    if 2 * sum(sizes) <= NUMBERS_BUDGET:
        return False, set(range(len(sizes)))
    chosen, room = set(), NUMBERS_BUDGET
    for place in reversed(range(len(sizes))):
        room -= sizes[place]
        if room < 0:
            break
        chosen.add(place)
    return True, chosen


def layer_data(layer: AttentionLayer, with_numbers: bool, coarse: bool) -> dict[str, Any]:
    found: dict[str, Any] = {
        "numbers": layer.numbers,
        "shares": layer.shares,
        "slopes": layer.slopes,
        "weights": packed_weights(layer.weights),
    }
    if max(layer.weights.shape[-2:]) > FINE:
        found["thumbs"] = packed_rows(thumbnails(layer.weights))
    if with_numbers:
        found |= {name: packed_numbers(getattr(layer, name), coarse) for name in ("q", "k", "v")}
    return found


def attentions_data(inside: Inside) -> tuple[dict[str, Any], bool, bool]:
    """By kind; whether numbers are coarse; whether some are left out."""
    config = inside.model.model.config
    kinds = list(inside.seen.attentions)
    # The last layers of every kind first, so that what does not fit is the first layers of all of them.
    order = sorted(
        ((kind, n) for kind in kinds for n in range(len(inside.seen.attentions[kind]))), key=lambda place: place[1]
    )
    coarse, chosen = numbers_plan([inside.seen.attentions[kind][n] for kind, n in order])
    kept = {order[place] for place in chosen}
    found = {}
    for kind in kinds:
        queries, keys = inside.axes(kind)
        found[kind] = {
            "queries": queries,
            "keys": keys,
            "causal": kind == "decoder",
            "window": None if kind == "cross" else config.window,
            "scaled": config.scaled_attention,
            "layers": [
                layer_data(layer, (kind, n) in kept, coarse) for n, layer in enumerate(inside.seen.attentions[kind])
            ],
        }
    return found, coarse, len(kept) < len(order)


def beam_data(inside: Inside, names: Names) -> dict[str, Any] | None:
    """Every candidate, with the text it would have led to and whether it is on the way to the answer looked at."""
    found = inside.search
    if found is None:
        return None
    decode = inside.model.tokenizers.target.decode
    said = [int(i) for i in inside.seen.outputs.chosen]
    answer = said[inside.laid.given - 1 :] if inside.kind == "gpt" else said
    steps: list[list[dict[str, Any]]] = []
    paths: dict[int, list[int]] = {0: []}
    any_best = False
    for number, step in enumerate(found.trace.steps):
        here: list[dict[str, Any]] = []
        longer: dict[int, list[int]] = {}
        for candidate in step:
            path = [*paths.get(candidate.parent, []), candidate.token]
            facts = asdict(candidate) | {
                "token": names.number([candidate.token])[0],
                "text": decode(path),
                "best": path == answer[: number + 1],
            }
            for name in ("logprob", "total", "score"):
                facts[name] = float(f"{facts[name]:.6g}")
            any_best = any_best or facts["best"]
            here.append(facts)
            if candidate.slot is not None:
                longer[candidate.slot] = path
        steps.append(here)
        paths = longer
    answers = [{"text": decode(h.ids), "score": h.score, "logprob": h.logprob} for h in found.answers]
    root = names.number([inside.laid.row[inside.laid.given - 1]])[0]  # the last token read before the first was written
    return {"width": found.beam, "root": root, "steps": steps, "answers": answers, "has_best": any_best}


def precision_in_words(inside: Inside, coarse: bool, left_out: bool) -> dict[str, str]:
    longest = max(len(inside.laid.row), len(inside.laid.source))
    if longest <= FINE:
        english, chinese = "weights are rounded to 1/65535", "权重舍入到 1/65535"
    else:
        english = "each weight is rounded to 1/255 of the largest of its row"
        chinese = "每个权重舍入到所在行最大值的 1/255"
    english += "; queries, keys and values to " + ("1/127 of the largest of their row" if coarse else "half precision")
    chinese += "；查询、键和值" + ("舍入到所在行最大值的 1/127" if coarse else "为半精度")
    if left_out:
        english += ", and left out of the first layers to keep the file small"
        chinese += "，前几层的未收入以控制文件大小"
    return {"en": english + ".", "zh": chinese + "。"}


FAMILIES = {
    "transformer": {"en": "encoder-decoder", "zh": "编码器-解码器"},
    "gpt": {"en": "GPT", "zh": "GPT"},
    "bert": {"en": "BERT", "zh": "BERT"},
}


def page_data(inside: Inside, title: str) -> dict[str, Any]:
    """Everything that the page draws."""
    names = Names(inside)
    seen, laid = inside.seen, inside.laid
    config = inside.model.model.config
    attentions, coarse, left_out = attentions_data(inside)
    sides = {
        name: {"pieces": side.pieces, "words": asdict(side.words), "characters": asdict(side.characters)}
        for name, side in inside.readings().items()
    }
    chosen = names.number(seen.outputs.chosen.tolist())
    outputs = says_data(seen.outputs, names) | {
        "chosen": chosen,
        "places": laid.places,
        "given": [inside.kind == "gpt" and place + 1 < laid.given for place in laid.places],
        # After the last token there is one more choice; nothing was written there, so it is what would come next.
        "next": [config.family != "bert" and laid.labels[place] is None for place in laid.places],
        "labels": not inside.labels_are_words,
        "words": sides["written"]["pieces"] if inside.kind == "tag" else None,
    }
    lens = [says_data(layer, names) for layer in seen.lens]
    aligned = alignment(seen)
    sizes = f"{config.n_layer} × {config.n_head} × {config.n_embd}"
    about = {language: f"{name}, {sizes}" for language, name in FAMILIES[config.family].items()}
    says = " ".join(names.texts[i] for i in chosen) if inside.answer is None else None
    if inside.kind == "mlm" and len(chosen) > 40:
        says = None
    data = {
        "format": FORMAT,
        "version": VERSION,
        "title": title,
        "about": about,
        "kind": inside.kind,
        "text": inside.text,
        "answer": inside.answer,
        "says": says,
        "forced": inside.forced,
        "loss": seen.loss,
        "sides": sides,
        "attentions": attentions,
        "outputs": outputs,
        "lens": lens,
        "norms": {stack: norms_data(norms) for stack, norms in seen.norms.items()},
        "rollout": {k: packed_weights(v) for k, v in rollout(seen, residual=inside.residual).items()},
        "alignment": None if aligned is None else packed_weights(aligned[None]),
        "beam": beam_data(inside, names),
        "across": [
            {
                "step": moment.step,
                "name": moment.name,
                "loss": moment.seen.loss,
                "logprob": few_digits(moment.seen.outputs.logprob),
                "rank": moment.seen.outputs.rank.tolist(),
                "weights": {
                    kind: [packed_rows(layer.weights) for layer in layers]
                    for kind, layers in moment.seen.attentions.items()
                },
            }
            for moment in inside.across
        ],
        "notes": [note._asdict() for note in laid.notes],
        "precision": precision_in_words(inside, coarse, left_out),
    }
    return data | {"names": names.texts}


# ---- the page


def page_files() -> dict[str, str]:
    """The modules, the style and the template, by name."""
    folder = files("glassformer.studies") / "page"
    return {
        entry.name: entry.read_text(encoding="utf-8") for entry in folder.iterdir() if not entry.name.startswith("_")
    }


IMPORT = re.compile(r'^import \{([^}]*)\} from "\./([\w.]+)";\n', re.MULTILINE)
EXPORT = re.compile(r"^export (?:async )?(?:function|const|class) (\w+)", re.MULTILINE)


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


def page_html(data: dict[str, Any]) -> str:
    """One file that holds all it needs."""
    parts = page_files()
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    # Nothing in a text may end the element it stands in.
    text = text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    fillings = {"STYLE": parts["style.css"], "MODULES": bundled(parts, "page.js"), "DATA": text}
    return re.sub(r"/\*(STYLE|MODULES|DATA)\*/", lambda found: fillings[found[1]], parts["template.html"])


def write_report(inside: Inside, title: str, folder: Path, *, pictures: bool = True) -> list[Path]:
    """look.html and the pictures; the paths that were written."""
    from glassformer.studies.look_figures import save_pictures

    try:
        folder.mkdir(parents=True, exist_ok=True)
        page = folder / "look.html"
        page.write_text(page_html(page_data(inside, title)), encoding="utf-8")
        return [page, *(save_pictures(inside, folder) if pictures else [])]
    except OSError as error:
        raise UserError(f"the report cannot be written to {folder}: {error.strerror}") from None
