"""A decoder for llama.cpp: one GGUF file with weights, sizes and tokenizer, written by the `gguf` package.

Four architectures of llama.cpp fit: `gpt2` (learned positions, GELU by tanh), `llama` (rotary, RMSNorm, SwiGLU), `qwen3` (the
same with a norm on queries and keys) and, for a model that was imported as one, `qwen2`. llama.cpp turns neighbouring pairs of
a Llama's queries and keys where we turn dimension i with i + D/2, so their rows are put in its order; those of Qwen are turned
as ours are.

A tokenizer of kind bpe travels with it, and that of an imported model where it is byte-level BPE that cuts texts as GPT-2,
Llama 3 or Qwen2 do. llama.cpp knows no tokenizer by characters or words, so a model with one of those
is written without its words: ids go in and come out.
"""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from glassformer.config import ModelConfig
from glassformer.errors import UserError, install_hint
from glassformer.formats.huggingface.dialects import Dialect, dialect_for
from glassformer.formats.huggingface.dialects.decoder import QWEN2
from glassformer.formats.huggingface.dialects.external import READABLE, TIDY
from glassformer.formats.huggingface.importing import adds_begin
from glassformer.formats.huggingface.origin import ImportedModel, origin_of
from glassformer.formats.huggingface.tokenizers import one_id, read_tokenizers
from glassformer.formats.huggingface.writer import tensors_from, tensors_to
from glassformer.models import BERT, GPT, Transformer
from glassformer.text.pipeline_checks import steps_of
from glassformer.text.tokenizer import BOS, CONTROL, EOS, PAD, UNK, Tokenizer

LAYER_NAMES = {
    "gpt2": {
        "ln_1": "attn_norm",
        "attn.c_attn": "attn_qkv",
        "attn.c_proj": "attn_output",
        "ln_2": "ffn_norm",
        "mlp.c_fc": "ffn_up",
        "mlp.c_proj": "ffn_down",
    },
    "llama": {
        "input_layernorm": "attn_norm",
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
        "self_attn.q_norm": "attn_q_norm",
        "self_attn.k_norm": "attn_k_norm",
        "post_attention_layernorm": "ffn_norm",
        "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
    },
}
OUTER_NAMES = {
    "transformer.wte": "token_embd",
    "transformer.wpe": "position_embd",
    "transformer.ln_f": "output_norm",
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
}

TAIL = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
HEAD = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
CUTS = {f"{HEAD}\\p{{N}}{{1,3}}|{TAIL}": "llama-bpe", f"{HEAD}\\p{{N}}|{TAIL}": "qwen2"}
"""Patterns of Llama 3's and Qwen2's tokenizer.json, and llama.cpp's names of them."""


def gguf_name(name: str) -> str:
    """A name of Hugging Face's as llama.cpp calls it.

    >>> gguf_name("transformer.h.3.attn.c_attn.weight")
    'blk.3.attn_qkv.weight'
    """
    stem, _, kind = name.rpartition(".")
    if stem in OUTER_NAMES:
        return f"{OUTER_NAMES[stem]}.{kind}"
    family, prefix = ("gpt2", "transformer.h.") if stem.startswith("transformer.") else ("llama", "model.layers.")
    layer, _, part = stem.removeprefix(prefix).partition(".")
    return f"blk.{layer}.{LAYER_NAMES[family][part]}.{kind}"


def neighbouring_pairs(x: Tensor, n_head: int) -> Tensor:
    """Rows of a query or key matrix (or its bias) reordered from pairs (i, i + D/2) to pairs (2i, 2i + 1)."""
    return x.unflatten(0, (n_head, 2, -1)).transpose(1, 2).flatten(0, 2)


def gguf_tensors(dialect: Dialect, config: ModelConfig, own: dict[str, Tensor]) -> dict[str, np.ndarray]:
    """Every tensor by llama.cpp's name, as it stores them: rows are outputs."""
    tensors, _ = tensors_to(dialect, config, own)
    out = {}
    for name, tensor in tensors.items():
        if dialect.name == "gpt2" and tensor.dim() == 2 and ".h." in name:
            tensor = tensor.T  # GPT-2 keeps in x out
        if dialect.name == "llama" and ".q_proj." in name:
            tensor = neighbouring_pairs(tensor, config.n_head)
        if dialect.name == "llama" and ".k_proj." in name:
            tensor = neighbouring_pairs(tensor, config.kv_heads)
        out[gguf_name(name)] = tensor.detach().float().contiguous().numpy()
    return out


