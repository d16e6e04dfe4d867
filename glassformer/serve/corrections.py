"""The corrections of a run while it is served: kept on the disk, and put into its weights. `runs/corrections.py` says what lies
there.

An update names the fingerprint of the weights that it was learned beside. So the updates are a chain that begins with the run's
own weights: each fits behind one other, and what a crash, an undo or newer weights have torn off is not applied, and is learned
again. The file is small, and is written anew at each change: the old one or the new one, at any moment.
"""

from __future__ import annotations

import errno
import hashlib
import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from safetensors.torch import save
from torch import Tensor, nn

from glassformer.errors import UserError
from glassformer.files.durable import write_atomically
from glassformer.files.owned import OwnedFiles, exclusive_lock, own_folder
from glassformer.files.structured import read_regular
from glassformer.formats.adapter import BESIDE, add_adapter, fingerprint, learned_beside
from glassformer.language import _
from glassformer.models.weights import model_tensors
from glassformer.runs.corrections import (
    FILE,
    FOLDER,
    REFUSED,
    SET_ASIDE,
    Correction,
    read_corrections,
    update_problem,
)
from glassformer.serve.api_errors import APIError

MOST, MOST_OF_ONE = 2000, 500  # corrections of a run, and of the holder of one key
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def kept_whole() -> Iterator[None]:
    """Inside, what cannot be written is told to whoever asked."""
    try:
        yield
    except OSError as error:
        status = 507 if error.errno in FULL else 503
        raise APIError(
            status, f"corrections cannot be written here now ({error.strerror}); nothing has changed"
        ) from error


class Corrections:
    """The corrections of one run, for one server at a time."""

    def __init__(self, run: Path, report: Callable[[str], None] = lambda _: None) -> None:
        self.files, self.held, self.report = OwnedFiles(own_folder(run / FOLDER)), ExitStack(), report
        self.path, lock = self.files.claim(FILE, ".lock")
        self.held.enter_context(
            exclusive_lock(lock, _("another server learns in {folder}; end it first", self.files.folder))
        )
        kept, self.strange = read_corrections(self.path)
        self.by_source = {correction.source: correction for correction in kept}
        numbers = [
            int(name[:-12]) for name in self.updates()
        ]  # a number is used once, even that of one that was undone
        self.last = max([*numbers, *(correction.number for correction in kept)], default=0)
        self.told: set[int] = set()
        if self.strange:
            shown = len(self.strange), self.path, self.files.folder / SET_ASIDE
            try:
                self.write(kept)
                report(_("{count:,} lines of {path} were no corrections; they are in {aside} now", *shown))
            except APIError as error:
                report(
                    _(
                        "{count:,} lines of {path} are no corrections and are passed over: {why}",
                        *shown[:2],
                        error.message,
                    )
                )

    def close(self) -> None:
        """Lets another server have them."""
        self.held.close()

    def read(self) -> list[Correction]:
        """In the order in which they came; of a source that was corrected again, the last one."""
        return list(self.by_source.values())

    def updates(self) -> set[str]:
        """The names of updates on the list of files."""
        return {name for name in self.files.names() if re.fullmatch(r"[0-9]{6,9}\.safetensors", name)}

    def append(self, source: str, target: str, teacher: str) -> Correction:
        """One more, on the disk when this comes back. An earlier one of the same source is no longer in the file."""
        others = [correction for correction in self.read() if correction.source != source]
        if len(others) >= MOST or sum(correction.teacher == teacher for correction in others) >= MOST_OF_ONE:
            raise APIError(
                507,
                f"no more corrections are kept than {MOST:,}, and {MOST_OF_ONE:,} by one key; take some back by /undo",
            )
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        correction = Correction(source, target, self.last + 1, teacher, at)
        self.write([*others, correction])
        self.last += 1
        return correction

    def remove(self, number: int) -> None:
        """Takes a correction out of the file, and its update off the disk."""
        self.write([correction for correction in self.read() if correction.number != number])

    def write(self, corrections: list[Correction]) -> None:
        """The file anew, and no updates of what is not in it; before that, lines that were none into a file of their own."""
        with kept_whole():
            if self.strange:
                (aside,) = self.files.claim(SET_ASIDE)
                before = read_regular(aside) if aside.exists() else b""
                write_atomically(aside, before + b"".join(line + b"\n" for line in self.strange))
                self.strange = []
            write_atomically(self.path, "".join(correction.line() for correction in corrections).encode())
        self.by_source = {correction.source: correction for correction in corrections}
        with suppress(OSError):  # tried again at the next change
            stale = self.updates() - {correction.update for correction in corrections}
            for name in stale:
                (self.files.folder / name).unlink(missing_ok=True)
            self.files.forget(stale - {f"{self.last:06}.safetensors"})

    def settle(self, number: int, outcome: str) -> None:
        """Keeps what became of a correction."""
        self.write([replace(one, outcome=outcome) if one.number == number else one for one in self.read()])

    def keep(self, number: int, adapter: dict[str, Tensor], beside: nn.Module) -> None:
        """The update of a correction, learned beside the weights of a model."""
        tensors = {name: tensor.cpu().contiguous() for name, tensor in adapter.items()}
        content = save(tensors, {BESIDE: fingerprint(model_tensors(beside))})
        with kept_whole():
            (path,) = self.files.claim(f"{number:06}.safetensors")
            write_atomically(path, content)
        self.settle(number, hashlib.sha256(content).hexdigest())

    def refuse(self, number: int, base: nn.Module) -> None:
        """Notes that the run's own weights cannot learn a correction without losing something."""
        self.settle(number, REFUSED + fingerprint(model_tensors(base))[:16])

    def to_learn(self, learned: list[int], base: nn.Module) -> list[Correction]:
        """What is neither learned nor refused by these weights of the run."""
        refused = REFUSED + fingerprint(model_tensors(base))[:16]
        return [one for one in self.read() if one.number not in learned and one.outcome != refused]

    def apply(self, net: nn.Module) -> list[int]:
        """Puts every update that is whole and fits into the weights of a run, one after the other; the numbers of their
        corrections."""
        updates: dict[str | None, tuple[int, Path]] = {}
        listed = self.updates()
        for correction in self.read():
            path = self.files.folder / correction.update
            if correction.update not in listed or (correction.digest is None and not path.exists()):
                continue
            if (wrong := update_problem(path, correction.digest)) is None:
                updates[learned_beside(path)] = correction.number, path
            elif correction.number not in self.told:
                self.told.add(correction.number)
                self.report(_("{path} {wrong}; its correction is learned again", path, wrong))
        learned: list[int] = []
        with suppress(OSError, UserError):  # of another model
            while (update := updates.pop(fingerprint(model_tensors(net)), None)) is not None:
                add_adapter(net, update[1])
                learned.append(update[0])
        return learned
