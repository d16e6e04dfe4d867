"""`model.run_with_cache(text)`: a text through a model with every activation kept, in one line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from glassformer import tasks
from glassformer.models import Transformer
from glassformer.nn.rows import Rows
from glassformer.probe import run_with_cache
from glassformer.tasks import TextModel
from glassformer.tasks.generate import prompt_ids
from glassformer.text.tokenizer import BOS, EOS


class ActivationCache(dict[str, Tensor]):
    """Activations by their names, and the tokens of both sides as they can be read."""

    def __init__(self, found: dict[str, Tensor], tokens: list[str], source_tokens: list[str]) -> None:
        super().__init__(found)
        self.tokens, self.source_tokens = tokens, source_tokens

    def __repr__(self) -> str:
        return f"ActivationCache of {len(self)} activations over {' '.join(self.tokens)!r}"


def model_inputs(model: TextModel, text: str, target: str | None) -> tuple[list[int], list[int]]:
    """The ids that the model reads of a text, and, for an encoder-decoder, of the source beside it. Where a text is answered
    by a text, the answer is `target`, or what the model itself would say."""
    if model.verb != "translate":
        ids = (
            prompt_ids(model, text) if model.verb == "generate" else model.framed(model.tokenizers.target.encode(text))
        )
        return ids, []
    answer = tasks.translations(model, [text])[0] if target is None else target
    written = model.tokenizers.target.encode(answer)
    if isinstance(model.model, Transformer):
        return [BOS, *written], [*model.tokenizers.source.encode(text), EOS]
    return [*prompt_ids(model, text), *written], []


def text_with_cache(
    model: TextModel, text: str, target: str | None = None, names: str | Sequence[str] = "*"
) -> tuple[Tensor, ActivationCache]:
    """The logits of a text, and every activation whose name matches."""
    ids, source = model_inputs(model, text, target)
    inputs: list[Any] = [Rows.from_lists([own]).to(model.device) for own in (source, ids) if own]
    logits, found = run_with_cache(model.model, *inputs, names=names)
    pieces = model.tokenizers.target.pieces(ids)
    return logits, ActivationCache(found, pieces, model.tokenizers.source.pieces(source))
