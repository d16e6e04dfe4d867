"""Training pairs that are cut by BPE-dropout, or changed as people paste text, otherwise in every epoch (data.segmentations=0).

The first epoch's draws are the run's token files. Those of a later one are made while the epoch before it is learned from, out of
the text in the run's folder, by a process of its own: in a thread they would keep Python from the training. They come back in
files without names. They follow from the text and the epoch alone, so a run that goes on after a kill, and each of several
processes, draws the same.

The two processes talk through a socket, a line of JSON at a time: an epoch is asked for together with the files to write, and
what was written comes back in numbers."""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import ExitStack
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
from glassformer.text.tokenizers import Tokenizers

SIDES = ("source", "target")
PLAN = ("kind_of", "kinds", "row_starts", "shape_of")
LONGEST = 1 << 16  # bytes that are read at once
PATIENCE = 0.1  # seconds between two looks whether anybody still waits


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
    """The examples of later epochs, drawn by a process that begins with the first of them. `folder`: the run's."""

    def __init__(self, recipe: Recipe, folder: Path) -> None:
        self.recipe, self.folder = recipe, folder
        self.line: socket.socket | None = None
        self.process: subprocess.Popen[bytes] | None = None

    def __call__(
        self, epoch: int, most: Shape, shapes: Sequence[Shape], stopped: Callable[[], bool]
    ) -> tuple[Examples, Packing | None]:
        """The examples of an epoch, none longer than `most` allows, and how they fill rows of these shapes, if there are any.
        Where nobody waits any more it is given up."""
        first = open_files(self.recipe.data, "train", self.folder / "data")
        request = DrawRequest(self.recipe.to_dict(), os.path.abspath(self.folder), epoch, most, tuple(shapes))
        with ExitStack() as held:
            files = [held.enter_context(tempfile.TemporaryFile(dir=self.folder / "data")) for _name in (*SIDES, "plan")]
            try:
                reply = self.ask(request, files, stopped)
            except BaseException:
                self.close()
                raise
            if (refusal := reply.get("error")) is not None:
                raise UserError(refusal)
            sides = {}
            for name, file in zip(SIDES, files, strict=False):
                total, count = reply[name]
                sides[name] = TokenSpool.read(file, total, count, first[name].vocab_size)
            packing = None
            if shapes:
                files[-1].seek(0)  # the other process wrote on from there
                parts = np.split(np.fromfile(files[-1], np.int64), np.cumsum(reply["plan"])[:-1])
                packing = Packing(**dict(zip(PLAN, parts, strict=True)))
        return paired(self.recipe.model.family, sides), packing

    def ask(self, request: DrawRequest, files: Sequence[IO[bytes]], stopped: Callable[[], bool]) -> dict[str, Any]:
        """What the other process answers; one that is there no more, killed for its memory perhaps, is started again."""
        if self.process is None or self.process.poll() is not None:
            self.close()
            self.begin()
        assert self.line is not None
        answer = b""
        try:
            socket.send_fds(
                self.line, [json.dumps(asdict(request)).encode() + b"\n"], [file.fileno() for file in files]
            )
            while not answer.endswith(b"\n"):
                while not select.select([self.line], [], [], PATIENCE)[0]:
                    if stopped():
                        raise CancelledError
                part = self.line.recv(LONGEST)
                if not part:
                    raise ConnectionResetError
                answer += part
        except ConnectionError:
            raise UserError(
                "the process that draws the next epoch has ended; `glassformer train RUN --resume` goes on"
            ) from None
        return json.loads(answer)  # type: ignore[no-any-return]

    def begin(self) -> None:
        """Starts the process. Ctrl-C is not for it; it ends when this one does, however that goes."""
        self.line, other = socket.socketpair()
        package = Path(__file__).parents[2]
        paths = os.pathsep.join(filter(None, (str(package), os.environ.get("PYTHONPATH"))))
        with other:
            self.process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(other.fileno())],
                pass_fds=[other.fileno()],
                env=os.environ | {"PYTHONPATH": paths},
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    def close(self) -> None:
        """Ends the process, if there is one."""
        if self.line is not None and self.process is not None:
            self.line.close()
            self.process.kill()
            self.process.wait()
        self.line = self.process = None

    def __del__(self) -> None:
        self.close()


def answer(line: socket.socket) -> None:
    """Draws what is asked for, until nobody asks any more."""
    while True:
        asked, numbers, _flags, _address = socket.recv_fds(line, LONGEST, len(SIDES) + 1)
        if not asked:
            return
        while not asked.endswith(b"\n"):
            asked += line.recv(LONGEST)
        with ExitStack() as held:
            files = [held.enter_context(os.fdopen(number, "r+b")) for number in numbers]
            said: Mapping[str, Any]
            try:
                said = draw(structured.convert(json.loads(asked), DrawRequest, "what is asked for"), files)
            except UserError as error:
                said = {"error": str(error)}
        line.sendall(json.dumps(said).encode() + b"\n")


if __name__ == "__main__":
    answer(socket.socket(fileno=int(sys.argv[1])))
