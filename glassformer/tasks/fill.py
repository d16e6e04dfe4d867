"""The words behind the masks of a text: by a BERT."""

from __future__ import annotations

import re
from collections.abc import Sequence

from glassformer.decode import predict
from glassformer.errors import ConfigError, UserError
from glassformer.tasks.results import Filled, Label
from glassformer.tasks.text_model import TextModel, as_list
from glassformer.text.tokenizer import CONTROL, MASK

MASK_MARKER = re.compile(r"\[MASK\]|_{3,}")


def masked_ids(model: TextModel, text: str) -> list[int]:
    """The ids of a text in which `[MASK]` or `___` stands for what is to be found. A space before a mask is part of the
    word behind it where the tokens of a vocabulary begin with their space."""
    tokenizer = model.tokenizers.target
    parts = MASK_MARKER.split(text)
    if len(parts) == 1:
        raise UserError("the text has no mask to fill; write [MASK] or ___ where a word is to be found")
    ids: list[int] = []
    for number, part in enumerate(parts):
        last = number == len(parts) - 1
        if not last and tokenizer.starts_with_space:
            part = part.removesuffix(" ")
        ids += tokenizer.encode_inside(part) if number else tokenizer.encode(part)
        ids += [] if last else [MASK]
    return ids


def fill(model: TextModel, texts: Sequence[str], *, top: int = 5) -> list[Filled]:
    """For each text, the `top` likeliest words for each of its masks (`[MASK]` or `___`). A text longer than the model reads at
    once is read in overlapping windows (data/examples.py)."""
    model.require("fill")
    if top < 1:
        raise ConfigError("top must be at least 1, not {top}", top)
    ids = [masked_ids(model, text) for text in as_list(texts)]
    never, target = range(CONTROL), model.tokenizers.target
    cut = model.windows(ids)
    masks: list[list[list[Label]]] = [[] for _ in ids]
    filled = [list(own) for own in ids]
    answers = predict.fill(model._model, [row for _, _, row in cut], mask=MASK, top=top, never=never)
    for (number, window, _), fillings in zip(cut, answers, strict=True):
        for filling in fillings:
            place = window.start + filling.place - 1  # BOS is before the window
            if window.first <= place < window.last:
                filled[number][place] = filling.ids[0]
                likeliest = zip(target.pieces(filling.ids), filling.probabilities, strict=True)
                masks[number].append([Label(word, p) for word, p in likeliest])
    return [Filled(target.decode(own), found) for own, found in zip(filled, masks, strict=True)]
