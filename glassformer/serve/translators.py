"""Who translates from which language to which."""

from __future__ import annotations

from glassformer.serve.service import Service
from glassformer.serve.models import ServedRun
from glassformer.serve.api_errors import bad


def translators(service: Service) -> list[ServedRun]:
    """The runs that translate."""
    return [run for run in service.models.runs.values() if run.translates]


def run_for(
    service: Service, source: str, target: str, text: str, model: str | None = None
) -> tuple[ServedRun, str, float | None]:
    """Who translates this, from which language, and how sure that is where it had to be found out (`auto`)."""
    runs = [run for run in translators(service) if run.target == target]
    if model is not None:
        wanted = service.models.get(model)
        if not wanted.translates:
            raise bad(f"{wanted.name} writes text and does not translate; see /v1/completions", "model")
        runs = [run for run in runs if run is wanted]
    if not runs:
        raise bad(f"{target} is not supported", "target")
    if source != "auto":
        for run in runs:
            if source in run.sources:
                return run, source, None
        raise bad(f"{source} is not supported with the target {target}", "source")
    workers = [run.worker for run in runs if run.worker is not None]
    if len(workers) == len(runs):
        min(workers, key=lambda worker: worker.held).check_room()  # before the work of finding out
    known = list(dict.fromkeys(code for run in runs for code in run.sources))
    code, confidence = service.detector.best(text, known)
    return next(run for run in runs if code in run.sources), code, confidence
