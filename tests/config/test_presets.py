"""The named sizes are those of the literature."""

from __future__ import annotations

import pytest
import torch

from glassformer.models import PRESETS, build_model, preset

# Counted by hand from the published sizes (matrices, biases, gains, tables), not read off the code:
#   GPT-2:  V C + T C + L (12 C^2 + 13 C) + 2 C
#   the paper's:  V C + L (encoder 4 (C^2 + C) + 2 C H + H + C + 4 C; decoder 8 (C^2 + C) + 2 C H + H + C + 6 C)
#   BERT with its masked-language-model head: (V + T + 2) C + 2 C + L (12 C^2 + 13 C) + C^2 + C + 2 C + V


def gpt2(layers: int, width: int) -> int:
    return 50257 * width + 1024 * width + layers * (12 * width**2 + 13 * width) + 2 * width


def paper(words: int, layers: int, width: int, hidden: int) -> int:
    mlp = 2 * width * hidden + hidden + width
    encoder = 4 * (width**2 + width) + mlp + 4 * width
    decoder = 8 * (width**2 + width) + mlp + 6 * width
    return words * width + layers * (encoder + decoder)


def bert(width: int) -> int:
    body = (30522 + 512 + 2) * width + 2 * width + 12 * (12 * width**2 + 13 * width)
    return body + width**2 + width + 2 * width + 30522


def modern(width: int, hidden: int, key_heads: int, head: int) -> int:
    attention = 2 * width**2 + 2 * width * key_heads * head + 2 * head
    return 50257 * width + 12 * (attention + 3 * width * hidden + 2 * width) + width


COUNTS = {
    "transformer-base": paper(37000, 6, 512, 2048),
    "transformer-big": paper(37000, 6, 1024, 4096),
    "transformer-tiny": paper(10000, 4, 128, 256),
    "gpt2": gpt2(12, 768),
    "gpt2-medium": gpt2(24, 1024),
    "gpt2-large": gpt2(36, 1280),
    "gpt2-xl": gpt2(48, 1600),
    "shakespeare-char": 65 * 384 + 256 * 384 + 6 * (12 * 384**2 + 2 * 384) + 384,
    "bert-base": bert(768),
    "modern-gpt": modern(768, 2048, 4, 64),
}


def test_every_preset_is_counted_here() -> None:
    assert set(COUNTS) == set(PRESETS)


@pytest.mark.parametrize("name", PRESETS)
def test_parameter_counts(name: str) -> None:
    """Caught: a wrong width, a missing or an extra norm, bias or table."""
    with torch.device("meta"):
        model = build_model(preset(name))
    assert model.num_params() == COUNTS[name]


def test_published_totals() -> None:
    assert COUNTS["gpt2"] == 124_439_808
    assert COUNTS["gpt2-medium"] == 354_823_168
    assert COUNTS["gpt2-large"] == 774_030_080
    assert COUNTS["gpt2-xl"] == 1_557_611_200
    assert COUNTS["transformer-base"] == 63_082_496
    assert COUNTS["transformer-big"] == 214_245_376


def test_the_paper_is_post_norm_with_scaled_tied_embeddings() -> None:
    for name in ("transformer-base", "transformer-big"):
        config = preset(name)
        assert not config.pre_norm and not config.final_norm
        assert config.scale_embeddings and config.tie_output and config.share_source_target
        assert (config.positions, config.activation, config.attention_dropout) == ("sinusoidal", "relu", 0.0)


def test_the_modern_one_is_modern() -> None:
    config = preset("modern-gpt")
    assert (config.positions, config.norm, config.activation, config.qk_norm) == ("rotary", "rms", "swiglu", True)
    assert config.kv_heads < config.n_head and not config.bias
