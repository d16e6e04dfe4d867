"""How the model is being run: for its derivatives, compiled or traced, or to predict."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import nn
from torch.autograd import forward_ad

equations_only: ContextVar[bool] = ContextVar("equations_only", default=False)


@contextmanager
def higher_derivatives() -> Iterator[None]:
    """What is computed inside goes by the equations, which have derivatives of every order; fused kernels have the first alone.

    torch's fused attention has no second derivative, and the third of its layer norm is silently wrong: mean and variance
    stand still in it (pytorch issues 175754 and 196700). torch.func and forward mode need no such word: inside them it is the
    equations anyway.

    >>> from glassformer.nn import LayerNorm
    >>> x = torch.tensor([1.0, 2.0, 4.0], requires_grad=True)
    >>> with higher_derivatives():
    ...     (first,) = torch.autograd.grad(LayerNorm(3)(x)[0], x, create_graph=True)
    >>> torch.autograd.grad(first.sum(), x)[0].shape
    torch.Size([3])
    """
    token = equations_only.set(True)
    try:
        yield
    finally:
        equations_only.reset(token)


def refuse_second_derivative() -> None:
    """For the backward pass of a kernel whose own derivative is a number and no function: called with create_graph=True."""
    if torch.is_grad_enabled():
        raise RuntimeError(
            "a gradient with create_graph=True needs the equations in place of the kernels; "
            "compute the loss inside `with glassformer.nn.higher_derivatives():`"
        )


def is_transformed() -> bool:
    """Inside `higher_derivatives`, a transform of torch.func, or forward-mode differentiation: only what torch itself computes
    can be followed, so a kernel whose derivative is ours, or whose further derivatives are torch's but wrong, is not taken."""
    if torch.compiler.is_compiling():  # a compiler follows the kernels it is given
        return False
    return equations_only.get() or bool(torch._C._are_functorch_transforms_active()) or forward_ad._current_level >= 0


def is_symbolic() -> bool:
    """Compiled, exported, traced or transformed: numbers in tensors cannot be looked at, and shapes cannot depend on them."""
    return torch.compiler.is_compiling() or torch.jit.is_tracing() or is_transformed()


evaluation_lock = threading.Lock()
models_in_use: weakref.WeakKeyDictionary[nn.Module, list[int]] = weakref.WeakKeyDictionary()


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """Inside, the model is in evaluation mode (dropout off), for as long as any thread is inside; then as it was. Several threads
    may use one model at once: the first to come switches it, and the last to leave puts it back."""
    with evaluation_lock:
        state = models_in_use.setdefault(model, [0, model.training])  # how many threads, and the mode to go back to
        if state[0] == 0:
            state[1] = model.training
            if model.training:
                model.eval()
        state[0] += 1
    try:
        yield
    finally:
        with evaluation_lock:
            state[0] -= 1
            if state[0] == 0 and state[1]:
                model.train()