def refuse_what_llama_cpp_lacks(dialect: Dialect, config: ModelConfig) -> None:
    """The dialect can say it and llama.cpp's architecture of that name cannot."""
    if dialect.name == "gpt2" and config.activation != "gelu_tanh":
        raise UserError(
            f"llama.cpp's gpt2 has the activation gelu_tanh alone, and this model has {config.activation}; export to hf or "
            "onnx instead"
        )
    if config.rotary_scaling == "llama3":
        raise UserError(
            "gguf is written without the frequencies of model.rotary_scaling=llama3; export to hf or onnx instead"
        )
    if dialect.name == "llama" and config.bias:
        raise UserError(
            "llama.cpp's llama has no biases, and this model has model.bias=true; export to hf or onnx instead"
        )


def write_sizes(writer: Any, config: ModelConfig) -> None:
    """What llama.cpp must know of the model besides its tensors."""
    writer.add_context_length(config.block_size)
    writer.add_embedding_length(config.n_embd)
    writer.add_block_count(config.n_layer)
    writer.add_feed_forward_length(config.hidden)
    writer.add_head_count(config.n_head)
    writer.add_head_count_kv(config.kv_heads)
    writer.add_vocab_size(config.vocab_size)
    if config.norm == "rms":
        writer.add_layer_norm_rms_eps(config.norm_eps)
        writer.add_rope_dimension_count(config.key_size)
        writer.add_rope_freq_base(config.rotary_theta)
        if config.rotary_linear_factor != 1:
            from gguf import RopeScalingType

            writer.add_rope_scaling_type(RopeScalingType.LINEAR)
            writer.add_rope_scaling_factor(config.rotary_linear_factor)
        writer.add_key_length(config.key_size)
        writer.add_value_length(config.val_size)
    else:
        writer.add_layer_norm_eps(config.norm_eps)


def write_tokenizer(writer: Any, tokenizer: Tokenizer, vocab_size: int) -> list[str]:
    """The words, their kinds and the merges; for a tokenizer that llama.cpp does not know, none."""
    if tokenizer.kind != "bpe":
        writer.add_tokenizer_model("none")
        return [f"the tokenizer is of kind {tokenizer.kind}, which llama.cpp does not know: ids go in and come out"]
    facts = json.loads(tokenizer.library.to_str())
    names = sorted(facts["model"]["vocab"], key=facts["model"]["vocab"].__getitem__)
    names += [f"<unused {i}>" for i in range(len(names), vocab_size)]
    control, normal, unused = 3, 1, 5  # llama.cpp's kinds of token
    kinds = [control if i < CONTROL else normal if i < tokenizer.vocab_size else unused for i in range(vocab_size)]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(names)
    writer.add_token_types(kinds)
    writer.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in facts["model"]["merges"]])
    writer.add_bos_token_id(BOS)
    writer.add_eos_token_id(EOS)
    writer.add_unk_token_id(UNK)
    writer.add_pad_token_id(PAD)
    writer.add_add_bos_token(False)
    writer.add_add_eos_token(False)
    return []


def cut_of(facts: Any) -> str | None:
    """llama.cpp's name of the way a byte-level BPE cuts a text before it merges; None where it is not one of those."""
    if not isinstance(facts, dict) or facts["model"]["type"] != "BPE":
        return None
    steps = [step for step in steps_of(facts.get("pre_tokenizer")) if step.get("type") != "Sequence"]
    if [step.get("type") for step in steps] == ["ByteLevel"]:
        plain = not steps[0].get("add_prefix_space") and steps[0].get("use_regex", True)
        return "gpt-2" if plain else None
    if [step.get("type") for step in steps] == ["Split", "ByteLevel"] and not steps[1].get("use_regex", True):
        pattern = steps[0].get("pattern")
        return CUTS.get(pattern.get("Regex", "")) if isinstance(pattern, dict) else None
    return None


