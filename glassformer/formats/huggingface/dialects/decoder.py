"""Decoders: GPT-2, Llama, Qwen2 and Qwen3; and, read and not written, OPT and Mistral."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from glassformer.config import ModelConfig
from glassformer.errors import UserError
from glassformer.formats.huggingface.dialects.dialect import Dialect, Tensors, need, read_config, written_config
from glassformer.formats.huggingface.dialects.seq2seq import cut_positions
from glassformer.text.tokenizer import BOS, EOS


def gpt2_to(config: ModelConfig) -> dict[str, Any]:
    """A GPT-2's config.json."""
    more = {"n_inner": config.hidden, "embd_pdrop": config.dropout, "bos_token_id": EOS, "eos_token_id": EOS}
    return {"model_type": "gpt2"} | written_config("gpt2", config) | more


def gpt2_from(hf: Mapping[str, Any]) -> dict[str, Any]:
    """Our settings from a GPT-2's config.json, where the oldest call n_positions n_ctx."""
    found = read_config("gpt2", {**hf, "n_positions": hf.get("n_positions") or hf.get("n_ctx")})
    return found | {"n_hidden": hf.get("n_inner"), "scaled_attention": bool(hf.get("scale_attn_weights", True))}


def rope_of(config: ModelConfig) -> dict[str, Any]:
    """Rotary positions as they say it; NTK scaling is a larger base."""
    if config.rotary_scaling == "llama3":
        return {
            "rope_type": "llama3",
            "rope_theta": config.rotary_base,
            "factor": config.rotary_factor,
            "low_freq_factor": config.rotary_low,
            "high_freq_factor": config.rotary_high,
            "original_max_position_embeddings": config.rotary_length,
        }
    if config.rotary_linear_factor == 1:
        return {"rope_type": "default", "rope_theta": config.rotary_theta}
    return {"rope_type": "linear", "rope_theta": config.rotary_theta, "factor": config.rotary_linear_factor}


def llama_to(config: ModelConfig) -> dict[str, Any]:
    """A Llama's (or Qwen3's) config.json."""
    return written_config("llama", config) | {
        "model_type": "qwen3" if config.qk_norm else "llama",
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.key_size,
        "rope_parameters": rope_of(config),
        "rope_theta": config.rotary_theta,  # where older readers look for it
        "attention_bias": config.bias,
        "mlp_bias": config.bias,
        "bos_token_id": BOS,
        "eos_token_id": EOS,
    }


def llama_from(hf: Mapping[str, Any]) -> dict[str, Any]:
    """Our settings from a Llama's config.json."""
    rope = hf.get("rope_scaling") or hf.get("rope_parameters") or {}
    if not isinstance(rope, dict) or any(isinstance(value, dict) for value in rope.values()):
        raise UserError("rope_parameters differ from layer to layer, and here all layers turn alike")
    if {hf.get("partial_rotary_factor"), rope.get("partial_rotary_factor")} - {None, 1}:
        raise UserError("partial_rotary_factor: only a part of each head is turned, and here the whole of it is")
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind not in ("default", "linear", "llama3"):
        raise UserError("rope_type {kind!r} is not known here; default, linear and llama3 can be imported", kind)
    scaled: dict[str, Any] = {}
    if kind != "default" and rope.get("factor") != 1:
        scaled = {"rotary_scaling": kind, "rotary_factor": float(need(rope, "factor", (int, float)))}
    if kind == "llama3" and scaled:
        scaled |= {
            "rotary_low": float(need(rope, "low_freq_factor", (int, float))),
            "rotary_high": float(need(rope, "high_freq_factor", (int, float))),
            "rotary_length": need(rope, "original_max_position_embeddings"),
        }
    if need(hf, "hidden_act", str) not in ("silu", "swish"):
        raise UserError(
            "hidden_act {hidden_act!r} is not known here; a gate of silu (SwiGLU) can be imported", hf["hidden_act"]
        )
    found = read_config("llama", hf)
    return found | {
        "n_kv_head": hf.get("num_key_value_heads") or found["n_head"],
        "head_size": hf.get("head_dim") or found["n_embd"] // found["n_head"],
        "bias": bool(hf.get("attention_bias") or hf.get("mlp_bias")),  # those that are lacking are zero
        "rotary_base": float(rope.get("rope_theta") or hf.get("rope_theta") or 10000.0),
        **scaled,
    }


