"""The same views for anybody's attention weights.

outputs = bert(**inputs, output_attentions=True)            # Hugging Face's
glassformer.attention_view(outputs.attentions, tokenizer.convert_ids_to_tokens(inputs.input_ids[0]))
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from glassformer.config import VERSION
from glassformer.errors import UserError
from glassformer.inspection.data import FORMAT
from glassformer.inspection.notebook import Look
from glassformer.inspection.packing import packed_weights
from glassformer.language import _, in_both


def as_layers(weights: Any, what: str) -> list[np.ndarray]:
    """A list of layers, each heads x queries x keys, from a tuple of tensors (a batch of one before them is left out) or one
    array."""
    layers = []
    for number, layer in enumerate(weights):
        if layer is None:
            raise UserError(
                "{what} of layer {number} is None: the model computed its attention without keeping the weights; with "
                'Hugging Face\'s, load it by attn_implementation="eager"',
                what,
                number,
            )
        array = (
            layer.detach().float().cpu().numpy() if hasattr(layer, "detach") else np.asarray(layer, dtype=np.float32)
        )
        if array.ndim == 4:
            if array.shape[0] != 1:
                raise UserError(
                    "{what} of layer {number} is of {shape} sentences at once; give the weights of one, as "
                    "[w[:1] for w in weights]",
                    what,
                    number,
                    array.shape[0],
                )
            array = array[0]
        if array.ndim != 3:
            raise UserError(
                "{what} of layer {number} has {ndim} dimensions; they are heads, queries and keys",
                what,
                number,
                array.ndim,
            )
        sums = array.sum(-1)
        if array.size and (array.min() < -1e-3 or np.abs(sums - 1).max() > 0.02):
            raise UserError(
                "{what} of layer {number} are no attention weights: their rows do not add up to one", what, number
            )
        layers.append(array)
    if not layers:
        raise UserError("{what} has no layers", what)
    return layers


CONTROL = re.compile(r"<[^<>\s]+>|\[(CLS|SEP|PAD|MASK|UNK)\]")


def side(tokens: Sequence[str]) -> dict[str, Any]:
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
    ends = [*starts[1:], len(pieces)]
    labels = [
        "".join(piece.removeprefix("##") for piece in pieces[a:b]).strip(" ") or " " for a, b in zip(starts, ends)
    ]
    own = {"starts": list(range(len(pieces))), "labels": pieces}
    return {"pieces": pieces, "words": {"starts": starts, "labels": labels}, "characters": own}


def foreign_attention(
    layers: list[np.ndarray], queries: tuple[str, Sequence[str]], keys: tuple[str, Sequence[str]], what: str
) -> dict[str, Any]:
    """Attention of any model, given as arrays, as the page reads it."""
    for number, layer in enumerate(layers):
        if layer.shape[1:] != (len(queries[1]), len(keys[1])):
            raise UserError(
                "{what} of layer {number} is {rows} x {columns}, and there are {n_queries} and "
                "{n_keys} tokens; give the tokens as the model read them, special ones included",
                what,
                number,
                layer.shape[1],
                layer.shape[2],
                len(queries[1]),
                len(keys[1]),
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
    layers, heads = len(first), len(first[0]["head_ids"])
    about = _(
        "{layers} layer{plural} of {heads} head{plural_heads}", layers, "s" * (layers != 1), heads, "s" * (heads != 1)
    )
    text = " ".join(sides["read" if source is None else "source"]["words"]["labels"])
    return Look(
        {
            "format": FORMAT,
            "version": VERSION,
            "title": title,
            "about": in_both(about),
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
