"""What a run is made of, as plain frozen data: the model, its data, its training, its decoding.

A recipe is a TOML file that lists only what differs from the defaults below; `key.sub=value` on the command line changes
one thing more. A name nobody knows is an error with a suggestion, and settings that contradict each other are refused
here, in a sentence, before anything is built.

    [model]
    preset = "transformer-tiny"     # optional: start from a named size
    dropout = 0.3
    [data]
    builtin = "dates"
    [train]
    steps = 2000

This file knows nothing of tensors. Which presets exist is told to `Recipe.from_dict` by its caller.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import re
import tomllib
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

VERSION = "0.1.0"


class UserError(ValueError):
    """Something the person at the keyboard can put right; the message is one sentence that says what, where and how."""


class ConfigError(UserError):
    """A setting that cannot be."""


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    family: Literal["transformer", "gpt", "bert"] = "transformer"
    vocab_size: int = 0  # filled in from the tokenizer; of the target, where source and target differ
    source_vocab_size: int | None = None  # None: source and target share one vocabulary
    block_size: int = 256  # the longest row the model is built for
    n_layer: int = 6
    n_encoder_layer: int | None = None  # None: as many as n_layer
    n_head: int = 8
    n_kv_head: int | None = None  # fewer than n_head: grouped heads; 1: multi-query
    n_embd: int = 512
    n_hidden: int | None = None  # width of the feed-forward layer; None: 4 n_embd
    head_size: int | None = None  # None: n_embd / n_head
    value_size: int | None = None  # None: head_size
    dropout: float = 0.1
    attention_dropout: float = 0.0
    activation: Literal["relu", "gelu", "gelu_tanh", "relu2", "swiglu", "geglu"] = "relu"
    bias: bool = True
    norm: Literal["layer", "rms", "batch", "none"] = "layer"
    norm_eps: float = 1e-5
    pre_norm: bool = True  # False: post-norm, as in the paper
    final_norm: bool = True  # a norm after the last block
    embedding_norm: bool = False  # a norm on the embeddings, as in BERT
    positions: Literal["sinusoidal", "learned", "rotary", "alibi", "none"] = "sinusoidal"
    rotary_base: float = 10000.0
    window: int | None = None  # self-attention sees this many keys, self included; cross-attention always sees all
    qk_norm: bool = False
    scaled_attention: bool = True  # False: without the 1/sqrt(d_k), for the experiment
    scale_embeddings: bool = True  # by sqrt(n_embd), as in the paper: beside sinusoids small embeddings would drown
    tie_output: bool = True  # the output layer is the embedding table
    share_source_target: bool = True  # one embedding table for both sides, where they share a vocabulary
    share_layers: bool = False  # all layers of a stack have the same parameters, for the experiment
    residual: bool = True  # False: no residual connections, for the experiment
    n_token_type: int = 0  # BERT's sentence A/B embeddings
    head: Literal["mlm", "classify", "tag"] = "mlm"  # BERT: what is predicted
    pool: Literal["first", "mean"] = "first"  # classify: read the class off the first token, or off the mean of all
    n_label: int = 0  # BERT: number of classes or tags
    init: Literal["normal", "xavier"] = "normal"
    pruned_heads: tuple[str, ...] = ()  # heads that were taken out after training, as "decoder.3.cross:5"

    def __post_init__(self) -> None:
        check_choices(self)
        for name in ("vocab_size", "n_label", "n_token_type"):
            if getattr(self, name) < 0:
                raise ConfigError(f"model.{name} cannot be negative")
        for name in ("block_size", "n_layer", "n_head", "n_embd"):
            if getattr(self, name) < 1:
                raise ConfigError(f"model.{name} must be at least 1, not {getattr(self, name)}")
        for name in (
            "n_encoder_layer",
            "n_kv_head",
            "n_hidden",
            "head_size",
            "value_size",
            "window",
            "source_vocab_size",
        ):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"model.{name} must be at least 1, not {value}")
        for name in ("dropout", "attention_dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise ConfigError(f"model.{name} must be at least 0 and below 1, not {getattr(self, name)}")
        if self.head_size is None and self.n_embd % self.n_head:
            raise ConfigError(
                f"model.n_embd {self.n_embd} is not divisible by model.n_head {self.n_head}; change one or set model.head_size"
            )
        if self.n_head % self.kv_heads:
            raise ConfigError(f"model.n_head {self.n_head} is not divisible by model.n_kv_head {self.kv_heads}")
        if self.positions == "rotary" and self.key_size % 2:
            raise ConfigError(
                f"rotary positions turn pairs of numbers, so the head size must be even, not {self.key_size}"
            )
        if self.positions == "sinusoidal" and self.n_embd % 2:
            raise ConfigError(f"sinusoidal positions come in pairs, so model.n_embd must be even, not {self.n_embd}")
        if self.family != "transformer":
            if self.n_encoder_layer is not None:
                raise ConfigError(f"model.n_encoder_layer is for the encoder-decoder; {self.family} has n_layer alone")
            if self.source_vocab_size is not None:
                raise ConfigError(
                    f"model.source_vocab_size is for the encoder-decoder; {self.family} has one vocabulary"
                )
        elif self.source_vocab_size is not None and self.share_source_target:
            raise ConfigError(
                "source and target with vocabularies of their own cannot share an embedding table; "
                "set model.share_source_target=false"
            )
        if self.family != "bert" and (self.head != "mlm" or self.n_label or self.n_token_type):
            raise ConfigError("model.head, model.n_label and model.n_token_type belong to family bert")
        if self.norm == "none" and self.embedding_norm:
            raise ConfigError('model.embedding_norm asks for a norm that model.norm="none" rules out')
        if self.pruned_heads:
            self.check_pruned()

    def check_pruned(self) -> None:
        if self.share_layers:
            raise ConfigError(
                "model.pruned_heads takes heads out of one layer, and model.share_layers makes all layers one"
            )
        for name in self.pruned_heads:
            if not self.could_have_head(name):
                raise ConfigError(
                    f"model.pruned_heads: this model has no head {name!r}; a head is an attention and a number below "
                    f"{self.n_head}, such as {'encoder' if self.family == 'bert' else 'decoder'}.0.attention:0"
                )
        if len(set(self.pruned_heads)) < len(self.pruned_heads):
            raise ConfigError("model.pruned_heads names a head twice")

    def could_have_head(self, name: str) -> bool:
        """Whether the model, before any pruning, has a head of this name."""
        found = re.fullmatch(r"(encoder|decoder)\.(0|[1-9]\d*)\.(attention|cross):(0|[1-9]\d*)", name, re.ASCII)
        if found is None:
            return False
        stack, layer, part, head = found[1], int(found[2]), found[3], int(found[4])
        if stack == "encoder":
            known = self.family != "gpt" and part == "attention" and layer < self.encoder_layers
        else:
            known = self.family != "bert" and layer < self.n_layer
            known = known and (part == "attention" or self.family == "transformer")
        return known and head < self.n_head

    @property
    def attentions(self) -> list[str]:
        """Every attention of the model by its name, in the order in which text goes through them."""
        names = []
        if self.family != "gpt":
            names += [f"encoder.{i}.attention" for i in range(self.encoder_layers)]
        if self.family != "bert":
            parts = ("attention", "cross") if self.family == "transformer" else ("attention",)
            names += [f"decoder.{i}.{part}" for i in range(self.n_layer) for part in parts]
        return names

    def kept_heads(self, attention: str) -> tuple[int, ...]:
        """The heads an attention still has, by the numbers they have always had."""
        gone = {int(head) for name, _, head in (p.partition(":") for p in self.pruned_heads) if name == attention}
        return tuple(head for head in range(self.n_head) if head not in gone)

    def kept_kv_heads(self, attention: str) -> int:
        """How many of its key and value heads some head still asks."""
        return len({head // (self.n_head // self.kv_heads) for head in self.kept_heads(attention)})

    @property
    def kv_heads(self) -> int:
        return self.n_kv_head or self.n_head

    @property
    def key_size(self) -> int:
        return self.head_size or self.n_embd // self.n_head

    @property
    def val_size(self) -> int:
        return self.value_size or self.key_size

    @property
    def hidden(self) -> int:
        return self.n_hidden or 4 * self.n_embd

    @property
    def encoder_layers(self) -> int:
        return self.n_layer if self.n_encoder_layer is None else self.n_encoder_layer


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    task: Literal["pairs", "text", "classify", "tag"] = "pairs"
    builtin: str | None = None  # dates, phrases, stdlib, languages, date-parts, copy, reverse, sort
    direction: str | None = None  # phrases: "zh-en" and its sisters
    path: str | None = None  # where relative file names start
    train: str | None = None  # a file or folder; its format follows from its name, or from `format`
    val: str | None = None
    test: str | None = None
    train_target: str | None = None  # the second of two line-aligned files
    val_target: str | None = None
    test_target: str | None = None
    format: Literal["auto", "tsv", "lines", "jsonl", "text", "parquet", "datasets"] = "auto"
    source_field: str = "source"  # JSONL, Parquet, datasets: the names of the fields
    target_field: str = "target"
    text_field: str = "text"
    label_field: str = "label"
    swap: bool = False  # pairs: learn target to source
    both_ways: bool = False  # pairs with one vocabulary: learn target to source as well, with the same weights
    val_fraction: float = 0.05  # taken out of the training data where no val (or test) is given; see data/sources.py
    tokenizer: Literal["char", "word", "bpe", "unigram"] = "bpe"
    tokenizer_file: str | None = None  # a finished tokenizer.json instead of training one
    vocab_size: int = 8000  # at most; char and word take what occurs
    separate_vocabularies: bool = False  # one tokenizer a side
    bpe_dropout: float = 0.0  # above 0: training text is cut into pieces with this share of BPE's merges left out ...
    segmentations: int = 16  # ... and each sentence is in the training data so many times, cut otherwise each time
    lowercase: bool = False
    max_length: int | None = None  # longer pairs are left out of training (and counted); None: the model's block_size
    batch_tokens: int = 4096  # target tokens a step, over all micro-batches and devices
    layout: Literal["auto", "padded", "packed"] = "auto"  # auto: padded on a CPU, packed on CUDA
    row_width: int = 128  # packed: the width of a row
    respect_documents: bool = False  # text: no block crosses a document's end
    prompt_answer: bool = False  # GPT on pairs: the source is the prompt, the loss is on the answer
    mask_fraction: float = 0.15  # BERT
    size: int | None = None  # built-in data: how many training examples
    workers: int | None = None  # background threads that make batches ahead; None: 2 on CUDA, else none

    @property
    def multiplied(self) -> bool:
        """Are there more examples to learn from than pairs?"""
        return self.bpe_dropout > 0 or self.both_ways

    def __post_init__(self) -> None:
        check_choices(self)
        if self.builtin is not None and self.train is not None:
            raise ConfigError("data.builtin and data.train are both set; a run learns from one of them")
        if not 0 < self.mask_fraction < 1:
            raise ConfigError(f"data.mask_fraction must lie between 0 and 1, not {self.mask_fraction}")
        if not 0 <= self.val_fraction < 1:
            raise ConfigError(f"data.val_fraction must be at least 0 and below 1, not {self.val_fraction}")
        if not 0 <= self.bpe_dropout < 1:
            raise ConfigError(f"data.bpe_dropout must be at least 0 and below 1, not {self.bpe_dropout}")
        if self.bpe_dropout and (self.task != "pairs" or self.tokenizer != "bpe"):
            raise ConfigError(
                f'data.bpe_dropout is for data.task="pairs" and data.tokenizer="bpe", not {self.task} by {self.tokenizer}'
            )
        if self.both_ways and (self.task != "pairs" or self.separate_vocabularies):
            raise ConfigError("data.both_ways is for pairs whose two sides share one vocabulary")
        for name in ("batch_tokens", "row_width", "vocab_size", "segmentations"):
            if getattr(self, name) < 1:
                raise ConfigError(f"data.{name} must be at least 1, not {getattr(self, name)}")


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    steps: int = 2000
    seed: int = 1
    device: Literal["auto", "cpu", "cuda"] = "auto"
    precision: Literal["auto", "fp32", "bf16", "fp8"] = (
        "auto"  # auto: bf16 autocast on CUDA, fp32 elsewhere; fp8: bf16, most matrix products in 8 bits (nn/fp8.py)
    )
    compile: bool | None = None  # None: on CUDA only
    capture: bool | None = None  # the step as one CUDA graph; None: on CUDA, if compiled and batches have one shape
    deterministic: bool = False
    threads: int | None = None  # CPU threads; None: as torch finds them
    optimizer: Literal["adamw", "muon"] = "adamw"
    learning_rate: float = 1e-3
    muon_learning_rate: float = 0.02  # for the matrices, where the optimizer is muon
    betas: tuple[float, float] = (0.9, 0.98)
    eps: float = 1e-9
    weight_decay: float = 0.0
    decay_embeddings: bool = False
    schedule: Literal["noam", "cosine", "wsd", "constant"] = "cosine"
    warmup: int = 100
    decay_fraction: float = 0.2  # wsd: the last part of the run, in which the rate falls to zero
    min_rate: float = 0.0  # cosine: the floor, as a fraction of learning_rate
    noam_factor: float = 1.0
    label_smoothing: float = 0.0
    r_drop: float = 0.0  # above 0: every batch twice, and so much on what the two passes disagree in (train/r_drop.py)
    clip: float | None = 1.0
    accumulate: int = 1  # micro-batches a step
    checkpoint_activations: bool = False
    ema: float | None = None  # decay of the moving average of the weights
    average_last: int = 0  # the final weights are the mean of the last so many snapshots
    snapshot_every: int | None = None  # steps between snapshots; None: save_every
    validate_every: int = 500
    validate_examples: int = 1000  # at most so many are decoded for the score
    metric: Literal["auto", "loss", "exact_match", "bleu", "chrf", "accuracy", "f1"] = "auto"  # what "best" means
    bleu_tokenize: Literal["auto", "13a", "zh", "intl", "char", "none"] = "auto"  # auto: zh for Chinese, else 13a
    patience: int | None = None  # early stopping: so many validations without a better `metric`
    save_every: int = 500
    keep_last: int = 2
    log_every: int = 10
    tensorboard: bool = False
    wandb: bool = False
    bad_steps: int = 5  # so many non-finite steps in a row end the run

    def __post_init__(self) -> None:
        check_choices(self)
        for name in ("steps", "accumulate", "validate_every", "save_every", "keep_last", "log_every", "bad_steps"):
            if getattr(self, name) < 1:
                raise ConfigError(f"train.{name} must be at least 1, not {getattr(self, name)}")
        if not 0 <= self.label_smoothing < 1:
            raise ConfigError(f"train.label_smoothing must be at least 0 and below 1, not {self.label_smoothing}")
        if not 0 <= self.r_drop < math.inf:
            raise ConfigError(f"train.r_drop must be 0 or above, not {self.r_drop}")
        if self.r_drop and self.precision == "fp8":
            raise ConfigError("train.r_drop and train.precision=fp8 do not go together; set train.precision=auto")
        if self.warmup < 0:
            raise ConfigError("train.warmup cannot be negative")
        if self.ema is not None and not 0 < self.ema < 1:
            raise ConfigError(f"train.ema must lie between 0 and 1, not {self.ema}")
        if self.clip is not None and self.clip <= 0:
            raise ConfigError('train.clip must be above 0; write "none" to switch clipping off')


@dataclass(frozen=True, kw_only=True)
class DecodeConfig:
    """How a model's scores become text. Temperature 0 searches (a beam; greedy where it is 1), above 0 draws."""

    beam: int | None = None  # None: 4, or 1 where tokens are drawn
    n_best: int = 1
    groups: int = 1  # diverse n-best: the beam in so many parts, each avoiding the words of those before it ...
    diversity: float = 0.0  # ... at this price a word
    length_rule: Literal["gnmt", "power", "power-no-eos"] = "gnmt"
    alpha: float = 0.6
    stop_rule: Literal["exact", "first-k"] = "exact"
    max_ratio: float = 2.0  # translation: at most max_ratio * source length + max_extra new tokens
    max_extra: int = 20
    min_ratio: float = 0.0
    max_new_tokens: int | None = None  # set: this limit instead; None for a GPT: block_size
    min_new_tokens: int = 0
    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    num_samples: int = 1
    seed: int = 1
    repetition_penalty: float = 1.0
    no_repeat_ngram: int = 0
    allow_unknown: bool = False  # may the unknown word be written
    batch_size: int = 32  # sentences at a time
    strict: bool = False  # always so many rows of the same width: an answer never depends on its neighbours
    engine: Literal["auto", "plain", "fast", "int8", "int4", "graph"] = (
        "auto"  # what runs the model; see decode/engines.py
    )
    precision: Literal["model", "bf16"] = (
        "model"  # engine graph: the numbers it computes with; model: as the weights are
    )

    def __post_init__(self) -> None:
        check_choices(self)
        for name in ("n_best", "groups", "num_samples", "batch_size"):
            if getattr(self, name) < 1:
                raise ConfigError(f"decode.{name} must be at least 1, not {getattr(self, name)}")
        for name in ("beam", "top_k", "max_new_tokens"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"decode.{name} must be at least 1, not {value}")
        for name in ("diversity", "max_ratio", "max_extra", "min_ratio", "min_new_tokens", "temperature", "seed"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ConfigError(f"decode.{name} cannot be negative or infinite, and is {getattr(self, name)}")
        if self.no_repeat_ngram < 0:
            raise ConfigError(f"decode.no_repeat_ngram cannot be negative, and is {self.no_repeat_ngram}")
        if not abs(self.alpha) <= 10:
            raise ConfigError(f"decode.alpha must lie between -10 and 10, not {self.alpha}")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise ConfigError(f"decode.top_p must be above 0 and at most 1, not {self.top_p}")
        if self.min_p is not None and not 0 <= self.min_p <= 1:
            raise ConfigError(f"decode.min_p must lie between 0 and 1, not {self.min_p}")
        if not 0 < self.repetition_penalty < float("inf"):
            raise ConfigError(f"decode.repetition_penalty must be above 0, not {self.repetition_penalty}")
        if self.temperature > 0:
            if self.beams > 1:
                raise ConfigError(
                    f"decode.beam={self.beam} searches and decode.temperature={self.temperature} draws; choose one of them"
                )
        else:
            for name in ("top_k", "top_p", "min_p"):
                if getattr(self, name) is not None:
                    raise ConfigError(
                        f"decode.{name} chooses among which tokens to draw, and nothing is drawn; "
                        "set decode.temperature above 0"
                    )
            if self.num_samples > 1:
                raise ConfigError("decode.num_samples above 1 needs decode.temperature above 0; for a beam use n_best")
        if self.n_best > self.beams:
            raise ConfigError(
                f"decode.n_best={self.n_best} asks for more than the {self.beams} that decode.beam={self.beams} keeps"
            )
        if self.beams % self.groups:
            raise ConfigError(
                f"decode.beam={self.beams} cannot be parted into decode.groups={self.groups} equal groups"
            )
        if (self.groups > 1) != (self.diversity > 0):
            raise ConfigError(
                "diverse n-best needs both decode.groups above 1 and decode.diversity above 0; "
                f"they are {self.groups} and {self.diversity}"
            )
        if self.strict and self.engine in ("int8", "int4"):
            raise ConfigError(
                f"decode.engine={self.engine} rounds the rows of a batch together, so an answer depends on its neighbours; "
                "strict mode needs decode.engine=plain or fast"
            )
        if self.max_new_tokens is not None and self.min_new_tokens > self.max_new_tokens:
            raise ConfigError(
                f"decode.min_new_tokens={self.min_new_tokens} is above decode.max_new_tokens={self.max_new_tokens}"
            )
        if self.max_new_tokens is None and self.min_ratio > self.max_ratio:
            raise ConfigError(f"decode.min_ratio={self.min_ratio} is above decode.max_ratio={self.max_ratio}")

    @property
    def beams(self) -> int:
        if self.beam is not None:
            return self.beam
        return 1 if self.temperature > 0 else 4


@dataclass(frozen=True, kw_only=True)
class Recipe:
    name: str = "recipe"
    about: str = ""
    model: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    decode: DecodeConfig = field(default_factory=DecodeConfig)

    def __post_init__(self) -> None:
        if self.train.r_drop and self.model.family == "bert":
            raise ConfigError(
                "train.r_drop compares the next words that two passes expect, and a BERT expects none; leave it out"
            )
        if self.train.r_drop and not (self.model.dropout or self.model.attention_dropout):
            raise ConfigError(
                "train.r_drop compares passes that drop different numbers, and nothing is dropped; set model.dropout"
            )

    @staticmethod
    def from_dict(
        values: Mapping[str, Any], *, presets: Mapping[str, Mapping[str, Any]] | None = None, name: str = "recipe"
    ) -> Recipe:
        values = {k: dict(v) if isinstance(v, Mapping) else v for k, v in values.items()}
        refuse_unknown(values, [f.name for f in dataclasses.fields(Recipe)], "recipe")
        model = values.get("model", {})
        if isinstance(model, dict) and "preset" in model:
            preset = model.pop("preset")
            known = presets or {}
            if preset not in known:
                raise ConfigError(
                    f"there is no preset {preset!r}{did_you_mean(str(preset), list(known))}; there are {', '.join(known)}"
                )
            values["model"] = {**known[preset], **model}
        parts: dict[str, Any] = {"name": str(values.get("name", name)), "about": str(values.get("about", ""))}
        for part, kind in PARTS.items():
            section = values.get(part, {})
            if not isinstance(section, dict):
                raise ConfigError(f"[{part}] must be a table of settings, not {section!r}")
            parts[part] = build(kind, section, part)
        return Recipe(**parts)

    def to_dict(self) -> dict[str, Any]:
        """Everything that differs from nothing: None is left out, since TOML and JSON readers then see the default."""
        out: dict[str, Any] = {"name": self.name, "about": self.about}
        for part in PARTS:
            values = dataclasses.asdict(getattr(self, part))
            out[part] = {k: list(v) if isinstance(v, tuple) else v for k, v in values.items() if v is not None}
            # A None that is not the default must be said, or it would come back as the default.
            for f in dataclasses.fields(PARTS[part]):
                if getattr(getattr(self, part), f.name) is None and f.default is not None:
                    out[part][f.name] = "none"
        return out

    def with_model(self, **changes: Any) -> Recipe:
        return dataclasses.replace(self, model=dataclasses.replace(self.model, **changes))


PARTS: dict[str, type] = {"model": ModelConfig, "data": DataConfig, "train": TrainConfig, "decode": DecodeConfig}
RECIPE_FOLDER = Path(__file__).parent / "recipes"

T = TypeVar("T")


def recipe_names() -> list[str]:
    return sorted(p.stem for p in RECIPE_FOLDER.glob("*.toml"))


def read_recipe(
    name_or_file: str, overrides: Sequence[str] = (), *, presets: Mapping[str, Mapping[str, Any]] | None = None
) -> Recipe:
    """A built-in recipe by its name, or a TOML file by its path, with `key.sub=value` changes applied on top."""
    path = Path(name_or_file)
    if path.suffix != ".toml" or not path.exists():
        built_in = RECIPE_FOLDER / f"{name_or_file}.toml"
        if not built_in.exists():
            if path.suffix == ".toml":
                raise ConfigError(f"there is no recipe file {name_or_file}")
            raise ConfigError(
                f"there is no recipe {name_or_file!r}{did_you_mean(name_or_file, recipe_names())}; "
                "give a recipe's name or the path of a .toml file"
            )
        path = built_in
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    for override in overrides:
        apply_override(values, override)
    return Recipe.from_dict(values, presets=presets, name=path.stem)


def apply_override(values: dict[str, Any], override: str) -> None:
    """`train.steps=200` changes values["train"]["steps"]."""
    key, equals, text = override.partition("=")
    part, dot, name = key.strip().partition(".")
    if not equals or not dot or not name:
        raise ConfigError(f"{override!r} is not of the form key.sub=value, such as train.steps=200")
    if part not in PARTS:
        raise ConfigError(f"{key!r}: there is no part {part!r}{did_you_mean(part, list(PARTS))}")
    section = values.setdefault(part, {})
    if not isinstance(section, dict):
        raise ConfigError(f"[{part}] must be a table of settings, not {section!r}")
    section[name] = text.strip()


def build(kind: type[T], values: Mapping[str, Any], part: str) -> T:
    hints = typing.get_type_hints(kind)
    refuse_unknown(values, list(hints), part)
    return kind(**{key: coerce(value, hints[key], f"{part}.{key}") for key, value in values.items()})


def coerce(value: Any, hint: Any, name: str) -> Any:
    """A TOML value or the text of an override, as the type the field declares; anything else is a clear error."""
    options = typing.get_args(hint)
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        if value is None or (isinstance(value, str) and value.lower() in ("none", "null")):
            return None
        return coerce(value, next(o for o in options if o is not type(None)), name)
    if typing.get_origin(hint) is Literal:
        if value not in options:
            raise ConfigError(
                f"{name} must be one of {', '.join(map(str, options))}, not {value!r}{did_you_mean(str(value), options)}"
            )
        return value
    if typing.get_origin(hint) is tuple:
        parts = [p for p in value.strip("[]() ").split(",") if p.strip()] if isinstance(value, str) else value
        if options[-1] is Ellipsis:
            if not isinstance(parts, list | tuple):
                raise ConfigError(f"{name} must be a list, not {value!r}")
            return tuple(coerce(p.strip() if isinstance(p, str) else p, options[0], name) for p in parts)
        if not isinstance(parts, list | tuple) or len(parts) != len(options):
            raise ConfigError(f"{name} must be {len(options)} numbers, not {value!r}")
        return tuple(coerce(p, o, name) for p, o in zip(parts, options, strict=True))
    if hint is bool:
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and value.lower() in ("true", "false"):
            return value.lower() == "true"
        raise ConfigError(f"{name} must be true or false, not {value!r}")
    if hint in (int, float):
        try:
            number = float(value) if not isinstance(value, bool) else None
        except (TypeError, ValueError):
            number = None
        if number is None or not math.isfinite(number) or (hint is int and number != int(number)):
            raise ConfigError(f"{name} must be {'a whole number' if hint is int else 'a number'}, not {value!r}")
        return hint(number)
    if hint is str:
        if not isinstance(value, str):
            raise ConfigError(f"{name} must be text, not {value!r}")
        return value
    raise TypeError(f"{name}: no rule for {hint}")


def check_choices(config: Any) -> None:
    """A config built in Python is held to the same words as one from a file."""
    for name, hint in typing.get_type_hints(type(config)).items():
        if typing.get_origin(hint) is Literal:
            coerce(getattr(config, name), hint, name)


def refuse_unknown(values: Mapping[str, Any], known: Sequence[str], part: str) -> None:
    for key in values:
        if key not in known:
            where = f"[{part}]" if part in PARTS else "a recipe"
            raise ConfigError(f"there is no setting {key!r} in {where}{did_you_mean(key, known)}")


def did_you_mean(word: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(word, [str(k) for k in known], n=1, cutoff=0.5)
    return f" (did you mean {close[0]!r}?)" if close else ""
