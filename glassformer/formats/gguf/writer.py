"""A decoder for llama.cpp: one GGUF file with weights, sizes and tokenizer, written by the `gguf` package; and such a file in
llama.cpp's hands (the package llama-cpp-python), or, where that is not installed, read back and run here.

A tokenizer of kind bpe travels with it, and that of an imported model where it is byte-level BPE that cuts texts as GPT-2,
Llama 3 or Qwen2 do. llama.cpp knows no tokenizer by characters or words, so a model with one of those
is written without its words: ids go in and come out.
"""

from __future__ import annotations

import copy
import errno
import importlib.util
import json
import os
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from glassformer.config import DecodeConfig, ModelConfig
from glassformer.decode import SpecialTokens
from glassformer.formats.gguf.spec import architecture_of, cut_of, gguf_tensors, read_gguf
from glassformer.formats.huggingface.importing import in_our_order
from glassformer.formats.huggingface.tokenizers import adds_begin, one_id, read_tokenizers
from glassformer.formats.huggingface.vocabulary import ImportedModel, Vocabulary, origin_of
from glassformer.formats.huggingface.writer import write_tokenizers
from glassformer.formats.runtime import Ids, OurRuntime, Runtime
from glassformer.language import _
from glassformer.models import BERT, GPT, Transformer
from glassformer.models.weights import load_model_tensors
from glassformer.tasks import TextModel
from glassformer.text.tokenizer import BOS, CONTROL, EOS, PAD, UNK, Tokenizer

NO_BEAM = "llama.cpp has no beam search"


class ReadBack(OurRuntime):
    """The file's tensors in a model of ours: it shows that every number was written and can be read."""

    name = "the GGUF file, read back"
    lacks: tuple[str, ...] = (
        _("llama.cpp (llama-cpp-python) is not installed here: the file was read back tensor by tensor and run by us"),
    )

    def __init__(self, path: Path, model: TextModel, vocabulary: Vocabulary | None = None) -> None:
        net = copy.deepcopy(model.model).cpu().eval()
        if vocabulary is None:
            found = read_gguf(path, net.config)
        else:
            there = replace(net.config, vocab_size=vocabulary.size, output_bias=False)
            found = in_our_order(there, read_gguf(path, there), vocabulary, vocabulary)[1]
        load_model_tensors(net, found)
        super().__init__(TextModel(net, model.tokenizers, model.recipe), special=model.special_tokens)


class LlamaCppRuntime(Runtime):
    """llama.cpp itself, told to keep keys and values in float32 (by default it rounds them to 16 bits)."""

    name, family = "llama.cpp", "gpt"
    lacks: tuple[str, ...] = (NO_BEAM,)

    def __init__(self, path: Path, model: TextModel, vocabulary: Vocabulary | None = None) -> None:
        import llama_cpp

        self.block = model.model.config.block_size
        full = {"type_k": llama_cpp.GGML_TYPE_F32, "type_v": llama_cpp.GGML_TYPE_F32}
        how = {"n_ctx": self.block, "n_threads": torch.get_num_threads(), "logits_all": True, "verbose": False}
        self.runner: Any = llama_cpp.Llama(str(path), **how, **full)
        self.vocabulary = vocabulary or Vocabulary.ours_alone(model.model.config.vocab_size)
        self.end = self.vocabulary.order[EOS]
        self.rules = DecodeConfig(allow_unknown=True)
        self.special = replace(SpecialTokens(), never=())

    def scores(self, rows: Ids, targets: Ids) -> Sequence[np.ndarray]:
        """The scores after each id of each row, one row after the other."""
        found = []
        for row in rows:
            self.runner.reset()
            self.runner.eval(list(self.vocabulary.theirs(row)))
            found.append(self.vocabulary.scores(np.array(self.runner.scores[: len(row), : self.vocabulary.size])))
        return found

    def write(self, prompts: Ids, *, beam: int, limit: int) -> list[list[int]]:
        """The likeliest token, again and again."""
        found = []
        for prompt in prompts:
            self.runner.reset()
            self.runner.eval(list(self.vocabulary.theirs(prompt)))
            written: list[int] = []
            while len(written) < limit and self.runner.n_tokens < self.block:
                token = int(np.argmax(self.runner.scores[self.runner.n_tokens - 1, : self.vocabulary.size]))
                if token == self.end:
                    break
                written.append(self.vocabulary.ours.get(token, -1))
                if len(written) < limit:
                    self.runner.eval([token])
            found.append(written)
        return found


