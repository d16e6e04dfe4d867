"""ONNX graphs, for onnxruntime and whatever else reads them, and the engine `onnx`."""
