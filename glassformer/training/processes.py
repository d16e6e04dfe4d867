"""One training on several processes, by torch.distributed: DDP (Li et al. 2020), a copy of the model each, whose gradients are
summed as the backward pass makes them; or, where `train.shard` asks, FSDP2 (Zhao et al. 2023), a piece of every tensor each,
gathered block by block for the time that the block needs it.

    torchrun --nproc-per-node 4 -m glassformer train dates        or: glassformer train dates --nproc 4

The batch of a step follows from seed and position as with one process and is cut into micro-batches by rows; of `size` of them
each process takes the one of its rank, and one that has none left takes a blank one. The loss of each is divided by the
target tokens of the whole batch, so the sum over processes is the gradient of one process, however ragged the lengths.
Nothing of a checkpoint knows how many processes wrote it.

What is random within a step (dropout) follows from seed, step and rank, where there are several; one process draws from torch's
stream as ever. Only rank 0 writes, measures and speaks. A process that ends closes its connections, and so ends the others.

One that hangs, rather than ends, is noticed by the others, which would wait for it for ever. Each rank has a thread that writes
down how often it has beaten, in the store by which torch.distributed's processes meet; rank 0 looks at the beats of all, the
others at those of rank 0. Beats that cease are those of a process that was stopped, or whose machine is gone. A process may also
hang and beat (two that wait for each other): then rank 0 does not come out of a step. Between steps rank 0 may validate, save or
draw for as long as it takes. Time is counted in looks, so that a machine that sleeps, or a job that is stopped and continued as a
whole, is not taken for a process that hangs.
"""

from __future__ import annotations

import atexit
import json
import os
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from shlex import quote
from typing import Any

import torch
from torch import Tensor, nn

from glassformer.data.batches import Batch
from glassformer.data.stream import Stream, random_bits
from glassformer.errors import UserError
from glassformer.language import _, localized
from glassformer.nn.block import Stack
from glassformer.screen import rank_of_several, warn

LOST = 71  # exit code
LOOKS = 20  # in the time that is allowed


class Watch:
    """One rank's record of the others: for how many looks each has not beaten, and for how many the step lasts."""

    def __init__(self, others: range, looks: int = LOOKS) -> None:
        self.looks = looks
        self.silent = dict.fromkeys(others, 0)
        self.seen: dict[int, bytes] = {}
        self.step_looks: int | None = None
        self.longest = 0

    def note(self, rank: int, beats: bytes) -> None:
        """Records the beats of a rank."""
        if self.seen.get(rank) != beats:
            self.seen[rank], self.silent[rank] = beats, 0

    @contextmanager
    def step(self) -> Iterator[None]:
        """Inside, all ranks take part, and none works for itself."""
        self.step_looks = 0
        try:
            yield
        finally:
            self.longest, self.step_looks = max(self.longest, self.step_looks), None

    def look(self) -> str | None:
        """The problem now, in words; None where all is well."""
        for rank in self.silent:
            self.silent[rank] += 1
            if self.silent[rank] > self.looks:
                return _("rank {rank} of this training does not answer: it was stopped, or its machine is gone", rank)
        if self.step_looks is not None:
            self.step_looks += 1
            if self.step_looks > self.looks + self.longest:
                return _("a step of this training does not end: one of its processes hangs")
        return None


class Heart:
    """The threads that beat and look, from `start` to `stop`."""

    def __init__(self, rank: int, size: int, seconds: float, run: str) -> None:
        self.rank, self.seconds, self.run = rank, seconds, run
        self.interval = seconds / LOOKS
        self.watch = Watch(range(1, size) if rank == 0 else range(1))
        self.ended = threading.Event()
        self.threads = [threading.Thread(target=work, daemon=True) for work in (self.beat, self.look)]

    def start(self) -> None:
        """Begins both."""
        for thread in self.threads:
            thread.start()

    def stop(self) -> None:
        """Ends both: one that waits for a process that hangs is not waited for."""
        self.ended.set()
        for thread in self.threads:
            thread.join(2.0)

    def beat(self) -> None:
        """Writes and reads beats. Asking a process that hangs may take for ever, so that somebody else looks; where the store is
        gone, whoever held it is."""
        host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        start = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        try:
            client = torch.distributed.TCPStore(
                host, port, is_master=False, wait_for_workers=False, timeout=timedelta(seconds=max(1.0, self.interval))
            )
            store, count = torch.distributed.PrefixStore(f"beats-{start}", client), 0
            while not self.ended.wait(self.interval):
                count += 1
                store.set(str(self.rank), str(count))
                for rank in self.watch.silent:
                    with suppress(torch.distributed.DistStoreError):  # it has not begun
                        self.watch.note(rank, store.get(str(rank)))
        except RuntimeError:
            return

    def look(self) -> None:
        """Ends this process where another hangs; the others are ended by that, or by whoever has started them."""
        while not self.ended.wait(self.interval):
            if (wrong := self.watch.look()) is not None and not self.ended.is_set():
                if self.rank <= 1:
                    sentence = _(
                        "{wrong} (waited for {seconds:,.0f} seconds: train.hang_seconds). All processes end, and what was saved "
                        "before is untouched; go on with: glassformer train {path} --resume",
                        wrong,
                        self.seconds,
                        quote(self.run),
                    )
                    warn(localized(_("glassformer, rank {rank}: {sentence}", self.rank, sentence)))
                os._exit(LOST)


