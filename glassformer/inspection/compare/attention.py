"""Where two runs look differently: the distance of each head of the one to the nearest head of the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from glassformer import probe
from glassformer.evaluation.examples import tokenizers_agree
from glassformer.evaluation.held_out import HeldOut
from glassformer.evaluation.teacher_forced import model_inputs
from glassformer.language import _
from glassformer.tasks import TextModel


@dataclass(frozen=True)
class HeadDistance:
    """A head of the first run: how far its weights are from those of the second run's head of the same number (None, where
    there is none) and from the nearest head of the same attention. Heads of runs trained apart have their numbers by
    chance, so it is the nearest that counts."""

    same: float | None
    nearest: str
    distance: float

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return {"same": self.same, "nearest": self.nearest, "distance": self.distance}


@torch.no_grad()
def head_distances(models: tuple[TextModel, TextModel], held: HeldOut) -> tuple[dict[str, HeadDistance], str]:
    """For each head, half the summed absolute difference of the two runs' weights (total variation: 0 the same, 1 nothing in
    common), averaged over all real queries; and why not, where that cannot be."""
    first, second = models
    if first.model.config.attentions != second.model.config.attentions:
        return {}, _("the two models have different layers")
    if not tokenizers_agree(first, second):
        return {}, _("the two models read the text in different tokens")
    numbers = [{name: one.head_ids for name, one in probe.attentions(model).items()} for model in models]
    total: dict[str, Any] = {}
    count: dict[str, int] = {}
    with probe.record(first, "*.weights") as one, probe.record(second, "*.weights") as two:
        for batch in held.batches:
            for model in models:
                model.model.hidden(*model_inputs(batch))
            for name in numbers[0]:
                rows = batch.source if name.startswith("encoder.") and batch.source is not None else batch.rows
                w, v = one[f"{name}.weights"].float(), two[f"{name}.weights"].float()
                for i in range(w.size(1)):
                    apart = (w[:, i : i + 1] - v).abs().sum(-1).double() / 2
                    sums = (apart * rows.real[:, None]).sum((0, 2)).cpu().numpy()
                    total[f"{name}:{i}"] = total.get(f"{name}:{i}", 0) + sums
                count[name] = count.get(name, 0) + int(rows.real.sum())
    found: dict[str, HeadDistance] = {}
    for name, own in numbers[0].items():
        theirs = numbers[1][name]
        for i, number in enumerate(own):
            apart = total[f"{name}:{i}"] / max(1, count[name])
            if len(theirs):
                best = int(apart.argmin())
                same = float(apart[theirs.index(number)]) if number in theirs else None
                found[f"{name}:{number}"] = HeadDistance(same, f"{name}:{theirs[best]}", float(apart[best]))
    return found, "" if found else _("there is no attention in which both models have heads")
