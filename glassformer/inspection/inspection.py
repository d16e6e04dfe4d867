"""Everything about one sentence in one model, as plain arrays: what the views of `look` are drawn from.

A row of cross-attention belongs to the token that is being predicted there, a row of self-attention to the token just
read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

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
from glassformer.inspection.search import Search, revise, search
from glassformer.language import _
from glassformer.models import BERT
from glassformer.tasks import TextModel
from glassformer.tasks.generate import prompt_ids
from glassformer.text.tokenizer import EOS
from glassformer.text.units import ReadableTokens, Units, reading

NEW = 12  # tokens a GPT goes on with


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

    def names(self, ids: Sequence[int]) -> list[str]:
        """What is said, to be read."""
        if self.labels_are_words:
            return self.model.tokenizers.target.pieces(ids)
        return [self.model.tokenizers.labels[int(i)] for i in ids]

    def readings(self) -> dict[str, ReadableTokens]:
        """The axes of the maps. source: what the encoder reads; read: what the other stack reads; written: what is chosen at
        each of its positions."""
        target, row = self.model.tokenizers.target, self.input.row
        found = {"read": reading(target, row, self.input.words)}
        if self.kind == "transformer":
            found["source"] = reading(self.model.tokenizers.source, self.input.source)
        if self.labels_are_words and self.kind != "mlm":
            found["written"] = reading(target, [int(i) for i in self.activations.outputs.tokens])
        elif self.kind == "mlm":
            found["written"] = alone(self.names(self.activations.outputs.tokens.tolist()))
        elif self.kind == "tag":
            found["written"] = alone(found["read"].words.labels[1:])  # the first is BOS
        else:
            found["written"] = alone(self.names(self.activations.outputs.tokens.tolist()))
        return found

    def axes(self, kind: str) -> tuple[str, str]:
        """The readings along the queries and along the keys of a kind of attention."""
        if kind == "cross":
            return "written", "source"
        own = "source" if kind == "encoder" and self.kind == "transformer" else "read"
        return own, own


def alone(labels: list[str]) -> ReadableTokens:
    """Each a unit by itself, whatever the unit."""
    units = Units(list(range(len(labels))), labels)
    return ReadableTokens(labels, units, units)


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
    answer, found = None, None
    if model.kind in ("transformer", "gpt on pairs"):
        source, wanted, notes = with_special_tokens(model, text, target)
        drafted = draft and not (wanted or prefix or tree or beam)
        ids, ended = revise(model, source, draft) if drafted else None, True
        if ids is None:
            hypothesis, found = search(model, source, beam=beam, new=new, prefix=prefix, tree=tree)
            assert hypothesis is not None
            ids, ended = (hypothesis.ids, hypothesis.ended == "eos") if wanted is None else (wanted, True)
        longest = model.model.config.block_size - (0 if model.kind == "transformer" else len(source) - 1)
        if len(ids) > longest - 1:
            ids, ended = ids[: longest - 1], False
            notes = [
                *notes,
                _("the answer is longer than the model's block; its first {n} tokens are shown", n=longest - 1),
            ]
        model_input = make_answer_input(model, source, ids, ended, notes)
        answer = model.tokenizers.target.decode(ids)
    elif model.kind == "gpt":
        _unused, notes = read_text(model.tokenizers.target, text, "the text")
        prompt = prompt_ids(model, text)
        refuse_longer(prompt, model.model.config.block_size, "the text")
        hypothesis, found = search(model, prompt, beam=beam, new=new, prefix=prefix, tree=tree)
        more = [] if hypothesis is None else [*hypothesis.ids, *([EOS] if hypothesis.ended == "eos" else [])]
        model_input = make_prompt_input(model, prompt, more[: model.model.config.block_size - len(prompt)], notes)
        answer = None if hypothesis is None else model.tokenizers.target.decode(hypothesis.ids)
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
        found,
        attribution=attribute(model.model, model_input, activations) if explained else None,
        saliency=saliency(model.model, model_input, activations, between) if explained else None,
        prefix=prefix,
    )
