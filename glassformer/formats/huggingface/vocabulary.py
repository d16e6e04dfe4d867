"""An external vocabulary in our order: control ids first, then every other word as it was; and, of an imported GPT, its way back.

Everywhere here ids 0 to 4 are PAD, BOS, EOS, UNK and MASK, and no text can spell them. An external model has such ids
elsewhere, shares one between two jobs (GPT-2's end of text, Marian's padding that also starts the decoder), or lacks some.
So its words are put in our order: rows of its tables are permuted with them, and an id it lacks is a row of zeros whose
score is pushed down so far that it takes no probability. Nothing a model says changes: every real word keeps its row.

>>> Vocabulary(6, {2: 5, 3: 0}).order
(-1, -1, 5, 0, -1, 1, 2, 3, 4)

What keeps those ids down is an output bias. No decoder of Hugging Face's or of llama.cpp's has a place for one, nor needs it: on
the way out every row goes back to where it stood, the rows that stood nowhere are left out, and the bias with them. So that this
can be done from the run alone, its tokenizer remembers the files it was made of.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from glassformer.config import ModelConfig, Recipe
from glassformer.errors import UserError
from glassformer.files.structured import read_regular
from glassformer.formats.untrusted import inside, read_tensor_file
from glassformer.text.imported import LARGEST_FILE, ImportedTokenizer
from glassformer.text.tokenizer import BOS, CONTROL, EOS, PAD, Tokenizer

NEVER = -1e4
"""Added to the score of an id that stands for nothing: its probability is exactly 0 in float32, and the
number still fits into 16 bits."""


@dataclass(frozen=True)
class Vocabulary:
    """`size` external ids, of which `control` says what each of ours is called there."""

    size: int
    control: Mapping[int, int]
    copies: Mapping[int, int] = field(default_factory=dict)  # ours that read as one of theirs and are never written

    def __post_init__(self) -> None:
        used = list(self.control.values())
        if len(set(used)) < len(used) or not all(0 <= i < self.size for i in used):
            raise UserError("the special ids {used} do not fit a vocabulary of {size:,} words", used, self.size)

    @cached_property
    def order(self) -> tuple[int, ...]:
        """Our id to theirs; -1 where they have none."""
        first = [self.control.get(i, -1) for i in range(CONTROL)]
        taken = set(first)
        return (*first, *(i for i in range(self.size) if i not in taken))

    @cached_property
    def ours(self) -> dict[int, int]:
        """The ids of the other vocabulary to ours."""
        return {theirs: ours for ours, theirs in enumerate(self.order) if theirs >= 0}

    @staticmethod
    def ours_alone(size: int) -> Vocabulary:
        """That of a model whose ids are ours."""
        return Vocabulary(size, {i: i for i in range(CONTROL)})

    @property
    def never(self) -> list[int]:
        """Our ids that are never written: those that stand for nothing there, and copies (which are in both lists)."""
        return [*(ours for ours, theirs in enumerate(self.order) if theirs < 0), *self.copies]

    @cached_property
    def reads_as(self) -> np.ndarray:
        """Our id to theirs as it is read: copies included; -1 where they have none."""
        return np.array([self.copies.get(ours, theirs) for ours, theirs in enumerate(self.order)])

    def theirs(self, ids: Iterable[int]) -> tuple[int, ...]:
        """Ids of ours as theirs."""
        return tuple(int(self.reads_as[i]) for i in ids)

    def scores(self, theirs: np.ndarray) -> np.ndarray:
        """Scores (T, V) with a column a word in our order; what is never written has none."""
        out = theirs[:, np.maximum(self.reads_as, 0)]
        out[:, self.never] = NEVER
        return out

    def rows(self, table: Float[Tensor, "V *C"]) -> Float[Tensor, "W *C"]:
        """A table with a row a word, in our order; zeros for what they lack. A table may have more rows than words."""
        order = torch.tensor(self.order)
        out = table.new_zeros(len(self.order), *table.shape[1:])
        out[order >= 0] = table[order[order >= 0]]
        for ours, theirs in self.copies.items():
            out[ours] = table[theirs]
        return out

    def back(self, table: Float[Tensor, "W *C"]) -> Float[Tensor, "V *C"]:
        """The way back: a table of ours in their order, without what they lack."""
        return table[torch.tensor([self.ours[theirs] for theirs in range(self.size)], device=table.device)]


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
