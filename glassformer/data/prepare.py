"""From the data a recipe names to what a run needs of it: every file is read once, streaming, and left in the run's own folder
as text; tokenizers are learned on the training split alone; train and val are encoded to token files.

Training, validation, evaluation and the studies read those files and nothing else, so a run can be moved, and goes on
whatever has happened to the original files since. Nothing here holds a corpus in memory.
"""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from glassformer.config import DataConfig, Recipe
from glassformer.data.files import Document, ReadContext
from glassformer.data.report import DataReport, in_words
from glassformer.data.sources import DataReader, why_empty
from glassformer.data.splits import hash_of, look_like_texts, normalized
from glassformer.data.store import StoreWriter, run_examples
from glassformer.data.tokens import TokenFile
from glassformer.errors import UserError
from glassformer.language import _
from glassformer.nn.loss import IGNORE
from glassformer.text.extension import Extended, extend
from glassformer.text.imported import load_tokenizer
from glassformer.text.tokenizer import BOS, EOS, Tokenizer, encodable
from glassformer.text.tokenizers import Extension, Tokenizers

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


def limited(texts: Iterable[str], characters: int) -> Iterator[str]:
    """Texts until so many characters have been seen."""
    for text in texts:
        yield text
        characters -= len(text)
        if characters <= 0:
            return


def texts_of(config: DataConfig, split: Any, side: str) -> Iterator[str]:
    """All text of one side ("source" or "target"; for anything but pairs there is one side)."""
    for example in split:
        yield texts_in(config, example)[1 if side == "target" and config.task == "pairs" else 0]


