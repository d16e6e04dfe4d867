"""Models whose every number is random, and how far two results may be apart."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from glassformer.config import ModelConfig
from glassformer.models import BERT, GPT, Transformer, build_model

EXACT = 1e-10  # float64, the same formula in another order
CLOSE = 1e-5  # float32


VOCABULARY = 13


def scramble(model: nn.Module, seed: int = 0) -> None:
    """Every parameter and every running statistic random; scales around one, so that nothing dies out."""
    generator = torch.Generator().manual_seed(seed)
    state: dict[str, Tensor] = dict(model.named_parameters())
    state |= {name: tensor for name, tensor in model.named_buffers() if "running" in name}
    with torch.no_grad():
        for name, tensor in state.items():
            noise = torch.randn(tensor.shape, generator=generator, dtype=torch.float64)
            if name.endswith("running_variance"):
                tensor.copy_(0.5 + noise.abs())
            elif name.endswith("weight") and tensor.ndim == 1:  # a norm's scale
                tensor.copy_(1.0 + 0.2 * noise)
            else:
                tensor.copy_(0.3 * noise)


def arrays(model: nn.Module) -> dict[str, np.ndarray]:
    return {name: tensor.detach().double().numpy() for name, tensor in model.state_dict().items()}


def difference(ours: Tensor, theirs: Tensor | np.ndarray) -> float:
    other = torch.as_tensor(theirs).detach()
    assert ours.shape == other.shape
    return float((ours.detach().double() - other.double()).abs().max())


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def small(config: ModelConfig, seed: int = 0) -> Transformer | GPT | BERT:
    model = build_model(config).double().eval()
    scramble(model, seed)
    return model
