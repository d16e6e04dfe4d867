"""What each head and each MLP of a trained model is worth, what each head looks at, and how many can go.

Worth: cut one part, leave the rest, and measure again (Michel et al. 2019; Voita et al. 2019). Two cuts are made, zeros
and the part's own average (see probe.py): a part that matters by its constant alone is not a part that thinks.

Kind: by what the attention weights do on average over the real queries of the examples, each a number from 0 to 1.

    previous, next, same, first, last    the weight on the token before, the token after, the token of the same number, the
                     first token and the last one (queries for which that is their only choice are left out)
    diagonal         cross-attention: the weight on the one or two keys nearest to the straight line from the first query
                     and first key to the last query and last key
    induction        self-attention: the weight on what came after an earlier occurrence of the query's own token (Olsson et
                     al. 2022); for a GPT measured on random tokens said twice, else on the examples
    broad            the entropy of the weights, divided by that of even weights over all that may be seen

How many can go: heads are cut one after the other, the least important (by the loss, when it alone is cut) first, and
the score is measured after each. This is an order of single cuts: two heads that stand in for each other both look
unimportant until one is gone, which the curve then shows.

`write_pruned` makes a run without them: the weights are taken out, not set to zero.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from glassformer import plots, probe
from glassformer.api import Model
from glassformer.checkpoint import STATE, model_tensors, write_checkpoint
from glassformer.config import VERSION
from glassformer.errors import UserError
from glassformer.evaluate import BETTER_WHEN_LOWER, model_inputs, teacher_forced, text_scores
from glassformer.files.durable import to_json, write_atomically
from glassformer.models import GPT
from glassformer.nn.masks import cross_mask, self_mask
from glassformer.nn.rows import Rows
from glassformer.probe import Part
from glassformer.run_folder import RunFolder
from glassformer.studies.held_out import HeldOut, writes, written
from glassformer.text.tokenizer import CONTROL, EOS

MODES = ("zero", "mean")
KINDS = ("previous", "next", "same", "first", "last", "diagonal", "induction", "broad")
POINTED = 0.4  # a head that puts this much where a kind says is of that kind; among several, of the strongest
EVEN = 0.5  # a head of no such kind is broad from this on, and mixed below
LOST = 0.01
Tell = Callable[[int, int, str], None]
"""Called before each measurement: how many are done, of how many, and what comes now."""


def say_nothing(done: int, total: int, what: str) -> None:
    pass


# ---- kinds


@dataclass
class Looks:
    """Sums for one attention over all batches: for each kind, the weight found (a head) and the queries counted."""

    found: dict[str, Tensor] = field(default_factory=dict)
    count: dict[str, float] = field(default_factory=dict)

    def add(self, kind: str, weight: Float[Tensor, "B H T"], queries: Bool[Tensor, "B T"]) -> None:
        here = (weight.double() * queries[:, None]).sum((0, 2))
        self.found[kind] = self.found.get(kind, 0) + here
        self.count[kind] = self.count.get(kind, 0.0) + float(queries.sum())

    def scores(self) -> dict[str, list[float]]:
        """For each kind a number a head; a kind that cannot be (no query could have shown it) is left out."""
        return {k: (self.found[k] / self.count[k]).tolist() for k in KINDS if self.count.get(k)}


def at_keys(weights: Float[Tensor, "B H T S"], keys: Int[Tensor, "B T"]) -> Float[Tensor, "B H T"]:
    """The weight each query gives to one key of its own."""
    index = keys.clamp(0, weights.size(3) - 1)[:, None, :, None].expand(-1, weights.size(1), -1, 1)
    return weights.gather(3, index)[..., 0]


def look_at(
    looks: Looks,
    weights: Float[Tensor, "B H T S"],
    queries: Int[Tensor, "B"],
    keys: Int[Tensor, "B"],
    visible: Bool[Tensor, "B T S"],
    *,
    cross: bool = False,
) -> None:
    """Adds what one batch shows of every kind but induction. `queries` and `keys` are how many are real in each row."""
    place = torch.arange(weights.size(2), device=weights.device)[None].expand(weights.size(0), -1)
    real = place < queries[:, None]
    choices = (visible & real[:, :, None]).sum(-1)

    def towards(kind: str, key: Tensor, extra: Tensor | None = None) -> None:
        may = (key >= 0) & (key < keys[:, None])
        seen = visible.gather(2, key.clamp(0, weights.size(3) - 1)[..., None])[..., 0]
        asked = real & may & seen & (choices > 1)
        looks.add(kind, at_keys(weights, key), asked if extra is None else asked & extra)

    last = (keys - 1)[:, None].expand_as(place)
    towards("same", place)
    towards("first", torch.zeros_like(place))
    if not cross:
        towards("previous", place - 1)
        towards("next", place + 1)
    causal = not cross and not bool(visible[:, :1, 1:].any())
    if not causal:
        towards("last", last)
    if cross:
        line = place * (keys - 1)[:, None] / (queries - 1).clamp(min=1)[:, None]
        low, high = line.floor().long(), line.ceil().long()
        both = at_keys(weights, low) + at_keys(weights, high) * (low != high)[:, None]
        looks.add("diagonal", both, real & (choices > 1) & (queries > 1)[:, None])
    spread = -(weights.double() * weights.double().clamp(min=1e-30).log()).sum(-1)
    even = choices.double().clamp(min=2).log()
    looks.add("broad", spread / even[:, None], real & (choices > 1))


def look_for_induction(
    looks: Looks, weights: Float[Tensor, "B H T T"], tokens: Int[Tensor, "B T"], lengths: Int[Tensor, "B"]
) -> None:
    """The weight on every key that follows an earlier occurrence of the query's token, over the queries that have one."""
    place = torch.arange(tokens.size(1), device=tokens.device)
    again = tokens[:, :, None] == tokens[:, None, :]
    again = again & (place[None, :] + 1 < place[:, None])  # at j, well before i
    after = torch.zeros_like(again)
    after[:, :, 1:] = again[:, :, :-1]
    real = (place < lengths[:, None]) & after.any(-1)
    looks.add("induction", (weights * after[:, None]).sum(-1), real)