def open_gguf(path: Path, model: TextModel, vocabulary: Vocabulary | None = None) -> Runtime:
    """llama.cpp where it is installed, else the file read back. `vocabulary`: that of the file, where it is not ours."""
    if importlib.util.find_spec("llama_cpp") is not None:
        return LlamaCppRuntime(path, model, vocabulary)
    return ReadBack(path, model, vocabulary)


def write_sizes(writer: Any, config: ModelConfig) -> None:
    """What llama.cpp must know of the model besides its tensors."""
    c = config
    sizes: dict[str, Any] = {"context_length": c.block_size, "embedding_length": c.n_embd, "block_count": c.n_layer}
    sizes |= {"feed_forward_length": c.hidden, "head_count": c.n_head, "head_count_kv": c.kv_heads}
    sizes |= {"vocab_size": c.vocab_size, f"layer_norm{'_rms' * (c.norm == 'rms')}_eps": c.norm_eps}
    if c.norm == "rms":
        sizes |= {"rope_dimension_count": c.key_size, "rope_freq_base": c.rotary_theta}
        sizes |= {"key_length": c.key_size, "value_length": c.val_size}
        if c.rotary_linear_factor != 1:
            from gguf import RopeScalingType

            sizes |= {"rope_scaling_type": RopeScalingType.LINEAR, "rope_scaling_factor": c.rotary_linear_factor}
    for name, value in sizes.items():
        getattr(writer, f"add_{name}")(value)


CONTROL_TOKEN, NORMAL, UNUSED = 3, 1, 5  # llama.cpp's kinds of token


def write_words(
    writer: Any, cut: str, names: Sequence[str | None], control: Collection[int], merges: Sequence[Any]
) -> None:
    """The words, their kinds and the merges. `cut`: llama.cpp's name of the way texts are cut; a word that is None is unused."""
    kinds = dict.fromkeys(control, CONTROL_TOKEN) | {i: UNUSED for i, name in enumerate(names) if name is None}
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(cut)
    writer.add_token_list([f"<unused {i}>" if name is None else name for i, name in enumerate(names)])
    writer.add_token_types([kinds.get(i, NORMAL) for i in range(len(names))])
    writer.add_token_merges([merge if isinstance(merge, str) else " ".join(merge) for merge in merges])
    writer.add_add_eos_token(False)


def write_tokenizer(writer: Any, tokenizer: Tokenizer, vocab_size: int) -> list[str]:
    """A tokenizer of ours; of one that llama.cpp does not know, nothing but a note."""
    if tokenizer.kind != "bpe":
        writer.add_tokenizer_model("none")
        return [
            _(
                "the tokenizer is of kind {tokenizer_kind}, which llama.cpp does not know: ids go in and come out",
                tokenizer.kind,
            )
        ]
    facts = json.loads(tokenizer.library.to_str())["model"]
    names = [*sorted(facts["vocab"], key=facts["vocab"].__getitem__), *[None] * (vocab_size - len(facts["vocab"]))]
    write_words(writer, "gpt-2", names, range(CONTROL), facts["merges"])
    for name, token in (("bos", BOS), ("eos", EOS), ("unk", UNK), ("pad", PAD)):
        getattr(writer, f"add_{name}_token_id")(token)
    writer.add_add_bos_token(False)
    return []


