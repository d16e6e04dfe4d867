"""`look` from Python: a report as an object that shows itself in a notebook, and the same views for anybody's attention weights.

    import glassformer

    model = glassformer.load("runs/dates")
    glassformer.look(model, "3 mai 1979")                       # in a notebook: the page itself
    glassformer.look(model, "3 mai 1979").save("look.html")     # as one file

    outputs = bert(**inputs, output_attentions=True)            # Hugging Face's
    glassformer.attention_view(outputs.attentions, tokens)

The page stands in a frame of its own (an `iframe` with `sandbox`), so its script and style cannot touch the notebook.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from glassformer.config import VERSION
from glassformer.errors import UserError
from glassformer.studies.look.checkpoints import look_across
from glassformer.studies.look.data import FORMAT, page_data
from glassformer.studies.look.inside import NEW, look_inside
from glassformer.studies.look.packing import packed_weights
from glassformer.studies.look.patching import patch
from glassformer.studies.page import page_html
from glassformer.tasks import TextModel


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


# ---- attention of any other model


def as_layers(weights: Any, what: str) -> list[np.ndarray]:
    """A list of layers, each heads x queries x keys, from a tuple of tensors (a batch of one before them is left out) or one
    array."""
    layers = []
    for number, layer in enumerate(weights):
        array = (
            layer.detach().float().cpu().numpy() if hasattr(layer, "detach") else np.asarray(layer, dtype=np.float32)
        )
        if array.ndim == 4:
            if array.shape[0] != 1:
                raise UserError(
                    f"{what} of layer {number} is of {array.shape[0]} sentences at once; give the weights of one, as "
                    "[w[:1] for w in weights]"
                )
            array = array[0]
        if array.ndim != 3:
            raise UserError(f"{what} of layer {number} has {array.ndim} dimensions; they are heads, queries and keys")
        sums = array.sum(-1)
        if array.size and (array.min() < -1e-3 or np.abs(sums - 1).max() > 0.02):
            raise UserError(f"{what} of layer {number} are no attention weights: their rows do not add up to one")
        layers.append(array)
    if not layers:
        raise UserError(f"{what} has no layers")
    return layers


def side(tokens: Sequence[str]) -> dict[str, Any]:
    """Tokens that are their own words and characters: nothing is known of how they join."""
    units = {"starts": list(range(len(tokens))), "labels": list(tokens)}
    return {"pieces": list(tokens), "words": units, "characters": units}


def foreign_attention(
    layers: list[np.ndarray], queries: tuple[str, Sequence[str]], keys: tuple[str, Sequence[str]], what: str
) -> dict[str, Any]:
    """Attention of any model, given as arrays, as the page reads it."""
    for number, layer in enumerate(layers):
        if layer.shape[1:] != (len(queries[1]), len(keys[1])):
            raise UserError(
                f"{what} of layer {number} is {layer.shape[1]} x {layer.shape[2]}, and there are {len(queries[1])} and "
                f"{len(keys[1])} tokens; give the tokens as the model read them, special ones included"
            )
    square = queries[0] == keys[0]
    causal = (
        square and len(queries[1]) > 1 and all(float(np.triu(layer, 1).max(initial=0.0)) == 0.0 for layer in layers)
    )
    return {
        "queries": queries[0],
        "keys": keys[0],
        "causal": causal,
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
    tokens = list(tokens)
    source = list(source_tokens) if source_tokens is not None else None
    if (encoder is not None or cross is not None) and source is None:
        raise UserError("attention to a source needs source_tokens: the tokens the encoder read")
    attentions: dict[str, Any] = {}
    if encoder is not None and source is not None:
        own = ("source", source)
        attentions["encoder"] = foreign_attention(as_layers(encoder, "encoder"), own, own, "encoder")
    if weights is not None:
        own = ("read", tokens)
        found = foreign_attention(as_layers(weights, "weights"), own, own, "weights")
        attentions["decoder" if found["causal"] or source is not None else "encoder"] = found
    if cross is not None and source is not None:
        found = foreign_attention(as_layers(cross, "cross"), ("read", tokens), ("source", source), "cross")
        attentions["cross"] = found
    if not attentions:
        raise UserError("there are no weights to look at; give attention_view the weights and the tokens")
    sides = {"read": side(tokens)} | ({"source": side(source)} if source is not None else {})
    first = next(iter(attentions.values()))["layers"]
    about = f"{len(first)} × {len(first[0]['head_ids'])}"
    text = " ".join(source if source is not None else tokens)
    return Look(
        {
            "format": FORMAT,
            "version": VERSION,
            "title": title,
            "about": {"en": about, "zh": about},
            "kind": "attention",
            "text": text,
            "answer": None,
            "says": None,
            "forced": False,
            "sides": sides,
            "attentions": attentions,
            "outputs": None,
            "notes": [],
            "precision": None,
            "names": [],
        }
    )
