"""Optimizers beside AdamW and Muon: SOAP, and AdamW without a schedule.

Both are written here because the trainer needs what the published packages do not give: state in tensors by the name of a
parameter (a checkpoint without pickle goes on to the bit), and, for the second, a step that can be refused and captured on a
device. Tests hold each to its published package.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

FREQUENCY = 10  # steps between two updates of SOAP's bases, as in the paper


class SOAP(torch.optim.Optimizer):
    """Adam in the eigenbasis of Shampoo's preconditioner (Vyas et al. 2024), for matrices W of m x n with gradient G:

        L <- b2 L + (1 - b2) G G^T,     R <- b2 R + (1 - b2) G^T G           Q_L, Q_R: their eigenvectors, every tenth step anew
        G' = Q_L^T G Q_R;     V <- b2 V + (1 - b2) G'^2;     W <- W - rate Q_L (M' / sqrt(V)) Q_R^T,     M' = Q_L^T M Q_R

    M is the mean of the gradients. The first step only begins L and R."""

    def __init__(
        self, parameters: Iterable[nn.Parameter], lr: float, betas: tuple[float, float], eps: float, weight_decay: float
    ) -> None:
        super().__init__(parameters, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """One update of every matrix that has a gradient."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self.update(parameter, parameter.grad, self.state[parameter], group)

    def update(self, matrix: nn.Parameter, grad: Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
        """One update of one matrix."""
        beta1, beta2 = group["betas"]
        if not state:
            state["step"] = torch.zeros(())
            state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(grad), torch.zeros_like(grad)
            state["left"], state["right"] = (1 - beta2) * grad @ grad.mT, (1 - beta2) * grad.mT @ grad
            for side in ("left", "right"):
                state[f"{side}_basis"] = torch.linalg.eigh(state[side])[1].flip(1)
            return
        step = int(state["step"]) + 1
        state["step"].fill_(step)
        left, right = state["left_basis"], state["right_basis"]
        state["exp_avg"].lerp_(grad, 1 - beta1)
        state["exp_avg_sq"].lerp_((left.mT @ grad @ right).square(), 1 - beta2)
        scaled = (left.mT @ state["exp_avg"] @ right) / (state["exp_avg_sq"].sqrt() + group["eps"])
        rate = group["lr"] * (1 - beta2**step) ** 0.5 / (1 - beta1**step)
        matrix.sub_(rate * (left @ scaled @ right.mT))
        matrix.mul_(1 - group["lr"] * group["weight_decay"])
        state["left"].lerp_(grad @ grad.mT, 1 - beta2)
        state["right"].lerp_(grad.mT @ grad, 1 - beta2)
        if step % FREQUENCY == 0:
            self.turn(state)

    @staticmethod
    def turn(state: dict[str, Any]) -> None:
        """The bases by one round of power iteration and a QR decomposition, largest eigenvalue first; the second moment, which is
        kept in them, is put in their order."""
        for axis, side in enumerate(("left", "right")):
            basis = state[f"{side}_basis"]
            powered = state[side] @ basis
            order = (basis * powered).sum(0).argsort(descending=True)
            state["exp_avg_sq"] = state["exp_avg_sq"].index_select(axis, order)
            state[f"{side}_basis"] = torch.linalg.qr(powered.index_select(1, order))[0]


class ScheduleFree(torch.optim.Optimizer):
    """AdamW whose answer is a mean of all its steps and needs no schedule (Defazio et al. 2024):

        g at y;     z <- z - rate (g / sqrt(v) + decay y);     x <- (1 - c) x + c z;     y = (1 - b1) z + b1 x

    The parameters are y, where gradients are taken; `average` gives x, the weights to use. c is this step's share of the sum of
    the squares of all rates so far, so that steps of a warm-up count little."""

    def __init__(
        self, parameters: Iterable[Any], lr: float, betas: tuple[float, float], eps: float, weight_decay: float = 0.0
    ) -> None:
        super().__init__(parameters, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})
        self.finite: Tensor | None = None

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """One update of every parameter that has a gradient."""
        for group in self.param_groups:
            for y in group["params"]:
                if y.grad is None:
                    continue
                state = self.state[y]
                if not state:
                    state["z"], state["exp_avg_sq"] = y.detach().clone(), torch.zeros_like(y)
                    state |= {key: torch.zeros((), device=y.device) for key in ("step", "weight_sum", "highest")}
                new = self.updated(y, y.grad, state, group)
                for old, value in new:
                    old.copy_(value if self.finite is None else torch.where(self.finite, value, old))

    def updated(
        self, y: Tensor, grad: Tensor, state: dict[str, Tensor], group: dict[str, Any]
    ) -> list[tuple[Tensor, Tensor]]:
        """Each tensor that moves, with what it becomes."""
        beta1, beta2 = group["betas"]
        step, lr = state["step"] + 1, torch.as_tensor(group["lr"], device=y.device, dtype=torch.float32)
        second = state["exp_avg_sq"].lerp(grad.square(), 1 - beta2)
        direction = grad / ((second / (1 - beta2**step)).sqrt() + group["eps"]) + group["weight_decay"] * y
        highest = torch.maximum(state["highest"], lr)
        total = state["weight_sum"] + highest.square()
        share = highest.square() / total
        moved = y.lerp(state["z"], share) + direction * (lr * (beta1 * (1 - share) - 1))
        return [
            (y, moved), (state["z"], state["z"] - lr * direction), (state["exp_avg_sq"], second),
            (state["step"], step), (state["weight_sum"], total), (state["highest"], highest),
        ]  # fmt: skip

    @torch.no_grad()
    def average(self, y: Tensor) -> Tensor:
        """x, of one parameter."""
        return y.lerp(self.state[y]["z"], 1 - 1 / self.defaults["betas"][0]) if self.state[y] else y
