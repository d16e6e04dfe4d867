"""Encoder-decoders: Marian and Pegasus, with sinusoids, post-norm and pre-norm; and, read and not written, BART, mBART and
M2M100 (and NLLB), and T5 (Raffel et al. 2020), its 1.1 and Flan-T5, with a learned bias for distances.

Where the output layer is the embedding, T5 multiplies the decoder's output by n_embd^-0.5. That is the paper's sqrt(n_embd) on
the embeddings seen from the other side: a table divided by it, which is multiplied again where tokens are read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from glassformer.config import ModelConfig
from glassformer.errors import UserError
from glassformer.formats.huggingface.dialects.bert import first_position
from glassformer.formats.huggingface.dialects.dialect import Dialect, Tensors, need, read_config, written_config
from glassformer.text.tokenizer import BOS, EOS

OFFSET = 2
"""Where tables of positions begin in BART and OPT, whatever id pads there."""
GATED = {"gelu_tanh": "geglu_tanh", "gelu": "geglu", "silu": "swiglu"}
CROSS_BIAS = "model.decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"  # which nothing reads


def shares_embedding(config: ModelConfig) -> bool:
    """Have source and target one table?"""
    return config.source_vocab_size is None and config.share_source_target


def seq2seq_ignored(config: ModelConfig) -> list[str]:
    """Copies of the shared table, tables of positions, which are computed, and a bias of cross-attention in T5's old files."""
    computed = ["model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight"]
    found = [CROSS_BIAS] if config.positions == "learned" else [CROSS_BIAS, *computed]
    if shares_embedding(config):
        found += ["model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"]
    found += ["lm_head.weight"] if config.tie_output else []
    return found + ([] if config.output_bias else ["final_logits_bias"])


def pegasus_to(config: ModelConfig) -> dict[str, Any]:
    """A Pegasus's config.json."""
    return written_config("marian", config) | {
        "vocab_size": config.source_vocab_size or config.vocab_size,
        "encoder_attention_heads": config.heads_of("encoder"),
        "encoder_ffn_dim": config.encoder_side.hidden,
        "activation_dropout": 0.0,
        "scale_embedding": config.scale_embeddings,
        "is_encoder_decoder": True,
        "bos_token_id": BOS,
        "eos_token_id": EOS,
        "decoder_start_token_id": BOS,
        "forced_eos_token_id": None,
        "model_type": "pegasus",
    }


def pegasus_from(hf: Mapping[str, Any]) -> dict[str, Any]:
    """Our settings from the config.json of a Pegasus or a BART."""
    found = read_config("marian", hf)
    heads, hidden = need(hf, "encoder_attention_heads"), need(hf, "encoder_ffn_dim")
    return found | {
        "n_encoder_head": None if heads == found["n_head"] else heads,
        "n_encoder_hidden": None if hidden == found["n_hidden"] else hidden,
        "scale_embeddings": bool(hf.get("scale_embedding", False)),
        "positions": "learned" if hf.get("learned_positions") else "sinusoidal",
        "share_source_target": bool(hf.get("share_encoder_decoder_embeddings", True)),
    }


def marian_to(config: ModelConfig) -> dict[str, Any]:
    """A Marian's config.json."""
    return pegasus_to(config) | {
        "model_type": "marian",
        "decoder_vocab_size": config.vocab_size,
        "share_encoder_decoder_embeddings": shares_embedding(config),
    }


def marian_from(hf: Mapping[str, Any]) -> dict[str, Any]:
    """Our settings from a Marian's config.json."""
    found, size = pegasus_from(hf), need(hf, "vocab_size")
    if found["share_source_target"]:
        return found | {"vocab_size": size}
    return found | {"vocab_size": hf.get("decoder_vocab_size") or size, "source_vocab_size": size}


def cut_positions(hf: Mapping[str, Any], tensors: Tensors) -> Tensors:
    """Tables of positions without the rows that no position has."""
    return {name: tensor[OFFSET:] if "embed_positions" in name else tensor for name, tensor in tensors.items()}


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


# ------------------------------------------------------------------------------------------------------------------ T5


def t5_from(hf: Mapping[str, Any]) -> dict[str, Any]:
    """Our settings from a T5's config.json, whose `tie_word_embeddings` says what the file has."""
    kind = str(hf.get("feed_forward_proj", "relu"))
    own = "gelu_new" if kind == "gated-gelu" else kind.removeprefix("gated-")
    usual = {"n_positions": 512, "num_decoder_layers": need(hf, "num_layers")}
    said = {name: value for name, value in hf.items() if value is not None}
    found = read_config("t5", usual | said | {"feed_forward_proj": own})
    if kind.startswith("gated-"):
        if found["activation"] not in GATED:
            raise UserError("feed_forward_proj is {kind}, and no gate here has that activation", kind[:40])
        found["activation"] = GATED[found["activation"]]
    return found | {"scale_embeddings": found["tie_output"] and scales_output(hf)}


def scales_output(hf: Mapping[str, Any]) -> bool:
    """Is the decoder's output multiplied by n_embd^-0.5? Files of before say so by tying the output layer."""
    return bool(hf.get("scale_decoder_outputs", hf.get("tie_word_embeddings") is not False))


def t5_names(hf: Mapping[str, Any], tensors: Tensors) -> Tensors:
    """With the prefix that other encoder-decoders have, the matrix that reads in under one name whether it is gated or not, each
    table once, and an output layer of its own as it is used."""
    named = {n.replace(".wi.", ".wi_1."): t for n, t in tensors.items()}
    found = {n if n.startswith("lm_head.") else f"model.{n}": t for n, t in named.items()}
    table, output = found.get("model.shared.weight"), found.get("lm_head.weight")
    if table is not None:
        found = {n: t for n, t in found.items() if not n.endswith(".embed_tokens.weight")}
    if table is not None and output is not None and not torch.equal(table, output) and scales_output(hf):
        found["lm_head.weight"] = output * need(hf, "d_model") ** -0.5
    return found


PEGASUS = Dialect("pegasus", "marian", pegasus_from, pegasus_to, scales=True, half_split=True, ignored=seq2seq_ignored)
MARIAN = replace(PEGASUS, name="marian", from_config=marian_from, to_config=marian_to)
BART = replace(PEGASUS, name="bart", half_split=False, tidy=cut_positions)
MBART = replace(BART, name="mbart")
M2M100 = replace(BART, name="m2m_100", tidy=m2m100_positions)
T5 = Dialect("t5", "t5", t5_from, ignored=seq2seq_ignored, tidy=t5_names)
