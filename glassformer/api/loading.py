"""From a run folder to a model to work with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

import torch

from glassformer.api.models import (
    MODELS,
    Classifier,
    Embedder,
    Filler,
    Generator,
    LoadedModel,
    RunOrigin,
    Tagger,
    Translator,
)
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

AnyModel = Translator | Generator | Filler | Classifier | Tagger | Embedder


def pick_device(device: str | torch.device) -> torch.device:
    """`auto` is CUDA where there is one."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        known = torch.device(device)
    except RuntimeError:
        raise UserError("there is no device {device!r}; use auto, cpu or cuda", device) from None
    if known.type == "cuda" and not torch.cuda.is_available():
        raise UserError("device {device} was asked for, and torch sees no CUDA device here; use cpu", device)
    try:
        # Torch knows the names of devices that this build or machine lacks.
        if torch.ones(1, device=known).sum().item() == 1:
            return known
    except (RuntimeError, AssertionError, NotImplementedError, ImportError):
        pass
    raise UserError("device {device} cannot be used here; use auto, cpu or cuda", device)


def metrics_at(folder: RunFolder, step: int | None) -> dict[str, float]:
    """The last validation up to a step, by the names of the scores."""
    found: dict[str, float] = {}
    for line in folder.metrics():
        own = {k.removeprefix("val_"): v for k, v in line.items() if k.startswith("val_")}
        if own and (step is None or line.get("step", 0) <= step):
            found = own
    return found


def origin_of(folder: RunFolder, step: int | None) -> RunOrigin:
    """Which weights of the run are used, and what they scored."""
    if step is not None:
        return RunOrigin(folder.path, f"checkpoint of step {step}", metrics_at(folder, step))
    state: dict[str, Any] = {}
    if (path := folder.weights_folder() / "state.json").exists():
        state = read_state(path.parent)
    weights = state.get("weights", {})
    if "averaged" in weights:
        return RunOrigin(
            folder.path, f"mean of the weights of {len(weights['averaged'])} steps", metrics_at(folder, None)
        )
    if "imported" in weights:
        return RunOrigin(folder.path, f"weights of an imported {weights['imported']} model", {})
    own = weights.get("step", state.get("step"))
    if not folder.final.exists():
        return RunOrigin(folder.path, f"checkpoint of step {own}, training has not ended", metrics_at(folder, own))
    return RunOrigin(folder.path, "final weights" if own is None else f"weights of step {own}", metrics_at(folder, own))


Device = str | torch.device
Adapter = str | Path | None
Runs = str | Path | Sequence[str | Path]


def load_ensemble(
    runs: Sequence[str | Path], task: Verb | None, device: Device, step: int | None, adapter: Adapter
) -> Translator:
    """Several runs as one Translator: at each step the mean of their probabilities. The recipe is the first run's."""
    if not runs or step is not None or adapter is not None:
        raise UserError("an ensemble is a list of runs with their final weights; step and adapter are for a single run")
    models = [load(run, task=task, device=device) for run in runs]
    first = models[0]
    for run, model in zip(runs, models, strict=True):
        if model.kind != "transformer":
            raise UserError("an ensemble is of encoder-decoders, and {run} is another model", run)
        if not tokenizers_agree(first, model):
            raise UserError(
                "{run} cuts its text into other tokens than {first}; train the runs of an ensemble with one tokenizer "
                "(data.tokenizer_file)",
                run,
                runs[0],
            )
    if len(models) == 1:
        return first  # type: ignore[return-value]
    assert first.origin is not None
    names = ", ".join(str(run) for run in runs[1:])
    origin = RunOrigin(first.origin.path, f"an ensemble with {names}")
    members: list[Any] = [model._model for model in models]
    return Translator(Ensemble(members), first.tokenizers, first.recipe, origin)


@overload
def load(
    run: Runs, *, task: Literal["translate"], device: Device = ..., step: int | None = ..., adapter: Adapter = ...
) -> Translator: ...
@overload
def load(
    run: str | Path, *, task: Literal["generate"], device: Device = ..., step: int | None = ..., adapter: Adapter = ...
) -> Generator: ...
@overload
def load(
    run: str | Path, *, task: Literal["fill"], device: Device = ..., step: int | None = ..., adapter: Adapter = ...
) -> Filler: ...
@overload
def load(
    run: str | Path, *, task: Literal["classify"], device: Device = ..., step: int | None = ..., adapter: Adapter = ...
) -> Classifier: ...
@overload
def load(
    run: str | Path, *, task: Literal["tag"], device: Device = ..., step: int | None = ..., adapter: Adapter = ...
) -> Tagger: ...
@overload
def load(
    run: str | Path, *, task: Literal["embed"], device: Device = ..., step: int | None = ..., adapter: Adapter = ...
) -> Embedder: ...
@overload
def load(
    run: Runs, *, task: None = ..., device: Device = ..., step: int | None = ..., adapter: Adapter = ...
) -> AnyModel: ...
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
