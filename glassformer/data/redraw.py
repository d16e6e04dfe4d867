"""Training pairs that are cut by BPE-dropout, or changed as people paste text, otherwise in every epoch (data.segmentations=0).

The first epoch's draws are the run's token files. Those of a later one are made while the epoch before it is learned from, out of
the text in the run's folder, and lie in files without names. They follow from the text and the epoch alone, so a run that goes
on after a kill, and each of several processes, draws the same."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import CancelledError
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from glassformer.config import Recipe
from glassformer.data.batches import examples_for
from glassformer.data.encoding import encode_pairs, open_files
from glassformer.data.examples import Examples
from glassformer.data.prepare import training_examples
from glassformer.data.report import DataReport
from glassformer.data.tokens import TokenFile, TokenSpool
from glassformer.errors import UserError
from glassformer.text.tokenizers import Tokenizers


@dataclass(frozen=True)
class EpochDraws:
    """The examples of an epoch after the first. `folder`: the run's."""

    recipe: Recipe
    folder: Path

    def __call__(self, epoch: int, fits: Callable[[Examples], np.ndarray], stopped: Callable[[], bool]) -> Examples:
        """An example that does not fit this time, or did not the first time, is what it was then."""
        config, data = self.recipe.data, self.folder / "data"
        first, report = open_files(config, "train", data), DataReport.read(data)
        wrong = UserError("{folder} is damaged: its text and its token files are not of the same examples", data)
        if report is None:
            raise wrong
        spools = {name: TokenSpool(data, file.vocab_size) for name, file in first.items()}
        pairs, begin = training_examples(config, data, report), 0
        for drawn in encode_pairs(config, pairs, Tokenizers.load(self.folder), True, epoch):
            if stopped():
                raise CancelledError
            count = len(drawn["source"][1])
            if begin + count > len(first["source"]):
                raise wrong
            now = {
                name: TokenFile(tokens, np.r_[0, np.cumsum(lengths)], None) for name, (tokens, lengths) in drawn.items()
            }
            then = {name: part_of(file, begin, begin + count) for name, file in first.items()}
            stays = ~(fits(self.examples(now)) & fits(self.examples(then)))
            for name, spool in spools.items():
                spool.add(*chosen(now[name], then[name], stays))
            begin += count
        if begin != len(first["source"]):
            raise wrong
        return self.examples({name: spool.read() for name, spool in spools.items()})

    def examples(self, files: dict[str, TokenFile]) -> Examples:
        """Two sides as the model's examples."""
        return examples_for(self.recipe.data, self.recipe.model.family, self.recipe.model.head, files)


def part_of(file: TokenFile, begin: int, end: int) -> TokenFile:
    """The sequences from one number to another."""
    offsets = file.offsets[begin : end + 1]
    return TokenFile(file.tokens[offsets[0] : offsets[-1]], offsets - offsets[0], file.vocab_size)


def chosen(one: TokenFile, other: TokenFile, takes_other: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of each pair of sequences one, all end to end, and how long each is."""
    both = TokenFile(np.r_[one.tokens, other.tokens], np.r_[one.offsets, other.offsets[1:] + one.offsets[-1]], None)
    which = np.arange(len(one)) + np.where(takes_other, len(one), 0)
    return both.take(which), both.lengths[which]
