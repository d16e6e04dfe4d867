"""BERT: the encoder alone, with its heads or without one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from glassformer.config import ModelConfig
from glassformer.formats.huggingface.dialects.dialect import (
    ACTIVATIONS,
    SAME_HEADS,
    Dialect,
    activation_of,
    attention_rows,
    need,
)
from glassformer.formats.huggingface.dialects.reading import HEADS, labels_of
from glassformer.formats.huggingface.tables import Entry, same
from glassformer.text.tokenizer import PAD

TYPES = "bert.embeddings.token_type_embeddings.weight"
"""Theirs always has it; a model of ours without types of token is written with one type of zeros."""


def bert_table(config: ModelConfig) -> list[Entry]:
    """Our parameters beside Hugging Face's, for a BERT."""
    rows = same("embedding", "bert.embeddings.word_embeddings", bias=False)
    rows += same("positions", "bert.embeddings.position_embeddings", bias=False)
    if config.n_token_type:
        rows += same("type_embedding", TYPES.removesuffix(".weight"), bias=False)
    rows += same("embedding_norm", "bert.embeddings.LayerNorm")
    for i in range(config.n_layer):
        ours, theirs = f"encoder.{i}", f"bert.encoder.layer.{i}"
        names = ("self.query", "self.key", "self.value", "output.dense")
        rows += attention_rows(f"{ours}.attention", f"{theirs}.attention", names)
        rows += same(f"{ours}.attention_norm", f"{theirs}.attention.output.LayerNorm")
        rows += same(f"{ours}.mlp.up", f"{theirs}.intermediate.dense")
        rows += same(f"{ours}.mlp.down", f"{theirs}.output.dense") + same(
            f"{ours}.mlp_norm", f"{theirs}.output.LayerNorm"
        )
    if config.head == "mlm":
        rows += same("head.dense", "cls.predictions.transform.dense")
        rows += same("head.norm", "cls.predictions.transform.LayerNorm")
        rows.append(Entry(("head.bias",), "cls.predictions.bias"))
        return rows + ([] if config.tie_output else same("output", "cls.predictions.decoder", bias=False))
    if config.head == "none":
        return rows
    rows += same("head.dense", "bert.pooler.dense") if config.head == "classify" else []
    return rows + same("head.label", "classifier")


def bert_ignored(config: ModelConfig) -> list[str]:
    """Copies of tied weights and the next-sentence parts that masked words do not use."""
    copies = ["cls.predictions.decoder.bias", *(["cls.predictions.decoder.weight"] if config.tie_output else [])]
    unused = ["cls.seq_relationship.weight", "cls.seq_relationship.bias", "bert.embeddings.position_ids"]
    unused += [] if config.n_token_type else [TYPES]
    pooler = [] if config.head == "classify" else ["bert.pooler.dense.weight", "bert.pooler.dense.bias"]
    return copies + unused + pooler


def bert_to(config: ModelConfig) -> dict[str, Any]:
    """A BERT's config.json."""
    return {
        "model_type": "bert",
        "vocab_size": config.vocab_size,
        "hidden_size": config.n_embd,
        "num_hidden_layers": config.n_layer,
        "num_attention_heads": config.n_head,
        "intermediate_size": config.hidden,
        "hidden_act": ACTIVATIONS[config.activation],
        "hidden_dropout_prob": config.dropout,
        "attention_probs_dropout_prob": config.attention_dropout,
        "max_position_embeddings": config.block_size,
        "type_vocab_size": max(1, config.n_token_type),
        "layer_norm_eps": config.norm_eps,
        "tie_word_embeddings": config.tie_output,
        "pad_token_id": PAD,
        "num_labels": max(config.n_label, 2),
    }


def bert_from(hf: Mapping[str, Any]) -> dict[str, Any]:
    """Our settings from a BERT's config.json."""
    name = next(iter(hf.get("architectures") or ["BertForMaskedLM"]))
    head = next((head for ending, head in HEADS.items() if name.endswith(ending)), "mlm")
    return {
        "family": "bert",
        "vocab_size": need(hf, "vocab_size"),
        "block_size": need(hf, "max_position_embeddings"),
        "n_embd": need(hf, "hidden_size"),
        "n_layer": need(hf, "num_hidden_layers"),
        "n_head": need(hf, "num_attention_heads"),
        "n_hidden": need(hf, "intermediate_size"),
        "activation": activation_of(hf, "hidden_act"),
        "dropout": float(hf.get("hidden_dropout_prob", 0.1)),
        "attention_dropout": float(hf.get("attention_probs_dropout_prob", 0.1)),
        "n_token_type": need(hf, "type_vocab_size"),
        "norm_eps": float(hf.get("layer_norm_eps", 1e-12)),
        "tie_output": bool(hf.get("tie_word_embeddings", True)),
        "norm": "layer",
        "bias": True,
        "pre_norm": False,
        "final_norm": False,
        "embedding_norm": True,
        "positions": "learned",
        "scale_embeddings": False,
        "head": head,
        "n_label": len(labels_of(hf)) if head in ("classify", "tag") else 0,
    }


BERT = Dialect(
    "bert",
    "bert",
    {
        "mlm": "BertForMaskedLM",
        "classify": "BertForSequenceClassification",
        "tag": "BertForTokenClassification",
        "none": "BertModel",
    },
    SAME_HEADS
    | {
        "positions": "learned",
        "pre_norm": False,
        "final_norm": False,
        "embedding_norm": True,
        "activation": list(ACTIVATIONS),
        "pool": "first",
    },
    bert_table,
    bert_to,
    bert_from,
    ignored=bert_ignored,
)
