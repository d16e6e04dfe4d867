"""Is a decoder alone enough? A GPT on pairs beside an encoder-decoder, at equal parameters and at equal multiplications; a GPT
that classifies beside a BERT; and the rank of their attention."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from glassformer.data.builtin.toys import QUESTIONS, in_context
from glassformer.models import BERT, GPT, Transformer
from glassformer.models.costs import shapes_alone
from glassformer.nn.taps import record
from glassformer_lab.claims.claim import Budget, Measured, Results
from glassformer_lab.claims.timing import in_turns
from glassformer_lab.claims.training import (
    PairBatch,
    Strings,
    TrainArgs,
    as_one_text,
    dates,
    drawn,
    exact_match,
    padded,
    parameters,
    phrases,
    small,
    summed_loss,
    train,
    train_on,
)

WIDTH = 64


def make(arm: str, vocabulary: int, **more: Any) -> nn.Module:
    """Two blocks that read (12 d² numbers each) and two that write (16 d²) are about five of a GPT's (12 d²). A GPT of two
    blocks does as many multiplications: each token goes through two blocks, whichever side it is on."""
    kind = Transformer if arm == "encoder-decoder" else GPT
    return small(kind, n_layer=5 if arm == "equal parameters" else 2, vocab_size=vocabulary, block_size=192, **more)


def rank_of(weights: Tensor) -> tuple[float, float]:
    """Of square attention matrices: the share of full rank that they have numerically, and the effective rank (Roy and
    Vetterli 2007: e to the entropy of the singular values) as a share of their size."""
    values = torch.linalg.svdvals(weights.double())
    full = (values > 1e-10 * values[..., :1]).sum(-1) / values.size(-1)
    shares = values / values.sum(-1, keepdim=True)
    effective = (-(shares * shares.clamp(min=1e-30).log()).sum(-1)).exp() / values.size(-1)
    return float(full.double().mean()), float(effective.mean())


@torch.no_grad()
def ranks(model: nn.Module, task: Strings) -> Measured:
    """Of the self-attention of trained models, on one sentence each: causal in a decoder, full in an encoder."""
    model.eval()
    found = []
    for pair in task.held_out[:4]:
        pairs = task.pairs([pair])
        pattern = "encoder.*.attention.weights" if isinstance(model, Transformer) else "decoder.*.attention.weights"
        with record(model, pattern) as seen:
            if isinstance(model, Transformer):
                model.encode(pairs.source)
            else:
                model(as_one_text(pairs)[0])
        found += [rank_of(weights) for weights in seen.values()]
    return {"rank": sum(r for r, _ in found) / len(found), "effective_rank": sum(e for _, e in found) / len(found)}


def classify(budget: Budget, arm: str, seed: int) -> Measured:
    """The language of a line, read off the first token (BERT) or the last (GPT)."""
    from glassformer.data.builtin.languages import language_lines

    lines = language_lines("train", budget.steps(8000)), language_lines("test", min(600, budget.steps(20_000)))
    names = sorted({label for part in lines for _, label in part})
    letters = {
        letter: 3 + i for i, letter in enumerate(sorted({c for part in lines for text, _ in part for c in text}))
    }
    kind: Any = GPT if arm == "GPT" else BERT
    sizes = {"n_layer": 2, "vocab_size": len(letters) + 3, "block_size": 160, "n_label": len(names)}
    model = small(kind, head="classify", **sizes)
    generator = torch.Generator().manual_seed(seed)

    def scores_and_labels(some: list[tuple[str, str]]) -> tuple[Tensor, Tensor]:
        rows = [[1, *(letters[c] for c in text[:150]), 2] for text, _ in some]
        lengths = [len(row) for row in rows]
        places = torch.tensor([n - 1 for n in lengths] if arm == "GPT" else [0] * len(rows))
        scores = model(padded(rows), lengths=lengths)[torch.arange(len(rows)), places]
        return scores, torch.tensor([names.index(label) for _, label in some])

    def loss() -> tuple[Tensor, int]:
        scores, labels = scores_and_labels([lines[0][i] for i in drawn(0, len(lines[0]), 32, generator)])
        return nn.functional.cross_entropy(scores, labels, reduction="sum"), len(labels)

    train(model, loss, TrainArgs(budget.steps(400), muon=0.02))
    model.eval()
    with torch.no_grad():
        scores, labels = scores_and_labels(lines[1])
    return {"accuracy": 100 * float((scores.argmax(-1) == labels).double().mean()), "parameters": parameters(model)}


def look_up(budget: Budget, arm: str, seed: int) -> Measured:
    """A table that stands in the prompt alone, and six of its entries asked for: can a small model look them all up? Guessing
    among the entries shown is right once in their number to the sixth. Told by how many entries are shown, and without any: then
    there is nothing to look up."""
    held = in_context("test", min(1000, budget.steps(20_000)))
    task = Strings(in_context("train", budget.steps(20_000)), held, str.split)
    model = make(arm, task.vocabulary, positions="rotary")
    train_on(model, task, TrainArgs(budget.steps(1000), rate=4e-3, warmup=100, muon=0.02), seed)
    shown = [prompt.count(",") + 1 for prompt, _ in held]
    found: Measured = {
        "accuracy": exact_match(model, task.test(500, seed)),
        "chance": 100 * sum(n**-QUESTIONS for n in shown) / len(shown),
        "none shown": exact_match(
            model, task.pairs([("? " + p.partition("? ")[2], answer) for p, answer in held[:200]])
        ),
    }
    shots = sorted(set(shown))
    by_shots = [[one for one, n in zip(held, shown, strict=True) if n == count][:100] for count in shots]
    return found | {"shots": shots, "by shots": [exact_match(model, task.pairs(some)) for some in by_shots]}


@torch.no_grad()
def write(model: Any, pairs: PairBatch, new: int = 12) -> None:
    """So many tokens for 32 pairs at once, with a cache."""
    model.eval()
    if isinstance(model, GPT):
        state = model.start(32, pairs.source.size(1) + new + 1)
        token = model.step(pairs.source, state)[:, -1:].argmax(-1)
    else:
        from glassformer.nn.rows import as_rows

        state = model.start(as_rows(pairs.source, pairs.source_lengths), new + 1)
        token = torch.ones_like(pairs.source[:, :1])
    for _ in range(new):
        token = model.step(token, state)[:, -1:].argmax(-1)


def speed(task: str, arm: str) -> Measured:
    """The time of a step of training and of writing twelve tokens for 32 pairs, beside the encoder-decoder's, in turns."""
    data = dates(100, 100) if task == "dates" else phrases(count=100, test=100)
    both = [make(name, data.vocabulary) for name in (arm, "encoder-decoder")]
    pairs = data.pairs(data.held_out[:32])

    def step(model: nn.Module) -> None:
        summed_loss(model.train(), pairs).backward()

    ours, theirs = in_turns(partial(step, both[0]), partial(step, both[1]))
    with torch.device("cpu"):  # what the cache keeps on the host
        written, beside = in_turns(partial(write, both[0], pairs), partial(write, both[1], pairs))
    return {"step": ours, "step beside": theirs, "writing": written, "writing beside": beside}