def kind_of(scores: Mapping[str, float]) -> str:
    pointed = {kind: value for kind, value in scores.items() if kind != "broad"}
    best = max(pointed, key=pointed.__getitem__, default="")
    if best and pointed[best] >= POINTED:
        return best
    return "broad" if scores.get("broad", 0.0) >= EVEN else "mixed"


def said_twice(model: Any, device: torch.device, rows: int = 16) -> Rows:
    """Random words, and the same again: only one who looks back knows how it goes on."""
    generator = torch.Generator().manual_seed(0)
    half = max(2, min(32, (model.config.block_size - 1) // 2))
    words = torch.randint(
        min(CONTROL, model.config.vocab_size - 1), model.config.vocab_size, (rows, half), generator=generator
    )
    start = torch.full((rows, 1), EOS)
    return Rows.whole(torch.cat([start, words, words], dim=1)).to(device)


@torch.no_grad()
def kinds(talk: Model, held: HeldOut) -> dict[str, dict[str, float]]:
    """For each head its score of every kind that its attention could have."""
    model = talk.model
    attentions = probe.attentions(model)
    looks = {name: Looks() for name in attentions}
    window = model.config.window
    with probe.record(model, "*.weights") as seen:
        for batch in held.batches:
            model.hidden(*model_inputs(batch))
            for name in attentions:
                weights = seen[f"{name}.weights"].float()
                if not weights.size(1):
                    continue
                encoder, cross = name.startswith("encoder."), name.endswith(".cross")
                mine = batch.source if encoder and batch.source is not None else batch.rows
                theirs = batch.source if cross and batch.source is not None else mine
                attention_mask = (
                    cross_mask(mine, theirs) if cross else self_mask(mine, causal=not encoder, window=window)
                )
                mask = attention_mask.explicit(mine.shape[1], theirs.shape[1], weights.device)
                visible = theirs.real[:, None, :].expand(-1, mine.shape[1], -1)
                if mask is not None:
                    visible = visible & mask.view(-1, *mask.shape[-2:])
                lengths = mine.real.sum(1)
                look_at(looks[name], weights, lengths, theirs.real.sum(1), visible, cross=cross)
                if not cross and not isinstance(model, GPT):
                    look_for_induction(looks[name], weights, mine.tokens, lengths)
        if isinstance(model, GPT):
            twice = said_twice(model, talk.device)
            model(twice)
            for name in attentions:
                if (weights := seen[f"{name}.weights"].float()).size(1):
                    look_for_induction(looks[name], weights, twice.tokens, twice.real.sum(1))
    found: dict[str, dict[str, float]] = {}
    for name, attention in attentions.items():
        scores = looks[name].scores()
        for i, number in enumerate(attention.numbers):
            found[f"{name}:{number}"] = {kind: values[i] for kind, values in scores.items()}
    return found


# ---- worth


def measures(talk: Model) -> tuple[str, ...]:
    """What is measured beside the loss; the first is the one that must not be lost."""
    if writes(talk):
        return ("bleu", "exact_match")
    if talk.kind in ("classify", "tag", "mlm"):
        return ("accuracy",)
    return ("perplexity",)


def measure(talk: Model, held: HeldOut, *, decoding: bool = True) -> dict[str, float]:
    """Loss, and the scores of `measures` (those of written text only where `decoding`)."""
    values = teacher_forced(talk.model, held.batches, talk.device).values
    found = {"loss": values["loss"]}
    if not writes(talk):
        own = {"accuracy": 100 * values["token_accuracy"], "perplexity": values["perplexity"]}
        return found | {name: own[name] for name in measures(talk)}
    if not decoding:
        return found | {"perplexity": values["perplexity"]}
    wanted = [target for _, target in held.examples]
    scores = text_scores(written(talk, held.examples), wanted, talk.recipe.train.bleu_tokenize).values
    return found | {name: scores[name] for name in measures(talk)}


@dataclass(frozen=True)
class Worth:
    """A part, what the model measures without it (by mode), and for a head its scores by kind."""

    part: Part
    without: dict[str, dict[str, float]]
    kinds: dict[str, float] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        return kind_of(self.kinds) if self.part.head is not None else "mlp"

    @property
    def strength(self) -> float:
        """How clearly it is of its kind; of a mixed head, what it comes nearest to."""
        pointed = [value for kind, value in self.kinds.items() if kind != "broad"]
        return self.kinds.get(self.kind, max(pointed, default=float("nan")))


@dataclass(frozen=True)
class Heads:
    """What `glassformer heads` found."""

    examples: int
    split: str
    score: str  # the measure that counts
    whole: dict[str, float]
    parts: list[Worth]
    curve: list[tuple[Part, dict[str, float]]]  # one head after the other cut, and what is measured without all so far

    def change(self, worth: Worth, mode: str, name: str) -> float:
        return worth.without[mode][name] - self.whole[name]

    def order(self) -> list[Part]:
        """Heads, the least important first."""
        own = [w for w in self.parts if w.part.head is not None]
        return [w.part for w in sorted(own, key=lambda w: self.change(w, "zero", "loss"))]

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
        return {
            "examples": self.examples,
            "split": self.split,
            "score": self.score,
            "whole": self.whole,
            "parts": [
                {"part": str(w.part), "kind": w.kind, "kinds": w.kinds, "without": w.without} for w in self.parts
            ],
            "curve": [{"cut": n, "part": str(part), **values} for n, (part, values) in enumerate(self.curve, 1)],
            "can_go": self.can_go,
        }


def study(talk: Model, held: HeldOut, split: str, *, decoding: bool = True, tell: Tell = say_nothing) -> Heads:
    model = talk.model
    parts = [*probe.heads(model), *probe.mlps(model)]
    heads = [part for part in parts if part.head is not None]
    total = 2 + len(MODES) * len(parts) + len(heads)
    steps = iter(range(total))
    tell(next(steps), total, "the whole model")
    whole = measure(talk, held, decoding=decoding)
    score = next(name for name in (*measures(talk), "perplexity") if name in whole)
    tell(next(steps), total, "what the heads look at")
    seen = kinds(talk, held)
    means = probe.mean_outputs(model, held.batches)
    worths = []
    for part in parts:
        without = {}
        for mode in MODES:
            tell(next(steps), total, f"{part}, {mode}")
            with probe.ablate(model, [part], mode, means=means):
                without[mode] = measure(talk, held, decoding=decoding)
        worths.append(Worth(part, without, seen.get(str(part), {})))
    found = Heads(held.count, split, score, whole, worths, [])
    curve = []
    order = found.order()
    for n, part in enumerate(order, 1):
        tell(next(steps), total, f"the {n} least important")
        with probe.ablate(model, order[:n]):
            curve.append((part, measure(talk, held, decoding=decoding)))
    return replace(found, curve=curve)


# ---- pictures

NAMES = {
    "bleu": "BLEU",
    "exact_match": "exact match (%)",
    "accuracy": "accuracy (%)",
    "perplexity": "perplexity",
    "loss": "loss (nats a token)",
}


def row_label(name: str) -> str:
    side, layer, part = name.split(".")
    return f"{side} {layer} {'self' if part == 'attention' else part}"


def as_grid(found: Heads, attentions: Sequence[str], width: int, value: Callable[[Worth], float]) -> np.ndarray:
    """A row for each attention, a column for each head, and the MLP of a layer in the last column, beside its last one."""
    grid = np.full((len(attentions), width + 1), np.nan)
    for worth in found.parts:
        if worth.part.head is not None:
            grid[attentions.index(worth.part.module), worth.part.head] = value(worth)
        else:
            layer = worth.part.module.removesuffix("mlp")
            row = max(i for i, name in enumerate(attentions) if name.startswith(layer))
            grid[row, width] = value(worth)
    return grid


def draw(found: Heads, config: Any, out: Path) -> list[Path]:
    """heads (worth), kinds and curve, each as PNG and SVG."""
    attentions, width = config.attentions, config.n_head
    rows, columns = [row_label(name) for name in attentions], [*map(str, range(width)), "MLP"]
    panels = []
    for name in ("loss", found.score):
        sign = -1.0 if name not in BETTER_WHEN_LOWER else 1.0
        for mode in MODES:
            harm = as_grid(found, attentions, width, lambda w, n=name, m=mode, s=sign: s * found.change(w, m, n))  # type: ignore[misc]
            gain = "rise" if sign > 0 else "fall"
            panels.append((f"{gain} of {NAMES[name]}, {mode} ablation", harm))
    paths = plots.save(plots.part_maps(panels, rows, columns), out / "heads")
    strength = as_grid(found, attentions, width, lambda w: w.strength)
    words = [["" for _ in columns] for _ in rows]
    for worth in found.parts:
        if worth.part.head is not None:
            words[attentions.index(worth.part.module)][worth.part.head] = worth.kind
    kind_map = plots.kind_map(strength[:, :width], [row[:width] for row in words], rows, columns[:width])
    paths += plots.save(kind_map, out / "kinds")
    values = [found.whole[found.score], *(v[found.score] for _, v in found.curve)]
    whole = found.whole[found.score]
    line = whole * (1 + LOST if found.score in BETTER_WHEN_LOWER else 1 - LOST)
    curve = plots.cut_curve(values, line, found.can_go, NAMES[found.score])
    return [*paths, *plots.save(curve, out / "curve")]


# ---- pruning


@dataclass(frozen=True)
class Weighed:
    """A model on the scales: how many numbers, how many bytes on disk, how long for the same work."""

    parameters: int
    bytes: int
    reading: float  # seconds to read all examples
    writing: float | None  # seconds to write all answers

    def to_dict(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if value is not None}


def best_of(times: int, *works: Callable[[], Any]) -> list[float]:
    """The least processor time of each, taken in turns so that what disturbs one disturbs all."""
    least = [float("inf")] * len(works)
    for _ in range(times):
        for i, work in enumerate(works):
            begin = time.process_time()
            work()
            least[i] = min(least[i], time.process_time() - begin)
    return least


def weigh(folders: Sequence[RunFolder], talks: Sequence[Model], held: HeldOut, *, times: int = 5) -> list[Weighed]:
    def reading(talk: Model) -> Callable[[], Any]:
        return lambda: teacher_forced(talk.model, held.batches, talk.device)

    def writing(talk: Model) -> Callable[[], Any]:
        return lambda: written(talk, held.examples)

    read = best_of(times, *(reading(talk) for talk in talks))
    wrote: list[float | None] = [None] * len(talks)
    if writes(talks[0]):
        wrote = list(best_of(times, *(writing(talk) for talk in talks)))
    return [
        Weighed(talk.model.num_params(), (folder.weights_folder() / "model.safetensors").stat().st_size, r, w)
        for folder, talk, r, w in zip(folders, talks, read, wrote, strict=True)
    ]


def write_pruned(run: RunFolder, talk: Model, heads: Sequence[Part], out: Path) -> RunFolder:
    """A run of its own with the heads taken out: every verb accepts it. It has its tokenizers and its final weights, and
    what it was made from; it holds no training data and cannot be trained further."""
    smaller = probe.pruned(talk.model, heads)
    recipe = replace(talk.recipe, model=smaller.config)
    folder = RunFolder.create(out, recipe, VERSION)
    for path in [*run.path.glob("tokenizer*.json"), *run.path.glob("labels.json"), *run.path.glob("metrics.jsonl")]:
        shutil.copyfile(path, out / path.name)
    state = {"step": step_of(run), "weights": {"pruned": [str(part) for part in heads], "from": run.path.name}}
    write_checkpoint(folder.final, {"model": model_tensors(smaller)}, state)
    folder.write_recipe(recipe, VERSION, folder.prepared_files())
    return RunFolder(out)


def step_of(run: RunFolder) -> int:
    import json

    return int(json.loads((run.weights_folder() / STATE).read_bytes()).get("step", 0))


def least_important(found: Heads, count: int) -> list[Part]:
    order = found.order()
    if not 1 <= count < len(order):
        raise UserError(
            f"--prune takes out between 1 and {len(order) - 1} of this model's {len(order)} heads, not {count}"
        )
    return order[:count]


def save(found: Heads, out: Path, extra: Mapping[str, Any] | None = None) -> Path:
    path = out / "heads.json"
    write_atomically(path, to_json(found.to_dict() | dict(extra or {})))
    return path
