"""The machine as the tutorials tell it, but right: two files, each of which stands alone and needs nothing but torch.

    transformer.py   the encoder-decoder, under the names of the circulating tutorials
    gpt.py           the course's GPT, under its names

Run either: `python glassformer/classic/transformer.py` trains it on a toy task in seconds.
"""

from glassformer.classic.gpt import FFN, GPT, SelfAttention
from glassformer.classic.transformer import (
    MLP,
    Config,
    Decoder,
    DecoderLayer,
    Encoder,
    EncoderLayer,
    LayerNorm,
    MultiHeadAttention,
    PositionalEncoding,
    PositionEncoding,
    Transformer,
    attention,
)

__all__ = [
    "FFN",
    "GPT",
    "MLP",
    "Config",
    "Decoder",
    "DecoderLayer",
    "Encoder",
    "EncoderLayer",
    "LayerNorm",
    "MultiHeadAttention",
    "PositionEncoding",
    "PositionalEncoding",
    "SelfAttention",
    "Transformer",
    "attention",
]
