"""How much each head and each MLP of a trained model matters, and how many heads can go.

Importance: ablate one part, leave the rest, and measure again (Michel et al. 2019; Voita et al. 2019). Two ablations are made,
zeros and the part's own average (see probe/): a part that matters by its constant alone is not a part that thinks.

How many can go: heads are ablated one after the other, the least important (by the loss, when it alone is ablated) first,
and the score is measured after each. This is an order of single cuts: two heads that stand in for each other both look
unimportant until one is gone, which the curve then shows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from glassformer import plots, probe
from glassformer.errors import UserError
from glassformer.evaluation.examples import HeldOut, writes, written
from glassformer.evaluation.metrics import BETTER_WHEN_LOWER, text_scores
from glassformer.evaluation.teacher_forced import teacher_forced
from glassformer.files.durable import to_json, write_atomically
from glassformer.files.owned import OwnedFiles
from glassformer.inspection.heads.kinds import head_stats, kind_of
from glassformer.probe import Component
from glassformer.tasks import TextModel

MODES = ("zero", "mean")
LOST = 0.01  # of the score, at most, by the heads that can go
NAMES = {
    "bleu": "BLEU",
    "exact_match": "exact match (%)",
    "accuracy": "accuracy (%)",
    "perplexity": "perplexity",
    "loss": "loss (nats a token)",
}
"""The measures as figures name them."""

Tell = Callable[[int, int, str], None]
"""Called before each measurement: how many are done, of how many, and what comes now."""


def say_nothing(done: int, total: int, what: str) -> None:
    """For whoever wants no progress."""


def measures(model: TextModel) -> tuple[str, ...]:
    """What is measured beside the loss; the first is the one that must not be lost."""
    if writes(model):
        return ("bleu", "exact_match")
    if model.kind in ("classify", "tag", "mlm"):
        return ("accuracy",)
    return ("perplexity",)


def measure(model: TextModel, held: HeldOut, *, decoding: bool = True) -> dict[str, float]:
    """Loss, and the scores of `measures` (those of written text only where `decoding`)."""
    values = teacher_forced(model.model, held.batches, model.device).values
    names = measures(model)
    if writes(model) and decoding:
        references = [target for _, target in held.examples]
        texts = written(model, held.examples)
        scores = text_scores(texts, references, model.recipe.train.bleu_tokenize).values
    else:
        scores = {"accuracy": values["token_accuracy"], "perplexity": values["perplexity"]}
        names = ("perplexity",) if writes(model) else names
    return {"loss": values["loss"]} | {name: scores[name] for name in names}


@dataclass(frozen=True)
class Importance:
    """A part, what the model measures without it (by mode), and for a head its scores by kind."""

    part: Component
    without: dict[str, dict[str, float]]
    kinds: dict[str, float] = field(default_factory=dict)
    pointed: dict[str, float] = field(default_factory=dict)

    @property
    def points(self) -> tuple[float, str]:
        """In what share of rows more than half of a head's weight is on one token, and where that mostly is, if anywhere."""
        share = self.pointed.get("all", 0.0)
        places = {kind: value for kind, value in self.pointed.items() if kind != "all"}
        best = max(places, key=places.__getitem__, default="")
        return share, best if best and share and places[best] >= share / 2 else ""

    @property
    def kind(self) -> str:
        """What the head looks at, in a word; mlp for a feed-forward layer."""
        return kind_of(self.kinds) if self.part.head is not None else "mlp"

    @property
    def strength(self) -> float:
        """How clearly it is of its kind; of a mixed head, what it comes nearest to."""
        pointed = [value for kind, value in self.kinds.items() if kind != "broad"]
        return self.kinds.get(self.kind, max(pointed, default=float("nan")))


@dataclass(frozen=True)
class HeadImportances:
    """What `glassformer heads` found."""

    examples: int
    split: str
    score: str  # the measure that counts
    whole: dict[str, float]
    parts: list[Importance]
    # One head after the other cut, and what is measured without all so far.
    curve: list[tuple[Component, dict[str, float]]]

    @property
    def heads(self) -> list[Importance]:
        """The parts that are heads."""
        return [importance for importance in self.parts if importance.part.head is not None]

    def change(self, importance: Importance, mode: str, name: str) -> float:
        """By how much a score of the whole model changes without this part."""
        return importance.without[mode][name] - self.whole[name]

    def order(self) -> list[Component]:
        """Heads, the least important first."""
        return [w.part for w in sorted(self.heads, key=lambda w: self.change(w, "zero", "loss"))]

    def kept(self, values: Mapping[str, float]) -> bool:
        """Whether so much of the score is left."""
        now, whole = values[self.score], self.whole[self.score]
        if self.score in BETTER_WHEN_LOWER:
            return now <= (1 + LOST) * whole
        return now >= (1 - LOST) * whole

    @property
    def can_go(self) -> int:
        """How many heads can go, in this order, before a hundredth is lost for the first time."""
        return next((n for n, (_, values) in enumerate(self.curve) if not self.kept(values)), len(self.curve))

    def to_dict(self) -> dict[str, Any]:
        """The study as a JSON-serialisable dict."""
        return {
            "examples": self.examples,
            "split": self.split,
            "score": self.score,
            "whole": self.whole,
            "parts": [
                {"part": str(w.part), "kind": w.kind, "kinds": w.kinds, "pointed": w.pointed, "without": w.without}
                for w in self.parts
            ],
            "curve": [{"cut": n, "part": str(part), **values} for n, (part, values) in enumerate(self.curve, 1)],
            "can_go": self.can_go,
        }


