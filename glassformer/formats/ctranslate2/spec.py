"""A model of ours as CTranslate2 has it: its own description of a Transformer, filled with our weights.

CTranslate2 (OpenNMT; Klein et al. 2020) runs Transformers on CPUs in C++, in 8 bits where the processor has instructions
for them. `make_spec` fills its model specification; `load` hands it over and gives a Translator (encoder-decoder) or a
Generator (GPT); `save` leaves a folder that any program with CTranslate2 can read. Its tokens are strings: those of our
vocabulary where they are given (`Vocabularies`), and the ids, written as numbers, where nobody but us asks.

`unsupported_setting` names what a model has that CTranslate2 cannot express. Tables of positions are written out row by
row, since its own sinusoids are in another order than the paper's; it knows as many positions as rows were written.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from glassformer import machine
from glassformer.config import ModelConfig
from glassformer.errors import ConfigError
from glassformer.formats.targets import target_of

ACTIVATIONS = {
    "relu": "RELU",
    "gelu": "GELU",
    "gelu_tanh": "GELUTanh",
    "silu": "SWISH",
    "swiglu": "SWISH",
    "geglu": "GELU",
    "geglu_tanh": "GELUTanh",
}
GATED = ("swiglu", "geglu", "geglu_tanh")
NO_PENALTY = 1e-30  # of lengths: not 0, with which CTranslate2 may stop at its first answer


@dataclass(frozen=True)
class Vocabularies:
    """The special tokens that CTranslate2 has to know, by id, and the tokens of the two vocabularies as strings."""

    bos: int
    eos: int
    unknown: int
    source: Sequence[str] | None = None
    target: Sequence[str] | None = None

    def strings(self, given: Sequence[str] | None, size: int) -> list[str]:
        """A vocabulary of `size` tokens as strings: as given, or the ids."""
        return [str(i) for i in range(size)] if given is None else list(given)


def unsupported(config: ModelConfig) -> tuple[str, str] | None:
    """The first setting that CTranslate2 does not support, and the nearest that it does; None where it supports all."""
    c, pairs = config, config.family == "transformer"
    if c.family == "bert":
        return "a BERT, which writes nothing", "a BERT can be exported to hf"
    if c.head == "classify":
        return "model.head=classify", "a classifier can be exported to hf where it is a BERT"
    if c.pruned_heads:
        return "model.pruned_heads", "the run that was pruned can be exported"
    where = " in an encoder-decoder" if pairs and c.positions == "alibi" else ""
    lacking = {
        f"model.activation={c.activation}": (c.activation not in ACTIVATIONS, "model.activation=relu"),
        f"model.norm={c.norm}": (c.norm not in ("layer", "rms"), "model.norm=layer"),
        f"model.positions={c.positions}{where}": (where or c.positions == "relative", "model.positions=rotary"),
        f"model.window={c.window}": (c.window is not None, "no window"),
        f"model.n_encoder_head={c.n_encoder_head}": (c.n_encoder_head not in (None, c.n_head), "as many on both sides"),
        "model.rotary_scaling=llama3": (c.rotary_scaling == "llama3", "model.rotary_scaling=ntk"),
        "model.residual=false": (not c.residual, "model.residual=true"),
        f"model.value_size={c.val_size}": (c.val_size != c.key_size, "values as wide as keys"),
        "model.qk_norm in an encoder-decoder": (pairs and c.qk_norm, "model.qk_norm=false"),
    }
    found = ((setting, f"the nearest it has is {nearest}") for setting, (holds, nearest) in lacking.items() if holds)
    return next(found, None)


def unsupported_setting(config: ModelConfig) -> str | None:
    """The first setting of this model that CTranslate2 does not support; None where it supports all."""
    found = unsupported(config)
    return None if found is None else found[0]


def compute_type() -> str:
    """The arithmetic of the fewest bits that keeps a model's quality on this processor: 8 bits, or 16 on an x86-64 without dot
    products of 8 bits, where CTranslate2's 8 bits cost 1.5 BLEU of 94 and 0.5% of dates, and its 16 bits nothing."""
    target_of("ct2").require("engine=int8")
    import ctranslate2

    have = ctranslate2.get_supported_compute_types("cpu")
    if "int16" in have and not machine.cpu_capabilities().get("dot products of 8 bits", True):
        return "int16"
    for name in ("int8", "int8_float32", "int8_bfloat16"):
        if name in have:
            return name
    raise ConfigError("CTranslate2 has no 8-bit arithmetic for this processor; use engine=auto")


