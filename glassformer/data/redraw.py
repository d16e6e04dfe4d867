"""Training pairs that are cut by BPE-dropout, or changed as people paste text, otherwise in every epoch
(data.segmentations=0).

The first epoch's draws are the run's token files. Those of a later one are made out of the text in the run's folder, in the
thread that plans the next epoch while this one is learned from, and lie in files without names. They follow from the text and
the epoch alone, so a run that goes on after a kill, and each of several processes, draws the same."""

from __future__ import annotations

import tempfile
import threading
from concurrent.futures import CancelledError
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from glassformer.config import Recipe
from glassformer.data.encoding import encode_pairs, open_files
from glassformer.data.examples import Examples, paired
from glassformer.data.packing import Shape
from glassformer.data.prepare import training_examples
from glassformer.data.report import DataReport
from glassformer.data.tokens import TokenFile, TokenWriter
from glassformer.errors import UserError
from glassformer.files.owned import HeldFolder
from glassformer.text.tokenizers import Tokenizers

SIDES = ("source", "target")


def fits(examples: Examples, most: Shape) -> np.ndarray:
    """Whether each of some examples is short enough."""
    return (examples.source_lengths <= most.source) & (examples.row_lengths <= most.target)


def part_of(file: TokenFile, begin: int, end: int) -> TokenFile:
    """The sequences from one number to another."""
    offsets = file.offsets[begin : end + 1]
    return TokenFile(file.tokens[offsets[0] : offsets[-1]], offsets - offsets[0], file.vocab_size)


def choose(now: TokenFile, then: TokenFile, stays: np.ndarray) -> TokenFile:
    """The sequences of now, or those of then where they stay."""
    both = TokenFile(np.r_[now.tokens, then.tokens], np.r_[now.offsets, then.offsets[1:] + now.offsets[-1]], None)
    which = np.arange(len(now)) + np.where(stays, len(now), 0)
    return TokenFile(both.take(which), np.r_[0, np.cumsum(both.lengths[which])], None)


class EpochDraws:
    """The examples of later epochs, out of the text in a run's folder, which may move."""

    def __init__(self, recipe: Recipe, folder: Path) -> None:
        self.recipe, self.folder, self.held = recipe, folder, HeldFolder(folder)

    def __call__(self, epoch: int, most: Shape, cancelled: threading.Event) -> Examples:
        """The examples of an epoch. One that is longer than `most` this time, or was in the first epoch, is what it was then.
        Ends early once it is cancelled."""
        self.folder = self.held.find(self.folder)
        config, family, data = self.recipe.data, self.recipe.model.family, self.folder / "data"
        first, report = open_files(config, "train", data), DataReport.read(data)
        damaged = UserError("{folder} is damaged: its text and its token files are not of the same examples", data)
        if report is None:
            raise damaged
        pairs, tokenizers, begin = training_examples(config, data, report), Tokenizers.load(self.folder), 0
        with ExitStack() as held:
            files = {
                name: [held.enter_context(tempfile.TemporaryFile(dir=data)) for _file in range(2)] for name in SIDES
            }
            writers = {name: TokenWriter(files[name][0], files[name][1], first[name].vocab_size) for name in SIDES}
            for encoded in encode_pairs(config, pairs, tokenizers, True, epoch):
                if cancelled.is_set():
                    raise CancelledError
                end = begin + len(encoded["source"][1])
                if end > len(first["source"]):
                    raise damaged
                now = {
                    name: TokenFile(tokens, np.r_[0, np.cumsum(sizes)], None)
                    for name, (tokens, sizes) in encoded.items()
                }
                then = {name: part_of(first[name], begin, end) for name in SIDES}
                stays = ~(fits(paired(family, then), most) & fits(paired(family, now), most))
                for name in SIDES:
                    chosen = choose(now[name], then[name], stays)
                    writers[name].add(chosen.tokens, chosen.lengths)
                begin = end
            if begin != len(first["source"]):
                raise damaged
            for writer in writers.values():
                writer.finish()
            return paired(family, {name: TokenFile.read(files[name][0], data) for name in SIDES})
