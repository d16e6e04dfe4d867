"""Derivatives of every order, for kernels that come with the first alone or are right in the first few only.

torch's fused attention has no second derivative; the third of its layer norm, and the derivative of its forward-mode
derivative, are silently wrong (mean and variance stand still in them: pytorch issues 175754 and 196700). The equation
beside each kernel has them all. So the usual backward pass goes by the kernel's own derivative, and one whose gradient
will be differentiated again (create_graph=True) goes by the equation's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from glassformer.nn.modes import has_saved_tensor_hooks, is_symbolic, is_transformed

TensorFunction = Callable[..., Tensor]


def equation_gradients(
    equation: TensorFunction, inputs: Sequence[Tensor | None], wanted: Sequence[bool], grad: Tensor
) -> tuple[Tensor | None, ...]:
    """The gradients of `equation(*inputs)` for the inputs that want one, with a graph of their own, so that they can be
    differentiated again (double backward)."""
    # One input may be a function of another: here each is varied alone.
    aliases = [None if t is None else t.view_as(t) for t in inputs]
    out = equation(*aliases)
    varied = [t for t, wants in zip(aliases, wanted, strict=True) if wants and t is not None]
    found = iter(torch.autograd.grad(out, varied, grad.to(out.dtype), create_graph=True))
    return tuple(next(found) if wants else None for wants in wanted)


def kernel_graph(kernel: TensorFunction, inputs: Sequence[Tensor | None]) -> tuple[list[Any], Tensor]:
    """Copies of the inputs that begin a graph of their own, and what the kernel makes of them."""
    with torch.enable_grad():
        inner = [None if t is None else t.detach().requires_grad_(t.requires_grad) for t in inputs]
        return inner, kernel(*inner)


class EquationDerivatives(torch.autograd.Function):
    """`kernel(*inputs)`; differentiated once by the kernel's own derivative, further by those of the equation."""

    @staticmethod
    def forward(ctx: Any, kernel: TensorFunction, equation: TensorFunction, *inputs: Tensor | None) -> Tensor:
        """By the kernel, on a graph of its own that the first derivative goes back through."""
        ctx.kernel, ctx.equation = kernel, equation
        ctx.save_for_backward(*inputs)
        ctx.graph = kernel_graph(kernel, inputs)
        return ctx.graph[1].detach()  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        """By the equation where the gradient will be differentiated again. The kernel's graph is let go of, as torch lets go of
        its own; a second pass over a graph that was retained makes it anew."""
        inputs, wanted = ctx.saved_tensors, ctx.needs_input_grad[2:]
        if torch.is_grad_enabled():
            return None, None, *equation_gradients(ctx.equation, inputs, wanted, grad)
        inner, out = ctx.graph or kernel_graph(ctx.kernel, inputs)
        ctx.graph = None
        found = iter(torch.autograd.grad(out, [t for t, wants in zip(inner, wanted) if wants], grad))
        return None, None, *(next(found) if wants else None for wants in wanted)


def with_equation_derivatives(kernel: TensorFunction, equation: TensorFunction, *inputs: Tensor | None) -> Tensor:
    """`kernel(*inputs)`, which equals `equation(*inputs)`, with derivatives of every order.

    >>> import torch
    >>> x = torch.tensor(2.0, requires_grad=True)
    >>> y = with_equation_derivatives(torch.square, lambda x: x * x, x)
    >>> (first,) = torch.autograd.grad(y, x, create_graph=True)
    >>> torch.autograd.grad(first, x)
    (tensor(2.),)
    """
    if is_transformed():
        return equation(*inputs)
    learns = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in inputs)
    if not learns or is_symbolic() or has_saved_tensor_hooks():
        return kernel(*inputs)
    return EquationDerivatives.apply(kernel, equation, *inputs)  # type: ignore[no-any-return]


class EquationHook:
    """The same for the output of a single torch operation, in a third of the time: a hook on its backward."""

    def __init__(self, equation: TensorFunction, inputs: tuple[Tensor | None, ...]) -> None:
        self.equation = equation
        self.inputs: tuple[Tensor | None, ...] | None = inputs

    def __call__(self, gradients: tuple[Tensor | None, ...], upstream: tuple[Tensor | None, ...]) -> Any:
        """In place of the kernel's gradients those of the equation; None: leave the kernel's. After the usual backward pass the
        inputs are let go of; a second one over a graph that was retained finds the kernel's gradients."""
        if not torch.is_grad_enabled():
            self.inputs = None
        if self.inputs is None or upstream[0] is None:
            return None
        return equation_gradients(self.equation, self.inputs, [g is not None for g in gradients], upstream[0])


def hook_equation_derivatives(y: Tensor, equation: TensorFunction, *inputs: Tensor | None) -> Tensor:
    """y, which one torch operation has made of `inputs` and which equals `equation(*inputs)`, with derivatives of every order."""
    if not is_symbolic() and not has_saved_tensor_hooks() and y.grad_fn is not None:
        y.grad_fn.register_hook(EquationHook(equation, inputs))
    return y
