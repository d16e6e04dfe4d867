"""From the data a recipe names to what a run needs of it: every file is read once, streaming, and left in the run's own folder
as text; tokenizers are learned on the training split alone; train and val are encoded to token files.

Training, validation, evaluation and the studies read those files and nothing else, so a run can be moved, and goes on
whatever has happened to the original files since. Nothing here holds a corpus in memory.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from glassformer.config import DataConfig, Recipe
from glassformer.data import cache
from glassformer.data.doctor.facts import SplitFacts, remark_in_words
from glassformer.data.encoding import encode_split, open_files
from glassformer.data.files import ReadContext
from glassformer.data.origins import named_files
from glassformer.data.readers import FEATURE
from glassformer.data.report import DataReport, in_words
from glassformer.data.sources import DataReader, why_empty
from glassformer.data.splits import SPLITS, hash_of, look_like_texts, normalized
from glassformer.data.store import StoreWriter, run_examples, stored_splits
from glassformer.data.transforms import Augmented
from glassformer.errors import UserError
from glassformer.files.user_data import FileFacts
from glassformer.language import _
from glassformer.screen import Progress, say, watched
from glassformer.text.imported import load_tokenizer
from glassformer.text.languages import lowercase
from glassformer.text.tokenizer import Tokenizer
from glassformer.text.tokenizers import Tokenizers, extend

TARGETS_TRIED = 100_000  # of each split, whether the tokenizer can write them
BEFORE = 20  # characters that are shown before the first that it cannot
TOKENIZER_CHARACTERS = 50_000_000  # a tokenizer learns from at most so much text; more changes little and costs memory


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
                "there are {n_labels:,} different labels in {total:,} training examples: are labels and texts exchanged? The "
                "label comes first, then a tab and the text",
                len(labels),
                total,
            )
    elif config.task == "tag":
        labels = sorted({tag for _, tags in train for tag in tags})
    if config.task in ("classify", "tag") and len(labels) < 2:
        raise UserError(
            "the training data has {n_labels} different labels; to learn to tell them apart takes at least 2",
            len(labels),
        )
    return labels


def keep_tokenizers(config: DataConfig, train: Any, old: Tokenizers) -> Tokenizers:
    """The tokenizers of a run that training begins with, larger by new tokens where the config asks for them. Its labels
    stay if the new ones are among them."""
    labels = labels_of(config, train)
    labels = old.labels if set(labels) <= set(old.labels) else labels
    target, source = old.target, old.source
    if config.extend_vocabulary:
        sides = (1,) if not old.shared else (0, 1) if config.task == "pairs" else (0,)
        target = extend(old.target, texts_of(config, train, sides), config.extend_vocabulary)
        source = target if old.shared else extend(old.source, texts_of(config, train), config.extend_vocabulary)
    added = target.vocab_size - old.target.vocab_size, source.vocab_size - old.source.vocab_size
    return Tokenizers(target, source, labels, added)


def learn_tokenizers(config: DataConfig, train: Any, count: int) -> Tokenizers:
    """The tokenizers, from the training split alone (of `count` examples), and the labels that occur in it."""

    def learn(*sides: int) -> Tokenizer:
        if config.tokenizer_file is not None:
            return load_tokenizer(config.tokenizer_file)
        texts = texts_of(config, watched(train, "learning the vocabulary from", count, every=1000), sides)
        kind = config.tokenizer if 0 in sides or config.target_tokenizer is None else config.target_tokenizer
        pattern, decompose = (config.pattern, config.decompose) if kind == "char" else ("", False)
        if kind == "char" and config.features_field is not None and 0 in sides:
            pattern = f"{FEATURE}|{pattern}".removesuffix("|")
        return Tokenizer.train(kind, texts, config.vocab_size, config.lowercase, decompose, pattern)

    labels = labels_of(config, train)
    if config.augment:
        train = Augmented(train, config.augment, seed=0)  # the vocabulary is the same whatever the seed of the training
    if config.task == "pairs" and config.two_vocabularies:
        return Tokenizers(learn(1), learn(0), labels)
    joint = learn(0, 1) if config.task == "pairs" else learn(0)
    return Tokenizers(joint, joint, labels)


def read_once(config: DataConfig, folder: Path, given: Any = None, characters: int | None = None) -> DataReport:
    """The data, read once from its files (or from `given`, in memory) and left in `folder` as text, split by split."""
    context = ReadContext(keep_facts=True)
    reader = DataReader(config, given, context=context)
    if config.on_error == "skip":
        context.complain = reader.skipped
    remarked = SplitFacts("train")
    context.remark = remarked.context().remark
    cut_short, kept = False, Counter[str]()  # characters, by split
    files = named_files(config) if given is None else []
    size = sum(file.stat().st_size for file in files if file.is_file())
    with StoreWriter(folder) as store, closing(reader.__iter__()) as examples, Progress("reading", size) as display:
        for count, (split, example, times) in enumerate(examples):
            if count % 1000 == 0:
                display.update(min(size, context.position()), f"{count:,} examples")
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
    total = sum(writer.examples for writer in splits.values())
    return DataReport(
        examples={split: writer.examples for split, writer in splits.items() if writer.examples},
        learned=splits["train"].learned,
        empty=dict(reader.empty),
        skipped=reader.skipped.count,
        first_skipped=reader.skipped.first,
        left_out=reader.left_out,
        remarks=[remark_in_words(config, seen, total) for seen in remarked.remarks.values()],
        in_train=dict(reader.in_train),
        splits=in_words(reader.split_off, config.val_fraction, config.task, config.builtin),
        split_off=reader.split_off,
        cut_short=cut_short,
        files=[replace(file, path=os.path.abspath(file.path)) for file in context.files],
    )


@dataclass(frozen=True)
class WithoutHeldoutTargets:
    """Training pairs whose targets are not held out: what both directions may be learned from."""

    pairs: Any
    heldout_targets: set[int]

    def __iter__(self) -> Iterator[Any]:
        for pair in self.pairs:
            if hash_of(normalized(pair[1])) not in self.heldout_targets:
                yield pair


def training_examples(config: DataConfig, data: Path, report: DataReport) -> Any:
    """What is learned from, as it lies in a run's data folder: a re-iterable. Where both directions are learned, without pairs
    whose target stands in a split that was taken out of the training data, too."""
    train = run_examples(config, "train", data, repeated=True)
    if not config.both_ways:
        return train
    taken_out = (split for split in SPLITS if split in report.split_off and split in report.examples)
    held_out = (run_examples(config, split, data) for split in taken_out)
    return WithoutHeldoutTargets(train, {hash_of(normalized(pair[1])) for pairs in held_out for pair in pairs})


def encode_training(config: DataConfig, train: Any, tokenizers: Tokenizers, data: Path, count: int) -> None:
    """Writes the token files that are learned from."""
    total = count * (1 + config.both_ways) * config.copies
    encode_split(config, "train", train, tokenizers, data, to_learn=True, total=total)


def lost_targets(config: DataConfig, data: Path, report: DataReport, tokenizers: Tokenizers) -> DataReport:
    """The report with the number of targets, split by split, that are others once they are encoded and decoded, and the first of
    them: what no training can put right. Byte-level pieces write every text."""
    tokenizer = tokenizers.target
    if config.task != "pairs" or (tokenizer.kind in ("bpe", "unigram") and not tokenizer.lowercase):
        return report
    lost, example = Counter[str](), list(report.lost_example)
    for split in (split for split in SPLITS if split in report.examples):
        targets = (pair[1] for pair in islice(run_examples(config, split, data), TARGETS_TRIED))
        while group := list(islice(targets, 1000)):
            for target, ids in zip(group, tokenizer.encode_batch(group), strict=True):
                read = lowercase(target) if tokenizer.lowercase else target
                if (written := tokenizer.decode(ids)) != read:
                    lost[split] += 1
                    same = next((n for n, (a, b) in enumerate(zip(read, written)) if a != b), len(written))
                    begin = max(0, same - BEFORE)
                    example = example or [f"{'…' * (begin > 0)}{text[begin:]}" for text in (read, written)]
    return replace(report, lost=dict(lost), lost_example=example)


def from_cache(config: DataConfig, folder: Path, files: Iterable[FileFacts]) -> Tokenizers:
    """The rest of a preparation that the cache had: where the files are and when they were last changed."""
    data = folder / "data"
    report = DataReport.read(data)
    for split in ("train", "val"):
        open_files(config, split, data)
    if report is None or not {"train", "val"} <= {*stored_splits(data)}:
        raise UserError("{folder} holds no prepared data", data)
    given = {(os.path.abspath(file.path), file.sha256): file for file in files}
    by_content = {file.sha256: file for file in files}
    read = [given.get((file.path, file.sha256)) or by_content[file.sha256] for file in report.files]
    replace(report, files=[replace(file, path=os.path.abspath(file.path)) for file in read]).write(data)
    tokenizers = Tokenizers.load(folder)
    say(_("this data was prepared before and is taken from the cache (see `glassformer data cache`)"))
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
    if key is not None and files is not None:
        kept = cache.fetch(key, folder, lambda: from_cache(config, folder, files))
        if kept is not None:
            return kept
    report = read_once(config, data, given, characters)
    train = training_examples(config, data, report)
    if config.both_ways:
        left = sum(1 for _ in train)
        report = replace(report, left_out=report.left_out + report.learned - left, learned=left)
        if not left:
            raise UserError("nothing is left to learn both ways once all pairs with a held-out side are left out")
    report.write(data)
    tokenizers = learn_tokenizers(config, train, report.learned) if old is None else keep_tokenizers(config, train, old)
    tokenizers.save(folder)
    lost_targets(config, data, report, tokenizers).write(data)
    encode_training(config, train, tokenizers, data, report.learned)
    encode_split(config, "val", run_examples(config, "val", data), tokenizers, data)
    read = {(file.path, file.sha256) for file in report.files}
    if key is not None and files is not None and read <= {(os.path.abspath(f.path), f.sha256) for f in files}:
        about = config.builtin or ", ".join(os.path.basename(file.path) for file in files)
        cache.keep(key, cache.made_in(folder), f"{about} ({report.learned:,} examples)")
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
