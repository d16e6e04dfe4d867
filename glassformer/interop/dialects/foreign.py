"""Models of Hugging Face that can be read and are written as another: BART, mBART, M2M100 (and NLLB), OPT, RoBERTa, Mistral,
Qwen2; and what the files of each kind need before the tables of names fit.

    tables of positions begin at row 2 in fairseq's children: the first two rows are cut off
    M2M100 computes its positions by another series of wavelengths: they become a table
    Qwen2 has biases on queries, keys and values alone: the others are zero
    GPT-2's and BERT's oldest files have older names
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from glassformer.config import ModelConfig
from glassformer.errors import UserError
from glassformer.interop.dialects.bert import BERT, bert_from
from glassformer.interop.dialects.decoder import GPT2, LLAMA, QWEN3, copy_of_the_table, llama_from
from glassformer.interop.dialects.dialect import Dialect, activation_of, attention_rows, need
from glassformer.interop.dialects.seq2seq import MARIAN, PEGASUS, SEQ2SEQ_ATTENTION, seq2seq_from
from glassformer.interop.tables import Entry, same

Tensors = dict[str, Tensor]
OFFSET = 2
"""fairseq's tables of positions begin behind padding, which is row 1."""


def bart_from(hf: Mapping[str, Any]) -> dict[str, Any]:
    """BART: learned positions, post-norm, a norm on the embeddings."""
    shape = {"positions": "learned", "embedding_norm": True, "pre_norm": False, "final_norm": False}
    return seq2seq_from(hf) | shape


def mbart_from(hf: Mapping[str, Any]) -> dict[str, Any]:
    """mBART: BART with pre-norm."""
    return bart_from(hf) | {"pre_norm": True, "final_norm": True}


def m2m100_from(hf: Mapping[str, Any]) -> dict[str, Any]:
    """M2M100 and NLLB: pre-norm, no norm on the embeddings, no output bias."""
    shape = {"positions": "learned", "pre_norm": True, "final_norm": True, "output_bias": False}
    return seq2seq_from(hf) | shape


def opt_table(config: ModelConfig) -> list[Entry]:
    """OPT's names."""
    rows = same("embedding", "model.decoder.embed_tokens", bias=False)
    rows += same("positions", "model.decoder.embed_positions", bias=False)
    for i in range(config.n_layer):
        ours, theirs = f"decoder.{i}", f"model.decoder.layers.{i}"
        rows += attention_rows(f"{ours}.attention", f"{theirs}.self_attn", SEQ2SEQ_ATTENTION)
        rows += same(f"{ours}.attention_norm", f"{theirs}.self_attn_layer_norm")
        rows += same(f"{ours}.mlp_norm", f"{theirs}.final_layer_norm")
        rows += same(f"{ours}.mlp.up", f"{theirs}.fc1") + same(f"{ours}.mlp.down", f"{theirs}.fc2")
    rows += same("decoder.norm", "model.decoder.final_layer_norm")
    return rows + ([] if config.tie_output else same("output", "lm_head", bias=False))


def opt_from(hf: Mapping[str, Any]) -> dict[str, Any]:
    """OPT: a GPT with learned positions, ReLU and pre-norm; the 350m, with post-norm and a projection, is another."""
    width = need(hf, "hidden_size")
    if not hf.get("do_layer_norm_before", True) or hf.get("word_embed_proj_dim", width) != width:
        raise UserError("this OPT has post-norm or embeddings of another width (the 350m), which cannot be imported")
    return {
        "family": "gpt",
        "vocab_size": need(hf, "vocab_size"),
        "block_size": need(hf, "max_position_embeddings"),
        "n_embd": width,
        "n_layer": need(hf, "num_hidden_layers"),
        "n_head": need(hf, "num_attention_heads"),
        "n_hidden": need(hf, "ffn_dim"),
        "activation": activation_of(hf, "activation_function"),
        "positions": "learned",
        "dropout": float(hf.get("dropout", 0.1)),
        "tie_output": bool(hf.get("tie_word_embeddings", True)),
        "scale_embeddings": False,
        "bias": bool(hf.get("enable_bias", True)),
    }


def roberta_table(config: ModelConfig) -> list[Entry]:
    """RoBERTa's names: BERT's body under another name, and heads of its own."""
    heads = ("cls.", "classifier", "bert.pooler")
    body = [entry for entry in BERT.table(config) if not entry.theirs.startswith(heads)]
    rows = [replace(entry, theirs=entry.theirs.replace("bert.", "roberta.", 1)) for entry in body]
    match config.head:
        case "mlm":
            rows += same("head.dense", "lm_head.dense") + same("head.norm", "lm_head.layer_norm")
            rows.append(Entry(("head.bias",), "lm_head.bias"))
            return rows + ([] if config.tie_output else same("output", "lm_head.decoder", bias=False))
        case "classify":
            return rows + same("head.dense", "classifier.dense") + same("head.label", "classifier.out_proj")
    return rows + same("head.label", "classifier")


def roberta_ignored(config: ModelConfig) -> list[str]:
    """Copies of tied weights, and a pooler that no head of RoBERTa's uses."""
    copies = ["lm_head.decoder.bias", *(["lm_head.decoder.weight"] if config.tie_output else [])]
    return [*copies, "roberta.pooler.dense.weight", "roberta.pooler.dense.bias"]


def roberta_from(hf: Mapping[str, Any]) -> dict[str, Any]:
    """RoBERTa: BERT with positions that begin at row 2."""
    kind = next(iter(hf.get("architectures") or [""]), "").replace("Roberta", "Bert")
    return bert_from({**hf, "architectures": [kind]}) | {"block_size": need(hf, "max_position_embeddings") - OFFSET}


