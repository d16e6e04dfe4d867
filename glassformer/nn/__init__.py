"""The parts of the machine. Torch only; layers take numbers, not configs; nothing here knows what it will be built into."""

from glassformer.nn.attention import MultiHeadAttention, attention, attention_weights, fused_attention
from glassformer.nn.block import Block, BlockInputs, Decoder, DecoderLayer, Encoder, EncoderLayer, Stack
from glassformer.nn.cache import KVCache
from glassformer.nn.embedding import Embedding
from glassformer.nn.feedforward import MLP, GatedMLP
from glassformer.nn.loss import IGNORE, linear_cross_entropy
from glassformer.nn.masks import AttentionMask, cross_mask, self_mask
from glassformer.nn.modes import higher_derivatives
from glassformer.nn.norms import BatchNorm, LayerNorm, RMSNorm
from glassformer.nn.positions import LearnedPositions, PositionalEncoding, Rotary, sinusoids
from glassformer.nn.rows import Rows
from glassformer.nn.taps import record, replace, tap_names

__all__ = [
    "IGNORE",
    "MLP",
    "AttentionMask",
    "BatchNorm",
    "Block",
    "BlockInputs",
    "Decoder",
    "DecoderLayer",
    "Embedding",
    "Encoder",
    "EncoderLayer",
    "GatedMLP",
    "KVCache",
    "LayerNorm",
    "LearnedPositions",
    "MultiHeadAttention",
    "PositionalEncoding",
    "RMSNorm",
    "Rotary",
    "Rows",
    "Stack",
    "attention",
    "attention_weights",
    "cross_mask",
    "fused_attention",
    "higher_derivatives",
    "linear_cross_entropy",
    "record",
    "replace",
    "self_mask",
    "sinusoids",
    "tap_names",
]
