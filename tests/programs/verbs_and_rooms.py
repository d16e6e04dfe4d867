"""After one line of imports, which is the argument: the verbs can be called, and the rooms that do their work imported from."""

import inspect
import sys

exec(sys.argv[1])

import glassformer
from glassformer.evaluation.metrics import text_scores
from glassformer.inspection.report import Look
from glassformer.training.trainer import Trainer

assert callable(text_scores) and inspect.isclass(Trainer) and inspect.isclass(Look)
for verb, argument in ((glassformer.train, "out"), (glassformer.evaluate, "split"), (glassformer.look, "text")):
    assert inspect.isfunction(verb) and argument in inspect.signature(verb).parameters
try:
    glassformer.train("dates", stepps=3)
except glassformer.errors.ConfigError:
    pass
else:
    raise AssertionError("a setting that is not there was taken")
