"""What a validation measures, and which of it is called the best."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from glassformer.config import DecodeConfig, Recipe
from glassformer.config.changes import FOR_SHORT_TARGETS
from glassformer.data.store import run_examples
from glassformer.decode.generate import full_collections_wait
from glassformer.errors import ConfigError
from glassformer.evaluation.metrics import Scores, entity_scores, label_scores, words_per_text, written_scores
from glassformer.language import _
from glassformer.screen import watched
from glassformer.tasks import TextModel, classify, generate, tag
from glassformer.tasks.settings import USUAL_TEMPERATURE
from glassformer.tasks.translate import translate_each
from glassformer.text.tokenizers import Tokenizers

PROMPT_TOKENS, SAMPLE_TOKENS = 8, 48  # of the sample that a GPT writes
SAMPLED = PROMPT_TOKENS + SAMPLE_TOKENS
FOUR_WORDS = 4  # the longest runs that BLEU counts
TEACHER_FORCED = ("loss",)
"""What a validation measures without decoding."""


def measured(recipe: Recipe) -> list[str]:
    """What a validation measures that could be called the best."""
    match recipe.data.task, recipe.model.family:
        case "pairs", _:
            return ["loss", "exact_match", "bleu", "chrf"]
        case (("classify" | "tag"), _):
            return ["loss", "accuracy", "f1"]
    return ["loss"]


def metric_of(recipe: Recipe) -> str:
    """What "best" means where the recipe leaves it open."""
    if recipe.train.metric != "auto":
        if recipe.train.metric not in measured(recipe):
            raise ConfigError(
                "train.metric={metric} is not measured for {family} on {task}; choose from: {measured}",
                recipe.train.metric,
                recipe.model.family,
                recipe.data.task,
                ", ".join(measured(recipe)),
            )
        return recipe.train.metric
    if recipe.train.validate_examples == 0:
        return "loss"
    if recipe.data.task == "pairs":
        return "bleu"
    return {"classify": "accuracy", "tag": "accuracy"}.get(recipe.data.task, "loss")


def with_metric(recipe: Recipe, data: Path) -> Recipe:
    """The recipe with the metric said where `auto` is not BLEU: BLEU counts runs of four words, and of targets that are mostly
    shorter it is 0 whatever a model writes. `data`: the folder of the run's examples."""
    if recipe.train.metric != "auto" or metric_of(recipe) != "bleu":
        return recipe
    examples = itertools.islice(run_examples(recipe.data, "val", data), recipe.train.validate_examples)
    words = words_per_text([target for _, target in examples], recipe.train.bleu_tokenize)
    if not words or statistics.median(words) >= FOUR_WORDS:
        return recipe
    return replace(recipe, train=replace(recipe.train, metric=FOR_SHORT_TARGETS))


def greedy(config: DecodeConfig) -> DecodeConfig:
    """How a validation writes: quickly, and by the model itself, since an engine would have to be made from the weights of
    each validation anew. (`evaluate` writes as the recipe says.)"""
    return DecodeConfig(beam=1, batch_size=128, max_ratio=config.max_ratio, max_extra=config.max_extra, engine="plain")


def shown_translations(model: TextModel, texts: list[str]) -> list[str]:
    """As `translations`, with how far it is on the display."""
    with full_collections_wait():
        answers = watched(translate_each(model, texts), _("translating"), len(texts), every=max(1, len(texts) // 100))
        return [own[0].text for own in answers]


def example_scores(
    model: Any, tokenizers: Tokenizers, recipe: Recipe, examples: list[Any], *, edits: bool = False
) -> Scores:
    """What the model makes of examples by itself, scored as its task is. `edits`: TER, too."""
    if recipe.decode.engine == "auto":  # a score must not hang on which program was faster today
        recipe = replace(recipe, decode=replace(recipe.decode, engine="fast"))
    text_model = TextModel(model, tokenizers, recipe)
    match recipe.data.task, recipe.model.family:
        case "pairs", _:
            tokenize = recipe.train.bleu_tokenize
            return written_scores(partial(shown_translations, text_model), examples, tokenize, edits=edits)
        case "classify", _:
            predicted = [labels[0].label for labels in classify(text_model, [text for text, _ in examples])]
            return label_scores(predicted, [label for _, label in examples]) | Scores({}, written=predicted)
        case "tag", "bert":
            tagged = tag(text_model, [words for words, _ in examples])
            written, references = [[t.label for t in line] for line in tagged], [list(tags) for _, tags in examples]
            scores = label_scores([t for line in written for t in line], [t for tags in references for t in tags])
            return (
                scores | entity_scores(written, references) | Scores({}, written=[" ".join(line) for line in written])
            )
    return Scores({})


def text_sample(model: Any, tokenizers: Tokenizers, recipe: Recipe, text: Sequence[int]) -> Scores:
    """The beginning of a text (its first tokens), how it goes on, and what a GPT writes there: drawn, but always by the same
    seed."""
    half = (recipe.model.block_size - 1) // 2
    if half < 1 or recipe.model.family != "gpt" or recipe.train.validate_examples == 0:
        return Scores({})
    begins, length = min(PROMPT_TOKENS, half), min(SAMPLE_TOKENS, half)
    prompt, continuation = (tokenizers.target.decode(ids) for ids in (text[:begins], text[begins : begins + length]))
    settings = DecodeConfig(temperature=USUAL_TEMPERATURE, max_new_tokens=length, engine="plain")
    written = generate(TextModel(model, tokenizers, recipe), [prompt], config=settings)[0][0]
    return Scores({}, samples=[(prompt, continuation, written.text)])


def task_scores(
    model: Any, tokenizers: Tokenizers, recipe: Recipe, examples: Iterable[Any], limit: int | None
) -> Scores:
    """What the model does by itself on the first examples of a split: translations scored as text, labels as labels."""
    if limit == 0 or recipe.data.task == "text":
        return Scores({})
    examples = list(itertools.islice(examples, limit))
    return example_scores(model, tokenizers, replace(recipe, decode=greedy(recipe.decode)), examples)
