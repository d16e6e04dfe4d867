"""How a model learns one corrected pair and keeps everything else: LoRA with replay.

A low-rank update is trained on the correction, on earlier ones, and on examples of the run's own data, half of them those nearest
to the correction. On these the distribution is held to that of the run's own weights, by KL divergence (learning without
forgetting, Li and Hoiem 2016), the more so where the run is right. Nothing here is drawn from torch's random state and dropout is
off, so the same correction of the same weights is the same update, to the bit.
"""

from __future__ import annotations

import copy
import itertools
import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from glassformer.data.batches import SentenceBatches
from glassformer.data.examples import Pairs, Prompts
from glassformer.data.store import run_examples, stored_splits
from glassformer.data.tokens import TokenFile
from glassformer.errors import UserError
from glassformer.models.weights import load_model_tensors, model_tensors
from glassformer.nn.lora import adapter_tensors, add_lora, merge_lora
from glassformer.nn.loss import IGNORE
from glassformer.runs.folder import RunFolder
from glassformer.tasks import TextModel, score, translate

Pair = tuple[str, str]

RANK, ALPHA, TARGETS = 8, 16.0, ("encoder.*", "decoder.*")
# The rate grows from step to step until the correction is found, and shrinks then.
RATE, GROWTH, MOST_RATE = 1e-3, 1.1, 2e-2
MOST_STEPS, LOOK_EVERY = 100, 4
EARLIER, NEAR, FAR = 8, 8, 8  # earlier corrections and replayed examples of a step
AHEAD = 1.5  # so much likelier than any other each token of the correction must be, before it is decoded to see
# The weight of the divergence on replayed examples, and the share of it where the run itself errs.
KEEP, WRONG = (10.0, 0.1)
POOL, READ, HELD_OUT = 4000, 200_000, 64  # examples to replay from, of so many; pairs on which nothing may be lost
# How much the loss of held-out pairs may grow over that of the run's own weights: the larger of a share of it, and nats a token
# (of a model that is nearly always right a share is less than one of its words costs that becomes a little less certain).
WORSE = (0.005, 0.01)
# Nats a token above the least likely held-out pair; other sources that a target is tried after.
STRANGE, OTHERS = (1.0, 32)
SHORT, LONG = 0.25, 4.0  # beyond the shortest and the longest target for its source among the run's pairs


def pieces(text: str) -> frozenset[str]:
    """The words of a text and its neighbouring letters."""
    return frozenset(text.lower().split()) | {text[i : i + 2] for i in range(len(text) - 1)} | {""}


def length_ratio(pair: Pair) -> float:
    """How many times as long as its source a target is, in characters."""
    return (len(pair[1]) + 1) / (len(pair[0]) + 1)


