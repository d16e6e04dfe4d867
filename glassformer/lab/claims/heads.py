"""Do heads see different things, and how many are needed? And is one combined projection faster than three?"""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from torch import Tensor, nn

from glassformer.inspection.heads.kinds import AttentionStats, add_attention, kind_of
from glassformer.lab.claims.lab import Fit, PairBatch, dates, exact_match, scores_of, train_on
from glassformer.lab.claims.study import Effort, Measured, Results, Settings, Study, StudyResult, Table, grid
from glassformer.lab.claims.timing import seconds
from glassformer.lab.claims.verdict import Condition, larger
from glassformer.lab.claims.words import Words
from glassformer.models import Transformer
from glassformer.nn.taps import record
from glassformer.plots.panels import BarPanel, LinePanel, panels

WIDTH = 64
LEARNED = 30.0  # percent of right answers, below which nothing can be said of heads


def plan(effort: Effort) -> list[Settings]:
    """Numbers of heads at the same width, hence the same number of multiplications; and the projections, timed."""
    counts = effort.pick([1, 4], [1, 2, 4, 8, 16])
    return grid(effort, part=["heads"], count=counts) + grid(
        effort, part=["projection"], width=effort.pick([64], [64, 256, 512])
    )


def attentions(model: nn.Module) -> dict[str, Any]:
    """Every attention of the model by its name."""
    return {name: module for name, module in model.named_modules() if name.endswith((".attention", ".cross"))}


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


@torch.no_grad()
def without_heads(model: nn.Module, pairs: PairBatch, cut: set[tuple[str, int]]) -> float:
    """Exact match with these heads silenced: their columns of the output projection set to zero for the moment."""
    kept = []
    listened = attentions(model)
    for name, head in cut:
        module = listened[name]
        columns = slice(head * module.value_size, (head + 1) * module.value_size)
        kept.append((module, columns, module.out.weight[:, columns].clone()))
        module.out.weight[:, columns] = 0
    try:
        return exact_match(model, pairs)
    finally:
        for module, columns, weight in kept:
            module.out.weight[:, columns] = weight


def trial(effort: Effort, part: str, seed: int, count: int = 0, width: int = 0) -> Measured:
    """Train with so many heads, then look at them and take them out; or time the projections."""
    if part == "projection":
        x = torch.randn(32, 32, width)
        apart, joined = [nn.Linear(width, width) for _ in range(3)], nn.Linear(width, 3 * width)
        return {
            "joined": seconds(lambda: joined(x).sum().backward(), 20),
            "apart": seconds(lambda: sum(one(x).sum() for one in apart).backward(), 20),  # type: ignore[union-attr]
        }
    task = dates(effort.steps(20_000))
    model = Transformer(
        n_layer=2, n_head=count, n_embd=WIDTH, n_hidden=256, vocab_size=task.vocabulary, block_size=64, dropout=0.0
    )
    some = task.pairs(task.held_out[:64])
    before = distance_between_heads(weights_of(model, some))
    train_on(model, task, Fit(effort.steps(1500)), seed)
    model.eval()
    test, names = (
        task.test(min(300, effort.steps(3000))),
        [(name, head) for name in attentions(model) for head in range(count)],
    )
    whole = exact_match(model, test)
    worth = sorted(names, key=lambda one: whole - without_heads(model, test, {one}))
    left = [whole]
    for number in range(1, len(worth) + 1):
        left.append(without_heads(model, test, set(worth[:number])))
    can_go = max(n for n, score in enumerate(left) if score >= whole - 1.0)
    return {
        "accuracy": exact_match(model, task.test(1000)),
        "before": before,
        "after": distance_between_heads(weights_of(model, some)),
        "can_go": 100 * can_go / len(worth),
        "left": left,
        "kinds": kinds_of(weights_of(model, some), some),
    }