def trial(budget: Budget, part: str, seed: int, task: str = "", arm: str = "") -> Measured:
    """One training, or the count."""
    if part == "base":
        with shapes_alone():
            base = Transformer.from_preset("transformer-base", vocab_size=37_000)
        cross = sum(p.numel() for n, p in base.named_parameters() if ".cross" in n)
        layers = sum(p.numel() for n, p in base.named_parameters() if n.startswith(("encoder.", "decoder.")))
        return {"share": 100 * cross / parameters(base), "share_of_layers": 100 * cross / layers}
    if part == "labels":
        return classify(budget, arm, seed)
    if part == "in-context":
        return look_up(budget, arm, seed)
    if part == "speed":
        return speed(task, arm)
    count, held = budget.steps(20_000), min(1000, budget.steps(20_000))
    data = dates(count, held) if task == "dates" else phrases(count=count, test=held)
    model = make(arm, data.vocabulary)
    losses = train_on(model, data, TrainArgs(budget.steps(2500), rate=3e-3, batch=32, muon=0.02), seed)
    layers = 5 if arm == "equal parameters" else 2
    numbers = 2 * 4 * WIDTH * layers  # keys and values of a token, in bytes
    return {
        "accuracy": exact_match(model, data.test(700, seed)),
        "loss": sum(losses[-20:]) / len(losses[-20:]),
        "parameters": parameters(model),
        "cache": numbers,
        **ranks(model, data),
    }


def facts(results: Results) -> Measured:
    """What cross-attention costs the paper's base model, in percent."""
    return {"share": results.mean("share", part="base"), "of_layers": results.mean("share_of_layers", part="base")}


def shot_lines(results: Results, **case: Any) -> dict[str, Any]:
    """Accuracy over how many entries the prompt shows."""
    found = results.where(**case)
    arms = results.options("arm", **case)
    return {arm: (found[0][1]["shots"], [own["by shots"] for _, own in results.where(**case, arm=arm)]) for arm in arms}
