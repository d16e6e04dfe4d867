"""A training on several real processes, as torchrun starts them, forked from one that has imported everything already."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from glassformer.cli.nproc import free_port
from tests.faults.forked import drive
from tests.faults.processes import Ended, Runner, Running, context

Faults = dict[int, list[dict[str, Any]]]
"""What is arranged on each rank; see tests/faults/driver.py."""


def drive_rank(variables: dict[str, str], arguments: list[str], root: str, output: str, faults: Any) -> None:
    os.environ.update(variables)
    drive(arguments, root, output, faults)


@dataclass
class Ranks(Runner):
    """One run's folder, and the groups of processes that train in it."""

    def start(self, arguments: list[str], size: int, faults: Faults | None = None, **double: Any) -> list[Running]:
        """So many processes, one a rank."""
        port, found = free_port(), []
        for rank in range(size):
            output = self.folder.with_name(f"{self.folder.name}-{rank}.out")
            output.unlink(missing_ok=True)
            variables = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(size)}
            variables |= {"RANK": str(rank), "LOCAL_RANK": str(rank)}
            own = [*(faults or {}).get(rank, []), *([double] if double else [])]
            process = context().Process(
                target=drive_rank,
                args=(variables if size > 1 else {}, arguments, str(self.folder), str(output), own),
            )
            process.start()
            found.append(Running(process, output))
        return found

    def several(self, size: int, faults: Faults | None = None, *extra: str, **double: Any) -> list[Running]:
        """Starts the run, or goes on with it: one command for both."""
        arguments = ["train", self.recipe, *self.tiny, *self.settings, *extra, "--out", str(self.folder), "--resume"]
        return self.start(arguments, size, faults, **double)

    def ended(self, size: int, faults: Faults | None = None, *extra: str, **double: Any) -> list[Ended]:
        """The same, when all have ended."""
        return [running.wait() for running in self.several(size, faults, *extra, **double)]


def codes(ended: list[Ended]) -> list[int]:
    return [one.code for one in ended]
