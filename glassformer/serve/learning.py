"""How a model learns one corrected pair and keeps everything else: LoRA with replay.

A low-rank update is trained on the correction (whole, and with pieces of its source left out, so that the sentence said a
little otherwise is corrected too), on earlier corrections, and on examples of the run's own data, half of them those nearest to
the correction. On the latter the distribution is held to that of the run's own weights, by KL divergence (learning without
forgetting, Li and Hoiem 2016). Nothing here is drawn from torch's random state and dropout is off, so the same correction of
the same weights is the same update, to the bit.
"""

from __future__ import annotations

import copy
import itertools
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
RATE, GROWTH, MOST_RATE = 1e-3, 1.1, 2e-2  # the rate grows from step to step until the correction is found, and is small again then
MOST_STEPS, LOOK_EVERY = 100, 4
COPIES, LEFT_OUT = 1, 0.15  # of the correction with pieces of its source left out, and how many of them
EARLIER, NEAR, FAR = 8, 8, 8  # earlier corrections and replayed examples of a step
SURE = 0.8  # of every token of the correction, before it is decoded to see
KEEP = 10.0  # the weight of the divergence on replayed examples
POOL, READ, HELD_OUT = 4000, 200_000, 128  # examples to replay from, of so many; pairs on which nothing may be lost
WORSE = (
    0.005,
    0.0005,
)  # how much the loss of held-out pairs may grow over that of the run's own weights: a share of it, and nats
STRANGE = 1.0  # nats a token above the least likely held-out pair
SHORT, LONG = 0.25, 4.0  # beyond the shortest and the longest target for its source among the run's pairs


def check_keeps_examples(run: RunFolder) -> None:
    """Refuses a run without examples to replay: it could only learn by forgetting."""
    if "train" not in stored_splits(run.path / "data"):
        raise UserError("{path} keeps no examples to replay, so it cannot learn corrections", path=run.path)


@dataclass(frozen=True)
class Replay:
    """Pairs of a run's own data: some to replay, and some that it was not trained on."""

    pool: list[Pair]
    held_out: list[Pair]
    longest: float  # the largest ratio of characters, target to source
    shortest: float

    @staticmethod
    def of(run: RunFolder) -> Replay:
        """Some of the pairs that the run keeps."""
        data, folder = run.recipe.data, run.path / "data"
        splits = stored_splits(folder)
        draw = random.Random(0)
        read = list(itertools.islice(run_examples(data, "train", folder), READ))
        pool = draw.sample(read, min(POOL, len(read)))
        held_out = (
            list(itertools.islice(run_examples(data, "val", folder), HELD_OUT)) if "val" in splits else pool[:HELD_OUT]
        )
        ratios = [(len(target) + 1) / (len(source) + 1) for source, target in pool]
        return Replay(pool, held_out, max(ratios), min(ratios))

    def near(self, source: str, count: int) -> list[Pair]:
        """The pairs whose sources share most with this one: by Jaccard's index of their words, or of their letters in pairs."""
        own = pieces(source)
        return sorted(self.pool, key=lambda pair: -len(own & (its := pieces(pair[0]))) / len(own | its))[:count]


def pieces(text: str) -> frozenset[str]:
    """The words of a text and its neighbouring letters."""
    return frozenset(text.lower().split()) | {text[i : i + 2] for i in range(len(text) - 1)} | {""}


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


def thinned(ids: Sequence[int], fixed: int, draw: random.Random) -> list[int]:
    """The ids of a source with some left out, but never all; the first `fixed` stay."""
    kept = [token for at, token in enumerate(ids) if at < fixed or draw.random() >= LEFT_OUT]
    return kept if len(kept) > fixed else list(ids)


