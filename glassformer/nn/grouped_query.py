"""Grouped-query attention (Ainslie et al. 2023): consecutive query heads share one head of keys and values.

One head for all of them is multi-query attention (Shazeer 2019); as many as query heads, the paper's multi-head attention.
"""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor


def repeat_kv(
    q: Float[Tensor, "B H T D"], k: Float[Tensor, "B Hk S D"], v: Float[Tensor, "B Hk S Dv"]
) -> tuple[Float[Tensor, "B H S D"], Float[Tensor, "B H S Dv"]]:
    """Keys and values once for each of the query heads that share them."""
    group = q.size(1) // max(1, k.size(1))
    return (k, v) if group <= 1 else (k.repeat_interleave(group, 1), v.repeat_interleave(group, 1))


def gqa_kwargs(q: Float[Tensor, "B H T D"], k: Float[Tensor, "B Hk S D"]) -> dict[str, bool]:
    """The argument of torch's `scaled_dot_product_attention` for shared keys, where they are: tracing knows no such argument."""
    return {"enable_gqa": True} if q.size(1) != k.size(1) else {}
