"""Every study there is, in the order in which a reader of the paper meets its claim."""

from __future__ import annotations

from glassformer.config import did_you_mean
from glassformer.errors import UserError
from glassformer.lab.claims import (
    batching,
    decoder_only,
    embeddings,
    heads,
    leak,
    mixers,
    norms,
    positions,
    residuals,
    rnn,
    scale,
    scaling,
    timing,
    vision,
)
from glassformer.lab.claims.study import Study

STUDIES: tuple[Study, ...] = (
    scaling.STUDY,
    heads.STUDY,
    positions.STUDY,
    norms.STUDY,
    residuals.STUDY,
    leak.STUDY,
    timing.PARALLEL,
    timing.CACHE,
    timing.FUSED,
    rnn.STUDY,
    decoder_only.STUDY,
    scale.STUDY,
    embeddings.STUDY,
    mixers.WINDOWED,
    mixers.LINEAR,
    mixers.HYBRID,
    batching.STUDY,
    vision.STUDY,
)


def study_named(name: str) -> Study:
    """The study of that name; a sentence with the nearest where there is none."""
    for study in STUDIES:
        if study.name == name:
            return study
    names = [study.name for study in STUDIES]
    raise UserError(f"there is no study {name!r}{did_you_mean(name, names)}; there are {', '.join(names)}")
