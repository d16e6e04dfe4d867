"""What a type checker refuses: every line below the model is a mistake (tests/api/test_typed.py)."""

import glassformer

model = glassformer.load("runs/dates", task="translate")
glassformer.load("runs/dates", task="translat")
glassformer.load("runs/dates", setp=3)
model.translate(3)
model.translate(["a"]).upper()
