"""What of a text a model cannot know: it is answered all the same, and whoever asks is told."""

from __future__ import annotations

from glassformer.tasks.fill import MASK_MARKER
from glassformer.tasks.tag import words_of
from glassformer.tasks.text_model import TextModel
from glassformer.text.unknown import unknown_pieces


def unknown(model: TextModel, text: str) -> list[str]:
    """The words or characters of a text that are not in the model's vocabulary, as the model's own verb would read it."""
    parts = [text]
    if model.verb == "fill":
        parts = MASK_MARKER.split(text)
    elif model.verb == "tag":
        parts = words_of(model, text)
    found = (piece for part in parts for piece in unknown_pieces(model.tokenizers.source, part))
    return list(dict.fromkeys(found))
