"""What a trained model does with texts: translate, generate, fill, classify, tag, score, embed. Lists in, result objects out.

Each task is a function of a `TextModel` (a model with its tokenizers and recipe). This room knows nothing of files, lines
and terminals (cli/), nothing of search (decode/), and is not yet kind to a single text (api/).
"""

from glassformer.tasks.embed import embed
from glassformer.tasks.generate import generate, generate_each, stream_generated
from glassformer.tasks.labels import classify, fill, tag, unknown
from glassformer.tasks.results import Answer, Filled, Label, Tagged, word_links
from glassformer.tasks.score import TextScore, TokenScores, score, token_scores
from glassformer.tasks.settings import TextConstraints, check_constraints, decode_settings
from glassformer.tasks.text_model import LONGEST_TEXT, TextModel, check_lengths, check_text
from glassformer.tasks.translate import (
    forced_links,
    stream_translated,
    translate,
    translate_each,
    translate_in_context,
    translations,
)

__all__ = [
    "LONGEST_TEXT",
    "Answer",
    "Filled",
    "Label",
    "Tagged",
    "TextConstraints",
    "TextModel",
    "TextScore",
    "TokenScores",
    "check_constraints",
    "check_lengths",
    "check_text",
    "classify",
    "decode_settings",
    "embed",
    "fill",
    "forced_links",
    "generate",
    "generate_each",
    "score",
    "stream_generated",
    "stream_translated",
    "tag",
    "token_scores",
    "translate",
    "translate_each",
    "translate_in_context",
    "translations",
    "unknown",
    "word_links",
]
