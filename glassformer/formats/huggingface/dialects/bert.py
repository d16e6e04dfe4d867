"""BERT: the encoder alone, with its heads or without one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from glassformer.config import ModelConfig
from glassformer.formats.huggingface.dialects.dialect import (
    ACTIVATIONS,
    SAME_HEADS,
    ConfigNames,
    Dialect,
    Tensors,
    need,
)
from glassformer.formats.huggingface.dialects.reading import HEADS, labels_of

TYPES = "bert.embeddings.token_type_embeddings.weight"
"""Theirs always has it; a model of ours without types of token is written with one type of zeros."""


def bert_ignored(config: ModelConfig) -> list[str]:
    """Copies of tied weights and the next-sentence parts that masked words do not use."""
    copies = ["cls.predictions.decoder.bias", *(["cls.predictions.decoder.weight"] if config.tie_output else [])]
    unused = ["cls.seq_relationship.weight", "cls.seq_relationship.bias", "bert.embeddings.position_ids"]
    unused += [] if config.n_token_type else [TYPES]
    pooler = [] if config.head == "classify" else ["bert.pooler.dense.weight", "bert.pooler.dense.bias"]
    return copies + unused + pooler


SHAPE: dict[str, Any] = {"positions": "learned", "pre_norm": False, "final_norm": False, "embedding_norm": True}


def bert_to(config: ModelConfig) -> dict[str, Any]:
    """A BERT's config.json."""
    kinds = {"type_vocab_size": max(1, config.n_token_type), "num_labels": max(config.n_label, 2)}
    return {"model_type": "bert"} | ConfigNames.of("bert").written(config) | kinds


def bert_from(hf: Mapping[str, Any]) -> dict[str, Any]:
    """Our settings from a BERT's config.json."""
    name = next(iter(hf.get("architectures") or ["BertForMaskedLM"]))
    head = next((head for ending, head in HEADS.items() if name.endswith(ending)), "mlm")
    labels = len(labels_of(hf)) if head in ("classify", "tag") else 0
    own = {"family": "bert", "n_token_type": need(hf, "type_vocab_size"), "head": head, "n_label": labels}
    return ConfigNames.of("bert").read(hf) | SHAPE | own | {"norm": "layer", "bias": True, "scale_embeddings": False}


def with_prefix(prefix: str, tensors: Tensors) -> Tensors:
    """The tensors of an encoder that was saved without a head, under the names they have beside one."""
    if not any(name.startswith("embeddings.") for name in tensors):
        return tensors
    parts = ("embeddings.", "encoder.", "pooler.")
    return {f"{prefix}{name}" if name.startswith(parts) else name: tensor for name, tensor in tensors.items()}


def bert_names(hf: Mapping[str, Any], tensors: Tensors) -> Tensors:
    """Norms were called gamma and beta once."""
    renamed = {re.sub(r"gamma$", "weight", re.sub(r"beta$", "bias", n)): t for n, t in tensors.items()}
    return with_prefix("bert.", renamed)


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
    "bert",
    bert_to,
    bert_from,
    ignored=bert_ignored,
    tidy=bert_names,
)
