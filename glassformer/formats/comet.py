"""A published COMET checkpoint (unbabel-comet's `checkpoints/model.ckpt` beside `hparams.yaml`) as a folder of ours.

The checkpoint is a pickle: it is opened once, by torch's restricted loader and only where a person has said that it may be, and
kept as safetensors. It holds neither its encoder's config nor a tokenizer, which the package takes from the hub; here they come
from a folder that is named (`--tokenizer`): config.json and tokenizer files of, for example, xlm-roberta-large.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from glassformer.errors import UserError, install_hint
from glassformer.evaluation.comet import SETTINGS, WEIGHTS, Comet, Head, Settings
from glassformer.files import owned, structured
from glassformer.formats.huggingface.importing import folder_name, read_encoder
from glassformer.formats.untrusted import load_restricted, write_tensor_file
from glassformer.models import BERT
from glassformer.models.weights import check_finite, load_model_tensors, model_tensors

CHECKPOINT, HPARAMS = Path("checkpoints") / "model.ckpt", "hparams.yaml"
KIND = "regression_metric"


def is_comet(folder: Path) -> bool:
    """Whether a folder holds a published COMET checkpoint."""
    return (folder / HPARAMS).is_file() and (folder / CHECKPOINT).is_file()


def read_hparams(folder: Path) -> dict[str, Any]:
    """hparams.yaml, which says what kind of metric it is."""
    try:
        import yaml
    except ImportError:
        raise UserError(
            "reading {kind} files needs the package {name}; install it with: {command}",
            ".yaml",
            "PyYAML",
            install_hint("hf"),
        ) from None
    try:
        found = yaml.safe_load((folder / HPARAMS).read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError, OSError) as error:
        said = " ".join(str(error).split())[:200]
        raise UserError("{path} cannot be read: {reason}", folder / HPARAMS, said) from None
    if not isinstance(found, dict) or found.get("class_identifier") != KIND:
        kind = found.get("class_identifier") if isinstance(found, dict) else None
        raise UserError(
            "{folder} is a COMET of kind {kind!r}; what can be imported is {known}, such as wmt22-comet-da",
            folder,
            str(kind)[:60],
            KIND,
        )
    return found


def read_checkpoint(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Its hyperparameters and its tensors, by torch's restricted loader."""
    found = load_restricted(path)
    tensors = found.get("state_dict") if isinstance(found, dict) else None
    if not isinstance(tensors, Mapping) or not all(isinstance(t, Tensor) for t in tensors.values()):
        raise UserError("{path} is not a checkpoint of COMET: it has no state_dict of tensors", path)
    hparams = found.get("hyper_parameters")
    return dict(hparams) if isinstance(hparams, Mapping) else {}, {n: t.float() for n, t in tensors.items()}


def head_of(told: Mapping[str, Any], own: Mapping[str, Any], path: Path) -> Head:
    """The head, by the checkpoint's hyperparameters and, where it has none, by hparams.yaml. `sparsemax_patch` in the latter
    marks models that are meant to be read with softmax, as the package does since 2.2.4."""
    names = {field.name for field in fields(Head)}
    known = {name: value for name, value in {**told, **own}.items() if name in names}
    if told.get("layer_transformation") == "sparsemax_patch":
        known["layer_transformation"] = "softmax"
    for name in ("activations", "final_activation"):
        known[name] = known[name].title() if isinstance(known.get(name), str) else known.get(name)
    return structured.convert({n: v for n, v in known.items() if v is not None}, Head, str(path))  # type: ignore[no-any-return]


def our_names(tensors: Mapping[str, Tensor], head: Head) -> dict[str, Tensor]:
    """The tensors of estimator and mix under our names. Their feed-forward has a dropout, which has no numbers, behind each
    activation, so their layers stand at 0, 3, 6 …, and ours at 0, 2, 4 …."""
    named = {f"estimator.ff.{3 * i}": f"estimator.{2 * i}" for i in range(len(head.hidden_sizes) + 1)}
    found = {
        f"{ours}.{part}": tensors[f"{theirs}.{part}"]
        for theirs, ours in named.items()
        for part in ("weight", "bias")
        if f"{theirs}.{part}" in tensors
    }
    scalars = {n: t for n, t in tensors.items() if n.startswith("layerwise_attention.scalar_parameters.")}
    if head.layer == "mix" and scalars:
        found["mix"] = torch.cat([scalars[n].reshape(1) for n in sorted(scalars, key=lambda n: int(n.split(".")[-1]))])
        found["gamma"] = tensors.get("layerwise_attention.gamma", torch.ones(1)).reshape(1)
    return found


def import_comet(folder: Path, out: Path, *, allowed: bool, encoder: Path | None) -> Settings:
    """Writes the COMET of a published checkpoint into `out`, a new folder, whole or not at all. `allowed`: a person has said that
    the pickle may be opened. `encoder`: the folder of its encoder's config and tokenizer."""
    told = read_hparams(folder)
    path = folder / CHECKPOINT
    if not allowed:
        raise UserError(
            "{path} is a pickle, which can run code when it is opened, and is not read; if it is a COMET from somebody you "
            "trust, say so by --pickle",
            path,
        )
    if encoder is None:
        raise UserError(
            "{folder} holds no tokenizer; name the folder of its encoder ({name}: config.json and its tokenizer) by "
            "--tokenizer FOLDER",
            folder,
            str(told.get("pretrained_model"))[:60],
        )
    own, tensors = read_checkpoint(path)
    head = head_of(told, own, path)
    prefix = "encoder.model."
    body = {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}
    body.pop("embeddings.position_ids", None)
    read = read_encoder(encoder, body)
    config = read.recipe.model
    if head.layer != "mix" and not 0 <= head.layer <= config.n_layer:
        raise UserError("{path} reads layer {layer}, and its encoder has {n_layer}", path, head.layer, config.n_layer)
    comet = Comet(BERT(config), head)
    weights = {f"encoder.{n}": t for n, t in read.weights.items()} | our_names(tensors, head)
    check_finite(weights, path)
    with torch.no_grad():
        load_model_tensors(comet, weights)
    settings = Settings(read.recipe.to_dict(), head, folder_name(folder))
    with owned.new_folder(out, "a COMET") as draft:
        write_tensor_file({n: t.contiguous() for n, t in model_tensors(comet).items()}, draft / WEIGHTS)
        read.tokenizers.save(draft)
        (draft / SETTINGS).write_text(json.dumps(asdict(settings), indent=1) + "\n", encoding="utf-8")
    return settings
