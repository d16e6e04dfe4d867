"""A decoder as llama.cpp has it: architectures, names of tensors, the order of rows, and tokenizers.

Four architectures of llama.cpp fit: `gpt2` (learned positions, GELU by tanh), `llama` (rotary, RMSNorm, SwiGLU), `qwen3` (the
same with a norm on queries and keys) and, for a model that was imported as one, `qwen2`. llama.cpp turns neighbouring pairs of
a Llama's queries and keys where we turn dimension i with i + D/2, so their rows are put in its order; those of Qwen are turned
as ours are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from glassformer.config import ModelConfig
from glassformer.errors import UserError
from glassformer.formats.huggingface.dialects import READABLE, Dialect, dialect_for
from glassformer.formats.huggingface.writer import tensors_from, tensors_to
from glassformer.language import _
from glassformer.text.imported import steps_of

TAIL = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
HEAD = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
CUTS = {f"{HEAD}\\p{{N}}{{1,3}}|{TAIL}": "llama-bpe", f"{HEAD}\\p{{N}}|{TAIL}": "qwen2"}
"""Patterns of Llama 3's and Qwen2's tokenizer.json, and llama.cpp's names of them."""


def gguf_name(name: str, dialect: Dialect, config: ModelConfig) -> str:
    """A name of Hugging Face's as llama.cpp calls it: transformer.h.3.attn.c_attn.weight is blk.3.attn_qkv.weight."""
    import gguf

    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH[dialect.name.upper()], config.n_layer)
    return str(names.get_name(name, (".weight", ".bias")))


def neighbouring_pairs(x: Tensor, n_head: int) -> Tensor:
    """Rows of a query or key matrix (or its bias) reordered from pairs (i, i + D/2) to pairs (2i, 2i + 1)."""
    return x.unflatten(0, (n_head, 2, -1)).transpose(1, 2).flatten(0, 2)


def own_pairs(x: Tensor, n_head: int) -> Tensor:
    """The way back: from pairs (2i, 2i + 1) to pairs (i, i + D/2)."""
    return x.unflatten(0, (n_head, -1, 2)).transpose(1, 2).flatten(0, 2)


def other_layout(
    name: str, tensor: Tensor, dialect: Dialect, config: ModelConfig, pairs: Callable[[Tensor, int], Tensor]
) -> Tensor:
    """A tensor of Hugging Face's layout in llama.cpp's, or of llama.cpp's in Hugging Face's (`pairs` says which way): GPT-2's
    matrices are kept there as in x out, and a Llama's queries and keys turn in other pairs."""
    if dialect.name == "gpt2" and tensor.dim() == 2 and ".h." in name:
        return tensor.T
    heads = {".q_proj.": config.n_head, ".k_proj.": config.kv_heads} if dialect.name == "llama" else {}
    return next((pairs(tensor, count) for part, count in heads.items() if part in name), tensor)


def gguf_tensors(dialect: Dialect, config: ModelConfig, own: dict[str, Tensor]) -> dict[str, np.ndarray]:
    """Every tensor by llama.cpp's name, as it stores them: rows are outputs."""
    tensors, _ = tensors_to(dialect, config, own)
    out = {}
    for name, tensor in tensors.items():
        tensor = other_layout(name, tensor, dialect, config, neighbouring_pairs)
        out[gguf_name(name, dialect, config)] = tensor.detach().float().contiguous().numpy()
    return out


def read_gguf(path: Path, config: ModelConfig) -> dict[str, Tensor]:
    """Every tensor of such a file as a parameter of ours: what was written, read back."""
    import gguf

    reader = gguf.GGUFReader(path)
    dialect = READABLE[reader.fields["general.architecture"].contents()]
    names = [*(entry.theirs for entry in dialect.table(config)), "lm_head.weight"]
    theirs = {gguf_name(name, dialect, config): name for name in names}
    found: dict[str, Tensor] = {}
    for tensor in reader.tensors:
        shape = tuple(reversed(tensor.shape.tolist()))
        numbers = gguf.quants.dequantize(tensor.data, tensor.tensor_type).reshape(shape)
        own = torch.from_numpy(np.array(numbers, dtype=np.float32))
        name = theirs[tensor.name]
        found[name] = other_layout(name, own, dialect, config, own_pairs).contiguous()
    return tensors_from(dialect, config, dialect.tidy({}, found))


def architecture_of(config: ModelConfig, imported: Mapping[str, Tensor] | None = None) -> Dialect:
    """The architecture of llama.cpp that this model is, named as the dialect; one that it has not is refused. `imported`: as in
    `dialect_for`."""
    if config.family != "gpt":
        raise UserError(
            "gguf is for models that are a decoder alone, and this one is a {family}; export to {others}",
            config.family,
            _("hf or ct2") if config.family == "transformer" else "hf",
        )
    dialect = dialect_for(config, imported)
    if dialect.name == "gpt2" and config.activation != "gelu_tanh":
        raise UserError(
            "llama.cpp's gpt2 has the activation gelu_tanh alone, and this model has {activation}; export to hf or "
            "onnx instead",
            config.activation,
        )
    if config.rotary_scaling == "llama3":
        raise UserError(
            "gguf is written without the frequencies of model.rotary_scaling=llama3; export to hf or onnx instead"
        )
    if dialect.name == "llama" and config.bias:
        raise UserError(
            "llama.cpp's llama has no biases, and this model has model.bias=true; export to hf or onnx instead"
        )
    return dialect


def cut_of(facts: Any) -> str | None:
    """llama.cpp's name of the way a byte-level BPE cuts a text before it merges; None where it is not one of those."""
    if not isinstance(facts, dict) or facts["model"]["type"] != "BPE":
        return None
    steps = [step for step in steps_of(facts.get("pre_tokenizer")) if step.get("type") != "Sequence"]
    if [step.get("type") for step in steps] == ["ByteLevel"]:
        plain = not steps[0].get("add_prefix_space") and steps[0].get("use_regex", True)
        return "gpt-2" if plain else None
    if [step.get("type") for step in steps] == ["Split", "ByteLevel"] and not steps[1].get("use_regex", True):
        pattern = steps[0].get("pattern")
        return CUTS.get(pattern.get("Regex", "")) if isinstance(pattern, dict) else None
    return None
