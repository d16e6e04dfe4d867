"""Starting a run and going on with one. Everything that a crash, a stop or a person may have left is put in order here,
before the first step."""

from __future__ import annotations

import errno
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor

from glassformer import checkpoint
from glassformer.checkpoint import read_checkpoint
from glassformer.config import VERSION, Recipe
from glassformer.data.prepare import complete_model, prepare
from glassformer.errors import UserError
from glassformer.files import durable
from glassformer.run_folder import RunFolder
from glassformer.runs.data_notes import changed_sources, data_notes
from glassformer.runs.metrics_log import truncate_log
from glassformer.runs.session import Session
from glassformer.runs.setup import make_session
from glassformer.runs.stop import StopRequest
from glassformer.runs.validation import metric_of
from glassformer.train.changes import as_prepared, changes, check_changes
from glassformer.train.memory import is_out_of_memory, less_memory
from glassformer.train.trainer import Watcher


def log(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def out_of_memory(path: Path, recipe: Recipe) -> UserError:
    return UserError(
        f"out of memory; what was saved before is intact. To go on with less, {less_memory(recipe)}, as in: "
        f"glassformer train {path} train.accumulate={2 * recipe.train.accumulate} --resume --accept-changes"
    )


@contextmanager
def friendly_errors(path: Path, recipe: Recipe) -> Iterator[None]:
    """What a person can put right is told in a sentence. Nothing is saved on the way out: the last checkpoint stands."""
    try:
        yield
    except (UserError, BrokenPipeError):
        raise
    except OSError as error:
        if error.errno != errno.ENOMEM:
            where = error.filename or path
            raise UserError(
                f"{where}: {error.strerror or error}; what was saved before is untouched. Put that right, then go on with: "
                f"glassformer train {path} --resume"
            ) from error
        raise out_of_memory(path, recipe) from error
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        raise out_of_memory(path, recipe) from error


def prepared(run: RunFolder, recipe: Recipe, given: Any = None) -> RunFolder:
    """Tokenizers, examples and token files (of the files the recipe names, or of `given`, data in memory), and at the very end
    the line in run.json that says they are there: a run that was stopped before it is prepared again from the start."""
    durable.fault_point("preparing")
    for left in [*(run.path / "data").glob("*"), *run.path.glob("tokenizer*.json*"), *run.path.glob("labels.json")]:
        left.unlink()
    texts = prepare(recipe, run.path, given=given)
    durable.fault_point("before-prepared")
    run.write_recipe(complete_model(recipe, texts), VERSION, run.prepared_files())
    return RunFolder(run.path)


def reset_stale_best(session: Session, trained_with: Recipe) -> None:
    """The best so far counts only if it was measured in the same way and is still there."""
    progress, best = session.trainer.progress, session.trainer.progress.best_step
    if best is None:
        return
    wrong = checkpoint.problem(session.run.checkpoints.path(best)) if best != progress.step else None
    if wrong is not None:
        log(f"the best checkpoint, of step {best}, cannot be used: {wrong}; the best is looked for again from here on")
    if wrong is not None or metric_of(trained_with) != metric_of(session.recipe):
        progress.best_step = progress.best_score = None
        progress.waiting = 0


def run_session(session: Session, watchers: Sequence[Watcher]) -> RunFolder:
    session.trainer.watchers.extend(watchers)
    try:
        session.train()
    finally:
        session.log.close()
    return session.run


def train(
    recipe: Recipe, out: Path, *, overwrite: bool = False, watchers: Sequence[Watcher] = (), given: Any = None
) -> RunFolder:
    """Trains from nothing into a new folder. `given`: data in memory (see data/memory.py) instead of the recipe's files."""
    if overwrite and RunFolder.is_run(out):
        with RunFolder(out).exclusive_lock():
            shutil.rmtree(out)
    ours = not out.is_dir() or not any(out.iterdir())
    run = RunFolder.create(out, recipe, VERSION)
    stop = StopRequest()
    with friendly_errors(out, recipe), stop.listening(), run.exclusive_lock():
        with stop.may_drop():
            try:
                run = prepared(run, recipe, given)
                session = make_session(run, run.recipe, run.tokenizers, stop)
            except UserError:
                # Settings or data that cannot be: a folder that looks like a run would only be in the way.
                if not stop.asked:
                    (run.path / "run.json").unlink(missing_ok=True)
                    if ours:
                        shutil.rmtree(run.path, ignore_errors=True)
                raise
        for note in data_notes(run.path, run.recipe, session.trainer.batches, session.val_batches):
            log(note)
        return run_session(session, watchers)


def resume(
    out: Path, wanted: Recipe | None = None, *, accept_changes: bool = False, watchers: Sequence[Watcher] = ()
) -> RunFolder | None:
    """Goes on from the newest whole checkpoint, exactly as if the run had never stopped; None where it had ended already.
    `wanted`: with these settings, if they are not the run's own; a difference must be accepted."""
    run = RunFolder.open(out)
    stop = StopRequest()
    with friendly_errors(out, wanted or run.recipe), stop.listening(), run.exclusive_lock():
        with stop.may_drop():
            run.recover()
            wanted = run.recipe if wanted is None else as_prepared(wanted, run.recipe)
            if not run.prepared:
                if wanted != run.recipe and not accept_changes:
                    check_changes(changes(run.recipe, wanted), accepted=False)
                run = prepared(run, wanted)
                wanted = run.recipe
            for name, wrong in run.file_problems().items():
                if wrong is not None:
                    raise UserError(
                        f"{run.path / name} cannot be used: {wrong}; bring it back from a copy, or train anew"
                    )
            step = run.latest_checkpoint(log)
            state: dict[str, Any] = {"metrics_bytes": 0, "samples_bytes": 0}
            tensors: dict[str, dict[str, Tensor]] = {}
            if step is not None:
                tensors, state = read_checkpoint(run.checkpoints.path(step))
            trained_with = Recipe.from_dict(state["recipe"]) if "recipe" in state else run.recipe
            # What was confirmed once is in run.json, under its seal; what came into run.json in another way is not.
            found = changes(run.recipe if run.sealed else trained_with, wanted)
            check_changes(found, accepted=accept_changes)
            if not found and (ended := run.finished()) is not None:
                log(f"{out} has been trained to its end, step {ended}; there is nothing to go on with")
                return None
            for change in found:
                log(f"from here on with {change}")
            if found or not run.sealed:
                run.write_recipe(wanted, VERSION, run.facts["files"])
                run = RunFolder(out)
            for note in changed_sources(run.path):
                log(note)
            for path in run.checkpoints.set_aside_after(step or 0):
                log(f"{path} is kept for you to look at, and not used")
            for kept in (run.snapshots, run.history):
                for later in (s for s in kept.steps() if s > (step or 0)):
                    checkpoint.remove(kept.path(later))
            truncate_log(run.metrics_file, state["metrics_bytes"])
            truncate_log(run.samples_file, state["samples_bytes"])
            session = make_session(run, run.recipe, run.tokenizers, stop)
            if step is not None:
                session.trainer.restore(tensors, state)
                session.saved = session.screen.first = step
                reset_stale_best(session, trained_with)
        return run_session(session, watchers)