def study(
    model: TextModel, held: HeldOut, split: str, *, decoding: bool = True, tell: Tell = say_nothing
) -> HeadImportances:
    """What every head and feed-forward layer is worth, by leaving each out in turn, and what each head looks at."""
    net = model.model
    parts = [*probe.heads(net), *probe.mlps(net)]
    heads = [part for part in parts if part.head is not None]
    total = 2 + len(MODES) * len(parts) + len(heads)
    steps = iter(range(total))

    def measured(what: str, cut: list[Component], mode: str = "zero") -> dict[str, float]:
        tell(next(steps), total, what)
        with probe.ablate(net, cut, mode, means=means if mode == "mean" else None):
            return measure(model, held, decoding=decoding)

    means: dict[str, Any] = {}
    whole = measured("the whole model", [])
    score = next(name for name in (*measures(model), "perplexity") if name in whole)
    tell(next(steps), total, "what the heads look at")
    kinds, pointed = head_stats(model, held)
    means = probe.mean_outputs(net, held.batches)
    importances = []
    for part in parts:
        without = {mode: measured(f"{part}, {mode}", [part], mode) for mode in MODES}
        importances.append(Importance(part, without, kinds.get(str(part), {}), pointed.get(str(part), {})))
    found = HeadImportances(held.count, split, score, whole, importances, [])
    order = found.order()
    curve = [(part, measured(f"the {n} least important", order[:n])) for n, part in enumerate(order, 1)]
    return replace(found, curve=curve)


def least_important(found: HeadImportances, count: int) -> list[Component]:
    """So many heads that the model misses least."""
    order = found.order()
    if not 1 <= count < len(order):
        raise UserError(
            "--prune takes out between 1 and {most} of this model's {of} heads, not {n}",
            len(order) - 1,
            len(order),
            count,
        )
    return order[:count]


def save(found: HeadImportances, out: Path, extra: Mapping[str, Any] | None = None) -> Path:
    """The numbers in heads.json."""
    (path,) = OwnedFiles(out).claim("heads.json")
    write_atomically(path, to_json(found.to_dict() | dict(extra or {})))
    return path


# ---- figures


def row_label(name: str) -> str:
    """The name of an attention as a figure shows it."""
    side, layer, part = name.split(".")
    return f"{side} {layer} {'self' if part == 'attention' else part}"


def draw(found: HeadImportances, config: Any, out: Path) -> list[Path]:
    """heads, kinds and curve, each as PNG and SVG."""
    attentions, width = config.attentions, max(map(config.heads_of, config.attentions))
    rows, columns = [row_label(name) for name in attentions], [*map(str, range(width))]
    mlps = [importance for importance in found.parts if importance.part.head is None]

    def grid(value: Callable[[Importance], float]) -> np.ndarray:
        cells = np.full((len(attentions), width), np.nan)
        for head in found.heads:
            cells[attentions.index(head.part.module), head.part.head] = value(head)
        return cells

    def harm_panel(name: str, mode: str) -> tuple[str, np.ndarray, np.ndarray]:
        sign = 1.0 if name in BETTER_WHEN_LOWER else -1.0

        def harm(importance: Importance) -> float:
            return sign * found.change(importance, mode, name)

        title = f"{'rise' if sign > 0 else 'fall'} of {NAMES[name]}, {mode} ablation"
        return title, grid(harm), np.array([harm(mlp) for mlp in mlps])

    panels = [harm_panel(name, mode) for name in ("loss", found.score) for mode in MODES]
    layers = [mlp.part.module.removesuffix(".mlp").replace(".", " ") for mlp in mlps]
    kinds = [["" for _ in columns] for _ in rows]
    for head in found.heads:
        kinds[attentions.index(head.part.module)][head.part.head or 0] = head.kind
    whole = found.whole[found.score]
    values = [whole, *(v[found.score] for _, v in found.curve)]
    line = whole * (1 + LOST if found.score in BETTER_WHEN_LOWER else 1 - LOST)
    return [
        *plots.save(plots.part_maps(panels, rows, layers), out / "heads"),
        *plots.save(plots.kind_map(grid(lambda head: head.strength), kinds, rows, columns), out / "kinds"),
        *plots.save(plots.cut_curve(values, line, found.can_go, NAMES[found.score]), out / "curve"),
    ]
