"""The museum itself: each mistake trained beside the right one, small, with its curve and a sample of what it writes; what
`audit` finds in its model. Trials are kept, so that a visit that was broken off goes on."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch

from glassformer.config import read_recipe
from glassformer.errors import ConfigError
from glassformer.files.owned import LIST, OwnedFiles, require_new_or_empty
from glassformer.language import _, localized
from glassformer.models import build_model
from glassformer.plots.panels import LinePanel, panels
from glassformer.runs.folder import RunFolder
from glassformer.screen import quietly
from glassformer_lab.audit import audit, find_subject
from glassformer_lab.museum.planting import plant, planting
from glassformer_lab.report import made_with, markdown_table, processor, write_report
from glassformer_lab.runner import KEPT, TrialCall, run_trials
from glassformer_lab.trial import train_or_resume

RECIPE = "sort"
SETTINGS = (
    *("model.n_layer=1", "model.dropout=0.1", "data.size=20000", "data.batch_tokens=1024", "train.steps=400"),
    *("train.warmup=50", "train.learning_rate=3e-3", "train.schedule=wsd", "train.validate_every=100"),
    *("train.validate_examples=100", "train.save_every=100", "train.history=false", "train.device=cpu"),
)
"""Rows of letters, put in order: a model of one layer has learned most of it after these steps, in half a minute to a minute."""
RIGHT = "none"
HEADS = (
    *(_("mistake"), _("what is planted"), _("first loss"), _("validation loss"), _("tokens right"), _("texts right")),
    *(_("what it writes"), _("audit finds")),
)


@cache
def museum() -> dict[str, dict[str, str]]:
    """The mistakes by their names, from museum.toml."""
    return tomllib.loads(Path(__file__).with_name("museum.toml").read_text(encoding="utf-8"))["mistake"]


@dataclass(frozen=True)
class Exhibit:
    """One training: its curve, its last validation, a sample; what `audit` finds, by the mistakes' names."""

    mistake: str
    steps: list[int]
    losses: list[float]
    validation: dict[str, float]
    sample: dict[str, str]
    audit: list[str]


def train_one(folder: str, settings: Sequence[str], *, mistake: str) -> dict[str, Any]:
    """Trains the run of a mistake, or goes on with it; its last validation."""
    recipe, out = read_recipe(RECIPE, settings), Path(folder) / "trials" / mistake
    if recipe.train.r_drop:
        raise ConfigError("train.r_drop has a loss of its own, which a planted mistake does not reach; leave it out")
    with quietly(True):
        run = train_or_resume(recipe, out, build=None if mistake == RIGHT else planting(mistake))
    return [record for record in run.metrics() if "val_loss" in record][-1]


def look_at(run: RunFolder, mistake: str) -> Exhibit:
    """What there is to see of a run that is trained."""
    records = run.metrics()
    losses = [record for record in records if "loss" in record]
    last = [record for record in records if "val_loss" in record][-1]
    validation = {name.removeprefix("val_"): value for name, value in last.items() if name.startswith("val_")}
    samples = run.samples_file.read_text(encoding="utf-8").splitlines()
    sample = next(line for line in map(json.loads, samples) if line["step"] == last["step"])
    torch.manual_seed(0)
    model = build_model(run.recipe.model)
    model = model if mistake == RIGHT else plant(model, mistake)
    found = [one.mistake for one in audit(find_subject(model)) if one.mistake]
    steps, values = ([record[name] for record in losses] for name in ("step", "loss"))
    return Exhibit(mistake, steps, values, validation, sample, list(dict.fromkeys(found)))


def exhibit(names: Sequence[str], out: Path, changes: Sequence[str] = ()) -> list[Exhibit]:
    """The right model and those with the mistakes of these names, trained in a folder of this command, or as they were left."""
    if not (out / LIST).is_file():
        require_new_or_empty(out, "a museum")
    out.mkdir(parents=True, exist_ok=True)
    settings, wanted = (*SETTINGS, *changes), [RIGHT, *names]
    (kept,) = OwnedFiles(out).claim(KEPT)
    calls = {
        json.dumps([name, settings]): TrialCall(train_one, (str(out), settings), {"mistake": name}) for name in wanted
    }
    run_trials("museum", calls, kept, 1)
    return [look_at(RunFolder.open(out / "trials" / name), name) for name in wanted]


def cells(one: Exhibit) -> list[str]:
    """A row of the table."""
    about = museum()[one.mistake]["about"] if one.mistake in museum() else _("nothing: the right one")
    sample = f"{one.sample['source']} → {one.sample['written']}"
    scores = (
        f"{one.validation['loss']:.2f}",
        *(f"{one.validation[n]:.0f}%" for n in ("token_accuracy", "exact_match")),
    )
    found = ", ".join(one.audit) or localized(_("nothing"))
    return [one.mistake, localized(about), f"{one.losses[0]:.2f}", *scores, sample, found]


def write(exhibits: Sequence[Exhibit], out: Path, command: str) -> list[Path]:
    """museum.md and .json, and the figure: each curve beside that of the right one."""
    facts = {"command": command, "machine": processor(), **made_with()}
    rows = [cells(one) for one in exhibits]
    lines = [f"# {localized(_('A museum of mistakes'))}", "", f"    {command}", ""]
    lines += [*markdown_table([localized(head) for head in HEADS], rows), ""]
    lines += ["![](museum.svg)", "", f"{facts['machine']}, torch {facts['torch']}, {facts['date']}.", ""]
    right = exhibits[0]
    parts = [
        LinePanel(
            one.mistake,
            localized(_("step")),
            localized(_("training loss")),
            {localized(_("right")): (right.steps, [right.losses]), one.mistake: (one.steps, [one.losses])},
            log="y",
        )
        for one in exhibits[1:]
    ]
    numbers = {**facts, "exhibits": [asdict(one) for one in exhibits]}
    return write_report(out, "museum", numbers, "\n".join(lines), {"museum": panels(parts, 4)} if parts else {})
