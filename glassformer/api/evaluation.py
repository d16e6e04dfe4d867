"""`glassformer.evaluate(run, ...)`: scores of a finished run, on a split that it has kept, on files that came later or on
examples in memory, for every task.

What the model writes is written as the recipe's [decode] says, by beam search as a rule; a validation during training writes
greedily, so its BLEU may be a little lower. The loss is the model's own, over examples that fit its block; how many do not is
said. A split that the run does not have is replaced by one that it has, and that is said, too.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from glassformer.api.loading import load
from glassformer.api.models import LoadedModel
from glassformer.config import DataConfig, Recipe, did_you_mean
from glassformer.config.data import DataFile
from glassformer.config.recipe import apply_override
from glassformer.data.batches import Batch, SentenceBatches, recipe_batches
from glassformer.data.encoding import encode_split, open_files
from glassformer.data.files import ReadContext
from glassformer.data.origins import origins_of
from glassformer.data.readers import WHERE, records_in, rows_of
from glassformer.data.sources import open_split
from glassformer.data.splits import SPLITS
from glassformer.data.store import run_examples, stored_splits
from glassformer.data.transforms import PERTURBATIONS, perturbed
from glassformer.errors import ConfigError, UserError
from glassformer.evaluation.generated import example_scores
from glassformer.evaluation.metrics import Scores, measures_text
from glassformer.evaluation.teacher_forced import teacher_forced
from glassformer.language import _, localized
from glassformer.runs.folder import RunFolder
from glassformer.screen import Progress, at_work
from glassformer.tasks import TextModel

OF_FILES = ("builtin", "path", "train", "train_target", "val", "val_target", "test", "test_target")


class RunScores(Mapping[str, float]):
    """Scores by their names; also on how many `examples` (of a text: blocks), of what (`on`), of which `weights`, their
    `signatures`, a few `samples` (source, wanted, written), and `notes` where something is to be said.

    >>> found = RunScores(Scores({"exact_match": 50.0}), 2, "val")
    >>> found["exact_match"], found
    (50.0, RunScores on 2 examples of val: exact match 50.00%)
    """

    def __init__(
        self, scores: Scores, examples: int, on: str, notes: Sequence[str] = (), weights: str = "final weights"
    ) -> None:
        self.scores, self.examples, self.on, self.notes, self.weights = scores, examples, on, tuple(notes), weights
        self.signatures, self.samples = scores.signatures, scores.samples

    def __getitem__(self, name: str) -> float:
        return self.scores.values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.scores.values)

    def __len__(self) -> int:
        return len(self.scores.values)

    def __repr__(self) -> str:
        return f"RunScores on {self.examples:,} examples of {self.on}: {measures_text(self, ', ')}"


def with_overrides(recipe: Recipe, overrides: Sequence[str]) -> Recipe:
    """The run's recipe with other settings of how data is read and of how answers are searched for."""
    values = recipe.to_dict()
    for override in overrides:
        if not override.startswith(("data.", "decode.")):
            raise ConfigError(
                "{override!r}: a finished run takes settings of data and decode, such as data.format=csv", override
            )
        apply_override(values, override)
    return Recipe.from_dict(values)


def file_settings(data: DataConfig, files: Sequence[Path], overridden: bool) -> DataConfig:
    """The run's way of reading, pointed at other files: one, or two aligned ones for pairs. Their format follows from their
    names unless it was asked for. They are read as they are given, source first, also by a run that swaps its own."""
    if len(files) == 2 and data.task != "pairs":
        raise UserError("two aligned files are for a run that learns from pairs; give one file")
    target = str(files[1]) if len(files) == 2 else None
    named = DataFile(path=str(files[0]), target=target)
    changes: dict[str, Any] = dict.fromkeys(OF_FILES) | {"test": (named,), "swap": False}
    if not overridden:
        changes["format"] = "lines" if target is not None else "auto"
    return dataclasses.replace(data, **changes)


def kept_split(run: RunFolder, split: str | None) -> tuple[str, tuple[str, ...]]:
    """The split to score on: the one asked for, or test, or where there is none the one there is, which is said."""
    if split is not None and split not in SPLITS:
        raise UserError("split is train, val or test, not {split!r}", split)
    if split is not None:
        return split, ()
    kept = stored_splits(run.path / "data")
    # Of a run that kept no examples.
    if not kept and run.recipe.data.task == "text" and run.recipe.data.builtin is None:
        kept = ("train", "val", "test") if run.recipe.data.test is not None else ("train", "val")
    if not kept or "test" in kept:
        return "test", ()
    instead = "val" if "val" in kept else kept[0]
    return instead, (
        _("this run has no test split; these are the scores on {split}, which chose its weights", instead),
    )


