"""How the model is being run, where that decides which of two equal paths can be taken."""

from __future__ import annotations

import torch
from torch.autograd import forward_ad


def is_transformed() -> bool:
    """Inside a transform of torch.func, or inside forward-mode differentiation: only what torch itself computes can be
    followed, so a kernel whose derivative is ours, or whose forward-mode derivative is torch's but wrong, is not to be taken."""
    if torch.compiler.is_compiling():  # a compiler follows the kernels it is given
        return False
    return bool(torch._C._are_functorch_transforms_active()) or forward_ad._current_level >= 0


def is_symbolic() -> bool:
    """Compiled, exported, traced or transformed: numbers in tensors cannot be looked at, and shapes cannot depend on them."""
    return torch.compiler.is_compiling() or torch.jit.is_tracing() or is_transformed()


def has_saved_tensor_hooks() -> bool:
    """Whether `torch.autograd.graph.saved_tensors_hooks` are at work, as in activation checkpointing: a graph inside a graph
    would then be computed twice."""
    return torch._C._autograd._top_saved_tensors_default_hooks(False) is not None
