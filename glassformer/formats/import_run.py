"""`glassformer import`: a model of somebody else's becomes a run that every verb accepts.

The run has weights, recipe and tokenizers. Examples of yours may come with it (`--file`): they become its splits, which the
verbs that measure read (`evaluate`, `heads`, `compare`); without them a file is given to the verb, or data come with
fine-tuning (`train RECIPE --from RUN`).
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from glassformer.config import VERSION
from glassformer.data.prepare import prepare
from glassformer.errors import UserError
from glassformer.formats.huggingface.importing import (
    Imported,
    Languages,
    read_folder,
)
from glassformer.models import build_model
from glassformer.models.weights import check_finite, load_model_tensors
from glassformer.runs import staging
from glassformer.runs.checkpoint import write_checkpoint
from glassformer.runs.folder import RunFolder

FETCHED = ("*.json", "*.safetensors", "*.spm", "*.model", "*.txt")
"""Of a hub's folder only these are fetched: no pickle and no code comes with them."""


def fetch(name: str, folder: str) -> Path:
    """A model of the Hugging Face hub by its name, into a folder; no pickle and no code is fetched."""
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError
    except ImportError:
        raise UserError(
            "there is no folder {name}; to fetch a model of that name from the hub, install: pip install huggingface_hub",
            name,
        ) from None
    try:
        return Path(snapshot_download(name, allow_patterns=list(FETCHED), local_dir=folder))
    except HFValidationError:
        raise UserError("there is no folder {name}, and it is no name of a model at the hub", name) from None
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        said = " ".join(str(error).split())[:200]
        raise UserError(
            "there is no folder {name}, and no model of that name could be fetched: {said}", name, said
        ) from None


def read_source(source: str, *, languages: Languages | None = None) -> Imported:
    """A model from a folder, or from the hub by its name."""
    path = Path(source)
    if path.is_dir():
        if RunFolder.is_run(path):
            raise UserError("{path} is a run already; every verb accepts it as it is", path)
        return read_folder(path, languages=languages)
    if path.exists() or source.startswith((".", "/", "~")) or source.count("/") > 1:
        raise UserError("there is no folder {source}; give a folder with config.json and model.safetensors", source)
    with tempfile.TemporaryDirectory() as fetched:
        return read_folder(fetch(source, fetched), name=source, languages=languages)


def write_run(
    model: Imported, out: Path, file: Path | None = None, prove: Callable[[RunFolder], None] | None = None
) -> RunFolder:
    """A new run with these weights as its final ones; whole or not at all. `file`: examples for its splits. `prove` looks at
    the run before it is finished and takes its name; where it raises, or is stopped or killed, there is no run."""
    if RunFolder.is_run(out):
        raise UserError("{out} holds a run already; choose another folder with --out", out)
    built = build_model(model.recipe.model)
    load_model_tensors(built, model.weights)
    check_finite(model.weights, out)
    if file is not None:  # read as training data would be, split by the usual rule
        data = replace(model.recipe.data, train=str(file.resolve()), val_fraction=0.25)
        model = replace(model, recipe=replace(model.recipe, data=data))
    made = staging.missing_parents(out)
    draft = staging.create_draft(out, model.recipe)
    try:
        if file is not None:
            prepare(model.recipe, draft.path, old=model.tokenizers)
        model.tokenizers.save(draft.path)
        state = {"step": 0, "weights": {"imported": model.model_type}, "run": draft.id}
        write_checkpoint(draft.final, {"model": model.weights}, state | {"recipe": model.recipe.to_dict()})
        if prove is not None:
            prove(RunFolder(draft.path, in_the_making=True))
        draft.write_recipe(model.recipe, VERSION, draft.prepared_files())
    except BaseException:
        staging.rollback(draft, out, None, made, keep_folder=draft.path == out)
        raise
    run, _unused = staging.commit(draft, out)
    return RunFolder(run.path)
