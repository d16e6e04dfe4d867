"""Training pairs that are cut by BPE-dropout, or changed as people paste text, otherwise in every epoch (data.segmentations=0).

The first epoch's draws are the run's token files. Those of a later one are made while the epoch before it is learned from, out of
the text in the run's folder, by a process of its own: in a thread they would keep Python from the training. They come back in
files without names. They follow from the text and the epoch alone, so a run that goes on after a kill, and each of several
processes, draws the same.

The two processes talk through a socket, a line of JSON at a time: an epoch is asked for together with the files to write, and
what was written comes back in numbers, or why nothing was. The one that draws ends as soon as the other is gone."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from glassformer.config import Recipe
from glassformer.data.encoding import encode_pairs, open_files
from glassformer.data.examples import Examples, paired
from glassformer.data.packing import Packing, Shape, pack
from glassformer.data.prepare import training_examples
from glassformer.data.report import DataReport
from glassformer.data.tokens import TokenFile, TokenSpool
from glassformer.errors import UserError
from glassformer.files import structured
from glassformer.files.owned import HeldFolder
from glassformer.text.tokenizers import Tokenizers

SIDES = ("source", "target")
PLAN = ("kind_of", "kinds", "row_starts", "shape_of")
LONGEST = 1 << 16  # bytes that are read at once
PATIENCE = 0.1  # seconds between two calls of `meanwhile`
# The other process finds the package, and all that it needs, where this one did.
BEGIN = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from glassformer.data.redraw import answer_on; answer_on(int(sys.argv[2]))"
)

Wanted = tuple[int, Shape, tuple[Shape, ...]]
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


def draw(request: DrawRequest, files: Sequence[IO[bytes]]) -> dict[str, list[int]]:
    """Writes both sides and the plan of rows; sizes come back. An example that does not fit this time, or did not in the first
    epoch, is what it was then."""
    recipe, folder = Recipe.from_dict(request.recipe), Path(request.folder)
    config, family, data = recipe.data, recipe.model.family, folder / "data"
    first, report = open_files(config, "train", data), DataReport.read(data)
    wrong = UserError("{folder} is damaged: its text and its token files are not of the same examples", data)
    if report is None:
        raise wrong
    spools = {name: TokenSpool(out, first[name].vocab_size) for name, out in zip(SIDES, files, strict=False)}
    lengths: dict[str, list[np.ndarray]] = {"source": [], "row": []}
    begin = 0
    for drawn in encode_pairs(
        config, training_examples(config, data, report), Tokenizers.load(folder), True, request.epoch
    ):
        end = begin + len(drawn["source"][1])
        if end > len(first["source"]):
            raise wrong
        now = {name: TokenFile(tokens, np.r_[0, np.cumsum(sizes)], None) for name, (tokens, sizes) in drawn.items()}
        then = {name: part_of(file, begin, end) for name, file in first.items()}
        known = paired(family, then)
        learned = fits(known, request.most)
        stays = ~(learned & fits(paired(family, now), request.most))
        chosen = {name: instead(now[name], then[name], stays) for name in SIDES}
        for name, spool in spools.items():
            spool.add(chosen[name].tokens, chosen[name].lengths)
        examples = paired(family, chosen)
        lengths["source"].append(examples.source_lengths[learned])
        lengths["row"].append(examples.row_lengths[learned])
        begin = end
    if begin != len(first["source"]):
        raise wrong
    written = {name: [*spool.finish()] for name, spool in spools.items()}
    if request.shapes:
        packing = pack(np.concatenate(lengths["source"]), np.concatenate(lengths["row"]), request.shapes)
        parts = [np.asarray(getattr(packing, name), np.int64) for name in PLAN]
        files[-1].write(b"".join(part.tobytes() for part in parts))
        files[-1].flush()
        written["plan"] = [len(part) for part in parts]
    return written


def part_of(file: TokenFile, begin: int, end: int) -> TokenFile:
    """The sequences from one number to another."""
    offsets = file.offsets[begin : end + 1]
    return TokenFile(file.tokens[offsets[0] : offsets[-1]], offsets - offsets[0], file.vocab_size)


def instead(one: TokenFile, other: TokenFile, takes_other: np.ndarray) -> TokenFile:
    """Of each two sequences one."""
    if not takes_other.any():
        return one
    both = TokenFile(np.r_[one.tokens, other.tokens], np.r_[one.offsets, other.offsets[1:] + one.offsets[-1]], None)
    which = np.arange(len(one)) + np.where(takes_other, len(one), 0)
    return TokenFile(both.take(which), np.r_[0, np.cumsum(both.lengths[which])], None)


class EpochDraws:
    """The examples of later epochs, drawn by a process that begins with the first of them. `folder`: the run's, which may move.
    `meanwhile` is called again and again while an epoch is waited for; what it raises ends the waiting."""

    def __init__(self, recipe: Recipe, folder: Path, meanwhile: Callable[[], None] = lambda: None) -> None:
        self.recipe, self.folder, self.meanwhile = recipe, folder, meanwhile
        self.line: socket.socket | None = None
        self.process: subprocess.Popen[bytes] | None = None
        self.wanted: Wanted | None = None
        self.files: list[IO[bytes]] = []
        self.held = HeldFolder(folder)
        self.vocab_sizes = {n: f.vocab_size for n, f in open_files(recipe.data, "train", folder / "data").items()}

    def begin(self, epoch: int, most: Shape, shapes: Sequence[Shape]) -> bool:
        """Begins to draw an epoch, unless that is done; whether asking for it now would not have to wait."""
        if self.wanted != (epoch, most, tuple(shapes)):
            self.ask((epoch, most, tuple(shapes)))
        assert self.line is not None
        return readable(self.line, 0)

    def __call__(self, epoch: int, most: Shape, shapes: Sequence[Shape]) -> tuple[Examples, Packing | None]:
        """The examples of an epoch, none longer than `most` allows, and how they fill rows of these shapes, if there are any."""
        wanted = epoch, most, tuple(shapes)
        for last in (False, True):
            if self.wanted != wanted:
                self.ask(wanted)
            found = self.reply()
            refused = found is None or "error" in found or "errno" in found
            moved = self.held.find(self.folder) != self.folder
            if not refused or last or not (found is None or moved):
                break
            self.close()  # it was killed, for its memory perhaps, or the run was moved while it read: once more
        if found is None:
            raise UserError("the process that draws the next epoch has ended; `glassformer train RUN --resume` goes on")
        return self.read(found)

    def read(self, found: dict[str, Any]) -> tuple[Examples, Packing | None]:
        """What was written, or the error that kept it from being written."""
        assert self.wanted is not None
        (_epoch, _most, shapes), files = self.wanted, self.files
        self.wanted, self.files = None, []
        with ExitStack() as held:
            for file in files:
                held.enter_context(file)
            if (refusal := found.get("error")) is not None:
                raise UserError(refusal)
            if "errno" in found:
                raise OSError(found["errno"], found["reason"], str(self.folder / "data"))
            if "trace" in found:
                raise RuntimeError(found["trace"])
            sides = {}
            for name, file in zip(SIDES, files, strict=False):
                total, count = found[name]
                sides[name] = TokenSpool.read(file, total, count, self.vocab_sizes[name])
            packing = None
            if shapes:
                files[-1].seek(0)  # the other process wrote on from there
                parts = np.split(np.fromfile(files[-1], np.int64), np.cumsum(found["plan"])[:-1])
                packing = Packing(**dict(zip(PLAN, parts, strict=True)))
        return paired(self.recipe.model.family, sides), packing

    def ask(self, wanted: Wanted) -> None:
        """Asks for an epoch. A process that is there no more, or is busy with another epoch, is started again."""
        if self.process is None or self.process.poll() is not None or self.wanted is not None:
            self.close()
            self.start()
        assert self.line is not None
        self.folder = self.held.find(self.folder)
        request = DrawRequest(self.recipe.to_dict(), os.path.abspath(self.folder), *wanted)
        self.files = [tempfile.TemporaryFile(dir=self.folder / "data") for _name in (*SIDES, "plan")]  # noqa: SIM115
        self.wanted = wanted
        with suppress(ConnectionError):  # whoever waits for the reply will see that nobody is there
            text = json.dumps(asdict(request)).encode() + b"\n"
            socket.send_fds(self.line, [text], [file.fileno() for file in self.files])

    def reply(self) -> dict[str, Any] | None:
        """What the other process answers; None where it has ended."""
        line, process, answer = self.line, self.process, b""
        assert line is not None
        while not answer.endswith(b"\n"):
            while not readable(line, PATIENCE):
                self.meanwhile()
            part = b""
            with suppress(ConnectionError):
                part = line.recv(LONGEST)
            if not part:
                if self.process is not process:
                    raise CancelledError  # closed, by another thread
                return None
            answer += part
        return json.loads(answer)  # type: ignore[no-any-return]

    def start(self) -> None:
        """Starts the process. Ctrl-C is not for it."""
        self.line, other = socket.socketpair()
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
        self.process = self.line = self.wanted = None
        self.files = []
        if process is not None:
            process.kill()
            process.wait()
        for file in files:
            file.close()

    def __del__(self) -> None:
        with suppress(AttributeError):  # a folder that could not be opened
            self.close()


def readable(line: socket.socket, seconds: float) -> bool:
    """Whether there is something to read, or nobody any more who would write it, within so many seconds."""
    waits = select.poll()
    waits.register(line, select.POLLIN)
    return bool(waits.poll(1000 * seconds))


def answer_on(number: int) -> None:
    """Draws what is asked for on a socket until nobody asks any more. It ends by that alone: a signal to all processes of a
    training is to stop it, and what is being drawn may be waited for."""
    line = socket.socket(fileno=number)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)

    def leave_with_the_other() -> None:
        waits = select.poll()
        waits.register(line, 0)  # no event but that the other end is closed
        waits.poll()
        os._exit(0)

    threading.Thread(target=leave_with_the_other, daemon=True).start()
    while True:
        asked, numbers, _flags, _address = socket.recv_fds(line, LONGEST, len(SIDES) + 1)
        while asked and not asked.endswith(b"\n"):
            part = line.recv(LONGEST)
            asked = asked + part if part else b""
        if not asked:
            return
        line.sendall(json.dumps(drawn(asked, numbers)).encode() + b"\n")


def drawn(asked: bytes, numbers: Sequence[int]) -> dict[str, Any]:
    """What was written, or why nothing was."""
    try:
        with ExitStack() as held:
            files = [held.enter_context(os.fdopen(number, "r+b")) for number in numbers]
            return dict(draw(structured.convert(json.loads(asked), DrawRequest, "what is asked for"), files))
    except UserError as error:
        return {"error": str(error)}
    except OSError as error:
        return {"errno": error.errno, "reason": error.strerror}
    except Exception:
        return {"trace": traceback.format_exc()}
