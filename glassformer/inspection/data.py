"""The data object of a report: everything that the page draws, as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from itertools import accumulate
from pathlib import Path
from typing import Any

import glassformer.inspection.page as page
from glassformer.config import VERSION, ModelConfig
from glassformer.files import structured
from glassformer.inspection.activations import AttentionLayer, Predictions, rollout
from glassformer.inspection.attribution import Attribution
from glassformer.inspection.inspection import CheckpointView, Inspection
from glassformer.inspection.machine import machine_data
from glassformer.inspection.patching import PatchResult
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


def predictions_data(predictions: Predictions, names: Names) -> dict[str, Any]:
    """Predictions as the page reads them."""
    data: dict[str, Any] = page.as_json(predictions)
    del data["tokens"]
    return data | {"best": [names.number(row) for row in predictions.best.tolist()]}


def attribution_data(attribution: Attribution, names: Names) -> dict[str, Any]:
    """Terms as 32-bit floats: they add up to their logits to more than four digits."""
    neurons = {
        path: [[[n, float(f"{a:.4g}"), float(f"{push:.4g}")] for n, a, push in row] for row in rows]
        for path, rows in attribution.neurons.items()
    }
    tokens = [names.number(row) for row in attribution.tokens.tolist()]
    return page.as_json(attribution, "terms") | {"tokens": tokens, "neurons": neurons}


def patching_data(patching: PatchResult | None) -> Any:
    """A patching as the page reads it."""
    return page.as_json(patching, "effects")


def numbers_plan(layers: Sequence[AttentionLayer]) -> tuple[bool, set[int]]:
    """Whether queries, keys and values are bytes rather than half floats, and the layers (by their place in the sequence)
    that have them at all: all, or the last that fit."""
    sizes = [layer.q.size + layer.k.size + layer.v.size for layer in layers]
    if 2 * sum(sizes) <= page.NUMBERS_BUDGET:
        return False, set(range(len(sizes)))
    fit = sum(total <= page.NUMBERS_BUDGET for total in accumulate(reversed(sizes)))
    return True, set(range(len(sizes) - fit, len(sizes)))


def layer_data(layer: AttentionLayer, with_numbers: bool, coarse: bool) -> dict[str, Any]:
    """One attention as the page reads it, with queries, keys and values where asked for."""
    data = {
        "head_ids": layer.head_ids,
        "kv_head_of": layer.kv_head_of,
        "slopes": layer.slopes,
        "biases": page.as_json(layer.biases),
        "weights": page.packed_weights(layer.weights),
    }
    if max(layer.weights.shape[-2:]) > page.FINE:
        data["thumbs"] = page.packed_rows(page.thumbnails(layer.weights))
    if with_numbers:
        data |= {name: page.packed_numbers(getattr(layer, name), coarse) for name in ("q", "k", "v")}
    return data


def attentions_data(inside: Inspection) -> tuple[dict[str, Any], bool, bool]:
    """By kind; whether numbers are coarse; whether some are left out."""
    config = inside.model.model.config
    attentions = inside.activations.attentions
    # The last layers of every kind first, so that what does not fit is the first layers of all of them.
    order = sorted(((kind, n) for kind in attentions for n in range(len(attentions[kind]))), key=lambda place: place[1])
    coarse, chosen = numbers_plan([attentions[kind][n] for kind, n in order])
    kept = {order[place] for place in chosen}
    data = {}
    for kind, layers in attentions.items():
        queries, keys = inside.axes(kind)
        data[kind] = {
            "queries": queries,
            "keys": keys,
            "causal": kind == "decoder",
            "window": None if kind == "cross" else config.window,
            "scaled": config.scaled_attention,
            "layers": [layer_data(layer, (kind, n) in kept, coarse) for n, layer in enumerate(layers)],
        }
    return data, coarse, len(kept) < len(order)


def beam_data(inside: Inspection, names: Names) -> dict[str, Any] | None:
    """Every candidate, with the text it would have led to and whether it is on the way to the answer looked at."""
    search = inside.search
    if search is None:
        return None
    decode = inside.model.tokenizers.target.decode
    answer = inside.answer_ids()
    steps: list[list[dict[str, Any]]] = []
    for number, (step, paths) in enumerate(zip(search.trace.steps, paths_of(search.trace))):
        steps.append([])
        for candidate, path in zip(step, paths):
            facts = asdict(candidate) | {
                "token": names.number([candidate.token])[0],
                "id": candidate.token,
                "text": decode(path),
                "best": path == answer[: number + 1],
            }
            for name in ("logprob", "total", "score"):
                facts[name] = float(f"{facts[name]:.6g}")
            steps[-1].append(facts)
    answers = [
        {"text": decode(h.ids), "score": h.score, "logprob": h.logprob, "length": len(h.ids), "ended": h.ended}
        for h in search.answers
    ]
    # The last token read before the first was written.
    root = names.number([inside.input.row[inside.input.given - 1]])[0]
    return {
        "width": search.beam,
        "recipe": search.recipe,
        "rule": search.rule.name,
        "alpha": search.rule.alpha,
        "root": root,
        "steps": steps,
        "answers": answers,
        "has_best": any(candidate["best"] for step in steps for candidate in step),
    }


def precision_in_words(inside: Inspection, coarse: bool, left_out: bool) -> dict[str, str]:
    """How exactly the page's numbers are kept, in English and Chinese."""
    longest = max(len(inside.input.row), len(inside.input.source))
    fine = _("weights are rounded to 1/65535")
    weights = fine if longest <= page.FINE else _("each weight is rounded to 1/255 of the largest of its row")
    values = _("1/127 of the largest of their row") if coarse else _("half precision")
    more = _(", and left out of the first layers to keep the file small") if left_out else ""
    return in_both(_("{weights}; queries, keys and values to {values}{more}.", weights, values, more))


