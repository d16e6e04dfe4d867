"""The same sentence at every checkpoint that a run has kept."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from glassformer.checkpoint import load_model_tensors, problem, read_checkpoint
from glassformer.errors import UserError
from glassformer.models import build_model
from glassformer.run_folder import RunFolder, served_weights
from glassformer.studies.look.activations import record_activations
from glassformer.studies.look.inside import CheckpointView, Inside


def kept_weights(run: RunFolder) -> list[tuple[int, str, dict[str, Tensor]]]:
    """Every checkpoint and snapshot of a run that is whole, in the order of their steps; last the final weights, where they
    are not those of the last checkpoint. Those one would use: the moving average, where there is one."""
    folders = {step: run.snapshots.path(step) for step in run.snapshots.steps()}
    folders |= {step: run.checkpoints.path(step) for step in run.checkpoints.steps()}
    found = []
    for step, folder in sorted(folders.items()):
        if problem(folder) is None:
            found.append((step, str(step), served_weights(read_checkpoint(folder)[0])))
    if run.final.is_dir() and problem(run.final) is None:
        tensors, state = read_checkpoint(run.final)
        final = served_weights(tensors)
        last = found[-1][2] if found else {}
        if last.keys() != final.keys() or any(not torch.equal(last[name], final[name]) for name in final):
            found.append((int(state.get("step", found[-1][0] if found else 0)), "final", final))
    return found


def look_across(run: RunFolder, inside: Inside) -> Inside:
    """The same sentence, with the same answer, at every kept checkpoint."""
    kept = kept_weights(run)
    if len(kept) < 2:
        raise UserError(
            f"{run.path} keeps {len(kept)} checkpoint{'s' if len(kept) != 1 else ''}, and there is nothing to compare; "
            "train with a larger train.keep_last and a smaller train.save_every"
        )
    net = build_model(run.recipe.model).eval()
    # At each checkpoint the same words are in question, whatever it would say itself.
    labels = list(inside.input.labels)
    for place, chosen in zip(inside.input.positions, inside.activations.outputs.chosen):
        labels[place] = int(chosen)
    model_input = replace(inside.input, labels=labels)
    views = []
    for step, name, weights in kept:
        load_model_tensors(net, weights)
        views.append(CheckpointView(step, name, record_activations(net, model_input)))
    return replace(inside, across=views)
