"""ONNX graphs, for onnxruntime and whatever else reads them, and the engine `onnx`."""

from __future__ import annotations

from glassformer.formats.target import Target

ONNX = Target(
    name="onnx",
    help="onnxruntime",
    about="graphs for onnxruntime",
    needs=("onnx", "onnxruntime"),
    library="onnx",
    weights=("fp32", "fp16", "int8"),
    module=f"{__name__}.writer",
)
