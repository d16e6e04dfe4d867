"""What the processes of the fault tests run: the command line itself, with something arranged to go wrong.

Everything that goes wrong is real: the process kills itself with SIGKILL, sends itself a signal, runs into the kernel's
limits, or gets an error from a system call. What is arranged is only the moment.

    {"at": "before-rename", "nth": 2, "do": "kill"}       at the second such moment; also term, int, stop, hang,
                                                          power-cut, and error: the disk cannot be read
    {"call": "write", "nth": 5, "errno": 28}              the fifth os.write in the run's folder fails so
    {"poison": "gradient", "example": 7}                  the batch with this example has a NaN there; also loss, spike
    {"memory": 12}                                        from step 12 on the process gets no more memory
    {"file_size": 20000}                                  no file may grow beyond this (a disk that is full, for one file)
    {"handles": 4}                                        so many files more may be open than are at the start
    {"read_only": "folder"}                               nothing under it can be made, changed or removed
    {"draws": "code"}                                     what the process that draws later epochs begins with
    {"spy": "file"}                                       a line for each step: SHA-256 of weights, optimizer and average
    {"examples": "file"}                                  a line for each micro-batch: the examples it learned from
    {"variables": {"GLASSFORMER_CACHE": "folder"}}        of the environment
    {"double": true}                                      all numbers in float64
    {"variant": "no-fsync"}                               the guard is broken on purpose, to see that a test notices
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import ctypes
import errno
import hashlib
import importlib
import json
import os
import pkgutil
import resource
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

with contextlib.suppress(ImportError):
    import typer._adapters  # noqa: F401

# All of it is imported here, once, in the process that the others are forked from.
import matplotlib.pyplot  # noqa: F401
import msgspec.inspect  # noqa: F401
import numpy.ctypeslib  # noqa: F401
import psutil  # noqa: F401
import rich.console
import rich.progress
import rich.table  # noqa: F401
import safetensors.torch  # noqa: F401
import torch
import torch._dynamo  # optimizers import it
import torch.distributed.fsdp
import torch.nn.parallel.distributed
from torch import Tensor

import glassformer.cli
import glassformer.runs.launch
import glassformer.text.tokenizers
from glassformer.cli.main import main
from glassformer.data.stream import Position
from glassformer.files import durable
from glassformer.runs import checkpoint, metrics_log, session, setup
from glassformer.runs.stop import BackgroundWriter, StopRequest
from glassformer.training.progress import TrainerState
from glassformer.training.trainer import Trainer

with torch.autograd.profiler.record_function("imports more at its first use"):
    pass
for verb in pkgutil.iter_modules(glassformer.cli.__path__):
    importlib.import_module(f"glassformer.cli.{verb.name}")


class Poison(torch.autograd.Function):
    """Nothing is added to the loss, and one NaN to one gradient."""

    @staticmethod
    def forward(ctx: Any, parameter: Tensor) -> Tensor:
        ctx.save_for_backward(parameter)
        return parameter.new_zeros(())

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        (parameter,) = ctx.saved_tensors
        poisoned = torch.zeros_like(parameter)
        poisoned.view(-1)[0] = torch.nan
        return poisoned


class PowerCut:
    """A disk that forgets what was not fsynced: at the cut, files with such writes are emptied, as a file system with
    delayed allocation leaves them, and files that only grow lose what was added."""

    def __init__(self, root: Path) -> None:
        self.root, self.unsynced, self.power = root, set[tuple[int, int]](), threading.Lock()
        self.sizes: dict[tuple[int, int], int] = {}
        real_write, real_fsync = os.write, os.fsync

        def identity(descriptor: int) -> tuple[int, int]:
            found = os.fstat(descriptor)
            return found.st_dev, found.st_ino

        def write(descriptor: int, data: Any) -> int:
            with self.power:  # once it is cut, no thread writes any more
                self.unsynced.add(identity(descriptor))
                return real_write(descriptor, data)

        def fsync(descriptor: int) -> None:
            with self.power:
                real_fsync(descriptor)
                self.unsynced.discard(identity(descriptor))
                self.sizes[identity(descriptor)] = os.fstat(descriptor).st_size

        os.write, os.fsync = write, fsync

    def happen(self) -> None:
        self.power.acquire()
        for path in self.root.rglob("*"):
            found = path.lstat()
            who = found.st_dev, found.st_ino
            if path.suffix == ".jsonl":  # what was fsynced stays, though a line was added since
                os.truncate(path, self.sizes.get(who, 0))
            elif path.is_file() and who in self.unsynced:
                os.truncate(path, 0)
        os.kill(os.getpid(), signal.SIGKILL)


def read_error() -> None:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def arrange_moment(fault: dict[str, Any], root: Path) -> None:
    cut = PowerCut(root) if fault["do"] == "power-cut" else None
    actions: dict[str, Callable[[], Any]] = {
        "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
        "term": lambda: os.kill(os.getpid(), signal.SIGTERM),
        "stop": lambda: os.kill(os.getpid(), signal.SIGSTOP),
        "hang": lambda: threading.Event().wait(),
        "int": lambda: os.kill(os.getpid(), signal.SIGINT),
        "error": read_error,
        "power-cut": lambda: cut.happen() if cut else None,
    }
    seen: Counter[str] = Counter()

    def moment(name: str) -> None:
        seen[name] += 1
        if name == fault["at"] and seen[name] == fault["nth"]:
            if name in (
                "batch",
                "step",
                "micro-batch",
            ):  # the checkpoint before it is to be gone on from: let it be written
                concurrent.futures.wait(writes)
            for again in range(fault.get("times", 1)):
                if again and threading.current_thread() is not threading.main_thread():
                    heard.wait()  # signals are heard by the main thread, when it comes to that
                actions[fault["do"]]()
            if fault.get("times", 1) > 1 and threading.current_thread() is not threading.main_thread():
                threading.Event().wait(60)  # the process ends before this write does

    heard, real_handler = threading.Event(), StopRequest.handler

    def handler(self: StopRequest, number: int, frame: Any) -> None:
        try:
            real_handler(self, number, frame)
        finally:
            heard.set()

    StopRequest.handler = handler  # type: ignore[method-assign]
    writes: list[concurrent.futures.Future[None]] = []
    real_submit = BackgroundWriter.submit

    def submit(self: BackgroundWriter, write: Callable[[], None]) -> None:
        real_submit(self, write)
        writes[:] = [self.pending] if self.pending else []

    BackgroundWriter.submit = submit  # type: ignore[method-assign]
    durable.fault_point = moment
    real_batch, real_step, real_loss = Trainer.next_batch, Trainer.step, setup.batch_loss

    def next_batch(self: Trainer) -> Any:
        batch = real_batch(self)
        durable.fault_point("batch")
        return batch

    def step(self: Trainer) -> None:
        real_step(self)
        durable.fault_point("step")

    def batch_loss(model: Any, batch: Any, smoothing: float = 0.0) -> Tensor:
        durable.fault_point("micro-batch")
        return real_loss(model, batch, smoothing)

    Trainer.next_batch, Trainer.step = next_batch, step  # type: ignore[method-assign]
    setup.batch_loss = batch_loss


def arrange_error(fault: dict[str, Any], root: Path) -> None:
    """A system call on something inside the run's folder fails."""
    real = getattr(os, fault["call"])
    seen = 0

    def where(argument: Any) -> str:
        return os.readlink(f"/proc/self/fd/{argument}") if isinstance(argument, int) else os.path.abspath(argument)

    def failing(first: Any, *rest: Any, **more: Any) -> Any:
        nonlocal seen
        if where(first).startswith(str(root.resolve())) and "checkpoints" in where(first):
            seen += 1
            if seen == fault["nth"]:
                raise OSError(fault["errno"], os.strerror(fault["errno"]))
        return real(first, *rest, **more)

    setattr(os, fault["call"], failing)


