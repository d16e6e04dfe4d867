"""How much of anything is taken. What goes beyond is refused at once and in words."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """The bounds of one server; each can be changed by an option of `glassformer serve` of the same name."""

    queue: int = 256  # requests a model holds at a time, being answered or waiting; one more is told to come again
    body: int = 1 << 20  # bytes of a request
    file: int = 1 << 20  # bytes of a file to be translated
    file_seconds: float = 10.0  # of processor time, to read a file and again to write it
    file_memory: int = 1 << 30  # bytes for either
    text: int = 20_000  # characters of one text
    batch: int = 128  # texts of one request
    total: int = 200_000  # characters of all texts of one request
    rows: int = 2048  # lines and sentences that they are cut into, or completions to be written
    alternatives: int = 10
    choices: int = 16  # n and best_of
    logprobs: int = 20
    new_tokens: int = 4096
    stops: int = 4
    glossary: int = 100  # terms
    seconds: float = 60.0  # that an answer may take
    read_seconds: float = 10.0  # in which a request must have arrived, head and body each
    connections: int = 1024
    drain_seconds: float = 20.0  # after SIGTERM, for what is under way
    memory: int | None = None  # bytes of weights held at a time; None: all runs stay
    hung_seconds: float = 8.0  # a worker that has not moved for so long is not ready
    dead_seconds: float = 60.0  # ... and for so long, not alive
