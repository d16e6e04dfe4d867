"""Small tasks and a plain training loop, for the trials of studies: every model of nn/ and models/ in a minute or less.

Tasks give pairs as tensors, fresh from a seed, so that nothing is learned by heart: token 0 is padding, 1 begins and 2 ends a
target, words begin at 3. An answer is right if every token of it is the likeliest one after the right tokens before it;
that is so exactly when greedy decoding writes the whole answer, so no decoding is needed to count them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

import torch
from jaxtyping import Int
from torch import Tensor, nn

from glassformer.models import GPT
from glassformer.nn.loss import IGNORE
from glassformer.training.optim import Muon, parameter_groups
from glassformer_lab.claims.steps import GraphSteps, Steps, set_rate

PAD, BEGIN, END, FIRST = 0, 1, 2, 3
M = TypeVar("M", bound=nn.Module)


@dataclass(frozen=True)
class PairBatch:
    """A batch of pairs: sources, targets as the decoder reads them (they begin with BEGIN), and what it should say."""

    source: Int[Tensor, "B S"]
    source_lengths: list[int]
    target: Int[Tensor, "B T"]
    target_lengths: list[int]
    labels: Int[Tensor, "B T"]

    def part(self, first: int, last: int) -> PairBatch:
        """Some of the pairs."""
        own = slice(first, last)
        return PairBatch(
            self.source[own], self.source_lengths[own], self.target[own], self.target_lengths[own], self.labels[own]
        )

    @property
    def tokens(self) -> int:
        """Labels to learn from."""
        return int((self.labels != IGNORE).sum())


def padded(rows: Sequence[Sequence[int]], fill: int = PAD) -> Int[Tensor, "B T"]:
    """Rows of different lengths as one tensor."""
    longest = max(map(len, rows))
    return torch.tensor([[*row, *[fill] * (longest - len(row))] for row in rows])


def make_pairs(sources: Sequence[Sequence[int]], answers: Sequence[Sequence[int]]) -> PairBatch:
    """Pairs of token lists as a batch."""
    targets = [[BEGIN, *answer] for answer in answers]
    labels = [[*answer, END] for answer in answers]
    return PairBatch(
        padded(sources), [len(s) for s in sources], padded(targets), [len(t) for t in targets], padded(labels, IGNORE)
    )


def drawn(low: int, high: int, count: int, draw: torch.Generator) -> list[int]:
    """So many whole numbers from low to high - 1; the same on every device."""
    return torch.randint(low, high, (count,), generator=draw, device=draw.device).tolist()  # type: ignore[no-any-return]


cut_words = re.compile(r" ?[A-Za-z]+|.").findall
"""Cuts a text into words of Latin letters (with the space before them) and single other characters."""

ANSWERS: dict[str, Callable[[list[int]], list[int]]] = {"copy": list, "reverse": lambda row: row[::-1], "sort": sorted}


@dataclass(frozen=True)
class Letters:
    """Rows of random letters, to be copied, reversed or sorted.

    >>> Letters("reverse", 3, 3).batch(2, torch.Generator().manual_seed(0)).source.shape
    torch.Size([2, 3])
    """

    what: str
    shortest: int
    longest: int
    words: int = 24

    @property
    def vocabulary(self) -> int:
        """How many tokens there are, the three special ones included."""
        return self.words + FIRST

    def batch(self, count: int, draw: torch.Generator) -> PairBatch:
        """So many fresh examples."""
        lengths = drawn(self.shortest, self.longest + 1, count, draw)
        letters = iter(drawn(FIRST, self.vocabulary, sum(lengths), draw))
        rows = [[next(letters) for _ in range(n)] for n in lengths]
        return make_pairs(rows, [ANSWERS[self.what](row) for row in rows])

    def test(self, count: int = 500, seed: int = 0) -> PairBatch:
        """Examples drawn for testing, others for every seed."""
        return self.batch(count, torch.Generator().manual_seed(987_654_321 + seed))

    def val(self, count: int = 500, seed: int = 0) -> PairBatch:
        """Others, to choose by."""
        return self.batch(count, torch.Generator().manual_seed(123_456_789 + seed))


class Strings:
    """Pairs of texts, such as written dates and ISO dates, cut by `cut`: every character is a token, or, with cut_words, every
    word of Latin letters is one too. `batch` draws from those for training."""

    def __init__(
        self,
        train: Sequence[tuple[str, str]],
        test: Sequence[tuple[str, str]],
        cut: Callable[[str], Sequence[str]] = list,
    ) -> None:
        pieces = sorted({piece for pair in [*train, *test] for text in pair for piece in cut(text)})
        self.number = {piece: FIRST + i for i, piece in enumerate(pieces)}
        self.train, self.held_out, self.cut = train, test, cut

    @property
    def vocabulary(self) -> int:
        """How many tokens there are, the three special ones included."""
        return len(self.number) + FIRST

    def ids(self, text: str) -> list[int]:
        """A text as tokens."""
        return [self.number[piece] for piece in self.cut(text)]

    def pairs(self, examples: Sequence[tuple[str, str]]) -> PairBatch:
        """These examples as a batch."""
        sides = [
            [[self.number[piece] for piece in self.cut(text)] for text in side] for side in zip(*examples, strict=True)
        ]
        return make_pairs(*sides)

    def batch(self, count: int, draw: torch.Generator) -> PairBatch:
        """So many examples for training, drawn at random."""
        return self.pairs([self.train[i] for i in drawn(0, len(self.train), count, draw)])

    def test(self, count: int = 500, seed: int = 0) -> PairBatch:
        """So many of those that were held out, drawn by the seed; three quarters of them at most, the others are `val`."""
        order = self.order(seed)
        return self.pairs([self.held_out[i] for i in order[: min(count, 3 * len(order) // 4)]])

    def val(self, count: int = 500, seed: int = 0) -> PairBatch:
        """Others, to choose by."""
        order = self.order(seed)
        return self.pairs([self.held_out[i] for i in order[3 * len(order) // 4 :][:count]])

    def order(self, seed: int) -> list[int]:
        """The held-out examples in an order drawn by the seed."""
        draw = torch.Generator().manual_seed(seed)
        return torch.randperm(len(self.held_out), generator=draw, device="cpu").tolist()  # type: ignore[no-any-return]


def dates(count: int = 20_000, test: int = 1000) -> Strings:
    """The built-in dates; the days of the test are in no training example."""
    from glassformer.data.builtin.dates import date_pairs

    return Strings(list(date_pairs("train", count)), list(date_pairs("test", test)))


@cache
def phrases(direction: str = "zh-en", count: int = 20_000, test: int = 1000) -> Strings:
    """Sentences of the built-in phrasebook, by words and Chinese characters; those of the test combine words as no other does."""
    from glassformer.data.builtin.phrases import open_phrases

    train = list(open_phrases(direction, "train", count, seed=1))
    return Strings(train, list(open_phrases(direction, "test", test, seed=1)), cut_words)


def as_one_text(pairs: PairBatch) -> tuple[Int[Tensor, "B T"], list[int], Int[Tensor, "B T"]]:
    """Source and target in one row, for a decoder alone: ids, lengths, and labels for the answer only."""
    ids, labels = [], []
    for source, n, target, m, wanted in zip(
        pairs.source.tolist(), pairs.source_lengths, pairs.target.tolist(), pairs.target_lengths, pairs.labels.tolist()
    ):
        ids.append([*source[:n], *target[:m]])
        labels.append([*[IGNORE] * n, *wanted[:m]])
    return padded(ids), [len(row) for row in ids], padded(labels, IGNORE)


Inputs = Sequence[Tensor | list[int]]
"""A batch as a loss takes it. Ids that may be padded come with their lengths, a list; labels come last."""


def inputs_of(model: nn.Module, pairs: PairBatch) -> Inputs:
    """Pairs as a model's loss takes them: in one row for a decoder alone, both sides otherwise."""
    if isinstance(model, GPT):
        return as_one_text(pairs)
    return pairs.source, pairs.source_lengths, pairs.target, pairs.target_lengths, pairs.labels


