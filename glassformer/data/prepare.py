"""From the text a recipe names to token files a trainer reads: tokenizers learned on the training split alone, every
split encoded once, all of it kept in the run's own folder.

Training reads those files and nothing else, so a run that is stopped and continued sees the same data, whatever has
happened to the original text since. Nothing here holds a corpus in memory.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from glassformer.config import DataConfig, Recipe
from glassformer.data.sources import Document, open_split
from glassformer.data.tokens import TokenFile
from glassformer.errors import UserError
from glassformer.nn.loss import IGNORE
from glassformer.text.tokenizer import EOS, Tokenizer, encodable
from glassformer.text.tokenizers import Tokenizers

ENCODED_AT_ONCE = 2000  # examples, and of long ones fewer:
CHARACTERS_AT_ONCE = 4_000_000
TOKENIZER_CHARACTERS = 50_000_000  # a tokenizer learns from at most so much text; more changes little and costs memory


def chunks(items: Iterable[Any], size_of: Callable[[Any], int] = len) -> Iterator[list[Any]]:
    """As many as are encoded at a time: never more text than memory has room for, many at once where they are short."""
    chunk: list[Any] = []
    characters = 0
    for item in items:
        chunk.append(item)
        characters += size_of(item)
        if len(chunk) >= ENCODED_AT_ONCE or characters >= CHARACTERS_AT_ONCE:
            yield chunk
            chunk, characters = [], 0
    if chunk:
        yield chunk


def texts_in(config: DataConfig, example: Any) -> tuple[str, ...]:
    """The text of an example: one, or source and target."""
    match config.task:
        case "pairs":
            return example[0], example[1]
        case "text":
            return (example.text,)
        case "classify":
            return (example[0],)
        case "tag":
            return (" ".join(example[0]),)


@dataclass(frozen=True)
class Beginning:
    """The first examples of a split, as long as they have no more than so many characters (but at least one)."""

    config: DataConfig
    split: Any
    characters: int

    def __iter__(self) -> Iterator[Any]:
        left = self.characters
        for example in self.split:
            yield example
            left -= sum(len(text) for text in texts_in(self.config, example))
            if left <= 0:
                return


def examples_of(config: DataConfig, split_name: str, characters: int | None) -> Any:
    """A split to be read again and again, or only the beginning of it."""
    split = open_split(config, split_name)  # type: ignore[arg-type]
    return split if characters is None else Beginning(config, split, characters)


def limited(texts: Iterable[str], characters: int) -> Iterator[str]:
    for text in texts:
        yield text
        characters -= len(text)
        if characters <= 0:
            return


def texts_of(config: DataConfig, split: Any, side: str) -> Iterator[str]:
    """All text of one side ("source" or "target"; for anything but pairs there is one side)."""
    for example in split:
        yield texts_in(config, example)[1 if side == "target" and config.task == "pairs" else 0]


def learn_tokenizers(config: DataConfig, characters: int | None = None) -> Tokenizers:
    """The tokenizers, from the training split alone, and the labels that occur in it."""
    train = examples_of(config, "train", characters)

    def learn(sides: tuple[str, ...]) -> Tokenizer:
        if config.tokenizer_file is not None:
            return Tokenizer.load(config.tokenizer_file)
        share = TOKENIZER_CHARACTERS // len(sides)
        text = itertools.chain.from_iterable(limited(texts_of(config, train, side), share) for side in sides)
        return Tokenizer.train(config.tokenizer, text, config.vocab_size, config.lowercase)

    labels: list[str] = []
    if config.task == "classify":
        labels = sorted({label for _, label in open_split(config, "train")})
    elif config.task == "tag":
        labels = sorted({tag for _, tags in open_split(config, "train") for tag in tags})
    if config.task in ("classify", "tag") and len(labels) < 2:
        raise UserError(
            f"the training data has {len(labels)} different labels; to learn to tell them apart takes at least 2"
        )
    if config.task == "pairs" and config.separate_vocabularies:
        return Tokenizers(learn(("target",)), learn(("source",)), labels)
    joint = learn(("source", "target") if config.task == "pairs" else ("text",))
    return Tokenizers(joint, joint, labels)


def encode_text(tokenizer: Tokenizer, documents: Iterable[Document]) -> Iterator[list[int]]:
    """A sequence a document, EOS at its end; a document that arrives in pieces is one sequence a piece."""
    for group in chunks(documents, lambda document: len(document.text)):
        for document, ids in zip(group, tokenizer.encode_batch([d.text for d in group]), strict=True):
            if document.ends:
                ids.append(EOS)
            yield ids


def encode_tagged(
    tokenizer: Tokenizer, examples: Iterable[tuple[list[str], list[str]]], label_ids: dict[str, int], where: str
) -> Iterator[tuple[list[int], list[int]]]:
    """The ids of all words of a line, and for each the tag of its word: on its first piece, nothing on the others."""
    for words, tags in examples:
        ids: list[int] = []
        labels: list[int] = []
        for tag, pieces in zip(tags, tokenizer.encode_batch(words), strict=True):
            pieces = pieces or tokenizer.encode_batch(["?"])[0]
            ids += pieces
            labels += [known_label(tag, label_ids, where)] + [IGNORE] * (len(pieces) - 1)
        yield ids, labels


def known_label(label: str, label_ids: dict[str, int], where: str) -> int:
    if label not in label_ids:
        raise UserError(
            f"the label {label!r} in the {where} data never occurs in training, which knows {', '.join(sorted(label_ids)[:12])}"
        )
    return label_ids[label]


def encode_split(
    config: DataConfig,
    split_name: str,
    texts: Tokenizers,
    folder: Path,
    characters: int | None = None,
    *,
    to_learn: bool = False,
) -> dict[str, TokenFile]:
    """Writes one split's token files. Names: source and target, or text, and labels. `to_learn`: as training wants it, with
    pairs cut in several ways or both directions where the config asks for that; else an example is an example."""
    split = examples_of(config, split_name, characters)
    label_ids = {label: i for i, label in enumerate(texts.labels)}
    prefix = folder / split_name

    def write(name: str, sequences: Iterable[list[int]], vocab_size: int | None) -> TokenFile:
        return TokenFile.write(f"{prefix}.{name}", sequences, vocab_size)

    def plain(tokenizer: Tokenizer, side: str) -> Iterator[list[int]]:
        for group in chunks(texts_of(config, split, side)):
            yield from tokenizer.encode_batch(group)

    def of_pairs(tokenizer: Tokenizer, side: str, other: str) -> Iterator[list[int]]:
        """One side of all pairs, and then the other side where both directions are learned."""
        for here in (side, other) if to_learn and config.both_ways else (side,):
            if not (to_learn and config.bpe_dropout):
                yield from plain(tokenizer, here)
                continue
            sampler = tokenizer.bpe_dropout(config.bpe_dropout, seed=here)
            for text in encodable(texts_of(config, split, here)):
                yield from sampler.encode(text, config.segmentations)

    match config.task:
        case "pairs":
            return {
                "source": write("source", of_pairs(texts.source, "source", "target"), texts.source.vocab_size),
                "target": write("target", of_pairs(texts.target, "target", "source"), texts.target.vocab_size),
            }
        case "text":
            return {"text": write("text", encode_text(texts.target, split), texts.target.vocab_size)}
        case "classify":
            labels = ([known_label(label, label_ids, split_name)] for _, label in split)
            return {
                "text": write("text", plain(texts.target, "text"), texts.target.vocab_size),
                "labels": write("labels", labels, None),
            }
        case "tag":

            def tagged() -> Iterator[tuple[list[int], list[int]]]:
                return encode_tagged(texts.target, split, label_ids, split_name)

            return {
                "text": write("text", (ids for ids, _ in tagged()), texts.target.vocab_size),
                "labels": write("labels", (labels for _, labels in tagged()), None),
            }


def open_files(config: DataConfig, split_name: str, folder: Path) -> dict[str, Any]:
    names = {"pairs": ("source", "target"), "text": ("text",)}.get(config.task, ("text", "labels"))
    files: dict[str, Any] = {name: TokenFile.open(folder / f"{split_name}.{name}") for name in names}
    if config.task == "classify":
        files["labels"] = np.asarray(files["labels"].tokens, dtype=np.int64)
    return files


def prepare(recipe: Recipe, folder: Path, characters: int | None = None) -> Tokenizers:
    """Leaves tokenizers in `folder` and token files of train and val in `folder/data`. With `characters` only so much of
    each split is read, for a look at what training would be like."""
    texts = learn_tokenizers(recipe.data, characters)
    texts.save(folder)
    for split in ("train", "val"):
        encode_split(recipe.data, split, texts, folder / "data", characters, to_learn=split == "train")
    return texts


def complete_model(recipe: Recipe, texts: Tokenizers) -> Recipe:
    """The recipe with what only the data could tell: sizes of vocabularies, number of labels."""
    sizes: dict[str, Any] = {"vocab_size": texts.target.vocab_size}
    if not texts.shared:
        sizes |= {"source_vocab_size": texts.source.vocab_size, "share_source_target": False}
    if texts.labels:
        sizes |= {"n_label": len(texts.labels)}
    return recipe.with_model(**sizes)
