"""Contrastive pairs: of two translations that differ in one thing, does the model find the right one likelier? (Sennrich 2017,
"How grammatical is character-level neural machine translation?"; for context, Müller et al. 2018.)"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from glassformer.data.files import ReadContext, numbered_lines
from glassformer.data.transforms import SEPARATOR, joined
from glassformer.errors import UserError
from glassformer.tasks import TextModel
from glassformer.tasks.score import score

AT_ONCE = 256


@dataclass(frozen=True)
class Contrast:
    """A source with its right and its wrong translation, and the sentences before it on either side."""

    source: str
    right: str
    wrong: str
    source_context: tuple[str, ...] = ()
    target_context: tuple[str, ...] = ()


def read_contrasts(path: Path) -> list[Contrast]:
    """A TSV of source, right, wrong and, where there is any, the context of the source and that of the target, sentences of which
    are parted by ‖."""
    found = []
    for number, line in numbered_lines(path, ReadContext()):
        columns = [column.strip() for column in line.split("\t")]
        if not line.strip():
            continue
        if len(columns) not in (3, 5) or not all(columns[:3]):
            raise UserError(
                "{path}, line {line}: a contrast is source, right, wrong, or those and the context of source and target, with "
                "tabs between",
                path,
                number,
            )
        contexts = (tuple(filter(None, map(str.strip, own.split(SEPARATOR.strip())))) for own in columns[3:])
        source, right, wrong = columns[:3]
        found.append(Contrast(source, right, wrong, *contexts))
    if not found:
        raise UserError("{path} is empty", path=path)
    return found


def contrastive(model: TextModel, contrasts: Sequence[Contrast]) -> tuple[int, int]:
    """How many right translations the model finds likelier than the wrong ones, and of how many; equal is not likelier, and what
    is longer than the model reads does not count. A model without context reads none."""
    model.require("translate")
    size, right, total = model.recipe.data.context, 0, 0
    for start in range(0, len(contrasts), AT_ONCE):
        group = contrasts[start : start + AT_ONCE]
        pairs = []
        for own in group:
            read, written = (part[max(0, len(part) - size) :] for part in (own.source_context, own.target_context))
            source = joined(read, own.source)
            pairs += [(source, joined(written, own.right)), (source, joined(written, own.wrong))]
        scores = score(model, pairs)
        for good, bad in zip(scores[::2], scores[1::2], strict=True):
            if good is not None and bad is not None:
                right, total = right + (good.log_probability > bad.log_probability), total + 1
    return right, total
