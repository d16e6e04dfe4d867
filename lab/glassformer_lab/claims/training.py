"""What most trials share: tasks made on the spot, one training loop, and what a model reaches. Sized for a CPU: models as
everywhere in nn/ and models/, trained in a minute or less.

Tasks give pairs as tensors, fresh from a seed, so that nothing is learned by heart: token 0 is padding, 1 begins and 2 ends a
target, words begin at 3. An answer is right if every token of it is the likeliest one after the right tokens before it;
that is so exactly when greedy decoding writes the whole answer, so no decoding is needed to count them. A text that every
machine has is Python's own source, by the character.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from glassformer.models import GPT
from glassformer.nn.loss import IGNORE
from glassformer.training.optim import Muon, parameter_groups

PAD, BEGIN, END, FIRST = 0, 1, 2, 3
LETTERS = "\t\n" + "".join(chr(code) for code in range(32, 127))
"""Tab, line break and what ASCII prints; anything else in Python's source is one more token."""
M = TypeVar("M", bound=nn.Module)


# ---- pairs


@dataclass(frozen=True)
class PairBatch:
    """A batch of pairs: sources, targets as the decoder reads them (they begin with BEGIN), and what it should say."""

    source: Int[Tensor, "B S"]
    source_lengths: list[int]
    target: Int[Tensor, "B T"]
    target_lengths: list[int]
    labels: Int[Tensor, "B T"]

    def rows(self, rows: slice) -> PairBatch:
        """Some of the pairs."""
        cut: Any = (side[rows] for side in vars(self).values())
        return PairBatch(*cut)

    def to(self, device: torch.device) -> PairBatch:
        """The same on a device."""
        moved: Any = (side.to(device) if isinstance(side, Tensor) else side for side in vars(self).values())
        return PairBatch(*moved)

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
    labels = padded([[*answer, END] for answer in answers], IGNORE)
    return PairBatch(padded(sources), [*map(len, sources)], padded(targets), [*map(len, targets)], labels)


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
        self.vocabulary = len(pieces) + FIRST
        self.train, self.held_out, self.cut = train, test, cut

    def ids(self, text: str) -> list[int]:
        """A text as tokens."""
        return [self.number[piece] for piece in self.cut(text)]

    def pairs(self, examples: Sequence[tuple[str, str]]) -> PairBatch:
        """These examples as a batch."""
        return make_pairs(*([self.ids(text) for text in side] for side in zip(*examples, strict=True)))

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
    for source, n, target, m, answer in zip(
        pairs.source.tolist(), pairs.source_lengths, pairs.target.tolist(), pairs.target_lengths, pairs.labels.tolist()
    ):
        ids.append([*source[:n], *target[:m]])
        labels.append([*[IGNORE] * n, *answer[:m]])
    return padded(ids), [len(row) for row in ids], padded(labels, IGNORE)


