"""What a trained model says: search, sampling, constraints, streaming. A request comes to the driver (driver.py), which has a
model score it (stepper.py) and a search choose (search.py)."""

from glassformer.decode.constraints import spellings
from glassformer.decode.driver import Driver
from glassformer.decode.generate import Streamed, answer, check_request, generate_batch, stream, translate_batch
from glassformer.decode.longtext import Piece, fits_within, join_pieces, split_text, unwrapped
from glassformer.decode.predict import MaskPrediction, classify, fill, tag
from glassformer.decode.request import (
    NO_CONSTRAINTS,
    BeamTrace,
    Candidate,
    Ending,
    Hypothesis,
    Request,
    SpecialTokens,
    TokenConstraints,
)

__all__ = [
    "NO_CONSTRAINTS",
    "BeamTrace",
    "Candidate",
    "Driver",
    "Ending",
    "Hypothesis",
    "MaskPrediction",
    "Piece",
    "Request",
    "SpecialTokens",
    "Streamed",
    "TokenConstraints",
    "answer",
    "check_request",
    "classify",
    "fill",
    "fits_within",
    "generate_batch",
    "join_pieces",
    "spellings",
    "split_text",
    "stream",
    "tag",
    "translate_batch",
    "unwrapped",
]
