"""BERT: the encoder alone, with its heads or without one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from glassformer.config import ModelConfig
from glassformer.formats.huggingface.dialects.dialect import (
    ACTIVATIONS,
    SAME_HEADS,
    USUAL,
    ConfigNames,
    Dialect,
    attention_rows,
    need,
)
from glassformer.formats.huggingface.dialects.reading import HEADS, labels_of
from glassformer.formats.huggingface.tables import Entry, same

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


NAMES = ConfigNames(
    USUAL | {"n_hidden": "intermediate_size"},
    {
        "dropout": ("hidden_dropout_prob", 0.1),
        "attention_dropout": ("attention_probs_dropout_prob", 0.1),
        "norm_eps": ("layer_norm_eps", 1e-12),
    },
    "hidden_act",
    tied=True,
)
SHAPE: dict[str, Any] = {"positions": "learned", "pre_norm": False, "final_norm": False, "embedding_norm": True}


def bert_to(config: ModelConfig) -> dict[str, Any]:
    """A BERT's config.json."""
    kinds = {"type_vocab_size": max(1, config.n_token_type), "num_labels": max(config.n_label, 2)}
    return {"model_type": "bert"} | NAMES.written(config) | kinds


def bert_from(hf: Mapping[str, Any]) -> dict[str, Any]:
    """Our settings from a BERT's config.json."""
    name = next(iter(hf.get("architectures") or ["BertForMaskedLM"]))
    head = next((head for ending, head in HEADS.items() if name.endswith(ending)), "mlm")
    labels = len(labels_of(hf)) if head in ("classify", "tag") else 0
    own = {"family": "bert", "n_token_type": need(hf, "type_vocab_size"), "head": head, "n_label": labels}
    return NAMES.read(hf) | SHAPE | own | {"norm": "layer", "bias": True, "scale_embeddings": False}


BERT = Dialect(
    "bert",
    "bert",
    {
        "mlm": "BertForMaskedLM",
        "classify": "BertForSequenceClassification",
        "tag": "BertForTokenClassification",
        "none": "BertModel",
    },
    SAME_HEADS | SHAPE | {"activation": list(ACTIVATIONS), "pool": "first"},
    bert_table,
    bert_to,
    bert_from,
    ignored=bert_ignored,
)