def arrange_poison(fault: dict[str, Any]) -> None:
    real = setup.batch_loss

    def poisoned(model: Any, batch: Any, smoothing: float = 0.0) -> Tensor:
        loss = real(model, batch, smoothing)
        if fault["example"] is None or fault["example"] in batch.examples:
            if fault["poison"] == "loss":
                return loss * torch.nan
            if fault["poison"] == "spike":
                return loss * 10
            return loss + Poison.apply(next(model.parameters()))  # type: ignore[no-any-return, no-untyped-call]
        return loss

    setup.batch_loss = poisoned


def arrange_memory(first_step: int) -> None:
    """What is larger than this is asked from the kernel each time, and not kept for the next one that needs it."""
    ctypes.CDLL(None).mallopt(-3, 1 << 16)  # M_MMAP_THRESHOLD
    real = Trainer.step

    def step(self: Trainer) -> None:
        if self.progress.step == first_step:
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize(),) * 2)
        real(self)

    Trainer.step = step  # type: ignore[method-assign]


def arrange_few_handles(more: int) -> None:
    """The kernel's own limit."""
    limit = max(map(int, os.listdir("/proc/self/fd"))) + 1 + more
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))


def arrange_read_only(folder: str) -> None:
    """As on a file system that is mounted so: whoever opens to write, makes, renames or removes is told EROFS."""
    changes = {"os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.chmod"}

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event in changes or (event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)):
            path = os.fsdecode(arguments[0]) if isinstance(arguments[0], str | bytes | os.PathLike) else ""
            if os.path.abspath(path).startswith(folder):
                raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)

    sys.addaudithook(hook)


