"""Do heads see different things, and how many are needed? And is one combined projection faster than three?"""

from __future__ import annotations

from collections import Counter

import torch
from torch import Tensor, nn

from glassformer.inspection.heads.kinds import AttentionStats, add_attention, kind_of
from glassformer.lab.claims.claim import Budget, Measured, Results
from glassformer.lab.claims.timing import seconds
from glassformer.lab.claims.training import PairBatch, TrainArgs, dates, exact_match, scores_of, train_on
from glassformer.models import Transformer
from glassformer.nn.taps import record
from glassformer.probe import Component, ablate, heads

WIDTH = 64


def weights_of(model: nn.Module, pairs: PairBatch) -> dict[str, Tensor]:
    """The attention weights of every attention on these pairs: (B, H, T, S) by name."""
    with torch.no_grad(), record(model, "*.weights") as seen:
        scores_of(model, pairs)
    return dict(seen)


def distance_between_heads(weights: dict[str, Tensor]) -> float:
    """The mean Jensen-Shannon distance (0 the same, 1 nothing in common) between two heads of one attention."""
    found = []
    for each in weights.values():
        count = each.size(1)
        for a in range(count):
            for b in range(a):
                p, q = each[:, a].clamp(min=1e-12), each[:, b].clamp(min=1e-12)
                m = (p + q) / 2
                divergence = ((p * (p / m).log()).sum(-1) + (q * (q / m).log()).sum(-1)) / 2
                real = each[:, a].sum(-1) > 0.5  # rows of padding see nothing
                found.append(float((divergence[real] / torch.log(torch.tensor(2.0))).clamp(min=0).sqrt().mean()))
    return sum(found) / len(found) if found else 0.0


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


def trial(budget: Budget, part: str, seed: int, count: int = 0, width: int = 0) -> Measured:
    """Train with so many heads, then look at them and take them out; or time the projections."""
    if part == "projection":
        x = torch.randn(32, 32, width)
        apart, joined = [nn.Linear(width, width) for _ in range(3)], nn.Linear(width, 3 * width)
        return {
            "joined": seconds(lambda: joined(x).sum().backward(), 20),
            "apart": seconds(lambda: sum(one(x).sum() for one in apart).backward(), 20),  # type: ignore[union-attr]
        }
    task = dates(budget.steps(20_000))
    model = Transformer(
        n_layer=2, n_head=count, n_embd=WIDTH, n_hidden=256, vocab_size=task.vocabulary, block_size=64, dropout=0.0
    )
    some = task.pairs(task.held_out[:64])
    before = distance_between_heads(weights_of(model, some))
    train_on(model, task, TrainArgs(budget.steps(1500)), seed)
    model.eval()
    test = task.test(min(300, budget.steps(3000)))
    whole = exact_match(model, test)

    def without(cut: list[Component]) -> float:
        with ablate(model, cut):
            return exact_match(model, test)

    worth = sorted(heads(model), key=lambda one: whole - without([one]))
    left = [whole, *(without(worth[:number]) for number in range(1, len(worth) + 1))]
    can_go = max(n for n, score in enumerate(left) if score >= whole - 1.0)
    return {
        "accuracy": exact_match(model, task.test(1000)),
        "before": before,
        "after": distance_between_heads(weights_of(model, some)),
        "can_go": 100 * can_go / len(worth),
        "left": left,
        "kinds": kinds_of(weights_of(model, some), some),
    }


def several_of(results: Results) -> int:
    """How many heads `several` are: four, or as many as there were at most."""
    return int(results.cases(["count 4"], part="heads")[0]["count"])


def facts(results: Results) -> Measured:
    """For the title of a table."""
    return {"several": several_of(results)}


def head_rows(results: Results) -> list[tuple[str, ...]]:
    """What each number of heads gave."""
    asked = (("accuracy", 1), ("before", 2), ("after", 2), ("can_go", 0))
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
