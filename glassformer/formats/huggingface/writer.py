"""A folder that plain `AutoModel...` and `AutoTokenizer` load with no code of ours, and back.

Our own recipe travels inside (`glassformer.json`), so that what was exported and is imported again is the same to the bit.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import tokenizers
import torch
from tokenizers import processors
from torch import Tensor

from glassformer.config import VERSION, ModelConfig, Recipe
from glassformer.errors import UserError
from glassformer.formats.huggingface.dialects import Dialect, dialect_for
from glassformer.formats.huggingface.dialects.bert import TYPES, with_prefix
from glassformer.formats.huggingface.runtime import TransformersRuntime
from glassformer.formats.huggingface.tables import from_half_split, half_split, to_half_split, to_ours, to_theirs
from glassformer.formats.huggingface.vocabulary import LEFT_OUT, origin_of
from glassformer.formats.runtime import Runtime
from glassformer.formats.untrusted import write_tensor_file
from glassformer.language import _
from glassformer.models import BERT, GPT, Transformer, build_model
from glassformer.models.costs import shapes_alone
from glassformer.nn.positions import sinusoids
from glassformer.tasks import TextModel
from glassformer.text.imported import ImportedTokenizer
from glassformer.text.tokenizer import BOS, CONTROL_NAMES, EOS, MASK, PAD, UNK, Tokenizer
from glassformer.text.tokenizers import Tokenizers

POOLER = "bert.pooler.dense"


def scales_by_hand(dialect: Dialect, config: ModelConfig) -> bool:
    """Must sqrt(n_embd) be multiplied into the embedding table, because the dialect's model would not?"""
    return config.scale_embeddings and not dialect.scales


def output_name(config: ModelConfig) -> str | None:
    """What the output layer over the vocabulary is called there; None where the model has none."""
    if config.family == "bert":
        return "cls.predictions.decoder.weight" if config.head == "mlm" else None
    return "lm_head.weight"


