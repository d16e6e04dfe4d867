"""Two runs on the same examples: whose scores are better, and is the difference more than luck; where do they differ, and where
do they look differently (the distance of each head of the one to the nearest head of the other)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from glassformer import plots, probe
from glassformer.errors import UserError
from glassformer.evaluation import examples as on_examples
from glassformer.evaluation import significance
from glassformer.evaluation.examples import HeldOut, held_out, tokenizers_agree
from glassformer.evaluation.metrics import BETTER_WHEN_LOWER
from glassformer.evaluation.significance import DRAWS, LEVEL, Paired, Statistics, paired_bootstrap
from glassformer.evaluation.teacher_forced import model_inputs
from glassformer.language import _
from glassformer.runs.folder import RunFolder
from glassformer.tasks import TextModel


@dataclass(frozen=True)
class Sentence:
    """One example and what the two runs make of it; where nothing is written, the loss is all there is."""

    number: int
    source: str
    wanted: str
    first: str
    second: str
    first_loss: float  # nats a label
    second_loss: float
    distance: float  # between the two outputs: 0 the same, 1 nothing in common

    @property
    def change(self) -> float:
        """By how much the second run's loss is higher."""
        return self.second_loss - self.first_loss

    def to_dict(self) -> dict[str, Any]:
        """The sentence as a JSON-serialisable dict, without what is empty or not a number."""
        values = vars(self).items()
        return {k: v for k, v in values if v != "" and not (isinstance(v, float) and math.isnan(v))}


@dataclass(frozen=True)
class HeadDistance:
    """A head of the first run: how far its weights are from those of the second run's head of the same number (None, where
    there is none) and from the nearest head of the same attention. Heads of runs trained apart have their numbers by
    chance, so it is the nearest that counts."""

    same: float | None
    nearest: str
    distance: float


@dataclass(frozen=True)
class Comparison:
    """Two runs on the same examples: scores with their intervals, sentences, and how far apart their heads look."""

    names: tuple[str, str]
    split: str
    examples: int
    scores: dict[str, Paired]
    sentences: list[Sentence]
    attention: dict[str, HeadDistance] = field(default_factory=dict)  # by head of the first run
    no_attention: str = ""  # why there are none

    def most_changed(self, count: int = 10) -> list[Sentence]:
        """Outputs that are furthest apart; of equal distances, those whose loss changed most."""
        return sorted(self.sentences, key=lambda s: (-s.distance, -abs(s.change)))[:count]

    @property
    def same(self) -> int:
        """Sentences of which both say the same."""
        return sum(s.distance == 0 for s in self.sentences)

    def to_dict(self) -> dict[str, Any]:
        """The comparison as a JSON-serialisable dict."""
        return {
            "first": self.names[0],
            "second": self.names[1],
            "split": self.split,
            "examples": self.examples,
            "draws": DRAWS,
            "level": LEVEL,
            "scores": {name: paired.to_dict() for name, paired in self.scores.items()},
            "sentences": [s.to_dict() for s in self.sentences],
            "attention": {name: asdict(apart) for name, apart in self.attention.items()},
            "no_attention": self.no_attention,
        }


@torch.no_grad()
def head_distances(models: tuple[TextModel, TextModel], held: HeldOut) -> tuple[dict[str, HeadDistance], str]:
    """For each head, half the summed absolute difference of the two runs' weights (total variation: 0 the same, 1 nothing in
    common), averaged over all real queries; and why not, where that cannot be."""
    first, second = models
    if first.model.config.attentions != second.model.config.attentions:
        return {}, _("the two models have different layers")
    if not tokenizers_agree(first, second):
        return {}, _("the two models read the text in different tokens")
    heads, heads_of_second = (
        {name: attention.head_ids for name, attention in probe.attentions(model).items()} for model in models
    )
    total: dict[tuple[str, int], Any] = dict.fromkeys(((name, head) for name in heads for head in heads[name]), 0)
    queries = dict.fromkeys(heads, 0)
    with probe.record(first, "*.weights") as weights, probe.record(second, "*.weights") as weights_of_second:
        for batch in held.batches:
            for model in models:
                model.model.hidden(*model_inputs(batch))
            for name in heads:
                rows = batch.source if name.startswith("encoder.") and batch.source is not None else batch.rows
                w, v = weights[f"{name}.weights"].float(), weights_of_second[f"{name}.weights"].float()
                for i, head in enumerate(heads[name]):
                    apart = (w[:, i : i + 1] - v).abs().sum(-1).double() / 2
                    total[name, head] += (apart * rows.real[:, None]).sum((0, 2)).cpu().numpy()
                queries[name] += int(rows.real.sum())
    distances: dict[str, HeadDistance] = {}
    for (name, head), sums in total.items():
        others = heads_of_second[name]
        if others:
            apart = sums / max(1, queries[name])
            nearest = int(apart.argmin())
            same = float(apart[others.index(head)]) if head in others else None
            distances[f"{name}:{head}"] = HeadDistance(same, f"{name}:{others[nearest]}", float(apart[nearest]))
    return distances, "" if distances else _("there is no attention in which both models have heads")


