"""A recipe for files that come without one: what they hold says which model learns from them, and their size how large it is and
for how long.

Nothing clever, to be seen and then changed (`glassformer init`). Of pairs a few thousand are looked at. The vocabulary
grows with their number, from three thousand pieces at 30,000 pairs to 8,000 at a million, and by the characters of a script
that has many; width and depth grow and dropout falls in a few stages (first_recipe.toml). For a GPU steps are larger and each
batch is read twice (R-Drop), for which a CPU has no time. Single words (spelling to sound, inflection) are learned by the
character, as Wu, Cotterell and Hulden do (2021), and nothing of them is changed at random. What is chosen gives way to what a
person says. docs/decisions.md says what was measured.
"""

from __future__ import annotations

import copy
import functools
import itertools
import math
import re
import tomllib
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from glassformer.config import DataConfig, DecodeConfig, ModelConfig, Recipe, TrainConfig
from glassformer.config.fields import coerce
from glassformer.config.recipe import apply_overrides
from glassformer.data.doctor.roles import arrange, fields_in_words
from glassformer.data.sources import first_rows
from glassformer.data.splits import SPLITS
from glassformer.errors import ConfigError
from glassformer.language import _
from glassformer.text.languages import is_han

EPOCHS, FEWEST_STEPS, MOST_STEPS = 20, 1000, 50_000  # of text and labels; of pairs see first_recipe.toml
BYTES_A_TOKEN = 4  # of text in pieces of words, roughly
LOOKED_AT = 5000  # pairs; of more the number follows from the size of the file
COMMON = 5  # a character that occurs so often among them has a piece of its own
FEWEST_PIECES, MOST_PIECES = 1000, 32_000
PIECES = ((5_000, 3000), (30_000, 3000), (1_000_000, 8000))  # pairs, and pieces of words for so many
LONGEST_WORD = 20  # letters; a Chinese character counts as four, since a sentence of them has no blanks either
TAG = re.compile(r"[;=|<>]")  # in a part of a source that is no word but a feature of it, such as V;PST
PHONEME = 2.0  # characters of a target's symbols, on average, where it is the sounds of a word
# Unicode's categories of what is neither a letter nor a sentence's punctuation; tones are modifiers, and none of them
OF_SIGNS = ("Sm", "Sc", "So", "Nd", "Pc", "Ps", "Pe")
SIGNS = 0.06  # the share of signs and digits in targets that are no sentences
UNBROKEN = 1.5  # words of a target, on average, where blanks part nothing
KNOWN = 0.99  # the share of words that are frequent ones, where a formal language has no others
HANGUL = re.compile("[가-힣]")
LONGEST_BLOCK = 1024
MOST_EPOCHS = 1000
FOR_SURE = 100  # epochs; beyond so many a training ends when it gets no better (`train` warns of 200 without that)
WARMUP, VALIDATIONS = 1 / 5, 4  # the largest share of the steps, and the fewest times there is something to choose from
AVERAGED = 1 / 5  # the largest share of the steps over which the weights are averaged: the first ones are no model yet
FEWEST_TOKENS = 512  # a step, of pairs so few that an epoch would have less than four steps
TOKENS_A_PAIR = 8  # of a target, in what the sizes were measured on; pairs of fewer count as fewer
OF_MUON = ("optimizer", "learning_rate", "warmup", "min_rate", "weight_decay", "ema")  # chosen together
SHAPE = ("n_layer", "n_embd", "dropout")  # of a model, as it is shown
FIELD_SETTINGS = ("source_field", "target_field", "text_field", "label_field", "features_field")
WHAT = {
    "pairs": _("an encoder-decoder, since it holds pairs"),
    "text": _("a GPT, since it holds text"),
    "classify": _("a BERT that classifies"),
    "tag": _("a BERT that tags words"),
}


@functools.cache
def chosen_by_size() -> dict[str, Any]:
    """What is chosen for pairs, single words and texts, as first_recipe.toml has it."""
    return tomllib.loads(Path(__file__).with_name("first_recipe.toml").read_text(encoding="utf-8"))


