"""The data object of a report: everything that the page draws, as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from glassformer.config import VERSION, ModelConfig
from glassformer.inspection.activations import AttentionLayer, Norms, Predictions
from glassformer.inspection.explanation_data import attribution_data, patching_data, saliency_data
from glassformer.inspection.inspection import CheckpointView, Inspection
from glassformer.inspection.machine import machine_data
from glassformer.inspection.packing import (
    FINE,
    NUMBERS_BUDGET,
    few_digits,
    packed_numbers,
    packed_rows,
    packed_weights,
    thumbnails,
)
from glassformer.inspection.rollout import rollout
from glassformer.inspection.search import paths_of
from glassformer.language import _, in_both

FORMAT = 2


class Names:
    """Strings that occur often, each written once."""

    def __init__(self, inside: Inspection) -> None:
        self.inside = inside
        self.place: dict[int, int] = {}
        self.texts: list[str] = []

    def number(self, ids: Sequence[int]) -> list[int]:
        """The places of these tokens' texts in the page's list, which grows by those it lacks."""
        new = [i for i in dict.fromkeys(int(i) for i in ids) if i not in self.place]
        for i, text in zip(new, self.inside.names(new)):
            self.place[i] = len(self.texts)
            self.texts.append(text)
        return [self.place[int(i)] for i in ids]


def predictions_data(said: Predictions, names: Names) -> dict[str, Any]:
    """Predictions as the page reads them."""
    return {
        "logprob": few_digits(said.logprob),
        "rank": said.rank.tolist(),
        "entropy": few_digits(said.entropy),
        "best": [names.number(row) for row in said.best.tolist()],
        "chances": few_digits(said.chances),
    }


def norms_data(norms: Norms) -> dict[str, Any]:
    """Norms as the page reads them."""
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
    """One attention as the page reads it, with queries, keys and values where asked for."""
    found: dict[str, Any] = {
        "head_ids": layer.head_ids,
        "kv_head_of": layer.kv_head_of,
        "slopes": layer.slopes,
        "biases": None if layer.biases is None else few_digits(layer.biases),
        "weights": packed_weights(layer.weights),
    }
    if max(layer.weights.shape[-2:]) > FINE:
        found["thumbs"] = packed_rows(thumbnails(layer.weights))
    if with_numbers:
        found |= {name: packed_numbers(getattr(layer, name), coarse) for name in ("q", "k", "v")}
    return found


def attentions_data(inside: Inspection) -> tuple[dict[str, Any], bool, bool]:
    """By kind; whether numbers are coarse; whether some are left out."""
    config = inside.model.model.config
    kinds = list(inside.activations.attentions)
    # The last layers of every kind first, so that what does not fit is the first layers of all of them.
    order = sorted(
        ((kind, n) for kind in kinds for n in range(len(inside.activations.attentions[kind]))),
        key=lambda place: place[1],
    )
    coarse, chosen = numbers_plan([inside.activations.attentions[kind][n] for kind, n in order])
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
                layer_data(layer, (kind, n) in kept, coarse)
                for n, layer in enumerate(inside.activations.attentions[kind])
            ],
        }
    return found, coarse, len(kept) < len(order)


def beam_data(inside: Inspection, names: Names) -> dict[str, Any] | None:
    """Every candidate, with the text it would have led to and whether it is on the way to the answer looked at."""
    found = inside.search
    if found is None:
        return None
    decode = inside.model.tokenizers.target.decode
    answer = inside.answer_ids()
    steps: list[list[dict[str, Any]]] = []
    any_best = False
    for number, (step, paths) in enumerate(zip(found.trace.steps, paths_of(found.trace))):
        here: list[dict[str, Any]] = []
        for candidate, path in zip(step, paths):
            facts = asdict(candidate) | {
                "token": names.number([candidate.token])[0],
                "id": candidate.token,
                "text": decode(path),
                "best": path == answer[: number + 1],
            }
            for name in ("logprob", "total", "score"):
                facts[name] = float(f"{facts[name]:.6g}")
            any_best = any_best or facts["best"]
            here.append(facts)
        steps.append(here)
    answers = [
        {"text": decode(h.ids), "score": h.score, "logprob": h.logprob, "length": len(h.ids), "ended": h.ended}
        for h in found.answers
    ]
    # The last token read before the first was written.
    root = names.number([inside.input.row[inside.input.given - 1]])[0]
    return {
        "width": found.beam,
        "recipe": found.recipe,
        "rule": found.rule.name,
        "alpha": found.rule.alpha,
        "root": root,
        "steps": steps,
        "answers": answers,
        "has_best": any_best,
    }


def precision_in_words(inside: Inspection, coarse: bool, left_out: bool) -> dict[str, str]:
    """How exactly the page's numbers are kept, in English and Chinese."""
    longest = max(len(inside.input.row), len(inside.input.source))
    fine = _("weights are rounded to 1/65535")
    weights = fine if longest <= FINE else _("each weight is rounded to 1/255 of the largest of its row")
    values = _("1/127 of the largest of their row") if coarse else _("half precision")
    more = _(", and left out of the first layers to keep the file small") if left_out else ""
    told = _("{weights}; queries, keys and values to {values}{more}.", weights, values, more)
    return in_both(told)


