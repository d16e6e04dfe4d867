"""Training steps of a trial: as they are, or on a GPU as CUDA graphs. A small model's step is hundreds of kernels of a few
microseconds each, and launching them one by one takes longer than running them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.nn.loss import IGNORE, cross_entropy

LossFunction = Callable[..., tuple[Tensor, int | Tensor]]
"""From a batch to the summed loss and how many labels it is of."""
WARM = 2  # steps of a shape that are launched one by one before it is captured
SHAPES = 12  # captured; batches of others are launched one by one
WIDTH = 8  # rows of different lengths are padded to multiples of it, so that there are few shapes
LOOK = 100  # steps between two looks at whether the loss is still finite


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """The learning rate of the next step; where it is a tensor, a graph reads it from there."""
    group = optimizer.param_groups[0]
    if isinstance(group["lr"], Tensor):
        group["lr"].fill_(rate)
    else:
        group["lr"] = rate


class Steps:
    """Steps launched operation by operation: `compute_gradients`, then `update`; `finish` returns the losses."""

    def __init__(
        self, model: nn.Module, loss: LossFunction, optimizers: Sequence[torch.optim.Optimizer], clip: float
    ) -> None:
        self.model, self.loss, self.optimizers, self.clip = model, loss, optimizers, clip
        self.losses: list[float] = []

    def compute_gradients(self, batch: Sequence[Tensor | list[int]]) -> None:
        """Both passes."""
        device = next(self.model.parameters()).device
        total, count = self.loss(*(one.to(device) if isinstance(one, Tensor) else one for one in batch))
        mean = total / max(1, int(count))
        mean.backward()
        self.losses.append(float(mean.detach()))

    def update(self) -> bool:
        """Clipping and the optimizers' step, unless the loss was not finite; whether it was."""
        nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
        if not math.isfinite(self.losses[-1]):
            return False
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        return True

    def finish(self) -> list[float]:
        """The mean loss of each step."""
        return self.losses


def as_tensors(batch: Sequence[Tensor | list[int]]) -> list[Tensor]:
    """Lengths as tensors; and where there are lengths, rows widened to a multiple of WIDTH by padding (labels, the last of a
    batch, by what is not counted)."""
    padded = any(isinstance(one, list) for one in batch)
    found = []
    for number, one in enumerate(batch, 1):
        tensor = torch.tensor(one, device="cpu") if isinstance(one, list) else one
        if padded and tensor.dim() == 2:
            tensor = F.pad(tensor, (0, -tensor.size(1) % WIDTH), value=IGNORE if number == len(batch) else 0)
        found.append(tensor)
    return found


class ReplayedCall:
    """A function of tensors of fixed shapes: called as it is a few times, then captured, then replayed."""

    def __init__(self, function: Callable[..., None], like: Sequence[Tensor]) -> None:
        self.function, self.inputs, self.warm = function, [torch.empty_like(one, device="cuda") for one in like], WARM
        self.graph: torch.cuda.CUDAGraph | None = None

    def __call__(self, tensors: Sequence[Tensor]) -> None:
        for own, given in zip(self.inputs, tensors, strict=True):
            own.copy_(given)
        if self.graph is None and self.warm:
            self.warm -= 1
            side = torch.cuda.Stream()  # capture asks for the work to have been done on another stream before
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                self.function(*self.inputs)
            torch.cuda.current_stream().wait_stream(side)
            return
        if self.graph is None:
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.function(*self.inputs)
        self.graph.replay()


class GraphSteps(Steps):
    """The same as CUDA graphs: one for the passes of each shape of batch, one for the update. After a loss that is not finite
    nothing moves any more, and every LOOK steps it is asked whether there was one."""

    def __init__(
        self, model: nn.Module, loss: LossFunction, optimizers: Sequence[torch.optim.Optimizer], clip: float
    ) -> None:
        super().__init__(model, loss, optimizers, clip)
        self.means: list[Tensor] = []
        self.mean, self.finite = torch.zeros(()), torch.ones((), dtype=torch.bool)
        self.captures: dict[tuple[torch.Size, ...], ReplayedCall] = {}
        self.updating: ReplayedCall | None = ReplayedCall(self.update_tensors, [])
        for optimizer in optimizers:
            optimizer.param_groups[0]["lr"] = torch.tensor(optimizer.param_groups[0]["lr"])

    def passes(self, *batch: Tensor) -> None:
        """Leaves the gradients in the parameters and the loss in `mean`."""
        for parameter in self.model.parameters():
            if parameter.grad is not None:
                parameter.grad.zero_()
        with equation_of_the_loss(self.model):
            total, count = self.loss(*batch)
        mean = total / (count if isinstance(count, int) else count.clamp(min=1))
        mean.backward()
        self.mean.copy_(mean.detach())

    def update_tensors(self) -> None:
        """What an update does to tensors."""
        self.finite.logical_and_(self.mean.isfinite())
        nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
        for optimizer in self.optimizers:
            if isinstance(optimizer, torch.optim.AdamW):
                optimizer.grad_scale, optimizer.found_inf = None, (~self.finite).float()  # type: ignore[attr-defined]
            else:
                optimizer.finite = self.finite  # type: ignore[attr-defined]
            optimizer.step()

    def compute_gradients(self, batch: Sequence[Tensor | list[int]]) -> None:
        """Both passes, replayed where their shape is known."""
        tensors = as_tensors(batch)
        shapes = tuple(one.shape for one in tensors)
        if shapes not in self.captures and len(self.captures) < SHAPES:
            self.captures[shapes] = ReplayedCall(self.passes, tensors)
        if shapes in self.captures:
            self.captures[shapes](tensors)
        else:
            self.passes(*(one.to(self.mean.device) for one in tensors))
        self.means.append(self.mean.clone())

    def update(self) -> bool:
        """Clipping and the optimizers' step; false if a loss is known not to have been finite."""
        assert self.updating is not None
        self.updating([])
        return len(self.means) % LOOK != 0 or bool(self.finite)

    def finish(self) -> list[float]:
        """The mean loss of each step, up to the first that is not finite."""
        found = torch.stack(self.means).tolist() if self.means else []
        # At once: a graph that the garbage collector throws away during another's capture breaks that.
        self.captures, self.updating = {}, None
        wrong = next((i for i, one in enumerate(found) if not math.isfinite(one)), len(found))
        for parameter in self.model.parameters():
            parameter.grad = None
        torch.autograd.graph.increment_version(list(self.model.parameters()))  # a replay writes without saying so
        return found[: wrong + 1]


@contextmanager
def equation_of_the_loss(model: nn.Module) -> Iterator[None]:
    """While this lasts, a model's loss is the equation over all positions: leaving out those without a label takes asking the
    GPU how many there are, which no graph can."""
    before = getattr(model, "cross_entropy", None)
    if before is not None:
        model.cross_entropy = cross_entropy  # type: ignore[assignment]
    try:
        yield
    finally:
        if before is not None:
            model.cross_entropy = before
