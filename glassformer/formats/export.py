"""A trained model as a folder that other programs run, with the proof that it is the same model.

`export_model` writes the folder under a temporary name, loads it there in the real runtime, compares (parity.py), and gives
it its name when that went well. What a format cannot say is refused before anything is written, with the nearest setting
that could be exported.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterable
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from glassformer.config import VERSION
from glassformer.errors import UserError, install_hint
from glassformer.files import owned
from glassformer.formats.card import card
from glassformer.formats.ctranslate2 import spec as ct2
from glassformer.formats.ctranslate2.runtime import CTranslate2Runtime
from glassformer.formats.exported import FACTS, list_files, own_export
from glassformer.formats.gguf.writer import export_gguf
from glassformer.formats.huggingface.external_runtime import ForeignRuntime
from glassformer.formats.huggingface.origin import origin_of
from glassformer.formats.huggingface.runtime import TransformersRuntime
from glassformer.formats.huggingface.writer import export_folder, write_tokenizers
from glassformer.formats.onnx.runtime import OnnxRuntime
from glassformer.formats.onnx.writer import refuse_for_onnx, write_onnx
from glassformer.formats.ours import OurRuntime
from glassformer.formats.parity import SAMPLE, ParityFailed, ParityReport, Side, compare, folder_size
from glassformer.formats.runtime import Runtime, make_cases
from glassformer.models import build_model
from glassformer.tasks import TextModel
from glassformer.text.tokenizer import BOS, EOS, UNK, Tokenizer

FORMATS = ("hf", "ct2", "onnx", "gguf")
WEIGHTS = {"hf": ("fp32", "fp16"), "ct2": ("fp32", "fp16", "int8"), "onnx": ("fp32", "fp16", "int8"),
           "gguf": ("fp32", "fp16", "int8")}  # fmt: skip


# ------------------------------------------------------------------------------------------------------- what each writes


def token_names(tokenizer: Tokenizer, size: int) -> list[str]:
    """What each id is called in the tokenizer; ids past its last are unused."""
    named = [tokenizer.library.id_to_token(i) for i in range(size)]
    return [f"<unused {i}>" if name is None else name for i, name in enumerate(named)]


def refuse_for_ctranslate2(model: TextModel) -> None:
    """Where CTranslate2 has no word for something, that is said with the nearest it has."""
    if not ct2.is_installed():
        raise UserError(f"exporting to ct2 needs CTranslate2; install it with: {install_hint('ct2')}")
    if (unsupported := ct2.unsupported(model.model.config)) is not None:
        raise UserError(f"CTranslate2 has nothing for {unsupported[0]}; {unsupported[1]}, and onnx can say more")


def write_ctranslate2(model: TextModel, folder: Path, weights: str) -> list[str]:
    """model.bin, its vocabularies and config.json, and the tokenizers."""
    c = model.model.config
    source = token_names(model.tokenizers.source, c.source_vocab_size or c.vocab_size)
    vocabularies = ct2.Vocabularies(BOS, EOS, UNK, source, token_names(model.tokenizers.target, c.vocab_size))
    kind = {"fp32": None, "fp16": "float16", "int8": "int8"}[weights]
    positions = c.block_size if c.positions == "learned" else max(512, c.block_size)
    ct2.save(model.model, folder, vocabularies, n_positions=positions, quantization=kind)
    return write_tokenizers(model.tokenizers, model.recipe, folder)


def first_layers(model: TextModel, encoder: int, decoder: int) -> TextModel:
    """The same model with its first layers alone."""
    c = model.model.config
    sizes: dict[str, Any] = {"n_layer": decoder} | ({"n_encoder_layer": encoder} if c.family == "transformer" else {})
    config = replace(c, **sizes)
    net = build_model(config).eval()
    own = dict(model.model.named_parameters())
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            parameter.copy_(own[name])
    return TextModel(net, model.tokenizers, replace(model.recipe, model=config))


def ctranslate2_part(model: TextModel, cases: list[Any], limit: float) -> str | None:
    """CTranslate2 shows no layers: models of the first layers alone are converted one after the other, until one differs."""
    c = model.model.config
    encoders = range(1, c.encoder_layers + 1) if c.family == "transformer" else [0]
    steps = [(e, 1) for e in encoders] + [(c.encoder_layers, d) for d in range(2, c.n_layer + 1)]
    before = "the embeddings"
    for encoder, decoder in steps:
        small = first_layers(model, encoder, decoder)
        with tempfile.TemporaryDirectory(prefix="glassformer-") as folder:
            write_ctranslate2(small, Path(folder), "fp32")
            there = CTranslate2Runtime(Path(folder), c.family).logits(cases[:1])[0]
        gap = float(abs(OurRuntime(small).logits(cases[:1])[0] - there).max())
        name = f"decoder.{decoder - 1}" if decoder > 1 or c.family == "gpt" else f"encoder.{encoder - 1}"
        if not gap <= limit:
            return f"{name} (a model that ends with it differs by {gap:.2g}; up to {before} all is the same)"
        before = name
    return None


def write_gguf(model: TextModel, folder: Path, weights: str, name: str) -> list[str]:
    """model.gguf, and the tokenizer for those who want it apart."""
    tokenizer, path = model.tokenizers.target, folder / "model.gguf"
    if (origin := origin_of(tokenizer)) is None:
        notes = export_gguf(model.model, tokenizer, path, name=name, weights=weights)
        write_tokenizers(model.tokenizers, model.recipe, folder)
        return notes
    origin.refuse(dict(model.model.named_parameters()), model.recipe)
    origin.write(folder)
    return export_gguf(model.model, tokenizer, path, name=name, weights=weights)


# ------------------------------------------------------------------------------------------------------------ the export


def check(model: TextModel, to: str, quantize: str | None) -> str:
    """Refuses what cannot be; the name of the numbers that weights are written in."""
    if to not in FORMATS:
        raise UserError(f"--to is {', '.join(FORMATS)}, not {to!r}")
    weights = quantize or "fp32"
    if weights not in WEIGHTS[to]:
        there = ", ".join(w for w in WEIGHTS[to] if w != "fp32")
        raise UserError(f"{to} takes --quantize {there} or none, not {weights}; int8 can be had with ct2, onnx or gguf")
    if to == "ct2":
        refuse_for_ctranslate2(model)
    if to == "onnx":
        refuse_for_onnx(model)
    return weights


def write(model: TextModel, to: str, folder: Path, weights: str, name: str) -> list[str]:
    """The files of a format in an empty folder; gives what a reader should know."""
    match to:
        case "hf":
            return export_folder(model.model, model.tokenizers, model.recipe, folder, half=weights == "fp16")
        case "ct2":
            notes = write_ctranslate2(model, folder, weights)
        case "onnx":
            notes = write_onnx(model, folder, weights)
            notes += write_tokenizers(model.tokenizers, model.recipe, folder)
        case _:
            notes = write_gguf(model, folder, weights, name)
    facts = {"glassformer": VERSION, "recipe": model.recipe.to_dict()}
    (folder / FACTS).write_text(json.dumps(facts, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return notes


def open_runtime(model: TextModel, to: str, folder: Path) -> Runtime:
    """The folder in the hands of the program it is made for."""
    c, alpha = model.model.config, model.recipe.decode.alpha
    origin = origin_of(model.tokenizers.target)
    vocabulary = None if origin is None else origin.vocabulary
    match to:
        case "hf" if vocabulary is not None:
            return ForeignRuntime(folder, model, {"target": vocabulary})
        case "hf":
            runtime = TransformersRuntime(folder, c.family, c.head, alpha=alpha)
            runtime.special, runtime.prefix = model.special_tokens, model.tokenizers.target.before
            runtime.ids = replace(runtime.ids, more_ends=model.special_tokens.more_ends)
            return runtime
        case "ct2":
            return CTranslate2Runtime(folder, c.family, alpha=alpha, threads=torch.get_num_threads())
        case "onnx":
            return OnnxRuntime(folder, model)
    from glassformer.formats.gguf.runtime import open_gguf

    return open_gguf(folder / "model.gguf", model, vocabulary)


def run_size_and_load(run: Path | None, model: TextModel) -> Side:
    """Our own side of the report: the weights' size on disk, and how long they take to load."""
    side = Side("glassformer", sum(p.numel() * p.element_size() for p in model.model.parameters()))
    if run is not None:
        from glassformer.runs.folder import RunFolder

        began = time.perf_counter()
        folder = RunFolder.open(run)
        folder.load_model(report=lambda _: None)
        side.load_seconds = time.perf_counter() - began
        weights = folder.weights_folder(report=lambda _: None)
        side.bytes_on_disk = sum(p.stat().st_size for p in weights.glob("model*.safetensors")) or side.bytes_on_disk
    return side