def score_both(
    models: tuple[TextModel, TextModel],
    held: HeldOut,
    tables: tuple[Statistics, Statistics],
    answers: tuple[list[str], list[str]],
) -> dict[str, Paired]:
    """Every score that both runs have. A loss a token is compared only where the two have the same tokens."""
    scores: dict[str, Paired] = {}
    task = models[0].recipe.data.task
    has_loss = (tables[0][:, 1] > 0) & (tables[1][:, 1] > 0)
    a, b = tables[0][has_loss], tables[1][has_loss]
    if len(a) and (task in ("classify", "tag") or tokenizers_agree(*models)):
        scores["loss"] = paired_bootstrap(a[:, :2], b[:, :2], significance.mean)
        if models[0].kind in ("gpt", "mlm"):
            scores["perplexity"] = paired_bootstrap(a[:, :2], b[:, :2], significance.perplexity)
            scores["token_accuracy"] = paired_bootstrap(a[:, [2, 1]], b[:, [2, 1]], significance.percent)
    first, second = (on_examples.answer_statistics(models[0], held, texts) for texts in answers)
    return scores | {name: paired_bootstrap(first[name], second[name], on_examples.COMBINE[name]) for name in first}


def compare(
    models: tuple[TextModel, TextModel],
    names: tuple[str, str],
    split: str,
    limit: int,
    folders: tuple[Path | None, Path | None] = (None, None),
    tell: Callable[[str], None] = lambda _: None,
) -> Comparison:
    """Both runs on the first run's examples; each reads them with its own tokenizer."""
    on_examples.check_same_task(*models)
    tell(_("reading the examples"))
    if folders[0] is not None and RunFolder.is_run(folders[0].parent):
        RunFolder(folders[0].parent).check_data(split)
    is_text = models[0].recipe.data.task == "text"
    if is_text and not tokenizers_agree(*models):
        raise UserError(
            "the two runs cut their text into different tokens, so their blocks are not the same text; compare runs "
            "that share a tokenizer (data.tokenizer_file)"
        )
    block = min(model.model.config.block_size for model in models) if is_text else None
    held = held_out(models[0], split, limit, folders[0], block_size=block)
    if not on_examples.same_reading(*models):
        other = on_examples.same_examples(models[0], models[1], split, held)
    else:
        other = held
    count = held.count
    tables = on_examples.losses(models[0], held, count), on_examples.losses(models[1], other, count)
    tell(_("what they say"))
    of_second = HeldOut(other.batches, held.examples, count)
    answers = on_examples.answers(models[0], held), on_examples.answers(models[1], of_second)
    tell(_("drawing again"))
    scores = score_both(models, held, tables, answers)
    sentences = []
    for i in range(count):
        source, reference = on_examples.describe(models[0], held, i)
        first, second = (texts[i] if texts else "" for texts in answers)
        loss, other_loss = (float(table[i, 0] / table[i, 1]) if table[i, 1] else math.nan for table in tables)
        apart = on_examples.edit_distance(on_examples.as_units(first), on_examples.as_units(second))
        sentences.append(Sentence(i, source, reference, first, second, loss, other_loss, apart))
    tell(_("where they look"))
    attention, why_not = head_distances(models, held)
    return Comparison(names, split, count, scores, sentences, attention, why_not)


def draw(found: Comparison, out: Path) -> list[Path]:
    """Each score's difference with its interval as a figure; the files it is in."""
    scores = {name: (p.difference.value, p.difference.low, p.difference.high) for name, p in found.scores.items()}
    better = {name: name not in BETTER_WHEN_LOWER for name in scores}
    return plots.save(plots.differences(scores, better, found.names), out / "scores")
