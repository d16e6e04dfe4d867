"""What moves the weights: AdamW, and Muon for the matrices where asked; the learning rate of each step; and the gradient norm of
every layer, which shows where in a deep model the gradient fades or grows.

    matrices   of the layers; decayed; Muon takes these where asked, AdamW otherwise
    outputs    a layer of its own that gives the scores (untied, or of labels); decayed; always AdamW, since its rows are
               words, which come up as often as they do, not directions that should all move at one rate
    tables     embeddings and learned positions; decayed only where asked; always AdamW
    vectors    norms and biases; never decayed; always AdamW

Muon (Jordan et al. 2024): the momentum of a matrix is replaced by the nearest orthogonal one, found by five steps of a
Newton-Schulz iteration, so that every direction of the matrix moves at the same rate. torch's own Muon iterates in
bfloat16 always; on a CPU that is hundreds of times slower than float32, so this one iterates in float32 there.

A step can be refused without asking the device: `finite` is a tensor, and an update that meets a zero in it leaves
parameters and state as they are, bit for bit.

The learning rate is a function of the step (`schedule`). Steps count from 1.

    noam      d_model^-0.5 * min(step^-0.5, step * warmup^-1.5)     (Vaswani et al. 2017, equation 3; the base rate is not used)
    cosine    linear warm-up, then half a cosine down to `min_rate`
    wsd       linear warm-up, stable, then a linear fall to zero over the last `decay_fraction` of the run (Hu et al. 2024)
    constant  linear warm-up, then 1

A layer is a group of parameters whose names begin alike, up to the first number in them: `decoder.3.mlp.up.weight` belongs
to `decoder.3`. That is how torch names the members of a list, so nothing here knows what kind of model it looks at; what
stands in no list (embeddings, a last norm) belongs to no layer. Layers that share one set of parameters are one layer.
"""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from glassformer.config import TrainConfig
from glassformer.errors import UserError
from glassformer.models.parts import is_embedding
from glassformer.training.processes import placed_like, whole

STATE = ("step", "exp_avg", "exp_avg_sq", "momentum")
"""The tensors that the optimizers keep of a parameter."""


def kind_of(name: str, parameter: nn.Parameter) -> str:
    """matrices, outputs, tables or vectors: how a parameter is to be optimized."""
    if is_embedding(name):
        return "tables"
    if parameter.dim() < 2:
        return "vectors"
    return "outputs" if name in ("output.weight", "head.label.weight") else "matrices"


def parameter_groups(model: nn.Module) -> dict[str, list[tuple[str, nn.Parameter]]]:
    """Every parameter that learns, once, by its kind."""
    groups: dict[str, list[tuple[str, nn.Parameter]]] = {"matrices": [], "outputs": [], "tables": [], "vectors": []}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            groups[kind_of(name, parameter)].append((name, parameter))
    return groups