def summed_loss(model: nn.Module, pairs: PairBatch, **smoothing: float) -> Tensor:
    """The loss of all labels together, for an encoder-decoder or a decoder alone."""
    if isinstance(model, GPT):
        ids, lengths, labels = as_one_text(pairs)
        return model.loss(ids, labels, lengths=lengths, **smoothing)
    lengths_of = {"source_lengths": pairs.source_lengths, "target_lengths": pairs.target_lengths}
    return model.loss(pairs.source, pairs.target, pairs.labels, **lengths_of, **smoothing)  # type: ignore[operator, no-any-return]


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
    whole = right = 0
    total, count = 0.0, len(pairs.source_lengths)
    for first in range(0, count, rows):
        logits, labels = scores_of(model, pairs.rows(slice(first, first + rows)))
        good = (logits.argmax(-1) == labels) | (labels == IGNORE)
        whole, right = whole + int(good.all(-1).sum()), right + int((good & (labels != IGNORE)).sum())
        total += float(nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum"))
    model.train()
    return {"accuracy": 100 * whole / count, "tokens": 100 * right / pairs.tokens, "loss": total / pairs.tokens}


def exact_match(model: nn.Module, pairs: PairBatch) -> float:
    """The share of answers that greedy decoding would write without a mistake, in percent."""
    return answer_scores(model, pairs)["accuracy"]


def held_out_scores(model: nn.Module, task: Letters | Strings, seed: int, count: int = 500) -> dict[str, float]:
    """The scores of the test, and the loss of other held-out examples by which a rate is chosen (`val`)."""
    return answer_scores(model, task.test(count, seed)) | {"val": answer_scores(model, task.val(count, seed))["loss"]}


# ---- training


def small(kind: type[M], **settings: Any) -> M:
    """A model of the size that most claims are tried at: four heads, 64 numbers a token, no dropout, unless told otherwise."""
    return kind(**{"n_head": 4, "n_embd": 64, "dropout": 0.0, **settings})


def parameters(model: nn.Module) -> int:
    """How many numbers a model learns."""
    return sum(p.numel() for p in model.parameters())


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
    rest = [p for name, group in groups.items() if name != "matrices" or not args.muon for _, p in group]
    adamw = torch.optim.AdamW(rest, lr=args.rate, betas=(0.9, 0.98), weight_decay=0.0, fused=True)
    return [adamw, Muon(matrices, lr=args.muon)] if matrices else [adamw]


def share_at(args: TrainArgs, step: int) -> float:
    """The share of its rate that a step has: linear to all of it in `warmup` steps, then down along half a cosine."""
    if step <= args.warmup:
        return step / max(1, args.warmup)
    done = (step - args.warmup) / max(1, args.steps - args.warmup)
    return 0.5 * (1 + math.cos(math.pi * done))


def train(
    model: nn.Module,
    loss: Callable[[], tuple[Tensor, int]],
    args: TrainArgs,
    watch: Callable[[int], None] = lambda step: None,
) -> list[float]:
    """Trains by the summed loss of a fresh batch and how many labels it is of; the mean loss of each step. `watch` is called
    while the gradients of a step are still there. A step whose loss is not finite ends it: it has diverged."""
    optimizers = optimizers_of(model, args)
    rates = [optimizer.param_groups[0]["lr"] for optimizer in optimizers]
    losses: list[float] = []
    model.train()
    for step in range(1, args.steps + 1):
        total, count = loss()
        mean = total / max(1, count)
        mean.backward()
        losses.append(float(mean.detach()))
        watch(step)
        nn.utils.clip_grad_norm_(model.parameters(), args.clip)
        if not math.isfinite(losses[-1]):
            break
        for optimizer, rate in zip(optimizers, rates, strict=True):
            optimizer.param_groups[0]["lr"] = rate * share_at(args, step)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
    return losses


def train_on(
    model: nn.Module, task: Letters | Strings, args: TrainArgs, seed: int, *, smoothing: float = 0.0, **watch: Any
) -> list[float]:
    """Trains on batches of a task, drawn by the seed."""
    options = {"smoothing": smoothing} if smoothing else {}
    generator, device = torch.Generator().manual_seed(1000 + seed), next(model.parameters()).device

    def loss() -> tuple[Tensor, int]:
        with torch.device("cpu"):
            pairs = task.batch(args.batch, generator)
        return summed_loss(model, pairs.to(device), **options), pairs.tokens

    return train(model, loss, args, **watch)


def downsample(losses: Sequence[float], points: int = 60) -> list[float]:
    """A curve of at most so many points, each the mean of a stretch."""
    size = max(1, -(-len(losses) // points))
    return [sum(losses[i : i + size]) / len(losses[i : i + size]) for i in range(0, len(losses), size)]


# ---- a text


@cache
def characters(count: int = 8_000_000) -> tuple[Int[Tensor, " N"], int]:
    """The beginning of the library's files, in their order, as tokens; and how many tokens there are."""
    from glassformer.data.builtin.stdlib import stdlib_files

    number = np.full(256, len(LETTERS))
    number[[ord(letter) for letter in LETTERS]] = range(len(LETTERS))
    texts: list[np.ndarray] = []
    for document in stdlib_files("train", None):
        codes = np.frombuffer(document.text.encode("utf-32-le"), np.uint32)
        texts.append(number[np.minimum(codes, 255)])
        if sum(map(len, texts)) >= count:
            break
    return torch.tensor(np.concatenate(texts)[:count]), len(LETTERS) + 1


def summed_loss_of(model: GPT, rows: Int[Tensor, "B T"]) -> tuple[Tensor, int]:
    """The loss of every next character of these rows together, and how many there are."""
    inputs, labels = rows[:, :-1].contiguous(), rows[:, 1:].contiguous()
    return model.loss(inputs, labels), labels.numel()


def rows_at(text: Int[Tensor, " N"], starts: list[int], width: int) -> Int[Tensor, "B T"]:
    """Rows of the text and the character after each."""
    return text[torch.tensor(starts)[:, None] + torch.arange(width + 1)]


def text_loss(
    model: GPT, count: int, width: int, seed: int, seen: Int[Tensor, " N"] | None = None
) -> Callable[[], tuple[Tensor, int]]:
    """What `train` needs: the loss of so many rows, drawn by the seed from what may be seen (the first nine tenths)."""
    whole, generator = characters()[0], torch.Generator().manual_seed(seed)
    text = whole[: int(0.9 * len(whole))] if seen is None else seen
    return lambda: summed_loss_of(model, rows_at(text, drawn(0, len(text) - width - 1, count, generator), width))


@cache
def bigrams() -> Float[Tensor, "V V"]:
    """The log probability of a character after another, counted (from one each) in the first nine tenths of the text."""
    text, size = characters()
    seen = text[: int(0.9 * len(text))]
    counts = 1 + torch.bincount(seen[:-1] * size + seen[1:], minlength=size * size).view(size, size)
    return (counts / counts.sum(-1, keepdim=True)).log()


@torch.no_grad()
def held_out(model: GPT, width: int, rows: int, seed: int) -> dict[str, float]:
    """Nats a character on rows drawn from the last tenth, which no training sees, others for every seed: of the model (`loss` on
    one half of them, `val` on the other) and of a table of bigrams (`bigram`), which a model that has learned anything beats."""
    text, draw = characters()[0], torch.Generator().manual_seed(987_654_321 + seed)
    model.eval()
    scores = {}
    for name in ("val", "loss"):
        some = rows_at(text, drawn(int(0.9 * len(text)), len(text) - width - 1, rows, draw), width)
        total, count = summed_loss_of(model, some)
        scores[name] = float(total) / count
    return scores | {"bigram": -float(bigrams()[some[:, :-1], some[:, 1:]].mean())}
