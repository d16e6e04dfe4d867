"""Hugging Face's transformers: its folders, read and written."""

from __future__ import annotations

from glassformer.formats.target import Target

HUGGINGFACE = Target(
    name="hf",
    help="a folder for transformers",
    about="a folder that transformers loads with AutoModel… and AutoTokenizer",
    needs=("transformers",),
    library="transformers",
    weights=("fp32", "fp16"),
    module=f"{__name__}.writer",
)
