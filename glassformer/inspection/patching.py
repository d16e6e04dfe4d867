"""Which layer and position carries the answer: two inputs that differ in one thing, and what a model says of each.

    model = glassformer.load("runs/dates")
    found = patch(model, "4 June 1987", "4 July 1987")
    draw(found, Path("month"))              # month.png, month.svg

The first place where the two answers differ is looked at: 1987-0|6 and 1987-0|7. Activations of the run on the second
input are put into the run on the first, one layer and one position at a time, and the number that is read off is by how
much the model then leans to the second answer (the difference of the two tokens' log-probabilities): 0 as before, 1 as
if it had read the second input. Column by column one sees the month being read where it stands, and row by row where it
goes. (probe.effect_map does the work; this file knows how text becomes rows.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from glassformer import plots
from glassformer.errors import UserError
from glassformer.nn.rows import Rows
from glassformer.probe import effect_map
from glassformer.tasks import TextModel, translations
from glassformer.tasks.generate import prompt_ids
from glassformer.text.tokenizer import BOS, EOS


@dataclass(frozen=True)
class Panel:
    """One text of the model: a row for each layer (the embeddings first), a column for each of its tokens."""

    name: str
    stack: str  # the text it is: source or read
    effects: np.ndarray
    layers: list[str]
    tokens: list[str]


@dataclass(frozen=True)
class PatchResult:
    """Two texts, their answers, and how far each patched activation turned one into the other."""

    texts: tuple[str, str]
    answers: tuple[str, str]
    panels: list[Panel]


def first_difference(first: Sequence[int], second: Sequence[int]) -> int:
    """The first place where two lists differ."""
    return next(
        (i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), min(len(first), len(second))
    )


def check_lengths(model: TextModel, first: Sequence[int], second: Sequence[int]) -> None:
    """Patching goes position by position, so both texts must have the same number of tokens."""
    if len(first) != len(second):
        raise UserError(
            "the two texts have {n_first} and {n_second} tokens; patching goes position by position, so choose "
            "two of the same number",
            len(first),
            len(second),
        )


def patch(model: TextModel, text: str, other: str) -> PatchResult:
    """For an encoder-decoder (the answers are what it writes), a GPT (the token it would say next) and a classifier."""
    if model.kind == "transformer":
        return patch_pair(model, text, other)
    if model.kind not in ("gpt", "classify"):
        raise UserError(
            "patching is shown for models that translate, generate or classify, not for {model_kind}", model.kind
        )
    encode = model.tokenizers.target.encode
    rows = [
        model.with_special_tokens(encode(t)) if model.kind == "classify" else prompt_ids(model, t)
        for t in (text, other)
    ]
    check_lengths(model, *rows)
    inputs = [(Rows.from_lists([ids]).to(model.device),) for ids in rows]
    place = 0 if model.model.config.family == "bert" else -1
    with torch.no_grad():
        said = [int(model.model(*own)[0, place].argmax()) for own in inputs]
    if model.kind == "classify":
        answers = model.tokenizers.labels[said[0]], model.tokenizers.labels[said[1]]
    else:
        pieces = model.tokenizers.target.pieces(said)
        answers = pieces[0], pieces[1]
    if said[0] == said[1]:
        raise UserError("both texts are answered by {wrote!r}; choose two that are answered differently", answers[0])
    maps = effects(model, inputs[0], inputs[1], place, said[0], said[1])
    return PatchResult((text, other), answers, [panel("text", "read", maps, model.tokenizers.target.pieces(rows[0]))])


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
    inputs = [
        (Rows.from_lists([source]).to(model.device), Rows.from_lists([target]).to(model.device)) for source in sources
    ]
    maps = effects(model, inputs[0], inputs[1], -1, targets[0][place], targets[1][place])
    reading = {k: v for k, v in maps.items() if k.startswith(("source", "encoder"))}
    writing = {k: v for k, v in maps.items() if k.startswith(("target", "decoder"))}
    return PatchResult(
        (text, other),
        (wrote[0], wrote[1]),
        [
            panel("encoder, over the source", "source", reading, model.tokenizers.source.pieces(sources[0])),
            panel("decoder, over what is written so far", "read", writing, model.tokenizers.target.pieces(target)),
        ],
    )


def effects(
    model: TextModel, inputs: Sequence[Rows], others: Sequence[Rows], place: int, first: int, second: int
) -> dict[str, Tensor]:
    """By how much each patched activation moves the scores from the first answer to the second, layer by position."""

    def leaning(logits: Tensor) -> Tensor:
        log_p = logits[:, place].float().log_softmax(-1)
        return log_p[:, second] - log_p[:, first]

    return effect_map(model, inputs, others, leaning).maps


def panel(name: str, stack: str, maps: dict[str, Tensor], tokens: list[str]) -> Panel:
    """One stack's effects with their labels."""
    layers = ["embeddings" if "embeddings" in key else f"after layer {key.split('.')[1]}" for key in maps]
    return Panel(name, stack, torch.stack(list(maps.values())).numpy(), layers, tokens)


def draw(found: PatchResult, stem: Path) -> list[Path]:
    """The effects as a figure; the files it is in."""
    first, second = (f"{text} → {plots.visible(said)}" for text, said in zip(found.texts, found.answers, strict=True))
    title = f"{first}   with activations of\n{second}"
    panels = [(p.name, p.effects, p.layers, p.tokens) for p in found.panels]
    return plots.save(plots.effects(panels, title), stem)
