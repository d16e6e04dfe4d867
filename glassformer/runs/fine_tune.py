"""Where a fine-tuning begins: with the weights and the tokenizers of another run.

What it begins with is written into the new run's own folder (`start/`) before its first step, so that the run it came from may
be moved or deleted, and a run that is stopped and resumed is the one that was never stopped.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from glassformer.config import ModelConfig, Recipe, TrainConfig
from glassformer.errors import ConfigError, UserError
from glassformer.language import _
from glassformer.models import GPT, build_model
from glassformer.models.parts import is_embedding
from glassformer.models.weights import load_model_tensors, model_tensors
from glassformer.nn.lora import add_lora, matches
from glassformer.runs import checkpoint
from glassformer.runs.checkpoint import read_checkpoint, write_checkpoint
from glassformer.runs.folder import RunFolder
from glassformer.text.tokenizer import CONTROL

NEW_ROW_NOISE = 0.1
"""How far new rows scatter around the mean they begin at, as a share of the scatter of the old ones."""


def grown(table: Tensor, count: int, draw: torch.Generator) -> Tensor:
    """A table with `count` rows more, for new tokens: the mean of all words' rows, and a little noise, so that no two are one."""
    if not count:
        return table
    words = table[CONTROL:]
    mean, spread = words.mean(0), words.std(0, correction=0)
    noise = torch.randn((count, *table.shape[1:]), generator=draw) * spread * NEW_ROW_NOISE
    return torch.cat([table, mean.expand(count, *mean.shape) + (noise if table.dim() > 1 else 0)])


def starting_weights(
    old: dict[str, Tensor], config: ModelConfig, added: tuple[int, int], seed: int
) -> tuple[dict[str, Tensor], list[str]]:
    """The weights of a model of this config as far as the old ones go, and what begins anew: rows of the tokens `added` to target
    and source from old ones, a head for other labels from nothing."""
    torch.manual_seed(seed)
    out = {name: tensor.clone() for name, tensor in model_tensors(build_model(config)).items()}
    draw = torch.Generator().manual_seed(seed)
    fresh = []
    for name, tensor in out.items():
        weight = old.get(name)
        if weight is not None and is_vocabulary(name):
            weight = grown(weight, added[name.startswith("source_")], draw)
        if weight is not None and weight.shape == tensor.shape:
            out[name] = weight.clone()
        elif name.startswith("head."):
            fresh.append(name)
        else:
            have = "none" if weight is None else str(tuple(weight.shape))
            raise UserError(
                "the model to begin with has {have} for {name}, and this one needs {shape}: they are of "
                "different shapes; leave [model] out of the recipe",
                have,
                name,
                tuple(tensor.shape),
            )
    return out, fresh


def is_vocabulary(name: str) -> bool:
    """Whether a tensor has a row a word."""
    words = ("embedding.weight", "source_embedding.weight", "target_embedding.weight", "output.weight")
    return name in (*words, "output_bias", "head.bias")


def write_start(draft: RunFolder, start: RunFolder, recipe: Recipe, added: tuple[int, int]) -> list[str]:
    """Writes the weights that a run begins with, those of the run `start`, into its folder; what is new in them, in words."""
    weights, fresh = starting_weights(model_tensors(start.load_model()), recipe.model, added, recipe.train.seed)
    state = {"step": 0, "run": draft.id, "from": draft.facts["from"], "new_tokens": added[0]}
    write_checkpoint(draft.start, {"model": weights}, state)
    notes = [_("beginning with the weights of {path}", start.path)]
    if any(added):
        notes.append(_("{n_target:,} new tokens in the vocabulary", added[0]))
    if fresh:
        notes.append(_("the head begins anew ({n_fresh} tensors)", len(fresh)))
    return notes


def load_start(run: RunFolder, model: nn.Module) -> int:
    """Puts the weights a run begins with into its model; how many tokens are new. Nothing where it begins with none."""
    if "from" not in run.facts:
        return 0
    if (wrong := checkpoint.problem(run.start)) is not None:
        raise UserError("{start} cannot be used: {wrong}; bring it back from a copy, or train anew", run.start, wrong)
    tensors, state = read_checkpoint(run.start)
    if state.get("run") != run.id:
        raise UserError("{start} cannot be used: it is the beginning of another run", run.start)
    load_model_tensors(model, tensors["model"])
    return int(state.get("new_tokens", 0))


def only_keeps_down(bias: Tensor) -> bool:
    """Is this the output bias of an imported GPT: nothing for every word, and one large negative number for control ids that
    the foreign model lacks?"""
    values = bias.detach().unique()
    return values.numel() == 2 and float(values[0]) < 0 and float(values[1]) == 0


def choose_what_learns(model: nn.Module, config: TrainConfig, new_tokens: int) -> None:
    """Freezes what the recipe freezes; with LoRA all but the corrections, and the tables where words are new. The output
    bias of an imported GPT is no weight of its model, and stays as it is."""
    if config.lora_rank:
        layers = add_lora(model, config.lora_rank, config.lora_alpha, config.lora_targets)
        if not layers:
            raise ConfigError(
                "train.lora_targets={lora_targets} matches no matrix of this model", list(config.lora_targets)
            )
        for name, parameter in model.named_parameters():
            words = bool(new_tokens) and (is_vocabulary(name) or is_embedding(name))
            head = name.startswith("head.label")
            parameter.requires_grad_(name.endswith((".lora_a", ".lora_b")) or words or head)
    if isinstance(model, GPT) and model.output_bias is not None and only_keeps_down(model.output_bias):
        model.output_bias.requires_grad_(False)
    names = [name for name, _ in model.named_parameters()]
    for pattern in config.freeze:
        if not any(matches(name, [pattern]) for name in names):
            raise ConfigError(
                "train.freeze: {pattern!r} matches no parameter; there are such as {names!r}", pattern, names[0]
            )
    for name, parameter in model.named_parameters():
        if matches(name, config.freeze):
            parameter.requires_grad_(False)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ConfigError("train.freeze leaves nothing to learn; take a pattern out of it")
