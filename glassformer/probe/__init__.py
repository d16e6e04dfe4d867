"""See or change any activation by its name; cut heads and MLPs; carry an activation from one input into another.

    with record(model, "decoder.*.cross.weights") as seen: ...      what it looks at
    with replace(model, "encoder.1.mlp.out", lambda x: 0 * x): ...  what if it said something else
    with ablate(model, ["decoder.1.cross:3", "encoder.0.mlp"]): ... what if it said nothing
    effects = effect_map(model, inputs, others, score)              which layer and position carries the answer
    smaller = pruned(model, ["decoder.1.cross:3"])                  the same as ablated, with the weights gone

`model` is a Transformer, GPT or BERT, or what `glassformer.load(run)` returns. A head is named by its attention and its
number, "decoder.1.cross:3" or ("decoder.1.cross", 3); an attention's name alone stands for all its heads, "decoder.1.mlp"
for an MLP. Numbers are those of the model as it was trained: pruning renames nobody.

Cutting a head puts zeros where it writes, so that its slice of the output projection adds nothing; the projection's bias
belongs to no head and stays. Zeros are a signal the rest of the model has never seen; the mean of what the head usually
writes is a gentler cut (`mode="mean"`), and the difference between the two says how much of a head's importance is a mere
constant. A patch is the third way: not silence but what the part would have said of another input (Vig et al. 2020, Meng
et al. 2022).

This file knows nothing of text, of scores or of files.
"""

from glassformer.probe.interventions import Effects, ablate, effect_map, mean_outputs, patch, pruned
from glassformer.probe.seeing import (
    ByName,
    Component,
    attentions,
    find_parts,
    heads,
    mlps,
    net,
    record,
    replace,
    run_with_cache,
    tap_names,
    tap_shapes,
)

__all__ = [
    "ByName",
    "Component",
    "Effects",
    "ablate",
    "attentions",
    "effect_map",
    "find_parts",
    "heads",
    "mean_outputs",
    "mlps",
    "net",
    "patch",
    "pruned",
    "record",
    "replace",
    "run_with_cache",
    "tap_names",
    "tap_shapes",
]
