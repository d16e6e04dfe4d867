"""A run on several devices: the answers of one, shared out, and no device is left untried. (Devices here are a CPU, twice.)"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import glassformer
from glassformer.errors import UserError
from glassformer.serve.limits import Limits
from glassformer.serve.models import Models, ServedRun
from glassformer.serve.worker import Worker
from glassformer.serve.worker_group import WorkerGroup
from tests.serve.harness import make_runs, running

pytestmark = pytest.mark.slow


def test_two_workers_answer_as_one(tmp_path: Any) -> None:
    """All answers are the model's, both workers have worked, and the book of held jobs is empty afterwards. Broken variant: every
    job to the first worker."""
    (path,) = make_runs(tmp_path, "translator")
    texts = [f"the cat sat on mat {n}." for n in range(24)]
    expected = [str(answer) for answer in glassformer.load(path, device="cpu").translate(texts)]
    with running([path], device="cpu,cpu") as server:

        def ask(text: str) -> str:
            return str(server.post("/translate", {"q": text, "source": "en", "target": "de"})["translatedText"])

        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(ask, texts)) == expected
        group = server.served.models.runs["translator"].worker
        assert isinstance(group, WorkerGroup) and len(group.workers) == 2
        assert all(worker.steps > 5 for worker in group.workers) and group.held == 0
        assert group.steps == sum(worker.steps for worker in group.workers)


def test_a_device_that_cannot_answer_is_found(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second of two fails: the run does not count as ready. Broken variant: only the first is tried."""
    (path,) = make_runs(tmp_path, "translator")
    made: list[Worker] = []
    real = Worker.__init__

    def init(self: Worker, *given: Any, **named: Any) -> None:
        real(self, *given, **named)
        made.append(self)
        if len(made) == 2:
            monkeypatch.setattr(self, "_open", lambda row: 1 / 0)

    monkeypatch.setattr(Worker, "__init__", init)

    async def load() -> Models:
        models = Models([ServedRun(path)], Limits(), device="cpu, cpu")
        with pytest.raises(Exception, match="cannot answer"):
            await models.load(models.runs["translator"])
        models.close()
        return models

    models = asyncio.run(load())
    assert len(made) == 2 and not models.ready() and models.runs["translator"].worker is None


def test_corrections_are_learned_on_one_device(tmp_path: Any) -> None:
    (path,) = make_runs(tmp_path, "translator")

    async def make() -> None:
        Models([ServedRun(path)], Limits(), device="cpu,cpu", learn=True)

    with pytest.raises(UserError, match="one device"):
        asyncio.run(make())