def qwen_window(hf: Mapping[str, Any]) -> int | None:
    """How many keys a token of a Qwen sees; None: all. Layers that differ in that cannot be said."""
    window = hf.get("sliding_window", 4096) if hf.get("use_sliding_window") else None
    layers, block = need(hf, "num_hidden_layers"), need(hf, "max_position_embeddings")
    if type(window) is not int or window >= block:
        return None
    kinds = hf.get("layer_types")
    if not isinstance(kinds, list):
        first = hf.get("max_window_layers", 28)
        kinds = [("full" if type(first) is int and i < first else "sliding") + "_attention" for i in range(layers)]
    if len(found := set(map(str, kinds))) == 1 and found <= {"full_attention", "sliding_attention"}:
        return window if found == {"sliding_attention"} else None
    raise UserError(
        "use_sliding_window: some layers of this model see a window of {window:,} tokens and others all (max_window_layers, "
        "layer_types), and here all layers see the same; it cannot be imported",
        window,
    )


def opt_from(hf: Mapping[str, Any]) -> dict[str, Any]:
    """OPT: a GPT with learned positions and ReLU; pre-norm, or post-norm (the 350m)."""
    pre_norm = bool(hf.get("do_layer_norm_before", True))
    norms = {"pre_norm": pre_norm, "final_norm": pre_norm and not hf.get("_remove_final_layer_norm")}
    return read_config("opt", hf) | norms


def mistral_from(hf: Mapping[str, Any]) -> dict[str, Any]:
    """Mistral: a Llama that may see a window of keys alone."""
    window = hf.get("sliding_window", 4096)
    sizes = {"num_key_value_heads": hf.get("num_key_value_heads", 8), "attention_bias": False, "mlp_bias": False}
    return llama_from({**hf, **sizes}) | {"window": window if type(window) is int and window > 0 else None}


def qwen2_from(hf: Mapping[str, Any]) -> dict[str, Any]:
    """Qwen2: a Llama with biases on queries, keys and values."""
    sizes = {"num_key_value_heads": hf.get("num_key_value_heads", 32), "attention_bias": True}
    return llama_from({**hf, **sizes}) | {"window": qwen_window(hf)}


def qwen3_from(hf: Mapping[str, Any]) -> dict[str, Any]:
    """Our settings from a Qwen3's config.json: a Llama with a norm on queries and keys, whose biases are attention's alone."""
    sizes = {"head_dim": hf.get("head_dim", 128), "num_key_value_heads": hf.get("num_key_value_heads", 32)}
    return llama_from({**hf, **sizes, "mlp_bias": False}) | {"window": qwen_window(hf)}


QWEN2_LACKS = re.compile(r"\.(attention\.out|mlp\.(gate|up|down))\.bias$")


def qwen2_to(config: ModelConfig) -> dict[str, Any]:
    """A Qwen2's config.json."""
    facts = {k: v for k, v in llama_to(config).items() if k not in ("attention_bias", "mlp_bias")}
    return facts | {"model_type": "qwen2"}


def is_qwen2(config: ModelConfig, own: Mapping[str, Tensor]) -> bool:
    """Is this Llama with biases one whose only biases are on queries, keys and values?"""
    return config.bias and not any(bool(t.any()) for n, t in own.items() if QWEN2_LACKS.search(n))


def copy_of_the_table(config: ModelConfig) -> list[str]:
    """The output layer of a model that ties it to its embedding."""
    return ["lm_head.weight"] if config.tie_output else []


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


def with_zeros(tensors: Tensors, projections: str) -> Tensors:
    """With a bias of zeros for each of these projections."""
    found = dict(tensors)
    for name, tensor in tensors.items():
        if re.search(rf"\.({projections})_proj\.weight$", name):
            found.setdefault(name.replace(".weight", ".bias"), torch.zeros(tensor.size(0), dtype=tensor.dtype))
    return found


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


def plain_norm(name: str, width: int) -> Tensors:
    """A layer norm that neither scales nor shifts."""
    return {f"{name}.weight": torch.ones(width), f"{name}.bias": torch.zeros(width)}


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


GPT2 = Dialect("gpt2", "gpt2", gpt2_from, gpt2_to, ignored=copy_of_the_table, tidy=gpt2_names)
OPT = Dialect("opt", "opt", opt_from, ignored=copy_of_the_table, tidy=opt_names)
LLAMA = Dialect("llama", "llama", llama_from, llama_to, ignored=copy_of_the_table, tidy=llama_names)
MISTRAL = replace(LLAMA, name="mistral", from_config=mistral_from, tidy=mistral_names)
QWEN2 = replace(LLAMA, name="qwen2", from_config=qwen2_from, to_config=qwen2_to, tidy=qwen2_biases, lacks=QWEN2_LACKS)
QWEN3 = replace(LLAMA, name="qwen3", from_config=qwen3_from, tidy=qwen3_names)
