"""`model.eval()` for a while. Several threads may use one model at once, and none may find it as another one left it: the first
to come switches to evaluation mode (dropout off), and the last to leave puts the model back."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

eval_mode_lock = threading.Lock()
evaluated: weakref.WeakKeyDictionary[nn.Module, list[int]] = weakref.WeakKeyDictionary()


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """Inside, the model is in evaluation mode, for as long as any thread is inside; then as it was."""
    with eval_mode_lock:
        state = evaluated.setdefault(model, [0, model.training])  # how many, and what to go back to
        if state[0] == 0:
            state[1] = model.training
            if model.training:
                model.eval()
        state[0] += 1
    try:
        yield
    finally:
        with eval_mode_lock:
            state[0] -= 1
            if state[0] == 0 and state[1]:
                model.train()
