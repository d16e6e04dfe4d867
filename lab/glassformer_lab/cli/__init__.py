"""The verbs of the laboratory: found by `glassformer`, where this package is installed beside it."""
