"""A run is a folder, and every verb accepts it.

run.json            the recipe with everything resolved, the version that wrote it, SHA-256 of the prepared files, a seal
tokenizer.json      (or tokenizer.source.json and tokenizer.target.json), labels.json
data/               the examples as text and as token files, and a report of where they are from
checkpoints/        the latest few and the best; see checkpoint.py
snapshots/          weights alone, for averaging
history/            weights alone at steps 0, 10, 30, 100, 300 …: a small model's beginnings, to look at
final/              the weights one uses, once training has ended
metrics.jsonl       a line for each log interval and each validation
samples.jsonl, curves.png, curves.svg
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from glassformer.checkpoint import STATE, Checkpoints, load_model_tensors, problem, read_checkpoint, recover
from glassformer.config import VERSION, Recipe
from glassformer.errors import UserError
from glassformer.files.durable import sha256, to_json, write_atomically
from glassformer.models import BERT, GPT, Transformer, build_model
from glassformer.text.tokenizers import Tokenizers

RUN_FORMAT = 1


def migrated(facts: dict[str, Any], path: Path) -> dict[str, Any]:
    """The facts of a run as this version writes them. Format 1 is the first, so there is nothing to translate yet; what an
    older reader cannot know, it refuses in a sentence."""
    version = facts.get("format")
    if version == RUN_FORMAT:
        return facts
    age = "newer" if isinstance(version, int) and version > RUN_FORMAT else "unknown"
    raise UserError(
        f"{path} is a run in the {age} format {version}, written by glassformer {facts.get('glassformer')}; this is "
        f"glassformer {VERSION}, which reads format {RUN_FORMAT}: install the version that wrote it, or a newer one"
    )


def seal_of(facts: dict[str, Any]) -> str:
    return hashlib.sha256(to_json({k: v for k, v in facts.items() if k != "seal"})).hexdigest()


@dataclass(frozen=True)
class RunFolder:
    path: Path

    @staticmethod
    def is_run(path: Path) -> bool:
        return (path / "run.json").exists()

    @staticmethod
    def create(path: Path, recipe: Recipe, version: str) -> RunFolder:
        """A new run; a folder that holds one already is never touched."""
        if RunFolder.is_run(path):
            raise UserError(
                f"{path} holds a run already; go on with it by --resume, or choose another folder with --out, "
                "or replace it by --overwrite"
            )
        folder = RunFolder(path)
        try:
            path.mkdir(parents=True, exist_ok=True)
            folder.write_recipe(recipe, version)
        except OSError as error:
            raise UserError(f"the run's folder {path} cannot be made: {error.strerror}") from None
        return folder

    @staticmethod
    def open(path: str | Path) -> RunFolder:
        path = Path(path)
        if not path.exists():
            raise UserError(f"there is no run {path}; `glassformer train` makes one")
        if not RunFolder.is_run(path):
            raise UserError(f"{path} is not a run: it has no run.json")
        return RunFolder(path)

    # ---- run.json

    def write_recipe(self, recipe: Recipe, version: str, files: dict[str, Any] | None = None) -> None:
        """`files`: what the preparation left, with sizes and SHA-256; without it the run is not prepared yet."""
        facts: dict[str, Any] = {"format": RUN_FORMAT, "glassformer": version, "recipe": recipe.to_dict()}
        if files is not None:
            facts["files"] = files
        write_atomically(self.path / "run.json", to_json(facts | {"seal": seal_of(facts)}))

    @cached_property
    def facts(self) -> dict[str, Any]:
        try:
            facts = json.loads((self.path / "run.json").read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise UserError(f"{self.path / 'run.json'} cannot be read: {error}") from None
        if not isinstance(facts, dict) or "recipe" not in facts:
            raise UserError(f"{self.path / 'run.json'} cannot be read: it has no recipe")
        return migrated(facts, self.path)

    @property
    def sealed(self) -> bool:
        """Whether run.json is as this package wrote it, and not changed by hand or by accident."""
        return self.facts.get("seal") == seal_of(self.facts)

    @cached_property
    def recipe(self) -> Recipe:
        return Recipe.from_dict(self.facts["recipe"])

    # ---- what the preparation left

    @cached_property
    def tokenizers(self) -> Tokenizers:
        return Tokenizers.load(self.path)

    @property
    def prepared(self) -> bool:
        return "files" in self.facts

    def prepared_files(self) -> dict[str, dict[str, Any]]:
        """Tokenizers, labels, examples and token files as they are now, for run.json."""
        names = ("tokenizer*.json", "labels.json", "data/*.tokens", "data/*.examples.gz", "data/report.json")
        found = [path for name in names for path in self.path.glob(name)]
        return {
            path.relative_to(self.path).as_posix(): {"size": path.stat().st_size, "sha256": sha256(path)}
            for path in sorted(found)
        }

    def file_problems(self) -> dict[str, str | None]:
        """Each file of the preparation, and what is wrong with it."""
        return {name: self.file_problem(name, expected) for name, expected in self.facts.get("files", {}).items()}

    def file_problem(self, name: str, expected: dict[str, Any]) -> str | None:
        path = self.path / name
        try:
            if path.stat().st_size != expected["size"]:
                return f"it has {path.stat().st_size:,} bytes and should have {expected['size']:,}"
            return None if sha256(path) == expected["sha256"] else "its content has changed since it was written"
        except FileNotFoundError:
            return "it is missing"
        except OSError as error:
            return f"it cannot be read: {error.strerror}"

    # ---- weights

    @property
    def checkpoints(self) -> Checkpoints:
        return Checkpoints(self.path / "checkpoints")

    @property
    def snapshots(self) -> Checkpoints:
        return Checkpoints(self.path / "snapshots")

    @property
    def history(self) -> Checkpoints:
        """Weights at logarithmic steps, so that one can see heads being born (`look --across`)."""
        return Checkpoints(self.path / "history")

    @property
    def final(self) -> Path:
        return self.path / "final"

    def finished(self) -> int | None:
        """The step at which training ended and left the final weights, whole; None while there is more to do."""
        if not self.final.is_dir() or problem(self.final) is not None:
            return None
        step = json.loads((self.final / STATE).read_bytes()).get("step")
        steps = self.checkpoints.steps()
        return step if not steps or steps[-1] <= step else None

    def recover(self) -> None:
        """Puts in order what a crash left behind: see `checkpoint.recover`."""
        for folder in (self.path, self.checkpoints.folder, self.snapshots.folder, self.history.folder):
            recover(folder)

    def leftovers(self) -> list[Path]:
        """What a crash left half written or half removed; `recover` deals with it."""
        folders = [self.path, self.checkpoints.folder, self.snapshots.folder, self.history.folder]
        found = [p for folder in folders for pattern in (".tmp-*", ".trash-*") for p in folder.glob(pattern)]
        return sorted(found + list((self.path / "data").glob("*.part")))

    def latest_checkpoint(self, report: Callable[[str], None] = lambda _: None) -> int | None:
        """Where to go on; None where nothing was saved yet. Checkpoints of which none is whole are not the same thing:
        to begin again from nothing is for a person to decide."""
        step = self.checkpoints.latest_good(report)
        if step is None and self.checkpoints.steps():
            raise UserError(
                f"not one checkpoint in {self.checkpoints.folder} can be used (see `glassformer doctor {self.path}`); "
                "bring one back from a copy, or move that folder away and --resume to train again from the beginning"
            )
        return step

    @contextmanager
    def exclusive_lock(self) -> Iterator[None]:
        """Two processes that train in one folder would ruin it; the second is refused. A kill frees the place."""
        import fcntl

        with (self.path / ".lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UserError(f"another process is training in {self.path}; let it end, or stop it first") from None
            except OSError:
                pass  # a file system without locks
            yield

    # ---- what was written along the way

    @property
    def metrics_file(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def samples_file(self) -> Path:
        return self.path / "samples.jsonl"

    def metrics(self) -> list[dict[str, Any]]:
        if not self.metrics_file.exists():
            return []
        return [json.loads(line) for line in self.metrics_file.read_text(encoding="utf-8").splitlines() if line]

    # ---- the model

    def weights_folder(self, step: int | None = None) -> Path:
        """Where the weights to use lie: the final ones; before the run has ended, the best or the latest checkpoint's."""
        if step is not None:
            return self.checkpoints.path(step)
        if self.final.is_dir() and problem(self.final) is None:
            return self.final
        latest = self.checkpoints.latest_good()
        if latest is None:
            raise UserError(f"{self.path} has no weights yet: not one checkpoint has been written")
        best = self.checkpoints.state(latest).get("best_step")
        if best is not None and best in self.checkpoints.steps() and problem(self.checkpoints.path(best)) is None:
            return self.checkpoints.path(best)
        return self.checkpoints.path(latest)

    def load_model(self, *, step: int | None = None, device: str | torch.device = "cpu") -> Transformer | GPT | BERT:
        """The trained model, ready to use."""
        folder = self.weights_folder(step)
        weights = served_weights(read_checkpoint(folder)[0])
        model = build_model(self.recipe.model)
        load_model_tensors(model, weights)
        return model.to(device).eval()


def served_weights(tensors: dict[str, dict[str, Tensor]]) -> dict[str, Tensor]:
    """Of a checkpoint's tensors, the weights one would use: the moving average, where there is one."""
    averaged = {n.removeprefix("ema/"): t for n, t in tensors.get("training", {}).items() if n.startswith("ema/")}
    return averaged or tensors["model"]
