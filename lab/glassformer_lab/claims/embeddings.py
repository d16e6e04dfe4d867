"""Are like words near each other, with positive dot products, and unlike ones negative? Embeddings of a trained model."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor

from glassformer.models import GPT
from glassformer_lab.claims.claim import Budget, Measured
from glassformer_lab.claims.training import TrainArgs, drawn, padded, train

LIKE = {
    "pronouns": ["i", "you", "he", "she", "we", "they"],
    "numbers": ["two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"],
    "weekdays": ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"],
    "colours": ["red", "blue", "green", "white", "black", "yellow"],
    "family": ["mother", "father", "sister", "brother", "son", "daughter"],
}


def similarities(table: Tensor, number: dict[str, int], centred: bool) -> tuple[list[float], list[float], float]:
    """Cosines inside the groups of like words, cosines across them, and how often a word's nearest of all group words is one
    of its own group, in percent."""
    groups = {name: [w for w in words if w in number] for name, words in LIKE.items()}
    words = [(name, word) for name, some in groups.items() for word in some]
    vectors = table - table.mean(0) if centred else table
    rows = torch.stack([vectors[number[word]] for _, word in words])
    cosine = torch.nn.functional.cosine_similarity(rows[:, None], rows[None], dim=-1)
    like: list[float] = []
    unlike: list[float] = []
    for (i, (a, _)), (j, (b, _)) in itertools.combinations(enumerate(words), 2):
        (like if a == b else unlike).append(float(cosine[i, j]))
    cosine.fill_diagonal_(-2)
    nearest = cosine.argmax(-1).tolist()
    return like, unlike, 100 * sum(words[i][0] == words[j][0] for i, j in enumerate(nearest)) / len(words)


def trial(budget: Budget, tied: bool, seed: int) -> Measured:
    """A word-level GPT on the English side of the phrasebook; then its table is looked at."""
    from glassformer.data.builtin.phrases import open_phrases

    pairs = open_phrases("zh-en", "train", budget.steps(20_000), seed=1)
    lines = [[word.strip(".,!?;:\"'") for word in target.lower().split()] for _, target in pairs]
    number = {word: 3 + i for i, word in enumerate(sorted({word for line in lines for word in line}))}
    rows = [[1, *(number[word] for word in line), 2] for line in lines]
    model = GPT(n_layer=2, n_head=4, n_embd=64, vocab_size=len(number) + 3, block_size=64, dropout=0.1, tie_output=tied)
    generator = torch.Generator().manual_seed(seed)

    def loss() -> tuple[Tensor, int]:
        some = [rows[i][:64] for i in drawn(0, len(rows), 64, generator)]
        lengths = [len(row) for row in some]
        count = sum(lengths) - len(lengths)
        return model.loss(padded(some), lengths=lengths) * count, count

    losses = train(model, loss, TrainArgs(budget.steps(900)))
    found: Measured = {"loss": sum(losses[-20:]) / len(losses[-20:])}
    for name, centred in (("raw", False), ("centred", True)):
        like, unlike, nearest = similarities(model.embedding.weight.detach(), number, centred)
        found |= {
            f"like_{name}": sum(like) / len(like),
            f"unlike_{name}": sum(unlike) / len(unlike),
            f"like_positive_{name}": 100 * sum(v > 0 for v in like) / len(like),
            f"unlike_negative_{name}": 100 * sum(v < 0 for v in unlike) / len(unlike),
            f"nearest_{name}": nearest,
        }
    return found
