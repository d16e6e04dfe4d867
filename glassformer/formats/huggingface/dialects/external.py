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
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from glassformer.config import ModelConfig
from glassformer.errors import UserError
from glassformer.formats.huggingface.dialects.bert import BERT, bert_from
from glassformer.formats.huggingface.dialects.decoder import (
    GPT2,
    LLAMA,
    QWEN3,
    copy_of_the_table,
    llama_from,
    qwen_window,
)
from glassformer.formats.huggingface.dialects.dialect import USUAL, ConfigNames, Dialect, attention_rows, need
from glassformer.formats.huggingface.dialects.seq2seq import MARIAN, PEGASUS, SEQ2SEQ_ATTENTION, seq2seq_from
from glassformer.formats.huggingface.dialects.t5 import t5_from, t5_ignored, t5_names, t5_table
from glassformer.formats.huggingface.tables import Entry, same

Tensors = dict[str, Tensor]
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
    rows += same("decoder.norm", "model.decoder.final_layer_norm") if config.final_norm else []
    return rows + ([] if config.tie_output else same("output", "lm_head", bias=False))


OPT_NAMES = ConfigNames(
    USUAL | {"n_hidden": "ffn_dim"}, {"dropout": ("dropout", 0.1)}, "activation_function", tied=True
)


def opt_from(hf: Mapping[str, Any]) -> dict[str, Any]:
    """OPT: a GPT with learned positions and ReLU; pre-norm, or post-norm (the 350m)."""
    pre_norm = bool(hf.get("do_layer_norm_before", True))
    norms = {"pre_norm": pre_norm, "final_norm": pre_norm and not hf.get("_remove_final_layer_norm")}
    own = {"family": "gpt", "positions": "learned", "scale_embeddings": False, "bias": True}
    return OPT_NAMES.read(hf) | norms | own


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
        case "none":
            return rows
    return rows + same("head.label", "classifier")


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


READ_ONLY = (
    replace(MARIAN, name="bart", from_config=bart_from, half_split=False),
    replace(MARIAN, name="mbart", from_config=mbart_from, half_split=False),
    replace(MARIAN, name="m2m_100", from_config=m2m100_from, half_split=False),
    Dialect("t5", "transformer", {}, {}, t5_table, lambda config: {}, t5_from, ignored=t5_ignored),
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


def with_prefix(prefix: str, tensors: Tensors) -> Tensors:
    """The tensors of an encoder that was saved without a head, under the names they have beside one."""
    if not any(name.startswith("embeddings.") for name in tensors):
        return tensors
    parts = ("embeddings.", "encoder.", "pooler.")
    return {f"{prefix}{name}" if name.startswith(parts) else name: tensor for name, tensor in tensors.items()}


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
    renamed = {re.sub(r"gamma$", "weight", re.sub(r"beta$", "bias", n)): t for n, t in tensors.items()}
    return with_prefix("bert.", renamed)


def llama_names(hf: Mapping[str, Any], tensors: Tensors) -> Tensors:
    """Without the frequencies that some files hold, and with zeros for biases where the model has some and not all."""
    found = {n: t for n, t in tensors.items() if not n.endswith("rotary_emb.inv_freq")}
    attention, rest = bool(hf.get("attention_bias")), bool(hf.get("mlp_bias"))
    return found if attention == rest else with_zeros(found, "gate|up|down" if attention else "q|k|v|o")


def qwen2_biases(hf: Mapping[str, Any], tensors: Tensors) -> Tensors:
    """The biases it does without, as zeros."""
    return with_zeros(llama_names({}, tensors), "o|gate|up|down")


def qwen3_names(hf: Mapping[str, Any], tensors: Tensors) -> Tensors:
    """Its feed-forward layers have no biases, whatever its config says of a Llama's."""
    return llama_names({**hf, "mlp_bias": False}, tensors)


def mistral_names(hf: Mapping[str, Any], tensors: Tensors) -> Tensors:
    """It has no biases, whatever its config says of a Llama's."""
    return llama_names({}, tensors)


def with_zeros(tensors: Tensors, projections: str) -> Tensors:
    """With a bias of zeros for each of these projections."""
    found = dict(tensors)
    for name, tensor in tensors.items():
        if re.search(rf"\.({projections})_proj\.weight$", name):
            found.setdefault(name.replace(".weight", ".bias"), torch.zeros(tensor.size(0), dtype=tensor.dtype))
    return found


TIDY: dict[str, Callable[[Mapping[str, Any], Tensors], Tensors]] = {
    "bart": cut_positions,
    "mbart": cut_positions,
    "m2m_100": m2m100_positions,
    "t5": t5_names,
    "opt": opt_names,
    "roberta": roberta_names,
    "xlm-roberta": roberta_names,
    "gpt2": gpt2_names,
    "bert": bert_names,
    "llama": llama_names,
    "mistral": mistral_names,
    "qwen3": qwen3_names,
    "qwen2": qwen2_biases,
}
"""By model_type: what is done to a file's tensors first."""
