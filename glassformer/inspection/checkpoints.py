"""The same sentence at every checkpoint that a run has kept."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from glassformer.errors import UserError
from glassformer.inspection.activations import record_activations
from glassformer.inspection.inspection import CheckpointView, Inspection
from glassformer.models import build_model
from glassformer.models.weights import inference_weights, load_model_tensors
from glassformer.runs.checkpoint import problem, read_checkpoint
from glassformer.runs.folder import RunFolder

Weights = dict[str, Tensor]


def same_weights(first: Weights, second: Weights) -> bool:
    """Whether two sets of weights have the same names and are equal to the bit."""
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def has_weights(model: Weights, other: Weights) -> bool:
    """Whether both compute alike; the models may be on different devices."""
    return all(torch.equal(model[name].cpu(), tensor.cpu()) for name, tensor in other.items() if name in model)


def kept_weights(run: RunFolder) -> Iterator[tuple[int, str, Weights]]:
    """The weights a run has kept, in the order of their steps: its history, snapshots and checkpoints that are whole and
    finite, and the final weights. Those one would use: the moving average, where there is one. Weights that are kept
    twice under different names are listed once, under the step at which they were learned."""
    folders: dict[int, Path] = {}
    for kept in (run.history, run.snapshots, run.checkpoints):
        folders |= {step: kept.path(step) for step in kept.steps() if kept.problem(step) is None}
    final: Weights | None = None
    state: dict[str, Any] = {}
    if run.final.is_dir() and problem(run.final) is None:
        tensors, state = read_checkpoint(run.final)
        final = inference_weights(tensors)
    last = 0
    for step, folder in sorted(folders.items()):
        weights = inference_weights(read_checkpoint(folder)[0])
        if all(torch.isfinite(tensor).all() for tensor in weights.values() if tensor.is_floating_point()):
            yield step, str(step), weights
            last = step
            if final is not None and same_weights(weights, final):
                final = None
    if final is not None:
        yield int(state.get("step", last)), "final", final


def checkpoint_views(run: RunFolder, inside: Inspection) -> Iterator[CheckpointView]:
    """The same sentence, with the same answer, at one kept checkpoint after another."""
    net = build_model(run.recipe.model).eval()
    # At each checkpoint the same tokens are in question, whatever it would say itself.
    labels = list(inside.input.labels)
    known = [labels[position] is not None for position in inside.input.positions]
    for position, token in zip(inside.input.positions, inside.activations.outputs.tokens):
        labels[position] = int(token)
    model_input = replace(inside.input, labels=labels)
    own = inside.model.model.state_dict()
    for step, name, weights in kept_weights(run):
        load_model_tensors(net, weights)
        activations = record_activations(net, model_input)
        # The loss is that of the labels, as everywhere: what comes after the last token has none.
        loss = float(-activations.outputs.logprob[known].mean()) if any(known) else None
        yield CheckpointView(step, name, replace(activations, loss=loss), has_weights(own, net.state_dict()))


def look_across(run: RunFolder, inside: Inspection) -> Inspection:
    """The same sentence, with the same answer, at every kept checkpoint."""
    views = list(checkpoint_views(run, inside))
    if len(views) < 2:
        raise UserError(
            "{path} keeps {n_kept} checkpoint{plural}, and there is nothing to compare; "
            "train with train.history=true, which keeps the weights at steps 0, 10, 30, 100 and so on",
            run.path,
            len(views),
            "s" if len(views) != 1 else "",
        )
    return replace(inside, across=views)
