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
        ids += tokenizer.encode(part) + ([] if last else [MASK])
    if len(ids) > model.max_text_tokens:
        raise UserError(
            "the text has {n_ids} tokens, and this model reads {max_text_tokens} at once; shorten it",
            len(ids),
            model.max_text_tokens,
        )
    return ids


def fill(model: TextModel, texts: Sequence[str], *, top: int = 5) -> list[Filled]:
    """For each text, the `top` likeliest words for each of its masks (`[MASK]` or `___`)."""
    model.require("fill")
    if top < 1:
        raise ConfigError("top must be at least 1, not {top}", top)
    rows = [model.with_special_tokens(masked_ids(model, text)) for text in as_list(texts)]
    never, target = range(CONTROL), model.tokenizers.target
    out = []
    for ids, fillings in zip(rows, predict.fill(model._model, rows, mask=MASK, top=top, never=never), strict=True):
        whole = list(ids)
        for filling in fillings:
            whole[filling.place] = filling.ids[0]
        masks = [
            [Label(word, p) for word, p in zip(target.pieces(f.ids), f.probabilities, strict=True)] for f in fillings
        ]
        out.append(Filled(target.decode(whole), masks))
    return out
