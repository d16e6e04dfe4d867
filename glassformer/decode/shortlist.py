"""A lexical shortlist: the target tokens that a sentence's translation is likely made of (Mi et al. 2016, "Vocabulary
manipulation for neural machine translation"): the most frequent of all, and the likeliest translations of its source tokens.

A sentence's probabilities are then among its shortlist, which no neighbour in the batch changes, and a CPU multiplies only
with the rows of the output layer that some sentence of the batch wants. The table is kept with a run, in shortlist.safetensors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from torch import Tensor

from glassformer.config import DecodeConfig, ModelConfig
from glassformer.decode.request import SpecialTokens, TokenConstraints
from glassformer.errors import ConfigError, UserError

NAME = "shortlist.safetensors"


@dataclass(frozen=True, eq=False)
class Shortlist:
    """Target tokens that any sentence may have, and those that a source token adds; -1 where there are fewer."""

    frequent: Int[np.ndarray, "F"]
    likely: Int[np.ndarray, "S K"]

    def tokens(
        self, source: Sequence[int], special: SpecialTokens, constraints: TokenConstraints
    ) -> Int[np.ndarray, "own"]:
        """The target tokens of a sentence, in order: its shortlist, what ends a text, and whatever is asked for."""
        terms = [token for term in constraints.terms for spelling in term for token in spelling]
        asked = [*special.ends, *constraints.prefix, *terms]
        own = np.concatenate([self.frequent, self.likely[list(source)].ravel(), np.array(asked, dtype=np.int64)])
        own = np.unique(own)
        return own[own >= 0]

    def save(self, path: Path) -> None:
        """Leave the table in a file."""
        from safetensors.numpy import save

        from glassformer.files.durable import write_atomically

        write_atomically(path, save({"frequent": self.frequent, "likely": self.likely}))

    @staticmethod
    def load(path: Path, source_size: int, target_size: int) -> Shortlist:
        """The table of a file, which must be one for vocabularies of these sizes."""
        from safetensors import SafetensorError
        from safetensors.numpy import load_file

        try:
            found = load_file(path)
            table = Shortlist(found["frequent"].astype(np.int64), found["likely"].astype(np.int64))
            fits = table.frequent.ndim == 1 and table.likely.ndim == 2 and len(table.likely) == source_size
            ids = np.concatenate([table.frequent, table.likely.ravel()])
            fits = fits and bool(((ids >= -1) & (ids < target_size)).all())
        except (OSError, SafetensorError, KeyError, ValueError):
            fits = False
        if not fits:
            raise UserError("{path} is no shortlist of this run's vocabulary; move it away to do without", path=path)
        return table


def kept_shortlist(folder: Path, config: ModelConfig) -> Shortlist | None:
    """The shortlist in a run's folder, if there is one."""
    if config.family != "transformer" or not (folder / NAME).exists():
        return None
    return Shortlist.load(folder / NAME, config.source_vocab_size or config.vocab_size, config.vocab_size)


def shortlist_of(model: Any, config: DecodeConfig) -> Shortlist | None:
    """The shortlist that a model decodes with under these settings."""
    own: Shortlist | None = getattr(model, "shortlist", None)
    if config.shortlist and own is None:
        raise ConfigError(
            "decode.shortlist=true, and this run has no shortlist; `glassformer improve RUN --only distill` makes one"
        )
    wanted = config.shortlist if config.shortlist is not None else next(model.parameters()).device.type == "cpu"
    return own if wanted else None


class SlicedOutput:
    """The output layer of a model, its rows for the tokens that some slot's shortlist has; all other logits are -inf."""

    def __init__(self, model: Any, outside: Bool[Tensor, "n V"]) -> None:
        self.tokens = (~outside.all(0)).nonzero().squeeze(1)
        self.weight = model.output_weight.detach()[self.tokens].t().contiguous()
        self.bias = None if model.output_bias is None else model.output_bias.detach()[self.tokens]
        self.vocab_size = outside.size(1)

    def __call__(self, x: Float[Tensor, "R T C"]) -> Float[Tensor, "R T V"]:
        """The logits."""
        sliced = x @ self.weight if self.bias is None else x @ self.weight + self.bias
        return sliced.new_full((*x.shape[:-1], self.vocab_size), -math.inf).index_copy_(-1, self.tokens, sliced)
