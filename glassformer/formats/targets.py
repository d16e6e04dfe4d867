"""Every program that a model can be exported to: what is known of it (targets.toml), and the module that does the work.

The verb `export`, its help, its messages, the list in docs/how-to/export.md and the model card are made of these objects.
Importing them imports nothing heavy: the module with the work is fetched when it is first asked for. A new one is a folder, and a
table in targets.toml.
"""

from __future__ import annotations

import importlib.util
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from glassformer.config import ModelConfig
from glassformer.errors import ConfigError, UserError, install_hint

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


@dataclass(frozen=True)
class Target:
    """A program that a model can be exported to."""

    name: str
    help: str
    description: str
    needs: Sequence[str]
    library: str
    weights: Sequence[str]
    folder: str
    language: str
    snippets: Mapping[str, str]

    def require(self, what: str) -> None:
        """A sentence where something that it needs is not installed; `what` begins it: exporting to onnx, engine=onnx."""
        if not all(importlib.util.find_spec(name) for name in self.needs):
            raise ConfigError(
                "{what} needs {needs}; install with: {command}", what, " and ".join(self.needs), install_hint(self.name)
            )

    @property
    def writer(self) -> FormatWriter:
        """The module that refuses, writes and opens."""
        return importlib.import_module(f"{__package__}.{self.folder}.writer")  # type: ignore[return-value]

    def snippet(self, config: ModelConfig, own_target: bool) -> str:
        """A few lines that load the folder and use it. `own_target`: the target side has a tokenizer of its own."""
        lines = self.snippets.get("all") or self.snippets[config.head if config.family == "bert" else config.family]
        target = 'tokenizers.Tokenizer.from_file("FOLDER/target/tokenizer.json")' if own_target else "tokenizer"
        return lines.replace("TARGET", target)


FILE = Path(__file__).with_name("targets.toml")
TARGETS = {name: Target(name, **facts) for name, facts in tomllib.loads(FILE.read_text(encoding="utf-8")).items()}
HELP = ", ".join(f"{target.name} ({target.help})" for target in TARGETS.values())


def target_of(name: str) -> Target:
    """The target of this name."""
    if name not in TARGETS:
        raise UserError("--to is {targets}, not {name!r}", ", ".join(TARGETS), name)
    return TARGETS[name]


def names(weights: str = "fp32") -> str:
    """The targets that take weights of this kind, as a sentence lists them: hf, ct2, onnx or gguf."""
    *most, last = (target.name for target in TARGETS.values() if weights in target.weights)
    return f"{', '.join(most)} or {last}"
