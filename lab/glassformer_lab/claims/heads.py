"""Do heads see different things, and how many are needed? And is one combined projection faster than three?"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable

import torch
from torch import Tensor, nn

from glassformer.inspection.heads.kinds import AttentionStats, add_attention, kind_of
from glassformer.models import Transformer
from glassformer.nn.loss import IGNORE
from glassformer.nn.taps import record
from glassformer.probe import Component, ablate, heads
from glassformer_lab.claims.claim import Budget, Measured, Results
from glassformer_lab.claims.timing import in_turns
from glassformer_lab.claims.training import (
    PairBatch,
    Strings,
    TrainArgs,
    dates,
    exact_match,
    scores_of,
    small,
    train_on,
)

WIDTH = 64


def weights_of(model: nn.Module, pairs: PairBatch) -> dict[str, Tensor]:
    """The attention weights of every attention on these pairs: (B, H, T, S) by name."""
    with torch.no_grad(), record(model, "*.weights") as seen:
        scores_of(model, pairs)
    return dict(seen)


def distance(one: Tensor, other: Tensor) -> float:
    """The mean Jensen-Shannon distance (0 the same, 1 nothing in common) between the weights of two heads, (B, T, S)."""
    p, q = one.clamp(min=1e-12), other.clamp(min=1e-12)
    m = (p + q) / 2
    divergence = ((p * (p / m).log()).sum(-1) + (q * (q / m).log()).sum(-1)) / 2
    real = one.sum(-1) > 0.5  # rows of padding see nothing
    return float((divergence[real] / math.log(2)).clamp(min=0).sqrt().mean())


def distance_between_heads(weights: dict[str, Tensor], others: dict[str, Tensor] | None = None) -> float:
    """The mean distance between two heads of one attention; with others, between one of its heads and one of theirs at the same
    place in another model."""
    found = [
        distance(each[:, a], (each if others is None else others[name])[:, b])
        for name, each in weights.items()
        for a in range(each.size(1))
        for b in range(a if others is None else each.size(1))
    ]
    return sum(found) / len(found) if found else 0.0


@torch.no_grad()
def right_answers(model: nn.Module, pairs: PairBatch) -> Tensor:
    """Which answers are right, every token of them."""
    logits, labels = scores_of(model, pairs)
    return ((logits.argmax(-1) == labels) | (labels == IGNORE)).all(-1)


def overlap(lost: list[Tensor]) -> float:
    """Of the examples that cutting either of two heads costs, how many both cost, over all pairs that cost any; in percent."""
    shares = [
        float((a & b).sum() / (a | b).sum()) for i, a in enumerate(lost) for b in lost[:i] if bool(a.any() or b.any())
    ]
    return 100 * sum(shares) / len(shares) if shares else 0.0


def kinds_of(weights: dict[str, Tensor], pairs: PairBatch) -> dict[str, int]:
    """How many heads look at what: the token before, the first one, the straight line of a translation … (see heads/kinds.py)."""
    source, target = torch.tensor(pairs.source_lengths), torch.tensor(pairs.target_lengths)
    found: Counter[str] = Counter()
    for name, each in weights.items():
        cross, decoder = ".cross." in name, name.startswith("decoder.")
        queries, keys = target if decoder else source, target if decoder and not cross else source
        visible = (torch.arange(each.size(3))[None] < keys[:, None])[:, None].expand(-1, each.size(2), -1)
        if decoder and not cross:
            visible = visible & torch.ones(each.shape[2:], dtype=torch.bool).tril()
        stats = AttentionStats()
        add_attention(stats, each, queries, keys, visible, cross=cross)
        scores = stats.scores()
        for head in range(each.size(1)):
            found[kind_of({kind: values[head] for kind, values in scores.items()})] += 1
    return dict(found)


def projection_trial(width: int, heads_of_it: int = 8) -> Measured:
    """Queries, keys and values by one matrix, by three, and by three for each head, in turns."""
    x = torch.randn(32, 32, width)

    def made(count: int) -> Callable[[], None]:
        layers = [nn.Linear(width, 3 * width // count) for _ in range(count)]
        return lambda: sum(one(x).sum() for one in layers).backward()  # type: ignore[union-attr]

    joined, apart = in_turns(made(1), made(3), 20)
    again, small = in_turns(made(3), made(3 * heads_of_it), 20)
    return {"joined": joined, "apart": apart, "three": again, "small": small}


def trained(steps: int, count: int, task: Strings, seed: int) -> Transformer:
    """A model with so many heads that writes dates."""
    model = small(Transformer, n_layer=2, n_head=count, n_hidden=256, vocab_size=task.vocabulary, block_size=64)
    train_on(model, task, TrainArgs(steps), seed)
    return model.eval()


def trial(budget: Budget, part: str, seed: int, count: int = 0, width: int = 0) -> Measured:
    """Train with so many heads, and once more from another seed; look at the heads and take them out, the least worth first (by
    validation examples; what is left is told by test examples); or time the projections."""
    if part == "projection":
        return projection_trial(width)
    task = dates(budget.steps(20_000))
    some = task.test(64, seed)
    before = distance_between_heads(weights_of(trained(0, count, task, seed), some))
    model, twin = (trained(budget.steps(1500), count, task, seed + more) for more in (0, 1000))
    test, val = task.test(min(300, budget.steps(3000)), seed), task.val(200, seed)
    model.eval()
    at_first = right_answers(model, test)

    def without(cut: list[Component], pairs: PairBatch) -> Tensor:
        with ablate(model, cut):
            return right_answers(model, pairs)

    everyone = heads(model)
    lost = [at_first & ~without([one], test) for one in everyone]
    worth = sorted(everyone, key=lambda one: -int(without([one], val).sum()))
    left = [100 * float(without(worth[:number], test).double().mean()) for number in range(len(worth) + 1)]
    can_go = max(n for n, score in enumerate(left) if score >= left[0] - 1.0)
    weights = weights_of(model, some)
    return {
        "accuracy": exact_match(model, task.test(700, seed)),
        "before": before,
        "after": distance_between_heads(weights),
        "other seed": distance_between_heads(weights, weights_of(twin, some)),
        "overlap": overlap(lost),
        "can_go": 100 * can_go / len(worth),
        "left": left,
        "kinds": kinds_of(weights, some),
    }


def several_of(results: Results) -> int:
    """How many heads `several` are: four, or as many as there were at most."""
    return int(results.cases(["count 4"], part="heads")[0]["count"])


def facts(results: Results) -> Measured:
    """For the title of a table."""
    return {"several": several_of(results)}


def head_rows(results: Results) -> list[tuple[str, ...]]:
    """What each number of heads gave."""
    asked = (("accuracy", 1), ("before", 2), ("after", 2), ("other seed", 2), ("overlap", 0), ("can_go", 0))
    return [
        (str(n), str(WIDTH // n), *(results.mean_std(key, digits, part="heads", count=n) for key, digits in asked))
        for n in results.options("count", part="heads")
    ]


def kind_rows(results: Results) -> list[tuple[str, ...]]:
    """What heads look at, the commonest first."""
    kinds: Counter[str] = Counter()
    for _, found in results.where(part="heads", count=several_of(results)):
        kinds.update(found["kinds"])
    return [(kind, f"{100 * n / kinds.total():.0f}") for kind, n in kinds.most_common()]