def size_for(pairs: float, gpu: bool, rows: str) -> Mapping[str, Any]:
    """What is chosen for so many `pairs` (or `words`, as `rows` says), with a GPU or without one."""
    sizes = chosen_by_size()[rows]
    return next(size for size in sizes if pairs <= size["most"] and size.get("gpu", gpu) == gpu)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class FirstRecipe:
    """The tables of a recipe, its name, and what was chosen, in words."""

    values: dict[str, Any]
    name: str
    chosen: str


def size_of_files(path: Path) -> int:
    """Bytes of a file, or of all that is in a folder; what is compressed has some three times as many."""
    if path.is_dir():
        return sum(size_of_files(file) for file in path.rglob("*") if file.is_file())
    return path.stat().st_size * (3 if path.suffix == ".gz" else 1)


@dataclass(frozen=True)
class PairCount:
    """About how many pairs files hold, of how many bytes each; how many characters are common in them; the mean length of a
    target in characters and in what stands between blanks, the longest side, and how many times as long as its source a target
    can be; and what the pairs are.

    `single_words`: most sources are words, with their features perhaps. `formal`: a good part of what is written is neither
    letters nor punctuation (formulas, code, logical forms). `few_words`: nearly all that stands between blanks is frequent, so
    that words are the tokens as they are. `hangul`: the sources are Korean, whose syllables are letters put together.
    """

    pairs: int
    bytes_each: float
    characters: int
    target_length: float = 40.0
    target_words: float = 8.0
    longest: int = 0
    ratio: float = 1.0
    single_words: bool = False
    formal: bool = False
    few_words: bool = False
    hangul: bool = False

    @property
    def tokenizer(self) -> str:
        """The kind of tokenizer that suits them."""
        if self.single_words:
            return "char"
        if self.formal and self.target_words < UNBROKEN:
            return "char"
        return "word" if self.formal and self.few_words else "bpe"

    def target_tokens(self, tokenizer: str) -> float:
        """Tokens of a target, roughly."""
        if tokenizer in ("char", "word"):
            return (self.target_length if tokenizer == "char" else self.target_words) + 1
        return max(1.0, self.bytes_each / BYTES_A_TOKEN / 2)


def is_word(source: str, target: str) -> bool:
    """Whether a source is one word of letters, with its features perhaps, or a few syllables whose target is their sounds, parted
    by blanks.

    >>> is_word("abîme", "a b i m"), is_word("ba mẹ", "ɓ aː ˧˧ m ɛ"), is_word("<V> <PST> se", "lut"), is_word("你好。", "Hello.")
    (True, True, True, False)
    """
    words = [part for part in source.split() if not TAG.search(part)]
    if len(words) > 1 and not are_sounds(target):
        return False
    letters = "".join(words)
    long = sum(4 if is_han(letter) else 1 for letter in letters) > LONGEST_WORD
    is_spelling = all(letter in "'’-.·" or unicodedata.category(letter)[0] in "LM" for letter in letters)
    return len(letters) > 0 and not long and is_spelling


def are_sounds(target: str) -> bool:
    """Whether a target is several short symbols, parted by blanks.

    >>> are_sounds("AE B IY"), are_sounds("abimes")
    (True, False)
    """
    symbols = target.split()
    return len(symbols) > 1 and fmean(map(len, symbols)) <= PHONEME


def length_ratio(source: Sequence[Any], target: Sequence[Any]) -> float:
    """How many times as long as the source a target is, beyond the few tokens that every answer may have.

    >>> length_ratio("jump twice".split(), ["I_JUMP"] * 30), length_ratio("yes", "jawohl")
    (5.0, 0.0)
    """
    return max(0.0, (len(target) - DecodeConfig.max_extra) / max(1, len(source)))


