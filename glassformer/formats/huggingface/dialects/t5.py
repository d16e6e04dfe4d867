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
from glassformer.formats.huggingface.dialects.dialect import ConfigNames, attention_rows, need
from glassformer.formats.huggingface.dialects.seq2seq import seq2seq_ignored
from glassformer.formats.huggingface.tables import Entry, same

NAMES = ConfigNames(
    {
        "vocab_size": "vocab_size",
        "block_size": "n_positions",
        "n_embd": "d_model",
        "head_size": "d_kv",
        "n_layer": "num_decoder_layers",
        "n_encoder_layer": "num_layers",
        "n_head": "num_heads",
        "n_hidden": "d_ff",
    },
    {"dropout": ("dropout_rate", 0.1), "norm_eps": ("layer_norm_epsilon", 1e-6)},
    "feed_forward_proj",
    tied=True,
)
GATED = {"gelu_tanh": "geglu_tanh", "gelu": "geglu", "silu": "swiglu"}
CROSS_BIAS = "model.decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"  # which nothing reads


def t5_table(config: ModelConfig) -> list[Entry]:
    """T5's names, behind `model.`, and the two matrices that read in a gated feed-forward layer, or the one."""
    rows = same("embedding", "model.shared", bias=False)
    for stack, layers in (("encoder", config.encoder_layers), ("decoder", config.n_layer)):
        parts = [("attention", "SelfAttention"), *([("cross", "EncDecAttention")] if stack == "decoder" else [])]
        for i in range(layers):
            ours, theirs = f"{stack}.{i}", f"model.{stack}.block.{i}.layer"
            for number, (part, name) in enumerate(parts):
                rows += attention_rows(f"{ours}.{part}", f"{theirs}.{number}.{name}", "qkvo", bias=False)
            for number, part in enumerate([*(part for part, _ in parts), "mlp"]):
                rows += same(f"{ours}.{part}_norm", f"{theirs}.{number}.layer_norm", bias=False)
            names = {"gate": "wi_0", "up": "wi_1"} if config.activation in GATED.values() else {"up": "wi"}
            for part, name in {**names, "down": "wo"}.items():
                rows += same(f"{ours}.mlp.{part}", f"{theirs}.{len(parts)}.DenseReluDense.{name}", bias=False)
        first = f"model.{stack}.block.0.layer.0.SelfAttention.relative_attention_bias"
        rows += same(f"{stack}.positions", first, bias=False)
        rows += same(f"{stack}.norm", f"model.{stack}.final_layer_norm", bias=False)
    return rows + ([] if config.tie_output else same("output", "lm_head", bias=False))


def t5_ignored(config: ModelConfig) -> list[str]:
    """Copies of the table, and a bias of cross-attention in old files."""
    return [*seq2seq_ignored(config), CROSS_BIAS]


def t5_from(hf: Mapping[str, Any]) -> dict[str, Any]:
    """Our settings from a T5's config.json, whose `tie_word_embeddings` says what the file has."""
    kind = str(hf.get("feed_forward_proj", "relu"))
    own = "gelu_new" if kind == "gated-gelu" else kind.removeprefix("gated-")
    usual = {"n_positions": 512, "num_decoder_layers": need(hf, "num_layers")}
    found = NAMES.read(usual | {n: v for n, v in hf.items() if v is not None} | {"feed_forward_proj": own})
    if kind.startswith("gated-"):
        if found["activation"] not in GATED:
            raise UserError("feed_forward_proj is {kind}, and no gate here has that activation", kind[:40])
        found["activation"] = GATED[found["activation"]]
    return found | {
        "family": "transformer",
        "scale_embeddings": found["tie_output"] and scales_output(hf),
        "scaled_attention": False,
        "norm": "rms",
        "bias": False,
        "positions": "relative",
    }


def scales_output(hf: Mapping[str, Any]) -> bool:
    """Is the decoder's output multiplied by n_embd^-0.5? Files of before say so by tying the output layer."""
    return bool(hf.get("scale_decoder_outputs", hf.get("tie_word_embeddings") is not False))


def t5_names(hf: Mapping[str, Any], tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """With the prefix that other encoder-decoders have, each table once, and an output layer of its own as it is used."""
    found = {n if n.startswith("lm_head.") else f"model.{n}": t for n, t in tensors.items()}
    table, output = found.get("model.shared.weight"), found.get("lm_head.weight")
    if table is not None:
        found = {n: t for n, t in found.items() if not n.endswith(".embed_tokens.weight")}
    if table is not None and output is not None and not torch.equal(table, output) and scales_output(hf):
        found["lm_head.weight"] = output * need(hf, "d_model") ** -0.5
    return found
