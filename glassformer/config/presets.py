"""Named sizes, as plain data (presets.toml). A recipe says `preset = "gpt2"` and changes what it likes.

`transformer-base` and `-big` are the paper's (Vaswani et al. 2017, table 3), with 37,000 tied words; `transformer-tiny` is
that of Wu et al. 2021 for Multi30k; the GPT-2 sizes are those of Radford et al. 2019; `shakespeare-char` is nanoGPT's;
`bert-base` is that of Devlin et al. 2019; `modern-gpt` is a GPT-2 small brought up to date.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from glassformer.config.fields import did_you_mean
from glassformer.config.model import ModelConfig
from glassformer.errors import ConfigError

PRESETS: Mapping[str, Mapping[str, Any]] = tomllib.loads(
    Path(__file__).with_name("presets.toml").read_text(encoding="utf-8")
)


def preset(name: str) -> ModelConfig:
    """The ModelConfig of a known size by its name, such as "gpt2" or "transformer-base".

    >>> preset("gpt2").n_embd
    768
    """
    if name not in PRESETS:
        raise ConfigError("there is no preset {name!r}{suggestion}", name, did_you_mean(name, list(PRESETS)))
    return ModelConfig(**PRESETS[name])