def share_of_signs(texts: Sequence[str]) -> float:
    """The share of characters, blanks apart, that are neither letters nor what stands between the words of a sentence.

    >>> share_of_signs(["CC(=O)O", "I_WALK"]) > 0.2, share_of_signs(["Well, it's 9 o'clock in the evening."]) < 0.06
    (True, True)
    """
    letters = Counter(letter for text in texts for letter in text if not letter.isspace())
    signs = (count for letter, count in letters.items() if unicodedata.category(letter) in OF_SIGNS or letter in "*#/;")
    return sum(signs) / max(1, letters.total())


def count_pairs(config: DataConfig) -> PairCount:
    """By the first pairs, and the size of the files where there are more. What cannot be read is left to training."""
    examples = [row.example for row in first_rows(config, "train", LOOKED_AT)]
    sources, targets = [source for source, _ in examples], [target for _, target in examples]
    characters = Counter(itertools.chain.from_iterable(itertools.chain(sources, targets)))
    words = Counter(itertools.chain.from_iterable(text.split() for text in itertools.chain(sources, targets)))
    bytes_read = sum(len(f"{source}{target}".encode("utf-8", "replace")) + 2 for source, target in examples)
    each = bytes_read / max(1, len(examples))
    named = [file for file in (config.train, config.train_target) if isinstance(file, str)]
    size = sum(size_of_files(Path(file)) for file in named)
    most = 0.8 * len(examples)
    formal = share_of_signs(targets) > SIGNS
    few_words = sum(count for count in words.values() if count >= COMMON) > KNOWN * words.total()
    cut: Callable[[str], Sequence[str]] = str.split if few_words else list
    return PairCount(
        pairs=len(examples) if len(examples) < LOOKED_AT else max(LOOKED_AT, int(size / each)),
        bytes_each=each,
        characters=sum(count >= COMMON for count in characters.values()),
        target_length=sum(map(len, targets)) / max(1, len(targets)),
        target_words=sum(len(target.split()) for target in targets) / max(1, len(targets)),
        longest=max(map(len, itertools.chain(sources, targets)), default=0),
        ratio=max((length_ratio(cut(source), cut(target)) for source, target in examples), default=1.0),
        single_words=not formal and sum(itertools.starmap(is_word, examples)) > most,
        formal=formal,
        few_words=few_words,
        hangul=sum(HANGUL.search(source) is not None for source in sources) > most,
    )


def vocabulary_for(counted: PairCount) -> int:
    """Pieces of words, for so many pairs and characters: a power of the number of pairs between those of `PIECES` and beyond.

    >>> [vocabulary_for(PairCount(pairs, 80, 100)) for pairs in (1_000, 5_000, 30_000, 1_000_000)]
    [1100, 3100, 3100, 8100]
    """
    if counted.pairs < PIECES[0][0]:
        by_pairs = PIECES[0][1] * counted.pairs / PIECES[0][0]
    else:
        (few, low), (many, high) = PIECES[:2] if counted.pairs < PIECES[1][0] else PIECES[1:]
        by_pairs = low * (counted.pairs / few) ** (math.log(high / low) / math.log(many / few))
    return round(min(MOST_PIECES, max(FEWEST_PIECES, by_pairs) + counted.characters) / 100) * 100


