"""The loop: batches in, steps of an optimizer out, and everything that moves in one place, so that it can be saved whole.

    for batch in batches:                                        next_batch
        loss = 0
        for micro in batch.pieces(accumulate):                   gradients
            part = loss_of(micro) / batch.target_tokens
            part.backward()
            loss += part
        norm = clip_grad_norm_(parameters, clip)                 compute_step
        if isfinite(loss) and isfinite(norm):
            for optimizer in optimizers:                         update
                optimizer.step()
        zero_grad(); log(loss, norm)                             flush_reports

(examples/loop.py is this, in forty lines that run.) The trainer is handed the model, a loss, the batches, the optimizers and
the rate, and callbacks for what it does not know (how to validate, where to save, what to show). It knows nothing of
Transformers, files or screens.

A step reads one batch, cut into `accumulate` micro-batches by rows. Its loss is the sum over them divided by the real target
tokens of the whole batch, so that the cutting changes nothing, however ragged the lengths (what a pass draws or measures for
itself, dropout and the means of a batch norm, aside).

A step whose loss or any gradient is not finite changes nothing: neither weights nor optimizer nor moving average. On CUDA
the decision stays on the device (the fused optimizer is handed a flag) and the host hears of it when it next looks, at the
logging interval. On a CPU it is told at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor, nn

from glassformer.config import TrainConfig
from glassformer.data.batch import BatchStream
from glassformer.data.batches import Batch, Batches
from glassformer.data.stream import Position
from glassformer.errors import UserError
from glassformer.language import _
from glassformer.models.graph_inputs import Place, places_of
from glassformer.models.weights import load_model_tensors, model_tensors
from glassformer.training.graph import CapturedStep
from glassformer.training.optim import gradient_norms, layers_of, load_optimizer_tensors, optimizer_tensors
from glassformer.training.processes import current, is_sharded, local, placed_like, whole
from glassformer.training.progress import StepReport, TrainerCallback, TrainerState


class NotFinite(UserError):
    """Too many steps in a row whose loss or gradients were not finite."""


class Trainer:
    """Takes steps, and holds everything that moves: model, optimizers, average, random state, place in the data.

    trainer.step()                                   # one optimizer step
    tensors, state = trainer.tensors(), trainer.state()   # all of it, to be saved; `restore` puts it back"""

    def __init__(
        self,
        model: nn.Module,
        loss: Callable[[Batch], Tensor],
        batches: Batches,
        optimizers: list[torch.optim.Optimizer],
        rate: Callable[[int], float],
        config: TrainConfig,
        *,
        callbacks: list[TrainerCallback],
        device: torch.device,
        autocast: torch.dtype | None = None,
        capture: bool = False,
    ) -> None:
        self.model, self.loss, self.batches = model, loss, batches
        self.processes = current()
        self.stop_asked: Callable[[], bool] = lambda: False  # here
        # Whether a step counts, without asking the host. (Of a sharded model it is asked: such steps are long.)
        self.decides_on_device = device.type == "cuda" and not any(map(is_sharded, model.parameters()))
        self.warm = False
        self.stopping = False  # any process was asked to stop, and all know
        self.optimizers, self.rate, self.config = optimizers, rate, config
        self.callbacks, self.device, self.autocast = callbacks, device, autocast
        self.progress = TrainerState()
        self.ema = {n: t.clone() for n, t in model_tensors(model).items()} if config.ema is not None else None
        self.stream: BatchStream | None = None
        self.pending: list[tuple[StepReport, Position, tuple[int, ...], Tensor]] = []
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.layers = layers_of(model.named_parameters()) if config.log_layers else {}
        learned = dict(model.named_parameters())
        # Such as the running means of a batch norm, which a forward pass moves.
        self.buffers = [t for name, t in model_tensors(model).items() if name not in learned]
        self.captured = CapturedStep(self.compute_step, device, self.places) if capture else None

    def places(self) -> Iterator[Place]:
        """The places at which a step looks up the tensors that it reads and writes besides its batch."""
        yield from places_of(self.model)
        for optimizer in self.optimizers:
            for mapping in (*optimizer.state.values(), *optimizer.param_groups):
                yield from ((mapping, key) for key, value in mapping.items() if isinstance(value, Tensor))
        yield from ((self.ema, name) for name in self.ema or ())  # type: ignore[misc]

    # ---- one step

    def next_batch(self) -> Batch:
        """The next batch, and one place further."""
        if self.stream is None:
            self.stream = self.batches.starting_at(self.progress.position)
        batch, after = next(self.stream)
        self.progress.epoch, self.progress.index = after.epoch, after.index
        return batch

    def close(self) -> None:
        """No batches are made ahead any more."""
        if self.stream is not None:
            self.stream.close()
        self.stream = None

    def gradients(self, micro: Sequence[Batch], total: int | Tensor) -> Tensor:
        """Leaves the gradients of the step in the parameters; returns the summed loss."""
        summed = torch.zeros((), device=self.device)
        several = self.processes.size > 1
        share = total / self.processes.size if several else total  # what is summed over processes is divided by them
        for number, batch in enumerate(micro, 1):
            if batch.target_tokens == 0 and not several:
                continue
            with self.processes.unsynchronized(self.loss) if number < len(micro) else nullcontext():
                with torch.autocast(self.device.type, self.autocast, enabled=self.autocast is not None):
                    loss = self.loss(batch.to(self.device, non_blocking=True))
                (loss / share).backward()
            summed = summed + loss.detach()
        return summed

    def is_finite(self, summed: Tensor, norm: Tensor) -> Tensor:
        """Whether the loss and all gradients are: one that is not finite, anywhere, shows in the norm over all."""
        return torch.isfinite(summed) & torch.isfinite(norm)

    def compute_step(self, micro: Sequence[Batch], total: int | Tensor) -> Tensor:
        """What a step does to tensors. On CUDA nothing in it asks the device anything, so it can be captured whole."""
        buffers = [b.clone() for b in self.buffers]
        summed = self.gradients(micro, total)
        if self.processes.size > 1:
            summed = self.processes.sum(summed)
        grads = [p.grad for p in self.parameters if p.grad is not None]
        norm = whole(torch.nn.utils.get_total_norm(grads)) if grads else torch.zeros((), device=self.device)
        values = torch.stack([summed, norm.to(summed)])
        if self.layers:  # before clipping, as the norm of all is
            values = torch.cat([values, gradient_norms(self.layers.values(), self.device).to(values)])
        finite = self.is_finite(summed, norm)
        if self.decides_on_device or bool(finite):
            if self.config.clip is not None:
                torch.nn.utils.clip_grads_with_norm_(self.parameters, self.config.clip, norm)
            self.update(finite, buffers)
        else:
            self.restore_buffers(buffers, finite)
        self.zero_grad()
        return values

    def zero_grad(self) -> None:
        """No gradients."""
        for optimizer in self.optimizers:
            for parameter in (p for group in optimizer.param_groups for p in group["params"]):
                parameter.grad = None  # torch's zero_grad does no more, but imports torch's compiler (optim.py)

    def step(self) -> None:
        """One optimizer step on one batch in `accumulate` micro-batches, eagerly or by the captured graph."""
        begins = self.progress.position
        batch = self.next_batch()
        with self.processes.step():
            self.learn_from(batch, begins)

    def learn_from(self, batch: Batch, begins: Position) -> None:
        """The step on a batch, whose place in the data is told with it."""
        progress, config = self.progress, self.config
        pieces = batch.pieces(config.accumulate * self.processes.size, one_shape=self.batches.shape is not None)
        micro = self.processes.share(pieces)
        total = max(1, batch.target_tokens)
        if self.processes.size > 1 and not self.warm:
            # DDP lays gradients out anew after its first pass; one that counts for nothing, so that a run which goes on here sums
            # in the order of the run that never stopped.
            self.gradients([micro[0].blank()], 1)
            self.zero_grad()
        self.warm = True
        progress.step += 1
        self.processes.seed(config.seed, progress.step)
        any_stop_asked = self.processes.any_of(self.stop_asked())
        rate = self.rate(progress.step)
        self.set_learning_rate(rate)
        if self.captured is None:
            result = self.compute_step(micro, total)
        else:
            result = self.captured(micro, total)
            torch.autograd.graph.increment_version(self.parameters)  # a replay writes without saying so
        progress.tokens += total
        report = StepReport(progress.step, 0.0, rate, 0.0, total, progress.epoch)
        self.pending.append((report, begins, batch.examples, result))
        self.stopping |= any_stop_asked()
        if self.device.type != "cuda" or progress.step % config.log_every == 0:
            self.flush_reports()

    def set_learning_rate(self, rate: float) -> None:
        """On CUDA into a tensor that stays where it is: a captured step reads it there."""
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                value = rate * group["base_lr"] / self.config.learning_rate
                if not self.decides_on_device:
                    group["lr"] = value
                elif isinstance(group["lr"], Tensor):
                    group["lr"].fill_(value)
                else:
                    group["lr"] = torch.tensor(value, device=self.device)

    def restore_buffers(self, buffers: list[Tensor], finite: Tensor) -> None:
        """Buffers as they were before a step that does not count."""
        for now, before in zip(self.buffers, buffers, strict=True):
            now.copy_(torch.where(finite, now, before))

    def update(self, finite: Tensor, buffers: list[Tensor]) -> None:
        """The optimizers' step and the moving average's, neither of which does anything where `finite` is false."""
        for optimizer in self.optimizers:
            if self.decides_on_device:
                if isinstance(optimizer, torch.optim.AdamW):
                    optimizer.grad_scale, optimizer.found_inf = None, (~finite).float()  # type: ignore[attr-defined]
                else:
                    optimizer.finite = finite  # type: ignore[attr-defined]
            optimizer.step()
        if self.decides_on_device:
            self.restore_buffers(buffers, finite)
        if self.ema is not None:
            decay = self.config.ema or 0.0
            current = model_tensors(self.model)
            for average, now in ((local(tensor), local(current[name])) for name, tensor in self.ema.items()):
                if average.is_floating_point():
                    average.copy_(torch.where(finite, average.lerp(now, 1 - decay), average))
                else:
                    average.copy_(now)

    def flush_reports(self) -> None:
        """Look at the losses of the steps since the last look: log, warn, or stop."""
        if not self.pending:
            return
        progress = self.progress
        values = torch.stack([v for *_, v in self.pending]).cpu().double()
        for (report, begins, examples, _unused), (summed, norm, *norms) in zip(
            self.pending, values.tolist(), strict=True
        ):
            loss = summed / report.tokens
            if not (math.isfinite(summed) and math.isfinite(norm)):
                progress.bad_steps += 1
                what = _("loss") if not math.isfinite(summed) else _("gradient")
                shown = ", ".join(map(str, examples[:8])) + (" …" if len(examples) > 8 else "")
                self.message(
                    _(
                        "step {step}: the {what} is not finite; the step is skipped "
                        "(epoch {epoch}, batch {index}, examples {shown})",
                        report.step,
                        what,
                        begins.epoch,
                        begins.index,
                        shown,
                    )
                )
                if progress.bad_steps >= self.config.bad_steps:
                    self.pending = []
                    raise NotFinite(
                        "{count} steps in a row had a loss or gradient that is not finite, the last at step {step} (epoch "
                        "{at.epoch}, batch {at.index}); the last checkpoint is good. Go on from it with a lower "
                        "train.learning_rate, a longer train.warmup or a lower train.clip",
                        progress.bad_steps,
                        report.step,
                        begins,
                    )
                continue
            progress.bad_steps = 0
            self.check_for_spike(report.step, loss)
            progress.loss_sum += summed
            progress.loss_tokens += report.tokens
            if report.step % self.config.log_every == 0:
                mean = progress.loss_sum / max(1, progress.loss_tokens)
                layers = dict(zip(self.layers, norms, strict=True))
                line = StepReport(report.step, mean, report.rate, norm, progress.tokens, report.epoch, layers)
                progress.loss_sum, progress.loss_tokens = 0.0, 0
                for callback in self.callbacks:
                    callback.on_log(line)
        self.pending = []

    def check_for_spike(self, step: int, loss: float) -> None:
        """Tells of a loss far above the usual."""
        progress = self.progress
        if progress.usual_loss is None:
            progress.usual_loss = loss
            return
        distance = loss - progress.usual_loss
        if step > 100 and distance > 6 * progress.usual_spread and distance > 0.5:
            self.message(
                _(
                    "step {step}: the loss jumped to {loss:.3f} from about {usual_loss:.3f}",
                    step,
                    loss,
                    progress.usual_loss,
                )
            )
        progress.usual_spread = 0.98 * progress.usual_spread + 0.02 * abs(distance)
        progress.usual_loss += 0.02 * distance

    def message(self, text: str) -> None:
        """A message to every callback."""
        for callback in self.callbacks:
            callback.on_message(text)

    # ---- everything that moves

    def find_nonfinite(self, tensors: dict[str, dict[str, Tensor]]) -> str | None:
        """The name of a tensor with a NaN or an infinity in it, if there is one. A look at all of them: for a save, not for
        a step."""
        named = [(name, t) for group in tensors.values() for name, t in group.items() if t.is_floating_point()]
        good = torch.stack([t.isfinite().all().to(self.device) for _, t in named]).cpu()
        return None if bool(good.all()) else named[int(good.int().argmin())][0]

    def tensors(self) -> dict[str, dict[str, Tensor]]:
        """Every tensor that moves: the model's, and those of the training by a prefix of their own."""
        training = {f"optimizer/{n}": t for n, t in optimizer_tensors(self.model, self.optimizers).items()}
        training |= {f"ema/{n}": t for n, t in (self.ema or {}).items()}
        training["random/cpu"] = torch.get_rng_state()
        if self.device.type == "cuda":
            training["random/cuda"] = torch.cuda.get_rng_state()
        return {
            "model": self.processes.gathered(model_tensors(self.model)),
            "training": self.processes.gathered(training),
        }

    def state(self) -> dict[str, Any]:
        """Every number that moves, as a JSON-serialisable dict."""
        self.flush_reports()
        index, epoch = self.progress.index, self.progress.epoch
        return asdict(self.progress) | {"epoch_batches": self.batches.epoch_length(epoch) if index else None}

    def restore(self, tensors: dict[str, dict[str, Tensor]], state: dict[str, Any]) -> None:
        """Puts back what `tensors` and `state` gave, so that the next step is the one that would have followed."""
        training = tensors["training"]

        def part(prefix: str) -> dict[str, Tensor]:
            return {n.removeprefix(prefix): t for n, t in training.items() if n.startswith(prefix)}

        own = model_tensors(self.model)

        def placed(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
            return {n: placed_like(t, own[n]) if n in own else t for n, t in tensors.items()}

        load_model_tensors(self.model, placed(tensors["model"]))
        load_optimizer_tensors(self.model, self.optimizers, part("optimizer/"))
        if self.ema is not None:
            # A moving average that was only now asked for begins with the weights as they are.
            for name, tensor in placed(part("ema/") or tensors["model"]).items():
                self.ema[name].copy_(tensor)
        torch.set_rng_state(training["random/cpu"])
        if self.device.type == "cuda" and "random/cuda" in training:
            torch.cuda.set_rng_state(training["random/cuda"])
        known = TrainerState.__dataclass_fields__
        self.progress = TrainerState(**{k: v for k, v in state.items() if k in known})
        self.close()
        self.rescale_position(state.get("epoch_batches"))

    def rescale_position(self, batches_then: int | None) -> None:
        """A place in an epoch is a number of batches. Where the epoch is now cut into more or fewer of them (another
        batch size, another layout), the place is the one as far through the epoch."""
        progress = self.progress
        batches_now = self.batches.epoch_length(progress.epoch) if batches_then else None
        if batches_then and batches_now and batches_then != batches_now:
            progress.index = progress.index * batches_now // batches_then
            self.message(
                _(
                    "epoch {epoch} now has {batches_now:,} batches in place of {batches_then:,}; going on at batch "
                    "{index:,}, so a few of its examples may be seen twice or not at all",
                    progress.epoch,
                    batches_now,
                    batches_then,
                    progress.index,
                )
            )

    def served_tensors(self) -> dict[str, Tensor]:
        """The weights one would use now: the average where there is one."""
        return self.processes.gathered(model_tensors(self.model) if self.ema is None else self.ema)
