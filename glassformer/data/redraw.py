"""Training pairs that are cut by BPE-dropout, or changed as people paste text, otherwise in every epoch (data.segmentations=0).

The first epoch's draws are the run's token files. Those of a later one are made while the epoch before it is learned from, out of
the text in the run's folder, by a process of its own: in a thread they would keep Python from the training. They come back in
files without names. They follow from the text and the epoch alone, so a run that goes on after a kill, and each of several
processes, draws the same.

The two processes talk through a pipe in JSON: an epoch is asked for together with the files to write, and when they are token
files an answer comes back, with why they are not, if so. The one that draws ends as soon as the other is gone."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle, send_handle
from pathlib import Path
from typing import IO, Any

import numpy as np

from glassformer.config import Recipe
from glassformer.data.encoding import encode_pairs, open_files
from glassformer.data.examples import Examples, paired
from glassformer.data.packing import Packing, Shape, pack
from glassformer.data.prepare import training_examples
from glassformer.data.report import DataReport
from glassformer.data.tokens import TokenFile, TokenWriter
from glassformer.errors import UserError
from glassformer.files import structured
from glassformer.files.owned import HeldFolder
from glassformer.text.tokenizers import Tokenizers

SIDES = ("source", "target")
PLAN = ("kind_of", "kinds", "row_starts", "shape_of")
PATIENCE = 0.1  # seconds between two calls of `meanwhile`
# The other process finds the package, and all that it needs, where this one did.
BEGIN = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from glassformer.data.redraw import answer_on; answer_on(int(sys.argv[2]))"
)

Requested = tuple[int, Shape, tuple[Shape, ...]]
"""An epoch, how many tokens an example of it may have, and the shapes of the rows to pack it into."""


@dataclass(frozen=True)
class DrawRequest:
    """Which epoch is to be drawn. `folder`: the run's. `most`: tokens an example may have. `shapes`: of the rows to pack into."""

    recipe: dict[str, Any]
    folder: str
    epoch: int
    most: Shape
    shapes: tuple[Shape, ...]


def fits(examples: Examples, most: Shape) -> np.ndarray:
    """Whether each of some examples is short enough."""
    return (examples.source_lengths <= most.source) & (examples.row_lengths <= most.target)


def draw(request: DrawRequest, files: Sequence[IO[bytes]]) -> None:
    """Writes both sides, and the plan of rows if there are any, as token files. An example that does not fit this time, or did
    not in the first epoch, is what it was then."""
    recipe, folder = Recipe.from_dict(request.recipe), Path(request.folder)
    config, family, data = recipe.data, recipe.model.family, folder / "data"
    first, report = open_files(config, "train", data), DataReport.read(data)
    damaged = UserError("{folder} is damaged: its text and its token files are not of the same examples", data)
    if report is None:
        raise damaged
    lengths: dict[str, list[np.ndarray]] = {"source": [], "row": []}
    begin = 0
    pairs, tokenizers = training_examples(config, data, report), Tokenizers.load(folder)
    with ExitStack() as held:
        source, target, plan = (
            TokenWriter(file, held.enter_context(tempfile.TemporaryFile(dir=data)), vocab_size)
            for file, vocab_size in zip(files, (*(first[name].vocab_size for name in SIDES), None), strict=True)
        )
        for encoded in encode_pairs(config, pairs, tokenizers, True, request.epoch):
            end = begin + len(encoded["source"][1])
            if end > len(first["source"]):
                raise damaged
            now = {
                name: TokenFile(tokens, np.r_[0, np.cumsum(sizes)], None) for name, (tokens, sizes) in encoded.items()
            }
            then = {name: part_of(file, begin, end) for name, file in first.items()}
            learned = fits(paired(family, then), request.most)
            stays = ~(learned & fits(paired(family, now), request.most))
            chosen = {name: choose(now[name], then[name], stays) for name in SIDES}
            source.add(chosen["source"].tokens, chosen["source"].lengths)
            target.add(chosen["target"].tokens, chosen["target"].lengths)
            examples = paired(family, chosen)
            lengths["source"].append(examples.source_lengths[learned])
            lengths["row"].append(examples.row_lengths[learned])
            begin = end
        if begin != len(first["source"]):
            raise damaged
        if request.shapes:
            packing = pack(np.concatenate(lengths["source"]), np.concatenate(lengths["row"]), request.shapes)
            for name in PLAN:
                numbers = getattr(packing, name)
                plan.add(numbers, np.array([len(numbers)]))
        for writer in (source, target, plan):
            writer.finish()


def part_of(file: TokenFile, begin: int, end: int) -> TokenFile:
    """The sequences from one number to another."""
    offsets = file.offsets[begin : end + 1]
    return TokenFile(file.tokens[offsets[0] : offsets[-1]], offsets - offsets[0], file.vocab_size)


def choose(now: TokenFile, then: TokenFile, stays: np.ndarray) -> TokenFile:
    """The sequences of now, or those of then where they stay."""
    if not stays.any():
        return now
    both = TokenFile(np.r_[now.tokens, then.tokens], np.r_[now.offsets, then.offsets[1:] + now.offsets[-1]], None)
    which = np.arange(len(now)) + np.where(stays, len(now), 0)
    return TokenFile(both.take(which), np.r_[0, np.cumsum(both.lengths[which])], None)


