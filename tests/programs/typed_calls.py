"""What a type checker knows of the public API: read by mypy and never run (tests/api/test_typed.py)."""

from typing import assert_type

import torch

import glassformer
from glassformer.api import Classification, Generation, Translation

model = glassformer.load("runs/dates")
print(model.translate("3 mai 1979").upper(), model.generate("def ", seed=1), model.embed("a").shape)

translator = glassformer.load("runs/dates", task="translate")
assert_type(translator, glassformer.Translator)
assert_type(translator.translate("3 mai 1979", n_best=3), Translation)
assert_type(translator.translate(["3 mai 1979"], beam=2), list[Translation])
assert_type(glassformer.load("runs/x", task="generate").generate("def "), Generation)
assert_type(glassformer.load("runs/x", task="classify").classify(["a"]), list[Classification])
assert_type(glassformer.load("runs/x", task="tag", device="cpu").tag("a b").labels, list[str])
assert_type(glassformer.load("runs/x", task="fill").fill("___", top=2).masks[0][0].probability, float)

logits, cache = translator.run_with_cache("3 mai 1979")
assert_type(logits, torch.Tensor)
assert_type(cache.tokens, list[str])
assert_type(translator.run_with_cache(["a", "b"])[1].tokens, list[list[str]])
assert_type(cache["decoder.1.cross.weights"], torch.Tensor)

trained = glassformer.train("dates", steps=2)
print(trained.translate("a"), glassformer.evaluate(trained, split="test"))
