"""A whole training whose loss is compiled: learned positions, and packed rows that are longer than any sentence may be. A second
one in the same process is compiled, too, and as one graph where a device is named for new tensors."""

import functools
import sys
from contextlib import nullcontext
from pathlib import Path

import torch
import torch._dynamo

from glassformer import runs
from glassformer.config import read_recipe

# The compiler's front end, without the C++ that its back end would have to build.
torch.compile = functools.partial(torch.compile, backend="aot_eager")
sizes = ["model.n_layer=1", "model.n_embd=16", "model.n_head=2", "model.n_hidden=16", "model.block_size=64"]
short = ["data.size=200", "train.steps=3", "train.validate_every=3", "train.validate_examples=2", "train.device=cpu"]
settings = [*sizes, *short, "model.positions=learned", "data.layout=packed", "train.log_every=1"]
torch._dynamo.config.recompile_limit = 1  # what would be eight trainings
losses, graphs = [], []
for name, compiled in (("first", "true"), ("second", "true"), ("eager", "false")):
    recipe = read_recipe("dates", [*settings, f"train.compile={compiled}"])
    assert recipe.data.row_width > recipe.model.block_size
    with torch.device("cpu") if name == "second" else nullcontext():
        run = runs.train(recipe, Path(sys.argv[1]) / name)
    losses.append([line["loss"] for line in run.metrics() if "loss" in line])
    graphs.append(torch._dynamo.utils.counters["stats"]["unique_graphs"])
    torch._dynamo.utils.counters.clear()
assert len(losses[0]) == 3 and all(abs(a - b) < 1e-5 for a, b in zip(losses[0], losses[2], strict=True)), losses
assert losses[0] == losses[1] and graphs == [1, 1, 0], (losses, graphs)
