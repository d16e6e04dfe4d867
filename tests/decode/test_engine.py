"""An engine changes how long an answer takes, never the answer."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest

from glassformer.config import DecodeConfig
from glassformer.decode import generate_batch, translate_batch
from tests.laws.test_decoding_cache import SEARCHES, same, some_texts
from tests.laws.zoo import cases, small


def searches() -> list[Any]:
    """Every variant by a diverse beam, which has all that a step must carry along, and by one of the other searches in turn."""
    others = itertools.cycle(name for name in SEARCHES if name != "diverse")
    return [
        pytest.param(*case.values, search, id=f"{case.id}-{search}")
        for case in cases("transformer", "gpt")
        for search in ("diverse", next(others))
    ]


@pytest.mark.parametrize(("family", "changes", "search"), searches())
def test_the_fast_engine_writes_what_the_plain_model_writes(family: str, changes: dict[str, Any], search: str) -> None:
    """In double precision, so that no tie is decided by rounding. Caught: a beam that sees another's past; a shade that is
    not reordered with its row; keys of padding that are seen; heads grouped the wrong way; the bias or norm of another
    layer; a scale left out."""
    if changes == {"residual": False} and search != "greedy":
        changes = {
            **changes,
            "positions": "rotary",
        }  # otherwise hypotheses that are each other's permutation tie exactly
    model = small(family, seed=1, **changes)
    texts = some_texts([4, 7, 1, 5], seed=2)
    config = DecodeConfig(**SEARCHES[search], max_new_tokens=9, min_new_tokens=4, no_repeat_ngram=2)
    decode = translate_batch if family == "transformer" else generate_batch
    plain = decode(model, texts, config)
    assert same(decode(model, texts, replace(config, engine="fast")), plain)
