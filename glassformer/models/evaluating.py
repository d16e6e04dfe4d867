"""A model that is asked while it is in training mode. Several threads may ask it at once, and none may find it as another one
left it: the first to come switches dropout off, and the last to leave puts the model back."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

evaluating_lock = threading.Lock()
evaluated: weakref.WeakKeyDictionary[nn.Module, list[int]] = weakref.WeakKeyDictionary()


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Dropout off, for as long as anyone (of any thread) asks the model something; then as it was."""
    with evaluating_lock:
        state = evaluated.setdefault(model, [0, model.training])  # how many, and what to go back to
        if state[0] == 0:
            state[1] = model.training
            if model.training:
                model.eval()
        state[0] += 1
    try:
        yield
    finally:
        with evaluating_lock:
            state[0] -= 1
            if state[0] == 0 and state[1]:
                model.train()
