"""Named sizes, as plain data. A recipe says `preset = "gpt2"` and changes what it likes.

`transformer-base` and `-big` are the paper's (Vaswani et al. 2017, table 3), with 37,000 tied words; `transformer-tiny` is
that of Wu et al. 2021 for Multi30k; the GPT-2 sizes are those of Radford et al. 2019; `shakespeare-char` is nanoGPT's;
`bert-base` is that of Devlin et al. 2019; `modern-gpt` is a GPT-2 small brought up to date.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from glassformer.config.fields import did_you_mean
from glassformer.config.model import ModelConfig
from glassformer.errors import ConfigError

PAPER: dict[str, Any] = {
    "family": "transformer",
    "vocab_size": 37000,
    "block_size": 512,
    "n_layer": 6,
    "pre_norm": False,
    "final_norm": False,
    "positions": "sinusoidal",
    "activation": "relu",
    "scale_embeddings": True,
    "init": "xavier",
}
GPT2: dict[str, Any] = {
    "family": "gpt",
    "vocab_size": 50257,
    "block_size": 1024,
    "positions": "learned",
    "activation": "gelu_tanh",
    "dropout": 0.1,
    "attention_dropout": 0.1,
    "scale_embeddings": False,
}

PRESETS: Mapping[str, Mapping[str, Any]] = {
    "transformer-base": {**PAPER, "n_head": 8, "n_embd": 512, "n_hidden": 2048, "dropout": 0.1},
    "transformer-big": {**PAPER, "n_head": 16, "n_embd": 1024, "n_hidden": 4096, "dropout": 0.3},
    "transformer-tiny": {
        **PAPER,
        "vocab_size": 10000,
        "n_layer": 4,
        "n_head": 4,
        "n_embd": 128,
        "n_hidden": 256,
        "dropout": 0.3,
    },
    "gpt2": {**GPT2, "n_layer": 12, "n_head": 12, "n_embd": 768},
    "gpt2-medium": {**GPT2, "n_layer": 24, "n_head": 16, "n_embd": 1024},
    "gpt2-large": {**GPT2, "n_layer": 36, "n_head": 20, "n_embd": 1280},
    "gpt2-xl": {**GPT2, "n_layer": 48, "n_head": 25, "n_embd": 1600},
    "shakespeare-char": {
        "family": "gpt",
        "vocab_size": 65,
        "block_size": 256,
        "n_layer": 6,
        "n_head": 6,
        "n_embd": 384,
        "positions": "learned",
        "activation": "gelu",
        "bias": False,
        "dropout": 0.2,
        "attention_dropout": 0.2,
        "scale_embeddings": False,
    },
    "bert-base": {
        "family": "bert",
        "vocab_size": 30522,
        "block_size": 512,
        "n_layer": 12,
        "n_head": 12,
        "n_embd": 768,
        "n_token_type": 2,
        "positions": "learned",
        "activation": "gelu",
        "pre_norm": False,
        "final_norm": False,
        "embedding_norm": True,
        "norm_eps": 1e-12,
        "attention_dropout": 0.1,
        "scale_embeddings": False,
    },
    "modern-gpt": {
        "family": "gpt",
        "vocab_size": 50257,
        "block_size": 2048,
        "n_layer": 12,
        "n_head": 12,
        "n_kv_head": 4,
        "n_embd": 768,
        "n_hidden": 2048,
        "positions": "rotary",
        "norm": "rms",
        "activation": "swiglu",
        "qk_norm": True,
        "bias": False,
        "scale_embeddings": False,
        "dropout": 0.0,
    },
}


def preset(name: str) -> ModelConfig:
    """The ModelConfig of a known size by its name, such as "gpt2" or "transformer-base".

    >>> preset("gpt2").n_embd
    768
    """
    if name not in PRESETS:
        raise ConfigError("there is no preset {name!r}{suggestion}", name, did_you_mean(name, list(PRESETS)))
    return ModelConfig(**PRESETS[name])
