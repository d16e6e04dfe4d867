"""Models of Hugging Face that can be read and are written as another: BART, mBART, M2M100 (and NLLB), T5, OPT, RoBERTa,
Mistral, Qwen2; and what the files of each kind need before the tables of names fit.

    tables of positions begin at row 2 in BART's and OPT's files, and behind the id that pads in RoBERTa's: they are cut off there
    M2M100 computes its positions by another series of wavelengths: they become a table
    some have biases here and there: the others are zero
    OPT may have smaller embeddings and a matrix behind them: the two are multiplied
    GPT-2's and BERT's oldest files have older names
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from glassformer.config import ModelConfig
from glassformer.errors import UserError
from glassformer.formats.huggingface.dialects.bert import BERT, bert_from, with_prefix
from glassformer.formats.huggingface.dialects.decoder import (
    GPT2,
    LLAMA,
    QWEN3,
    copy_of_the_table,
    llama_from,
    llama_names,
    qwen2_biases,
    qwen_window,
)
from glassformer.formats.huggingface.dialects.dialect import ConfigNames, Dialect, Tensors, need
from glassformer.formats.huggingface.dialects.seq2seq import MARIAN, PEGASUS, seq2seq_from
from glassformer.formats.huggingface.dialects.t5 import t5_from, t5_ignored, t5_names

OFFSET = 2
"""Where tables of positions begin in BART and OPT, whatever id pads there."""


def first_position(hf: Mapping[str, Any]) -> int:
    """Where they begin in RoBERTa and M2M100: behind the id that pads, which is 1 where nothing else is said."""
    padding = hf.get("pad_token_id", 1)
    if type(padding) is not int or not 0 <= padding < need(hf, "max_position_embeddings"):
        raise UserError(
            "config.json has no usable pad_token_id: {padding!r}; the first position comes behind it", padding
        )
    return padding + 1


def opt_from(hf: Mapping[str, Any]) -> dict[str, Any]:
    """OPT: a GPT with learned positions and ReLU; pre-norm, or post-norm (the 350m)."""
    pre_norm = bool(hf.get("do_layer_norm_before", True))
    norms = {"pre_norm": pre_norm, "final_norm": pre_norm and not hf.get("_remove_final_layer_norm")}
    return ConfigNames.of("opt").read(hf) | norms


def roberta_ignored(config: ModelConfig) -> list[str]:
    """Copies of tied weights, and a pooler that no head of RoBERTa's uses."""
    copies = ["lm_head.decoder.bias", *(["lm_head.decoder.weight"] if config.tie_output else [])]
    return [*copies, "roberta.pooler.dense.weight", "roberta.pooler.dense.bias"]


def roberta_from(hf: Mapping[str, Any]) -> dict[str, Any]:
    """RoBERTa: BERT with positions that begin behind the id that pads."""
    return bert_from(hf) | {"block_size": need(hf, "max_position_embeddings") - first_position(hf)}


def mistral_from(hf: Mapping[str, Any]) -> dict[str, Any]:
    """Mistral: a Llama that may see a window of keys alone."""
    window = hf.get("sliding_window", 4096)
    sizes = {"num_key_value_heads": hf.get("num_key_value_heads", 8), "attention_bias": False, "mlp_bias": False}
    return llama_from({**hf, **sizes}) | {"window": window if type(window) is int and window > 0 else None}


def qwen2_from(hf: Mapping[str, Any]) -> dict[str, Any]:
    """Qwen2: a Llama with biases on queries, keys and values."""
    sizes = {"num_key_value_heads": hf.get("num_key_value_heads", 32), "attention_bias": True}
    return llama_from({**hf, **sizes}) | {"window": qwen_window(hf)}


# ------------------------------------------------------------------------------------------ before the tables of names fit


def cut_positions(hf: Mapping[str, Any], tensors: Tensors) -> Tensors:
    """Tables of positions without the rows that no position has."""
    return {name: tensor[OFFSET:] if "embed_positions" in name else tensor for name, tensor in tensors.items()}


