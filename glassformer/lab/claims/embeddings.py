"""Are like words near each other, with positive dot products, and unlike ones negative? Embeddings of a trained model."""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import Tensor

from glassformer.lab.claims.lab import Fit, padded, train
from glassformer.lab.claims.study import Effort, Measured, Results, Settings, Study, StudyResult, Table, grid
from glassformer.lab.claims.verdict import larger
from glassformer.lab.claims.words import Words
from glassformer.models import GPT
from glassformer.plots.panels import BarPanel, panels

LIKE = {
    "pronouns": ["i", "you", "he", "she", "we", "they"],
    "numbers": ["two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"],
    "weekdays": ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"],
    "colours": ["red", "blue", "green", "white", "black", "yellow"],
    "family": ["mother", "father", "sister", "brother", "son", "daughter"],
}


def words_of(text: str) -> list[str]:
    """Lower-case words without their punctuation."""
    return [word.strip(".,!?;:\"'") for word in text.lower().split()]


def plan(effort: Effort) -> list[Settings]:
    """The embedding table used twice (tied to the output), and once."""
    return grid(effort, tied=[True, False])


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


def trial(effort: Effort, tied: bool, seed: int) -> Measured:
    """A word-level GPT on the English side of the phrasebook; then its table is looked at."""
    from glassformer.data.builtin.phrases import open_phrases

    lines = [words_of(target) for _, target in open_phrases("zh-en", "train", effort.steps(20_000), seed=1)]
    number = {word: 3 + i for i, word in enumerate(sorted({word for line in lines for word in line}))}
    rows = [[1, *(number[word] for word in line), 2] for line in lines]
    model = GPT(n_layer=2, n_head=4, n_embd=64, vocab_size=len(number) + 3, block_size=64, dropout=0.1, tie_output=tied)
    draw = torch.Generator().manual_seed(seed)

    def loss(_: int) -> tuple[Tensor, int]:
        some = [rows[i][:64] for i in torch.randint(len(rows), (64,), generator=draw).tolist()]
        count = sum(len(row) - 1 for row in some)
        return model.loss(padded(some), lengths=[len(row) for row in some]) * count, count

    losses = train(model, loss, Fit(effort.steps(900)))
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


def judge(results: Results) -> StudyResult:
    """Like words nearer than unlike; positive and negative as the texts draw it."""
    conditions, rows = [], []
    for tied in results.options("tied"):
        name = ("tied to the output", "与输出层共享") if tied else ("not tied", "不共享")
        own = {"tied": tied}
        half = [50.0] * len(results.values("loss", **own))
        conditions += [
            larger(
                Words(f"{name[0]}: like words are nearer than unlike ones", f"{name[1]}：相似词更近"),
                results.values("like_raw", **own),
                results.values("unlike_raw", **own),
                margin=0.1,
            ),
            larger(
                Words(f"{name[0]}: most unlike words have a negative product", f"{name[1]}：多数不相似词的点积为负"),
                results.values("unlike_negative_raw", **own),
                half,
                margin=25.0,
                unit="%",
            ),
            larger(
                Words(f"{name[0]}: most like words have a positive product", f"{name[1]}：多数相似词的点积为正"),
                results.values("like_positive_raw", **own),
                half,
                margin=25.0,
                unit="%",
            ),
        ]
        for kind in ("raw", "centred"):
            rows.append(
                (
                    name[0],
                    kind,
                    *(
                        results.spoken(f"{key}_{kind}", digits, **own)
                        for key, digits in (
                            ("like", 2),
                            ("unlike", 2),
                            ("like_positive", 0),
                            ("unlike_negative", 0),
                            ("nearest", 0),
                        )
                    ),
                )
            )
    columns = ("table", "vectors", "cosine, like", "unlike", "like > 0, %", "unlike < 0, %", "nearest is alike, %")
    groups = ", ".join(LIKE)
    return StudyResult((Table(f"Groups of like words: {groups}", columns, tuple(rows)),), tuple(conditions))


def draw(results: Results) -> Any:
    """Mean cosines, like and unlike."""
    names = {True: "tied", False: "not tied"}
    tied = results.options("tied")
    bars = {
        f"{which} words": [results.values(f"{which}_{kind}", tied=t) for t in tied for kind in ("raw", "centred")]
        for which in ("like", "unlike")
    }
    return panels(
        [
            BarPanel(
                "cosine of embeddings",
                "mean cosine",
                [f"{names[t]}\n{kind}" for t in tied for kind in ("raw", "centred")],
                bars,
            )
        ],
        across=1,
    )


STUDY = Study(
    name="embeddings",
    claim=Words(
        "In a trained embedding table like words have positive dot products and unlike ones negative.",
        "训练好的词嵌入中，相似词点积为正，不相似词点积为负。",
    ),
    said_by="tutorials that introduce embeddings by a picture of king and queen",
    minutes=2,
    plan=plan,
    trial=trial,
    judge=judge,
    draw=draw,
)
