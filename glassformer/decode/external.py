"""Other people's programs that answer: what the driver asks of one, and where each of them lives.

A program lives with its format (`formats/`, above this room): the module is imported when an engine of its name is first asked
for. CTranslate2 searches by itself, so whole batches are handed to it (`SearchEngine`); onnxruntime computes logits and our own
search does the rest (`LogitsEngine`).
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from glassformer.config import DecodeConfig
from glassformer.decode.request import Hypothesis, Request, SpecialTokens
from glassformer.decode.slots import Job

EXTERNAL_ENGINES = {
    "int8": "glassformer.formats.ctranslate2.engine",
    "ctranslate2": "glassformer.formats.ctranslate2.engine",
    "onnx": "glassformer.formats.onnx.engine",
}
"""By the engine's name, the module that provides it."""
RequestJob = tuple[Request, Job]
"""A request, and what was settled of it: limits, stop strings."""


@runtime_checkable
class SearchEngine(Protocol):
    """A program with a search of its own."""

    def answer(
        self, model: Any, batch: Sequence[RequestJob], config: DecodeConfig, special: SpecialTokens, *, trace: bool
    ) -> list[list[Hypothesis]]:
        """The hypotheses for each request, best first; a ConfigError says what the program cannot do."""
        ...


@runtime_checkable
class LogitsEngine(Protocol):
    """A program that computes a model's logits."""

    def net(self, model: Any, batch: Sequence[RequestJob]) -> Any:
        """The model in its hands, with room for these requests and the calls `start` and `step` of a model."""
        ...


Engine = SearchEngine | LogitsEngine


def external_engine(name: str) -> Engine | None:
    """The program behind an engine's name; None where the engine is our own."""
    return importlib.import_module(EXTERNAL_ENGINES[name]) if name in EXTERNAL_ENGINES else None  # type: ignore[return-value]
