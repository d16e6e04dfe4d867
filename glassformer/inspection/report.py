"""A report as an object that shows itself in a notebook, as a file, or as a folder: look.html and a picture of each view.

    import glassformer

    model = glassformer.load("runs/dates")
    glassformer.look(model, "3 mai 1979")                       # in a notebook: the page itself
    glassformer.look(model, "3 mai 1979").save("look.html")     # as one file

The page stands in a frame of its own (an `iframe` with `sandbox`), so its script and style cannot touch the notebook. And
the same views for anybody's attention weights:

    outputs = bert(**inputs, output_attentions=True)            # Hugging Face's
    glassformer.attention_view(outputs.attentions, tokenizer.convert_ids_to_tokens(inputs.input_ids[0]))
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from glassformer.config import VERSION
from glassformer.errors import UserError
from glassformer.files.durable import write_atomically
from glassformer.files.owned import OwnedFiles
from glassformer.inspection.data import FORMAT, page_data
from glassformer.inspection.inspection import Inspection, look_across, look_inside
from glassformer.inspection.page import packed_weights, page_html
from glassformer.inspection.patching import patch
from glassformer.inspection.search import NEW
from glassformer.language import _, in_both
from glassformer.tasks import TextModel
from glassformer.text.units import Units


@dataclass(frozen=True)
class Look:
    """A report. In a notebook it shows itself; `save` writes it as one file; `data` is what its page is drawn from."""

    data: dict[str, Any]
    height: int = 760

    def to_html(self) -> str:
        """The whole page: one file that needs nothing else."""
        return page_html(self.data)

    def save(self, path: str | Path) -> Path:
        """Writes the page; opens in any browser, without a network."""
        path = Path(path)
        path.write_text(self.to_html(), encoding="utf-8")
        return path

    def _repr_html_(self) -> str:
        frame = f'sandbox="allow-scripts" width="100%" height="{self.height}" style="border:1px solid #ccc"'
        return f'<iframe {frame} srcdoc="{html.escape(self.to_html(), quote=True)}"></iframe>'

    def __repr__(self) -> str:
        return f"Look({self.data['text']!r}): shows itself in a notebook; .save('look.html') writes it as a page"


def look(
    model: TextModel,
    text: str,
    target: str | None = None,
    *,
    against: str | None = None,
    beside: Look | None = None,
    title: str | None = None,
    beam: int | None = None,
    new: int = NEW,
    across: Any = None,
) -> Look:
    """What goes on inside a model while it reads a text and answers: every view of `glassformer look`.

    `target` forces an answer. `against` is a second text for the patching map. `beside` is another report, shown to the right of
    this one. `across` is a run folder whose kept checkpoints are shown, too.

    >>> import glassformer
    >>> translator = glassformer.load("runs/dates")  # doctest: +SKIP
    >>> glassformer.look(translator, "3 mai 1979")  # doctest: +SKIP
    """
    inside = look_inside(model, text, target, beam=beam, new=new)
    if across is not None:
        inside = look_across(across, inside)
    if against is not None:
        inside = replace(inside, patching=patch(model, text, against))
    data = page_data(inside, title or model.kind)
    return Look(data | ({"beside": beside.data} if beside is not None else {}))


# ---- as a folder


@dataclass(frozen=True)
class LookReport:
    """What was written, the page first, and what a reader of it should know."""

    paths: list[Path]
    notes: list[str] = field(default_factory=list)


def write_report(
    inside: Inspection,
    title: str,
    folder: Path,
    *,
    pictures: bool = True,
    beside: Inspection | None = None,
    beside_title: str = "",
) -> LookReport:
    """look.html and the pictures. `beside`: a second report in the same page, to the right of the first."""
    from glassformer import plots
    from glassformer.inspection.pictures import save_pictures

    data = page_data(inside, title)
    if beside is not None:
        data["beside"] = page_data(beside, beside_title)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (page,) = OwnedFiles(folder).claim("look.html")
        write_atomically(page, page_html(data).encode("utf-8", "replace"))
        if not pictures:
            return LookReport([page])
        with plots.missing_glyphs() as missing:
            paths = [page, *save_pictures(inside, folder)]
    except OSError as error:
        raise UserError("the report cannot be written to {folder}: {reason}", folder, error.strerror) from None
    if not missing:
        return LookReport(paths)
    note = _(
        "no font here has {shown}, so the pictures show boxes in their place (the page does not); install fonts that "
        "have them, such as the packages fonts-noto-cjk and fonts-noto-core",
        " ".join(sorted(missing)[:8]),
    )
    return LookReport(paths, [note])


# ---- of anybody's weights


def problem_of(layer: np.ndarray | None, n_queries: int, n_keys: int) -> str:
    """Why an array is not the attention of one sentence, heads x queries x keys; empty where it is."""
    if layer is None:
        return _(
            "is None: the model computed its attention without keeping the weights; with Hugging Face's, load it by "
            'attn_implementation="eager"'
        )
    if layer.ndim == 4:
        return _("is of {count} sentences at once; give the weights of one, as [w[:1] for w in weights]", len(layer))
    if layer.ndim != 3:
        return _("has {ndim} dimensions; they are heads, queries and keys", layer.ndim)
    if layer.size and (layer.min() < -1e-3 or np.abs(layer.sum(-1) - 1).max() > 0.02):
        return _("holds no attention weights: its rows do not add up to one")
    rows, columns = layer.shape[1:]
    if (rows, columns) != (n_queries, n_keys):
        return _(
            "is {rows} x {columns}, and there are {n_queries} and {n_keys} tokens; give the tokens as the model read them, "
            "special ones included",
            rows,
            columns,
            n_queries,
            n_keys,
        )
    return ""


def attention_of(
    weights: Any, queries: tuple[str, Sequence[str]], keys: tuple[str, Sequence[str]], what: str
) -> dict[str, Any]:
    """One kind of attention of any model, as the page reads it: a layer after the other, each heads x queries x keys (a batch of
    one before them is left out). `queries` and `keys`: the name of the text and its tokens."""
    layers: list[Any] = []
    for number, layer in enumerate(weights):
        if layer is not None:
            layer = layer.detach().float().cpu() if hasattr(layer, "detach") else layer
            layer = np.asarray(layer, dtype=np.float32)
            layer = layer[0] if layer.ndim == 4 and len(layer) == 1 else layer
        if problem := problem_of(layer, len(queries[1]), len(keys[1])):
            raise UserError("{what} of layer {number} {problem}", what, number, problem)
        layers.append(layer)
    if not layers:
        raise UserError("{what} has no layers", what)
    square = queries[0] == keys[0] and len(queries[1]) > 1
    return {
        "queries": queries[0],
        "keys": keys[0],
        "causal": square and all(float(np.triu(layer, 1).max(initial=0.0)) == 0.0 for layer in layers),
        "window": None,
        "scaled": True,
        "layers": [
            {
                "head_ids": list(range(len(layer))),
                "kv_head_of": list(range(len(layer))),
                "slopes": None,
                "weights": packed_weights(layer),
            }
            for layer in layers
        ],
    }


CONTROL = re.compile(r"<[^<>\s]+>|\[(CLS|SEP|PAD|MASK|UNK)\]")


def readable(tokens: Sequence[str]) -> dict[str, Any]:
    """Tokens as the page reads them, and the words they make up. A space is written in three ways: before a word as `Ġ` (GPT-2's
    and its children's) or `▁` (SentencePiece), or not at all, and `##` before what goes on (BERT's)."""
    goes_on = any(token.startswith("##") for token in tokens)
    marks = next((mark for mark in "Ġ▁" if any(token.startswith(mark) for token in tokens)), None)
    pieces = list(tokens)
    if marks is not None:
        pieces = [token.replace(marks, " ").replace("Ċ", "\n" if marks == "Ġ" else "Ċ") for token in tokens]

    def begins(at: int) -> bool:
        if at == 0 or any(CONTROL.fullmatch(pieces[near]) for near in (at - 1, at)):
            return True
        if goes_on:
            return not pieces[at].startswith("##")
        return marks is None or pieces[at][:1].isspace() or pieces[at - 1].endswith("\n")

    starts = [at for at in range(len(pieces)) if begins(at)]
    words = ("".join(piece.removeprefix("##") for piece in pieces[a:b]) for a, b in zip(starts, [*starts[1:], None]))
    return {
        "pieces": pieces,
        "words": asdict(Units(starts, [word.strip(" ") or " " for word in words])),
        "characters": asdict(Units(list(range(len(pieces))), pieces)),
    }


def attention_view(
    weights: Any = None,
    tokens: Sequence[str] = (),
    *,
    encoder: Any = None,
    cross: Any = None,
    source_tokens: Sequence[str] | None = None,
    title: str = "attention",
) -> Look:
    """Maps and lines of attention weights from any model. `weights`: a layer after the other, each heads x queries x keys, or
    as Hugging Face gives them (`attentions`, with a batch of one). Of an encoder-decoder: the decoder's own in `weights`, and
    `encoder`, `cross` and `source_tokens`.

    >>> import numpy as np
    >>> one_layer = np.full((2, 3, 3), 1 / 3)  # two heads that look everywhere alike
    >>> attention_view([one_layer], ["the", "cat", "sat"])
    Look('the cat sat'): shows itself in a notebook; .save('look.html') writes it as a page
    """
    if (encoder is not None or cross is not None) and source_tokens is None:
        raise UserError("attention to a source needs source_tokens: the tokens the encoder read")
    read, source = ("read", list(tokens)), ("source", list(source_tokens or ()))
    attentions: dict[str, Any] = {}
    if encoder is not None:
        attentions["encoder"] = attention_of(encoder, source, source, "encoder")
    if weights is not None:
        own = attention_of(weights, read, read, "weights")
        attentions["decoder" if own["causal"] or source_tokens is not None else "encoder"] = own
    if cross is not None:
        attentions["cross"] = attention_of(cross, read, source, "cross")
    if not attentions:
        raise UserError("there are no weights to look at; give attention_view the weights and the tokens")
    sides = {name: readable(side) for name, side in (read, *([] if source_tokens is None else [source]))}
    first = next(iter(attentions.values()))["layers"]
    heads = len(first[0]["head_ids"])
    about = _(
        "{layers} layer{plural} of {heads} head{plural_heads}",
        len(first),
        "s" * (len(first) != 1),
        heads,
        "s" * (heads != 1),
    )
    data = {"format": FORMAT, "version": VERSION, "title": title, "about": in_both(about), "kind": "attention"}
    data["text"] = " ".join(sides["read" if source_tokens is None else "source"]["words"]["labels"])
    data |= {"answer": None, "says": None, "forced": False, "sides": sides, "attentions": attentions}
    return Look(data | {"outputs": None, "notes": [], "precision": None, "names": []})
