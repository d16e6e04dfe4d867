"""An answer written anew with one activation of another text in it: activation patching, cell by cell.

    carried_answer(model, "4 June 1987", "4 July 1987", layer=1, position=2)        # 1987-07-04, if that cell carries the month

`patching.patch` measures how far each such cell turns one answer into the other; here the model goes on with it.
"""

from __future__ import annotations

import itertools
import re

import torch
from torch import Tensor

from glassformer.errors import UserError
from glassformer.inspection.inspection import NEW
from glassformer.inspection.patching import check_lengths
from glassformer.inspection.search import search
from glassformer.nn.rows import Rows
from glassformer.probe import record, replace, tap_names
from glassformer.tasks import TextModel
from glassformer.tasks.generate import prompt_ids
from glassformer.text.tokenizer import BOS, EOS


@torch.no_grad()
def carried_answer(model: TextModel, text: str, other: str, layer: int, position: int) -> str:
    """What the model writes to `text` when one activation of `other` stands in it: that of a position of the text after `layer`
    blocks of the stack that reads it (0: its embedding). It is put there once, while the text is read."""
    if model.kind not in ("transformer", "gpt"):
        raise UserError("this run writes no text that an activation could be carried into")
    stack = "encoder" if model.kind == "transformer" else "decoder"
    if stack == "encoder":
        read = [[*model.tokenizers.source.encode(t), EOS] for t in (text, other)]
    else:
        read = [prompt_ids(model, t) for t in (text, other)]
    check_lengths(model, *read)
    inputs = [
        Rows.from_lists([ids]).to(model.device) for ids in ([read[1], [BOS]] if stack == "encoder" else [read[1]])
    ]
    names = [
        "source_embeddings" if stack == "encoder" else "embeddings",
        *(name for name in tap_names(model.model) if re.fullmatch(rf"{stack}\.\d+\.residual", name)),
    ]
    if layer >= len(names) or position >= len(read[0]):
        raise UserError("there are {layers} layers and {n} tokens to carry from", len(names), len(read[0]))
    with record(model.model, names[layer]) as seen:
        model.model(*inputs)
        there = seen[names[layer]][0, position]
    # The last token of a prompt is read by the first step of the search, after all others.
    last = stack == "decoder" and 0 < position == len(read[0]) - 1
    call, place = (1, 0) if last else (0, position)
    calls = itertools.count()

    def carry(value: Tensor) -> Tensor:
        if next(calls) != call:
            return value
        value = value.clone()
        value[:, place] = there.to(value)
        return value

    with replace(model.model, names[layer], carry):
        said, _unused = search(model, read[0], beam=None, new=NEW, tree=False)
    return "" if said is None else model.tokenizers.target.decode(said.ids)