def evaluate_run(
    path: Path,
    *,
    split: str | None = None,
    files: Sequence[Path] = (),
    overrides: Sequence[str] = (),
    limit: int | None = None,
    device: str = "auto",
    model: LoadedModel | None = None,
    perturb: str | None = None,
) -> RunScores:
    """Scores of a run on one of its splits or on files, one or two aligned ones; of at most `limit` examples. `model`: the run's
    model as it is in memory, in the place of the weights on disk. `perturb`: on pairs changed so (data/transforms.py)."""
    run = RunFolder.open(path)
    recipe = with_overrides(run.recipe, overrides)
    if files and split is not None:
        raise UserError(
            "{files} are no split of the run; leave out the split or the files", " and ".join(map(str, files))
        )
    changed = {override.partition("=")[0] for override in overrides}
    notes: tuple[str, ...] = ()
    examples: Any
    folder: Path | None = None
    if files:
        data = file_settings(recipe.data, files, "data.format" in changed)
        examples, on, split = open_split(data, "test"), " and ".join(map(str, files)), "test"
    elif any(key.startswith("data.") for key in changed):
        data, split = recipe.data, split or "test"
        examples, on = open_split(data, split), f"{split}, read anew"  # type: ignore[arg-type]
    else:
        split, notes = kept_split(run, split)
        data, on, folder = recipe.data, split, run.path / "data"
        run.check_data(split)
        examples = run_examples(data, split, folder)  # type: ignore[arg-type]
    if perturb is not None:
        if data.task != "pairs":
            raise UserError("perturb changes the sources of pairs, and this run learned {task}", data.task)
        if perturb not in PERTURBATIONS:
            raise UserError("perturb is one of {known}, not {perturb!r}", ", ".join(PERTURBATIONS), perturb)
        examples, on, folder = perturbed(examples, perturb), f"{on}, {perturb}", None
    with at_work(_("reading the examples and the model")):
        examples = examples if data.task == "text" else list(itertools.islice(examples, limit))
        model = load(path, device=device) if model is None else model
    scores, count, more = score_examples(model, recipe, data, split, examples, limit, folder)
    weights = model.origin.weights if model.origin is not None else "final weights"
    return RunScores(scores, count, on, (*notes, *more), weights)


def score_examples(
    model: TextModel,
    recipe: Recipe,
    data: DataConfig,
    split: str,
    examples: Iterable[Any],
    limit: int | None,
    folder: Path | None = None,
) -> tuple[Scores, int, tuple[str, ...]]:
    """The scores, on how many examples, and what is to be said about them. `folder`: where the split's tokens may lie."""
    is_text = data.task == "text"
    first: Any = examples if is_text else list(itertools.islice(examples, limit))
    budget = max(256, 2**25 // max(1, recipe.model.vocab_size))
    count = 0

    def counted(batches: Iterable[Batch]) -> Iterator[Batch]:
        nonlocal count
        with Progress(localized(_("measuring the loss")), None if is_text else len(first)) as display:
            for batch in batches:
                count += len(batch.examples)
                yield batch
                display.update(count, f"{count:,}")

    with TemporaryDirectory() as temporary:
        place = Path(temporary)
        if is_text and folder is not None and any(folder.glob(f"{split}.*.tokens")):
            place = folder
        else:
            encode_split(data, split, first, model.tokenizers, place)
        files = open_files(data, split, place)
        batches = recipe_batches(dataclasses.replace(recipe, data=data), files, layout="padded", training=False)
        notes: tuple[str, ...] = ()
        scores = Scores({})
        if is_text or (isinstance(batches, SentenceBatches) and len(batches.kept)):
            scores = teacher_forced(model._model, counted(batches.in_order(budget, limit=limit)), model.device)
        if batches.dropped:
            block = recipe.model.block_size
            notes = (
                _(
                    "{dropped:,} of {n_first:,} examples have more than {block} tokens and no loss",
                    batches.dropped,
                    len(first),
                    block,
                ),
            )
    if is_text:
        return scores, count, notes
    own = example_scores(model._model, model.tokenizers, recipe, first, edits=True)
    return scores | own, len(first), notes


def pairs_of_files(model: TextModel, files: Sequence[Path], overrides: Sequence[str]) -> Iterator[Any]:
    """The examples of files as a model scores them: pairs; or texts, a line each, where it learned from text."""
    recipe = with_overrides(model.recipe, overrides)
    asked = any(override.startswith("data.format=") for override in overrides)
    data = file_settings(recipe.data, files, asked)
    if data.task == "text" and not asked and origins_of(data, "test")[0].format == "text":
        data = dataclasses.replace(data, format="lines")
    for example in open_split(data, "test"):
        yield example.text if data.task == "text" else example


def evaluate(
    run: str | Path | LoadedModel,
    data: Any = None,
    *,
    split: str | None = None,
    limit: int | None = None,
    device: str = "auto",
    file: str | Path | None = None,
    **unknown: Any,
) -> RunScores:
    """Scores of a run on one of its splits (test, where it has one), or on examples of your own: a list of (source, target),
    (text, label) or (words, tags), a table with those fields, or a `file` in a format of training data. A model is scored as
    it is in memory, ablated or changed.

    >>> evaluate("runs/dates", [("3 mai 1979", "1979-05-03")])["exact_match"]
    0.0
    """
    for name in unknown:
        known = ("data", "split", "limit", "device", "file")
        raise UserError("evaluate takes no {name!r}{suggestion}", name, did_you_mean(name, known))
    if data is not None and file is not None:
        raise UserError("evaluate scores a file or examples of your own; leave one of them out")
    given, on = (data, "your own") if file is None else (file, str(file))
    if isinstance(run, LoadedModel):
        if given is None and run.origin is None:
            raise UserError("this model came from no run, so it has no splits; give it examples")
        model: LoadedModel | None = run
        path = run.origin.path if run.origin is not None else Path()
    else:
        model, path = None, Path(run)
    if model is not None and device != "auto":
        raise UserError("a model is where it is; move it with .to({device!r}), and leave device out", device)
    if given is not None and split is not None:
        raise UserError("examples of your own are no split of the run; leave split or the examples out")
    if given is None:
        return evaluate_run(path, split=split, limit=limit, device=device, model=model)
    model = model or load(path, device=device)
    config = model.recipe.data
    if file is not None:
        examples = list(pairs_of_files(model, [Path(file)], []))
    else:
        rows = rows_of(config, enumerate(records_in(data), 1), WHERE, ReadContext())
        examples = [row.example for row in rows]
    if not examples:
        raise UserError("there is not a single example to score; give a list with at least one")
    scores, count, notes = score_examples(model, model.recipe, config, "test", examples, limit)
    return RunScores(scores, count, on, notes)
