"""What a trained model says: search, sampling, constraints, streaming. Models come in through the protocols of steps.py."""

from glassformer.decode.constraints import Controls, Demands, spellings
from glassformer.decode.generate import (
    Streamed,
    generate_batch,
    stream_generation,
    stream_translation,
    translate_batch,
)
from glassformer.decode.longtext import Piece, fits_within, join_pieces, split_text
from glassformer.decode.predict import Filling, classify, fill, tag
from glassformer.decode.results import BeamTrace, Candidate, Hypothesis

__all__ = [
    "BeamTrace",
    "Candidate",
    "Controls",
    "Demands",
    "Filling",
    "Hypothesis",
    "Piece",
    "Streamed",
    "classify",
    "fill",
    "fits_within",
    "generate_batch",
    "join_pieces",
    "spellings",
    "split_text",
    "stream_generation",
    "stream_translation",
    "tag",
    "translate_batch",
]