def orthogonal(matrix: Tensor, steps: int = 5) -> Tensor:
    """About the nearest matrix whose singular values are all one: a quintic Newton-Schulz iteration."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = matrix.bfloat16() if matrix.is_cuda else matrix.float()
    wide = x.size(-2) <= x.size(-1)
    x = x if wide else x.mT
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(steps):
        square = x @ x.mT
        x = a * x + (b * square + c * square @ square) @ x
    return (x if wide else x.mT).to(matrix.dtype)


class Muon(torch.optim.Optimizer):
    """Momentum (Nesterov), made orthogonal, with decoupled weight decay. For two-dimensional weights of hidden layers.

    The step is scaled by sqrt(max(1, rows / columns)), so that one learning rate serves matrices of any shape."""

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        lr: float = 0.02,
        momentum: float = 0.95,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(parameters, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})
        self.finite: Tensor | None = None

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """One update of every matrix that has a gradient."""
        for group in self.param_groups:
            # Matrices of one shape go through the iteration together: few large products in place of many small ones.
            by_shape: dict[torch.Size, list[nn.Parameter]] = {}
            for parameter in group["params"]:
                if parameter.grad is not None:
                    by_shape.setdefault(parameter.shape, []).append(parameter)
            for shape, members in by_shape.items():
                grads = torch.stack([p.grad for p in members])  # type: ignore[misc]
                for p in members:
                    if "momentum" not in self.state[p]:
                        self.state[p]["momentum"] = torch.zeros_like(p)
                old = torch.stack([self.state[p]["momentum"] for p in members])
                new = old.lerp(grads, 1 - group["momentum"])
                update = orthogonal(grads.lerp(new, group["momentum"]))
                update = update * (max(1.0, shape[0] / shape[1]) ** 0.5 * group["lr"])
                if self.finite is not None:
                    new = torch.where(self.finite, new, old)
                    update = torch.where(self.finite, update, torch.zeros_like(update))
                for i, p in enumerate(members):
                    self.state[p]["momentum"].copy_(new[i])
                    shrink = 1 - group["lr"] * group["weight_decay"]
                    if group["weight_decay"]:
                        p.mul_(shrink if self.finite is None else torch.where(self.finite, shrink, 1.0))
                    p.sub_(update[i])


@contextmanager
def without_compiler() -> Iterator[None]:
    """Optimizers are made without torch's compiler, which torch imports (over a second) to keep it out of `add_param_group`.
    Where nobody has imported it there is nothing to keep out."""
    add = inspect.unwrap(torch.optim.Optimizer.add_param_group)
    ours = "torch._dynamo" not in sys.modules and not hasattr(add, "__dynamo_disable")
    if ours:
        add.__dynamo_disable = add  # where torch keeps the function that it has taken from its compiler
    try:
        yield
    finally:
        if ours:
            with suppress(AttributeError):  # another thread's
                del add.__dynamo_disable


class AdamW(torch.optim.AdamW):
    """torch's AdamW, whose step imports the compiler for the same reason."""

    eager_step = staticmethod(torch.no_grad()(inspect.unwrap(torch.optim.AdamW.step)))

    def step(self, closure: Any = None) -> Any:
        """One update, by the function that torch's own calls."""
        return super().step(closure) if "torch._dynamo" in sys.modules else self.eager_step(self, closure)


@without_compiler()
def make_optimizers(model: nn.Module, config: TrainConfig) -> list[torch.optim.Optimizer]:
    """AdamW, or Muon for the matrices and AdamW for the rest."""
    groups = parameter_groups(model)
    fused = all(p.device.type in ("cuda", "cpu") for p in model.parameters())
    apart = config.optimizer == "muon"
    decayed = list(groups["outputs"]) if apart else [*groups["matrices"], *groups["outputs"]]
    kept = list(groups["vectors"])
    (decayed if config.decay_embeddings else kept).extend(groups["tables"])
    adamw_groups = [
        {"params": [p for _, p in decayed], "weight_decay": config.weight_decay},
        {"params": [p for _, p in kept], "weight_decay": 0.0},
    ]
    adamw_groups = [g for g in adamw_groups if g["params"]]
    how: dict[str, Any] = {"lr": config.learning_rate, "betas": config.betas, "eps": config.eps}
    on_cuda = any(p.is_cuda for p in model.parameters())
    optimizers: list[torch.optim.Optimizer] = [AdamW(adamw_groups, **how, fused=fused, capturable=on_cuda)]
    if apart:
        matrices = [p for _, p in groups["matrices"]]
        optimizers.append(Muon(matrices, lr=config.muon_learning_rate, weight_decay=config.weight_decay))
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["base_lr"] = group["lr"]
    return optimizers


def optimizer_tensors(model: nn.Module, optimizers: list[torch.optim.Optimizer]) -> dict[str, Tensor]:
    """The whole state of the optimizers, by the names of the parameters it belongs to."""
    names = {id(p): name for name, p in model.named_parameters()}
    tensors: dict[str, Tensor] = {}
    for optimizer in optimizers:
        for parameter, state in optimizer.state.items():
            for key, value in state.items():
                tensors[f"{key}/{names[id(parameter)]}"] = torch.as_tensor(value)
    return tensors


