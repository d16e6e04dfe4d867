"""BERT and RoBERTa: the encoder alone, with its heads or without one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from glassformer.config import ModelConfig
from glassformer.errors import UserError
from glassformer.formats.huggingface.dialects.dialect import Dialect, Tensors, need, read_config, written_config

TYPES = "bert.embeddings.token_type_embeddings.weight"
"""Theirs always has it; a model of ours without types of token is written with one type of zeros."""


def bert_ignored(config: ModelConfig) -> list[str]:
    """Copies of tied weights and the next-sentence parts that masked words do not use."""
    copies = ["cls.predictions.decoder.bias", *(["cls.predictions.decoder.weight"] if config.tie_output else [])]
    unused = ["cls.seq_relationship.weight", "cls.seq_relationship.bias", "bert.embeddings.position_ids"]
    unused += [] if config.n_token_type else [TYPES]
    pooler = [] if config.head == "classify" else ["bert.pooler.dense.weight", "bert.pooler.dense.bias"]
    return copies + unused + pooler


def bert_to(config: ModelConfig) -> dict[str, Any]:
    """A BERT's config.json."""
    kinds = {"type_vocab_size": max(1, config.n_token_type), "num_labels": max(config.n_label, 2)}
    return {"model_type": "bert"} | written_config("bert", config) | kinds


def bert_from(hf: Mapping[str, Any]) -> dict[str, Any]:
    """Our settings from a BERT's config.json."""
    return read_config("bert", hf) | {"n_token_type": need(hf, "type_vocab_size")}


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


# ------------------------------------------------------------------------------------------------------------- RoBERTa


def first_position(hf: Mapping[str, Any]) -> int:
    """Where positions begin in RoBERTa and M2M100: behind the id that pads, which is 1 where nothing else is said."""
    padding = hf.get("pad_token_id", 1)
    if type(padding) is not int or not 0 <= padding < need(hf, "max_position_embeddings"):
        raise UserError(
            "config.json has no usable pad_token_id: {padding!r}; the first position comes behind it", padding
        )
    return padding + 1


def roberta_ignored(config: ModelConfig) -> list[str]:
    """Copies of tied weights, and a pooler that no head of RoBERTa's uses."""
    copies = ["lm_head.decoder.bias", *(["lm_head.decoder.weight"] if config.tie_output else [])]
    return [*copies, "roberta.pooler.dense.weight", "roberta.pooler.dense.bias"]


def roberta_from(hf: Mapping[str, Any]) -> dict[str, Any]:
    """RoBERTa: BERT with positions that begin behind the id that pads."""
    return bert_from(hf) | {"block_size": need(hf, "max_position_embeddings") - first_position(hf)}


def roberta_names(hf: Mapping[str, Any], tensors: Tensors) -> Tensors:
    """With the prefix that an encoder without a head lacks, and positions from the first that is used."""
    return {
        name: tensor[first_position(hf) :] if name.endswith("position_embeddings.weight") else tensor
        for name, tensor in with_prefix("roberta.", tensors).items()
    }


BERT = Dialect("bert", "bert", bert_from, bert_to, ignored=bert_ignored, tidy=bert_names)
ROBERTA = Dialect("roberta", "roberta", roberta_from, ignored=roberta_ignored, tidy=roberta_names)
XLM_ROBERTA = replace(ROBERTA, name="xlm-roberta")
