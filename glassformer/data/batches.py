"""Which batches a model learns from: sentences or blocks, as its family, its head and the data's task have it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from glassformer.config import DataConfig, Recipe
from glassformer.data.batch import Batch, Batches, EpochPlan
from glassformer.data.block_batches import BlockBatches, SpanBatches
from glassformer.data.examples import Classify, Examples, Tag, paired
from glassformer.data.sentence_batches import Redraw, SentenceBatches
from glassformer.data.tokens import TokenFile
from glassformer.errors import ConfigError


def check_task(config: DataConfig, family: str, head: str) -> None:
    """Refuses, from the settings alone, data that models of this family and head do not learn from."""
    if config.span_length is not None and (
        (config.task, family) != ("text", "transformer") or config.respect_documents
    ):
        raise ConfigError(
            "data.span_length is for an encoder-decoder on text, in whole blocks (data.respect_documents=false); leave it out"
        )
    if config.task == "text":
        if family == "transformer" and config.span_length is None:
            raise ConfigError(
                'an encoder-decoder learns from pairs; for a text set model.family to "gpt" or "bert", or data.span_length=3 to '
                "have it fill gaps, as T5 does"
            )
        if family == "bert" and head != "mlm":
            raise ConfigError(
                'model.head="{head}" does not learn from a text; set model.head to "mlm", or data.task to "classify" or "tag"',
                head,
            )
    elif config.task == "pairs":
        if family == "bert":
            raise ConfigError('model.family="bert" does not learn from pairs; use "transformer" or "gpt"')
        if family == "gpt" and not config.prompt_answer:
            raise ConfigError(
                'a GPT learns from pairs as prompt and answer; set data.prompt_answer=true (or data.task="text" for plain '
                "text), or use the encoder-decoder"
            )
    elif head != config.task or not (family == "bert" or (family, head) == ("gpt", "classify")):
        either = "bert or gpt" if config.task == "classify" else "bert"
        raise ConfigError(
            'data.task="{task}" needs model.family={either} with model.head="{task}", not "{family}" with "{head}"',
            config.task,
            either,
            family,
            head,
        )


def make_batches(
    config: DataConfig,
    family: Literal["transformer", "gpt", "bert"],
    head: str,
    files: Mapping[str, TokenFile | np.ndarray],
    block_size: int,
    seed: int,
    *,
    layout: Literal["padded", "packed"],
    training: bool = True,
    redraw: Redraw | None = None,
) -> SentenceBatches | BlockBatches:
    """The batches a model of this family and head learns from.

    files: pairs {"source", "target"}; text {"text"}; classify {"text", "labels": one class each}; tag {"text",
    "labels": a TokenFile with a tag for each token}. With training=False (evaluation, `in_order`) a short text is no
    error, nor are examples that are all too long, and only the block size limits lengths. `redraw`: the examples of later
    epochs (data/redraw.py)."""
    check_task(config, family, head)
    if config.task == "text":
        text = token_file(files, "text")
        how: dict[str, Any] = {"block_size": block_size, "budget": config.batch_tokens, "seed": seed}
        how |= {"mask_fraction": config.mask_fraction, "one_shape": layout == "packed", "workers": config.workers or 0}
        blocks = (
            SpanBatches(text, span_length=config.span_length, **how)
            if config.span_length is not None
            else BlockBatches(
                text,
                task="next" if family == "gpt" else "masked",
                respect_documents=config.respect_documents,
                closed=config.close_texts and family == "bert",
                **how,
            )
        )
        if training:
            blocks.check_long_enough()
        return blocks
    asked = config.max_length if training and config.max_length is not None else block_size
    limit = min(asked, block_size)
    sentences = SentenceBatches(
        examples_for(config, family, head, files, limit),
        budget=config.batch_tokens,
        limit=limit,
        layout=layout,
        seed=seed,
        row_width=config.row_width,
        workers=config.workers or 0,
        redraw=redraw,
    )
    if training:
        sentences.check_some_fit()
    return sentences


def recipe_batches(
    recipe: Recipe, files: Mapping[str, TokenFile | np.ndarray], *, block_size: int | None = None, **how: Any
) -> SentenceBatches | BlockBatches:
    """The batches that a recipe's model learns from; `how`: `layout`, `training` and `redraw`, as `make_batches` takes
    them."""
    model = recipe.model
    longest = block_size or model.block_size
    return make_batches(recipe.data, model.family, model.head, files, longest, recipe.train.seed, **how)


def examples_for(
    config: DataConfig, family: str, head: str, files: Mapping[str, TokenFile | np.ndarray], limit: int | None = None
) -> Examples:
    """The examples of a task as rows and labels for this family of models; tagged sentences of more than `limit` tokens in
    windows."""
    check_task(config, family, head)
    if config.task == "pairs":
        return paired(family, {name: token_file(files, name) for name in ("source", "target")})
    if config.task == "tag":
        return Tag(token_file(files, "text"), token_file(files, "labels"), closed=config.close_texts, limit=limit)
    classes = files["labels"]
    if isinstance(classes, TokenFile):
        classes = np.asarray(classes.tokens)
    how = {"at_the_end": family == "gpt", "closed": config.close_texts}
    return Classify(token_file(files, "text"), classes.astype(np.int64), **how)


def token_file(files: Mapping[str, TokenFile | np.ndarray], name: str) -> TokenFile:
    """The token file of this name."""
    file = files[name]
    if not isinstance(file, TokenFile):
        raise TypeError(f"{name} must be a token file")
    return file


__all__ = [
    "Batch",
    "Batches",
    "BlockBatches",
    "EpochPlan",
    "SentenceBatches",
    "check_task",
    "examples_for",
    "make_batches",
    "recipe_batches",
    "token_file",
]
