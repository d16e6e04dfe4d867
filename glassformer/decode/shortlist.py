"""A lexical shortlist: the target tokens that a sentence's translation is likely made of (Mi et al. 2016, "Vocabulary
manipulation for neural machine translation"): the most frequent of all, and the likeliest translations of its source tokens.

CTranslate2 then multiplies only with the rows of the output layer that some sentence of the batch wants (its vmap.txt;
formats/ctranslate2), and probabilities are among those. Our own search does without: it gained less than a tenth. The table is
kept with a run, in shortlist.safetensors.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Int

from glassformer.config import ModelConfig
from glassformer.errors import UserError

NAME = "shortlist.safetensors"


@dataclass(frozen=True, eq=False)
class Shortlist:
    """Target tokens that any sentence may have, and those that a source token adds; -1 where there are fewer."""

    frequent: Int[np.ndarray, "F"]
    likely: Int[np.ndarray, "S K"]

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
