"""What a trained model says: search, sampling, constraints, streaming. A request comes to the driver (driver.py), which has a
model score it (stepper.py) and a search choose (search.py)."""

from glassformer.decode.constraints import spellings
from glassformer.decode.driver import Driver
from glassformer.decode.generate import answer, generate_batch, stream, translate_batch
from glassformer.decode.longtext import Piece, fits_within, join_pieces, split_text, unwrapped
from glassformer.decode.request import (
    NO_CONSTRAINTS,
    BeamTrace,
    Ending,
    Hypothesis,
    Request,
    SpecialTokens,
    TokenConstraints,
    check_request,
)

__all__ = [
    "NO_CONSTRAINTS",
    "BeamTrace",
    "Driver",
    "Ending",
    "Hypothesis",
    "Piece",
    "Request",
    "SpecialTokens",
    "TokenConstraints",
    "answer",
    "check_request",
    "fits_within",
    "generate_batch",
    "join_pieces",
    "spellings",
    "split_text",
    "stream",
    "translate_batch",
    "unwrapped",
]
