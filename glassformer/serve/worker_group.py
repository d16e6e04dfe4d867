"""A run on several devices: a worker on each, and every job to the one that holds fewest."""

from __future__ import annotations

from collections.abc import Sequence

from glassformer.serve.api_errors import APIError
from glassformer.serve.jobs import ServerJob
from glassformer.serve.worker import Worker


class WorkerGroup:
    """As a Worker to whoever asks; its queue is as long as those of its workers together."""

    def __init__(self, workers: Sequence[Worker]) -> None:
        self.workers = tuple(workers)

    @property
    def held(self) -> int:
        """Jobs that are not done."""
        return sum(worker.held for worker in self.workers)

    @property
    def steps(self) -> int:
        """Steps made so far."""
        return sum(worker.steps for worker in self.workers)

    @property
    def failures(self) -> int:
        """Jobs that failed by no fault of their askers."""
        return sum(worker.failures for worker in self.workers)

    @property
    def full(self) -> bool:
        """Is there no room for another job?"""
        return all(worker.full for worker in self.workers)

    @property
    def alive(self) -> bool:
        """Does any of them still run?"""
        return any(worker.alive for worker in self.workers)

    def submit(self, job: ServerJob) -> None:
        """Hand the job to the worker that holds fewest."""
        self.least().submit(job)

    def least(self) -> Worker:
        """The worker that holds fewest jobs; of equals the one that has worked least."""
        return min(self.workers, key=lambda worker: (worker.held, worker.steps))

    def check_room(self) -> None:
        """Refuse, where there is no room for another job."""
        if self.full:
            raise self.overloaded()

    def overloaded(self) -> APIError:
        """What one hears for whom there is no room."""
        return self.least().overloaded()

    def stuck_for(self) -> float:
        """For how many seconds one of them has had jobs and not moved."""
        return max(worker.stuck_for() for worker in self.workers)

    def close(self) -> None:
        """No new jobs; each ends when it has answered what it holds."""
        for worker in self.workers:
            worker.close()