def loss_of_inputs(model: nn.Module, *inputs: Any, **smoothing: float) -> Tensor:
    """The loss of all labels together, for an encoder-decoder or a decoder alone."""
    if isinstance(model, GPT):
        ids, lengths, labels = inputs
        return model.loss(ids, labels, lengths=lengths, **smoothing)
    source, source_lengths, target, target_lengths, labels = inputs
    lengths = {"source_lengths": source_lengths, "target_lengths": target_lengths}
    return model.loss(source, target, labels, **lengths, **smoothing)  # type: ignore[operator, no-any-return]


def summed_loss(model: nn.Module, pairs: PairBatch, **smoothing: float) -> Tensor:
    """The loss of all labels of these pairs together."""
    return loss_of_inputs(model, *inputs_of(model, pairs), **smoothing)


def scores_of(model: nn.Module, pairs: PairBatch) -> tuple[Tensor, Tensor]:
    """The scores after each token, and the labels they are held against."""
    if isinstance(model, GPT):
        ids, lengths, labels = as_one_text(pairs)
        return model(ids, lengths=lengths), labels
    return model(pairs.source, pairs.target, pairs.source_lengths, pairs.target_lengths), pairs.labels


@torch.no_grad()
def answer_scores(model: nn.Module, pairs: PairBatch, rows: int = 250) -> dict[str, float]:
    """In evaluation: the share of answers that greedy decoding would write without a mistake (`accuracy`) and of tokens that are
    the likeliest (`tokens`), in percent, and nats a token (`loss`)."""
    model.eval()
    whole = right = count = 0
    total = 0.0
    for first in range(0, len(pairs.source_lengths), rows):
        some = pairs.part(first, first + rows)
        logits, labels = scores_of(model, some)
        good = (logits.argmax(-1) == labels) | (labels == IGNORE)
        whole, right = whole + int(good.all(-1).sum()), right + int((good & (labels != IGNORE)).sum())
        total += float(nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum"))
        count += some.tokens
    model.train()
    return {
        "accuracy": 100 * whole / len(pairs.source_lengths),
        "tokens": 100 * right / count,
        "loss": total / count,
    }


def exact_match(model: nn.Module, pairs: PairBatch) -> float:
    """The share of answers that greedy decoding would write without a mistake, in percent."""
    return answer_scores(model, pairs)["accuracy"]


def held_out_scores(model: nn.Module, task: Letters | Strings, seed: int, count: int = 500) -> dict[str, float]:
    """The scores of the test, and the loss of other held-out examples by which a rate is chosen (`val`)."""
    return answer_scores(model, task.test(count, seed)) | {"val": answer_scores(model, task.val(count, seed))["loss"]}


def small(kind: type[M], **settings: Any) -> M:
    """A model of the size that most claims are tried at: four heads, 64 numbers a token, no dropout, unless told otherwise."""
    return kind(**{"n_head": 4, "n_embd": 64, "dropout": 0.0, **settings})


@dataclass(frozen=True)
class TrainArgs:
    """How a model is trained in a trial: AdamW, a rise and half a cosine, gradients of norm 1 at most. With a rate for `muon`
    the matrices of the layers learn by Muon, which needs far fewer steps where something has to be looked up."""

    steps: int
    rate: float = 2e-3
    warmup: int = 50
    batch: int = 64
    clip: float = 1.0
    muon: float = 0.0


def optimizers_of(model: nn.Module, args: TrainArgs) -> list[torch.optim.Optimizer]:
    """AdamW for all, or Muon for the matrices and AdamW for the rest."""
    groups = parameter_groups(model)
    matrices = [p for _, p in groups["matrices"]] if args.muon else []
    rest = [p for kind, own in groups.items() if kind != "matrices" or not args.muon for _, p in own]
    how: dict[str, Any] = {"lr": args.rate, "betas": (0.9, 0.98), "weight_decay": 0.0, "fused": True}
    found: list[torch.optim.Optimizer] = [torch.optim.AdamW(rest, **how, capturable=rest[0].is_cuda)]
    return [*found, Muon(matrices, lr=args.muon)] if matrices else found


def share_at(args: TrainArgs, step: int) -> float:
    """The share of its rate that a step has: linear to all of it in `warmup` steps, then down along half a cosine."""
    if step <= args.warmup:
        return step / max(1, args.warmup)
    done = (step - args.warmup) / max(1, args.steps - args.warmup)
    return 0.5 * (1 + math.cos(math.pi * done))


def train(
    model: nn.Module,
    draw: Callable[[], Inputs],
    loss: Callable[..., tuple[Tensor, int | Tensor]],
    args: TrainArgs,
    watch: Callable[[int], None] = lambda step: None,
) -> list[float]:
    """Trains by `loss(*draw())`, a summed loss and how many labels it is of; the mean loss of each step. `watch` is called while
    the gradients of a step are still there. A step whose loss is not finite ends it: it has diverged. On a GPU steps are
    replayed as graphs, but for recurrent layers, which are given their lengths on the host."""
    optimizers = optimizers_of(model, args)
    tops = [optimizer.param_groups[0]["lr"] for optimizer in optimizers]
    recurrent = any(isinstance(module, nn.RNNBase) for module in model.modules())
    on_graphs = next(model.parameters()).is_cuda and not recurrent
    steps = GraphSteps(model, loss, optimizers, args.clip) if on_graphs else Steps(model, loss, optimizers, args.clip)
    model.train()
    for step in range(1, args.steps + 1):
        for optimizer, top in zip(optimizers, tops, strict=True):
            set_rate(optimizer, top * share_at(args, step))
        steps.compute_gradients(draw())
        watch(step)
        if not steps.update():
            break
    return steps.finish()


def train_on(
    model: nn.Module, task: Letters | Strings, args: TrainArgs, seed: int, *, smoothing: float = 0.0, **watch: Any
) -> list[float]:
    """Trains on batches of a task, drawn by the seed."""
    options = {"smoothing": smoothing} if smoothing else {}
    generator = torch.Generator().manual_seed(1000 + seed)

    def draw() -> Inputs:
        with torch.device("cpu"):
            return inputs_of(model, task.batch(args.batch, generator))

    def loss(*inputs: Tensor) -> tuple[Tensor, Tensor]:
        return loss_of_inputs(model, *inputs, **options), (inputs[-1] != IGNORE).sum()

    return train(model, draw, loss, args, **watch)


def downsample(losses: Sequence[float], points: int = 60) -> list[float]:
    """A curve of at most so many points, each the mean of a stretch."""
    size = max(1, -(-len(losses) // points))
    return [sum(losses[i : i + size]) / len(losses[i : i + size]) for i in range(0, len(losses), size)]


def parameters(model: nn.Module) -> int:
    """How many numbers a model learns."""
    return sum(p.numel() for p in model.parameters())
