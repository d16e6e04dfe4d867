"""Arrays on their way into a page: bytes, rounded to what an eye can use; in a file compressed, in base64.

Of a short text every weight is kept to 1/65535; of a long one each row has 255 steps up to its largest weight, so that a
row that looks at five hundred tokens evenly is not rounded away. Queries, keys and values are half-precision floats, then
bytes, then left out from the first layer on, as much as the file has room for.
"""

from __future__ import annotations

import base64
import math
import zlib
from typing import Any

import numpy as np

FINE = 128  # texts of so many tokens keep 16 bits a weight


THUMB = 64  # pixels of a small map of a longer text


NUMBERS_BUDGET = 1_700_000  # bytes for queries, keys and values before base64


Array = np.ndarray


Packed = dict[str, Any]


def squeezed(raw: bytes) -> str:
    """Bytes compressed, as text that fits in a page."""
    return base64.b64encode(zlib.compress(raw, 6)).decode("ascii")


def packed(array: Array, dtype: str, **more: Any) -> Packed:
    """An array as bytes that the page reads."""
    little = np.dtype(dtype).newbyteorder("<")
    return {"dtype": dtype, "shape": list(array.shape), "data": array.astype(little).tobytes(), **more}


def packed_weights(weights: Array) -> Packed:
    """Shares between 0 and 1."""
    if max(weights.shape[-2:], default=0) <= FINE:
        return packed(np.rint(np.clip(weights, 0, 1) * 65535), "uint16", unit=1 / 65535)
    return packed_rows(weights)


def packed_rows(values: Array) -> Packed:
    """Each row (the last dimension) in 255 steps up to its own largest value."""
    top = values.max(axis=-1, keepdims=True) if values.size else np.zeros((*values.shape[:-1], 1))
    scale = np.where(top > 0, top / 255, 1.0).astype("<f4")
    return packed(np.rint(values / scale), "uint8", scale=scale.tobytes())


def packed_numbers(values: Array, coarse: bool) -> Packed:
    """Numbers of either sign."""
    if not coarse:
        return packed(values, "float16")
    top = np.abs(values).max(axis=-1, keepdims=True) if values.size else np.zeros((*values.shape[:-1], 1))
    scale = np.where(top > 0, top / 127, 1.0).astype("<f4")
    return packed(np.rint(values / scale), "int8", scale=scale.tobytes())


def thumbnails(weights: Array) -> Array:
    """The largest weight of each block of cells, no more than THUMB on a side."""
    for axis in (-2, -1):
        length = weights.shape[axis]
        if length > THUMB:
            starts = [math.ceil(i * length / THUMB) for i in range(THUMB)]
            weights = np.maximum.reduceat(weights, starts, axis=axis)
    return weights


def few_digits(values: Array) -> Any:
    """As a list of numbers with six significant digits."""
    return [few_digits(v) for v in values] if values.ndim > 1 else [float(f"{v:.6g}") for v in values.tolist()]
