"""From examples to token files: texts are encoded many at a time and written as they come, so that no corpus is held in
memory.

    pairs      source, target       what a pair's two sides are cut into, in several ways with BPE-dropout
    text       text                 documents, or pieces of long ones
    classify   text, labels         a number for each text
    tag        text, labels         a number for each token
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int

from glassformer.config import DataConfig, Recipe
from glassformer.data.examples import IGNORE
from glassformer.data.files import Document
from glassformer.data.tokens import TokenFile, new_token_file
from glassformer.data.transforms import Augmented
from glassformer.errors import UserError
from glassformer.screen import Progress
from glassformer.text.flat import end_to_end
from glassformer.text.tokenizer import BOS, EOS, Tokenizer
from glassformer.text.tokenizers import Tokenizers

ENCODED_AT_ONCE = 4000  # examples, and of long ones fewer:
CHARACTERS_AT_ONCE = 2_000_000
DRAWN_WITH = 1
"""The seed of BPE-dropout and augmentation, whatever that of the training, so that another one begins at once."""
CUT_AT_ONCE = 128_000  # texts of BPE-dropout, each as often as it is cut


def chunks(
    items: Iterable[Any], size_of: Callable[[Any], int] = len, most: int = ENCODED_AT_ONCE
) -> Iterator[list[Any]]:
    """As many as are encoded at a time: never more text than memory has room for, many at once where they are short."""
    chunk: list[Any] = []
    characters = 0
    for item in items:
        chunk.append(item)
        characters += size_of(item)
        if len(chunk) >= most or characters >= CHARACTERS_AT_ONCE:
            yield chunk
            chunk, characters = [], 0
    if chunk:
        yield chunk


Encoded = tuple[Int[np.ndarray, " m"], Int[np.ndarray, " n"]]
"""Sequences end to end, and the length of each."""


def encode_pairs(
    config: DataConfig, pairs: Iterable[tuple[str, str]], tokenizers: Tokenizers, to_learn: bool, epoch: int = 0
) -> Iterator[dict[str, Encoded]]:
    """Source and target; where both directions are learned, then the same the other way round. `epoch`: what is drawn is
    another in each."""
    times = config.copies if to_learn else 1
    seed = f"{DRAWN_WITH} {epoch}" if epoch else str(DRAWN_WITH)
    if to_learn and config.augment:
        tags = tuple(file.tag for file in config.files("train") if file.tag)
        pairs, times = Augmented(pairs, config.augment, seed, times, tags), 1
    drawn = to_learn and (times > 1 or config.drawn_each_epoch)
    most = max(1, CUT_AT_ONCE // times) if drawn else ENCODED_AT_ONCE

    def encoder(tokenizer: Tokenizer, side: int) -> Callable[[Sequence[str]], Encoded]:
        if not (to_learn and config.bpe_dropout):
            return tokenizer.corpus_encoder()
        sampler = tokenizer.bpe_dropout(config.bpe_dropout, seed=f"{seed} {('source', 'target')[side]}")
        return lambda texts: sampler.encode_batch(texts, times)

    with ThreadPoolExecutor(1) as beside:  # NumPy and the tokenizers library let other threads run while they compute
        for source, target in ((0, 1), (1, 0)) if to_learn and config.both_ways else ((0, 1),):
            encode_source, encode_target = encoder(tokenizers.source, source), encoder(tokenizers.target, target)
            for group in chunks(pairs, lambda pair: len(pair[0]) + len(pair[1]), most):
                sources = beside.submit(encode_source, [pair[source] for pair in group])
                targets = encode_target([pair[target] for pair in group])
                yield {"source": sources.result(), "target": targets}


def encode_text(tokenizer: Tokenizer, documents: Iterable[Document], *, begin: bool = False) -> Iterator[Encoded]:
    """A sequence a document, EOS at its end; a document that arrives in pieces is one sequence a piece. `begin`: BOS at its
    beginning as well."""
    encode, begins = tokenizer.corpus_encoder(), begin
    for group in chunks(documents, lambda document: len(document.text)):
        tokens, lengths = encode([document.text for document in group])
        ends = np.array([document.ends for document in group])
        starts = np.r_[begins, begin & ends[:-1]]
        begins = begin and bool(ends[-1])
        lengths = lengths + starts + ends
        finish = np.cumsum(lengths)
        framed = np.full(int(lengths.sum()), EOS)
        inside = np.ones(len(framed), bool)
        inside[(finish - 1)[ends]] = False
        framed[(finish - lengths)[starts]], inside[(finish - lengths)[starts]] = BOS, False
        framed[inside] = tokens
        yield framed, lengths


def encode_tagged(
    tokenizer: Tokenizer, examples: Iterable[tuple[list[str], list[str]]], label_ids: dict[str, int], where: str
) -> Iterator[dict[str, Encoded]]:
    """The ids of all words of a line, and for each the tag of its word: on its first piece, nothing on the others."""
    nothing = tokenizer.encode("?")
    for group in chunks(examples, lambda example: sum(map(len, example[0]))):
        words = tokenizer.encode_batch([word for words, _ in group for word in words])
        tokens, sizes = end_to_end([pieces or nothing for pieces in words])
        labels = np.full(len(tokens), IGNORE)
        labels[np.cumsum(sizes) - sizes] = [known_label(tag, label_ids, where) for _, tags in group for tag in tags]
        ends = np.cumsum([0, *(len(words) for words, _ in group)])
        lengths = np.diff(np.r_[0, np.cumsum(sizes)][ends])
        yield {"text": (tokens, lengths), "labels": (labels, lengths)}


def encode_classes(
    tokenizer: Tokenizer, examples: Iterable[tuple[str, str]], label_ids: dict[str, int], where: str
) -> Iterator[dict[str, Encoded]]:
    """Texts, and the number of the label of each."""
    encode = tokenizer.corpus_encoder()
    for group in chunks(examples, lambda example: len(example[0])):
        labels = np.array([known_label(label, label_ids, where) for _, label in group])
        yield {"text": encode([text for text, _ in group]), "labels": (labels, np.ones_like(labels))}


def known_label(label: str, label_ids: dict[str, int], where: str) -> int:
    """The id of a label; one that training never saw is refused in a sentence."""
    if label not in label_ids:
        raise UserError(
            "the label {label!r} in the {where} data never occurs in training, which knows {label_ids}",
            label,
            where,
            ", ".join(sorted(label_ids)[:12]),
        )
    return label_ids[label]


def encode_split(
    config: DataConfig,
    split_name: str,
    examples: Iterable[Any],
    tokenizers: Tokenizers,
    folder: Path,
    *,
    to_learn: bool = False,
    total: int = 0,
) -> dict[str, TokenFile]:
    """Writes one split's token files from its examples, which can be read again and again. Names: source and target, or text,
    and labels. `to_learn`: as training wants it, with pairs cut in several ways or both directions
    where the config asks for that; else an example is an example. `total`: how many sequences there will be, where that is
    known."""
    label_ids = {label: i for i, label in enumerate(tokenizers.labels)}
    sizes: dict[str, int | None] = dict.fromkeys(file_names(config), tokenizers.target.vocab_size)
    batches: Iterable[dict[str, Encoded]]
    match config.task:
        case "pairs":
            sizes["source"] = tokenizers.source.vocab_size
            batches = encode_pairs(config, examples, tokenizers, to_learn)
        case "text":
            documents = encode_text(tokenizers.target, examples, begin=config.begin_documents)
            batches = ({"text": encoded} for encoded in documents)
        case task:
            sizes["labels"] = None
            encode = encode_classes if task == "classify" else encode_tagged
            batches = encode(tokenizers.target, examples, label_ids, split_name)
    with ExitStack() as open_writers:
        display, done = open_writers.enter_context(Progress(f"encoding {split_name}", total)), 0
        writers = {
            name: open_writers.enter_context(new_token_file(folder / f"{split_name}.{name}", size))
            for name, size in sizes.items()
        }
        for batch in batches:
            for name, encoded in batch.items():
                writers[name].add(*encoded)
            done += len(encoded[1])
            display.update(done, f"{done:,} of {total:,}" if total else f"{done:,}")
    return {name: TokenFile.open(folder / f"{split_name}.{name}") for name in sizes}


def file_names(config: DataConfig) -> tuple[str, ...]:
    """The token files of a split by their names."""
    return {"pairs": ("source", "target"), "text": ("text",)}.get(config.task, ("text", "labels"))


def open_files(config: DataConfig, split_name: str, folder: Path) -> dict[str, Any]:
    """The prepared token files of a split by their names."""
    files: dict[str, Any] = {name: TokenFile.open(folder / f"{split_name}.{name}") for name in file_names(config)}
    if config.task == "classify":
        files["labels"] = np.asarray(files["labels"].tokens, dtype=np.int64)
    return files


def trained_length(recipe: Recipe, folder: Path) -> int | None:
    """The longest row of tokens that a model of labels has learned from, by the run's data folder; None where that is not known,
    or whatever fills whole blocks."""
    config, block = recipe.data, recipe.model.block_size
    if config.task not in ("classify", "tag"):
        return None
    try:
        lengths = TokenFile.open(folder / "train.text").lengths + 1 + config.close_texts
    except UserError:  # not there, or damaged
        return None
    limit = min(config.max_length or block, block)
    if config.task == "tag":
        lengths = np.minimum(lengths, limit)
    return int(lengths[lengths <= limit].max(initial=0)) or None
