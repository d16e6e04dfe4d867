"""Fast parts put in the place of plain ones, from outside: weights, names and results stay.

    compiled      for a loss that torch.compile is given: one product for queries, keys and values; dropout by a hash; on
                  CUDA the loss with its gradient by one kernel
    float8        products in 8 bits, on devices that have them (fp8.py)
    short_rows    uncompiled training on a CPU: attention over at most so many keys by a few products (0: never)

A part that is installed steps aside wherever it does not apply (evaluation, another device, a transform of torch.func).
"""

from __future__ import annotations

from torch import nn

from glassformer.accel.compile_cache import use_compile_cache
from glassformer.accel.dropout import HashDropout
from glassformer.accel.fp8 import use_float8
from glassformer.accel.fused_qkv import FusedQKVAttention
from glassformer.accel.output_loss import LossBackend
from glassformer.accel.short_attention import ShortAttentionKernel
from glassformer.nn.attention import MultiHeadAttention


def accelerate(model: nn.Module, *, compiled: bool = False, float8: bool = False, short_rows: int = 0) -> nn.Module:
    """Installs what is asked for on the model, in place, and returns it."""
    on_cuda = any(p.is_cuda for p in model.parameters())
    for module in model.modules():
        if isinstance(module, MultiHeadAttention):
            if compiled and type(module) is MultiHeadAttention:
                module.__class__ = FusedQKVAttention
            if short_rows:
                module.kernel = ShortAttentionKernel(short_rows)
        elif compiled and type(module) is nn.Dropout:
            module.__class__ = HashDropout
    if float8:
        use_float8(model)
    if compiled or float8:
        use_compile_cache()
        model.cross_entropy = LossBackend(kernel=on_cuda, float8=float8)  # type: ignore[assignment]
    return model
