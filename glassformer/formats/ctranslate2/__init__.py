"""CTranslate2: a model as its specification says it, and the engines `int8` and `ctranslate2`."""

from __future__ import annotations

from glassformer.formats.target import Target

CTRANSLATE2 = Target(
    name="ct2",
    help="CTranslate2",
    about="a folder for CTranslate2: fast on CPUs",
    needs=("ctranslate2",),
    library="ctranslate2",
    weights=("fp32", "fp16", "int8"),
    module=f"{__name__}.writer",
)
