"""T5 (Raffel et al. 2020), its 1.1 and Flan-T5: an encoder-decoder with a learned bias for distances, read and not written.

Where the output layer is the embedding, T5 multiplies the decoder's output by n_embd^-0.5. That is the paper's sqrt(n_embd) on
the embeddings seen from the other side: a table divided by it, which is multiplied again where tokens are read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from glassformer.config import ModelConfig
from glassformer.errors import UserError
from glassformer.formats.huggingface.dialects.dialect import ConfigNames, need
from glassformer.formats.huggingface.dialects.seq2seq import seq2seq_ignored

GATED = {"gelu_tanh": "geglu_tanh", "gelu": "geglu", "silu": "swiglu"}
CROSS_BIAS = "model.decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"  # which nothing reads


def t5_ignored(config: ModelConfig) -> list[str]:
    """Copies of the table, and a bias of cross-attention in old files."""
    return [*seq2seq_ignored(config), CROSS_BIAS]


def t5_from(hf: Mapping[str, Any]) -> dict[str, Any]:
    """Our settings from a T5's config.json, whose `tie_word_embeddings` says what the file has."""
    kind = str(hf.get("feed_forward_proj", "relu"))
    own = "gelu_new" if kind == "gated-gelu" else kind.removeprefix("gated-")
    usual = {"n_positions": 512, "num_decoder_layers": need(hf, "num_layers")}
    found = ConfigNames.of("t5").read(
        usual | {n: v for n, v in hf.items() if v is not None} | {"feed_forward_proj": own}
    )
    if kind.startswith("gated-"):
        if found["activation"] not in GATED:
            raise UserError("feed_forward_proj is {kind}, and no gate here has that activation", kind[:40])
        found["activation"] = GATED[found["activation"]]
    return found | {"scale_embeddings": found["tie_output"] and scales_output(hf)}


def scales_output(hf: Mapping[str, Any]) -> bool:
    """Is the decoder's output multiplied by n_embd^-0.5? Files of before say so by tying the output layer."""
    return bool(hf.get("scale_decoder_outputs", hf.get("tie_word_embeddings") is not False))


def t5_names(hf: Mapping[str, Any], tensors: dict[str, Tensor]) -> dict[str, Tensor]:
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
