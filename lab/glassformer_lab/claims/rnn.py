"""Is an RNN serial and forgetful, and what did attention add to it? A plain RNN and LSTMs without and with attention beside a
Transformer of as many parameters."""

from __future__ import annotations

import time
from functools import cache, partial
from typing import Any

import torch
from torch import nn

from glassformer.models import Transformer
from glassformer.models.costs import shapes_alone
from glassformer_lab.claims.claim import Budget, Measured, Results
from glassformer_lab.claims.recurrent_translator import RecurrentTranslator
from glassformer_lab.claims.timing import in_turns
from glassformer_lab.claims.training import (
    Letters,
    Strings,
    TrainArgs,
    answer_scores,
    dates,
    held_out_scores,
    parameters,
    small,
    summed_loss,
    train_on,
)

NAMES = {"rnn": "RNN", "lstm": "LSTM", "lstm+attention": "LSTM with attention", "transformer": "Transformer"}
ENOUGH = 90.0  # percent of tokens: the score whose steps and seconds are counted


def recurrent(arm: str, vocabulary: int, width: int) -> RecurrentTranslator:
    """The recurrent model of an arm."""
    return RecurrentTranslator(vocabulary, width, attends=arm == "lstm+attention", plain=arm == "rnn")


@cache
def width_of(arm: str, vocabulary: int, wanted: int) -> int:
    """The even width at which a recurrent model comes nearest to so many parameters."""
    with shapes_alone():
        return min(range(32, 512, 2), key=lambda width: abs(parameters(recurrent(arm, vocabulary, width)) - wanted))


def make(arm: str, vocabulary: int) -> nn.Module:
    """The model of an arm, all with as many parameters as the Transformer, within a hundredth or so."""
    model = small(Transformer, n_layer=2, n_hidden=256, vocab_size=vocabulary, block_size=272)
    return model if arm == "transformer" else recurrent(arm, vocabulary, width_of(arm, vocabulary, parameters(model)))


def gradient_over_time(model: nn.Module, length: int, seed: int) -> list[float]:
    """How much the score of the first target token depends on each source token: the size of that gradient."""
    task = Letters("copy", length, length)
    pairs = task.batch(16, torch.Generator().manual_seed(seed))
    kept: list[torch.Tensor] = []
    table = model.embedding if isinstance(model, RecurrentTranslator) else model.source_table  # type: ignore[union-attr]

    def keep(_: nn.Module, __: object, out: torch.Tensor) -> torch.Tensor:
        if not kept:
            out.retain_grad()
            kept.append(out)
        return out

    handle = table.register_forward_hook(keep)  # type: ignore[union-attr, arg-type]
    try:
        scores = model(pairs.source, pairs.target, pairs.source_lengths, pairs.target_lengths)[:, 0]
        scores.logsumexp(-1).sum().backward()
    finally:
        handle.remove()
    assert kept[0].grad is not None
    return kept[0].grad.norm(dim=-1).mean(0).tolist()  # type: ignore[no-any-return]


def serial(length: int) -> Measured:
    """The time of a step of the Transformer and of the LSTM with attention on rows of so many letters, in turns."""
    task = Letters("copy", length, length)
    pairs = task.batch(32, torch.Generator().manual_seed(7))

    def step(model: nn.Module) -> None:
        summed_loss(model, pairs).backward()

    one, other = (partial(step, make(arm, task.vocabulary)) for arm in ("transformer", "lstm+attention"))
    ours, theirs = in_turns(one, other)
    return {"ours": ours, "theirs": theirs}


def trial(budget: Budget, task: str, length: int, seed: int, arm: str = "", rate: float = 2e-3) -> Measured:
    """Train and count right tokens, with the steps and seconds until nine in ten are; before that, see how far back the gradient
    reaches."""
    if task == "serial":
        return serial(length)
    data: Letters | Strings = (
        Letters("copy", max(2, length // 2), length) if task == "copy" else dates(budget.steps(20_000))
    )
    model = make(arm, data.vocabulary)
    found: Measured = {"parameters": parameters(model)}
    if task == "copy":
        found["reach"] = gradient_over_time(model, length, seed)
        model.zero_grad()
    args = TrainArgs(budget.steps(1000), rate=rate)
    looked, spent, began = data.val(100, seed), 0.0, time.perf_counter()

    def watch(step: int) -> None:
        nonlocal spent, began
        if "steps_needed" not in found and step % max(1, args.steps // 20) == 0:
            spent += time.perf_counter() - began
            if answer_scores(model, looked)["tokens"] >= ENOUGH:
                found.update(steps_needed=step, seconds_needed=spent)
            began = time.perf_counter()

    train_on(model, data, args, seed, watch=watch)
    return found | held_out_scores(model, data, seed, 300)


def reach_lines(results: Results, **case: Any) -> dict[str, Any]:
    """The gradient of the first answer to each source token, as a share of the largest."""
    rate = results.options("rate", **case)[0]  # before training, so any
    lines = {name: results.curves("reach", arm=arm, rate=rate, **case) for arm, name in NAMES.items()}
    return {name: (xs, [[v / max(own) for v in own] for own in seeds]) for name, (xs, seeds) in lines.items()}


def rows(results: Results) -> list[tuple[str, ...]]:
    """Every arm at the rate that was best for it."""
    found: list[tuple[str, ...]] = []
    for case in [one for task in ("copy", "dates") for one in results.cases(["length", "arm"], task=task)]:
        own = {**case, "task": "dates" if case["length"] == 0 else "copy"}
        own["rate"] = results.best("rate", **own)
        needed = results.values("steps_needed", **own)
        seeds = len(results.where(**own))
        steps, seconds = (
            f"{results.mean(key, **own):.{digits}f}" if needed else "–"
            for key, digits in (("steps_needed", 0), ("seconds_needed", 1))
        )
        what = f"{own['task']} {case['length'] or ''}".strip(), NAMES[case["arm"]]
        sizes = f"{results.mean('parameters', **own):,.0f}", f"{own['rate']:g}"
        scores = results.mean_std("tokens", **own), results.mean_std("accuracy", **own)
        found.append((*what, *sizes, *scores, f"{len(needed)} of {seeds}", steps, seconds))
    return found
