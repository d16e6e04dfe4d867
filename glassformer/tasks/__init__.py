"""What a trained model does with texts: translate, generate, fill, classify, tag, score, embed. Lists in, result objects out.

Each task is a function of a `TextModel` (a model with its tokenizers and recipe). This room knows nothing of files, lines
and terminals (cli/), nothing of search (decode/), and is not yet kind to a single text (api/).
"""

from glassformer.tasks.classify import classify
from glassformer.tasks.constraints import TextConstraints, check_constraints
from glassformer.tasks.embed import embed
from glassformer.tasks.fill import fill
from glassformer.tasks.generate import generate, generate_each, stream_generated
from glassformer.tasks.results import Answer, DecodedPart, Filled, Label, Tagged
from glassformer.tasks.score import TextScore, score
from glassformer.tasks.settings import decode_settings
from glassformer.tasks.tag import tag
from glassformer.tasks.text_model import LONGEST_TEXT, TextModel, check_lengths, check_text
from glassformer.tasks.token_scores import TokenScores, token_scores
from glassformer.tasks.translate import (
    stream_translated,
    translate,
    translate_each,
    translate_in_context,
    translations,
)
from glassformer.tasks.unknown import unknown
from glassformer.tasks.word_links import forced_links, word_links

__all__ = [
    "LONGEST_TEXT",
    "Answer",
    "DecodedPart",
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