def write_foreign_tokenizer(writer: Any, origin: ImportedModel, folder: Path) -> list[str]:
    """The words of the tokenizer whose files lie in the folder, under the numbers it gives them."""
    theirs = read_tokenizers(folder)[0]
    if (cut := cut_of(theirs.cut)) is None:
        writer.add_tokenizer_model("none")
        return ["llama.cpp knows no tokenizer that cuts as this one does: ids go in and come out"]
    assert isinstance(theirs.cut, dict)
    control, normal, unused = 3, 1, 5  # llama.cpp's kinds of token
    silent, size = {*theirs.silent, *theirs.special.values()}, origin.vocabulary.size
    names = [theirs.names.get(i) for i in range(size)]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(cut)
    writer.add_token_list([f"<unused {i}>" if name is None else name for i, name in enumerate(names)])
    writer.add_token_types([unused if name is None else control if name in silent else normal for name in names])
    merges = theirs.cut["model"].get("merges") or []
    writer.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in merges])
    ids = {name: one_id(value) for name, value in origin.config_ids().items()}
    for name, add in (
        ("bos", writer.add_bos_token_id),
        ("eos", writer.add_eos_token_id),
        ("pad", writer.add_pad_token_id),
    ):
        if (known := ids[f"{name}_token_id"]) is not None and known < size:
            add(known)
    writer.add_add_bos_token(adds_begin(theirs, {}, folder))
    writer.add_add_eos_token(False)
    return []


def own_pairs(x: Tensor, n_head: int) -> Tensor:
    """The way back: from pairs (2i, 2i + 1) to pairs (i, i + D/2)."""
    return x.unflatten(0, (n_head, -1, 2)).transpose(1, 2).flatten(0, 2)


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


def read_gguf(path: Path, config: ModelConfig) -> dict[str, Tensor]:
    """Every tensor of such a file as a parameter of ours: what was written, read back."""
    import gguf

    dialect = dialect_for(config)
    reader = gguf.GGUFReader(path)
    if reader.fields["general.architecture"].contents() == QWEN2.name:
        dialect = QWEN2
    theirs = {gguf_name(e.theirs): e.theirs for e in dialect.table(config)} | {"output.weight": "lm_head.weight"}
    found: dict[str, Tensor] = {}
    for tensor in reader.tensors:
        shape = tuple(reversed(tensor.shape.tolist()))
        numbers = gguf.quants.dequantize(tensor.data, tensor.tensor_type).reshape(shape)
        own = torch.from_numpy(np.array(numbers, dtype=np.float32))
        name = theirs[tensor.name]
        if dialect.name == "llama" and ".q_proj." in name:
            own = own_pairs(own, config.n_head)
        if dialect.name == "llama" and ".k_proj." in name:
            own = own_pairs(own, config.kv_heads)
        found[name] = own.T.contiguous() if dialect.name == "gpt2" and own.dim() == 2 and ".h." in name else own
    return tensors_from(READABLE[dialect.name], config, TIDY[dialect.name]({}, found))


def export_gguf(
    model: Transformer | GPT | BERT, tokenizer: Tokenizer, path: Path, *, name: str, weights: str = "fp32"
) -> list[str]:
    """Writes the file; gives what a reader should know. `weights`: fp32, fp16 or int8."""
    try:
        import gguf
    except ImportError:
        raise UserError(f"exporting to gguf needs the package gguf; install it with: {install_hint('gguf')}") from None
    config, origin = model.config, origin_of(tokenizer)
    own: dict[str, Tensor] = dict(model.named_parameters())
    if config.family != "gpt":
        raise UserError(
            f"gguf is for models that are a decoder alone, and this one is a {config.family}; export to hf"
            + (" or ct2" if config.family == "transformer" else "")
        )
    if origin is not None:
        config, own = origin.config(config), origin.tensors(own)
    dialect = dialect_for(config, own if origin is not None else None)
    refuse_what_llama_cpp_lacks(dialect, config)
    writer = gguf.GGUFWriter(path, dialect.name)
    writer.add_name(name)
    kinds = {"fp32": "ALL_F32", "fp16": "MOSTLY_F16", "int8": "MOSTLY_Q8_0"}
    writer.add_file_type(gguf.LlamaFileType[kinds[weights]])
    write_sizes(writer, config)
    if origin is not None:
        notes = write_foreign_tokenizer(writer, origin, path.parent)
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