def statuses(inside: Inspection) -> list[str]:
    """How each token in question came to stand there: `given` in the text, `forced` as an answer, `written` by the model, `next`
    (after the last token nothing was written; it is what would come), `read` (BERT: it is in the text), `predicted`."""
    model_input = inside.input

    def status(position: int) -> str:
        label = model_input.labels[position]
        if inside.model.model.config.family == "bert":
            return "predicted" if label is None else "read"
        if label is None:
            return "next"
        if inside.kind == "gpt" and position + 1 < model_input.given:
            return "given"
        begun = position + 1 - model_input.given < len(inside.prefix)
        return "forced" if inside.forced or begun else "written"

    return [status(position) for position in model_input.positions]


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


def importance_of(run: Path) -> dict[str, dict[str, Any]]:
    """What `glassformer heads` found of each part, where it was run and left its numbers: the rise of the loss when the part is
    ablated, and what kind of head it is."""
    path = run / "heads" / "heads.json"
    try:
        study = structured.read(path, dict[str, Any])
        whole = study["whole"]["loss"]
        return {
            part["part"]: {"loss": float(f"{part['without']['zero']['loss'] - whole:.4g}"), "kind": str(part["kind"])}
            for part in study["parts"]
        }
    except (OSError, structured.Unreadable, ValueError, KeyError, TypeError):
        return {}  # not there, or of another version: the page does without


def across_data(views: Sequence[CheckpointView]) -> list[dict[str, Any]]:
    """The same sentence at every kept checkpoint, as the page reads it."""
    return [
        {
            "step": view.step,
            "name": view.name,
            "own": view.own,
            "loss": view.activations.loss,
            "logprob": page.few_digits(view.activations.outputs.logprob),
            "rank": view.activations.outputs.rank.tolist(),
            "weights": {
                kind: [page.packed_rows(layer.weights) for layer in layers]
                for kind, layers in view.activations.attentions.items()
            },
        }
        for view in views
    ]


def page_data(inside: Inspection, title: str) -> dict[str, Any]:
    """Everything that the page draws."""
    names = Names(inside)
    activations, model_input = inside.activations, inside.input
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
    is_long = inside.kind == "mlm" and len(chosen) > 40
    says = None if inside.answer is not None or is_long else " ".join(names.texts[i] for i in chosen)
    data = {
        "format": FORMAT,
        "version": VERSION,
        "title": title,
        "about": in_both(model_in_words(inside.model.model.config)),
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
        "norms": page.as_json(activations.norms),
        "rollout": {k: page.packed_weights(v) for k, v in rollout(activations, residual=inside.residual).items()},
        "beam": beam_data(inside, names),
        "machine": machine_data(inside.model.model, model_input),
        "attribution": None if inside.attribution is None else attribution_data(inside.attribution, names),
        "saliency": page.as_json(inside.saliency, "gradient", "integrated"),
        "patching": patching_data(inside.patching),
        "importance": inside.importance,
        "across": across_data(inside.across),
        "notes": [in_both(note) for note in model_input.notes],
        "precision": precision_in_words(inside, coarse, left_out),
    }
    return data | {"names": names.texts}
