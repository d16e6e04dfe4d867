"""After one line of imports, which is the argument: the verbs can be called, and the rooms of their names imported from."""

import inspect
import sys

exec(sys.argv[1])

import glassformer
from glassformer.evaluation.metrics import text_scores
from glassformer.train.trainer import Trainer

assert callable(text_scores) and inspect.isclass(Trainer)
for verb, argument in ((glassformer.train, "out"), (glassformer.evaluate, "split")):
    assert callable(verb) and argument in inspect.signature(verb).parameters
try:
    glassformer.train("dates", stepps=3)
except glassformer.errors.ConfigError:
    pass
else:
    raise AssertionError("a setting that is not there was taken")