def opt_names(hf: Mapping[str, Any], tensors: Tensors) -> Tensors:
    """With the biases and norms that it may do without, and embeddings as wide as the model: what is multiplied into them
    going in, and out of them coming out, (W_out h) E^T = h (E W_out)^T, is multiplied once and for all."""
    found, body = cut_positions(hf, tensors), "model.decoder."
    inner, outer = (found.pop(f"{body}project_{way}.weight", None) for way in ("in", "out"))
    table = found.get(f"{body}embed_tokens.weight")
    if table is not None and inner is not None and outer is not None:
        if table.size(-1) != inner.size(-1) or table.size(-1) != outer.size(0):
            raise UserError(
                "{body}project_in and project_out do not fit the embeddings of {size} numbers", body, table.size(-1)
            )
        found["lm_head.weight"] = found.get("lm_head.weight", table) @ outer
        found[f"{body}embed_tokens.weight"] = table @ inner.T
    for name, tensor in list(found.items()):
        if not hf.get("enable_bias", True) and re.search(r"\.(self_attn\.\w+_proj|fc[12])\.weight$", name):
            found[name.replace(".weight", ".bias")] = torch.zeros(tensor.size(0))
        if not hf.get("layer_norm_elementwise_affine", True) and name.endswith(".fc2.weight"):
            layer, width = name.removesuffix("fc2.weight"), tensor.size(0)
            found |= plain_norm(f"{layer}self_attn_layer_norm", width) | plain_norm(f"{layer}final_layer_norm", width)
            found |= plain_norm(f"{body}final_layer_norm", width) if opt_from(hf)["final_norm"] else {}
    return found


def plain_norm(name: str, width: int) -> Tensors:
    """A layer norm that neither scales nor shifts."""
    return {f"{name}.weight": torch.ones(width), f"{name}.bias": torch.zeros(width)}


def roberta_names(hf: Mapping[str, Any], tensors: Tensors) -> Tensors:
    """With the prefix that an encoder without a head lacks, and positions from the first that is used."""
    return {
        name: tensor[first_position(hf) :] if name.endswith("position_embeddings.weight") else tensor
        for name, tensor in with_prefix("roberta.", tensors).items()
    }


def m2m100_positions(hf: Mapping[str, Any], tensors: Tensors) -> Tensors:
    """fairseq's sinusoids: sines, then cosines, with wavelengths from 2 pi to exactly 10000 * 2 pi, from behind padding on."""
    width, length = need(hf, "d_model"), need(hf, "max_position_embeddings")
    half = width // 2
    if width % 2 or half < 2:
        raise UserError("d_model is {width}, and sinusoids in two halves need an even number of at least 4", width)
    steps = torch.exp(torch.arange(half, dtype=torch.float32) * -(math.log(10000) / (half - 1)))
    first = first_position(hf)
    angles = torch.arange(first, first + length, dtype=torch.float32)[:, None] * steps
    table = torch.cat([angles.sin(), angles.cos()], dim=1)
    kept = {n: t for n, t in tensors.items() if "embed_positions" not in n}
    return kept | {f"model.{side}.embed_positions.weight": table.clone() for side in ("encoder", "decoder")}


def mistral_names(hf: Mapping[str, Any], tensors: Tensors) -> Tensors:
    """It has no biases, whatever its config says of a Llama's."""
    return llama_names({}, tensors)


BART = replace(MARIAN, name="bart", from_config=seq2seq_from, half_split=False, tidy=cut_positions)
ROBERTA = replace(
    BERT, name="roberta", names="roberta", from_config=roberta_from, ignored=roberta_ignored, tidy=roberta_names
)
READ_ONLY = (
    BART,
    replace(BART, name="mbart"),
    replace(BART, name="m2m_100", tidy=m2m100_positions),
    Dialect("t5", "transformer", {}, {}, "t5", lambda config: {}, t5_from, ignored=t5_ignored, tidy=t5_names),
    replace(GPT2, name="opt", names="opt", from_config=opt_from, ignored=copy_of_the_table, tidy=opt_names),
    ROBERTA,
    replace(ROBERTA, name="xlm-roberta"),
    replace(LLAMA, name="mistral", from_config=mistral_from, tidy=mistral_names),
    replace(LLAMA, name="qwen2", from_config=qwen2_from, tidy=qwen2_biases),
)
READABLE: dict[str, Dialect] = {d.name: d for d in (MARIAN, PEGASUS, GPT2, LLAMA, QWEN3, BERT, *READ_ONLY)}
"""Every `model_type` of a config.json that can be imported."""
