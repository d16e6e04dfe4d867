"""`glassformer.evaluate(run, ...)`: the scores of a run from Python, as a mapping that prints well."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path
from typing import Any

from glassformer.api import LoadedModel, load
from glassformer.data.files import ReadContext
from glassformer.data.memory import memory_rows
from glassformer.errors import UserError
from glassformer.evaluate import Scores, measure_name, measure_value, measures_text
from glassformer.studies.score import evaluate_run, score_examples


class RunScores(Mapping[str, float]):
    """Scores by their names; also on how many `examples`, of what (`on`), their `signatures`, a few `samples` (source,
    wanted, written), and `notes` where something is to be said.

    >>> found = RunScores(Scores({"exact_match": 50.0}), 2, "val")
    >>> found["exact_match"], found
    (50.0, RunScores on 2 examples of val: exact match 50.00%)
    """

    def __init__(self, scores: Scores, examples: int, on: str, notes: tuple[str, ...] = ()) -> None:
        self.scores, self.examples, self.on, self.notes = scores, examples, on, notes
        self.signatures, self.samples = scores.signatures, scores.samples

    def __getitem__(self, name: str) -> float:
        return self.scores.values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.scores.values)

    def __len__(self) -> int:
        return len(self.scores.values)

    def __repr__(self) -> str:
        return f"RunScores on {self.examples:,} examples of {self.on}: {measures_text(self, ', ')}"

    def _repr_html_(self) -> str:
        cells = [(measure_name(n), measure_value(n, v), self.signatures.get(n, "")) for n, v in self.items()]
        rows = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in cells)
        return f"<table><caption>{self.examples:,} examples of {escape(self.on)}</caption>{rows}</table>"


def evaluate(
    run: str | Path | LoadedModel,
    data: Any = None,
    *,
    split: str | None = None,
    limit: int | None = None,
    device: str = "auto",
) -> RunScores:
    """Scores of a run on one of its splits (test, where it has one), or on examples of your own: a list of (source, target),
    (text, label) or (words, tags), or a table with those fields. A model is scored as it is in memory, ablated or changed.

    >>> evaluate("runs/dates", [("3 mai 1979", "1979-05-03")])["exact_match"]
    0.0
    """
    if isinstance(run, LoadedModel):
        if data is None and run.origin is None:
            raise UserError("this model came from no run, so it has no splits; give it examples")
        model: LoadedModel | None = run
        path = run.origin.path if run.origin is not None else Path()
    else:
        model, path = None, Path(run)
    if data is None:
        found = evaluate_run(path, split=split, limit=limit, device=device, model=model)
        return RunScores(found.scores, found.examples, found.on, tuple(found.notes))
    model = model or load(path, device=device)
    config = model.recipe.data
    examples = [row.example for row in memory_rows(config, data, ReadContext())]
    if not examples:
        raise UserError("there is not a single example to score; give a list with at least one")
    scores, count, notes = score_examples(model, model.recipe, config, "test", examples, limit)
    return RunScores(scores, count, "your own", notes)
