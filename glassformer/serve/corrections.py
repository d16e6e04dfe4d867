"""The corrections of a run, in its folder `corrections/`: a line of a TSV for each, and the LoRA update by which it was learned.

corrections.tsv      source, target, number, who taught it, when; a line is on the disk before its learning begins, and
                     `glassformer train corrections.tsv --from RUN` learns from the first two columns
000001.safetensors   the update of correction 1, with the fingerprint of the weights that it was learned beside

So the updates are a chain that begins with the run's own weights: each fits behind one other, and what a crash, an undo or newer
weights have torn off is not applied, and is learned again.
"""

from __future__ import annotations

import os
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from safetensors.torch import save
from torch import Tensor, nn

from glassformer.errors import UserError
from glassformer.files.durable import fsync, write_atomically
from glassformer.files.owned import OwnedFiles, exclusive_lock, open_own, own_folder
from glassformer.formats.adapter import BESIDE, add_adapter, fingerprint, learned_beside
from glassformer.language import _
from glassformer.models.weights import model_tensors

FOLDER, FILE = "corrections", "corrections.tsv"


@dataclass(frozen=True)
class Correction:
    """A source and the target that it should have had, its number, and who taught it when."""

    source: str
    target: str
    number: int
    teacher: str
    at: str

    @property
    def pair(self) -> tuple[str, str]:
        """What a model learns."""
        return self.source, self.target

    def line(self) -> str:
        """As the file has it."""
        return "\t".join([self.source, self.target, str(self.number), self.teacher, self.at]) + "\n"


class Corrections:
    """The corrections of one run, for one server at a time."""

    def __init__(self, run: Path) -> None:
        self.files, self.held = OwnedFiles(own_folder(run / FOLDER)), ExitStack()
        self.path, lock = self.files.claim(FILE, ".lock")
        self.held.enter_context(
            exclusive_lock(lock, _("another server learns in {folder}; end it first", self.files.folder))
        )
        text = self.path.read_text(encoding="utf-8", errors="replace") if self.path.exists() else ""
        if not text.endswith("\n") and text:  # a crash has cut the last line, which nobody was told is kept
            write_atomically(self.path, text[: text.rfind("\n") + 1].encode())
        self.last = max((one.number for one in self.read()), default=0)
        for name in self.files.names():  # a number is used once, even that of a correction that was undone
            with suppress(ValueError):
                self.last = max(self.last, int(name.removesuffix(".safetensors")))

    def close(self) -> None:
        """Lets another server have them."""
        self.held.close()

    def read(self) -> list[Correction]:
        """In the order in which they came; of a source that was corrected again, the last one."""
        lines = self.path.read_text(encoding="utf-8").split("\n")[:-1] if self.path.exists() else []
        found: dict[str, Correction] = {}
        for number, line in enumerate(lines, 1):
            columns = line.split("\t")
            if len(columns) != 5 or not columns[2].isdigit():
                raise UserError(
                    "{path}, line {line}: not a correction with its number, its teacher and its time; mend the line or remove it",
                    self.path,
                    number,
                )
            found.pop(columns[0], None)
            found[columns[0]] = Correction(columns[0], columns[1], int(columns[2]), *columns[3:])
        return list(found.values())

    def append(self, source: str, target: str, teacher: str) -> Correction:
        """One more, on the disk when this comes back. An earlier one of the same source is no longer in the file."""
        self.last += 1
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        correction, again = (
            Correction(source, target, self.last, teacher, at),
            source in {c.source for c in self.read()},
        )
        descriptor = open_own(self.path, os.O_WRONLY | os.O_APPEND)
        try:
            os.write(descriptor, correction.line().encode())
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        fsync(self.path.parent)
        if again:
            self.write(self.read())
        return correction

    def remove(self, number: int) -> None:
        """Takes a correction out of the file."""
        self.write([one for one in self.read() if one.number != number])

    def write(self, corrections: list[Correction]) -> None:
        """The file anew, the old one or the new one at any moment."""
        write_atomically(self.path, "".join(one.line() for one in corrections).encode())

    def keep(self, number: int, adapter: dict[str, Tensor], beside: nn.Module) -> None:
        """The update of a correction, learned beside the weights of a model."""
        (path,) = self.files.claim(f"{number:06}.safetensors")
        tensors = {name: tensor.cpu().contiguous() for name, tensor in adapter.items()}
        write_atomically(path, save(tensors, {BESIDE: fingerprint(model_tensors(beside))}))

    def apply(self, net: nn.Module) -> list[int]:
        """Puts every update that fits into the weights of a run, one after the other; the numbers of their corrections."""
        updates: dict[str | None, tuple[int, Path]] = {}
        own = self.files.names()
        for one in self.read():
            name = f"{one.number:06}.safetensors"
            with suppress(OSError, UserError):
                if name in own:
                    updates[learned_beside(self.files.folder / name)] = one.number, self.files.folder / name
        learned: list[int] = []
        while (found := updates.pop(fingerprint(model_tensors(net)), None)) is not None:
            add_adapter(net, found[1])
            learned.append(found[0])
        return learned