def arrange_spy(file: str) -> None:
    real = Trainer.step

    def note(self: Trainer) -> None:
        digest = hashlib.sha256()
        groups = self.tensors()
        kept = {n: t for n, t in groups["training"].items() if not n.startswith("random/")}
        for _, tensor in sorted((groups["model"] | kept).items()):
            digest.update(tensor.contiguous().numpy().tobytes())
        with open(file, "a") as out:
            out.write(json.dumps({"step": self.progress.step, "digest": digest.hexdigest()}) + "\n")

    def step(self: Trainer) -> None:
        if self.progress.step == 0:
            note(self)
        real(self)
        note(self)

    Trainer.step = step  # type: ignore[method-assign]


def arrange_examples(file: str) -> None:
    real = Trainer.gradients

    def gradients(self: Trainer, micro: Any, total: Any) -> Tensor:
        with open(file, "a") as out:
            for batch in micro:
                out.write(json.dumps({"step": self.progress.step, "examples": batch.examples}) + "\n")
        return real(self, micro, total)

    Trainer.gradients = gradients  # type: ignore[method-assign]


def break_a_guard(variant: str) -> None:
    match variant:
        case "no-fsync":
            os.fsync = lambda descriptor: None
        case "delete-before-rename":
            real_write = checkpoint.write_checkpoint

            def write(folder: Path, *rest: Any) -> None:
                found = checkpoint.Checkpoints(folder.parent)
                for step in found.steps():
                    checkpoint.remove(found.path(step))
                real_write(folder, *rest)

            session.write_checkpoint = write
        case "loss-only":
            Trainer.is_finite = lambda self, summed, norm: torch.isfinite(summed)  # type: ignore[method-assign]
            Trainer.find_nonfinite = lambda self, tensors: None  # type: ignore[method-assign]
        case "epoch-0-order":
            TrainerState.position = property(lambda self: Position(0, self.index))  # type: ignore[assignment, method-assign]
        case "unchecked":
            checkpoint.problem = lambda folder, names=None, again=False: None  # type: ignore[assignment]
            checkpoint.read_checkpoint.__globals__["problem"] = checkpoint.problem
        case _:
            raise ValueError(variant)


def drive(arguments: list[str], root: str, output: str, faults: list[dict[str, Any]], draw: bool = False) -> None:
    """One `glassformer` command line in this process; what it says goes to `output`."""
    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    torch.set_num_threads(1)
    if not draw:
        # The picture at the end is not what these tests are about, and costs more than the training.
        metrics_log.draw_curves = lambda run: []  # type: ignore[assignment]
    for fault in faults:
        if "at" in fault:
            arrange_moment(fault, Path(root))
        elif "call" in fault:
            arrange_error(fault, Path(root))
        elif "poison" in fault:
            arrange_poison(fault)
        elif "memory" in fault:
            arrange_memory(fault["memory"])
        elif "handles" in fault:
            arrange_few_handles(fault["handles"])
        elif "read_only" in fault:
            arrange_read_only(fault["read_only"])
        elif "spy" in fault:
            arrange_spy(fault["spy"])
        elif "examples" in fault:
            arrange_examples(fault["examples"])
        elif "variables" in fault:
            os.environ.update(fault["variables"])
        elif "double" in fault:
            torch.set_default_dtype(torch.float64)
        elif "file_size" in fault:
            resource.setrlimit(resource.RLIMIT_FSIZE, (fault["file_size"],) * 2)
    for fault in faults:
        if "variant" in fault:
            break_a_guard(fault["variant"])
    sys.argv = ["glassformer", *arguments]
    main()
