"""From a folder of Hugging Face's to a model of ours: config, weights, tokenizers, and what a reader should know.

Nothing here writes: what comes back is a recipe, tensors by our names and tokenizers, of which `glassformer.formats.import_run`
makes a run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from glassformer.config import ModelConfig, Recipe
from glassformer.config.recipe import build
from glassformer.errors import UserError
from glassformer.formats.huggingface.dialects import READABLE, Dialect
from glassformer.formats.huggingface.dialects.dialect import labels_of, need
from glassformer.formats.huggingface.dialects.reading import refuse_settings, settled
from glassformer.formats.huggingface.generation import GenerationSettings, Taken, take_over
from glassformer.formats.huggingface.tokenizers import (
    ExternalTokenizer,
    adds_begin,
    control_ids,
    one_id,
    own_ids,
    read_tokenizer_json,
    read_tokenizers,
)
from glassformer.formats.huggingface.vocabulary import LEFT_OUT, NEVER, Vocabulary, remember, with_left_out
from glassformer.formats.huggingface.writer import ENVELOPE, tensors_from
from glassformer.formats.untrusted import read_json, read_tensor_file, read_tensors
from glassformer.language import _
from glassformer.text.imported import ImportedTokenizer
from glassformer.text.tokenizer import BOS, EOS, Tokenizer
from glassformer.text.tokenizers import Tokenizers

LARGEST = {"vocab_size": 1_000_000, "n_layer": 1000, "n_embd": 100_000, "block_size": 100_000_000}


@dataclass(frozen=True)
class Imported:
    """A model that was read: all that a run holds."""

    recipe: Recipe
    weights: dict[str, Tensor]
    tokenizers: Tokenizers
    model_type: str
    notes: list[str] = field(default_factory=list)
    theirs: Mapping[str, Vocabulary] = field(default_factory=dict)  # by side: our ids as theirs


@dataclass(frozen=True)
class Languages:
    """Between which languages a model of many is to translate, by its own names of them."""

    source: str | None = None
    target: str | None = None


def dialect_of(hf: Mapping[str, Any], folder: Path) -> Dialect:
    """The dialect that a config.json names."""
    kind = hf.get("model_type")
    if not isinstance(kind, str) or kind not in READABLE:
        raise UserError(
            "{folder} describes a model of type {kind!r}; what can be imported is {readable}",
            folder / "config.json",
            str(kind)[:60],
            ", ".join(sorted(READABLE)),
        )
    return READABLE[kind]


def model_config(dialect: Dialect, hf: Mapping[str, Any], folder: Path) -> ModelConfig:
    """The config in our words, its every number within reason."""
    try:
        settings = {k: v for k, v in dialect.settings(hf).items() if v is not None}
        config: ModelConfig = build(ModelConfig, settings, "model")
    except (TypeError, ValueError, OverflowError, ZeroDivisionError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError("{path} cannot be read: {reason}", folder / "config.json", error) from None
    for name, most in LARGEST.items():
        value = getattr(config, name)
        if value > most:
            raise UserError("{folder}: {value:,} for {name} is beyond any model", folder / "config.json", value, name)
    return config


ROWS = ("embedding.weight", "source_embedding.weight", "target_embedding.weight", "output.weight", "output_bias")


def in_our_order(
    config: ModelConfig, own: dict[str, Tensor], target: Vocabulary, source: Vocabulary
) -> tuple[ModelConfig, dict[str, Tensor]]:
    """Every table with a row a word in the order of our ids, and a bias that keeps ids that stand for nothing unwritten."""
    out = dict(own)
    for name in ROWS:
        if name in out:
            out[name] = (source if name == "source_embedding.weight" else target).rows(out[name])
    never = target.never
    changes: dict[str, Any] = {"vocab_size": len(target.order)}
    if config.source_vocab_size is not None:
        changes["source_vocab_size"] = len(source.order)
    if config.family == "bert":
        if "head.bias" in out:
            out["head.bias"] = target.rows(out["head.bias"])
            out["head.bias"][never] = NEVER
    elif never and config.head == "mlm":
        changes["output_bias"] = True
        bias = out.get("output_bias", torch.zeros(len(target.order)))
        bias[never] = NEVER
        out["output_bias"] = bias
    return replace(config, **changes), out


def language_ids(tokenizer: ExternalTokenizer, vocabulary: Vocabulary, name: str) -> tuple[int, ...]:
    """The id that names a language, as the folder spells it or by its short name."""
    spellings = (name, f"__{name}__")
    found = next((i for i, known in tokenizer.names.items() if known in spellings), None)
    if found is None or found not in vocabulary.ours:
        raise UserError(
            "{where} has no language {name!r}; use its own name, such as __en__, eng_Latn or en_XX",
            tokenizer.where,
            name,
        )
    return (vocabulary.ours[found],)


def begins_of(
    kind: str,
    generation: GenerationSettings,
    tokenizer: ExternalTokenizer,
    vocabulary: Vocabulary,
    languages: Languages,
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The ids that begin every source and every target: the language, or BART's <s>, or what every answer is forced to begin
    with."""
    if kind in ("m2m_100", "mbart"):
        if languages.source is None or languages.target is None:
            raise UserError(
                "this model knows many languages; say between which it is to translate, by --source-language and "
                "--target-language"
            )
        source, target = (language_ids(tokenizer, vocabulary, n) for n in (languages.source, languages.target))
        return source, target
    if languages != Languages():
        raise UserError("a model of type {kind} has no languages to choose from; leave those options out", kind)
    if kind not in ("bart", "marian", "pegasus", "t5"):
        return (), ()
    first = one_id(generation.config.get("bos_token_id", 0)) if kind == "bart" else None
    source, target = (own_ids(vocabulary, () if one is None else (one,)) for one in (first, generation.forced))
    return source, target


