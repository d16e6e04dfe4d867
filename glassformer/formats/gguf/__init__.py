"""GGUF, the file of llama.cpp."""

from __future__ import annotations

from glassformer.formats.target import Target

GGUF = Target(
    name="gguf",
    help="llama.cpp; GPTs only",
    about="a file for llama.cpp (GPTs)",
    needs=("gguf",),
    library="gguf",
    weights=("fp32", "fp16", "int8"),
    module=f"{__name__}.writer",
    language="sh",
)