def labels_of(config: DataConfig, train: Any) -> list[str]:
    """The labels that occur in the training split, in order; none where none are learned."""
    labels: list[str] = []
    if config.task == "classify":
        counts = Counter(label for _, label in train)
        labels, total = sorted(counts), counts.total()
        if look_like_texts(len(labels), len({text for text, _ in train}) if len(labels) > total // 2 else total, total):
            raise UserError(
                _(
                    "there are {n_labels:,} different labels in {total:,} training examples: are labels and texts exchanged? The "
                    "label comes first, then a tab and the text",
                    n_labels=len(labels),
                    total=total,
                )
            )
    elif config.task == "tag":
        labels = sorted({tag for _, tags in train for tag in tags})
    if config.task in ("classify", "tag") and len(labels) < 2:
        raise UserError(
            _(
                "the training data has {n_labels} different labels; to learn to tell them apart takes at least 2",
                n_labels=len(labels),
            )
        )
    return labels


def keep_tokenizers(config: DataConfig, train: Any, old: Tokenizers) -> Tokenizers:
    """The tokenizers of a run that training begins with, larger by new tokens where the config asks for them. Its labels
    stay if the new ones are among them."""
    labels = labels_of(config, train)
    labels = old.labels if set(labels) <= set(old.labels) else labels
    if not config.extend_vocabulary:
        return Tokenizers(old.target, old.source, labels)

    def larger(tokenizer: Tokenizer, sides: tuple[str, ...]) -> Extended:
        texts = itertools.chain.from_iterable(texts_of(config, train, side) for side in sides)
        return extend(tokenizer, limited(texts, TOKENIZER_CHARACTERS), config.extend_vocabulary)

    if not old.shared:
        target, source = larger(old.target, ("target",)), larger(old.source, ("source",))
        return Tokenizers(target.tokenizer, source.tokenizer, labels, Extension(target.parts, source.parts))
    joint = larger(old.target, ("source", "target") if config.task == "pairs" else ("text",))
    return Tokenizers(joint.tokenizer, joint.tokenizer, labels, Extension(joint.parts, joint.parts))


def learn_tokenizers(config: DataConfig, train: Any) -> Tokenizers:
    """The tokenizers, from the training split alone, and the labels that occur in it."""

    def learn(sides: tuple[str, ...]) -> Tokenizer:
        if config.tokenizer_file is not None:
            return load_tokenizer(config.tokenizer_file)
        share = TOKENIZER_CHARACTERS // len(sides)
        text = itertools.chain.from_iterable(limited(texts_of(config, train, side), share) for side in sides)
        return Tokenizer.train(config.tokenizer, text, config.vocab_size, config.lowercase)

    labels = labels_of(config, train)
    if config.task == "pairs" and config.separate_vocabularies:
        return Tokenizers(learn(("target",)), learn(("source",)), labels)
    joint = learn(("source", "target") if config.task == "pairs" else ("text",))
    return Tokenizers(joint, joint, labels)


def encode_text(tokenizer: Tokenizer, documents: Iterable[Document], *, begin: bool = False) -> Iterator[list[int]]:
    """A sequence a document, EOS at its end; a document that arrives in pieces is one sequence a piece. `begin`: BOS at its
    beginning as well."""
    begins = begin
    for group in chunks(documents, lambda document: len(document.text)):
        for document, ids in zip(group, tokenizer.encode_batch([d.text for d in group]), strict=True):
            if begins:
                ids = [BOS, *ids]
            if document.ends:
                ids.append(EOS)
            begins = begin and document.ends
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
    """The id of a label; one that training never saw is refused in a sentence."""
    if label not in label_ids:
        raise UserError(
            _(
                "the label {label!r} in the {where} data never occurs in training, which knows {label_ids}",
                label=label,
                where=where,
                label_ids=", ".join(sorted(label_ids)[:12]),
            )
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
    seed: int = 0,
) -> dict[str, TokenFile]:
    """Writes one split's token files from its examples, which can be read again and again. Names: source and target, or text,
    and labels. `to_learn`: as training wants it, with pairs cut in several ways (which follow from `seed`) or both directions
    where the config asks for that; else an example is an example."""
    label_ids = {label: i for i, label in enumerate(tokenizers.labels)}
    prefix = folder / split_name

    def write(name: str, sequences: Iterable[list[int]], vocab_size: int | None) -> TokenFile:
        return TokenFile.write(f"{prefix}.{name}", sequences, vocab_size)

    def encoded(tokenizer: Tokenizer, side: str) -> Iterator[list[int]]:
        for group in chunks(texts_of(config, examples, side)):
            yield from tokenizer.encode_batch(group)

    def of_pairs(tokenizer: Tokenizer, side: str, other: str) -> Iterator[list[int]]:
        """One side of all pairs, and then the other side where both directions are learned."""
        for each in (side, other) if to_learn and config.both_ways else (side,):
            if not (to_learn and config.bpe_dropout):
                yield from encoded(tokenizer, each)
                continue
            sampler = tokenizer.bpe_dropout(config.bpe_dropout, seed=f"{seed} {each}")
            for text in encodable(texts_of(config, examples, each)):
                yield from sampler.encode(text, config.segmentations)

    match config.task:
        case "pairs":
            source, target = tokenizers.source, tokenizers.target
            return {
                "source": write("source", of_pairs(source, "source", "target"), source.vocab_size),
                "target": write("target", of_pairs(target, "target", "source"), target.vocab_size),
            }
        case "text":
            texts = encode_text(tokenizers.target, examples, begin=config.begin_documents)
            return {"text": write("text", texts, tokenizers.target.vocab_size)}
        case "classify":
            labels = ([known_label(label, label_ids, split_name)] for _, label in examples)
            return {
                "text": write("text", encoded(tokenizers.target, "text"), tokenizers.target.vocab_size),
                "labels": write("labels", labels, None),
            }
        case "tag":

            def tagged() -> Iterator[tuple[list[int], list[int]]]:
                return encode_tagged(tokenizers.target, examples, label_ids, split_name)

            return {
                "text": write("text", (ids for ids, _ in tagged()), tokenizers.target.vocab_size),
                "labels": write("labels", (labels for _, labels in tagged()), None),
            }


def open_files(config: DataConfig, split_name: str, folder: Path) -> dict[str, Any]:
    """The prepared token files of a split by their names."""
    names = {"pairs": ("source", "target"), "text": ("text",)}.get(config.task, ("text", "labels"))
    files: dict[str, Any] = {name: TokenFile.open(folder / f"{split_name}.{name}") for name in names}
    if config.task == "classify":
        files["labels"] = np.asarray(files["labels"].tokens, dtype=np.int64)
    return files


def read_once(
    config: DataConfig, folder: Path, given: Any = None, characters: int | None = None
) -> tuple[DataReport, set[int]]:
    """The data, read once from its files (or from `given`, in memory) and left in `folder` as text, split by split. Beside the
    report: hashes of the held-out targets, where both sides are learned from."""
    context = ReadContext(keep_facts=True)
    reader = DataReader(config, given, context=context)
    if config.on_error == "skip":
        context.complain = reader.skipped
    cut_short = False
    with StoreWriter(folder) as store, closing(reader.__iter__()) as examples:
        for split, example, times in examples:
            if characters is not None and store.splits[split].characters >= characters:
                cut_short = cut_short or split == "train"
                if cut_short and store.splits["val"].examples:
                    break
                continue
            store.write(split, example, times)
    splits = store.splits
    for split in ("train", "val"):
        if not splits[split].examples:
            raise UserError(why_empty(config, split, in_memory=given is not None))  # type: ignore[arg-type]
    report = DataReport(
        examples={split: writer.examples for split, writer in splits.items() if writer.examples},
        learned=splits["train"].learned,
        empty=dict(reader.empty),
        skipped=reader.skipped.count,
        first_skipped=reader.skipped.first,
        left_out=reader.left_out,
        odd={kind: count for kind, count in reader.odd.items() if count},
        in_train=dict(reader.in_train),
        splits=in_words(reader.split_off, config.val_fraction, config.task, config.builtin),
        split_off=reader.split_off,
        cut_short=cut_short,
        files=[replace(file, path=os.path.abspath(file.path)) for file in context.files],
    )
    return report, reader.heldout_targets


@dataclass(frozen=True)
class WithoutHeldoutTargets:
    """Training pairs whose targets are not held out: what both directions may be learned from."""

    pairs: Any
    heldout_targets: set[int]

    def __iter__(self) -> Iterator[Any]:
        for pair in self.pairs:
            if hash_of(normalized(pair[1])) not in self.heldout_targets:
                yield pair


def prepare(
    recipe: Recipe, folder: Path, characters: int | None = None, *, given: Any = None, old: Tokenizers | None = None
) -> Tokenizers:
    """Leaves in `folder` the tokenizers, and in `folder/data` the examples of every split as text, token files of train and
    val, and a report. `given`: data in memory instead of the files the recipe names. With `characters` only so much of each
    split is kept, for a look at what training would be like. `old`: the tokenizers of a run to begin with, in the place of
    learning some."""
    config, data = recipe.data, folder / "data"
    report, heldout_targets = read_once(config, data, given, characters)
    train = run_examples(config, "train", data, repeated=True)
    if heldout_targets:
        train = WithoutHeldoutTargets(train, heldout_targets)
        left = sum(1 for _ in train)
        report = replace(report, left_out=report.left_out + report.learned - left, learned=left)
        if not left:
            raise UserError(_("nothing is left to learn both ways once all pairs with a held-out side are left out"))
    report.write(data)
    tokenizers = learn_tokenizers(config, train) if old is None else keep_tokenizers(config, train, old)
    tokenizers.save(folder)
    encode_split(config, "train", train, tokenizers, data, to_learn=True, seed=recipe.train.seed)
    encode_split(config, "val", run_examples(config, "val", data), tokenizers, data)
    return tokenizers


def complete_model(recipe: Recipe, texts: Tokenizers, *, one_table: bool = False) -> Recipe:
    """The recipe with what only the data could tell: sizes of vocabularies, number of labels. `one_table`: two tokenizers cut
    into the words of one vocabulary, as Marian's do."""
    sizes: dict[str, Any] = {"vocab_size": texts.target.vocab_size}
    if not texts.shared and not one_table:
        sizes |= {"source_vocab_size": texts.source.vocab_size, "share_source_target": False}
    if texts.labels:
        sizes |= {"n_label": len(texts.labels)}
    return recipe.with_model(**sizes)
