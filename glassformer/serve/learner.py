"""Teaching a run while it is served: corrections come from anywhere, and one thread learns them one after the other.

It trains a copy, never the model that answers; the corrected model gets a worker of its own, which takes the place of the old one
between two requests, as newer weights do (models.py). A correction is in its file before it is learned, so that a server that
is killed learns it when it starts again.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from glassformer.errors import UserError
from glassformer.language import _
from glassformer.runs.corrections import Correction
from glassformer.runs.folder import RunFolder
from glassformer.serve.api_errors import APIError, bad_request
from glassformer.serve.corrections import Corrections
from glassformer.serve.learning import Baseline, Replay, check_keeps_examples, check_plausible, learn
from glassformer.tasks import TextModel

MOST_WAITING = 32  # corrections


class Learner:
    """The corrections of one served run: taught, learned, undone."""

    def __init__(
        self,
        run: RunFolder,
        weights: tuple[Callable[[], TextModel], Callable[[], str]],
        install: Callable[[TextModel, str], Coroutine[Any, Any, None]],
        report: Callable[[str], None],
    ) -> None:
        """`weights`: what reads the run's own model, and the seal of the weights that are served; `install`: what has a model
        answer from now on, if the run's weights are still those of the seal."""
        check_keeps_examples(run)
        self.run, self.name, self.install, self.report = run, run.path.name, install, report
        self.load, self.seal_now = weights
        self.store = Corrections(run.path, report)
        self.thread = ThreadPoolExecutor(1, "glassformer-learner")
        self.ending = threading.Event()
        self.waiting = 0
        self.seal: str | None = None  # of the run's own weights that these were made of:
        self.models: tuple[Baseline, TextModel] | None = None  # the run's own, and the one with all updates
        self.learned: list[int] = []

    # ---- on the event loop

    async def ask(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """Has something done in the learner's thread, behind what waits there. Whoever stops waiting does not stop it."""
        if self.waiting >= MOST_WAITING:
            raise APIError(429, f"{self.waiting} corrections are waiting to be learned; come again", retry=10)
        loop = asyncio.get_running_loop()
        self.waiting += 1

        def done() -> Any:
            try:
                return work(loop, *arguments)
            finally:
                loop.call_soon_threadsafe(self.count_down)

        return await asyncio.shield(loop.run_in_executor(self.thread, done))

    def count_down(self) -> None:
        """One less waits."""
        self.waiting -= 1

    async def teach(self, source: str, target: str, teacher: str, kept: list[int]) -> dict[str, Any]:
        """Have a correction kept and learned; its number, whether it is learned, and in how many seconds. Its number is in `kept`
        from when it is in the file: whoever stops waiting knows what became of it."""
        source, target = source.strip(), target.strip()
        if not source or not target or any(len(text.splitlines()) > 1 or "\t" in text for text in (source, target)):
            raise bad_request("a correction is one line of text and one line of translation, without tabs", "s")
        return dict(await self.ask(self.do_teach, source, target, teacher, kept))

    async def undo(self, number: int, teacher: str, *, owner: bool) -> None:
        """Take a correction back; whoever taught it may, and the owner. Those that came after it are learned again."""
        await self.ask(self.do_undo, number, teacher, owner)

    def catch_up(self) -> None:
        """Have what is in the file and not learned yet learned, behind what waits."""
        loop = asyncio.get_running_loop()
        loop.run_in_executor(self.thread, self.do_catch_up, loop)

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
            base, current = Baseline(self.load(), Replay.of(self.run)), self.load()
            self.learned = self.store.apply(current._model)
            self.models = base, current
        return self.models

    def do_teach(
        self, loop: asyncio.AbstractEventLoop, source: str, target: str, teacher: str, kept: list[int]
    ) -> dict[str, Any]:
        """Checked, kept, learned."""
        began, (base, _current) = time.monotonic(), self.refresh()
        check_plausible((source, target), base)
        replaced = [one.number for one in self.store.read() if one.source == source]
        correction = self.store.append(source, target, teacher)
        kept.append(correction.number)
        self.report(_("{run}: {teacher} taught correction {number}", self.name, teacher, correction.number))
        if set(replaced) & set(self.learned):
            self.go_back(loop)
        else:
            self.do_learn(loop, correction)
        learned = correction.number in self.learned
        return {"id": correction.number, "learned": learned, "seconds": round(time.monotonic() - began, 2)}

    def do_learn(self, loop: asyncio.AbstractEventLoop, correction: Correction) -> None:
        """Learned and served; or told that it is not."""
        base, current = self.refresh()
        earlier = [one.pair for one in self.store.read() if one.number in self.learned]
        found = learn(current, base, correction.pair, earlier, self.ending.is_set)
        if found is not None:
            with self.on_disk(correction):
                self.store.keep(correction.number, found[0], current._model)
            self.learned.append(correction.number)
            self.serve(loop, found[1])
        elif not self.ending.is_set():
            with self.on_disk(correction):
                self.store.refuse(correction.number, base.model._model)
            self.report(
                _(
                    "{run}: correction {number} cannot be learned without losing something else; it is kept for `train --from`",
                    self.name,
                    correction.number,
                )
            )

    @contextmanager
    def on_disk(self, correction: Correction) -> Iterator[None]:
        """Inside, what became of a correction is written down; where that cannot be, it is learned again at the next start."""
        try:
            yield
        except APIError as error:
            self.report(_("{run}: correction {number}: {why}", self.name, correction.number, error.message))

    def serve(self, loop: asyncio.AbstractEventLoop, model: TextModel) -> None:
        """From now on these weights answer."""
        base, _former = self.refresh()
        self.models = base, model
        asyncio.run_coroutine_threadsafe(self.install(model, self.seal or ""), loop).result()

    def go_back(self, loop: asyncio.AbstractEventLoop) -> None:
        """Serve the run's own weights with the updates that still fit, and learn again what came behind them."""
        current = self.load()
        self.learned = self.store.apply(current._model)
        self.serve(loop, current)
        self.do_catch_up(loop)

    def do_catch_up(self, loop: asyncio.AbstractEventLoop) -> None:
        """Learn what is in the file and was neither learned nor refused yet."""
        base, _current = self.refresh()
        for correction in self.store.to_learn(self.learned, base.model._model):
            if not self.ending.is_set():
                self.do_learn(loop, correction)

    def do_undo(self, loop: asyncio.AbstractEventLoop, number: int, teacher: str, owner: bool) -> None:
        """The file without it, then the weights."""
        self.refresh()
        found = [one for one in self.store.read() if one.number == number]
        if not found:
            raise UserError("there is no correction {number} of this run", number)
        if not owner and found[0].teacher != teacher:
            raise APIError(403, "this correction was taught with another key")
        self.store.remove(number)
        self.report(_("{run}: {teacher} took correction {number} back", self.name, teacher, number))
        if number in self.learned:
            self.go_back(loop)
