"""A run is a folder, and every verb accepts it.

run.json            the recipe with everything resolved, and the version that wrote it
tokenizer.json      (or tokenizer.source.json and tokenizer.target.json), labels.json
data/               token files
checkpoints/        the latest few and the best; see checkpoint.py
snapshots/          weights alone, for averaging
final/              the weights one uses, once training has ended
metrics.jsonl       a line for each log interval and each validation
samples.jsonl, curves.png, curves.svg
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from glassformer.checkpoint import Checkpoints, load_model_tensors, problem, read_checkpoint, to_json, write_atomically
from glassformer.config import Recipe, UserError
from glassformer.data.prepare import Texts
from glassformer.models import BERT, GPT, Transformer, build_model

RUN_FORMAT = 1


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
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"the folder {path} cannot be made: {error.strerror}") from None
        folder = RunFolder(path)
        folder.write_recipe(recipe, version)
        return folder

    @staticmethod
    def open(path: str | Path) -> RunFolder:
        path = Path(path)
        if not path.exists():
            raise UserError(f"there is no run {path}; `glassformer train` makes one")
        if not RunFolder.is_run(path):
            raise UserError(f"{path} is not a run: it has no run.json")
        return RunFolder(path)

    def write_recipe(self, recipe: Recipe, version: str) -> None:
        facts = {"format": RUN_FORMAT, "glassformer": version, "recipe": recipe.to_dict()}
        write_atomically(self.path / "run.json", to_json(facts))

    @cached_property
    def facts(self) -> dict[str, Any]:
        try:
            facts = json.loads((self.path / "run.json").read_text(encoding="utf-8"))
            version = facts["format"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(f"{self.path / 'run.json'} cannot be read: {error}") from None
        if version > RUN_FORMAT:
            raise UserError(
                f"{self.path} was written by glassformer {facts.get('glassformer')}, whose runs this version cannot read; "
                "install that version or a newer one"
            )
        return facts  # type: ignore[no-any-return]

    @cached_property
    def recipe(self) -> Recipe:
        return Recipe.from_dict(self.facts["recipe"])

    @cached_property
    def texts(self) -> Texts:
        return Texts.load(self.path)

    @property
    def checkpoints(self) -> Checkpoints:
        return Checkpoints(self.path / "checkpoints")

    @property
    def snapshots(self) -> Checkpoints:
        return Checkpoints(self.path / "snapshots")

    @property
    def final(self) -> Path:
        return self.path / "final"

    @property
    def metrics_file(self) -> Path:
        return self.path / "metrics.jsonl"

    def metrics(self) -> list[dict[str, Any]]:
        if not self.metrics_file.exists():
            return []
        return [json.loads(line) for line in self.metrics_file.read_text(encoding="utf-8").splitlines() if line]

    def weights_folder(self, step: int | None = None) -> tuple[Path, str]:
        """Where the weights to use lie, and in which group of tensors: the final ones; before the run has ended, the
        best or the latest checkpoint's."""
        if step is not None:
            return self.checkpoints.path(step), "model"
        if self.final.is_dir() and problem(self.final) is None:
            return self.final, "model"
        latest = self.checkpoints.latest_good()
        if latest is None:
            raise UserError(f"{self.path} has no weights yet: not one checkpoint has been written")
        best = json.loads((self.checkpoints.path(latest) / "state.json").read_bytes()).get("best_step")
        if best is not None and best in self.checkpoints.steps() and problem(self.checkpoints.path(best)) is None:
            return self.checkpoints.path(best), "model"
        return self.checkpoints.path(latest), "model"

    def load_model(self, *, step: int | None = None, device: str | torch.device = "cpu") -> Transformer | GPT | BERT:
        """The trained model, ready to use."""
        folder, group = self.weights_folder(step)
        tensors, _ = read_checkpoint(folder, [group])
        weights = tensors[group]
        if folder != self.final:
            training, _ = read_checkpoint(folder, ["training"])
            averaged = {n.removeprefix("ema/"): t for n, t in training["training"].items() if n.startswith("ema/")}
            weights = averaged or weights
        model = build_model(self.recipe.model)
        load_model_tensors(model, weights)
        return model.to(device).eval()
