"""The settings of the data: where it comes from, how it is split, cut into tokens and laid into batches."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar, Literal

from glassformer.config.fields import check, setting
from glassformer.errors import ConfigError
from glassformer.language import _


@dataclass(frozen=True, kw_only=True)
class DataFile:
    """One of several files that a split is made of."""

    example: ClassVar[str] = '{path = "b.tsv", weight = 2, tag = "<bt>"}'

    path: str
    target: str | None = None  # the second of two line-aligned files
    weight: float = 1.0  # how often an example of it is learned in an epoch; 0.5: every other one
    tag: str = ""  # put before each source, so that the model can tell where an example is from

    def __post_init__(self) -> None:
        if not 0 < self.weight <= 1000:
            raise ConfigError(
                "the weight of {path} must be above 0 and at most 1000, not {weight}", self.path, self.weight
            )
        if self.tag != " ".join(self.tag.split()):
            raise ConfigError(
                "the tag of {path} must not begin, end or double its blanks: {tag!r}", self.path, self.tag
            )


Files = str | tuple[DataFile, ...] | None


def is_pattern(pattern: str) -> bool:
    """Whether a text is a regular expression that never finds an empty piece; an empty one says nothing."""
    try:
        return not pattern or re.match(pattern, "") is None
    except re.error:
        return False


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """What a model is trained on: a recipe's [data]. `glassformer info --settings data` shows them all.

    >>> DataConfig(train="pairs.tsv", tokenizer="char").task
    'pairs'

    Attributes:
        task: pairs: source and target; text: lines to write on from, or to fill in; classify: a label a text; tag: a
            label a word
        builtin: dates, news, phrases, stdlib, languages, date-parts, copy, reverse, sort, in-context, treebank
        locales: dates: of these locales alone, such as ["de", "fr"]; empty: all 33
        direction: phrases: "zh-en" and its sisters
        path: the folder that relative file names start from; None: the recipe's own
        train: a file or folder, or a list of them: ["a.tsv", {path = "b.tsv", weight = 2, tag = "<bt>"}]; its format
            follows from its name, or from `format`
        val: what weights are chosen on, like train; None: taken out of train, see val_fraction
        test: what is scored in the end, like train; None: taken out of train, but of a text
        train_target: pairs in two line-aligned files: the second of them
        val_target: the second file of val
        test_target: the second file of test
        format: auto: by the name (.tsv, .csv, .json, .jsonl, .parquet, a folder of texts or of a saved data
            set; any may be .gz); tsv: columns with a tab between; lines: a line an example; text: whole files;
            datasets: a name at Hugging Face
        on_error: at a line that cannot be used: end there, or leave it out and count it
        source_field: CSV, JSON, JSONL, Parquet, datasets: the field of the source; a.b reaches into a record
        target_field: the field of the target
        source_languages: pairs: codes of the languages that are read, such as ["de"]; for `serve`
        target_language: pairs: the code of the language that is written, such as en
        features_field: pairs: a field (of a TSV: the number of a column, such as 3) whose symbols are put before the
            source: of V;PST, <V> <PST>; each is one token where the tokenizer is char
        text_field: the field of a text, or of the words to be tagged
        label_field: the field of the label, or of the words' tags
        context: pairs: so many sentences before each, of its document, are joined to both of its sides; 0: none
        document_field: context: the field that says which document a record belongs to; None: a blank line ends one
        swap: pairs: learn target to source
        both_ways: pairs with one vocabulary: learn target to source as well, with the same weights
        val_fraction: taken out of the training data where no val (or test) is given, by a hash of the source
        tokenizer: char: a character a token; word: a word a token, rare ones unknown; bpe and unigram: pieces of
            words, nothing unknown
        target_tokenizer: pairs: the kind of the target's tokenizer where it is another one: word for sounds or tags that
            stand between blanks
        pattern: char: what is one token besides single characters, a regular expression, such as "Cl|Br" in formulas
        decompose: char: letters with accents and the syllables of Hangul are taken apart, and put together in answers
        tokenizer_file: a finished tokenizer.json instead of training one
        vocab_size: at most; char and word take what occurs
        extend_vocabulary: fine-tuning: at most so many new tokens, learned from the new training data (char, word)
        separate_vocabularies: one tokenizer a side
        bpe_dropout: above 0: training text is cut into pieces with this share of BPE's merges left out; see
            segmentations
        augment: pairs: this share of the training data is changed as people paste text: small letters, typos, no full
            stop, emoji; UPPER CASE and Title Case are then read in small letters; see segmentations
        segmentations: with bpe_dropout or augment each sentence is in the training data so many times, cut or changed
            otherwise each time; 0: once, and each epoch is drawn anew while the one before it is learned from
        lowercase: all text is read and learned in lower case
        max_length: longer pairs are left out of training (and counted), longer tagged sentences read in windows;
            None: block_size
        batch_tokens: target tokens a step, over all micro-batches and devices
        layout: a sentence a row, or several; auto: padded on a CPU, packed on CUDA
        row_width: packed: the width of a row
        respect_documents: text: no block crosses a document's end
        prompt_answer: GPT on pairs: the source is the prompt, the loss is on the answer
        begin_documents: GPT on text: BOS before every document and prompt, as Llama's models have it
        close_texts: BERT: EOS behind every text, as the paper's [SEP]
        mask_fraction: BERT or encoder-decoder on text: the share of tokens that are to be guessed
        span_length: encoder-decoder on text: the mean length of the gaps it is to fill (span corruption; T5 has 3);
            None: it learns from pairs alone
        test_lengths: copy, reverse and sort: the test has rows of these lengths, shortest and longest, such as [20,
            30]; empty: as in training
        size: built-in data: how many training examples
        workers: background threads that make batches ahead; None: 2 on CUDA, else none
    """

    task: Literal["pairs", "text", "classify", "tag"] = "pairs"
    builtin: str | None = None
    locales: tuple[str, ...] = ()
    direction: str | None = None
    path: str | None = None
    train: Files = None
    val: Files = None
    test: Files = None
    train_target: str | None = None
    val_target: str | None = None
    test_target: str | None = None
    format: Literal["auto", "tsv", "lines", "csv", "examples", "json", "jsonl", "text", "parquet", "datasets"] = "auto"
    on_error: Literal["stop", "skip"] = "stop"
    source_field: str = "source"
    target_field: str = "target"
    source_languages: tuple[str, ...] = ()
    target_language: str | None = None
    features_field: str | None = None
    text_field: str = "text"
    label_field: str = "label"
    context: int = setting(0, ge=0, le=100)
    document_field: str | None = None
    swap: bool = False
    both_ways: bool = False
    val_fraction: float = setting(0.05, ge=0, lt=1)
    tokenizer: Literal["char", "word", "bpe", "unigram"] = "bpe"
    target_tokenizer: Literal["char", "word", "bpe", "unigram"] | None = None
    pattern: str = ""
    decompose: bool = False
    tokenizer_file: str | None = None
    vocab_size: int = setting(8000, ge=1, le=10**7)
    extend_vocabulary: int = setting(0, ge=0, le=10**6)
    separate_vocabularies: bool = False
    bpe_dropout: float = setting(0.0, ge=0, lt=1)
    augment: float = setting(0.0, ge=0, le=1)
    segmentations: int = setting(16, ge=0, le=10**4)
    lowercase: bool = False
    max_length: int | None = setting(None, ge=1)
    batch_tokens: int = setting(4096, ge=1, le=10**9)
    layout: Literal["auto", "padded", "packed"] = "auto"
    row_width: int = setting(128, ge=1, le=10**7)
    respect_documents: bool = False
    prompt_answer: bool = False
    begin_documents: bool = False
    close_texts: bool = False
    mask_fraction: float = setting(0.15, gt=0, lt=1)
    span_length: float | None = setting(None, ge=1, le=10**4)
    test_lengths: tuple[int, ...] = ()
    size: int | None = setting(None, ge=1, le=10**9)
    workers: int | None = setting(None, ge=0, le=1024)

    @property
    def copies(self) -> int:
        """How often each pair is in the training data, drawn otherwise each time; 1 where nothing is drawn."""
        return max(1, self.segmentations) if self.bpe_dropout or self.augment else 1

    @property
    def drawn_each_epoch(self) -> bool:
        """Is each epoch cut or changed otherwise than the one before?"""
        return self.segmentations == 0 and (self.bpe_dropout > 0 or self.augment > 0)

    @property
    def multiplied(self) -> bool:
        """Are there more examples to learn from than pairs?"""
        weighted = isinstance(self.train, tuple) and any(file.weight != 1 for file in self.train)
        return self.bpe_dropout > 0 or self.augment > 0 or self.both_ways or weighted

    @property
    def two_vocabularies(self) -> bool:
        """Whether each side of a pair has a tokenizer of its own."""
        return self.separate_vocabularies or self.target_tokenizer not in (None, self.tokenizer)

    def files(self, split: str) -> tuple[DataFile, ...]:
        """The files that the configuration names for a split; empty where it names none."""
        named, target = getattr(self, split), getattr(self, f"{split}_target")
        if isinstance(named, str):
            return (DataFile(path=named, target=target),)
        if target is not None:
            what = _("is a list") if named else _("is not set")
            raise ConfigError(
                "data.{split}_target is set but data.{split} {what}; two aligned files need both, and in a list each entry "
                'has its own: {{path = "a.en", target = "a.de"}}',
                split,
                what,
            )
        return named or ()

    def __post_init__(self) -> None:
        check(self, "data")
        if self.test_lengths and not (
            len(self.test_lengths) == 2 and 2 <= self.test_lengths[0] <= self.test_lengths[1] <= 1000
        ):
            raise ConfigError(
                "data.test_lengths is a shortest and a longest length, such as [20, 30], not {test_lengths}",
                list(self.test_lengths),
            )
        for split in ("train", "val", "test"):
            if getattr(self, split) == ():
                raise ConfigError("data.{split} is an empty list; name a file in it, or leave it out", split)
        files = {split: self.files(split) for split in ("train", "val", "test")}
        if any(file.weight != 1 for split in ("val", "test") for file in files[split]):
            raise ConfigError("a weight is for the files of data.train; what is measured on counts once")
        tagged = any(file.tag for split in files.values() for file in split)
        if tagged and (self.task not in ("pairs", "classify") or self.both_ways):
            raise ConfigError(
                "a tag is put before the source of pairs or before the text of a class; leave it out here"
            )
        if self.builtin is not None and self.train is not None:
            raise ConfigError("data.builtin and data.train are both set; a run learns from one of them")
        if self.builtin is not None and (other := [key for key in ("val", "test") if getattr(self, key) is not None]):
            raise ConfigError("data.builtin has a val and a test of its own; leave data.{key} out", other[0])
        if self.bpe_dropout and (self.task != "pairs" or self.tokenizer != "bpe"):
            raise ConfigError(
                'data.bpe_dropout is for data.task="pairs" and data.tokenizer="bpe", not {task} by {tokenizer}',
                self.task,
                self.tokenizer,
            )
        if (self.pattern or self.decompose) and "char" not in (self.tokenizer, self.target_tokenizer):
            raise ConfigError("data.pattern and data.decompose are for data.tokenizer=char; leave them out")
        if not is_pattern(self.pattern):
            raise ConfigError(
                "data.pattern is a regular expression that finds at least one character, not {pattern!r}", self.pattern
            )
        if self.target_tokenizer is not None and (self.task != "pairs" or self.tokenizer_file is not None):
            raise ConfigError("data.target_tokenizer is for pairs whose tokenizers are learned from them; leave it out")
        if self.features_field is not None and (self.task != "pairs" or self.swap or self.both_ways):
            raise ConfigError(
                "data.features_field stands before the source of pairs that are learned one way; leave it out"
            )
        if self.augment and self.task != "pairs":
            raise ConfigError('data.augment is for data.task="pairs", not {task}', self.task)
        if self.context and (self.task != "pairs" or self.builtin is not None):
            raise ConfigError("data.context joins sentences of documents in files of pairs; leave it out here")
        if self.both_ways and (self.task != "pairs" or self.two_vocabularies):
            raise ConfigError("data.both_ways is for pairs whose two sides share one vocabulary")