def batch_of(model: TextModel, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> Any:
    """Token ids as one batch, a pair a row, without those that the model cannot read."""
    sides = (
        TokenFile.of(sources, model.tokenizers.source.vocab_size),
        TokenFile.of(targets, model.tokenizers.target.vocab_size),
    )
    kind = Pairs if model.kind == "transformer" else Prompts
    limit = model._model.config.block_size
    batches = SentenceBatches(kind(*sides), budget=2**30, limit=limit, layout="padded", seed=0)
    return next(iter(batches.in_order())).to(model.device)


def encoded(model: TextModel, pairs: Sequence[Pair]) -> list[tuple[list[int], list[int]]]:
    """The ids of both sides of each pair."""
    sources = model.tokenizers.source.encode_batch([source for source, _ in pairs])
    targets = model.tokenizers.target.encode_batch([target for _, target in pairs])
    return list(zip(map(list, sources), map(list, targets), strict=True))


def log_probabilities(net: Any, batch: Any) -> Tensor:
    """Over the vocabulary, at every place that has a label."""
    sides = (batch.rows,) if batch.source is None else (batch.source, batch.rows)
    return net.logits(net.hidden(*sides)).float()[batch.labels != IGNORE].log_softmax(-1)


def token_losses(model: TextModel, pairs: Sequence[Pair]) -> list[tuple[float, int]]:
    """The loss in nats of each pair that the model can read, and how many tokens it has."""
    return [(-pair.log_probability, pair.tokens) for pair in score(model, pairs) if pair is not None]


def mean_loss(losses: Sequence[tuple[float, int]]) -> float:
    """Nats a token."""
    return sum(loss for loss, _ in losses) / max(1, sum(tokens for _, tokens in losses))


class Baseline:
    """What a model that learns is held to: the run's own weights, and pairs of its data, some to replay (`pool`) and some that
    it was not trained on (`held_out`)."""

    def __init__(self, model: TextModel, run: RunFolder) -> None:
        data, folder = run.recipe.data, run.path / "data"
        rows = list(itertools.islice(run_examples(data, "train", folder), READ))
        self.model = model
        self.pool: list[Pair] = random.Random(0).sample(rows, min(POOL, len(rows)))
        self.held_out: list[Pair] = self.pool[:HELD_OUT]
        if "val" in stored_splits(folder):
            self.held_out = list(itertools.islice(run_examples(data, "val", folder), HELD_OUT))
        self.pieces = [pieces(source) for source, _ in self.pool]
        ratios = [length_ratio(pair) for pair in self.pool]
        self.ratios = min(ratios) * SHORT, max(ratios) * LONG
        losses = token_losses(model, self.held_out)
        mean, worst = mean_loss(losses), max((loss / tokens for loss, tokens in losses), default=0.0)
        self.most_loss = mean + max(mean * WORSE[0], WORSE[1])  # of the held-out pairs together, a token
        # Of one correction, a token, before it is learned.
        self.most_strange = max(worst + STRANGE, math.log(model._model.config.vocab_size))

    def near(self, source: str, count: int) -> list[Pair]:
        """The pairs whose sources share most with this one: by Jaccard's index of their words, or of their letters in pairs."""
        own = pieces(source)
        shared = [-len(own & others) / len(own | others) for others in self.pieces]
        return [self.pool[n] for n in sorted(range(len(shared)), key=shared.__getitem__)[:count]]


def check_plausible(pair: Pair, baseline: Baseline) -> None:
    """Refuses what is no translation: by its length beside its source, by signs that the model cannot write, and by likelihood,
    which must not be far below that of every held-out pair, nor below that of the same words after many another source. The
    run's own weights are asked, so that what was learned before refuses nothing and lets nothing in."""
    target = pair[1]
    model, (shortest, longest) = baseline.model, baseline.ratios
    if not shortest <= length_ratio(pair) <= longest:
        raise UserError(
            "the correction is much longer or shorter than any translation of such a text that this model has seen"
        )
    writer = model.tokenizers.target
    if writer.decode(writer.encode(target)) != target:
        raise UserError("the correction has words or characters that are not in this model's vocabulary")
    if not (own := token_losses(model, [pair])):
        raise UserError(
            "the text or its correction is longer than this model reads at once; correct it sentence by sentence"
        )
    elsewhere = sorted(token_losses(model, [(other, target) for other, _ in baseline.held_out[:OTHERS]]))
    loss, tokens = own[0]
    if loss / tokens > baseline.most_strange or (elsewhere and loss > elsewhere[len(elsewhere) // 8][0]):
        raise UserError("the correction looks like no translation of the text: this model finds it too unlikely")


def with_update(model: TextModel, adapter: dict[str, Tensor]) -> TextModel:
    """Another model: the same with an update merged into its weights."""
    net = copy.deepcopy(model._model)
    load_model_tensors(net, merge_lora({**model_tensors(net), **adapter}))
    updated = copy.copy(model)
    updated._model = net
    return updated


def is_right(model: TextModel, pair: Pair) -> bool:
    """Does the model answer so, by its own search and greedily, as it streams?"""
    beams = {model.recipe.decode.beam, 1}
    return all(translate(model, [pair[0]], beam=beam)[0][0].text == pair[1] for beam in beams)


@torch.no_grad()
def forgotten(model: TextModel, pairs: Sequence[Pair]) -> list[Pair]:
    """Those whose target is not what the model finds likeliest, token by token."""
    out = []
    for start in range(0, len(pairs), 64):
        some = list(pairs[start : start + 64])
        batch = batch_of(model, *zip(*encoded(model, some), strict=True))
        best = log_probabilities(model._model, batch).argmax(-1)
        wrong = torch.zeros_like(batch.labels, dtype=torch.bool)
        wrong[batch.labels != IGNORE] = best != batch.labels[batch.labels != IGNORE]
        out += [some[number] for row, number in enumerate(batch.examples) if wrong[row].any()]
    return out


class Learning:
    """The training of one update of a model, held to the baseline."""

    def __init__(self, model: TextModel, baseline: Baseline, pair: Pair, earlier: Sequence[Pair]) -> None:
        self.model, self.base, self.pool = model, baseline.model._model, baseline.pool
        self.earlier, self.draw = list(earlier), random.Random(0)
        self.net = copy.deepcopy(model._model).eval().requires_grad_(False)
        add_lora(self.net, RANK, ALPHA, TARGETS)
        draw = torch.Generator().manual_seed(0)
        for name, parameter in self.net.named_parameters():
            if name.endswith(".lora_a"):  # as add_lora draws it, but from a state of its own
                bound = parameter.size(1) ** -0.5
                parameter.data.copy_(torch.empty(parameter.shape).uniform_(-bound, bound, generator=draw))
            parameter.requires_grad_(name.endswith((".lora_a", ".lora_b")))
        learned = [parameter for parameter in self.net.parameters() if parameter.requires_grad]
        self.optimizer = torch.optim.AdamW(learned, lr=RATE, weight_decay=0.0)
        self.own = encoded(model, [pair])[0]
        self.near = encoded(model, baseline.near(pair[0], 4 * NEAR))

    def step(self) -> float:
        """One step; how much likelier each token of the correction was before it than any other in its place, at the least."""
        taught = [self.own, *encoded(self.model, self.draw.sample(self.earlier, min(EARLIER, len(self.earlier))))]
        replayed = self.draw.sample(self.near, min(NEAR, len(self.near)))
        replayed += encoded(self.model, self.draw.sample(self.pool, min(FAR, len(self.pool))))
        others = batch_of(self.model, *zip(*replayed, strict=True))
        with torch.no_grad():
            kept = log_probabilities(self.base, others)
            weights = torch.where(kept.argmax(-1) == others.labels[others.labels != IGNORE], 1.0, WRONG)
        batch = batch_of(self.model, *zip(*taught, *replayed, strict=True))
        labels, found = batch.labels[batch.labels != IGNORE], log_probabilities(self.net, batch)
        count = len(labels) - len(weights)
        right = found.gather(1, labels[:, None])[:count, 0]
        divergences = F.kl_div(found[count:], kept, reduction="none", log_target=True).sum(-1)
        rivals = found.detach()[:count].scatter(1, labels[:count, None], -math.inf).amax(-1)
        leads = right - rivals
        ahead = float(leads.detach()[: len(self.own[1]) + 1].min().exp())
        # What is well ahead already pulls no more, so that the rest of the update goes into keeping.
        missing = -right[leads < math.log(2 * AHEAD)].sum() / count
        self.optimizer.zero_grad()
        (KEEP * (weights * divergences).mean() + missing).backward()
        for group in self.optimizer.param_groups:
            rate = GROWTH * group["lr"] if ahead < AHEAD else group["lr"] / GROWTH
            group["lr"] = min(MOST_RATE, max(RATE, rate))
        self.optimizer.step()
        return ahead

    def adapter(self) -> dict[str, Tensor]:
        """The update as it is now."""
        return {name: tensor.detach().clone() for name, tensor in adapter_tensors(model_tensors(self.net)).items()}


def learn(
    model: TextModel,
    baseline: Baseline,
    pair: Pair,
    earlier: Sequence[Pair] = (),
    stopped: Callable[[], bool] = lambda: False,
) -> tuple[dict[str, Tensor], TextModel] | None:
    """The update after which the model answers the source of the pair with its target, and the model with it; None where that
    cannot be reached without losing earlier corrections or what is held out, or where it was stopped."""
    learning = Learning(model, baseline, pair, earlier)
    for number in range(1, MOST_STEPS + 1):
        ahead = learning.step()
        if stopped():
            return None
        if number % LOOK_EVERY or ahead < AHEAD:
            continue
        adapter = learning.adapter()
        corrected = with_update(model, adapter)
        lost = forgotten(corrected, earlier)
        learning.earlier += lost  # the more often they are forgotten, the more often they are replayed
        if (
            not lost
            and is_right(corrected, pair)
            and mean_loss(token_losses(corrected, baseline.held_out)) <= baseline.most_loss
        ):
            return adapter, corrected
    return None
