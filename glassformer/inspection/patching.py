"""Which layer and position carries the answer: two inputs that differ in one thing, and what a model says of each.

    model = glassformer.load("runs/dates")
    found = patch(model, "4 June 1987", "4 July 1987")
    draw(found, Path("month"))              # month.png, month.svg

The first place where the two answers differ is looked at: 1987-0|6 and 1987-0|7. Activations of the run on the second
input are put into the run on the first, one layer and one position at a time, and the number that is read off is by how
much the model then leans to the second answer (the difference of the two tokens' log-probabilities): 0 as before, 1 as
if it had read the second input. Column by column one sees the month being read where it stands, and row by row where it
goes. (probe.effect_map does the work; this file knows how text becomes rows.)

`carried_answer` goes on with one such cell: the answer written anew.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from glassformer import plots
from glassformer.errors import UserError
from glassformer.inspection.search import NEW, search
from glassformer.nn.rows import Rows
from glassformer.probe import effect_map, record, replace
from glassformer.tasks import TextModel, translations
from glassformer.tasks.generate import prompt_ids
from glassformer.text.tokenizer import BOS, EOS


@dataclass(frozen=True)
class Panel:
    """One text of the model: a row for each layer (the embeddings first), a column for each of its tokens."""

    name: str
    stack: str  # the text it is: source or read
    effects: np.ndarray
    tokens: list[str]

    @property
    def layers(self) -> list[str]:
        """The names of the rows."""
        return ["embeddings", *(f"after layer {n}" for n in range(len(self.effects) - 1))]


@dataclass(frozen=True)
class PatchResult:
    """Two texts, their answers, and how far each patched activation turned one into the other."""

    texts: tuple[str, str]
    answers: tuple[str, str]
    panels: list[Panel]


def first_difference(first: Sequence[int], second: Sequence[int]) -> int:
    """The first place where two lists differ."""
    differing = (i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b)
    return next(differing, min(len(first), len(second)))


def check_lengths(model: TextModel, first: Sequence[int], second: Sequence[int]) -> None:
    """Patching goes position by position, so both texts must have the same number of tokens."""
    if len(first) != len(second):
        raise UserError(
            "the two texts have {n_first} and {n_second} tokens; patching goes position by position, so choose "
            "two of the same number",
            len(first),
            len(second),
        )


def rows_of(model: TextModel, *lists: list[int]) -> tuple[Rows, ...]:
    """Each list of ids as a batch of one row."""
    return tuple(Rows.from_lists([ids]).to(model.device) for ids in lists)


def patch(model: TextModel, text: str, other: str) -> PatchResult:
    """For an encoder-decoder (the answers are what it writes), a GPT (the token it would say next) and a classifier."""
    if model.kind == "transformer":
        return patch_pair(model, text, other)
    if model.kind not in ("gpt", "classify"):
        raise UserError(
            "patching is shown for models that translate, generate or classify, not for {model_kind}", model.kind
        )
    tokenizer = model.tokenizers.target
    if model.kind == "classify":
        read = [model.with_special_tokens(tokenizer.encode(t)) for t in (text, other)]
    else:
        read = [prompt_ids(model, t) for t in (text, other)]
    check_lengths(model, *read)
    inputs = [rows_of(model, ids) for ids in read]
    place = 0 if model.model.config.family == "bert" else -1
    with torch.no_grad():
        answers = [int(model.model(*rows)[0, place].argmax()) for rows in inputs]
    if model.kind == "classify":
        names = [model.tokenizers.labels[answer] for answer in answers]
    else:
        names = tokenizer.pieces(answers)
    if answers[0] == answers[1]:
        raise UserError("both texts are answered by {wrote!r}; choose two that are answered differently", names[0])
    maps = effects(model, inputs, place, answers)
    return PatchResult((text, other), (names[0], names[1]), [panel("text", "read", maps, tokenizer.pieces(read[0]))])


def patch_pair(model: TextModel, text: str, other: str) -> PatchResult:
    """The encoder-decoder: activations of one sentence put into the translation of another."""
    sources = [[*model.tokenizers.source.encode(t), EOS] for t in (text, other)]
    check_lengths(model, *sources)
    wrote = translations(model, [text, other])
    targets = [[*model.tokenizers.target.encode(t), EOS] for t in wrote]
    place = first_difference(*targets)
    if wrote[0] == wrote[1] or place >= min(map(len, targets)):
        raise UserError("both texts are answered by {wrote!r}; choose two that are answered differently", wrote[0])
    target = [BOS, *targets[0][:place]]
    inputs = [rows_of(model, source, target) for source in sources]
    maps = effects(model, inputs, -1, [ids[place] for ids in targets])
    reading = {name: values for name, values in maps.items() if name.startswith(("source", "encoder"))}
    writing = {name: values for name, values in maps.items() if name.startswith(("target", "decoder"))}
    panels = [
        panel("encoder, over the source", "source", reading, model.tokenizers.source.pieces(sources[0])),
        panel("decoder, over what is written so far", "read", writing, model.tokenizers.target.pieces(target)),
    ]
    return PatchResult((text, other), (wrote[0], wrote[1]), panels)


def effects(
    model: TextModel, inputs: Sequence[Sequence[Rows]], place: int, answers: Sequence[int]
) -> dict[str, Tensor]:
    """By how much each patched activation moves the scores from the first answer to the second, layer by position."""

    def leaning(logits: Tensor) -> Tensor:
        log_p = logits[:, place].float().log_softmax(-1)
        return log_p[:, answers[1]] - log_p[:, answers[0]]

    return effect_map(model, inputs[0], inputs[1], leaning).maps


def panel(name: str, stack: str, maps: dict[str, Tensor], tokens: list[str]) -> Panel:
    """One stack's effects with their labels."""
    return Panel(name, stack, torch.stack(list(maps.values())).numpy(), tokens)


