"""Chunks of a file answered by Ray Data: an actor for each GPU or core of a cluster, each with the driver of decode/. Ray
promises no order, and may answer a chunk twice; both are seen to by bulk.py, which knows each by its number. The run and the file
must lie under the same path on every machine."""

from __future__ import annotations

import json
import logging
import os
import warnings
from collections.abc import Generator, Sequence
from dataclasses import asdict
from typing import Any

from glassformer.cli.bulk import TRIES, Answerer, BulkRequest, Chunk, ChunkAnswer
from glassformer.errors import UserError, install_hint

BLOCKS = 4096  # pieces of work that Ray is given, at most


class RayAnswerer(Answerer):
    """The same with rows of Ray's: one chunk a batch."""

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:  # type: ignore[override]
        """A chunk's number and its answers as JSON."""
        chunk = Chunk(**{name: int(column[0]) for name, column in batch.items()})
        return {"number": [chunk.number], "answer": [json.dumps(asdict(super().__call__(chunk)))]}


class RayWorkers:
    """So many actors; as many as the cluster has GPUs, or cores where it has none, if nobody says how many."""

    def __init__(self, jobs: int | None, device: str) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nobody is told of this
        try:
            import ray.data  # noqa: F401
        except ImportError:
            raise UserError("--ray needs Ray, which is not installed: {command}", install_hint("ray")) from None
        self.jobs, self.device = jobs, device

    def __call__(self, request: BulkRequest, chunks: Sequence[Chunk]) -> Generator[tuple[int, ChunkAnswer]]:
        """The answers, whichever is there first. Ray is started here, unless RAY_ADDRESS or `ray start` has named a cluster."""
        import ray
        import ray.data

        started_here = not ray.is_initialized()
        try:
            if started_here:
                ray.init(include_dashboard=False, logging_level=logging.ERROR, log_to_driver=False)
            context = ray.data.DataContext.get_current()
            context.enable_progress_bars = False
            logging.getLogger("ray.data").setLevel(logging.CRITICAL)  # what is wrong is said once, below
            has = ray.cluster_resources()
            unit = "GPU" if self.device != "cpu" and has.get("GPU") else "CPU"
            actors = min(self.jobs or int(has.get(unit, 1)), len(chunks))
            data = ray.data.from_items(
                [asdict(chunk) for chunk in chunks], override_num_blocks=min(len(chunks), BLOCKS)
            )
            with warnings.catch_warnings():
                # Ray says that how often a task is tried will have another name in 2.64. By itself it would try for ever.
                warnings.simplefilter("ignore")
                answered = data.map_batches(
                    RayAnswerer,
                    batch_size=1,
                    fn_constructor_args=(request,),
                    compute=ray.data.ActorPoolStrategy(min_size=1, max_size=actors, initial_size=actors),
                    num_gpus=1 if unit == "GPU" else None,
                    num_cpus=1 if unit == "CPU" else None,
                    max_task_retries=TRIES - 1,
                )
            for row in answered.iter_rows():
                yield int(row["number"]), ChunkAnswer(**json.loads(row["answer"]))
        except ray.exceptions.RayError as error:
            raise UserError(
                "Ray gave up: {reason}; the answers so far are kept, and the same command goes on",
                str(error).strip().splitlines()[-1],
            ) from None
        finally:
            if started_here:
                ray.shutdown()
