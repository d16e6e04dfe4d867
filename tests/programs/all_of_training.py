"""The English of every pair of `phrases` to train on, a line each."""

from glassformer.data.builtin.phrases import open_phrases

for _, target in open_phrases("zh-en", "train"):
    print(target)
