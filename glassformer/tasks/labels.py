"""What a model that reads answers: the label of a text, the label of each word, the words behind masks. Nothing is searched: each
answer is read off one pass.

A text longer than the model has learned to read is read in overlapping windows (data/examples.py).
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from glassformer.data.builtin.dates import date_tokens
from glassformer.errors import ConfigError, UserError
from glassformer.nn.modes import eval_mode
from glassformer.nn.rows import Rows
from glassformer.tasks.results import Filled, Label, Tagged
from glassformer.tasks.text_model import TextModel, as_list
from glassformer.text.tokenizer import CONTROL, MASK

MASK_MARKER = re.compile(r"\[MASK\]|_{3,}")
BATCH_SIZE = 32  # rows that are read together


@torch.no_grad()
def log_probabilities(model: TextModel, rows: Sequence[Sequence[int]]) -> Iterator[tuple[int, Float[Tensor, "T V"]]]:
    """The number of each row, the longest first, with the log-probabilities at each of its positions."""
    net = model._model
    with eval_mode(net):
        order = sorted(range(len(rows)), key=lambda number: -len(rows[number]))
        for start in range(0, len(order), BATCH_SIZE):
            numbers = order[start : start + BATCH_SIZE]
            batch = Rows.from_lists([rows[number] for number in numbers]).to(model.device)
            for number, logits in zip(numbers, net(batch)):
                yield number, logits[: len(rows[number])].float().log_softmax(-1)


def classify(model: TextModel, texts: Sequence[str]) -> list[list[Label]]:
    """For each text all labels, the likeliest first. Of a text of several windows their mean, each weighing as much as the tokens
    it answers for. A BERT's class is read off its first token, a GPT's off its last."""
    model.require("classify")
    cut = model.windows(model.tokenizers.target.encode_batch(as_list(texts)))
    place = -1 if model._model.config.family == "gpt" else 0
    chances = {row: logs[place].exp().tolist() for row, logs in log_probabilities(model, [ids for _, _, ids in cut])}
    weights = [max(1, window.last - window.first) for _, window, _ in cut]
    totals = Counter[int]()
    for (number, _, _), weight in zip(cut, weights, strict=True):
        totals[number] += weight
    labels = model.tokenizers.labels
    means = [[0.0] * len(labels) for _ in texts]
    for row, (number, _, _) in enumerate(cut):
        share = weights[row] / totals[number]  # 1.0 where there is one window
        means[number] = [mean + share * chance for mean, chance in zip(means[number], chances[row], strict=True)]
    answers = [[Label(label, mean) for label, mean in zip(labels, of_text, strict=True)] for of_text in means]
    return [sorted(answer, key=lambda label: -label.probability) for answer in answers]


def words_of(model: TextModel, line: str) -> list[str]:
    """A line typed by a person, cut as the training lines were."""
    return date_tokens(line) if model.recipe.data.builtin == "date-parts" else line.split()


def tag(model: TextModel, sentences: Sequence[str | Sequence[str]]) -> list[list[Tagged]]:
    """For each sentence (its words, or a line that is cut into words) the likeliest label of each word."""
    model.require("tag")
    lines = as_list(sentences)
    for line in lines:
        if not isinstance(line, str | list | tuple):
            raise UserError("a sentence is a line or a list of words, not {kind}", type(line).__name__)
    words = [words_of(model, line) if isinstance(line, str) else list(line) for line in lines]
    encode = model.tokenizers.target.encode_batch
    stand_in = encode(["?"])[0]
    pieces = [[ids or stand_in for ids in encode(of_sentence)] for of_sentence in words]
    cut = model.windows([[token for ids in of_sentence for token in ids] for of_sentence in pieces])
    best: dict[int, tuple[list[float], list[int]]] = {}
    for row, logprobs in log_probabilities(model, [ids for _, _, ids in cut]):
        likeliest = logprobs.exp().max(-1)
        best[row] = likeliest.values.tolist(), likeliest.indices.tolist()
    out: list[list[Tagged]] = [[] for _ in words]
    for row, (number, window, _) in enumerate(cut):
        probabilities, labels = best[row]
        places = itertools.accumulate(map(len, pieces[number]), initial=0)  # where each word begins
        for word, place in zip(words[number], places, strict=False):
            if window.first <= place < window.last:
                at = place - window.start + 1  # BOS is before the window
                out[number].append(Tagged(word, model.tokenizers.labels[labels[at]], probabilities[at]))
    return out


def masked_ids(model: TextModel, text: str) -> list[int]:
    """The ids of a text in which `[MASK]` or `___` stands for what is to be found. A space before a mask belongs to the word
    behind it where the tokens of a vocabulary begin with their space."""
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
    """For each text, the `top` likeliest words for each of its masks (`[MASK]` or `___`)."""
    model.require("fill")
    if top < 1:
        raise ConfigError("top must be at least 1, not {top}", top)
    target = model.tokenizers.target
    filled = [masked_ids(model, text) for text in as_list(texts)]
    cut = model.windows(filled)
    words: list[dict[int, list[Label]]] = [{} for _ in filled]  # of each text, by the place of the mask
    for row, logprobs in log_probabilities(model, [ids for _, _, ids in cut]):
        number, window, ids = cut[row]
        logprobs[:, :CONTROL] = -torch.inf
        best = logprobs.topk(min(top, logprobs.size(1) - CONTROL))
        for at, token in enumerate(ids):
            place = window.start + at - 1  # BOS is before the window
            if token == MASK and window.first <= place < window.last:
                tokens = best.indices[at].tolist()
                likeliest = zip(target.pieces(tokens), best.values[at].exp().tolist(), strict=True)
                words[number][place] = [Label(word, probability) for word, probability in likeliest]
                filled[number][place] = tokens[0]
    return [
        Filled(target.decode(ids), [labels for _, labels in sorted(by_place.items())])
        for ids, by_place in zip(filled, words, strict=True)
    ]


def unknown(model: TextModel, text: str) -> list[str]:
    """The words or characters of a text that are not in the model's vocabulary, as the model's own verb would read it."""
    parts = [model.as_learned(text)]
    if model.verb == "fill":
        parts = MASK_MARKER.split(text)
    elif model.verb == "tag":
        parts = words_of(model, text)
    pieces = (piece for part in parts for piece in model.tokenizers.source.unknown_pieces(part))
    return list(dict.fromkeys(pieces))
