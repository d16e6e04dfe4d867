"""A model with its tokenizers and its recipe: what every task is done with.

Ids stay inside the tasks: text comes in and text goes out, put before the model as it was in training
(data/examples.py). What a model cannot do, because it was made for something else, is refused in a sentence.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Literal

import torch

from glassformer.config import Recipe
from glassformer.data.examples import Window, windows
from glassformer.data.readers import with_features
from glassformer.decode import SpecialTokens
from glassformer.errors import UserError
from glassformer.language import _
from glassformer.models import BERT, GPT, Transformer
from glassformer.text.tokenizer import BOS, EOS
from glassformer.text.tokenizers import Tokenizers

LONGEST_TEXT = 100_000
"""Characters a text may have; what is longer is a file, and its lines are texts."""

Verb = Literal["translate", "generate", "fill", "classify", "tag", "embed"]
VERBS: dict[str, tuple[Verb, ...]] = {
    "transformer": ("translate",),
    "gpt": ("generate",),
    "gpt on pairs": ("translate", "generate"),
    "mlm": ("fill",),
    "classify": ("classify",),
    "tag": ("tag",),
    "none": ("embed",),
}
"""What each kind of model can do; the first is what it is made for."""

FAMILIES = {"transformer": _("an encoder-decoder"), "gpt": _("a GPT"), "bert": _("a BERT")}


class WrongVerb(UserError, AttributeError):
    """A model was asked for what it was not made for; to `hasattr` it simply does not have the verb."""


class TextModel:
    """A model, its tokenizers and its recipe: the first argument of every task.

    `glassformer.load(run)` gives one; from parts in memory: `TextModel(model, tokenizers, recipe)`.
    """

    def __init__(self, model: Transformer | GPT | BERT, tokenizers: Tokenizers, recipe: Recipe) -> None:
        self._model, self.tokenizers, self.recipe = model, tokenizers, recipe
        usual, words = SpecialTokens(), tokenizers.target
        self.special_tokens = replace(usual, never=(*usual.never, *words.never), more_ends=words.ends)

    @property
    def model(self) -> Transformer | GPT | BERT:
        """The model itself, to look into and to change. From now on its weights are looked through before each answer, since
        whoever holds it may change them; until somebody asks for it, nobody can, and the tasks use `_model`."""
        self._model.handed_out = True
        return self._model

    @property
    def device(self) -> torch.device:
        """The device that the weights are on."""
        return next(self._model.parameters()).device

    @property
    def kind(self) -> str:
        """What was trained, and on what: one of `VERBS`."""
        config = self._model.config
        if config.family == "gpt" and config.head == "mlm":
            return "gpt on pairs" if self.recipe.data.prompt_answer else "gpt"
        return config.family if config.family == "transformer" else config.head

    @property
    def verb(self) -> Verb:
        """What it does with texts: translate, generate, fill, classify or tag; embed, as all do, where it has no head."""
        return VERBS[self.kind][0]

    def as_learned(self, text: str) -> str:
        """A source as the run has learned it: what stands behind a tab is its features, where it has learned with them."""
        has_features = self.recipe.data.features_field is not None and isinstance(text, str) and "\t" in text
        return with_features(*text.split("\t", 1)) if has_features else text

    def require(self, verb: Verb) -> None:
        """Refuse, in a sentence, what this model was not made for."""
        if verb not in VERBS[self.kind]:
            raise self.cannot(verb)
        if verb == "translate" and self.recipe.data.span_length is not None:
            raise UserError(
                "this run has learned to fill gaps of a text, whose marks no text can spell; fine-tune it on pairs first "
                "(glassformer train RECIPE --from RUN)"
            )

    def cannot(self, verb: str) -> WrongVerb:
        """The sentence that says what this model is, and that it is not made for this."""
        family = FAMILIES[self._model.config.family]
        if self.kind == "none":
            return WrongVerb(
                "this run is {family} without a head, which embeds texts; it cannot {verb}", family=family, verb=verb
            )
        return WrongVerb(
            "this run is {family} made to {own_verb}; it cannot {verb}", family=family, own_verb=self.verb, verb=verb
        )

    @property
    def max_text_tokens(self) -> int:
        """The longest text a model that reads (BERT) sees at once, in tokens, without BOS and EOS."""
        return max(1, self._model.config.block_size - 1 - self.recipe.data.close_texts)

    @property
    def window_tokens(self) -> int:
        """The tokens in one window of a longer text: no more than the model has learned from at once."""
        length = self._model.trained_length or self._model.config.block_size
        return max(1, min(self.max_text_tokens, length - 1 - self.recipe.data.close_texts))

    def windows(self, texts: Sequence[Sequence[int]]) -> list[tuple[int, Window, list[int]]]:
        """The ids of texts as this model reads them: for each window the number of its text, where it lies, and its row."""
        return [
            (number, window, self.with_special_tokens(ids[window.start : window.end]))
            for number, ids in enumerate(texts)
            for window in windows(len(ids), self.window_tokens)
        ]

    def with_special_tokens(self, ids: Sequence[int]) -> list[int]:
        """A text as a model that reads sees it: BOS before it, and EOS behind it where it was trained so."""
        return [BOS, *ids, *([EOS] if self.recipe.data.close_texts else [])]


def check_lengths(texts: Iterable[Any]) -> None:
    """Refuses a text (or a list of words) that a tokenizer would work on for long: it is looked at before it is cut."""
    for text in texts:
        words = text if isinstance(text, list | tuple) else [text]
        length = sum(len(word) for word in words if isinstance(word, str))
        if length > LONGEST_TEXT:
            raise UserError(
                "the text has {length:,} characters, and at most {longest_text:,} are taken at once; break it into lines",
                length,
                LONGEST_TEXT,
            )


def check_text(text: str) -> str:
    """The text as a stranger gave it, if it is one. (A text of one's own may hold a NUL: training data does.)"""
    if not isinstance(text, str):
        raise UserError("a text is a str, not {kind}", type(text).__name__)
    check_lengths([text])
    if "\0" in text:
        raise UserError(
            "the text has a NUL at character {index}, which belongs to no text; remove it", text.index(chr(0)) + 1
        )
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise UserError(
            "the text has a lone surrogate (U+{code:04X}) at character {start}, "
            "which is half a character or a byte that is not UTF-8; remove it",
            ord(text[error.start]),
            error.start + 1,
        ) from None
    return text


def as_list(texts: Sequence[Any]) -> list[Any]:
    """A string is a sequence of strings, too; taken as one, its letters would be answered one by one."""
    if isinstance(texts, str):
        raise UserError("texts come as a list, even a single one: write [text]")
    return list(texts)
