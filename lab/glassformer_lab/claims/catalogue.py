"""Every claim there is, in the order in which a reader of the paper meets it."""

from __future__ import annotations

from glassformer.config import not_among
from glassformer.errors import UserError
from glassformer_lab.claims.claim import Claim, read_claim

NAMES = (
    *("embedding-scale", "tying", "scaling", "additive", "heads", "positions", "activation", "norms", "drift"),
    *(
        "residuals",
        "smoothing",
        "optimizers",
        "leak",
        "parallel",
        "cache",
        "fused",
        "rnn",
        "decoder-only",
        "scale",
        "embeddings",
    ),
    *("window", "linear", "hybrid", "batching", "vision"),
)


def claim_named(name: str) -> Claim:
    """The claim of that name; a sentence with the nearest where there is none."""
    if name not in NAMES:
        raise UserError("there is no study {name!r}{suggestion}; there are {names}", *not_among(name, NAMES))
    return read_claim(name)


def all_claims() -> list[Claim]:
    """Every claim."""
    return [read_claim(name) for name in NAMES]
