"""An export target: what is known of a program that a model can be exported to, and the module that does the work.

The verb `export`, its help, its messages, the list in docs/how-to/export.md and the model card are made of these objects
(targets.py). Importing one imports nothing heavy: the module with the work is fetched when it is first asked for.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from glassformer.config import ModelConfig
from glassformer.errors import ConfigError, install_hint

if TYPE_CHECKING:
    from glassformer.formats.runtime import Runtime
    from glassformer.tasks import TextModel


class FormatWriter(Protocol):
    """What the module of a target provides."""

    def refuse(self, model: TextModel) -> None:
        """UserError where the program cannot express the model, with the nearest that it can."""
        ...

    def write(self, model: TextModel, folder: Path, weights: str, name: str) -> list[str]:
        """Leaves the model in an empty folder, with weights as fp32, fp16 or int8; gives notes for the reader."""
        ...

    def open_folder(self, model: TextModel, folder: Path) -> Runtime:
        """The folder in the program's hands, for the parity report."""
        ...

    def snippet(self, config: ModelConfig, own_target: bool) -> str:
        """A few lines that load the folder and use it. `own_target`: the target side has a tokenizer of its own."""
        ...


@dataclass(frozen=True)
class Target:
    """A program that a model can be exported to."""

    name: str  # behind --to; also the extra of pyproject.toml that installs what it needs
    help: str  # what --help says of it
    about: str  # what docs/how-to/export.md says of it
    needs: tuple[str, ...]  # modules without which it cannot be written and proven
    library: str  # library_name of the model card
    weights: tuple[str, ...]  # the numbers that weights can be written in
    module: str  # that provides a FormatWriter
    language: str = "python"  # of the snippet

    def require(self, what: str) -> None:
        """A sentence where something that it needs is not installed; `what` begins it: exporting to onnx, engine=onnx."""
        if not all(importlib.util.find_spec(name) for name in self.needs):
            raise ConfigError(
                "{what} needs {needs}; install with: {command}", what, " and ".join(self.needs), install_hint(self.name)
            )

    @property
    def writer(self) -> FormatWriter:
        """The module that refuses, writes and opens."""
        return importlib.import_module(self.module)  # type: ignore[return-value]
