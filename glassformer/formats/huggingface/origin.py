"""Where an imported GPT came from, and its way back: the ids of that model, its rows in their order, its own tokenizer.

Inside a run our control ids stand first, and those that the external model lacks are kept down by an output bias. No decoder of
Hugging Face's or of llama.cpp's has a place for such a bias, nor needs one: on the way out every row goes back to where it
stood, the rows that stood nowhere are left out, and the bias with them. So that this can be done from the run alone, its
tokenizer remembers the files it was made of.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from glassformer.config import ModelConfig, Recipe
from glassformer.errors import UserError
from glassformer.files.structured import read_regular
from glassformer.formats.huggingface.vocabulary import Vocabulary
from glassformer.formats.untrusted import inside, read_tensor_file
from glassformer.text.imported import ImportedTokenizer
from glassformer.text.pipeline_checks import LARGEST_FILE
from glassformer.text.tokenizer import BOS, EOS, PAD, Tokenizer

KEPT = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    "generation_config.json",
)
"""The files of a folder that say how its model reads and writes, beside its weights and sizes."""
IDS = {"bos_token_id": BOS, "eos_token_id": EOS, "pad_token_id": PAD}
ROWS = ("embedding.weight", "output.weight", "output_bias")
LEFT_OUT = "glassformer.safetensors"
"""In an exported folder: the rows of ids that the external model lacks, so that the way back is exact."""


@dataclass(frozen=True)
class ImportedModel:
    """The model that an imported GPT was: its ids, what its config.json called them, and its tokenizer's files."""

    vocabulary: Vocabulary
    ids: Mapping[str, Any]  # as config.json had them; one it did not have is not here
    files: Mapping[str, str]

    def config_ids(self) -> dict[str, Any]:
        """What config.json says of the ids that begin, end and pad."""
        found = {**self.vocabulary.copies, **self.vocabulary.control}
        return {name: self.ids.get(name, found.get(ours)) for name, ours in IDS.items()}

    def config(self, own: ModelConfig) -> ModelConfig:
        """The run's model as it is there."""
        return replace(own, vocab_size=self.vocabulary.size, output_bias=False)

    def tensors(self, own: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The run's parameters with a row for each id of theirs, in their order."""
        out = {name: tensor.detach() for name, tensor in own.items() if name != "output_bias"}
        return out | {name: self.vocabulary.back(out[name]) for name in ROWS if name in out}

    def refuse(self, own: Mapping[str, Tensor], recipe: Recipe) -> None:
        """What was learned since the import and has no place there."""
        bias = own.get("output_bias")
        if bias is not None and bool(self.vocabulary.back(bias.detach()).any()):
            raise UserError(
                "this model has learned an output bias since it was imported, and the model it came from has no place for "
                "one; export to ct2 or onnx, or fine-tune anew, which leaves that bias alone"
            )
        if not (recipe.data.begin_documents or recipe.data.task == "pairs") or BOS in self.vocabulary.control:
            return
        table, same = own["embedding.weight"], self.vocabulary.copies.get(BOS)
        if same is None or not torch.equal(table[BOS], table[self.vocabulary.ours[same]]):
            raise UserError(
                "this model has learned a token that begins a text, and the model it came from has none of its own; export "
                "to ct2 or onnx, or fine-tune with LoRA or with train.freeze=['embedding*']"
            )

    def left_out(self, own: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The rows that stand nowhere there."""
        never = self.vocabulary.never
        return {name: own[name].detach()[never].clone() for name in ROWS if name in own and never}

    def write(self, folder: Path) -> None:
        """The tokenizer's files, as they came."""
        for name, content in self.files.items():
            (folder / name).write_bytes(content.encode("utf-8", "surrogateescape"))


def remember(folder: Path, hf: Mapping[str, Any], vocabulary: Vocabulary) -> dict[str, Any]:
    """What a run's tokenizer keeps of the folder it came from, as plain values."""
    there = [name for name in KEPT if (folder / name).exists()]
    files = {n: read_regular(inside(folder, n), LARGEST_FILE).decode("utf-8", "surrogateescape") for n in there}
    return {
        "size": vocabulary.size,
        "control": [list(pair) for pair in vocabulary.control.items()],
        "copies": [list(pair) for pair in vocabulary.copies.items()],
        "ids": {name: hf[name] for name in IDS if name in hf},
        "files": base64.b64encode(zlib.compress(json.dumps(files).encode())).decode(),
    }


def unpacked(content: str) -> dict[str, str]:
    """The files again, of which none is another than those that are kept, and none beyond reason."""
    opened = zlib.decompressobj()
    files = json.loads(opened.decompress(base64.b64decode(content, validate=True), 2 * LARGEST_FILE))
    if opened.unconsumed_tail or not all(name in KEPT and isinstance(text, str) for name, text in files.items()):
        raise ValueError("its files are not those of a tokenizer")
    return dict(files)


def origin_of(tokenizer: Tokenizer) -> ImportedModel | None:
    """Where a GPT's tokenizer came from; None where it was learned here (or imported with a model of another kind)."""
    facts = tokenizer.foreign if isinstance(tokenizer, ImportedTokenizer) else None
    if facts is None:
        return None
    try:
        control, copies = ({int(ours): int(theirs) for ours, theirs in facts[name]} for name in ("control", "copies"))
        vocabulary = Vocabulary(int(facts["size"]), control, copies)
        if len(vocabulary.order) != tokenizer.vocab_size:
            raise ValueError("its sizes do not fit")
        return ImportedModel(vocabulary, dict(facts["ids"]), unpacked(facts["files"]))
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError, zlib.error) as error:
        raise UserError("what the run remembers of the model it came from cannot be read: {error}", error) from None


def with_left_out(folder: Path, own: dict[str, Tensor], vocabulary: Vocabulary) -> dict[str, Tensor]:
    """The run's parameters with the rows that an external folder had no place for."""
    never = vocabulary.never
    if not (folder / LEFT_OUT).exists():
        return own
    for name, rows in read_tensor_file(folder / LEFT_OUT).items():
        if name not in own or rows.shape != own[name][never].shape:
            raise UserError(
                "{folder} is of another model; take it out to import the model without it", folder / LEFT_OUT
            )
        own[name][never] = rows.to(own[name].dtype)
    return own
