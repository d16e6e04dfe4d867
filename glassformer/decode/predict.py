"""What a BERT answers: the words behind the masks, the class of a sentence, the tag of every token.

Nothing is searched: each answer is read off one pass. Ids come as the model was trained to see them; a class is read off
the first of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from glassformer.errors import UserError
from glassformer.nn.modes import eval_mode
from glassformer.nn.rows import Rows


@dataclass(frozen=True)
class MaskPrediction:
    """The likeliest words for one mask, best first."""

    place: int
    ids: list[int]
    probabilities: list[float]


@torch.no_grad()
def predict(
    model: Any, sentences: Sequence[Sequence[int]], *, batch_size: int = 32
) -> Iterator[tuple[int, Float[Tensor, "T V"]]]:
    """(number of the sentence, log-probabilities at each of its places), in the order of length, no sentence empty."""
    with eval_mode(model):
        order = sorted((i for i in range(len(sentences)) if sentences[i]), key=lambda i: -len(sentences[i]))
        for start in range(0, len(order), batch_size):
            numbers = order[start : start + batch_size]
            rows = Rows.from_lists([sentences[i] for i in numbers]).to(next(model.parameters()).device)
            for i, logits in zip(numbers, model(rows)):
                yield i, logits[: len(sentences[i])].float().log_softmax(-1)


def need_head(model: Any, head: str, what: str) -> None:
    """Refuse in a sentence a model that was trained for something else."""
    family = model.config.family
    if model.config.head != head or not (family == "bert" or (family, head) == ("gpt", "classify")):
        kind = model.config.head if family == "bert" else family
        raise UserError("{what} needs a BERT with head={head!r}; this model is {found!r}", what, head, kind)


def fill(
    model: Any, sentences: Sequence[Sequence[int]], *, mask: int = 4, top: int = 5, never: Sequence[int] = range(5)
) -> list[list[MaskPrediction]]:
    """For every mask of every sentence the `top` likeliest words, without those that are `never` an answer."""
    need_head(model, "mlm", "filling in")
    out: list[list[MaskPrediction]] = [[] for _ in sentences]
    for i, logprobs in predict(model, sentences):
        scores = logprobs.clone()
        scores[:, [token for token in never if token < scores.size(1)]] = -torch.inf
        best = scores.topk(min(top, scores.size(1) - len(set(never))))
        for place, token in enumerate(sentences[i]):
            if token == mask:
                out[i].append(MaskPrediction(place, best.indices[place].tolist(), best.values[place].exp().tolist()))
    return out


def classify(model: Any, sentences: Sequence[Sequence[int]]) -> list[list[float]]:
    """The probability of every class, for every sentence (an empty one has none): a BERT's at its first token, a GPT's at its
    last."""
    need_head(model, "classify", "classifying")
    out: list[list[float]] = [[] for _ in sentences]
    for i, logprobs in predict(model, sentences):
        out[i] = logprobs[-1 if model.config.family == "gpt" else 0].exp().tolist()
    return out


def tag(model: Any, sentences: Sequence[Sequence[int]]) -> list[list[int]]:
    """The likeliest tag of every token."""
    need_head(model, "tag", "tagging")
    out: list[list[int]] = [[] for _ in sentences]
    for i, logprobs in predict(model, sentences):
        out[i] = logprobs.argmax(-1).tolist()
    return out
