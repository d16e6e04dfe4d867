"""Weights between groups of tokens, as the page of `look` has them: what its numbers are held to."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from glassformer.text.units import Units


def group_of_tokens(units: Units, count: int) -> list[int]:
    """For each of `count` tokens the number of its group."""
    return [sum(start <= token for start in units.starts) - 1 for token in range(count)]


def merge(weights: np.ndarray, queries: Sequence[int], keys: Sequence[int]) -> np.ndarray:
    """Weights between groups of tokens, given the group of each: summed over the keys of a group, averaged over its queries.
    So a row still adds up to what it did."""
    group_of_query, group_of_key = np.array(queries), np.array(keys)
    summed = [weights[..., group_of_key == group].sum(-1) for group in range(max(keys) + 1)]
    by_key = np.stack(summed, axis=-1)
    return np.stack([by_key[..., group_of_query == group, :].mean(-2) for group in range(max(queries) + 1)], axis=-2)