def array(weight: Tensor) -> Any:
    """As CTranslate2 takes it: float32, in memory of its own (it rounds to 8 bits in place)."""
    return weight.detach().to("cpu", torch.float32, copy=True).contiguous().numpy()


def fill_linear(spec: Any, parts: Sequence[nn.Linear]) -> None:
    """One matrix from several of the same input, concatenated along the output."""
    spec.weight = array(torch.cat([part.weight for part in parts]))
    if parts[0].bias is not None:
        spec.bias = array(torch.cat([part.bias for part in parts]))


def fill_norm(spec: Any, norm: Any) -> None:
    """A LayerNorm without bias has a bias of zeros."""
    spec.gamma = array(norm.weight)
    if hasattr(spec, "beta"):
        bias = getattr(norm, "bias", None)
        spec.beta = array(torch.zeros_like(norm.weight) if bias is None else bias)


def fill_attention(spec: Any, attention: Any, norm: Any, *, cross: bool) -> None:
    """The projections of an attention: of queries, keys and values in one, or (cross-attention) of keys and values in one."""
    fill_norm(spec.layer_norm, norm)
    groups = [[attention.query], [attention.key, attention.value]] if cross else [
        [attention.query, attention.key, attention.value]
    ]  # fmt: skip
    for linear, parts in zip(spec.linear, [*groups, [attention.out]], strict=True):
        fill_linear(linear, parts)
    if attention.query_norm is not None:
        fill_norm(spec.q_norm, attention.query_norm)
        fill_norm(spec.k_norm, attention.key_norm)
    if not attention.scaled:
        spec.queries_scale = 1.0


def fill_stack(spec: Any, stack: Any, config: ModelConfig) -> None:
    """The layers of an encoder or a decoder, and its last norm."""
    from ctranslate2.specs import common_spec

    for layer, block in zip(spec.layer, stack.layers, strict=True):
        fill_attention(layer.self_attention, block.attention, block.attention_norm, cross=False)
        if block.has_cross:
            fill_attention(layer.attention, block.cross, block.cross_norm, cross=True)
        fill_norm(layer.ffn.layer_norm, block.mlp_norm)
        if config.activation in GATED:
            fill_linear(layer.ffn.linear_0, [block.mlp.gate])
            fill_linear(layer.ffn.linear_0_noact, [block.mlp.up])
        else:
            fill_linear(layer.ffn.linear_0, [block.mlp.up])
        fill_linear(layer.ffn.linear_1, [block.mlp.down])
    if stack.norm is not None:
        if not hasattr(spec, "layer_norm"):  # its constructor knows no last norm behind norms that follow
            spec.__dict__["layer_norm"] = common_spec.LayerNormSpec(rms_norm=config.norm == "rms")
        fill_norm(spec.layer_norm, stack.norm)


def fill_embeddings(spec: Any, embeddings: Any, embedding: Any, encoding: Any, norm: Any, n_positions: int) -> None:
    """The embedding table, the table of positions written out, and the norm after them."""
    embeddings.weight = array(embedding.weight)
    spec.scale_embeddings = float(embedding.factor)
    if hasattr(spec, "position_encodings"):
        if encoding is None:
            table = torch.zeros(n_positions, embedding.weight.size(1))
        else:
            rows = n_positions if not hasattr(encoding, "weight") else encoding.weight.size(0)
            table = encoding(torch.arange(rows, device=embedding.weight.device)[None], rows)[0]
        spec.position_encodings.encodings = array(table)
    if norm is not None:
        fill_norm(spec.layernorm_embedding, norm)


def spec_options(config: ModelConfig) -> dict[str, Any]:
    """The arguments that the specs of encoder and decoder share."""
    from ctranslate2.specs import common_spec

    found: dict[str, Any] = {
        "pre_norm": config.pre_norm,
        "no_final_norm": not config.final_norm,
        "activation": getattr(common_spec.Activation, ACTIVATIONS[config.activation]),
        "layernorm_embedding": config.embedding_norm,
        "ffn_glu": config.activation in GATED,
        "rms_norm": config.norm == "rms",
        "qk_norm": config.qk_norm,
    }
    if config.kv_heads != config.n_head:
        found["num_heads_kv"] = config.kv_heads
    if config.key_size * config.n_head != config.n_embd:
        found["head_dim"] = config.key_size
    if config.positions == "rotary":
        found |= {"rotary_dim": 0, "rotary_interleave": False, "rotary_base": config.rotary_theta}
        if config.rotary_linear_factor != 1:
            from ctranslate2.specs import attention_spec

            found["rotary_scaling_type"] = attention_spec.RotaryScalingType.Linear
            found["rotary_scaling_factor"] = config.rotary_linear_factor
    return found