def recipe_of(name: str, config: ModelConfig, kind: str, decode: Mapping[str, Any], bos: bool) -> Recipe:
    """A recipe under which every verb takes the model up, and which writes as the folder says."""
    data: dict[str, Any] = {"task": "pairs" if config.family == "transformer" else "text"}
    if config.n_label:
        data["task"] = config.head
    if config.family == "bert":
        data["close_texts"] = True
    if config.family == "gpt" and bos:
        data["begin_documents"] = True
    values = {"name": name, "about": f"Imported from a {kind} model.", "data": data, "decode": dict(decode)}
    recipe = Recipe.from_dict(values)
    return replace(recipe, model=config)


def read_folder(folder: Path, *, name: str | None = None, languages: Languages | None = None) -> Imported:
    """A model of a Hugging Face folder. One of our own exports comes back as it went, to the bit."""
    hf = read_json(folder, "config.json")
    dialect = dialect_of(hf, folder)
    tensors = read_tensors(folder)
    if (folder / "glassformer.json").exists():
        return read_own_export(folder, dialect, tensors)
    refuse_settings(dialect, hf)
    tensors = dialect.tidy(hf, {n: t.float() for n, t in tensors.items()})
    hf, tensors = settled(dialect, hf, tensors)
    config = model_config(dialect, hf, folder)
    if config.output_bias and "final_logits_bias" not in tensors:
        config = replace(config, output_bias=False)
    own = tensors_from(dialect, config, tensors)
    theirs, source_theirs = read_tokenizers(folder)
    generation = GenerationSettings.read(folder, hf)
    target = control_ids(config.family, hf, theirs, config.vocab_size, generation)
    source = target
    if config.source_vocab_size is not None:
        source = control_ids(config.family, hf, source_theirs, config.source_vocab_size, generation)
    before = begins_of(dialect.name, generation, theirs, target, languages or Languages())
    config, own = in_our_order(config, own, target, source)
    origin = remember(folder, hf, target) if config.family == "gpt" else None
    write = theirs.in_order(target, before[1], origin, generation)
    same = source_theirs is theirs and source is target and before[0] == before[1]
    read = write if same else source_theirs.in_order(source, before[0])
    taken = take_over(generation, config.family, config.block_size) if config.family != "bert" else Taken()
    named = folder_name(Path(name) if name else folder)
    recipe = recipe_of(named, config, dialect.name, taken.decode, adds_begin(theirs, hf, folder))
    notes = [*notes_on(config, target), *taken.note]
    labels = labels_of(hf) if config.n_label else []
    sides, words = {"target": target, "source": source}, Tokenizers(write, read, labels)
    return Imported(recipe, own, words, dialect.name, notes, sides)


