"""From the data a recipe names to what a run needs of it: every file is read once, streaming, and left in the run's own folder
as text; tokenizers are learned on the training split alone; train and val are encoded to token files.

Training, validation, evaluation and the studies read those files and nothing else, so a run can be moved, and goes on
whatever has happened to the original files since. Nothing here holds a corpus in memory.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int

from glassformer.config import DataConfig, Recipe
from glassformer.data import cache
from glassformer.data.files import Document, ReadContext
from glassformer.data.origins import SPLITS, Split
from glassformer.data.report import DataReport, in_words
from glassformer.data.sources import DataReader, split_off, why_empty
from glassformer.data.splits import hash_of, look_like_texts, normalized
from glassformer.data.store import StoreWriter, run_examples, stored_splits
from glassformer.data.tokens import TokenFile, TokenWriter
from glassformer.errors import UserError
from glassformer.files.user_data import FileFacts
from glassformer.nn.loss import IGNORE
from glassformer.screen import say
from glassformer.text.extension import Extended, extend
from glassformer.text.imported import load_tokenizer
from glassformer.text.pre_tokenizer import end_to_end
from glassformer.text.tokenizer import BOS, EOS, Tokenizer
from glassformer.text.tokenizers import Extension, Tokenizers

ENCODED_AT_ONCE = 4000  # examples, and of long ones fewer:
CHARACTERS_AT_ONCE = 4_000_000
CUT_AT_ONCE = 128_000  # texts of BPE-dropout, each as often as it is cut
TOKENIZER_CHARACTERS = 50_000_000  # a tokenizer learns from at most so much text; more changes little and costs memory


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


def texts_of(config: DataConfig, examples: Iterable[Any], sides: Sequence[int] = (0,)) -> Iterator[str]:
    """The text of these sides (0: source, or the only one; 1: target) in one reading, of each as much as a tokenizer learns
    from."""
    left = {side: TOKENIZER_CHARACTERS // len(sides) for side in sides}
    for example in examples:
        texts = texts_in(config, example)
        for side in sides:
            if left[side] > 0:
                left[side] -= len(texts[side])
                yield texts[side]
        if max(left.values()) <= 0:
            return


def labels_of(config: DataConfig, train: Any) -> list[str]:
    """The labels that occur in the training split, in order; none where none are learned."""
    labels: list[str] = []
    if config.task == "classify":
        counts = Counter(label for _, label in train)
        labels, total = sorted(counts), counts.total()
        if look_like_texts(len(labels), len({text for text, _ in train}) if len(labels) > total // 2 else total, total):
            raise UserError(
                f"there are {len(labels):,} different labels in {total:,} training examples: are labels and texts exchanged? The "
                "label comes first, then a tab and the text"
            )
    elif config.task == "tag":
        labels = sorted({tag for _, tags in train for tag in tags})
    if config.task in ("classify", "tag") and len(labels) < 2:
        raise UserError(
            f"the training data has {len(labels)} different labels; to learn to tell them apart takes at least 2"
        )
    return labels


def keep_tokenizers(config: DataConfig, train: Any, old: Tokenizers) -> Tokenizers:
    """The tokenizers of a run that training begins with, larger by new tokens where the config asks for them. Its labels
    stay if the new ones are among them."""
    labels = labels_of(config, train)
    labels = old.labels if set(labels) <= set(old.labels) else labels
    if not config.extend_vocabulary:
        return Tokenizers(old.target, old.source, labels)

    def larger(tokenizer: Tokenizer, sides: tuple[int, ...]) -> Extended:
        return extend(tokenizer, texts_of(config, train, sides), config.extend_vocabulary)

    if not old.shared:
        target, source = larger(old.target, (1,)), larger(old.source, (0,))
        return Tokenizers(target.tokenizer, source.tokenizer, labels, Extension(target.parts, source.parts))
    joint = larger(old.target, (0, 1) if config.task == "pairs" else (0,))
    return Tokenizers(joint.tokenizer, joint.tokenizer, labels, Extension(joint.parts, joint.parts))


def learn_tokenizers(config: DataConfig, train: Any) -> Tokenizers:
    """The tokenizers, from the training split alone, and the labels that occur in it."""

    def learn(*sides: int) -> Tokenizer:
        if config.tokenizer_file is not None:
            return load_tokenizer(config.tokenizer_file)
        return Tokenizer.train(config.tokenizer, texts_of(config, train, sides), config.vocab_size, config.lowercase)

    labels = labels_of(config, train)
    if config.task == "pairs" and config.separate_vocabularies:
        return Tokenizers(learn(1), learn(0), labels)
    joint = learn(0, 1) if config.task == "pairs" else learn(0)
    return Tokenizers(joint, joint, labels)


Encoded = tuple[Int[np.ndarray, " m"], Int[np.ndarray, " n"]]
"""Sequences end to end, and the length of each."""


def encode_pairs(
    config: DataConfig, pairs: Iterable[tuple[str, str]], tokenizers: Tokenizers, to_learn: bool, seed: int
) -> Iterator[dict[str, Encoded]]:
    """Source and target; where both directions are learned, then the same the other way round."""
    times = config.segmentations if to_learn and config.bpe_dropout else 1
    most = ENCODED_AT_ONCE if times == 1 else max(1, CUT_AT_ONCE // times)

    def encoder(tokenizer: Tokenizer, side: int) -> Callable[[Sequence[str]], Encoded]:
        if not (to_learn and config.bpe_dropout):
            return tokenizer.corpus_encoder()
        sampler = tokenizer.bpe_dropout(config.bpe_dropout, seed=f"{seed} {('source', 'target')[side]}")
        return lambda texts: sampler.encode_batch(texts, times)

    for source, target in ((0, 1), (1, 0)) if to_learn and config.both_ways else ((0, 1),):
        encode = encoder(tokenizers.source, source), encoder(tokenizers.target, target)
        for group in chunks(pairs, lambda pair: len(pair[0]) + len(pair[1]), most):
            yield {
                "source": encode[0]([pair[source] for pair in group]),
                "target": encode[1]([pair[target] for pair in group]),
            }


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
            f"the label {label!r} in the {where} data never occurs in training, which knows {', '.join(sorted(label_ids)[:12])}"
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
    sizes: dict[str, int | None] = dict.fromkeys(file_names(config), tokenizers.target.vocab_size)
    batches: Iterable[dict[str, Encoded]]
    match config.task:
        case "pairs":
            sizes["source"] = tokenizers.source.vocab_size
            batches = encode_pairs(config, examples, tokenizers, to_learn, seed)
        case "text":
            documents = encode_text(tokenizers.target, examples, begin=config.begin_documents)
            batches = ({"text": encoded} for encoded in documents)
        case task:
            sizes["labels"] = None
            encode = encode_classes if task == "classify" else encode_tagged
            batches = encode(tokenizers.target, examples, label_ids, split_name)
    with ExitStack() as open_writers:
        writers = {
            name: open_writers.enter_context(TokenWriter(folder / f"{split_name}.{name}", size))
            for name, size in sizes.items()
        }
        for batch in batches:
            for name, encoded in batch.items():
                writers[name].add(*encoded)
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


def read_once(
    config: DataConfig, folder: Path, given: Any = None, characters: int | None = None
) -> tuple[DataReport, tuple[Split, ...]]:
    """The data, read once from its files (or from `given`, in memory) and left in `folder` as text, split by split. Beside the
    report: the splits that were taken out of the training data."""
    context = ReadContext(keep_facts=True)
    reader = DataReader(config, given, context=context)
    if config.on_error == "skip":
        context.complain = reader.skipped
    cut_short, kept = False, Counter[str]()  # characters, by split
    with StoreWriter(folder) as store, closing(reader.__iter__()) as examples:
        for split, example, times in examples:
            if characters is not None:
                if kept[split] >= characters:
                    cut_short = cut_short or split == "train"
                    if cut_short and store.splits["val"].examples:
                        break
                    continue
                kept[split] += sum(map(len, texts_in(config, example)))
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
        cut_short=cut_short,
        files=[replace(file, path=os.path.abspath(file.path)) for file in context.files],
    )
    return report, reader.split_off


@dataclass(frozen=True)
class WithoutHeldoutTargets:
    """Training pairs whose targets are not held out: what both directions may be learned from."""

    pairs: Any
    heldout_targets: set[int]

    def __iter__(self) -> Iterator[Any]:
        for pair in self.pairs:
            if hash_of(normalized(pair[1])) not in self.heldout_targets:
                yield pair


def training_examples(config: DataConfig, data: Path, taken_out: Iterable[Split]) -> Any:
    """What is learned from, as it lies in a run's data folder: a re-iterable. Where both directions are learned, without pairs
    whose target is one of the splits that were taken out."""
    train = run_examples(config, "train", data, repeated=True)
    if not config.both_ways:
        return train
    held_out = (run_examples(config, split, data) for split in taken_out if split in stored_splits(data))
    return WithoutHeldoutTargets(train, {hash_of(normalized(pair[1])) for pairs in held_out for pair in pairs})


def from_cache(recipe: Recipe, folder: Path, files: Iterable[FileFacts]) -> Tokenizers:
    """The rest of a preparation of which the cache had most: when the files were last changed, and what follows from the seed."""
    config, data = recipe.data, folder / "data"
    modified = {os.path.abspath(file.path): file.modified for file in files}
    report = DataReport.read(data)
    assert report is not None
    replace(report, files=[replace(file, modified=modified[file.path]) for file in report.files]).write(data)
    tokenizers = Tokenizers.load(folder)
    if config.bpe_dropout:
        named = [split for split in SPLITS if config.files(split)]
        train = training_examples(config, data, split_off(config, named))
        encode_split(config, "train", train, tokenizers, data, to_learn=True, seed=recipe.train.seed)
    say("this data was prepared before and is taken from the cache (see `glassformer data cache`)")
    return tokenizers


def prepare(
    recipe: Recipe, folder: Path, characters: int | None = None, *, given: Any = None, old: Tokenizers | None = None
) -> Tokenizers:
    """Leaves in `folder` the tokenizers, and in `folder/data` the examples of every split as text, token files of train and
    val, and a report. `given`: data in memory instead of the files the recipe names. With `characters` only so much of each
    split is kept, for a look at what training would be like. `old`: the tokenizers of a run to begin with, in the place of
    learning some. Data that was prepared before is taken from the cache (data/cache.py)."""
    config, data = recipe.data, folder / "data"
    in_cache = characters is None and given is None and old is None and cache.entries_folder() is not None
    files = cache.read_files(config) if in_cache else None
    key = None if files is None else cache.key_of(config, files)
    if key is not None and files is not None and cache.fetch(key, folder):
        return from_cache(recipe, folder, files)
    report, taken_out = read_once(config, data, given, characters)
    train = training_examples(config, data, taken_out)
    if config.both_ways:
        left = sum(1 for _ in train)
        report = replace(report, left_out=report.left_out + report.learned - left, learned=left)
        if not left:
            raise UserError("nothing is left to learn both ways once all pairs with a held-out side are left out")
    report.write(data)
    tokenizers = learn_tokenizers(config, train) if old is None else keep_tokenizers(config, train, old)
    tokenizers.save(folder)
    encode_split(config, "train", train, tokenizers, data, to_learn=True, seed=recipe.train.seed)
    encode_split(config, "val", run_examples(config, "val", data), tokenizers, data)
    if key is not None and files is not None:
        about = config.builtin or ", ".join(os.path.basename(file.path) for file in files)
        drawn = [f"data/train.{name}.tokens" for name in file_names(config)] if config.bpe_dropout else []
        cache.keep(key, folder, f"{about} ({report.learned:,} examples)", without=drawn)
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
