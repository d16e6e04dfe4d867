"""How a mistake is told."""

from __future__ import annotations

import pytest


def one_sentence(error: pytest.ExceptionInfo[Exception]) -> str:
    """What the person reads: one line, not a traceback's worth."""
    message = str(error.value)
    assert message and "\n" not in message and len(message) < 250
    return message
