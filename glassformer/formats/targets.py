"""Every program that a model can be exported to: what is known of it, and the module that does the work.

The verb `export`, its help, its messages, the list in docs/how-to/export.md and the model card are made of these objects.
Importing them imports nothing heavy: the module with the work is fetched when it is first asked for. A new one is a folder, and a
Target in this table.
"""

from __future__ import annotations

import importlib.util
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

    def snippet(self, config: ModelConfig, own_target: bool) -> str:
        """A few lines that load the folder and use it. `own_target`: the target side has a tokenizer of its own."""
        ...


ALL_WEIGHTS = ("fp32", "fp16", "int8")


@dataclass(frozen=True)
class Target:
    """A program that a model can be exported to."""

    name: str  # behind --to; also the extra of pyproject.toml that installs what it needs
    help: str  # what --help says of it
    about: str  # what docs/how-to/export.md says of it
    needs: tuple[str, ...]  # modules without which it cannot be written and proven
    library: str  # library_name of the model card
    weights: tuple[str, ...]  # the numbers that weights can be written in
    folder: str  # beside this file, whose module `writer` is a FormatWriter
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
        return importlib.import_module(f"{__package__}.{self.folder}.writer")  # type: ignore[return-value]


TARGETS: dict[str, Target] = {
    "hf": Target(
        name="hf",
        help="a folder for transformers",
        about="a folder that transformers loads with AutoModel… and AutoTokenizer",
        needs=("transformers",),
        library="transformers",
        weights=("fp32", "fp16"),
        folder="huggingface",
    ),
    "ct2": Target(
        name="ct2",
        help="CTranslate2",
        about="a folder for CTranslate2: fast on CPUs",
        needs=("ctranslate2",),
        library="ctranslate2",
        weights=ALL_WEIGHTS,
        folder="ctranslate2",
    ),
    "onnx": Target(
        name="onnx",
        help="onnxruntime",
        about="graphs for onnxruntime",
        needs=("onnx", "onnxruntime"),
        library="onnx",
        weights=ALL_WEIGHTS,
        folder="onnx",
    ),
    "gguf": Target(
        name="gguf",
        help="llama.cpp; GPTs only",
        about="a file for llama.cpp (GPTs)",
        needs=("gguf",),
        library="gguf",
        weights=ALL_WEIGHTS,
        folder="gguf",
        language="sh",
    ),
}
HELP = ", ".join(f"{target.name} ({target.help})" for target in TARGETS.values())


def target_of(name: str) -> Target:
    """The target of this name."""
    if name not in TARGETS:
        raise UserError("--to is {targets}, not {name!r}", ", ".join(TARGETS), name)
    return TARGETS[name]


def names(weights: str = "fp32") -> str:
    """The targets that take weights of this kind, as a sentence lists them: hf, ct2, onnx or gguf."""
    found = [target.name for target in TARGETS.values() if weights in target.weights]
    return f"{', '.join(found[:-1])} or {found[-1]}"
