"""From a recipe to a run: the wiring of data, model, trainer, validation and files. `train` starts one, `resume` goes on
with one.

What the trainer does not know is decided here: where batches come from, what "better" means, when to save and what a run
folder holds at the end. The same settings and seed give the same run, and a run that was stopped anywhere and resumed is
the run that was never stopped.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from glassformer.runs.folder import RunFolder
    from glassformer.runs.launch import follow, resume, train
    from glassformer.runs.session import Session
    from glassformer.runs.setup import make_session, pick_device
    from glassformer.runs.stop import STOPPED, Stopped

# Fetched when they are first asked for: to read what a run says of itself (facts.py) nobody has to wait for torch.
HOMES = {
    **dict.fromkeys(("follow", "resume", "train"), "launch"),
    "RunFolder": "folder",
    **dict.fromkeys(("make_session", "pick_device"), "setup"),
    **dict.fromkeys(("STOPPED", "Stopped"), "stop"),
    "Session": "session",
}


def __getattr__(name: str) -> Any:
    if name not in HOMES:
        raise AttributeError(f"module 'glassformer.runs' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"glassformer.runs.{HOMES[name]}"), name)
    globals()[name] = value
    return value


__all__ = [
    "STOPPED",
    "RunFolder",
    "Session",
    "Stopped",
    "follow",
    "make_session",
    "pick_device",
    "resume",
    "train",
]