LONG = timedelta(days=30)  # rank 0 may prepare, validate or save for as long as it takes; `watch` sees whether it hangs
CONNECTION_LOST = (
    *("Connection closed by peer", "Connection reset by peer", "Broken pipe", "Socket closed", "Connection refused"),
    "Connection was likely closed",  # while they meet
)


class ProcessLost(UserError):
    """Another process of the training has ended."""

    exit_code = LOST


def is_lost(error: BaseException) -> bool:
    """Whether torch.distributed says that another process is gone."""
    return isinstance(error, RuntimeError) and any(sign in str(error) for sign in CONNECTION_LOST)


def is_sharded(tensor: Tensor) -> bool:
    """Whether this is a DTensor, of which each rank holds a piece."""
    return hasattr(tensor, "full_tensor")


def whole(tensor: Tensor) -> Tensor:
    """A DTensor in full, on every rank; another tensor as it is."""
    return tensor.full_tensor() if is_sharded(tensor) else tensor  # type: ignore[attr-defined]


def local(tensor: Tensor) -> Tensor:
    """This rank's piece of a DTensor, in the same memory; another tensor as it is."""
    return tensor.to_local() if is_sharded(tensor) else tensor  # type: ignore[attr-defined]


def placed_like(tensor: Tensor, other: Tensor) -> Tensor:
    """A whole tensor on the device of another, cut over the ranks where that is a DTensor."""
    tensor = tensor.to(other.device)
    if not is_sharded(other) or tensor.dim() == 0:
        return tensor
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(tensor, other.device_mesh, other.placements, src_data_rank=None)  # type: ignore[attr-defined]


class LossModule(nn.Module):
    """The loss of a batch as a module's forward pass, which is what DDP and FSDP attend to."""

    def __init__(self, model: nn.Module, loss: Callable[[Batch], Tensor]) -> None:
        super().__init__()
        self.model, self.loss = model, loss

    def forward(self, batch: Batch) -> Tensor:
        """The summed loss of a batch."""
        return self.loss(batch)


def replicated(loss: LossModule) -> nn.Module:
    """DDP of a loss: a copy of its model on each rank."""
    from torch.nn.parallel import DistributedDataParallel

    with warnings.catch_warnings(action="ignore"):  # torch 2.13 has a new name for what 2.11 calls broadcast_buffers
        return DistributedDataParallel(loss, broadcast_buffers=False, gradient_as_bucket_view=True)


