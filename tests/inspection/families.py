"""What the tests of `look` look at: a small run of each family, and what is read off a page or a model beside it."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import torch

from glassformer.inspection.inspection import Inspection
from glassformer.models.weights import model_tensors
from glassformer.nn.rows import Rows
from glassformer.runs.checkpoint import write_checkpoint
from glassformer.runs.folder import RunFolder

TEXT = "the cat ran to Paris"
SIZES = {"n_layer": 3, "n_head": 4, "n_embd": 16, "block_size": 48}
FAMILIES: dict[str, dict[str, Any]] = {
    "transformer": {"model": {**SIZES, "family": "transformer", "n_encoder_layer": 2}, "seed": 5},
    "post-norm": {
        "model": {**SIZES, "family": "transformer", "pre_norm": False, "final_norm": False, "positions": "relative"}
    },
    "pruned": {
        "model": {
            **SIZES,
            "family": "transformer",
            "n_kv_head": 2,
            "positions": "alibi",
            "pruned_heads": [
                "decoder.0.attention:0",
                "decoder.0.attention:3",
                *(f"decoder.1.cross:{h}" for h in range(4)),
            ],
        },
    },
    "gpt": {
        "model": {**SIZES, "family": "gpt", "positions": "rotary", "n_kv_head": 2, "window": 7},
        "tokenizer": "bpe",
    },
    "gpt on pairs": {"model": {**SIZES, "family": "gpt", "positions": "alibi"}, "data": {"prompt_answer": True}},
    "mlm": {"model": {**SIZES, "family": "bert", "qk_norm": True}, "tokenizer": "bpe"},
    "classify": {
        "model": {**SIZES, "family": "bert", "head": "classify"},
        "labels": ["fr", "de", "zh"],
        "data": {"task": "classify"},
    },
    "gpt classify": {
        "model": {**SIZES, "family": "gpt", "head": "classify"},
        "labels": ["fr", "de", "zh"],
        "data": {"task": "classify"},
    },
    "classify by the mean": {
        "model": {**SIZES, "family": "bert", "head": "classify", "pool": "mean"},
        "labels": ["fr", "de", "zh"],
        "data": {"task": "classify"},
    },
    "tag": {"model": {**SIZES, "family": "bert", "head": "tag"}, "labels": ["A", "B", "C"], "data": {"task": "tag"}},
}


def logits_of(inside: Inspection, net: Any = None) -> torch.Tensor:
    """The model on the same tokens, nobody listening."""
    net = inside.model.model if net is None else net
    row = Rows.whole(torch.tensor([inside.input.row]))
    with torch.no_grad():
        if inside.input.source:
            return net(Rows.whole(torch.tensor([inside.input.source])), row)[0]
        return net(row)[0]


def with_checkpoints(path: Path, steps: list[int]) -> RunFolder:
    """Checkpoints on a straight way from small weights to the final ones, and those as the last."""
    run = RunFolder.open(path)
    final = run.load_model()
    for step in steps:
        net = copy.deepcopy(final)
        with torch.no_grad():
            for parameter in net.parameters():
                parameter.mul_(step / steps[-1])
        write_checkpoint(run.checkpoints.path(step), {"model": model_tensors(net)}, {"step": step, "run": run.id})
    return run


def page_of(html: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.DOTALL)
    assert found is not None
    return json.loads(found[1])