def make_spec(model: Any, vocabularies: Vocabularies, *, n_positions: int) -> Any:
    """CTranslate2's specification of the model. `n_positions`: the rows of a table of positions that has no end of its own."""
    from ctranslate2.specs import transformer_spec as specs

    c: ModelConfig = model.config
    if (missing := unsupported_setting(c)) is not None:
        raise ConfigError("CTranslate2 has nothing for {missing}; use engine=auto", missing=missing)
    pairs = c.family == "transformer"
    decoder = specs.TransformerDecoderSpec(
        c.n_layer, c.n_head, with_encoder_attention=pairs, alibi=c.positions == "alibi", **spec_options(c)
    )
    fill_stack(decoder, model.decoder, c)
    decoder.projection.weight = array(model.output_weight)
    if model.output_bias is not None:
        decoder.projection.bias = array(model.output_bias)
    vocabulary = vocabularies.strings(vocabularies.target, c.vocab_size)
    if pairs:
        encoder = specs.TransformerEncoderSpec(c.encoder_layers, c.n_head, **spec_options(c))
        fill_stack(encoder, model.encoder, c)
        fill_embeddings(
            encoder, encoder.embeddings[0], model.source_table, model.source_positions, model.source_norm, n_positions
        )
        fill_embeddings(
            decoder, decoder.embeddings, model.target_table, model.target_positions, model.target_norm, n_positions
        )
        spec: Any = specs.TransformerSpec(encoder, decoder)
        spec.register_source_vocabulary(vocabularies.strings(vocabularies.source, model.source_table.weight.size(0)))
        spec.register_target_vocabulary(vocabulary)
        spec.config.decoder_start_token = vocabulary[vocabularies.bos]
    else:
        fill_embeddings(
            decoder, decoder.embeddings, model.embedding, model.positions, model.embedding_norm, n_positions
        )
        spec = specs.TransformerDecoderModelSpec(decoder)
        spec.register_vocabulary(vocabulary)
    spec.config.bos_token, spec.config.eos_token = vocabulary[vocabularies.bos], vocabulary[vocabularies.eos]
    spec.config.unk_token = vocabulary[vocabularies.unknown]
    spec.config.layer_norm_epsilon = c.norm_eps
    return spec


def vocabulary_map(shortlist: Any, source: Sequence[str], target: Sequence[str]) -> str | None:
    """A shortlist as CTranslate2's vmap.txt: a source token, a tab, its target tokens; without a source token, those of every
    sentence. None where a token holds what the file is divided by."""
    if any(not name or set(name) & set(" \t\r\n") for name in (*source, *target)):
        return None
    rows = [("", shortlist.frequent), *zip(source, shortlist.likely, strict=True)]
    return "".join(f"{name}\t{' '.join(target[i] for i in own if i >= 0)}\n" for name, own in rows)


def save(
    model: Any, folder: Path, vocabularies: Vocabularies, *, n_positions: int, quantization: str | None = None
) -> None:
    """Leave the model in `folder` (which is there and empty) as CTranslate2 reads it."""
    spec = make_spec(model, vocabularies, n_positions=n_positions)
    spec.validate()
    spec.optimize(quantization)
    spec.save(str(folder))
    if model.config.family == "transformer" and model.shortlist is not None:
        source = vocabularies.strings(vocabularies.source, model.source_table.weight.size(0))
        target = vocabularies.strings(vocabularies.target, model.config.vocab_size)
        if (table := vocabulary_map(model.shortlist, source, target)) is not None:
            (folder / "vmap.txt").write_text(table, encoding="utf-8", newline="\n")


def load(model: Any, vocabularies: Vocabularies, *, n_positions: int, compute: str, threads: int) -> Any:
    """The model in CTranslate2's hands, computing in `compute`, by way of a folder that is gone afterwards."""
    import ctranslate2

    kind = ctranslate2.Translator if model.config.family == "transformer" else ctranslate2.Generator
    with tempfile.TemporaryDirectory(prefix="glassformer-") as folder:
        save(model, Path(folder), vocabularies, n_positions=n_positions)
        return kind(folder, device="cpu", compute_type=compute, inter_threads=1, intra_threads=threads)


def as_tokens(texts: Iterable[Sequence[int]]) -> list[list[str]]:
    """Ids as the strings that CTranslate2 takes for tokens."""
    return [[str(i) for i in text] for text in texts]
