"""`model.run_with_cache(text)`: a text through a model with every activation kept, in one line."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Generic, TypeVar

from torch import Tensor

from glassformer import tasks
from glassformer.errors import UserError
from glassformer.models import Transformer
from glassformer.nn.rows import Rows
from glassformer.probe import ByName, run_with_cache
from glassformer.tasks import TextModel
from glassformer.tasks.generate import prompt_ids
from glassformer.text.tokenizer import BOS, EOS

Pieces = TypeVar("Pieces", list[str], list[list[str]])


class ActivationCache(ByName[Tensor], Generic[Pieces]):
    """Activations by their names, and the tokens of both sides as they can be read: of one text, or of each of a list."""

    def __init__(self, found: dict[str, Tensor], tokens: Pieces, source_tokens: Pieces) -> None:
        super().__init__(found)
        self.tokens: Pieces = tokens
        self.source_tokens: Pieces = source_tokens

    def __repr__(self) -> str:
        many = any(isinstance(piece, list) for piece in self.tokens)
        over = f"{len(self.tokens)} texts" if many else repr(" ".join(map(str, self.tokens)))
        return f"ActivationCache of {len(self)} activations over {over}"


def model_inputs(model: TextModel, text: str, target: str | None) -> tuple[list[int], list[int]]:
    """The ids that the model reads of a text, and, for an encoder-decoder, of the source beside it. Where a text is answered
    by a text, the answer is `target`, or what the model itself would say."""
    if model.verb != "translate":
        if target is not None:
            raise UserError("a target is the translation of a text, and this model translates none; leave it out")
        if model.verb == "generate":
            return prompt_ids(model, text), []
        return model.with_special_tokens(model.tokenizers.target.encode(text)), []
    answer = tasks.translations(model, [text])[0] if target is None else target
    written = model.tokenizers.target.encode(answer)
    if isinstance(model.model, Transformer):
        return [BOS, *written], [*model.tokenizers.source.encode(text), EOS]
    return [*prompt_ids(model, text), *written], []


def texts_with_cache(
    model: TextModel, texts: Sequence[str], targets: Sequence[str] | None = None, names: str | Sequence[str] = "*"
) -> tuple[Tensor, ActivationCache[list[list[str]]]]:
    """The logits of texts, a row each, and every activation whose name matches. Behind the tokens of a shorter text there is
    padding, whose activations mean nothing."""
    if not texts:
        raise UserError("there is no text to run; give at least one")
    if targets is not None and len(targets) != len(texts):
        raise UserError(
            "there are {n_texts} texts and {n_targets} targets; they go together one by one", len(texts), len(targets)
        )
    answers: Sequence[str | None] = targets or [None] * len(texts)
    ids, sources = zip(*map(partial(model_inputs, model), texts, answers), strict=True)
    inputs: list[Any] = [Rows.from_lists(side).to(model.device) for side in (sources, ids) if any(side)]
    logits, found = run_with_cache(model.model, *inputs, names=names)
    tokens = [model.tokenizers.target.pieces(row) for row in ids]
    return logits, ActivationCache(found, tokens, [model.tokenizers.source.pieces(row) for row in sources])
