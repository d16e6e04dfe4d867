"""What bench/growth.py measures: models and batches that differ in one thing at a time."""

from __future__ import annotations

import dataclasses

from glassformer.config import ModelConfig
from glassformer.models import preset

WINDOW = 256


@dataclasses.dataclass(frozen=True)
class Work:
    """One configuration: a model, rows of a length, how many of them."""

    table: str  # length, size or batch
    label: str
    config: ModelConfig
    length: int
    rows: int

    @property
    def tokens(self) -> int:
        return self.rows * self.length


def gpt(layers: int, heads: int, width: int, length: int, words: int, window: int | None = None) -> ModelConfig:
    return ModelConfig(
        family="gpt",
        vocab_size=words,
        block_size=length,
        n_layer=layers,
        n_head=heads,
        n_embd=width,
        positions="rotary",  # no table that would grow with the length
        activation="gelu_tanh",
        scale_embeddings=False,
        dropout=0.0,
        window=window,
    )


SIZES = ((6, 6, 384), (8, 8, 512), (12, 12, 768), (24, 16, 1024), (36, 20, 1280), (48, 25, 1600))
"""Layers, heads, width: 11 million to 1.5 billion parameters without the table of words; from the third on GPT-2's sizes."""


def cuda_work() -> list[Work]:
    words = preset("gpt2").vocab_size
    work = [
        Work("length", name, gpt(12, 12, 768, length, words, window), length, max(1, 65536 // length))
        for length in (256, 1024, 4096, 16384, 65536)
        for name, window in (("full", None), (f"window {WINDOW}", WINDOW))
        if window is None or length > window
    ]
    work += [Work("size", "", gpt(*shape, 1024, words), 1024, 16) for shape in SIZES]
    work += [Work("batch", "", gpt(12, 12, 768, 1024, words), 1024, rows) for rows in (1, 4, 16, 64, 128)]
    return work


def cpu_work() -> list[Work]:
    return [
        Work("length", name, gpt(4, 4, 128, length, 1024, window), length, max(1, 4096 // length))
        for length in (256, 512, 1024, 2048, 4096)
        for name, window in (("full", None), (f"window {WINDOW}", WINDOW))
    ]
