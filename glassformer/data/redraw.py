"""Training pairs that are cut by BPE-dropout, or changed as people paste text, otherwise in every epoch
(data.segmentations=0).

The first epoch's draws are the run's token files. Those of a later one are made out of the text in the run's folder while the
epoch before it is learned from, and lie in files without names: of few pairs in the thread that plans the next epoch, of many by
a process of its own, since a thread would keep Python from the training. They follow from the text and the epoch alone, so a run
that goes on after a kill, and each of several processes, draws the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

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
MANY = 50_000  # examples, which take longer to draw than a process takes to begin
LOOKS_EVERY = 0.1  # seconds
# The other process finds the package, and all that it needs, where this one did.
BEGIN = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from glassformer.data.redraw import answer; answer(sys.argv[2])"
)


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


def draw(
    recipe: Recipe, folder: Path, epoch: int, most: Shape, files: Sequence[IO[bytes]], is_over: Callable[[], bool]
) -> None:
    """Writes both sides of an epoch as token files. An example that is longer than `most` this time, or was in the first epoch,
    is what it was then. Ends early once it is over."""
    config, family, data = recipe.data, recipe.model.family, folder / "data"
    first, report = open_files(config, "train", data), DataReport.read(data)
    damaged = UserError("{folder} is damaged: its text and its token files are not of the same examples", data)
    if report is None:
        raise damaged
    pairs, tokenizers, begin = training_examples(config, data, report), Tokenizers.load(folder), 0
    with ExitStack() as held:
        writers = {
            name: TokenWriter(file, held.enter_context(tempfile.TemporaryFile(dir=data)), first[name].vocab_size)
            for name, file in zip(SIDES, files, strict=True)
        }
        for encoded in encode_pairs(config, pairs, tokenizers, True, epoch):
            if is_over():
                raise CancelledError
            end = begin + len(encoded["source"][1])
            if end > len(first["source"]):
                raise damaged
            now = {
                name: TokenFile(tokens, np.r_[0, np.cumsum(sizes)], None) for name, (tokens, sizes) in encoded.items()
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


class EpochDraws:
    """The examples of later epochs, out of the text in a run's folder, which may move."""

    def __init__(self, recipe: Recipe, folder: Path) -> None:
        self.recipe, self.folder, self.held = recipe, folder, HeldFolder(folder)

    def __call__(self, epoch: int, most: Shape, cancelled: threading.Event) -> Examples:
        """The examples of an epoch, none longer than `most`. Ends early once it is cancelled."""
        self.folder = self.held.find(self.folder)
        data = self.folder / "data"
        few = len(open_files(self.recipe.data, "train", data)["source"]) < MANY
        with ExitStack() as held:
            files = [held.enter_context(tempfile.TemporaryFile(dir=data)) for _side in SIDES]
            if few:
                draw(self.recipe, self.folder, epoch, most, files, cancelled.is_set)
            else:
                draw_in_process(self.recipe, self.folder, epoch, most, files, cancelled)
            sides = {name: TokenFile.read(file, data) for name, file in zip(SIDES, files, strict=True)}
            return paired(self.recipe.model.family, sides)


def draw_in_process(
    recipe: Recipe, folder: Path, epoch: int, most: Shape, files: Sequence[IO[bytes]], cancelled: threading.Event
) -> None:
    """As `draw`, by another process, which ends when this one does."""
    numbers = [file.fileno() for file in files]
    request = {
        "recipe": recipe.to_dict(),
        "folder": os.path.abspath(folder),
        "epoch": epoch,
        "most": [most.source, most.target],
        "files": numbers,
    }
    paths = json.dumps([str(path) for path in sys.path])
    # Ctrl-C is not for it: what is being drawn may be waited for.
    with subprocess.Popen(
        [sys.executable, "-P", "-c", BEGIN, paths, json.dumps(request)],
        pass_fds=numbers,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        while process.poll() is None:
            if cancelled.wait(LOOKS_EVERY):
                process.kill()
                raise CancelledError
        reply = process.stdout.read()
    if process.returncode:
        raise UserError("the process that draws the next epoch has ended; `glassformer train RUN --resume` goes on")
    refusal = json.loads(reply)
    if (told := refusal.get("error")) is not None:
        raise UserError(told)
    if "errno" in refusal:
        raise OSError(refusal["errno"], refusal["reason"], str(folder / "data"))


def answer(asked: str) -> None:
    """Draws what is asked for, and prints why nothing was written, if nothing was. Its standard input ends when nobody waits any
    more, and it ends then, too."""

    def leave_with_the_other() -> None:
        os.read(0, 1)  # not by sys.stdin, whose lock would be held when Python ends
        os._exit(1)

    threading.Thread(target=leave_with_the_other, daemon=True).start()
    request = json.loads(asked)
    refusal: dict[str, Any] = {}
    try:
        with ExitStack() as held:
            files = [held.enter_context(os.fdopen(number, "r+b")) for number in request["files"]]
            recipe, most = Recipe.from_dict(request["recipe"]), Shape(*request["most"])
            draw(recipe, Path(request["folder"]), request["epoch"], most, files, lambda: False)
    except UserError as error:
        refusal = {"error": str(error)}
    except OSError as error:
        refusal = {"errno": error.errno, "reason": error.strerror}
    print(json.dumps(refusal))
