"""A run is a folder, and every verb accepts it.

run.json            the recipe with everything resolved, the version that wrote it, the run's id, the files of the
                    preparation with their SHA-256, the trials by which its kernels were chosen, and a seal
recipe.toml         the same recipe to be read, and trained again elsewhere; the run itself goes by run.json
tokenizer.json      (or tokenizer.source.json and tokenizer.target.json), labels.json
data/               the examples as text and as token files (safetensors), and a report of where they are from
checkpoints/        the latest few and the best; see runs/checkpoint.py
snapshots/          weights alone, for averaging
history/            weights alone at steps 0, 10, 30, 100, 300 …: a small model's beginnings, to look at
start/              the weights that a fine-tuning begins with
final/              the weights one uses, once training has ended
metrics.jsonl       a line for each log interval and each validation; in the end, the seconds of each phase
train.log           what was said on the screen
samples.jsonl, curves.png, curves.svg; shortlist.safetensors of a student (decode/shortlist.py)

The folder is made by the run, and the names above are all it ever writes, replaces or removes: whatever else lies there is
somebody's. What is used is checked first, each file once a process.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from shlex import quote
from typing import Any

import torch

from glassformer.config import Recipe
from glassformer.config.recipe import plain_recipe
from glassformer.data.cache import made_in
from glassformer.data.encoding import trained_length
from glassformer.decode.shortlist import kept_shortlist
from glassformer.errors import UserError
from glassformer.files import durable, owned, structured
from glassformer.files.durable import ListedFile, sha256, to_json, write_atomically
from glassformer.language import _
from glassformer.models import BERT, GPT, Transformer, build_model
from glassformer.models.weights import check_finite, check_fits, inference_weights, load_model_tensors
from glassformer.runs import checkpoint
from glassformer.runs.checkpoint import Checkpoints, problem, read_checkpoint, recover
from glassformer.runs.facts import OWN, Build, check_build, is_run, read_facts, seal_of, size_problem, write_facts
from glassformer.screen import warn
from glassformer.text.tokenizers import Tokenizers

TOLD: set[str] = set()
"""The sentences that this process has reported already."""


@dataclass(frozen=True)
class RunFolder:
    """One run, by the folder it is."""

    path: Path
    in_the_making: bool = False  # whoever makes it looks at it before it is finished

    is_run = staticmethod(is_run)

    @staticmethod
    def create(path: Path, recipe: Recipe, version: str, origin: dict[str, Any] | None = None) -> RunFolder:
        """A new run in a new or an empty folder; nothing else is ever touched."""
        owned.require_new_or_empty(path, _("a run"))
        folder = RunFolder(path)
        try:
            path.mkdir(parents=True, exist_ok=True)
            folder.write_recipe(recipe, version, origin=origin)
        except OSError as error:
            raise UserError(
                "the run's folder {path} cannot be made: {reason}", path=path, reason=error.strerror
            ) from None
        return folder

    @staticmethod
    def open(path: str | Path) -> RunFolder:
        """The run in a folder; where there is none, a sentence says so."""
        path = Path(path)
        if not path.exists():
            raise UserError("there is no run {path}; `glassformer train` makes one", path=path)
        if not RunFolder.is_run(path):
            raise UserError("{path} is not a run: it has no run.json", path=path)
        return RunFolder(path)

    @property
    def see_doctor(self) -> str:
        """The end of a sentence about a damaged run: which command finds out what is wrong."""
        return _("see `glassformer doctor {path}`", path=quote(str(self.path)))

    def unusable(self, path: Path, wrong: str) -> UserError:
        """For something in it that is damaged or another's."""
        return UserError("{path} cannot be used: {wrong}; {see}", path=path, wrong=wrong, see=self.see_doctor)

    def discard(self, *, keep_folder: bool = False) -> list[str]:
        """Removes what the run wrote, file by file, and the folder if nothing else is in it; what is left, by name."""
        listed: dict[str, Any] = {}
        with suppress(UserError):
            listed = self.facts.get("files", {})
        return owned.remove_own(
            self.path, lambda n: n in listed or OWN.fullmatch(n) is not None, keep_folder=keep_folder
        )

    # ---- run.json

    def write_recipe(
        self, recipe: Recipe, version: str, files: dict[str, Any] | None = None, *, origin: dict[str, Any] | None = None
    ) -> None:
        """`files`: what the preparation left, with sizes and SHA-256; without it the run is not prepared yet. `origin`: of a
        new run, `from` which other one it begins and what changed its model (`build`)."""
        facts: dict[str, Any] = {"glassformer": version, "recipe": recipe.to_dict()}
        known = self.facts if self.is_run(self.path) else {"id": uuid.uuid4().hex, **(origin or {})}
        facts |= {name: known[name] for name in ("id", "from", "build", "trials") if known.get(name) is not None}
        if files is not None:
            facts["files"] = files
        write_facts(self.path, facts)
        write_atomically(self.path / "recipe.toml", plain_recipe(recipe).encode("utf-8", "replace"))

    @cached_property
    def facts(self) -> dict[str, Any]:
        """run.json, held against its schema."""
        return read_facts(self.path)

    @property
    def id(self) -> str | None:
        """The run's unique id; runs of earlier versions have none."""
        return self.facts.get("id")

    @property
    def sealed(self) -> bool:
        """Whether run.json is to the byte as this package wrote it, and not changed by hand or by accident."""
        if self.facts.get("seal") != seal_of(self.facts):
            return False
        with suppress(OSError, UserError):
            return structured.read_regular(self.path / "run.json") == to_json(self.facts)
        return False

    @cached_property
    def recipe(self) -> Recipe:
        """The resolved recipe, the model's sizes included."""
        return Recipe.from_dict(self.facts["recipe"], stored=True)

    # ---- what the preparation left

    @cached_property
    def tokenizers(self) -> Tokenizers:
        """The tokenizers and labels, checked against their SHA-256 and against the sizes of the model."""
        for name in self.facts.get("files", {}):
            if not name.startswith("data/") and (wrong := self.file_problem(name)) is not None:
                raise self.unusable(self.path / name, _("it {wrong}", wrong=wrong))
        loaded = Tokenizers.load(self.path, self.facts.get("files"))
        if self.prepared and (wrong := size_problem(loaded, self.recipe.model)) is not None:
            raise self.unusable(self.path, wrong)
        return loaded

    @property
    def prepared(self) -> bool:
        """Whether the data have been read, split and tokenised."""
        return "files" in self.facts

    def prepared_files(self) -> dict[str, dict[str, Any]]:
        """Tokenizers, labels, examples and token files as they are now, for run.json."""
        return {
            name: {"size": path.stat().st_size, "sha256": sha256(path)}
            for name, path in sorted(made_in(self.path).items())
            if path.is_file()
        }

    def file_problems(self) -> dict[str, str | None]:
        """Each file of the preparation, and what is wrong with it; every byte is read."""
        return {name: self.file_problem(name, again=True) for name in self.facts.get("files", {})}

    def file_problem(self, name: str, *, again: bool = False) -> str | None:
        """The problem of a file of the preparation, in words; None if it is as it was written."""
        listed = self.facts["files"][name]
        expected = ListedFile(listed["size"], listed["sha256"])
        return durable.file_problem(self.path / name, expected, again=again)

    def check_data(self, split: str) -> None:
        """Refuses a split whose prepared files have changed, before anything is measured on it. Runs of earlier versions
        list nothing."""
        listed = self.facts.get("files", {})
        patterns = (f"data/{split}.examples.gz", f"data/{split}.*.tokens")
        present = {p.relative_to(self.path).as_posix() for pattern in patterns for p in self.path.glob(pattern)}
        names = sorted(present | {n for n in listed if n.startswith(f"data/{split}.")}) if listed else []
        self.refuse_damaged({n: self.file_problem(n) if n in listed else _("is not of this run") for n in names})

    def refuse_damaged(self, problems: Mapping[str, str | None]) -> None:
        """An error for the first of these files, by name, with which anything is wrong."""
        for name, wrong in problems.items():
            if wrong is not None:
                raise UserError(
                    "{path} cannot be used: it {wrong}; bring it back from a copy, or train anew ({see_doctor})",
                    path=self.path / name,
                    wrong=wrong,
                    see_doctor=self.see_doctor,
                )

    # ---- weights

    def saved_in(self, name: str) -> Checkpoints:
        """Checkpoints in a folder of the run, which must be this run's; without a run.json to know it by, anybody's."""
        with suppress(UserError):
            return Checkpoints(self.path / name, self.id)
        return Checkpoints(self.path / name)

    @property
    def checkpoints(self) -> Checkpoints:
        """Weights and all the state of training, to go on from."""
        return self.saved_in("checkpoints")

    @property
    def snapshots(self) -> Checkpoints:
        """Weights alone, kept to be averaged (`train.average_last`)."""
        return self.saved_in("snapshots")

    @property
    def history(self) -> Checkpoints:
        """Weights at logarithmic steps, so that one can see heads being born (`look --across`)."""
        return self.saved_in("history")

    @property
    def start(self) -> Path:
        """The weights that a fine-tuning begins with."""
        return self.path / "start"

    @property
    def final(self) -> Path:
        """The weights that the run is used by, once it has ended."""
        return self.path / "final"

    @property
    def has_weights(self) -> bool:
        """Whether anything was saved that it could be used by."""
        return bool(self.checkpoints.steps()) or os.path.lexists(self.final)

    def finished(self) -> int | None:
        """The step at which training ended and left the final weights, whole; None while there is more to do: none were
        left, or training went on after them, or the run has since been given more steps."""
        if not self.final.is_dir() or self.final_problem() is not None:
            return None
        step = checkpoint.read_state(self.final).get("step")
        steps = self.checkpoints.steps()
        if not isinstance(step, int) or (steps and steps[-1] > step):
            return None
        train, waiting = self.recipe.train, self.checkpoints.state(steps[-1]).get("waiting", 0) if steps else None
        out_of_patience = waiting is None or (train.patience is not None and waiting >= train.patience)
        return step if step >= train.steps or out_of_patience else None

    def recover(self) -> None:
        """Puts in order what a crash left behind: see `checkpoint.recover`."""
        for folder in self.folders_of_weights():
            recover(folder)

    def folders_of_weights(self) -> list[Path]:
        """The folders in which weights are written and removed."""
        return [self.path, *(self.path / name for name in ("checkpoints", "snapshots", "history"))]

    def leftovers(self) -> list[Path]:
        """The paths that a crash left half written or half removed; `recover` deals with them."""
        paths = [p for folder in self.folders_of_weights() for p in checkpoint.half_done(folder)]
        return sorted(paths + list((self.path / "data").glob("*.part")))

    def latest_checkpoint(self, report: Callable[[str], None] = lambda _: None) -> int | None:
        """The step to go on from; None where nothing was saved yet. Checkpoints of which none is whole are not the same thing:
        to begin again from nothing is for a person to decide."""
        step = self.checkpoints.latest_good(report)
        if step is None and self.checkpoints.steps():
            raise UserError(
                "not one checkpoint in {folder} can be used ({see_doctor}); bring one back "
                "from a copy, or move that folder away and --resume to train again from the beginning",
                folder=self.checkpoints.folder,
                see_doctor=self.see_doctor,
            )
        return step

    def exclusive_lock(self) -> AbstractContextManager[None]:
        """Two processes that train in one folder would ruin it; the second is refused. A kill frees the place."""
        refusal = _("another process is training in {path}; let it end, or stop it first", path=self.path)
        return owned.exclusive_lock(self.path / ".lock", refusal)

    # ---- what was written along the way

    @property
    def metrics_file(self) -> Path:
        """A line for each interval and each validation; `metrics` reads it."""
        return self.path / "metrics.jsonl"

    @property
    def samples_file(self) -> Path:
        """The file of the model's answers at each validation, beside the references."""
        return self.path / "samples.jsonl"

    def metrics(self) -> list[dict[str, Any]]:
        """The numbers of metrics.jsonl, line by line, that can be read: a torn one is no reason to do without the others."""
        try:
            lines = structured.read_regular(self.metrics_file, 1 << 30).split(b"\n")
        except (OSError, UserError):
            return []
        records = []
        for line in lines:
            with suppress(ValueError, RecursionError):
                value = json.loads(line)
                if isinstance(value, dict) and isinstance(value.get("step"), int) and "seconds" not in value:
                    records.append({name: number for name, number in value.items() if isinstance(number, int | float)})
        return records

    # ---- the model

    def final_problem(self) -> str | None:
        """The problem of the final weights, which may be damaged or another run's; None where they are whole."""
        wrong = problem(self.final)
        if wrong is None:
            try:
                state = checkpoint.read_state(self.final)
            except checkpoint.Damaged as error:
                return str(error)
            if self.id is not None and state.get("run", self.id) != self.id:
                return _("they are the final weights of another run")
            if not (self.prepared or self.in_the_making) and "imported" in state.get("weights", {}):
                return _(
                    "the import was broken off before the run was compared with its source; remove it and import again"
                )
        return wrong

    def weights_folder(self, step: int | None = None, report: Callable[[str], None] = warn) -> Path:
        """The folder of the weights to use: the final ones; before the run has ended, the best or the latest checkpoint's, and
        then `report` is told so. Final weights that are damaged are not replaced by others in silence: they are refused."""
        if step is not None:
            kept = (self.checkpoints, self.snapshots, self.history)
            saved = next((c for c in kept if step in c.steps()), None)
            if saved is None:
                there = ", ".join(map(str, sorted({s for c in kept for s in c.steps()}))) or "none"
                raise UserError("{path} has no checkpoint of step {n}; there are: {there}", self.path, step, there)
            if (wrong := saved.problem(step)) is not None:
                raise self.unusable(saved.path(step), wrong)
            return saved.path(step)
        if self.final.exists() or self.final.is_symlink():
            if (wrong := self.final_problem()) is not None:
                error = self.unusable(self.final, wrong)
                raise UserError("{error}, or choose a checkpoint by --step", error=error)
            return self.final
        latest = self.latest_checkpoint(report)
        if latest is None:
            raise UserError("{path} has no weights yet: not one checkpoint has been written", path=self.path)
        best, kind = self.checkpoints.state(latest).get("best_step"), _("latest")
        if isinstance(best, int) and best in self.checkpoints.steps() and self.checkpoints.problem(best) is None:
            latest, kind = best, _("best")
        sentence = _(
            "{run.path} has no final weights (training has not ended); using its {kind} checkpoint, of step {step}",
            run=self,
            kind=kind,
            step=latest,
        )
        if sentence not in TOLD:
            TOLD.add(sentence)
            report(sentence)
        return self.checkpoints.path(latest)

    def check_recipe(self) -> None:
        """A run.json that somebody changed may describe another model than the weights are of, and nothing would show it
        but the answers: it must be the one that was sealed."""
        if not self.sealed:
            raise UserError(
                "{path} has been changed since it was written, so its answers could be another model's; "
                "bring it back from a copy ({see_doctor})",
                path=self.path / "run.json",
                see_doctor=self.see_doctor,
            )

    def load_model(
        self,
        *,
        step: int | None = None,
        device: str | torch.device = "cpu",
        report: Callable[[str], None] = warn,
        build: Build = None,
    ) -> Transformer | GPT | BERT:
        """The trained model, ready to use; `build`: with which it was trained."""
        check_build(self.path, self.facts, build)
        folder = self.weights_folder(step, report)
        tensors, _unused = read_checkpoint(folder)
        self.check_recipe()
        if "model" not in tensors:
            raise self.unusable(folder, _("it holds no model"))
        weights = inference_weights(tensors)
        check_finite(weights, folder)
        check_fits(self.recipe, weights, folder)
        model = build_model(self.recipe.model)
        model = model if build is None else build(model)
        load_model_tensors(model, weights)
        model.shortlist = kept_shortlist(self.path, model.config)
        if "from" not in self.facts:  # another run may have learned from longer rows
            model.trained_length = trained_length(self.recipe, self.path / "data")
        return model.to(device).eval()
