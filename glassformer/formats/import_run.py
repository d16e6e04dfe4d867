"""`glassformer import`: a model of somebody else's becomes a run that every verb accepts.

The run has weights, recipe and tokenizers. Examples of yours may come with it (`--file`): they become its splits, which the
verbs that measure read (`evaluate`, `heads`, `compare`); without them a file is given to the verb, or data come with
fine-tuning (`train RECIPE --from RUN`).

A checkpoint of nanoGPT (Karpathy 2022) is a pickle, read only where a person says so, and then by torch's loader that builds
tensors and plain values and nothing else. Its matrices are as ours (rows are outputs), its names are GPT-2's, and its vocabulary
is GPT-2's (filled up to a multiple of 64) or the characters that its `meta.pkl` lists, which must come as a tokenizer.json here.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from glassformer.config import VERSION, ModelConfig, Recipe
from glassformer.data.prepare import prepare
from glassformer.errors import UserError
from glassformer.formats.huggingface.dialects.decoder import GPT2
from glassformer.formats.huggingface.importing import (
    Imported,
    Languages,
    folder_name,
    in_our_order,
    model_config,
    notes_on,
    read_folder,
)
from glassformer.formats.huggingface.tables import to_ours
from glassformer.formats.huggingface.tokenizers import ExternalTokenizer, control_ids, read_tokenizers
from glassformer.formats.huggingface.vocabulary import remember
from glassformer.formats.untrusted import load_restricted
from glassformer.models import build_model
from glassformer.models.costs import shapes_alone
from glassformer.models.weights import check_finite, load_model_tensors
from glassformer.runs import staging
from glassformer.runs.checkpoint import write_checkpoint
from glassformer.runs.folder import RunFolder
from glassformer.screen import warn
from glassformer.text.tokenizers import Tokenizers

LARGEST_CHECKPOINT = 64 << 30
WARNING = (
    "a checkpoint of nanoGPT is a pickle, which can run code when it is opened; it is read by a loader that refuses all but "
    "tensors and plain values, but open only files of people you trust"
)


def read_pickle(path: Path) -> dict[str, Any]:
    """What a checkpoint holds, by torch's restricted loader."""
    found = load_restricted(path)
    if not isinstance(found, dict) or not isinstance(found.get("model_args"), dict):
        raise UserError("{path} is not a checkpoint of nanoGPT: it has no model_args", path)
    if not isinstance(found.get("model"), Mapping) or not all(isinstance(t, Tensor) for t in found["model"].values()):
        raise UserError("{path} is not a checkpoint of nanoGPT: it has no model of tensors", path)
    return found


def nanogpt_config(arguments: Mapping[str, Any], path: Path) -> ModelConfig:
    """model_args as a GPT-2 config says it."""
    hf = {
        "vocab_size": arguments.get("vocab_size"),
        "n_positions": arguments.get("block_size"),
        **{name: arguments.get(name) for name in ("n_embd", "n_layer", "n_head")},
        "activation_function": "gelu",
        "resid_pdrop": arguments.get("dropout", 0.0),
        "attn_pdrop": arguments.get("dropout", 0.0),
    }
    return replace(model_config(GPT2, hf, path.parent), bias=bool(arguments.get("bias", True)))


def gpt2_tokenizer(path: Path, where: Path | None) -> ExternalTokenizer:
    """The tokenizer of a checkpoint: a folder with GPT-2's files, or with a tokenizer.json."""
    if where is None:
        raise UserError(
            "{path} holds no tokenizer; name the folder of one (GPT-2's vocab.json and merges.txt, or a tokenizer.json) by "
            "--tokenizer FOLDER",
            path,
        )
    return read_tokenizers(where if where.is_dir() else where.parent)[0]


def read_nanogpt(path: Path, *, allowed: bool, tokenizer: Path | None) -> Imported:
    """A checkpoint of nanoGPT as a model of ours. `allowed`: a person has said that the pickle may be opened."""
    if not allowed:
        raise UserError(
            "{path} is a pickle, which can run code when it is opened, and is not read; if it is a checkpoint of nanoGPT "
            "from somebody you trust, say so by --pickle; else save the model as safetensors where it was made",
            path,
        )
    if path.stat().st_size > LARGEST_CHECKPOINT:
        raise UserError("{path} has more bytes than any checkpoint of nanoGPT", path)
    theirs = gpt2_tokenizer(path, tokenizer)
    warn(WARNING)
    found = read_pickle(path)
    config = nanogpt_config(found["model_args"], path)
    tensors = {name.removeprefix("_orig_mod."): tensor.float() for name, tensor in found["model"].items()}
    tensors = {n: t for n, t in tensors.items() if not n.endswith((".attn.bias", ".attn.masked_bias"))}
    with shapes_alone():
        shapes = {name: p.shape for name, p in build_model(config).named_parameters()}
    table = [replace(entry, transpose=False) for entry in GPT2.table(config)]  # GPT-2's names
    own = to_ours(table, tensors, shapes, ignored=["lm_head.weight"])
    end = next((i for i, name in theirs.names.items() if name in ("<|endoftext|>", "</s>", "\n")), None)
    vocabulary = control_ids("gpt", {"eos_token_id": end}, theirs, config.vocab_size)
    config, own = in_our_order(config, own, vocabulary, vocabulary)
    assert tokenizer is not None
    place = tokenizer if tokenizer.is_dir() else tokenizer.parent
    written = theirs.in_order(vocabulary, (), remember(place, {}, vocabulary))
    recipe = Recipe.from_dict({"name": folder_name(path.with_suffix("")), "data": {"task": "text"}})
    recipe = replace(recipe, about="Imported from a checkpoint of nanoGPT.", model=config)
    return Imported(
        recipe, own, Tokenizers(written, written, []), "nanogpt", notes_on(config, vocabulary), {"target": vocabulary}
    )


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


def read_source(
    source: str,
    *,
    head: str | None = None,
    languages: Languages | None = None,
    pickle: bool = False,
    tokenizer: Path | None = None,
) -> Imported:
    """A model from a folder, from a nanoGPT checkpoint (`pickle`), or from the hub by its name."""
    path = Path(source)
    if path.is_file():
        return read_nanogpt(path, allowed=pickle, tokenizer=tokenizer)
    if pickle or tokenizer is not None:
        raise UserError("--pickle and --tokenizer are for a nanoGPT checkpoint, which is a file; leave them out")
    if path.is_dir():
        if RunFolder.is_run(path):
            raise UserError("{path} is a run already; every verb accepts it as it is", path)
        return read_folder(path, head=head, languages=languages)
    if path.exists() or source.startswith((".", "/", "~")) or source.count("/") > 1:
        raise UserError("there is no folder {source}; give a folder with config.json and model.safetensors", source)
    with tempfile.TemporaryDirectory() as fetched:
        return read_folder(fetch(source, fetched), name=source, head=head, languages=languages)


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