def check_plausible(model: TextModel, pair: Pair, replay: Replay) -> None:
    """Refuses what is no translation: by its length beside its source, by signs that the model cannot write, and by likelihood,
    which must not be far below that of every held-out pair, nor below that of the same words after most other sources."""
    source, target = pair
    ratio = (len(target) + 1) / (len(source) + 1)
    if not replay.shortest * SHORT <= ratio <= replay.longest * LONG:
        raise UserError(
            "the correction is much longer or shorter than any translation of such a text that this model has seen"
        )
    writer = model.tokenizers.target
    if writer.decode(writer.encode(target)) != target:
        raise UserError("the correction has words or characters that are not in this model's vocabulary")
    others = [(other, target) for other, _ in replay.held_out[:32]]
    own, *after_others = score(model, [pair, *others])
    if own is None:
        raise UserError(
            "the text or its correction is longer than this model reads at once; correct it sentence by sentence"
        )

    def per_token(pairs: Sequence[Any]) -> list[float]:
        return [-found.log_probability / max(1, found.tokens) for found in pairs if found is not None]

    (loss,), elsewhere = per_token([own]), sorted(per_token(after_others))
    usual = per_token(score(model, replay.held_out))
    most = max(max(usual, default=0.0) + STRANGE, math.log(model._model.config.vocab_size))
    if loss > most or (elsewhere and loss > elsewhere[len(elsewhere) // 2]):
        raise UserError("the correction looks like no translation of the text: this model finds it too unlikely")


def mean_loss(model: TextModel, pairs: Sequence[Pair]) -> float:
    """Nats a token."""
    found = [one for one in score(model, pairs) if one is not None]
    return -sum(one.log_probability for one in found) / max(1, sum(one.tokens for one in found))


def with_update(model: TextModel, adapter: dict[str, Tensor]) -> TextModel:
    """Another model: the same with an update merged into its weights."""
    net = copy.deepcopy(model._model)
    load_model_tensors(net, merge_lora({**model_tensors(net), **adapter}))
    updated = copy.copy(model)
    updated._model = net
    return updated


def is_right(model: TextModel, pair: Pair) -> bool:
    """Does the model answer so, by its own search and greedily, as it streams?"""
    return all(translate(model, [pair[0]], **how)[0][0].text == pair[1] for how in ({}, {"beam": 1}))


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
    """The training of one update: of `model`, held to `base`, the run's own weights."""

    def __init__(self, model: TextModel, base: TextModel, pair: Pair, earlier: Sequence[Pair], replay: Replay) -> None:
        self.model, self.base, self.pair, self.earlier, self.replay = model, base, pair, list(earlier), replay
        self.net = copy.deepcopy(model._model).eval()
        self.net.requires_grad_(False)
        add_lora(self.net, RANK, ALPHA, TARGETS)
        draw = torch.Generator().manual_seed(0)
        learned = []
        for name, parameter in self.net.named_parameters():
            if name.endswith(".lora_a"):
                values = torch.empty(parameter.shape).uniform_(-1, 1, generator=draw) / parameter.size(1) ** 0.5
                parameter.data.copy_(values)
            if name.endswith((".lora_a", ".lora_b")):
                learned.append(parameter.requires_grad_(True))
        self.optimizer = torch.optim.AdamW(learned, lr=RATE, weight_decay=0.0)
        self.draw = random.Random(0)
        self.own = encoded(model, [pair])[0]
        self.near = encoded(model, replay.near(pair[0], 4 * NEAR))

    def step(self) -> float:
        """One step; the least probability of a token of the correction before it."""
        source, target = self.own
        fixed = len(self.model.tokenizers.source.before)
        taught = [self.own, *((thinned(source, fixed, self.draw), target) for _ in range(COPIES))]
        taught += encoded(self.model, self.draw.sample(self.earlier, min(EARLIER, len(self.earlier))))
        replayed = self.draw.sample(self.near, min(NEAR, len(self.near)))
        replayed += encoded(self.model, self.draw.sample(self.replay.pool, min(FAR, len(self.replay.pool))))
        batch = batch_of(self.model, *zip(*taught, strict=True))
        labels = batch.labels[batch.labels != IGNORE]
        right = log_probabilities(self.net, batch).gather(1, labels[:, None])[:, 0]
        others = batch_of(self.model, *zip(*replayed, strict=True))
        with torch.no_grad():
            kept = log_probabilities(self.base._model, others)
        divergence = F.kl_div(log_probabilities(self.net, others), kept, reduction="batchmean", log_target=True)
        self.optimizer.zero_grad()
        (KEEP * divergence - right.mean()).backward()
        sure = float(right[: len(target) + 1].detach().min().exp())
        for group in self.optimizer.param_groups:
            group["lr"] = min(MOST_RATE, GROWTH * group["lr"]) if sure < SURE else RATE
        self.optimizer.step()
        return sure

    def adapter(self) -> dict[str, Tensor]:
        """The update as it is now."""
        return {name: tensor.detach().clone() for name, tensor in adapter_tensors(model_tensors(self.net)).items()}


def learn(
    model: TextModel,
    base: TextModel,
    pair: Pair,
    earlier: Sequence[Pair],
    replay: Replay,
    stopped: Callable[[], bool] = lambda: False,
) -> tuple[dict[str, Tensor], TextModel] | None:
    """The update after which the model answers the source of the pair with its target, and the model with it; None where that
    cannot be reached without losing earlier corrections or what is held out, or where it was stopped."""
    learning = Learning(model, base, pair, earlier, replay)
    allowed = mean_loss(base, replay.held_out) * (1 + WORSE[0]) + WORSE[1]
    for number in range(1, MOST_STEPS + 1):
        sure = learning.step()
        if stopped():
            return None
        if number % LOOK_EVERY or sure < SURE:
            continue
        adapter = learning.adapter()
        corrected = with_update(model, adapter)
        lost = forgotten(corrected, earlier)
        learning.earlier += lost  # the more often they are forgotten, the more often they are replayed
        if not lost and is_right(corrected, pair) and mean_loss(corrected, replay.held_out) <= allowed:
            return adapter, corrected
    return None
