"""The corrections of a run while it is served: kept on the disk, put into its weights, and learned. `runs/corrections.py` says
what lies on the disk, learning.py how a correction is learned.

An update names the fingerprint of the weights that it was learned beside. So the updates are a chain that begins with the run's
own weights: each fits behind one other, and what a crash, an undo or newer weights have torn off is not applied, and is learned
again. The file is small, and is written anew at each change: the old one or the new one, at any moment.

Corrections come from anywhere, and one thread learns them one after the other. It trains a copy, never the model that answers;
the corrected model gets a worker of its own, which takes the place of the old one between two requests, as newer weights do
(models.py). A correction is in its file before it is learned, so that a server that is killed learns it when it starts again.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import re
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from safetensors.torch import save
from torch import Tensor, nn

from glassformer.data.store import stored_splits
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
from glassformer.runs.folder import RunFolder
from glassformer.serve.learning import Baseline, check_plausible, learn
from glassformer.serve.requests import APIError, bad_request
from glassformer.tasks import TextModel

MOST, MOST_OF_ONE = 2000, 500  # corrections of a run, and of the holder of one key
MOST_WAITING = 32  # corrections that are not learned yet
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
        # A number is used once, even that of one that was undone.
        numbers = [*(int(name[:-12]) for name in self.updates()), *(correction.number for correction in kept)]
        self.last = max(numbers, default=0)
        self.reported: set[int] = set()  # numbers of those whose updates are damaged
        if self.strange:
            count, path, aside = len(self.strange), self.path, self.files.folder / SET_ASIDE
            try:
                self.write(kept)
                report(_("{count:,} lines of {path} were no corrections; they are in {aside} now", count, path, aside))
            except APIError as error:
                why = error.message
                report(_("{count:,} lines of {path} are no corrections and are passed over: {why}", count, path, why))

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
        self.write([replace(c, outcome=outcome) if c.number == number else c for c in self.read()])

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
        return [c for c in self.read() if c.number not in learned and c.outcome != refused]

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
            elif correction.number not in self.reported:
                self.reported.add(correction.number)
                self.report(_("{path} {wrong}; its correction is learned again", path, wrong))
        learned: list[int] = []
        with suppress(OSError, UserError):  # of another model
            while (update := updates.pop(fingerprint(model_tensors(net)), None)) is not None:
                add_adapter(net, update[1])
                learned.append(update[0])
        return learned


class Learner:
    """The corrections of one served run: taught, learned, undone, each by `ask` from the event loop, in one thread."""

    def __init__(
        self,
        run: RunFolder,
        load: Callable[[], TextModel],
        seal_now: Callable[[], str],
        install: Callable[[TextModel, str], Coroutine[Any, Any, None]],
        report: Callable[[str], None],
    ) -> None:
        """`load` reads the run's own model, `seal_now` is the seal of the weights that are served; `install` has a model answer
        from now on, if the run's weights are still those of the seal."""
        if "train" not in stored_splits(run.path / "data"):
            raise UserError("{path} keeps no examples to replay, so it cannot learn corrections", run.path)
        self.run, self.name, self.report = run, run.path.name, report
        self.load, self.seal_now, self.install = load, seal_now, install
        self.store = Corrections(run.path, report)
        self.loop = asyncio.get_running_loop()
        self.thread = ThreadPoolExecutor(1, "glassformer-learner")
        self.ending = threading.Event()
        self.waiting = 0
        self.seal: str | None = None  # of the run's own weights that these were made of:
        self.models: tuple[Baseline, TextModel] | None = None  # the run's own, and the one with all updates
        self.learned: list[int] = []

    async def ask(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """Has something done in the learner's thread, behind what waits there. Whoever stops waiting does not stop it."""
        if self.waiting >= MOST_WAITING:
            raise APIError(429, f"{self.waiting} corrections are waiting to be learned; come again", retry=10)
        self.waiting += 1
        work_done = self.loop.run_in_executor(self.thread, work, *arguments)
        work_done.add_done_callback(self.count_down)
        return await asyncio.shield(work_done)

    def count_down(self, _work: asyncio.Future[Any]) -> None:
        """One less waits."""
        self.waiting -= 1

    def catch_up(self) -> None:
        """Have what is in the file and not learned yet learned, behind what waits."""
        self.loop.run_in_executor(self.thread, self.learn_rest)

    def close(self) -> None:
        """The thread ends with the step that it is at; what is not learned is so at the next start."""
        self.ending.set()
        self.thread.shutdown(wait=False, cancel_futures=True)
        self.store.close()

    # ---- in the learner's thread

    def refresh(self) -> tuple[Baseline, TextModel]:
        """The run's own weights, and those with all updates, as they are now."""
        if self.models is None or self.seal != self.seal_now():
            self.seal = self.seal_now()
            base, current = Baseline(self.load(), self.run), self.load()
            self.learned = self.store.apply(current._model)
            self.models = base, current
        return self.models

    def teach(self, source: str, target: str, teacher: str, kept: list[int]) -> dict[str, Any]:
        """A correction is checked, kept and learned; its number, whether it is learned, and in how many seconds. Its number is in
        `kept` from when it is in the file: whoever stops waiting knows what became of it."""
        source, target = source.strip(), target.strip()
        if not source or not target or any(len(text.splitlines()) > 1 or "\t" in text for text in (source, target)):
            raise bad_request("a correction is one line of text and one line of translation, without tabs", "s")
        began, (base, _current) = time.monotonic(), self.refresh()
        check_plausible((source, target), base)
        replaced = {correction.number for correction in self.store.read() if correction.source == source}
        correction = self.store.append(source, target, teacher)
        kept.append(correction.number)
        self.report(_("{run}: {teacher} taught correction {number}", self.name, teacher, correction.number))
        if replaced & set(self.learned):
            self.go_back()
        else:
            self.learn(correction)
        learned = correction.number in self.learned
        return {"id": correction.number, "learned": learned, "seconds": round(time.monotonic() - began, 2)}

    def learn(self, correction: Correction) -> None:
        """Learned and served; or told that it is not. What became of it is written down; where that cannot be, it is learned
        again at the next start."""
        base, current = self.refresh()
        number = correction.number
        earlier = [other.pair for other in self.store.read() if other.number in self.learned]
        update = learn(current, base, correction.pair, earlier, self.ending.is_set)
        if update is None and self.ending.is_set():
            return
        try:
            if update is None:
                self.store.refuse(number, base.model._model)
            else:
                self.store.keep(number, update[0], current._model)
        except APIError as error:
            self.report(_("{run}: correction {number}: {why}", self.name, number, error.message))
        if update is not None:
            self.learned.append(number)
            self.serve(update[1])
            return
        self.report(
            _(
                "{run}: correction {number} cannot be learned without losing something else; it is kept for `train --from`",
                self.name,
                number,
            )
        )

    def serve(self, model: TextModel) -> None:
        """From now on these weights answer."""
        base, _former = self.refresh()
        self.models = base, model
        asyncio.run_coroutine_threadsafe(self.install(model, self.seal or ""), self.loop).result()

    def go_back(self) -> None:
        """Serve the run's own weights with the updates that still fit, and learn again what came behind them."""
        current = self.load()
        self.learned = self.store.apply(current._model)
        self.serve(current)
        self.learn_rest()

    def learn_rest(self) -> None:
        """Learn what is in the file and was neither learned nor refused yet."""
        base, _current = self.refresh()
        for correction in self.store.to_learn(self.learned, base.model._model):
            if not self.ending.is_set():
                self.learn(correction)

    def undo(self, number: int, teacher: str, is_owner: bool) -> None:
        """Takes a correction out of the file, then out of the weights; whoever taught it may, and the owner. Those that came
        after it are learned again."""
        self.refresh()
        correction = next((c for c in self.store.read() if c.number == number), None)
        if correction is None:
            raise UserError("there is no correction {number} of this run", number)
        if not is_owner and correction.teacher != teacher:
            raise APIError(403, "this correction was taught with another key")
        self.store.remove(number)
        self.report(_("{run}: {teacher} took correction {number} back", self.name, teacher, number))
        if number in self.learned:
            self.go_back()