def export_model(
    model: TextModel,
    to: str,
    out: Path,
    examples: Iterable[Any],
    *,
    quantize: str | None = None,
    on: str = "the sample",
    name: str | None = None,
    run: Path | None = None,
    metrics: dict[str, float] | None = None,
    overwrite: bool = False,
) -> ParityReport:
    """Writes `out`, a new or empty folder (with `overwrite` an earlier export), and gives the parity report that is saved in it.
    ParityFailed where it is another model than here; then nothing is left."""
    weights = check(model, to, quantize)
    old = own_export(out) if overwrite else ()
    model.model.eval()
    cases = make_cases(model, islice(examples, 4 * SAMPLE), SAMPLE)
    with owned.new_folder(out, "an export", old) as draft:
        notes = write(model, to, draft, weights, name or out.name)
        runtime = open_runtime(model, to, draft)
        theirs = Side(runtime.name, folder_size(draft), runtime.load_seconds)
        report = ParityReport(to, weights, on, len(cases), run_size_and_load(run, model), theirs, notes=list(notes))
        by_layer = (lambda: ctranslate2_part(model, cases, 1e-3)) if to == "ct2" and weights == "fp32" else None
        compare(model, runtime, cases, report, by_layer=by_layer)
        if not report.passed:
            raise ParityFailed(f"{report.verdict()}; nothing was left in {out}", report)
        report.save(draft)
        text = card(model, to, name or out.name, metrics or {}, report, notes)
        (draft / "README.md").write_text(text, encoding="utf-8")
        list_files(draft)
    return report