def write_external_tokenizer(writer: Any, origin: ImportedModel, folder: Path) -> list[str]:
    """The words of the tokenizer whose files lie in the folder, under the numbers it gives them."""
    theirs = read_tokenizers(folder)[0]
    if (cut := cut_of(theirs.cut)) is None:
        writer.add_tokenizer_model("none")
        return [_("llama.cpp knows no tokenizer that cuts as this one does: ids go in and come out")]
    assert isinstance(theirs.cut, dict)
    silent, size = {*theirs.silent, *theirs.special.values()}, origin.vocabulary.size
    names = [theirs.names.get(i) for i in range(size)]
    control = [i for i, name in enumerate(names) if name in silent]
    write_words(writer, cut, names, control, theirs.cut["model"].get("merges") or [])
    for name, value in origin.config_ids().items():
        if (known := one_id(value)) is not None and known < size:
            getattr(writer, f"add_{name}")(known)
    writer.add_add_bos_token(adds_begin(theirs, {}, folder))
    return []


def stored(name: str, array: np.ndarray, weights: str) -> tuple[np.ndarray, Any]:
    """A tensor as it is written: vectors and positions in full; matrices in 16 bits, or in blocks of 8 bits with a scale
    (Q8_0) where a row is made of whole blocks."""
    import gguf

    if weights == "fp32" or array.ndim < 2 or name.startswith("position_embd"):
        return array, None
    if weights == "int8" and array.shape[-1] % 32 == 0:
        kind = gguf.GGMLQuantizationType.Q8_0
        return gguf.quants.quantize(array, kind), kind
    return array.astype(np.float16), None


def export_gguf(
    model: Transformer | GPT | BERT, tokenizer: Tokenizer, path: Path, *, name: str, weights: str = "fp32"
) -> list[str]:
    """Writes the file; gives what a reader should know. `weights`: fp32, fp16 or int8."""
    import gguf

    config, origin = model.config, origin_of(tokenizer)
    own: dict[str, Tensor] = dict(model.named_parameters())
    if origin is not None:
        config, own = origin.config(config), origin.tensors(own)
    dialect = architecture_of(config, own if origin is not None else None)
    writer = gguf.GGUFWriter(path, dialect.name)
    writer.add_name(name)
    kinds = {"fp32": "ALL_F32", "fp16": "MOSTLY_F16", "int8": "MOSTLY_Q8_0"}
    writer.add_file_type(gguf.LlamaFileType[kinds[weights]])
    write_sizes(writer, config)
    if origin is not None:
        notes = write_external_tokenizer(writer, origin, path.parent)
    else:
        notes = write_tokenizer(writer, tokenizer, config.vocab_size)
    with torch.no_grad():
        tensors = gguf_tensors(dialect, config, own)
    for tensor_name, array in tensors.items():
        written, kind = stored(tensor_name, array, weights)
        writer.add_tensor(tensor_name, written, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    try:
        gguf.GGUFReader(path)
    except (ValueError, IndexError):  # its writer does not tell what a full disk has not taken
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path)) from None
    return notes


def refuse(model: TextModel) -> None:
    """Where llama.cpp has no architecture for the model, that is said."""
    origin, config = origin_of(model.tokenizers.target), model.model.config
    if origin is None:
        architecture_of(config)
    else:
        architecture_of(origin.config(config), dict(model.model.named_parameters()))


def write(model: TextModel, folder: Path, weights: str, name: str) -> list[str]:
    """model.gguf, and the tokenizer for those who want it apart."""
    tokenizer, path = model.tokenizers.target, folder / "model.gguf"
    if (origin := origin_of(tokenizer)) is not None:
        origin.refuse(dict(model.model.named_parameters()), model.recipe)
        origin.write(folder)
    else:
        write_tokenizers(model.tokenizers, model.recipe, folder)
    return export_gguf(model.model, tokenizer, path, name=name, weights=weights)


def open_folder(model: TextModel, folder: Path) -> Runtime:
    """The file in llama.cpp's hands, or read back."""
    origin = origin_of(model.tokenizers.target)
    return open_gguf(folder / "model.gguf", model, None if origin is None else origin.vocabulary)
