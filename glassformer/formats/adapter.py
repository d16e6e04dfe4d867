"""A LoRA adapter on its own: a small file beside the model it was learned on.

Out of a run that was trained with `train.lora_rank` comes a folder with `adapter.safetensors`, once it is shown that the
model the run began with and the file together are the run, to the bit. It goes back in by `load(run, adapter=...)`, or as a
run of its own by `glassformer import RUN --adapter FILE`. The file names the weights it was learned beside: to others it is
not added.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from glassformer.errors import UserError
from glassformer.files import owned
from glassformer.formats.export import list_files, own_export
from glassformer.formats.huggingface.importing import Imported
from glassformer.formats.targets import names
from glassformer.formats.untrusted import inside, read_tensor_file, write_tensor_file
from glassformer.models.weights import load_model_tensors, model_tensors
from glassformer.nn.lora import LORA_TENSORS, merge_lora
from glassformer.runs import checkpoint
from glassformer.runs.folder import RunFolder

FILE = "adapter.safetensors"
BESIDE = "learned_beside"


def fingerprint(weights: Mapping[str, Tensor]) -> str:
    """The SHA-256 of all weights with their names, in float32: the same for the same weights to the bit."""
    digest = hashlib.sha256()
    for name in sorted(weights):
        digest.update(name.encode())
        digest.update(weights[name].detach().float().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def learned_beside(path: Path) -> str | None:
    """The fingerprint of the weights that a file was learned beside: as it says itself, or, where it lies in the run that
    learned it, of what that run began with."""
    from safetensors import safe_open

    with safe_open(inside(path.parent, path.name), framework="pt") as file:
        if (said := (file.metadata() or {}).get(BESIDE)) is not None:
            return said
    run = RunFolder(path.resolve().parent.parent)
    if path.resolve().parent != run.final or not run.is_run(run.path) or checkpoint.problem(run.start) is not None:
        return None
    return fingerprint(checkpoint.read_checkpoint(run.start)[0]["model"])


def add_adapter(model: nn.Module, path: Path) -> None:
    """Adds the corrections of a file into the weights of the model they were learned beside."""
    found = read_tensor_file(path)
    own = model_tensors(model)
    layers = {name.rpartition(".")[0] for name in found}
    if not found or found.keys() != {f"{layer}.{part}" for layer in layers for part in LORA_TENSORS}:
        raise UserError(
            "{path} holds no corrections of low rank; a LoRA training leaves them as final/adapter.safetensors", path
        )
    for layer in layers:
        weight, a, b = own.get(f"{layer}.weight"), found[f"{layer}.lora_a"], found[f"{layer}.lora_b"]
        if weight is None or a.dim() != 2 or b.dim() != 2 or weight.shape != (b.size(0), a.size(1)):
            raise UserError(
                "{path} was learned beside another model: {layer} is not there, or of another shape", path, layer
            )
    beside = learned_beside(path)
    if beside is None:
        raise UserError(
            "{path} does not say which weights it was learned beside, and added to others it would make a model that nobody "
            "has trained; take the file that `glassformer export RUN --to adapter` writes, or the one in its run's final/",
            path,
        )
    if beside != fingerprint(own):
        raise UserError("{path} was learned beside other weights than these; give it the run that it began with", path)
    load_model_tensors(
        model, merge_lora({**own, **{n: t.to(next(model.parameters()).device) for n, t in found.items()}})
    )


def with_adapter(run: RunFolder, path: Path) -> Imported:
    """A run's model with the corrections of a file in its weights, to be written as a run of its own."""
    model = run.load_model()
    add_adapter(model, path)
    nowhere = {"builtin": None, "path": None, "train": None, "val": None, "test": None}
    nowhere |= {"train_target": None, "val_target": None, "test_target": None}
    recipe = replace(run.recipe, name=f"{run.recipe.name}-{path.resolve().parent.name}"[:60])
    recipe = replace(recipe, data=replace(recipe.data, **nowhere))  # type: ignore[arg-type]
    return Imported(recipe, model_tensors(model), run.tokenizers, "run with an adapter")


def export_adapter(run: RunFolder, out: Path, *, overwrite: bool = False) -> tuple[int, int]:
    """Writes a run's adapter into a new folder, or over an earlier export; the bytes of it, and of the whole model."""
    if not (run.final / FILE).exists():
        raise UserError(
            "{path} has no adapter: it was not trained with train.lora_rank, or its weights are an average; export it "
            "to {names}",
            run.path,
            names(),
        )
    for folder in (run.final, run.start):
        if (wrong := checkpoint.problem(folder)) is not None:
            raise UserError("{folder} cannot be used: {wrong}; bring it back from a copy", folder, wrong)
    final, _unused = checkpoint.read_checkpoint(run.final)
    start, state = checkpoint.read_checkpoint(run.start)
    whole, corrections = final["model"], final["adapter"]
    again = merge_lora({**start["model"], **corrections})
    learned = [n for n in whole if n not in again or not torch.equal(again[n], whole[n])]
    if learned or state.get("new_tokens"):
        what = learned[0] if learned else "the rows of new words"
        raise UserError(
            "the adapter alone is not the model of {path}: {what} learned too; export the whole model to {names}",
            run.path,
            what,
            names(),
        )
    with owned.new_folder(out, "an export", own_export(out) if overwrite else ()) as draft:
        write_tensor_file(corrections, draft / FILE, {BESIDE: fingerprint(start["model"])})
        size, all_of_it = (draft / FILE).stat().st_size, sum(t.numel() * t.element_size() for t in whole.values())
        config, base = run.recipe.train, Path(str(state.get("from", {}).get("path", "RUN"))).name
        card = Path(__file__).with_name("adapter.md").read_text(encoding="utf-8")
        facts = {"name": out.name, "rank": config.lora_rank, "alpha": config.lora_alpha, "base": base}
        (draft / "README.md").write_text(card.format(**facts, size=size, whole=all_of_it), encoding="utf-8")
        list_files(draft)
    return size, all_of_it
