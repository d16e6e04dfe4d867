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
    to_keys = np.zeros((len(keys), max(keys) + 1))
    to_keys[np.arange(len(keys)), list(keys)] = 1
    to_queries = np.zeros((max(queries) + 1, len(queries)))
    to_queries[list(queries), np.arange(len(queries))] = 1
    to_queries /= to_queries.sum(axis=1, keepdims=True)
    return to_queries @ weights @ to_keys
