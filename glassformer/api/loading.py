"""From a run folder to a model to work with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack, overload

import torch

import glassformer.api.models as models
from glassformer.api.models import MODELS, AnyModel, LoadedModel, RunOrigin, Translator, pick_device
from glassformer.config import did_you_mean
from glassformer.decode.ensemble import Ensemble
from glassformer.errors import UserError
from glassformer.evaluation.examples import tokenizers_agree
from glassformer.formats.adapter import add_adapter
from glassformer.runs.checkpoint import read_state
from glassformer.runs.folder import RunFolder
from glassformer.tasks import TextModel
from glassformer.tasks.text_model import Verb

if TYPE_CHECKING:
    from glassformer.formats.parity import ParityReport


def metrics_at(folder: RunFolder, step: int | None) -> dict[str, float]:
    """The last validation up to a step, by the names of the scores."""
    last: dict[str, float] = {}
    for line in folder.metrics():
        scores = {name.removeprefix("val_"): value for name, value in line.items() if name.startswith("val_")}
        if scores and (step is None or line.get("step", 0) <= step):
            last = scores
    return last


def origin_of(folder: RunFolder, step: int | None) -> RunOrigin:
    """Which weights of the run are used, and what they scored."""
    if step is not None:
        return RunOrigin(folder.path, f"checkpoint of step {step}", metrics_at(folder, step))
    state: dict[str, Any] = {}
    if (path := folder.weights_folder() / "state.json").exists():
        state = read_state(path.parent)
    weights = state.get("weights", {})
    if "imported" in weights:
        return RunOrigin(folder.path, f"weights of an imported {weights['imported']} model", {})
    saved = weights.get("step", state.get("step"))
    if "averaged" in weights:
        saved, name = None, f"mean of the weights of {len(weights['averaged'])} steps"
    elif not folder.final.exists():
        name = f"checkpoint of step {saved}, training has not ended"
    else:
        name = "final weights" if saved is None else f"weights of step {saved}"
    return RunOrigin(folder.path, name, metrics_at(folder, saved))


Device = str | torch.device
Adapter = str | Path | None
Run = str | Path
Runs = Run | Sequence[Run]


def load_ensemble(
    runs: Sequence[str | Path], task: Verb | None, device: Device, step: int | None, adapter: Adapter
) -> Translator:
    """Several runs as one Translator: at each step the mean of their probabilities. The recipe is the first run's."""
    if not runs or step is not None or adapter is not None:
        raise UserError("an ensemble is a list of runs with their final weights; step and adapter are for a single run")
    members = [load(run, task=task, device=device) for run in runs]
    first = members[0]
    for run, model in zip(runs, members, strict=True):
        if model.kind != "transformer":
            raise UserError("an ensemble is of encoder-decoders, and {run} is another model", run)
        if not tokenizers_agree(first, model):
            raise UserError(
                "{run} cuts its text into other tokens than {first}; train the runs of an ensemble with one tokenizer "
                "(data.tokenizer_file)",
                run,
                runs[0],
            )
    if len(members) == 1:
        return first  # type: ignore[return-value]
    assert first.origin is not None
    names = ", ".join(str(run) for run in runs[1:])
    origin = RunOrigin(first.origin.path, f"an ensemble with {names}")
    nets: list[Any] = [model._model for model in members]
    return Translator(Ensemble(nets), first.tokenizers, first.recipe, origin)


class LoadOptions(TypedDict, total=False):
    """The options of `load` beside the task."""

    device: Device
    step: int | None
    adapter: Adapter


@overload
def load(run: Runs, *, task: Literal["translate"], **options: Unpack[LoadOptions]) -> Translator: ...
@overload
def load(run: Run, *, task: Literal["generate"], **options: Unpack[LoadOptions]) -> models.Generator: ...
@overload
def load(run: Run, *, task: Literal["fill"], **options: Unpack[LoadOptions]) -> models.Filler: ...
@overload
def load(run: Run, *, task: Literal["classify"], **options: Unpack[LoadOptions]) -> models.Classifier: ...
@overload
def load(run: Run, *, task: Literal["tag"], **options: Unpack[LoadOptions]) -> models.Tagger: ...
@overload
def load(run: Run, *, task: Literal["embed"], **options: Unpack[LoadOptions]) -> models.Embedder: ...
@overload
def load(run: Runs, *, task: None = ..., **options: Unpack[LoadOptions]) -> AnyModel: ...
def load(
    run: Runs, *, task: Verb | None = None, device: Device = "auto", step: int | None = None, adapter: Adapter = None
) -> AnyModel:
    """The model of a run: its final weights, or those that it has kept of `step`. `adapter`: with the corrections of a LoRA
    training that began with this run added in, from its `final/adapter.safetensors`.

    What comes back depends on what was trained: a `Translator`, `Generator`, `Filler`, `Classifier` or `Tagger`; an
    encoder that was imported without a head is an `Embedder`. `task` says which is meant (translate, generate, fill, classify,
    tag or embed): a run of another kind is refused, and a type checker knows what there is. A GPT on pairs can be either of the
    first two.

    A list of runs is an ensemble: encoder-decoders with the same tokenizers that answer with the mean of their probabilities.

    >>> type(load("runs/dates")).__name__
    'Translator'
    """
    if not isinstance(run, str | Path):
        return load_ensemble(list(run), task, device, step, adapter)
    if task is not None and task not in MODELS:
        raise UserError(
            "task is one of {models}, not {task!r}{suggestion}",
            ", ".join(MODELS),
            task,
            did_you_mean(str(task), list(MODELS)),
        )
    known = pick_device(device)
    folder = RunFolder.open(run)
    model, recipe = folder.load_model(step=step, device=known), folder.recipe
    if adapter is not None:
        add_adapter(model, Path(adapter))
    model.handed_out = False
    plain = TextModel(model, folder.tokenizers, recipe)
    if task is not None:
        plain.require(task)
    origin = origin_of(folder, step)
    if adapter is not None:  # the scores are those without it
        origin = RunOrigin(origin.path, f"{origin.weights}, with the adapter {adapter}")
    return MODELS[task or plain.verb](model, folder.tokenizers, recipe, origin)  # type: ignore[return-value]


def export(
    run: str | Path | LoadedModel,
    to: str,
    out: str | Path,
    *,
    quantize: str | None = None,
    sample: Sequence[Any] | None = None,
    overwrite: bool = False,
) -> ParityReport:
    """Writes a run, or a model that is loaded, as a folder for another program, and gives the report of how equal the two are:
    `load(run).export(...)`, whose options these are.

    >>> export("runs/dates", "ct2", "for-ctranslate2", sample=[("3 mai 1979", "1979-05-03")], overwrite=True).passed
    True
    """
    model = run if isinstance(run, LoadedModel) else load(run)
    return model.export(to, out, quantize=quantize, sample=sample, overwrite=overwrite)