class EpochDraws:
    """The examples of later epochs, drawn by a process that begins with the first of them. `folder`: the run's, which may move.
    `meanwhile` is called again and again while an epoch is waited for; what it raises ends the waiting."""

    def __init__(self, recipe: Recipe, folder: Path, meanwhile: Callable[[], None] = lambda: None) -> None:
        self.recipe, self.folder, self.meanwhile = recipe, folder, meanwhile
        self.line: Connection[Any, Any] | None = None
        self.process: subprocess.Popen[bytes] | None = None
        self.requested: Requested | None = None
        self.files: list[IO[bytes]] = []
        self.held = HeldFolder(folder)

    def begin(self, epoch: int, most: Shape, shapes: Sequence[Shape]) -> bool:
        """Begins to draw an epoch, unless that is done; whether asking for it now would not have to wait."""
        if self.requested != (epoch, most, tuple(shapes)):
            self.ask((epoch, most, tuple(shapes)))
        assert self.line is not None
        return self.line.poll()

    def __call__(self, epoch: int, most: Shape, shapes: Sequence[Shape]) -> tuple[Examples, Packing | None]:
        """The examples of an epoch, none longer than `most` allows, and how they fill rows of these shapes, if there are any."""
        requested = epoch, most, tuple(shapes)
        for last in (False, True):
            if self.requested != requested:
                self.ask(requested)
            reply = self.reply()
            refused = reply is None or "error" in reply or "errno" in reply
            moved = self.held.find(self.folder) != self.folder
            if not refused or last or not (reply is None or moved):
                break
            self.close()  # it was killed, for its memory perhaps, or the run was moved while it read: once more
        if reply is None:
            raise UserError("the process that draws the next epoch has ended; `glassformer train RUN --resume` goes on")
        return self.read(reply)

    def read(self, reply: dict[str, Any]) -> tuple[Examples, Packing | None]:
        """What was written, or the error that kept it from being written."""
        assert self.requested is not None
        (_epoch, _most, shapes), files, data = self.requested, self.files, self.folder / "data"
        self.requested, self.files = None, []
        with ExitStack() as held:
            for file in files:
                held.enter_context(file)
            if (refusal := reply.get("error")) is not None:
                raise UserError(refusal)
            if "errno" in reply:
                raise OSError(reply["errno"], reply["reason"], str(data))
            if "trace" in reply:
                raise RuntimeError(reply["trace"])
            source, target, plan = (TokenFile.read(file, data) for file in files)
            parts = {name: plan[number].astype(np.int64) for number, name in enumerate(PLAN[: len(plan)])}
            examples = paired(self.recipe.model.family, {"source": source, "target": target})
        return examples, Packing(**parts) if shapes else None

    def ask(self, requested: Requested) -> None:
        """Asks for an epoch. A process that is there no more, or is busy with another epoch, is started again."""
        if self.process is None or self.process.poll() is not None or self.requested is not None:
            self.close()
            self.start()
        assert self.line is not None
        self.folder = self.held.find(self.folder)
        request = DrawRequest(self.recipe.to_dict(), os.path.abspath(self.folder), *requested)
        self.files = [tempfile.TemporaryFile(dir=self.folder / "data") for _name in (*SIDES, "plan")]  # noqa: SIM115
        self.requested = requested
        with suppress(ConnectionError):  # whoever waits for the reply will see that nobody is there
            self.line.send_bytes(json.dumps(asdict(request)).encode())
            for file in self.files:
                send_handle(self.line, file.fileno(), None)

    def reply(self) -> dict[str, Any] | None:
        """What the other process answers; None where it has ended."""
        line, process = self.line, self.process
        assert line is not None
        while not line.poll(PATIENCE):
            self.meanwhile()
        try:
            return json.loads(line.recv_bytes())  # type: ignore[no-any-return]
        except (EOFError, ConnectionError):
            if self.process is not process:
                raise CancelledError from None  # closed, by another thread
            return None

    def start(self) -> None:
        """Starts the process. Ctrl-C is not for it."""
        self.line, other = Pipe()
        paths = json.dumps([str(path) for path in sys.path])
        with other:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-c", BEGIN, paths, str(other.fileno())],
                pass_fds=[other.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )

    def close(self) -> None:
        """Ends the process, if there is one, and forgets what was asked for."""
        process, files = self.process, self.files
        self.process = self.line = self.requested = None
        self.files = []
        if process is not None:
            process.kill()
            process.wait()
        for file in files:
            file.close()

    def __del__(self) -> None:
        with suppress(AttributeError):  # a folder that could not be opened
            self.close()


def answer_on(number: int) -> None:
    """Draws what is asked for on a connection until nobody asks any more. It ends by that alone: a signal to all processes of a
    training is to stop it, and what is being drawn may be waited for."""
    line: Connection[Any, Any] = Connection(number)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)

    def leave_with_the_other() -> None:
        waits = select.poll()
        waits.register(line, 0)  # no event but that the other end is closed
        waits.poll()
        os._exit(0)

    threading.Thread(target=leave_with_the_other, daemon=True).start()
    with suppress(EOFError, ConnectionError):
        while True:
            request = line.recv_bytes()
            handles = [recv_handle(line) for _name in (*SIDES, "plan")]
            line.send_bytes(json.dumps(answer(request, handles)).encode())


def answer(request: bytes, handles: Sequence[int]) -> dict[str, Any]:
    """Draws an epoch into open files; why nothing was written, if nothing was."""
    try:
        with ExitStack() as held:
            files = [held.enter_context(os.fdopen(handle, "r+b")) for handle in handles]
            draw(structured.convert(json.loads(request), DrawRequest, "what is asked for"), files)
    except UserError as error:
        return {"error": str(error)}
    except OSError as error:
        return {"errno": error.errno, "reason": error.strerror}
    except Exception:
        return {"trace": traceback.format_exc()}
    return {}