def every_layer(config: ModelConfig, own: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The parameters of a model whose layers are all one (`share_layers`), with that layer in every place."""
    out = dict(own)
    if config.share_layers:
        for stack, layers in (("encoder", config.encoder_layers), ("decoder", config.n_layer)):
            first = {n.removeprefix(f"{stack}.0."): t for n, t in own.items() if n.startswith(f"{stack}.0.")}
            out |= {f"{stack}.{i}.{name}": tensor for i in range(1, layers) for name, tensor in first.items()}
    return out


def tensors_to(
    dialect: Dialect, config: ModelConfig, own: Mapping[str, Tensor]
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Our parameters under the dialect's names, and what its config must say besides `dialect.to_config`."""
    own = {name: tensor.detach() for name, tensor in every_layer(config, own).items()}
    entries = dialect.table(config)
    if dialect.lacks is not None:  # the others are zero
        own = {name: tensor for name, tensor in own.items() if not dialect.lacks.search(name)}
        entries = [entry for entry in entries if entry.ours[0] in own]
    if dialect.half_split:
        own = to_half_split(own, config.n_embd)
    tensors = to_theirs(entries, own)
    if dialect.half_split and "model.shared.weight" in tensors and not config.tie_output:
        # An output layer of its own makes their model forget that the two tables are one.
        for side in ("encoder", "decoder"):
            tensors[f"model.{side}.embed_tokens.weight"] = tensors["model.shared.weight"].clone()
    if dialect.half_split and config.positions == "sinusoidal":
        # They would compute the same (of another base they could not), and call a table that is missing newly initialized.
        table = sinusoids(config.block_size, config.n_embd, config.sinusoid_base)[:, half_split(config.n_embd)]
        tensors |= {f"model.{side}.embed_positions.weight": table.float() for side in ("encoder", "decoder")}
    if config.family == "bert" and not config.n_token_type:
        tensors[TYPES] = torch.zeros(1, config.n_embd)
    if config.head == "none":  # their class has a pooler, too
        tensors[f"{POOLER}.weight"] = torch.zeros(config.n_embd, config.n_embd)
        tensors[f"{POOLER}.bias"] = torch.zeros(config.n_embd)
    output, extra = output_name(config), {}
    if scales_by_hand(dialect, config):
        name = next(entry.theirs for entry in entries if entry.ours == ("embedding.weight",))
        if output is not None:  # which keeps the table as it is, so that the way back is exact
            tensors.setdefault(output, tensors[name])
            extra = {"tie_word_embeddings": False}
        tensors[name] = tensors[name] * config.n_embd**0.5
    if config.family == "bert" and output in tensors:  # an output layer of its own has a bias of its own there
        tensors["cls.predictions.decoder.bias"] = tensors["cls.predictions.bias"].clone()
    if config.head == "none":
        tensors = {name.removeprefix("bert."): tensor for name, tensor in tensors.items()}
    return tensors, extra


def tensors_from(dialect: Dialect, config: ModelConfig, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The dialect's tensors as the parameters of our model of this config; anything missing, left over or of another
    shape is an error."""
    if config.share_layers:
        apart = tensors_from(dialect, replace(config, share_layers=False), tensors)
        own = {name: t for name, t in apart.items() if not re.match(r"(encoder|decoder)\.[1-9]", name)}
        if not all(torch.equal(tensor, apart[name]) for name, tensor in every_layer(config, own).items()):
            raise UserError(
                "the layers of this model should all be one (model.share_layers), and in the file they differ"
            )
        return own
    with shapes_alone():
        shapes = {name: p.shape for name, p in build_model(config).named_parameters()}
    table = dialect.table(config)
    found = with_prefix("bert.", dict(tensors)) if config.head == "none" else dict(tensors)
    if scales_by_hand(dialect, config):
        name, output = next(e.theirs for e in table if e.ours == ("embedding.weight",)), output_name(config)
        if config.tie_output and output in found:
            found[name] = found.pop(output)
        else:
            found[name] = found[name] / config.n_embd**0.5
    own = to_ours(table, found, shapes, ignored=dialect.ignored(config))
    return from_half_split(own, config.n_embd) if dialect.half_split else own


# ------------------------------------------------------------------------------------------------------------ a folder


def write_json(path: Path, value: Any) -> None:
    """A value as an indented JSON file."""
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def template(recipe: Recipe) -> tuple[list[int], list[int]]:
    """The control ids before and after a text, as the model was trained to see it."""
    match recipe.model.family, recipe.data.task:
        case "transformer", _:
            return [], [EOS]
        case "bert", _:
            return [BOS], [EOS] if recipe.data.close_texts else []
        case _, "pairs":
            return [BOS], [EOS]
    return [], []


ENVELOPE = "glassformer_tokenizer.json"
"""What an imported tokenizer has besides its tokenizer.json: see text/imported.py."""


def write_tokenizer_folder(
    tokenizer: Tokenizer, folder: Path, *, before: Sequence[int] = (), after: Sequence[int] = (), longest: int
) -> None:
    """A folder that `AutoTokenizer` loads: tokenizer_config.json, and tokenizer.json with the control ids as special tokens and a
    template that lays a text out as `before`, text, `after`. Both are taken out again on the way back (importing.py): with us
    the text of a person can never spell a control id."""
    folder.mkdir(exist_ok=True)
    library = tokenizers.Tokenizer.from_str(tokenizer.library.to_str())
    library.add_special_tokens(list(CONTROL_NAMES))
    if before or after:
        names = [*(CONTROL_NAMES[i] for i in before), "$A", *(CONTROL_NAMES[i] for i in after)]
        library.post_processor = processors.TemplateProcessing(
            single=names, special_tokens=[(CONTROL_NAMES[i], i) for i in sorted({*before, *after})]
        )
    (folder / "tokenizer.json").write_text(library.to_str(pretty=True), encoding="utf-8")
    if isinstance(tokenizer, ImportedTokenizer):
        rest = {name: value for name, value in tokenizer.envelope().items() if name != "tokenizer"}
        (folder / ENVELOPE).write_text(json.dumps(rest), encoding="utf-8")
    roles = {"pad_token": PAD, "bos_token": BOS, "eos_token": EOS, "unk_token": UNK, "mask_token": MASK}
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": longest}
    config |= {"clean_up_tokenization_spaces": False, "model_input_names": ["input_ids", "attention_mask"]}
    write_json(folder / "tokenizer_config.json", config | {role: CONTROL_NAMES[i] for role, i in roles.items()})


def write_tokenizers(words: Tokenizers, recipe: Recipe, folder: Path) -> list[str]:
    """tokenizer.json, laying a text out as in training; the target's beside it in target/, where it has its own. What a
    reader should know of it."""
    before, after = template(recipe)
    longest = recipe.model.block_size
    write_tokenizer_folder(words.source, folder, before=before, after=after, longest=longest)
    if words.shared:
        return []
    write_tokenizer_folder(words.target, folder / "target", longest=longest)
    return [_("the two sides have tokenizers of their own: the source's is the folder's, the target's is in target/")]


def generation_config(recipe: Recipe, tokenizer: Tokenizer) -> dict[str, Any]:
    """How `generate` writes as we do, as near as its rules allow: ids that stand for no text are never written."""
    facts: dict[str, Any] = {
        "bos_token_id": BOS,
        "eos_token_id": [EOS, *tokenizer.ends] if tokenizer.ends else EOS,
        "pad_token_id": PAD,
        "suppress_tokens": [PAD, BOS, UNK, MASK, *tokenizer.never],
    }
    if tokenizer.before:
        facts["forced_bos_token_id"] = tokenizer.before[0]
    if recipe.model.family == "transformer":
        # Not max_length: beside it, max_new_tokens of one's own is warned of.
        facts |= {"decoder_start_token_id": BOS, "max_new_tokens": recipe.model.block_size - 1}
        facts["num_beams"] = recipe.decode.beams
        if recipe.decode.beams > 1:  # with one beam they are warned of
            facts |= {"early_stopping": False, "length_penalty": recipe.decode.alpha}
    return facts


def export_folder(
    model: Transformer | GPT | BERT, words: Tokenizers, recipe: Recipe, folder: Path, *, half: bool = False
) -> list[str]:
    """Writes weights, configs and tokenizers into a folder that is there; gives what a reader should know."""
    config, origin = model.config, origin_of(words.target)
    own: dict[str, Tensor] = dict(model.named_parameters())
    kind = torch.float16 if half else torch.float32

    def save(tensors: Mapping[str, Tensor], name: str) -> None:
        write_tensor_file({n: t.detach().to("cpu", kind).clone() for n, t in tensors.items()}, folder / name)

    rows: dict[str, Tensor] = {}
    if origin is not None:
        origin.refuse(own, recipe)
        rows, config, own = origin.left_out(own), origin.config(config), origin.tensors(own)
    dialect = dialect_for(config, own if origin is not None else None)
    tensors, extra = tensors_to(dialect, config, own)
    save(tensors, "model.safetensors")
    facts = dialect.to_config(config) | extra | {"architectures": [dialect.class_with(config.head)]}
    if words.labels:
        facts["id2label"] = {str(i): label for i, label in enumerate(words.labels)}
        facts["label2id"] = {label: i for i, label in enumerate(words.labels)}
        facts.pop("num_labels", None)
    facts |= {"dtype": "float16" if half else "float32"} | (origin.config_ids() if origin is not None else {})
    write_json(folder / "config.json", facts)
    own_recipe = {"glassformer": VERSION, "recipe": recipe.to_dict()}
    if scales_by_hand(dialect, config) and output_name(config) is None:
        rows = {"embedding.weight": own["embedding.weight"]}  # there it is written multiplied
    if rows:
        save(rows, LEFT_OUT)
    if origin is not None:
        origin.write(folder)
        write_json(folder / "glassformer.json", own_recipe | {"ids": "foreign"})
        return []
    if config.family != "bert":
        write_json(folder / "generation_config.json", generation_config(recipe, words.target))
    notes = write_tokenizers(words, recipe, folder)
    if words.target.tokens_are_words:
        notes.append(_("words come back with a space between any two: restoring the spacing is not part of the file"))
    if config.head == "none":
        notes.append(_("BertModel's pooler, which this model has not, is written as zeros; use last_hidden_state"))
    write_json(folder / "glassformer.json", own_recipe)
    return notes


# ------------------------------------------------------------------------------------------------------ as an export target


def refuse(model: TextModel) -> None:
    """Where no class of theirs can say the model, that is said with the nearest."""
    origin, config = origin_of(model.tokenizers.target), model.model.config
    dialect_for(config if origin is None else origin.config(config))


def write(model: TextModel, folder: Path, weights: str, name: str) -> list[str]:
    """The folder that Auto classes load."""
    return export_folder(model.model, model.tokenizers, model.recipe, folder, half=weights == "fp16")


def open_folder(model: TextModel, folder: Path) -> Runtime:
    """The folder in transformers' hands; of a GPT that was imported, with the ids it came with."""
    origin = origin_of(model.tokenizers.target)
    return TransformersRuntime(folder, model, None if origin is None else {"target": origin.vocabulary})