def folder_name(folder: Path) -> str:
    """A name for the run, from the folder's."""
    name = "".join(c if c.isalnum() or c in "-_." else "-" for c in folder.resolve().name).strip("-._")
    return name[:60] or "imported"


def notes_on(config: ModelConfig, vocabulary: Vocabulary) -> list[str]:
    """What a reader should know of the way."""
    notes = []
    if EOS not in vocabulary.control:
        notes.append(_("the model has no token that ends a text"))
    if config.family == "gpt" and BOS not in vocabulary.control:
        notes.append(_("no token of its own begins a text: it begins after the end of another"))
    return notes


def read_own_tokenizers(folder: Path, recipe: Recipe) -> Tokenizers:
    """The tokenizers of a folder that we exported: without special tokens and template, as we keep them."""

    def read(place: Path) -> Tokenizer:
        path = place / "tokenizer.json"
        facts = read_tokenizer_json(place)
        plain = [token for token in facts.get("added_tokens") or [] if not token.get("special")]
        facts |= {"added_tokens": plain, "post_processor": None, "truncation": None, "padding": None}
        if (place / ENVELOPE).exists():
            return ImportedTokenizer.from_envelope(read_json(place, ENVELOPE) | {"tokenizer": facts}, str(path))
        return Tokenizer.from_json(json.dumps(facts).encode(), path)

    labels = labels_of(read_json(folder, "config.json")) if recipe.model.head != "mlm" else []
    source = read(folder)
    target = read(folder / "target") if (folder / "target").is_dir() else source
    return Tokenizers(target, source, labels)


def read_own_export(folder: Path, dialect: Dialect, tensors: dict[str, Tensor]) -> Imported:
    """What was exported from a run comes back under its own recipe."""
    said = read_json(folder, "glassformer.json")
    facts = said.get("recipe")
    if not isinstance(facts, dict):
        raise UserError(
            "{folder} has no recipe; take the file out to import the model without it", folder / "glassformer.json"
        )
    recipe = Recipe.from_dict(facts, stored=True)
    if said.get("ids") == "foreign":
        return read_returned(folder, dialect, tensors, recipe)
    own = tensors_from(dialect, recipe.model, tensors)
    if (folder / LEFT_OUT).exists():
        kept = read_tensor_file(folder / LEFT_OUT)
        if any(name not in own or tensor.shape != own[name].shape for name, tensor in kept.items()):
            raise UserError(
                "{folder} is of another model; take it out to import the model without it", folder / LEFT_OUT
            )
        own |= kept
    return Imported(recipe, own, read_own_tokenizers(folder, recipe), dialect.name)


def read_returned(folder: Path, dialect: Dialect, tensors: dict[str, Tensor], recipe: Recipe) -> Imported:
    """A GPT that had been imported and went out with the ids it came with (vocabulary.py): as it was in the run."""
    hf = read_json(folder, "config.json")
    theirs = read_tokenizers(folder)[0]
    generation = GenerationSettings.read(folder, hf)
    vocabulary = control_ids("gpt", hf, theirs, need(hf, "vocab_size"), generation)
    there = replace(recipe.model, vocab_size=vocabulary.size, output_bias=False)
    config, own = in_our_order(there, tensors_from(dialect, there, dialect.tidy(hf, tensors)), vocabulary, vocabulary)
    if config != recipe.model:
        raise UserError(
            "{folder} tells of other ids than the tokenizer beside it; take the file out to import "
            "the model without it",
            folder / "glassformer.json",
        )
    write = theirs.in_order(vocabulary, (), remember(folder, hf, vocabulary), generation)
    own = with_left_out(folder, own, vocabulary)
    return Imported(recipe, own, Tokenizers(write, write, []), dialect.name, [], {"target": vocabulary})
