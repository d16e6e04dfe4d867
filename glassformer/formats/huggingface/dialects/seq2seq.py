"""Marian and Pegasus: the encoder-decoder with sinusoids, post-norm and pre-norm."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from glassformer.config import ModelConfig
from glassformer.formats.huggingface.dialects.dialect import (
    ACTIVATIONS,
    SAME_HEADS,
    ConfigNames,
    Dialect,
    need,
)
from glassformer.text.tokenizer import BOS, EOS


def shares_embedding(config: ModelConfig) -> bool:
    """Have source and target one table?"""
    return config.source_vocab_size is None and config.share_source_target


def seq2seq_ignored(config: ModelConfig) -> list[str]:
    """Copies of the shared table, and tables of positions, which are computed."""
    computed = ["model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight"]
    found = [] if config.positions == "learned" else computed
    if shares_embedding(config):
        found += ["model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"]
    found += ["lm_head.weight"] if config.tie_output else []
    return found + ([] if config.output_bias else ["final_logits_bias"])


def seq2seq_to(config: ModelConfig) -> dict[str, Any]:
    """What Marian's and Pegasus's config.json have in common."""
    return ConfigNames.of("marian").written(config) | {
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
    }


def seq2seq_from(hf: Mapping[str, Any]) -> dict[str, Any]:
    """What Marian's, Pegasus' and BART's configs have in common."""
    found = ConfigNames.of("marian").read(hf)
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
    return seq2seq_to(config) | {
        "model_type": "marian",
        "decoder_vocab_size": config.vocab_size,
        "share_encoder_decoder_embeddings": shares_embedding(config),
    }


def marian_from(hf: Mapping[str, Any]) -> dict[str, Any]:
    """Our settings from a Marian's config.json."""
    shares = bool(hf.get("share_encoder_decoder_embeddings", True))
    target = need(hf, "vocab_size") if shares else hf.get("decoder_vocab_size") or need(hf, "vocab_size")
    two = {} if shares else {"source_vocab_size": need(hf, "vocab_size")}
    return seq2seq_from(hf) | {"vocab_size": target} | two


def pegasus_to(config: ModelConfig) -> dict[str, Any]:
    """A Pegasus's config.json."""
    return seq2seq_to(config) | {"model_type": "pegasus"}


SEQ2SEQ_NEEDS = SAME_HEADS | {"positions": "sinusoidal", "norm_eps": 1e-5, "embedding_norm": False}
SEQ2SEQ_NEEDS |= {"activation": list(ACTIVATIONS)}
PRE_NORM = {"pre_norm": True, "final_norm": True}
MARIAN = Dialect(
    "marian",
    "transformer",
    {"mlm": "MarianMTModel"},
    SEQ2SEQ_NEEDS | {"pre_norm": False, "final_norm": False},
    "marian",
    marian_to,
    marian_from,
    scales=True,
    half_split=True,
    ignored=seq2seq_ignored,
)
PEGASUS = replace(
    MARIAN,
    name="pegasus",
    classes={"mlm": "PegasusForConditionalGeneration"},
    needs=SEQ2SEQ_NEEDS | PRE_NORM | {"share_source_target": True, "source_vocab_size": None},
    to_config=pegasus_to,
    from_config=seq2seq_from,
)