def statuses(inside: Inspection) -> list[str]:
    """How each token in question came to stand there: `given` in the text, `forced` as an answer, `written` by the model, `next`
    (after the last token nothing was written; it is what would come), `read` (BERT: it is in the text), `predicted`."""
    model_input = inside.input
    found = []
    for position in model_input.positions:
        label = model_input.labels[position]
        if inside.model.model.config.family == "bert":
            found.append("predicted" if label is None else "read")
        elif label is None:
            found.append("next")
        elif inside.kind == "gpt" and position + 1 < model_input.given:
            found.append("given")
        else:
            begun = position + 1 - model_input.given < len(inside.prefix)
            found.append("forced" if inside.forced or begun else "written")
    return found


FAMILIES = {"transformer": _("encoder-decoder"), "gpt": "GPT", "bert": "BERT"}


def model_in_words(config: ModelConfig) -> str:
    """Family, layers, heads and width; an encoder may have others than its decoder."""
    layers, heads = [config.n_layer], [config.n_head]
    if config.family == "transformer":
        layers, heads = [config.encoder_layers, config.n_layer], [config.encoder_side.n_head, config.n_head]
    many = " + ".join(map(str, layers))
    each = " / ".join(map(str, dict.fromkeys(heads)))
    return _(
        "{family}, {layers} layer{plural} of {heads} head{plural_heads}, width {width}",
        FAMILIES[config.family],
        many,
        "s" * (layers != [1]),
        each,
        "s" * (heads != [1]),
        config.n_embd,
    )


def across_data(views: Sequence[CheckpointView]) -> list[dict[str, Any]]:
    """The same sentence at every kept checkpoint, as the page reads it."""
    return [
        {
            "step": view.step,
            "name": view.name,
            "own": view.own,
            "loss": view.activations.loss,
            "logprob": few_digits(view.activations.outputs.logprob),
            "rank": view.activations.outputs.rank.tolist(),
            "weights": {
                kind: [packed_rows(layer.weights) for layer in layers]
                for kind, layers in view.activations.attentions.items()
            },
        }
        for view in views
    ]


def page_data(inside: Inspection, title: str) -> dict[str, Any]:
    """Everything that the page draws."""
    names = Names(inside)
    activations, model_input = inside.activations, inside.input
    config = inside.model.model.config
    attentions, coarse, left_out = attentions_data(inside)
    sides = {
        name: {"pieces": side.pieces, "words": asdict(side.words), "characters": asdict(side.characters)}
        for name, side in inside.readings().items()
    }
    chosen = names.number(activations.outputs.tokens.tolist())
    outputs = predictions_data(activations.outputs, names) | {
        "tokens": chosen,
        "ids": activations.outputs.tokens.tolist(),
        "positions": model_input.positions,
        "status": statuses(inside),
        "labels": not inside.labels_are_words,
        "words": sides["written"]["pieces"] if inside.kind == "tag" else None,
    }
    lens = [predictions_data(layer, names) for layer in activations.lens]
    says = " ".join(names.texts[i] for i in chosen) if inside.answer is None else None
    if inside.kind == "mlm" and len(chosen) > 40:
        says = None
    data = {
        "format": FORMAT,
        "version": VERSION,
        "title": title,
        "about": in_both(model_in_words(config)),
        "kind": inside.kind,
        "text": inside.text,
        "answer": inside.answer,
        "says": says,
        "forced": inside.forced,
        "loss": activations.loss,
        "sides": sides,
        "attentions": attentions,
        "outputs": outputs,
        "lens": lens,
        "norms": {stack: norms_data(norms) for stack, norms in activations.norms.items()},
        "rollout": {k: packed_weights(v) for k, v in rollout(activations, residual=inside.residual).items()},
        "beam": beam_data(inside, names),
        "machine": machine_data(inside.model.model, model_input),
        "attribution": None if inside.attribution is None else attribution_data(inside.attribution, names.number),
        "saliency": None if inside.saliency is None else saliency_data(inside.saliency),
        "patching": None if inside.patching is None else patching_data(inside.patching),
        "importance": inside.importance,
        "across": across_data(inside.across),
        "notes": [in_both(note) for note in model_input.notes],
        "precision": precision_in_words(inside, coarse, left_out),
    }
    return data | {"names": names.texts}
