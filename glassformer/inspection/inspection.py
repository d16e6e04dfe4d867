"""Everything about one sentence in one model, as plain arrays: what the views of `look` are drawn from.

A row of cross-attention belongs to the token that is being predicted there, a row of self-attention to the token just
read. `look_across` looks at the same sentence at every checkpoint that a run has kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from glassformer.errors import UserError
from glassformer.inspection.activations import Activations, record_activations
from glassformer.inspection.attribution import Attribution, attribute
from glassformer.inspection.model_input import (
    ModelInput,
    make_answer_input,
    make_bert_input,
    make_prompt_input,
    read_text,
    refuse_longer,
    with_special_tokens,
)
from glassformer.inspection.patching import PatchResult
from glassformer.inspection.saliency import Saliency, saliency
from glassformer.inspection.search import NEW, Search, revise, search
from glassformer.language import _
from glassformer.models import BERT, build_model
from glassformer.models.weights import inference_weights, load_model_tensors
from glassformer.runs.checkpoint import problem, read_checkpoint
from glassformer.runs.folder import RunFolder
from glassformer.tasks import TextModel
from glassformer.tasks.generate import prompt_ids
from glassformer.text.tokenizer import EOS
from glassformer.text.units import ReadableTokens, Units, reading

Weights = dict[str, Tensor]


@dataclass(frozen=True)
class CheckpointView:
    """The same sentence at one checkpoint."""

    step: int
    name: str
    activations: Activations
    own: bool = False  # whether these are the weights that the report is about


@dataclass(frozen=True)
class Inspection:
    """One sentence in one model: what was read and written, and everything that was recorded on the way."""

    model: TextModel
    text: str
    answer: str | None  # what was written, or forced; None where nothing is written
    forced: bool
    input: ModelInput
    activations: Activations
    search: Search | None
    across: list[CheckpointView] = field(default_factory=list)
    attribution: Attribution | None = None
    saliency: Saliency | None = None
    patching: PatchResult | None = None
    importance: dict[str, dict[str, Any]] = field(default_factory=dict)  # by part, where `heads` was run
    prefix: Sequence[int] = ()  # the tokens of the answer that were forced, where the model went on from them

    @property
    def kind(self) -> str:
        """What the model does: translate, generate, mlm, classify or tag."""
        return self.model.kind

    @property
    def residual(self) -> bool:
        """Whether the model has residual connections."""
        return self.model.model.config.residual

    @property
    def labels_are_words(self) -> bool:
        """Of the vocabulary; else classes or tags."""
        return self.kind not in ("classify", "tag")

    def answer_ids(self) -> list[int]:
        """The tokens of the answer looked at; a GPT's without those of the text it goes on with."""
        ids = [int(i) for i in self.activations.outputs.tokens]
        return ids[self.input.given - 1 :] if self.kind == "gpt" else ids

    def with_answer_as_labels(self) -> ModelInput:
        """The same input with the tokens in question as its labels, whatever another model would say itself."""
        labels = list(self.input.labels)
        for position, token in zip(self.input.positions, self.activations.outputs.tokens):
            labels[position] = int(token)
        return replace(self.input, labels=labels)

    def names(self, ids: Sequence[int]) -> list[str]:
        """Token texts, or the names of labels, readable."""
        if self.labels_are_words:
            return self.model.tokenizers.target.pieces(ids)
        return [self.model.tokenizers.labels[int(i)] for i in ids]

    def readings(self) -> dict[str, ReadableTokens]:
        """The axes of the maps. source: what the encoder reads; read: what the other stack reads; written: what is chosen at
        each of its positions."""
        target, chosen = self.model.tokenizers.target, self.activations.outputs.tokens.tolist()
        readings = {"read": reading(target, self.input.row, self.input.words)}
        if self.kind == "transformer":
            readings["source"] = reading(self.model.tokenizers.source, self.input.source)
        if self.labels_are_words and self.kind != "mlm":
            readings["written"] = reading(target, chosen)
        else:  # each a unit by itself, whatever the unit; of the words the first is BOS
            labels = readings["read"].words.labels[1:] if self.kind == "tag" else self.names(chosen)
            units = Units(list(range(len(labels))), labels)
            readings["written"] = ReadableTokens(labels, units, units)
        return readings

    def axes(self, kind: str) -> tuple[str, str]:
        """The readings along the queries and along the keys of a kind of attention."""
        if kind == "cross":
            return "written", "source"
        side = "source" if kind == "encoder" and self.kind == "transformer" else "read"
        return side, side


DOES = {"gpt": "goes on with a text", "mlm": "fills in masks", "classify": "classifies texts", "tag": "tags words"}


