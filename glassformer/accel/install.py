"""Fast parts put in the place of plain ones, from outside: weights, names and results stay.

    compiled      for a loss that torch.compile is given: one product for queries, keys and values; dropout by a hash; a padded
                  output layer
    short_rows    uncompiled training on a CPU: attention over at most so many keys by a few products (0: never)

A part that is installed steps aside wherever it does not apply (evaluation, another device, a transform of torch.func).
"""

from __future__ import annotations

from torch import nn

from glassformer.accel.compile_cache import use_compile_cache
from glassformer.accel.dropout import HashDropout
from glassformer.accel.fused_qkv import FusedQKVAttention
from glassformer.accel.output_loss import compiled_cross_entropy
from glassformer.accel.short_attention import ShortAttentionKernel
from glassformer.nn.attention import MultiHeadAttention


def accelerate(model: nn.Module, *, compiled: bool = False, short_rows: int = 0) -> nn.Module:
    """Installs what is asked for on the model, in place, and returns it."""
    for module in model.modules():
        if isinstance(module, MultiHeadAttention):
            if compiled and type(module) is MultiHeadAttention:
                module.__class__ = FusedQKVAttention
            if short_rows:
                module.kernel = ShortAttentionKernel(short_rows)
        elif compiled and type(module) is nn.Dropout:
            module.__class__ = HashDropout
    if compiled:
        use_compile_cache()
        model.cross_entropy = compiled_cross_entropy  # type: ignore[assignment]
    return model
