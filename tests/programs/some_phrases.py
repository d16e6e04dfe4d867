"""Some pairs of `phrases`, as a list: the same in every process."""

from glassformer.data.builtin.phrases import open_phrases

print([*open_phrases("zh-en", "test", 40), *open_phrases("zh-en", "train", 40)])
