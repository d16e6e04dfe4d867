"""Optimizers beside AdamW and Muon: SOAP, and AdamW without a schedule.

Both are written here because the trainer needs what the published packages do not give: state in tensors by the name of a
parameter (a checkpoint without pickle goes on to the bit), and, for the second, a step that can be refused and captured on a
device. Tests hold each to its published package.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

FREQUENCY = 10  # steps between two updates of SOAP's bases, as in the paper
AT_ONCE = 1 << 22  # numbers that are worked on together: few operations, and little memory beside the weights


def portions(items: list[Any], size: Callable[[Any], int]) -> Iterator[list[Any]]:
    """Items that follow each other and have together at most AT_ONCE numbers, or a single one.

    >>> list(portions([1, 2, 3, 4], lambda n: n * AT_ONCE // 4))
    [[1, 2], [3], [4]]
    """
    begin = total = 0
    for end, item in enumerate(items):
        if end > begin and total + size(item) > AT_ONCE:
            yield items[begin:end]
            begin, total = end, 0
        total += size(item)
    yield items[begin:]


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
        """One update of every matrix that has a gradient. Those of one shape go together: few large products and decompositions
        in place of many small ones."""
        for group in self.param_groups:
            alike: dict[tuple[torch.Size, int], list[nn.Parameter]] = {}
            for parameter in group["params"]:
                if parameter.grad is not None:
                    alike.setdefault((parameter.shape, int(self.state[parameter].get("step", -1))), []).append(
                        parameter
                    )
            for (shape, step), same in alike.items():
                numbers = 3 * shape.numel() + 2 * sum(n * n for n in shape)
                for matrices in portions(same, lambda _matrix, numbers=numbers: numbers):  # type: ignore[misc]
                    grads = torch.stack([matrix.grad for matrix in matrices])
                    states = [self.state[matrix] for matrix in matrices]
                    if step < 0:
                        self.begin(grads, states, group)
                    else:
                        self.update(matrices, grads, states, step + 1, group)

    @staticmethod
    def begin(grads: Tensor, states: list[dict[str, Any]], group: dict[str, Any]) -> None:
        """The first gradients, K x m x n, and the states of their matrices, still empty."""
        share = 1 - group["betas"][1]
        begun = {"exp_avg": torch.zeros_like(grads), "exp_avg_sq": torch.zeros_like(grads)}
        begun |= {"left": share * grads @ grads.mT, "right": share * grads.mT @ grads}
        begun |= {f"{side}_basis": torch.linalg.eigh(begun[side])[1].flip(-1) for side in ("left", "right")}
        for number, state in enumerate(states):
            state |= {"step": torch.zeros(()), **{key: value[number].clone() for key, value in begun.items()}}

    def update(
        self, matrices: list[Any], grads: Tensor, states: list[dict[str, Any]], step: int, group: dict[str, Any]
    ) -> None:
        """One update of matrices of one shape, with their gradients, K x m x n."""
        beta1, beta2 = group["betas"]
        new = {key: torch.stack([state[key] for state in states]) for key in states[0] if key != "step"}
        left, right = new["left_basis"], new["right_basis"]
        new["exp_avg"].lerp_(grads, 1 - beta1)
        new["exp_avg_sq"].lerp_((left.mT @ grads @ right).square(), 1 - beta2)
        scaled = (left.mT @ new["exp_avg"] @ right) / (new["exp_avg_sq"].sqrt() + group["eps"])
        rate = group["lr"] * (1 - beta2**step) ** 0.5 / (1 - beta1**step)
        torch._foreach_sub_(matrices, list(rate * (left @ scaled @ right.mT)))
        torch._foreach_mul_(matrices, 1 - group["lr"] * group["weight_decay"])
        new["left"].lerp_(grads @ grads.mT, 1 - beta2)
        new["right"].lerp_(grads.mT @ grads, 1 - beta2)
        if step % FREQUENCY == 0:
            self.turn(new)
        for key, value in new.items():
            torch._foreach_copy_([state[key] for state in states], list(value))
        for state in states:
            state["step"].fill_(step)

    @staticmethod
    def turn(state: dict[str, Tensor]) -> None:
        """The bases by one round of power iteration and a QR decomposition, largest eigenvalue first; the second moment, which is
        kept in them, is put in their order."""
        for axis, side in ((-2, "left"), (-1, "right")):
            basis = state[f"{side}_basis"]
            powered = state[side] @ basis
            order = (basis * powered).sum(-2).argsort(descending=True)
            moments = order.unsqueeze(-1 if axis == -2 else -2).expand_as(state["exp_avg_sq"])
            state["exp_avg_sq"] = state["exp_avg_sq"].gather(axis, moments)
            powered = powered.gather(-1, order.unsqueeze(-2).expand_as(powered))
            state[f"{side}_basis"] = torch.linalg.qr(powered)[0]


class ScheduleFree(torch.optim.Optimizer):
    """AdamW whose answer is a mean of all its steps and needs no schedule (Defazio et al. 2024):

        g at y;     z <- z - rate (g / sqrt(v) + decay y);     x <- (1 - c) x + c z;     y = (1 - b1) z + b1 x

    The parameters are y, where gradients are taken; `average` gives x, the weights to use. c is this step's share of the sum of
    the squares of all rates so far, so that steps of a warm-up count little; as in the published package a group counts its
    steps together."""

    COUNTERS = ("step", "weight_sum", "highest")

    def __init__(
        self, parameters: Iterable[Any], lr: float, betas: tuple[float, float], eps: float, weight_decay: float = 0.0
    ) -> None:
        super().__init__(parameters, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})
        self.finite: Tensor | None = None

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """One update of every parameter that has a gradient."""
        for group in self.param_groups:
            if learning := [y for y in group["params"] if y.grad is not None]:
                self.begin(learning, group)
                self.update(learning, [self.state[y] for y in learning], group)

    def begin(self, learning: list[nn.Parameter], group: dict[str, Any]) -> None:
        """The state of parameters that have none yet."""
        counted = next((self.state[y] for y in group["params"] if self.state[y]), None)
        for y in learning:
            if not self.state[y]:
                zero = {key: torch.zeros((), device=y.device) for key in self.COUNTERS}
                counters = {key: counted[key].clone() for key in zero} if counted else zero
                self.state[y].update(z=y.detach().clone(), exp_avg_sq=torch.zeros_like(y), **counters)

    def update(self, ys: list[Any], states: list[dict[str, Any]], group: dict[str, Any]) -> None:
        """One update of a group's parameters, many at once: few kernels in place of twenty for each. A step that is refused has a
        rate and a share of nothing, and gradients of nothing, as theirs may not be numbers."""
        beta2, old = group["betas"][1], {key: states[0][key] for key in self.COUNTERS}
        lr = torch.as_tensor(group["lr"], device=ys[0].device, dtype=torch.float32)
        highest = torch.maximum(old["highest"], lr)
        new = {"step": old["step"] + 1, "weight_sum": old["weight_sum"] + highest.square(), "highest": highest}
        share, kept = highest.square() / new["weight_sum"], torch.as_tensor(1 - beta2, device=lr.device)
        pull, grown = lr * (group["betas"][0] * (1 - share) - 1), 1 - beta2 ** (old["step"] + 1)
        if self.finite is not None:
            new = {key: torch.where(self.finite, new[key], old[key]) for key in new}
            share, kept, pull, lr = (torch.where(self.finite, one, 0.0) for one in (share, kept, pull, lr))
        for some in portions(list(zip(ys, states, strict=True)), lambda one: one[0].numel()):
            learned, zs, seconds = (
                [y for y, _ in some],
                [own["z"] for _, own in some],
                [own["exp_avg_sq"] for _, own in some],
            )
            grads = [y.grad for y in learned]
            if self.finite is not None:
                joined = torch.cat([grad.reshape(-1) for grad in grads])
                parts = torch.where(self.finite, joined, 0.0).split([y.numel() for y in learned])
                grads = [part.view_as(y) for part, y in zip(parts, learned, strict=True)]
            torch._foreach_add_(
                seconds, torch._foreach_mul(torch._foreach_sub(torch._foreach_mul(grads, grads), seconds), kept)
            )
            scale = torch._foreach_sqrt(torch._foreach_div(seconds, grown))
            directions = torch._foreach_div(grads, torch._foreach_add(scale, group["eps"]))
            torch._foreach_add_(directions, learned, alpha=group["weight_decay"])
            towards = torch._foreach_mul(torch._foreach_sub(zs, learned), share)
            torch._foreach_add_(learned, torch._foreach_add(towards, torch._foreach_mul(directions, pull)))
            torch._foreach_sub_(zs, torch._foreach_mul(directions, lr))
        every = [self.state[y] for y in group["params"] if self.state[y]]
        for key, value in new.items():
            torch._foreach_copy_([state[key] for state in every], [value] * len(every))

    @torch.no_grad()
    def average(self, y: Tensor) -> Tensor:
        """x, of one parameter."""
        return y.lerp(self.state[y]["z"], 1 - 1 / self.defaults["betas"][0]) if self.state[y] else y