def look_inside(
    model: TextModel,
    text: str,
    target: str | None = None,
    *,
    beam: int | None = None,
    new: int = NEW,
    explained: bool = True,
    prefix: Sequence[int] = (),
    tree: bool = True,
    draft: Sequence[int] = (),
    between: Callable[[], None] = lambda: None,
) -> Inspection:
    """Let the model read the sentence and answer (or force `target` on it), and record everything. `explained`: attribution and
    saliency, too, which take most of the time. `prefix`: token ids with which the answer is to begin. `tree`: the beam's, too.
    `draft`: ids that the answer may be, where no tree is wanted; it is the same answer, sooner. `between` is called in the
    middle of long work: what it raises ends it."""
    if model.device.type == "mps":
        raise UserError("what is inside is computed in float64, which a GPU of Apple's has not; use --device cpu")
    if target is not None and model.kind not in ("transformer", "gpt on pairs"):
        raise UserError("target is an answer to a text, and this run {does}; leave it out", does=DOES[model.kind])
    if beam is not None and beam < 1:
        raise UserError("beam must be at least 1, not {beam}", beam=beam)
    if beam is not None and isinstance(model.model, BERT):
        raise UserError("this run is a BERT, which searches nothing; leave out beam")
    if prefix and (target is not None or isinstance(model.model, BERT)):
        raise UserError("prefix begins an answer that the model writes; leave it out, or leave out target")
    if new < 0:
        raise UserError("new must be at least 0, not {new}", new=new)
    answer, tree_of_search = None, None
    if model.kind in ("transformer", "gpt on pairs"):
        source, forced, notes = with_special_tokens(model, text, target)
        drafted = draft and not (forced or prefix or tree or beam)
        ids, ended = revise(model, source, draft) if drafted else None, True
        if ids is None:
            hypothesis, tree_of_search = search(model, source, beam=beam, new=new, prefix=prefix, tree=tree)
            assert hypothesis is not None
            ids, ended = (hypothesis.ids, hypothesis.ended == "eos") if forced is None else (forced, True)
        longest = model.model.config.block_size - (0 if model.kind == "transformer" else len(source) - 1)
        if len(ids) > longest - 1:
            ids, ended = ids[: longest - 1], False
            note = _("the answer is longer than the model's block; its first {n} tokens are shown", n=longest - 1)
            notes = [*notes, note]
        model_input = make_answer_input(model, source, ids, ended, notes)
        answer = model.tokenizers.target.decode(ids)
    elif model.kind == "gpt":
        _unused, notes = read_text(model.tokenizers.target, text, "the text")
        prompt = prompt_ids(model, text)
        refuse_longer(prompt, model.model.config.block_size, "the text")
        hypothesis, tree_of_search = search(model, prompt, beam=beam, new=new, prefix=prefix, tree=tree)
        more: list[int] = []
        if hypothesis is not None:
            more = [*hypothesis.ids, *([EOS] if hypothesis.ended == "eos" else [])]
            answer = model.tokenizers.target.decode(hypothesis.ids)
        model_input = make_prompt_input(prompt, more[: model.model.config.block_size - len(prompt)], notes)
    else:
        model_input = make_bert_input(model, text)
    activations = record_activations(model.model, model_input)
    return Inspection(
        model,
        text,
        answer,
        target is not None,
        model_input,
        activations,
        tree_of_search,
        attribution=attribute(model.model, model_input, activations) if explained else None,
        saliency=saliency(model.model, model_input, activations, between) if explained else None,
        prefix=prefix,
    )


# ---- at every kept checkpoint


def equal_weights(first: Weights, second: Weights) -> bool:
    """Whether the weights that both have are equal to the bit; they may be on different devices."""
    return all(torch.equal(first[name].cpu(), second[name].cpu()) for name in first.keys() & second.keys())


def kept_weights(run: RunFolder) -> Iterator[tuple[int, str, Weights]]:
    """The weights a run has kept, in the order of their steps: its history, snapshots and checkpoints that are whole and
    finite, and the final weights. Those one would use: the moving average, where there is one. Weights that are kept
    twice under different names are listed once, under the step at which they were learned."""
    folders: dict[int, Path] = {}
    for kept in (run.history, run.snapshots, run.checkpoints):
        folders |= {step: kept.path(step) for step in kept.steps() if kept.problem(step) is None}
    final: Weights | None = None
    state: dict[str, Any] = {}
    if run.final.is_dir() and problem(run.final) is None:
        tensors, state = read_checkpoint(run.final)
        final = inference_weights(tensors)
    last = 0
    for step, folder in sorted(folders.items()):
        weights = inference_weights(read_checkpoint(folder)[0])
        if all(torch.isfinite(tensor).all() for tensor in weights.values() if tensor.is_floating_point()):
            yield step, str(step), weights
            last = step
            if final is not None and weights.keys() == final.keys() and equal_weights(weights, final):
                final = None
    if final is not None:
        yield int(state.get("step", last)), "final", final


def checkpoint_views(run: RunFolder, inside: Inspection) -> Iterator[CheckpointView]:
    """The same sentence, with the same answer, at one kept checkpoint after another."""
    net = build_model(run.recipe.model).eval()
    # At each checkpoint the same tokens are in question, whatever it would say itself.
    model_input = inside.with_answer_as_labels()
    known = [inside.input.labels[position] is not None for position in inside.input.positions]
    weights_of_report = inside.model.model.state_dict()
    for step, name, weights in kept_weights(run):
        load_model_tensors(net, weights)
        activations = record_activations(net, model_input)
        # The loss is that of the labels, as everywhere: what comes after the last token has none.
        loss = float(-activations.outputs.logprob[known].mean()) if any(known) else None
        is_report = equal_weights(weights_of_report, net.state_dict())
        yield CheckpointView(step, name, replace(activations, loss=loss), is_report)


def look_across(run: RunFolder, inside: Inspection) -> Inspection:
    """The same sentence, with the same answer, at every kept checkpoint."""
    views = list(checkpoint_views(run, inside))
    if len(views) < 2:
        raise UserError(
            "{path} keeps {n_kept} checkpoint{plural}, and there is nothing to compare; "
            "train with train.history=true, which keeps the weights at steps 0, 10, 30, 100 and so on",
            run.path,
            len(views),
            "s" if len(views) != 1 else "",
        )
    return replace(inside, across=views)