def load_optimizer_tensors(
    model: nn.Module, optimizers: list[torch.optim.Optimizer], tensors: dict[str, Tensor]
) -> None:
    """Puts back what `optimizer_tensors` gave. The state of an optimizer that is not here any more is refused."""
    by_owner: dict[str, dict[str, Tensor]] = {}
    for full, tensor in tensors.items():
        key, _unused, owner = full.partition("/")
        if key not in STATE:
            raise UserError(
                "the checkpoint holds an optimizer's {key!r}, which neither adamw nor muon has, so its training cannot go on; "
                "hint: begin another from its weights with --from",
                key,
            )
        by_owner.setdefault(owner, {})[key] = tensor
    for optimizer in optimizers:
        members = {id(p) for group in optimizer.param_groups for p in group["params"]}
        for name, parameter in model.named_parameters():
            if id(parameter) in members and name in by_owner:
                optimizer.state[parameter] = {
                    key: placed_like(tensor, parameter).clone() for key, tensor in by_owner[name].items()
                }


def layer_of(name: str) -> str | None:
    """The shortest prefix of a parameter's name that ends in a number; None where there is no number in it.

    >>> layer_of("decoder.3.mlp.layers.0.weight"), layer_of("embedding.weight")
    ('decoder.3', None)
    """
    parts = name.split(".")
    end = next((place for place, part in enumerate(parts, 1) if part.isdecimal()), None)
    return None if end is None else ".".join(parts[:end])


def layers_of(named: Iterable[tuple[str, nn.Parameter]]) -> dict[str, list[nn.Parameter]]:
    """The parameters that learn, by the layer they belong to, in the model's order."""
    layers: dict[str, list[nn.Parameter]] = {}
    for name, parameter in named:
        layer = layer_of(name)
        if layer is not None and parameter.requires_grad:
            layers.setdefault(layer, []).append(parameter)
    return layers


def gradient_norms(layers: Iterable[list[nn.Parameter]], device: torch.device) -> Float[Tensor, " layers"]:
    """The norm of each layer's gradients together, on the device; zero for a layer that has none."""
    norms = []
    for parameters in layers:
        grads = [p.grad for p in parameters if p.grad is not None]
        norms.append(whole(torch.nn.utils.get_total_norm(grads)) if grads else torch.zeros((), device=device))
    return torch.stack([norm.float() for norm in norms])


def noam(step: int, width: int, warmup: int) -> float:
    """width^-0.5 * min(step^-0.5, step * warmup^-1.5)"""
    return width**-0.5 * min(step**-0.5, step * max(warmup, 1) ** -1.5)


def cosine(step: int, steps: int, warmup: int, floor: float = 0.0) -> float:
    """Linear warm-up to 1, then half a cosine down to `floor` at `steps`."""
    if step <= warmup:
        return step / max(warmup, 1)
    progress = min(1.0, (step - warmup) / max(1, steps - warmup))
    return floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * progress))


def wsd(step: int, steps: int, warmup: int, decay_fraction: float) -> float:
    """Linear warm-up to 1, stable, and a linear fall to 0 over the last part of the run."""
    if step <= warmup:
        return step / max(warmup, 1)
    decay = max(1, round(steps * decay_fraction))
    return min(1.0, max(0, steps - step) / decay)


def constant(step: int, warmup: int) -> float:
    """Linear warm-up to 1, then 1."""
    return min(1.0, step / max(warmup, 1))


def schedule(config: TrainConfig, width: int) -> Callable[[int], float]:
    """The learning rate at a step, not a factor: for noam it is set by the width, otherwise by learning_rate."""
    match config.schedule:
        case "noam":
            return lambda step: config.noam_factor * noam(step, width, config.warmup)
        case "cosine":
            return lambda step: config.learning_rate * cosine(step, config.steps, config.warmup, config.min_rate)
        case "wsd":
            return lambda step: config.learning_rate * wsd(step, config.steps, config.warmup, config.decay_fraction)
        case "constant":
            return lambda step: config.learning_rate * constant(step, config.warmup)
