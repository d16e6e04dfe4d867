"""Starting a run and going on with one. What a crash, a stop or a person may have left is put in order before the first step."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, nullcontext, suppress
from dataclasses import asdict
from pathlib import Path
from shlex import quote
from traceback import clear_frames
from typing import Any

import torch
from torch import Tensor

from glassformer.accel.compile_cache import compiler_loading
from glassformer.config import VERSION, Recipe
from glassformer.config.changes import as_prepared, changes, check_changes
from glassformer.config.recipe import RETIRED
from glassformer.data.batches import check_task
from glassformer.data.prepare import complete_model, prepare
from glassformer.data.report import DataReport
from glassformer.errors import UserError
from glassformer.evaluation.generated import metric_of, with_metric
from glassformer.files import durable
from glassformer.files.streams import unbreakable_screen
from glassformer.language import _
from glassformer.runs import checkpoint, staging
from glassformer.runs.checkpoint import read_checkpoint
from glassformer.runs.facts import Build, check_build
from glassformer.runs.fine_tune import write_start
from glassformer.runs.folder import RunFolder
from glassformer.runs.metrics_log import MetricsLog, PhaseClock, has_record, truncate_log
from glassformer.runs.overview import data_notes, overview
from glassformer.runs.session import Session, check_state
from glassformer.runs.setup import is_compiled, make_session, pick_device, refuse_several
from glassformer.runs.stop import Stopped, StopRequest
from glassformer.screen import at_work, be_quiet, say
from glassformer.training.memory import is_out_of_memory, less_memory
from glassformer.training.processes import ProcessLost, current, is_lost
from glassformer.training.progress import Callbacks, TrainerState


def out_of_memory(path: Path, recipe: Recipe, *, goes_on: bool) -> UserError:
    """The error when memory ran out: what is safe, and how to go on with less."""
    if not goes_on:
        return UserError(
            "out of memory before the first checkpoint; to train with less, {less_memory}", less_memory(recipe)
        )
    return UserError(
        "out of memory; what was saved before is intact. To go on with less, {less_memory}, as in: "
        "glassformer train {path} train.accumulate={accumulate} --resume --accept-changes",
        less_memory(recipe),
        quote(str(path)),
        2 * recipe.train.accumulate,
    )


@contextmanager
def friendly_errors(path: Path, recipe: Recipe, *, anew: bool = False) -> Iterator[None]:
    """Turns errors that a person can put right into sentences. The last checkpoint stands; a run replaced `anew` without one
    is back."""
    try:
        yield
    except BaseException as error:
        goes_on = True
        no_memory = is_out_of_memory(error) or (isinstance(error, OSError) and error.errno == errno.ENOMEM)
        if no_memory:
            # What the failed step still holds is let go: to put a run back takes some memory, too.
            clear_frames(error.__traceback__)
        with suppress(UserError, OSError):
            goes_on = not (anew and staging.put_back(path))
        if isinstance(error, Stopped):
            error.goes_on = goes_on
        if isinstance(error, OSError) and not isinstance(error, BrokenPipeError) and error.errno != errno.ENOMEM:
            where = error.filename or path
            if not goes_on:
                raise UserError(
                    "{where}: {reason}; put that right, then train again", where, error.strerror or error
                ) from error
            raise UserError(
                "{where}: {reason}; what was saved before is untouched. Put that right, then go on with: "
                "glassformer train {path} --resume",
                where,
                error.strerror or error,
                quote(str(path)),
            ) from error
        if is_lost(error):
            raise ProcessLost(
                "another process of this training has ended; what was saved before is untouched. Put right what it says, "
                "then go on with: glassformer train {path} --resume",
                quote(str(path)),
            ) from error
        if no_memory:
            raise out_of_memory(path, recipe, goes_on=goes_on) from error
        raise


def prepared(run: RunFolder, recipe: Recipe, given: Any = None, start: RunFolder | None = None) -> RunFolder:
    """Tokenizers, examples and token files (of the files the recipe names, or of `given`, data in memory), and at the very end
    the line in run.json that says they are there: a run that was stopped before it is prepared again from the start."""
    durable.fault_point("preparing")
    texts = prepare(recipe, run.path, given=given, old=None if start is None else start.tokenizers)
    model = None if start is None else start.recipe.model
    one_table = model is not None and model.source_vocab_size is None and model.share_source_target
    recipe = with_metric(complete_model(recipe, texts, one_table=one_table), run.path / "data")
    if start is not None:
        for note in write_start(run, start, recipe, texts.added):
            say(note)
    durable.fault_point("before-prepared")
    run.write_recipe(recipe, VERSION, run.prepared_files())
    return RunFolder(run.path)


def reset_stale_best(session: Session, trained_with: Recipe, recorded: str | None) -> None:
    """The best so far counts only if it was measured in the same way and is still there. `recorded`: the metric that the
    checkpoint names, which a recipe read today may pass over."""
    progress, best = session.trainer.progress, session.trainer.progress.best_step
    if best is None:
        return
    wrong = session.run.checkpoints.problem(best) if best != progress.step else None
    if wrong is not None:
        say(
            _(
                "the best checkpoint, of step {best}, cannot be used: {wrong}; the best is looked for again from here on",
                best,
                wrong,
            )
        )
    retired = recorded in RETIRED["train"]["metric"]
    if wrong is not None or retired or metric_of(trained_with) != metric_of(session.recipe):
        progress.best_step = progress.best_score = progress.best_loss = None
        progress.waiting = 0


def run_session(session: Session, callbacks: Callbacks) -> RunFolder:
    """Train to the end, with these callbacks, and leave the run behind."""
    session.trainer.callbacks.extend(callbacks)
    current().broadcast(asdict(session.trainer.progress))
    with at_work(_("planning the batches"), line=False):
        lines = overview(session)
    for line in lines:
        session.message(line)
    try:
        session.train()
    finally:
        session.log.close()
    return session.run


def make_run(
    recipe: Recipe, out: Path, stop: StopRequest, held: ExitStack, given: Any, start: RunFolder | None, build: Build
) -> Session:
    """A prepared run in its place, locked, and a session that is ready for its first step."""
    old = RunFolder(out) if RunFolder.is_run(out) else None
    was_there = old is None and out.is_dir()
    if old is not None:
        held.enter_context(old.exclusive_lock())
    made = staging.missing_parents(out)
    origin = start and {"path": str(start.path.resolve()), "id": start.id}
    draft = staging.create_draft(out, recipe, {"from": origin, "build": build and build.__name__})
    held.enter_context(draft.exclusive_lock())
    began = time.perf_counter()
    try:
        device = pick_device(recipe.train)
        compiling = is_compiled(recipe.train, device)
        with (
            stop.may_drop(),
            compiler_loading(device) if compiling else nullcontext(),
            at_work(_("preparing the data")),
        ):
            draft = prepared(draft, recipe, given, start)
    except BaseException as error:
        # Settings or data that cannot be: a folder that looks like a run would only be in the way. What a stop or a full
        # disk broke off can be gone on with.
        if (isinstance(error, UserError) and not stop.asked) or (old is not None and not old.prepared):
            staging.rollback(draft, out, None, made, keep_folder=was_there)
        else:
            staging.commit(draft, out)
        raise
    run, aside = staging.commit(draft, out)
    current().broadcast([os.path.abspath(run.path), None])
    ready = time.perf_counter()
    try:
        with stop.may_drop(), at_work(_("making the model and its batches"), line=False):
            session = make_session(run, run.recipe, run.tokenizers, stop, build)
    except UserError:
        staging.rollback(run, out, aside, made, keep_folder=was_there)
        raise
    session.clock.seconds["prepare"], session.clock.since = ready - began, ready
    return session


def train(
    recipe: Recipe,
    out: Path,
    *,
    overwrite: bool = False,
    callbacks: Callbacks = (),
    given: Any = None,
    start: RunFolder | None = None,
    build: Build = None,
) -> RunFolder:
    """Trains from nothing into a new or an empty folder. `overwrite`: a run that is there is replaced, and dropped when the new
    one has its first checkpoint. `given`: data in memory (data/readers.py) instead of files. `start`: the run whose weights and
    tokenizers it begins with (`recipe`: config/changes.py). `build` changes the model; run.json is marked with its name."""
    if current().rank != 0:
        return follow(callbacks, build) or RunFolder(out)
    # What cannot be measured or learned from is refused before anything is read.
    refuse_several(recipe)
    metric_of(recipe)
    check_task(recipe.data, recipe.model.family, recipe.model.head)
    stop = StopRequest()
    with unbreakable_screen(), friendly_errors(out, recipe, anew=True), stop.listening(), ExitStack() as held:
        staging.put_back(out)
        if RunFolder.is_run(out) and not overwrite:
            raise UserError(
                "{out} holds a run already; go on with it by --resume, or choose another folder with --out, "
                "or replace it by --overwrite",
                out,
            )
        session = make_run(recipe, out, stop, held, given, start, build)
        for note in data_notes(session):
            session.log.on_message(note)
            say(note)
        if session.config.metric != recipe.train.metric:
            session.message(
                _(
                    "best is by exact match, since most targets are shorter than four words, the runs of words that BLEU counts "
                    "(train.metric chooses another)"
                )
            )
        return run_session(session, callbacks)


def restored(run: RunFolder, step: int | None, trained_with: Recipe, stop: StopRequest, build: Build) -> Session:
    """A session at the checkpoint of `step`, with everything that came after it out of the way."""
    tensors: dict[str, dict[str, Tensor]] = {}
    state: dict[str, Any] = {}
    if step is not None:
        tensors, state = read_checkpoint(run.checkpoints.path(step))
        check_state(state, run.checkpoints.path(step))
    for path in run.checkpoints.move_aside_after(step or 0):
        say(_("{path} is kept for you to look at, and not used", path))
    for kept in (run.snapshots, run.history):
        for later in (s for s in kept.steps() if s > (step or 0)):
            checkpoint.remove(kept.path(later))
    truncate_log(run.metrics_file, state.get("metrics_bytes", 0))
    truncate_log(run.samples_file, state.get("samples_bytes", 0))
    current().broadcast([os.path.abspath(run.path), step])
    session = make_session(run, run.recipe, run.tokenizers, stop, build)
    restore(session, step, tensors, state)
    if step is not None:
        reset_stale_best(session, trained_with, state.get("recipe", {}).get("train", {}).get("metric"))
    return session


def restore(session: Session, step: int | None, tensors: dict[str, dict[str, Tensor]], state: dict[str, Any]) -> None:
    """Puts what a checkpoint holds into a session, if there is one."""
    run = session.run
    if step is not None:
        try:
            session.trainer.restore(tensors, state)
        except (KeyError, IndexError, TypeError, ValueError, RuntimeError) as error:
            if isinstance(error, UserError) or is_out_of_memory(error):
                raise
            raise checkpoint.Damaged(
                _(
                    "{path} cannot be used: what it holds is not what this run saves ({error})",
                    run.checkpoints.path(step),
                    error,
                )
            ) from error
        session.saved = session.screen.first = step
        session.clock.seconds |= state.get("seconds", {})
        threads = state.get("threads", torch.get_num_threads())
        if threads != torch.get_num_threads() and session.trainer.device.type == "cpu":
            say(
                _(
                    "trained with {threads} threads so far and with {get_num_threads} from here on: sums are made in "
                    "another order, so the last digits will differ (train.threads={threads} keeps them)",
                    threads,
                    torch.get_num_threads(),
                )
            )


def follow(callbacks: Callbacks = (), build: Build = None) -> RunFolder | None:
    """A rank other than 0: takes its part in the training that rank 0 starts or goes on with, and says nothing."""
    be_quiet(True)
    stop = StopRequest(silent=True)
    with stop.listening():
        try:
            place = current().broadcast(None)
            if place is None:
                return None
            run, step = RunFolder(Path(place[0])), place[1]
            with friendly_errors(run.path, run.recipe):
                session = make_session(run, run.recipe, run.tokenizers, stop, build)
                tensors, state = read_checkpoint(run.checkpoints.path(step)) if step is not None else ({}, {})
                restore(session, step, tensors, state)
                session.trainer.progress = TrainerState(**current().broadcast(None))
                session.trainer.callbacks.extend(callbacks)
                session.train()
        except (ProcessLost, RuntimeError) as error:
            if isinstance(error, ProcessLost) or is_lost(error):
                raise SystemExit(ProcessLost.exit_code) from None  # whoever ended first has said why
            raise
    return run


def resume(
    out: Path,
    wanted: Recipe | None = None,
    *,
    accept_changes: bool = False,
    callbacks: Callbacks = (),
    build: Build = None,
) -> RunFolder | None:
    """Goes on from the newest whole checkpoint, exactly as if the run had never stopped; None where it had ended already.
    `wanted`: with these settings, if they are not the run's own; a difference must be accepted."""
    if current().rank != 0:
        return follow(callbacks, build)
    staging.adopt(out)
    run = RunFolder.open(out)
    check_build(run.path, run.facts, build)
    if not run.prepared:
        return prepare_again(run, wanted, accept_changes, callbacks, build)
    stop = StopRequest()
    with unbreakable_screen(), friendly_errors(out, wanted or run.recipe), stop.listening(), run.exclusive_lock():
        with stop.may_drop():
            run.recover()
            wanted = run.recipe if wanted is None else as_prepared(wanted, run.recipe)
            refuse_several(wanted)
            run.refuse_damaged(run.file_problems())
            step = run.latest_checkpoint(say)
            state = run.checkpoints.state(step) if step is not None else {}
            trained_with = Recipe.from_dict(state["recipe"], stored=True) if "recipe" in state else run.recipe
            # What was confirmed once is in run.json, under its seal; what came into run.json in another way is not.
            changed = changes(run.recipe if run.sealed else trained_with, wanted)
            check_changes(changed, accepted=accept_changes)
            if not changed and (ended := run.finished()) is not None:
                current().broadcast(None)
                if has_record(run.metrics_file) or not run.metrics():
                    say(
                        _("{out} has been trained to its end, step {ended}; there is nothing to go on with", out, ended)
                    )
                    return None
                say(_("{out} has been trained to its end, step {ended}; only its last words were missing", out, ended))
                with closing(MetricsLog(run.metrics_file)) as log:
                    log.write({"step": ended, "seconds": PhaseClock(torch.device("cpu")).record()})
                return run
            for change in changed:
                say(_("from here on with {change}", change))
            if changed or not run.sealed:
                run.write_recipe(wanted, VERSION, run.facts["files"])
                run = RunFolder(out)
            if (report := DataReport.read(run.path / "data")) is not None:
                for note in report.changed_files():
                    say(note)
            session = restored(run, step, trained_with, stop, build)
        return run_session(session, callbacks)


def prepare_again(
    run: RunFolder, wanted: Recipe | None, accept_changes: bool, callbacks: Callbacks, build: Build
) -> RunFolder:
    """A run that was stopped before it was prepared begins again, in a folder made anew."""
    if run.checkpoints.steps() or run.final.exists():
        raise UserError(
            "{path} has weights, and its run.json does not list what they were trained on; bring run.json back from "
            "a copy, or train anew",
            run.path,
        )
    if wanted is not None and wanted != run.recipe and not accept_changes:
        check_changes(changes(run.recipe, wanted), accepted=False)
    start = None
    if (origin := run.facts.get("from")) is not None:
        start = RunFolder.open(str(origin.get("path")))
        if start.id != origin.get("id"):
            raise UserError(
                "{start} is not the run that {run} was to begin with; bring that back, or train anew",
                start.path,
                run.path,
            )
    return train(wanted or run.recipe, run.path, overwrite=True, callbacks=callbacks, start=start, build=build)
