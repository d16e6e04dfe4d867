"""What a trial scores on the examples it has not learned from, example by example, so that trials can be compared in pairs.

Texts are written greedily and losses are teacher-forced, as in `glassformer compare`. The numbers of a trial are kept in a
file, so that an ablation that is gone on with does not score again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from glassformer.api import load
from glassformer.data.report import DataReport
from glassformer.evaluation.examples import COMBINE, example_statistics, held_out
from glassformer.evaluation.generated import metric_of
from glassformer.evaluation.significance import Statistics
from glassformer.files import structured
from glassformer.files.durable import to_json, write_atomically
from glassformer.models.costs import costs
from glassformer.runs.folder import RunFolder


@dataclass(frozen=True)
class TrialScores:
    """One trial: for each score the numbers of every example, and what the training took."""

    split: str
    examples: str  # a fingerprint: equal where the examples are
    tokens: str  # the same for how they are cut: losses a token are comparable only then
    metric: str  # the score the recipe goes by
    statistics: dict[str, list[list[float]]]
    parameters: int
    forward_flops: int
    steps: int
    target_tokens: int
    seconds: float  # of training, validation included
    of: str = ""  # which weights

    def table(self, name: str) -> Statistics:
        """The numbers of every example for a score."""
        return np.array(self.statistics[name], dtype=np.float64)

    def score(self, name: str) -> float:
        """The score of this name over all examples, from the summed numbers of each."""
        return float(COMBINE[name](self.table(name).sum(0, keepdims=True))[0])


def fingerprint(value: Any) -> str:
    """A short hash of a value's JSON: equal values have equal ones."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:16]


def training_facts(run: RunFolder) -> dict[str, Any]:
    """What the training took, from what the run keeps."""
    lines = run.metrics()
    clock, before = 0.0, 0.0
    for line in lines:  # the clock begins anew where a run was gone on with
        now = float(line.get("clock", 0.0))
        clock += now - before if now >= before else now
        before = now
    logged = [line for line in lines if "loss" in line]
    shape = costs(run.recipe.model)
    return {
        "parameters": shape.parameters,
        "forward_flops": shape.forward_flops,
        "steps": run.finished() or 0,
        "target_tokens": int(logged[-1]["tokens"]) if logged else 0,
        "seconds": clock,
    }


def score_trial(folder: Path, limit: int, device: str = "auto") -> TrialScores:
    """Scores the final weights of a run on its test split (on val, where it has none)."""
    run = RunFolder.open(folder)
    report = DataReport.read(folder / "data")
    split = "test" if report is None or report.examples.get("test") else "val"
    model = load(folder, device=device)
    run.check_data(split)
    held = held_out(model, split, limit, folder / "data")
    statistics = {name: table.tolist() for name, table in example_statistics(model, held).items()}
    tokenizers = [side.library.to_str() for side in (model.tokenizers.source, model.tokenizers.target)]
    shown = held.examples or [batch.rows.tokens.tolist() for batch in held.batches]
    metric = metric_of(run.recipe)
    return TrialScores(
        split=split,
        examples=fingerprint(shown),
        tokens=fingerprint([tokenizers, run.recipe.data.prompt_answer]),
        metric=metric if metric in statistics else next(iter(statistics)),
        statistics=statistics,
        **training_facts(run),
    )


def score_and_keep(path: Path, folder: Path, limit: int, device: str, threads: int | None = None) -> TrialScores:
    """Scores a run and keeps the scores in a file."""
    if threads is not None:
        torch.set_num_threads(threads)
    found = score_trial(folder, limit, device)
    keep_scores(path, folder, limit, found)
    return found


def weights_of(run: Path, limit: int) -> str:
    """What a trial's scores belong to: its final weights and a number of examples."""
    seal = run / "final" / "SEAL"
    return fingerprint([seal.read_text(encoding="utf-8") if seal.exists() else "", limit])


def kept_scores(path: Path, run: Path, limit: int) -> TrialScores | None:
    """What was scored before, if it was of these very weights and of as many examples."""
    with contextlib.suppress(OSError, structured.Unreadable):
        found: TrialScores = structured.read(path, TrialScores)
        return found if found.of == weights_of(run, limit) else None
    return None


def keep_scores(path: Path, run: Path, limit: int, scores: TrialScores) -> None:
    """Writes the scores of a trial to a file, with which weights they are of, so that they need not be taken again."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, to_json(asdict(replace(scores, of=weights_of(run, limit)))))