def recipe_for_pairs(counted: PairCount, gpu: bool, given: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """What a recipe for pairs says besides its files. `given`: settings by their whole names, as a person wrote them."""
    tokenizer = given.get("data.tokenizer", counted.tokenizer)
    tokens = counted.target_tokens(tokenizer)
    if counted.single_words and tokenizer == "char":
        size = size_for(counted.pairs, gpu, "words")
        together = min(size["batch_tokens"], max(32, counted.pairs // 10))
        data: dict[str, Any] = {"tokenizer": "char", "batch_tokens": math.ceil(together * tokens / 8) * 8}
        data |= {"decompose": True} if counted.hangul else {}
    else:
        pairs = counted.pairs * min(1.0, tokens / TOKENS_A_PAIR)
        size = size_for(pairs, gpu, "pairs")
        quarter = int(counted.pairs * tokens / 4) // 64 * 64
        batch_tokens = min(size["batch_tokens"], max(FEWEST_TOKENS, quarter))
        data = {"vocab_size": vocabulary_for(counted), "batch_tokens": batch_tokens, **size["data"]}
        data |= {"tokenizer": tokenizer} if tokenizer != "bpe" else {}
        if tokenizer != "bpe" or "data.tokenizer_file" in given:
            data.pop("bpe_dropout", None)
        if tokenizer in ("char", "word"):
            data["vocab_size"] = MOST_PIECES
        if counted.single_words or counted.formal:
            data.pop("augment", None)
    epoch = max(1.0, counted.pairs * tokens / data["batch_tokens"])
    train = {"label_smoothing": 0.1, **size["train"]}
    train |= {"metric": "exact_match"} if counted.formal else {}
    if "train.optimizer" in given:
        train = {key: value for key, value in train.items() if key not in OF_MUON}
    steps = within(size["epochs"] * epoch, epoch, size["steps"])
    train |= schedule_for(steps, epoch, given, train.pop("warmup", None))
    if "ema" in train:
        train["ema"] = min(train["ema"], round(1 - 1 / max(2.0, AVERAGED * train["steps"]), 4))
    model = dict(size["model"])
    if tokenizer == "char" and counted.longest >= ModelConfig.block_size:
        model["block_size"] = min(LONGEST_BLOCK, 2 ** math.ceil(math.log2(counted.longest + 2)))
    decode: dict[str, Any] = {"beam": 5, "alpha": 1.0}
    if (counted.formal or counted.single_words) and counted.ratio > DecodeConfig.max_ratio:
        decode["max_ratio"] = float(math.ceil(counted.ratio))
    return {"model": model, "data": data, "train": train, "decode": decode}


def within(steps: float, epoch: float, fewest: int = FEWEST_STEPS) -> int:
    """Whole hundreds of steps, neither very few nor very many, nor very many epochs of so many steps."""
    return max(100, int(min(MOST_STEPS, MOST_EPOCHS * epoch, max(fewest, steps))) // 100 * 100)


def schedule_for(steps: int, epoch: float, given: Mapping[str, str], warmup: int | None = None) -> dict[str, Any]:
    """What follows from the number of steps, chosen or given: a warm-up that is a small part of them, several validations, and
    after very many epochs an end where it gets no better. `epoch`: its steps, roughly."""
    steps = coerce(given.get("train.steps", steps), int, "train.steps")
    every = coerce(given.get("train.validate_every", TrainConfig.validate_every), int, "train.validate_every")
    if steps < VALIDATIONS * every and "train.validate_every" not in given:
        every = max(1, steps // VALIDATIONS)
    schedule = {
        "steps": steps,
        "warmup": min(warmup or TrainConfig.warmup, int(steps * WARMUP)),
        "validate_every": every,
    }
    if steps > FOR_SURE * epoch:
        schedule["patience"] = max(5, steps // every // 4)
    defaults = {"warmup": TrainConfig.warmup, "validate_every": TrainConfig.validate_every}
    return {key: value for key, value in schedule.items() if value != defaults.get(key)}


def give_way(values: dict[str, Any], changes: Sequence[str]) -> dict[str, Any]:
    """The chosen settings without the one that contradicts a person's changes, if there is one; what is wrong with the changes
    themselves is left for who applies them."""
    chosen = [(part, key) for part, settings in values.items() for key in settings]
    for part, key in (("", ""), *chosen):
        left = copy.deepcopy(values)
        left.get(part, {}).pop(key, None)
        changed = copy.deepcopy(left)
        try:
            apply_overrides(changed, changes)
            Recipe.from_dict(changed)
        except ConfigError:
            continue
        return left
    return values


def settings_in(changes: Sequence[str]) -> dict[str, str]:
    """The settings of `key.sub=value` changes, by their whole names."""
    return {key.strip(): value.strip() for key, _equals, value in (change.partition("=") for change in changes)}


def recipe_for(config: DataConfig, changes: Sequence[str] = (), *, device: str = "auto") -> FirstRecipe:
    """The recipe for files that are arranged already, as it is with a person's changes left out."""
    given = settings_in(changes)
    device = given.get("train.device", device)
    named = {f"{split}{side}": getattr(config, f"{split}{side}") for split in SPLITS for side in ("", "_target")}
    data: dict[str, Any] = {"task": config.task} | {key: value for key, value in named.items() if value is not None}
    data |= {"format": config.format} if config.format != "auto" else {}
    first = Path(str(config.train or config.val or config.test))
    name = first.name.removesuffix(".gz").partition(".")[0] or "mine"
    what = WHAT[config.task]
    if config.task == "pairs":
        gpu = device.startswith("cuda") or (device == "auto" and torch.cuda.is_available())
        counted = count_pairs(config)
        values = recipe_for_pairs(counted, gpu, given)
        values["data"] = data | values["data"]
        if counted.single_words and values["data"].get("tokenizer") == "char":
            what = _("{model}; single words: by the character, none changed at random, best by exact match", what)
        elif counted.formal:
            what = _("{model}; formulas or code: nothing changed at random, best by exact match", what)
        values = give_way(values, changes)
        return FirstRecipe(values, name, pairs_in_words(first.name, what, counted.pairs, values, given))
    batch_tokens = 2048
    epoch = max(1.0, size_of_files(first) / BYTES_A_TOKEN / batch_tokens)
    train = schedule_for(within(EPOCHS * epoch, epoch), epoch, given)
    values = {
        "model": dict(chosen_by_size()["models"][config.task]),
        "data": data | {"batch_tokens": batch_tokens},
        "train": train,
    }
    if config.task == "text":
        values["decode"] = {"temperature": 0.8, "top_k": 40}
    chosen = _("{first}: {what}; {steps:,} steps", first.name, what, train["steps"])
    return FirstRecipe(give_way(values, changes), name, chosen)


def pairs_in_words(
    first: str, what: str, pairs: int, values: Mapping[str, Mapping[str, Any]], given: Mapping[str, str]
) -> str:
    """What was chosen for pairs, or given."""
    model = dict(values["model"]) | {key: given[f"model.{key}"] for key in SHAPE if f"model.{key}" in given}
    tokenizer = given.get("data.tokenizer", values["data"].get("tokenizer", "bpe"))
    pieces = given.get("data.vocab_size", f"{values['data'].get('vocab_size', DataConfig.vocab_size):,}")
    return _(
        "{first}: {what}; about {pairs:,} pairs: {layers}+{layers} layers of {width}, {tokens}, dropout {dropout}, "
        "{steps:,} steps",
        first=first,
        what=what,
        pairs=pairs,
        layers=model["n_layer"],
        width=model["n_embd"],
        tokens=_("{pieces} pieces of words", pieces) if tokenizer in ("bpe", "unigram") else f"tokenizer {tokenizer}",
        dropout=model["dropout"],
        steps=values["train"]["steps"],
    )


def first_recipe(
    files: Sequence[Path],
    task: str | None = None,
    changes: Sequence[str] = (),
    *,
    fields: Mapping[str, Any] | None = None,
    device: str = "auto",
) -> FirstRecipe:
    """The recipe for train, val and test (a file each, or two aligned ones); `task` and `fields` (the settings that say how they
    are read) where they are not to be guessed, `device` as train.device has it. It has nothing that contradicts `changes`
    (`key.sub=value`), which are not in it yet."""
    config = arrange(files, task or settings_in(changes).get("data.task"), fields or {})
    made = recipe_for(config, changes, device=device)
    named = {key: getattr(config, key) for key in FIELD_SETTINGS}
    data = made.values["data"] | {key: value for key, value in named.items() if value != getattr(DataConfig, key)}
    columns = fields_in_words(config)
    chosen = _("{columns}; {chosen}", columns, made.chosen) if columns else made.chosen
    return replace(made, values=made.values | {"data": data}, chosen=chosen)