def conditions_of(results: Results, several: int) -> list[Condition]:
    """Several heads against one; how far apart heads look; how many can go; the time of the projections."""
    can_go = results.values("can_go", part="heads", count=several)
    has_learned = (
        results.mean("accuracy", part="heads", count=several) >= LEARNED
    )  # where nothing was, every head can go
    how_many = Words(
        "a third of the heads or more can go at the loss of a point", "三分之一以上的头可以去掉，损失不超过一个百分点"
    )
    conditions = [
        larger(
            Words(f"{several} heads are better than one at the same cost", f"相同计算量下，{several} 个头优于 1 个头"),
            results.values("accuracy", part="heads", count=several),
            results.values("accuracy", part="heads", count=1),
            margin=0.5,
            unit="%",
            learned=LEARNED,
        ),
        larger(
            Words("training drives the heads of an attention apart", "训练使同一层的各个头看向不同的地方"),
            results.values("after", part="heads", count=several),
            results.values("before", part="heads", count=several),
            margin=0.1,
        ),
        larger(how_many, can_go, [0.0] * len(can_go), margin=33.0, unit="%")
        if has_learned
        else Condition(how_many, "open", "nothing was learned"),
    ]
    for width in results.options("width", part="projection"):
        joined, apart = (
            results.values("joined", part="projection", width=width),
            results.values("apart", part="projection", width=width),
        )
        conditions.append(
            larger(
                Words(
                    f"width {width}: one combined projection is faster than three",
                    f"宽度 {width}：合并投影比三个分开的快",
                ),
                [b / a for a, b in zip(joined, apart, strict=True)],
                [1.0] * len(joined),
                margin=0.1,
                unit="x",
            )
        )
    return conditions


def judge(results: Results) -> StudyResult:
    """What the numbers of heads gave, what heads look at, and the times of the projections."""
    counts = results.options("count", part="heads")
    several = 4 if 4 in counts else counts[-1]
    rows = tuple(
        (
            str(n),
            str(WIDTH // n),
            *(
                results.spoken(key, digits, part="heads", count=n)
                for key, digits in (("accuracy", 1), ("before", 2), ("after", 2), ("can_go", 0))
            ),
        )
        for n in counts
    )
    columns = ("heads", "d_k", "exact match %", "distance between heads, untrained", "trained", "heads that can go, %")
    several_kinds: Counter[str] = Counter()
    for _, found in results.where(part="heads", count=several):
        several_kinds.update(found["kinds"])
    kinds = tuple((kind, f"{100 * n / several_kinds.total():.0f}") for kind, n in several_kinds.most_common())
    times = tuple(
        (str(w), *(f"{1e6 * results.mean(key, part='projection', width=w):.0f} µs" for key in ("joined", "apart")))
        for w in results.options("width", part="projection")
    )
    tables = (
        Table("Written dates, 2+2 layers", columns, rows),
        Table(f"What heads look at, {several} a layer", ("kind", "% of heads"), kinds),
        Table("Query, key and value, forward and backward", ("width", "one matrix", "three"), times),
    )
    return StudyResult(tables, tuple(conditions_of(results, several)))


def draw(results: Results) -> Any:
    """Accuracy over the number of heads, distance before and after, and what is left as heads go."""
    counts, seeds = results.options("count", part="heads"), results.options("seed", part="heads")
    accuracy = {
        "exact match": (
            counts,
            [[results.values("accuracy", part="heads", count=n, seed=s)[0] for n in counts] for s in seeds],
        )
    }
    bars = {
        name: [results.values(key, part="heads", count=n) for n in counts]
        for key, name in (("before", "untrained"), ("after", "trained"))
    }
    several = 4 if 4 in counts else counts[-1]
    left = [m["left"] for _, m in results.where(part="heads", count=several)]
    gone = {f"{several} heads a layer": (list(range(len(left[0]))), left)}
    return panels(
        [
            LinePanel("heads at constant width", "heads", "exact match %", accuracy, log="x"),
            BarPanel("distance between heads", "Jensen-Shannon distance", [str(n) for n in counts], bars),
            LinePanel("heads taken out, least worth first", "heads gone", "exact match %", gone, bottom=0),
        ]
    )


STUDY = Study(
    name="heads",
    claim=Words(
        "Different heads see different things, and several are better than one.",
        "不同的头关注不同的东西，多头优于单头。",
    ),
    said_by="Vaswani et al. 2017, 3.2.2 and Table 3 (A); Michel et al. 2019 on how many are needed",
    minutes=19,
    plan=plan,
    trial=trial,
    judge=judge,
    draw=draw,
)
