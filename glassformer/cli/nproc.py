"""`--nproc N`: the processes of a training on one machine, as torchrun starts them, but forked from one that has imported torch
already, and with the exit codes of one process.

Each has a rank and torchrun's variables. A signal to this process goes to all of them, once. Where one is killed, by the system
or by somebody, all start again from the last checkpoint, unless that has happened several times without a new one.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import runpy
import signal
import socket
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from glassformer.errors import UserError
from glassformer.language import _
from glassformer.screen import warn

RESTARTS = 3  # in a row, without a new checkpoint
GRACE = 15.0  # seconds that the others have to end after one has
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
LOST = 71  # a rank that ends because another has: ProcessLost.exit_code
SERVER_LOST = 255  # multiprocessing's word for whoever was forked from a process that is gone
PRELOAD = ["glassformer.cli.train", "glassformer.runs.launch", "torch._dynamo", "torch.nn.parallel.distributed"]


class ForkServerLost(UserError):
    """The process that the ranks are forked from has ended."""

    exit_code = LOST

    def __init__(self) -> None:
        super().__init__(
            _(
                "the process from which the ranks are started was killed; what was saved before is untouched. Go on with --resume"
            )
        )


def free_port() -> int:
    """A port of this machine that nobody has, and that the system gives to nobody by itself until it is listened on."""
    for port in random.sample(range(20_000, 32_000), 1000):
        with suppress(OSError), socket.socket() as place:
            place.bind(("127.0.0.1", port))
            return port
    raise UserError("no port between 20000 and 32000 is free here; the processes need one to find each other")


def run_rank(arguments: list[str], variables: dict[str, str]) -> None:
    """The command line, as one rank."""
    os.setpgid(0, 0)  # Ctrl-C reaches the launcher, which passes it on
    os.environ.update(variables)
    parent = multiprocessing.parent_process()

    def follow_parent() -> None:
        wait([parent.sentinel])  # type: ignore[union-attr]
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=follow_parent, daemon=True).start()
    sys.argv = ["glassformer", *arguments]
    runpy.run_module("glassformer", run_name="__main__")


def signal_all(ranks: Sequence[Any], number: int) -> None:
    """Sends a signal to every rank that there is."""
    for process in ranks:
        with suppress(ProcessLookupError, TypeError):
            os.kill(process.pid, number)


def forwarded(ranks: Sequence[Any]) -> AbstractContextManager[None]:
    """Inside, a signal goes to every rank."""
    from glassformer.runs.stop import handled_by

    return handled_by(lambda number, frame: signal_all(ranks, number), SIGNALS)


def run_once(arguments: list[str], count: int, restart: int) -> list[int]:
    """Starts every rank and waits for all of them; their exit codes, in the order of their ends, or of their ranks."""
    variables = {
        "WORLD_SIZE": str(count),
        "LOCAL_WORLD_SIZE": str(count),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "TORCHELASTIC_RESTART_COUNT": str(restart),
    }
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    ranks: list[Any] = [
        context.Process(target=run_rank, args=(arguments, {**variables, "RANK": str(i), "LOCAL_RANK": str(i)}))
        for i in range(count)
    ]
    try:
        for process in ranks:
            process.start()
    except (EOFError, ConnectionError):
        raise ForkServerLost from None
    with forwarded(ranks):
        until = None
        while left := [p for p in ranks if p.exitcode is None]:
            if until is None and any(p.exitcode for p in ranks):
                until = time.monotonic() + (GRACE if all((p.exitcode or 0) >= 0 for p in ranks) else 1.0)
            wait([p.sentinel for p in left], None if until is None else max(0.0, until - time.monotonic()))
            if until is not None and time.monotonic() >= until:
                codes = [p.exitcode for p in ranks]
                for process in left:  # a kill at any moment harms no run
                    process.kill()
                    process.join()
                return [LOST if code is None else code for code in codes]
    if any(process.exitcode == SERVER_LOST for process in ranks):
        signal_all(ranks, signal.SIGTERM)  # they live, and save
        raise ForkServerLost
    return [process.exitcode for process in ranks]


def latest_checkpoint(run: Path) -> str:
    """The name of the newest checkpoint, empty where there is none."""
    return max((path.name for path in run.glob("checkpoints/step-*")), default="")


def launch(arguments: list[str], count: int, run: Path, *, may_restart: bool = True) -> int:
    """Trains with so many processes; the exit code of the training."""
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // count)))
    failed, before = 0, latest_checkpoint(run)
    for restart in range(10**6):
        codes = run_once(arguments, count, restart)
        killed = next((rank for rank, code in enumerate(codes) if code < 0), None)
        if not any(codes):
            return 0
        # Where one was killed, whatever the others say comes of that.
        if killed is None and (own := [code for code in codes if code not in (0, LOST)]):
            return own[0]
        newest = latest_checkpoint(run)
        failed = 1 if newest != before else failed + 1
        before = newest
        if killed is not None:
            code, name = 128 - codes[killed], signal.Signals(-codes[killed]).name
            what = _("rank {rank} was ended by {signal}", killed, name)
        else:  # all say that another was lost: a connection broke
            code, what = LOST, _("the processes have lost each other")
        if failed > RESTARTS or not may_restart:
            warn(_("{what}; go on with --resume", what))
            return code
        warn(_("{what}; all start again from the last checkpoint", what))
    return 1
