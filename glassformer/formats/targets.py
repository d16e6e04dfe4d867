"""Every program that a model can be exported to. A new one is a folder with its Target, and a name in this list."""

from __future__ import annotations

from glassformer.errors import UserError
from glassformer.formats.ctranslate2 import CTRANSLATE2
from glassformer.formats.gguf import GGUF
from glassformer.formats.huggingface import HUGGINGFACE
from glassformer.formats.onnx import ONNX
from glassformer.formats.target import Target

TARGETS: dict[str, Target] = {target.name: target for target in (HUGGINGFACE, CTRANSLATE2, ONNX, GGUF)}
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