def draw(found: PatchResult, stem: Path) -> list[Path]:
    """The effects as a figure; the files it is in."""
    first, second = (f"{text} → {plots.visible(answer)}" for text, answer in zip(found.texts, found.answers))
    title = f"{first}   with activations of\n{second}"
    panels = [(p.name, p.effects, p.layers, p.tokens) for p in found.panels]
    return plots.save(plots.effects(panels, title), stem)


@torch.no_grad()
def carried_answer(model: TextModel, text: str, other: str, layer: int, position: int) -> str:
    """What the model writes to `text` when one activation of `other` stands in it: that of a position of the text after `layer`
    blocks of the stack that reads it (0: its embedding). It is put there once, while the text is read.

        carried_answer(model, "4 June 1987", "4 July 1987", layer=1, position=2)    # 1987-07-04, if that cell carries the month
    """
    if model.kind not in ("transformer", "gpt"):
        raise UserError("this run writes no text that an activation could be carried into")
    stack = "encoder" if model.kind == "transformer" else "decoder"
    if stack == "encoder":
        read = [[*model.tokenizers.source.encode(t), EOS] for t in (text, other)]
        inputs = rows_of(model, read[1], [BOS])
    else:
        read = [prompt_ids(model, t) for t in (text, other)]
        inputs = rows_of(model, read[1])
    check_lengths(model, *read)
    embeddings = "source_embeddings" if stack == "encoder" else "embeddings"
    names = [embeddings, *(f"{stack}.{n}.residual" for n in range(getattr(model.model, stack).depth))]
    if layer >= len(names) or position >= len(read[0]):
        raise UserError("there are {layers} layers and {n} tokens to carry from", len(names), len(read[0]))
    with record(model.model, names[layer]) as seen:
        model.model(*inputs)
        carried = seen[names[layer]][0, position]
    # The last token of a prompt is read by the first step of the search, after all others.
    last = stack == "decoder" and 0 < position == len(read[0]) - 1
    call, place = (1, 0) if last else (0, position)
    calls = itertools.count()

    def carry(value: Tensor) -> Tensor:
        if next(calls) != call:
            return value
        value = value.clone()
        value[:, place] = carried.to(value)
        return value

    with replace(model.model, names[layer], carry):
        answer, _unused = search(model, read[0], beam=None, new=NEW, tree=False)
    return "" if answer is None else model.tokenizers.target.decode(answer.ids)
