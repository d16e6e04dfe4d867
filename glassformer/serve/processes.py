"""One server in several processes: each has the runs in memory and answers whoever the kernel sends it.

HTTP, tokenizers and the launching of a GPU's kernels all wait for Python's one lock, so past some thousand requests a second
the lock binds and not the device. Processes have a lock each, and share the port (SO_REUSEPORT), the device, the limits
(a share of each), the counters, and the folder of translated files. One that dies is started again; who was connected to it has
to come again. A signal to the first process ends all of them in good order.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.connection import wait
from typing import Any

from glassformer.errors import ConfigError, UserError
from glassformer.language import _
from glassformer.screen import say
from glassformer.serve.connections import shared_socket
from glassformer.serve.limits import Limits
from glassformer.serve.metrics import SHARED_COUNTERS

LOOK_SECONDS = 0.2


def share_of(limits: Limits, processes: int) -> Limits:
    """What each of several processes may hold, so that together they hold what one would."""

    def share(value: int) -> int:
        return -(-value // processes)

    memory = None if limits.memory is None else share(limits.memory)
    return replace(limits, queue=share(limits.queue), connections=share(limits.connections), memory=memory)


def reserve(host: str, port: int) -> socket.socket:
    """A socket that holds a port for several processes, and does not listen itself."""
    if not hasattr(socket, "SO_REUSEPORT"):
        raise ConfigError("several processes cannot share a port on this system; leave out --processes")
    try:
        # Alone first: with SO_REUSEPORT a port that another server shares already would be shared with it.
        with socket.create_server(
            (host.strip("[]"), port), family=socket.AF_INET6 if ":" in host else socket.AF_INET
        ) as alone:
            port = alone.getsockname()[1]
        return shared_socket(host, port)
    except OSError:
        raise UserError(
            "nothing can listen on {host} port {port}; is it taken by another program?", host, port
        ) from None


def member(serve: Callable[..., None], port: int, ready: Any, threads: int) -> None:
    """One process of a server. The terminal's Ctrl-C is for the first process alone, and without that one none goes on."""
    import torch

    os.setpgrp()
    parent = multiprocessing.parent_process()

    def end_with_parent() -> None:
        parent.join()  # type: ignore[union-attr]
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=end_with_parent, daemon=True).start()
    torch.set_num_threads(threads)
    try:
        serve(port, listening=ready.set)
    except UserError as error:
        say(f"glassformer: {error}")
        sys.exit(error.exit_code)


class ServerProcesses:
    """So many processes that serve, until a signal comes. `serve(port, listening=…)` is what each of them does; it can be
    pickled."""

    def __init__(self, serve: Callable[..., None], host: str, port: int, count: int) -> None:
        self.serve, self.count = serve, count
        self.held = reserve(host, port)
        self.port = self.held.getsockname()[1]
        self.address = f"http://{host}:{self.port}"
        self.context: Any = multiprocessing.get_context("spawn")
        self.members: dict[Any, Any] = {}  # process: set once it listens
        self.signals = 0

    def start(self) -> None:
        """One process more."""
        ready = self.context.Event()
        threads = max(1, (os.cpu_count() or 1) // self.count)
        process = self.context.Process(target=member, args=(self.serve, self.port, ready, threads))
        process.start()
        self.members[process] = ready
        if self.signals:  # it came while this one was being started
            process.terminate()

    def end(self, *_given: Any) -> None:
        """All of them are told: once, to end in good order; twice, at once."""
        self.signals += 1
        for process in self.members:
            if process.is_alive():
                process.terminate()

    def run(self) -> None:
        """Until all have ended. One that dies is started again, unless it has never listened: then none will."""
        before = {which: signal.signal(which, self.end) for which in (signal.SIGTERM, signal.SIGINT)}
        try:
            with tempfile.TemporaryDirectory(prefix="glassformer-counters-") as counters:
                os.environ[SHARED_COUNTERS] = counters
                try:
                    self.watch()
                finally:
                    del os.environ[SHARED_COUNTERS]
        finally:
            for which, handler in before.items():
                signal.signal(which, handler)
            self.held.close()

    def watch(self) -> None:
        """Starts them, says when all listen, and sees to it that they are as many as were asked for."""
        from prometheus_client.multiprocess import mark_process_dead

        for _n in range(self.count):
            self.start()
        said, code = False, 0
        while self.members:
            if not said and all(ready.is_set() for ready in self.members.values()):
                said = True
                say(_("listening on {address}, in {count} processes", self.address, self.count))
            wait([process.sentinel for process in self.members], LOOK_SECONDS)
            for process in [process for process in self.members if not process.is_alive()]:
                listened = self.members.pop(process).is_set()
                mark_process_dead(process.pid)
                if self.signals:
                    continue
                if not listened:
                    code = process.exitcode if process.exitcode > 0 else 70
                    self.end()
                else:
                    say(_("process {pid} died (exit code {code}) and is started again", process.pid, process.exitcode))
                    self.start()
                    time.sleep(LOOK_SECONDS)
        if code:
            sys.exit(code)
