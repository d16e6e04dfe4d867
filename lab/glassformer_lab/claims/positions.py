"""Is order lost without positions, and which scheme reads texts longer than those it was trained on?"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from glassformer.models import GPT, Transformer
from glassformer_lab.claims.claim import Budget, Measured, Results
from glassformer_lab.claims.training import Letters, TrainArgs, exact_match, small, train_on

LENGTHS = [(2, 16), (17, 20), (21, 24), (25, 32)]
SPANS = [f"{low}-{high}" for low, high in LENGTHS]
BLOCK = 72  # room for the longest pair in one row
STRETCHED = {"rotary, interpolated": "linear", "rotary, NTK": "ntk"}


def make(kind: type[GPT | Transformer], scheme: str, words: int) -> Any:
    """The model all trials share."""
    return small(kind, n_layer=2, vocab_size=words, block_size=BLOCK, positions=scheme)


def order_seen(family: str) -> float:
    """How far apart the outputs of the last token are when the tokens before it change places; untrained, no positions."""
    ids = torch.randint(3, 27, (8, 10))
    shuffled = torch.cat([ids[:, torch.randperm(9)], ids[:, -1:]], 1)
    with torch.no_grad():
        if family == "encoder":
            model = make(Transformer, "none", 27).eval()
            return float((model.encode(ids)[:, -1] - model.encode(shuffled)[:, -1]).abs().max())
        model = make(GPT, "none", 27).eval()
        return float((model.hidden(ids)[:, -1] - model.hidden(shuffled)[:, -1]).abs().max())


def by_length(model: Any, task: str, seed: int) -> dict[str, float]:
    """Exact match at the trained lengths and beyond."""
    return {f"{low}-{high}": exact_match(model, Letters(task, low, high).test(300, seed)) for low, high in LENGTHS}


def trial(budget: Budget, part: str, seed: int, task: str = "", scheme: str = "", family: str = "") -> Measured:
    """One look at order, or one training with a test at several lengths."""
    if part == "order":
        return {"difference": order_seen(family)}
    letters = Letters(task, *LENGTHS[0])
    model = make(GPT if part == "decoder alone" else Transformer, scheme, letters.vocabulary)
    train_on(model, letters, TrainArgs(budget.steps(600), batch=32, muon=0.02), seed)
    found = by_length(model, task, seed)
    if scheme == "rotary":
        for name, scaling in STRETCHED.items():
            other = type(model)(replace(model.config, rotary_scaling=scaling, rotary_factor=2.0))
            other.load_state_dict(model.state_dict())
            found |= {f"{name} {length}": value for length, value in by_length(other, task, seed).items()}
    return found


def keys_of(results: Results, part: str) -> dict[str, tuple[str, str]]:
    """By the name of a scheme: its setting, and how the numbers of its trials begin. Rotary is there as it was trained, too."""
    found = {}
    for scheme in results.options("scheme", part=part):
        found[scheme] = (scheme, "")
        if scheme == "rotary":
            found |= {name: (scheme, f"{name} ") for name in STRETCHED}
    return found


def rows(results: Results) -> list[tuple[str, ...]]:
    """Accuracy by length for every scheme."""
    return [
        (
            f"{task}, decoder alone" if part == "decoder alone" else task,
            name,
            *(results.mean_std(begins + length, part=part, task=task, scheme=scheme) for length in SPANS),
        )
        for part in ("length", "decoder alone")
        for task in results.options("task", part=part)
        for name, (scheme, begins) in keys_of(results, part).items()
    ]


def length_lines(results: Results, part: str, task: str) -> dict[str, Any]:
    """Accuracy over length, a line a scheme."""
    lines, places = {}, [high for _, high in LENGTHS]
    for name, (scheme, begins) in keys_of(results, part).items():
        trials = results.where(part=part, task=task, scheme=scheme)
        lines[name] = places, [[found[begins + length] for length in SPANS] for _, found in trials]
    return lines
