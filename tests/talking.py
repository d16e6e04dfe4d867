"""Small runs, made on the spot: real folders, with weights that were never trained."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from glassformer.config import VERSION, Recipe
from glassformer.data.prepare import complete_model
from glassformer.models import build_model
from glassformer.models.weights import model_tensors
from glassformer.runs.checkpoint import write_checkpoint
from glassformer.runs.folder import RunFolder
from glassformer.text.tokenizer import Tokenizer
from glassformer.text.tokenizers import Tokenizers

SENTENCES = [
    "the cat sat on the mat.",
    "a dog ran to the river; the river was cold.",
    "Anna lives in Paris, and Tom lives in Rome.",
    "3 mai 1979 and 12 june 2004!",
]


def make_run(
    folder: Path,
    *,
    tokenizer: str = "char",
    vocab_size: int = 400,
    labels: Sequence[str] = (),
    model: dict[str, Any] | None = None,
    data: dict[str, Any] | None = None,
    decode: dict[str, Any] | None = None,
    seed: int = 0,
) -> Path:
    """A run that says things at random, but always the same things. Its letters are those of SENTENCES."""
    sizes = {"n_layer": 1, "n_head": 2, "n_embd": 16, "n_hidden": 32, "block_size": 48, "dropout": 0.0}
    recipe = Recipe.from_dict(
        {
            "model": sizes | (model or {}),
            "data": data or {},
            "decode": {"max_new_tokens": 12, "batch_size": 8} | (decode or {}),
        }
    )
    learned = Tokenizer.train(tokenizer, SENTENCES * 4, vocab_size)
    texts = Tokenizers(learned, learned, list(labels))
    recipe = complete_model(recipe, texts)
    run = RunFolder.create(folder, recipe, VERSION)
    texts.save(folder)
    run.write_recipe(recipe, VERSION, run.prepared_files())
    run = RunFolder(folder)
    torch.manual_seed(seed)
    net = build_model(recipe.model)
    with torch.no_grad():
        for parameter in net.parameters():
            # Weights as they begin give nearly even chances; these have opinions.
            parameter.add_(torch.randn_like(parameter), alpha=0.35)
    write_checkpoint(run.final, {"model": model_tensors(net)}, {"step": 0})
    return folder