@dataclass(frozen=True)
class Processes:
    """The processes of a training, as one of them sees them: `rank` of `size`, `local_rank` on its machine. `control`: the group
    for messages, which does not go through a GPU."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    control: Any = None
    hearts: list[Heart] = field(default_factory=list, compare=False)  # none, or one that beats

    def watch(self, seconds: float, run: str) -> None:
        """Starts the threads by which every rank notices that another hangs, and all end; `run` is what to go on with."""
        if self.size > 1 and not self.hearts:
            heart = Heart(self.rank, self.size, seconds, run)
            self.hearts.append(heart)
            heart.start()
            atexit.register(heart.stop)

    def step(self) -> AbstractContextManager[None]:
        """Inside, all ranks take part, and none works for itself: this ends soon, or some rank hangs."""
        return self.hearts[0].watch.step() if self.hearts else nullcontext()

    def device(self, device: torch.device) -> torch.device:
        """A process's own device of this type."""
        if self.size == 1 or device.type != "cuda":
            return device
        if self.local_rank >= (count := torch.cuda.device_count()):
            raise UserError(
                "more processes were started here than there are GPUs ({count}); start one for each, or set train.device=cpu",
                count,
            )
        own = torch.device("cuda", self.local_rank)
        torch.cuda.set_device(own)
        return own

    def broadcast(self, value: Any) -> Any:
        """Rank 0's value, which JSON can write, on every rank."""
        if self.size == 1:
            return value
        content = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)
        length = torch.tensor(len(content))
        torch.distributed.broadcast(length, 0, group=self.control)
        if self.rank != 0:
            content = torch.empty(int(length), dtype=torch.uint8)
        torch.distributed.broadcast(content, 0, group=self.control)
        return json.loads(content.numpy().tobytes())

    def wait(self) -> None:
        """Waits until every rank is here."""
        if self.size > 1:
            torch.distributed.barrier(group=self.control)

    def sum(self, values: Tensor) -> Tensor:
        """Over all ranks, in place."""
        torch.distributed.all_reduce(values)
        return values

    def any_of(self, here: bool) -> Callable[[], bool]:
        """Begins to ask every rank; what is returned waits for the answers, and says whether it was so on any of them. No GPU is
        asked: on CUDA the steps of a training go on meanwhile."""
        if self.size == 1:
            return lambda: here
        count = torch.tensor(int(here))
        work = torch.distributed.all_reduce(count, group=self.control, async_op=True)

        def answer() -> bool:
            work.wait()
            return bool(count)

        return answer

    def share(self, pieces: Sequence[Batch]) -> list[Batch]:
        """This rank's part of the micro-batches of a step: on every rank equally many, blank ones where there are too few."""
        missing = -len(pieces) % self.size
        return [*pieces, *(pieces[0].blank() for _ in range(missing))][self.rank :: self.size]

    def seed(self, seed: int, step: int) -> None:
        """Seeds the random numbers of a step by seed, step and rank, where there are several."""
        if self.size > 1:
            torch.manual_seed(int(random_bits(1, seed, step, Stream.DROPOUT, self.rank)[0] >> 1))

    def parallel(
        self, model: nn.Module, loss: Callable[[Batch], Tensor], *, shard: bool = False
    ) -> Callable[[Batch], Tensor]:
        """The same loss, whose backward pass leaves the mean over all ranks of the gradients. `shard`: the model's parameters
        become DTensors, of which each rank holds a piece, so optimizers are made afterwards."""
        if self.size == 1:
            return loss
        if shard:
            return self.sharded(model, LossModule(model, loss))
        return replicated(LossModule(model, loss))

    def sharded(self, model: nn.Module, loss: nn.Module) -> nn.Module:
        """FSDP2 of each block, and of the rest. Layers that share their parameters belong to the rest."""
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

        # A block's projections of the memory are views, which nobody here changes in place.
        warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor")
        mesh = init_device_mesh(next(model.parameters()).device.type, (self.size,))
        for stack in (m for m in model.modules() if isinstance(m, Stack) and not m.share_layers):
            for block in stack.layers:
                fully_shard(block, mesh=mesh)
                register_fsdp_forward_method(block, "project_memory")
        fully_shard(loss, mesh=mesh)
        return loss

    def gathered(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """These tensors whole, one after the other, in rank 0's memory; other ranks of a sharded model end up with none."""
        if not any(is_sharded(t) for t in tensors.values()):
            return tensors
        found = {}
        for name, tensor in tensors.items():
            full = whole(tensor)
            if self.rank == 0:
                found[name] = full.cpu()
        return found

    def unsynchronized(self, loss: Any) -> AbstractContextManager[Any]:
        """Inside, forward and backward passes leave this rank's gradients as they are, to be added to."""
        return loss.no_sync() if hasattr(loss, "no_sync") else nullcontext()


ALONE = Processes()


@cache
def current() -> Processes:
    """The processes of this training, connected; one alone where nothing has started several."""
    if (rank := rank_of_several()) is None:
        return ALONE
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    torch.distributed.init_process_group(backend, timeout=LONG)
    atexit.register(torch.distributed.destroy_process_group)
    control = torch.distributed.new_group(backend="gloo", timeout=LONG)
    # A rank that has something to refuse may leave at once: not before all others are through their own connecting.
    torch.distributed.barrier(control)
    return Processes(rank, int(os.environ["WORLD_SIZE"]), int(os.environ.get("LOCAL_RANK", "0")), control)