def mistral_from(hf: Mapping[str, Any]) -> dict[str, Any]:
    """Mistral: a Llama that may see a window of keys alone."""
    window = hf.get("sliding_window")
    return llama_from(hf) | {"window": window if type(window) is int and window > 0 else None, "qk_norm": False}


def qwen2_from(hf: Mapping[str, Any]) -> dict[str, Any]:
    """Qwen2: a Llama with biases on queries, keys and values."""
    if hf.get("use_sliding_window"):
        raise UserError("use_sliding_window: some layers of this Qwen2 see a window, and here all layers are alike")
    return llama_from({**hf, "attention_bias": True, "mlp_bias": True}) | {"qk_norm": False}


READ_ONLY = (
    replace(MARIAN, name="bart", from_config=bart_from, half_split=False),
    replace(MARIAN, name="mbart", from_config=mbart_from, half_split=False),
    replace(MARIAN, name="m2m_100", from_config=m2m100_from, half_split=False),
    replace(GPT2, name="opt", table=opt_table, from_config=opt_from, ignored=copy_of_the_table),
    replace(BERT, name="roberta", table=roberta_table, from_config=roberta_from, ignored=roberta_ignored),
    replace(BERT, name="xlm-roberta", table=roberta_table, from_config=roberta_from, ignored=roberta_ignored),
    replace(LLAMA, name="mistral", from_config=mistral_from),
    replace(LLAMA, name="qwen2", from_config=qwen2_from),
)
READABLE: dict[str, Dialect] = {d.name: d for d in (MARIAN, PEGASUS, GPT2, LLAMA, QWEN3, BERT, *READ_ONLY)}
"""Every `model_type` of a config.json that can be imported."""


# ------------------------------------------------------------------------------------------ before the tables of names fit


def cut_positions(hf: Mapping[str, Any], tensors: Tensors) -> Tensors:
    """Tables of positions without the rows that no position has."""
    return {
        name: tensor[OFFSET:] if name.endswith("position_embeddings.weight") or "embed_positions" in name else tensor
        for name, tensor in tensors.items()
    }


def m2m100_positions(hf: Mapping[str, Any], tensors: Tensors) -> Tensors:
    """fairseq's sinusoids: sines, then cosines, with wavelengths from 2 pi to exactly 10000 * 2 pi, from row 2 on."""
    width, length = need(hf, "d_model"), need(hf, "max_position_embeddings")
    half = width // 2
    if width % 2 or half < 2:
        raise UserError(f"d_model is {width}, and sinusoids in two halves need an even number of at least 4")
    steps = torch.exp(torch.arange(half, dtype=torch.float32) * -(math.log(10000) / (half - 1)))
    angles = torch.arange(OFFSET, OFFSET + length, dtype=torch.float32)[:, None] * steps
    table = torch.cat([angles.sin(), angles.cos()], dim=1)
    kept = {n: t for n, t in tensors.items() if "embed_positions" not in n}
    return kept | {f"model.{side}.embed_positions.weight": table.clone() for side in ("encoder", "decoder")}


def gpt2_names(hf: Mapping[str, Any], tensors: Tensors) -> Tensors:
    """With the prefix that the oldest files lack, and without the causal mask that they hold."""
    prefixed = {n if n.startswith(("transformer.", "lm_head.")) else f"transformer.{n}": t for n, t in tensors.items()}
    found = {n: t for n, t in prefixed.items() if not n.endswith((".attn.bias", ".attn.masked_bias"))}
    if hf.get("scale_attn_by_inverse_layer_idx"):
        for name, tensor in list(found.items()):
            if layer := re.fullmatch(r"transformer\.h\.(\d+)\.attn\.c_attn\.(weight|bias)", name):
                queries = tensor.size(-1) // 3  # scores divided by a number are those of queries divided by it
                found[name] = torch.cat([tensor[..., :queries] / (int(layer[1]) + 1), tensor[..., queries:]], dim=-1)
    return found


def bert_names(hf: Mapping[str, Any], tensors: Tensors) -> Tensors:
    """Norms were called gamma and beta once."""
    return {re.sub(r"gamma$", "weight", re.sub(r"beta$", "bias", n)): t for n, t in tensors.items()}


def llama_names(hf: Mapping[str, Any], tensors: Tensors) -> Tensors:
    """Without the frequencies that some files hold."""
    return {n: t for n, t in tensors.items() if not n.endswith("rotary_emb.inv_freq")}


def qwen2_biases(hf: Mapping[str, Any], tensors: Tensors) -> Tensors:
    """The biases it does without, as zeros."""
    found = llama_names(hf, tensors)
    for name, tensor in list(found.items()):
        if re.search(r"(o_proj|gate_proj|up_proj|down_proj)\.weight$", name):
            found.setdefault(name.replace(".weight", ".bias"), torch.zeros(tensor.size(0), dtype=tensor.dtype))
    return found


TIDY: dict[str, Callable[[Mapping[str, Any], Tensors], Tensors]] = {
    "bart": cut_positions,
    "mbart": cut_positions,
    "m2m_100": m2m100_positions,
    "opt": cut_positions,
    "roberta": cut_positions,
    "xlm-roberta": cut_positions,
    "gpt2": gpt2_names,
    "bert": bert_names,
    "llama": llama_names,
    "mistral": llama_names,
    "qwen3": llama_names,
    "qwen2": qwen2_biases,
}
"""By model_type: what is done to a file's tensors first."""
