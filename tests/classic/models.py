"""Small models of the two files that stand alone, with weights that hide nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from glassformer.classic import gpt as gpt_file
from glassformer.classic import transformer as classic
from glassformer.classic.gpt import GPT
from glassformer.classic.transformer import Config, Transformer

FILES = [Path(classic.__file__), Path(gpt_file.__file__)]
IGNORE = -100


def shaken(model: nn.Module) -> nn.Module:
    """Every parameter random and of size one fifth, so that nothing is hidden by zeros, ones or small weights."""
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p) * 0.2)
    return model.eval()


def transformer(**changes: object) -> Transformer:
    settings: dict = {"vocab_size": 11, "block_size": 8, "n_layer": 2, "n_head": 2, "n_embd": 16, **changes}
    model = shaken(Transformer(Config(**settings)))
    assert isinstance(model, Transformer)
    return model


def gpt(**changes: object) -> GPT:
    settings: dict = {
        "vocab_size": 11,
        "max_seq_len": 8,
        "num_layer": 2,
        "embed_dim": 16,
        "num_head": 2,
        "feedforward_dim": 40,
        "dropout": 0.0,
        **changes,
    }
    model = shaken(GPT(**settings))
    assert isinstance(model, GPT)
    return model


def by_equation(forward: Callable[..., Tensor], explicit: bool) -> Callable[..., Tensor]:
    """MultiHeadAttention.forward by the equation in place of the kernel."""

    def changed(self: nn.Module, *given: Tensor) -> Tensor:
        self.flash = not explicit
        return forward(self, *given)

    return changed


def ids(*shape: int) -> Tensor:
    return torch.randint(11, shape)


def begun(tgt: Tensor) -> Tensor:
    """The same target, beginning with BOS."""
    return torch.cat((torch.zeros_like(tgt[:, :1]), tgt[:, 1:]), dim=1)


def logits_of(model: Transformer, src: Tensor, tgt: Tensor, **lengths: Tensor) -> Tensor:
    """All positions' logits; the targets are there only because without them the last position alone is returned."""
    return model(src, tgt, torch.zeros_like(tgt), **lengths)[0]
