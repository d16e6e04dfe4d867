"""The settings of decoding: search or sampling, lengths, and what runs it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from glassformer.config.fields import check_at_most, check_choices
from glassformer.errors import ConfigError
from glassformer.language import _

# Beyond these nothing sensible is meant: every hypothesis costs its own memory and time.
MOST = {
    "beam": 10_000,
    "num_samples": 100_000,
    "batch_size": 100_000,
    "max_new_tokens": 1_000_000,
    "max_extra": 1_000_000,
    "max_ratio": 1_000.0,
    "min_ratio": 1_000.0,
    "temperature": 1e6,
    "no_repeat_ngram": 1_000_000,
    "repetition_penalty": 1e6,
    "diversity": 1e6,
}


@dataclass(frozen=True, kw_only=True)
class DecodeConfig:
    """How a model's scores become text. Temperature 0 searches (a beam; greedy where it is 1), above 0 draws.

    >>> DecodeConfig().beams, DecodeConfig(temperature=0.8).beams
    (4, 1)
    """

    beam: int | None = None  # hypotheses searched side by side; 1 is greedy; none: 4, or 1 where tokens are drawn
    n_best: int = 1  # so many answers of the search, best first
    groups: int = 1  # diverse n-best: the beam in so many parts, each avoiding the words of those before it ...
    diversity: float = 0.0  # ... at this price a word
    # what a finished hypothesis' log-probability is divided by: GNMT's ((5+n)/6)^alpha, n^alpha, or that
    # without EOS
    length_rule: Literal["gnmt", "power", "power-no-eos"] = "gnmt"
    alpha: float = 0.6  # the strength of the length rule; 0: none, which favours short answers
    # exact: until no unfinished hypothesis can win; first-k: when as many are finished as the beam is wide; best-now:
    # when, besides, none unfinished would win if it ended as long as it is (transformers' early_stopping=false); auto:
    # exact, and first-k with CTranslate2 (engine=int8 or ctranslate2), which has no other
    stop_rule: Literal["auto", "exact", "first-k", "best-now"] = "auto"
    max_ratio: float = 2.0  # translation: at most max_ratio * source length + max_extra new tokens
    max_extra: int = 20  # see max_ratio
    min_ratio: float = 0.0  # translation: at least so many new tokens a token of the source
    max_new_tokens: int | None = None  # set: this limit instead; none for a GPT: block_size
    min_new_tokens: int = 0  # no answer ends before so many tokens
    temperature: float = 0.0  # 0: search; above 0: draw, the flatter the higher
    top_k: int | None = None  # draw among the k likeliest tokens; none: all
    top_p: float | None = None  # draw among the likeliest tokens that together have this probability; none: all
    min_p: float | None = None  # draw among tokens at least so likely, as a share of the likeliest; none: all
    num_samples: int = 1  # so many draws a text
    seed: int = 1  # the same seed draws the same text
    repetition_penalty: float = 1.0  # above 1: tokens that are there already become less likely
    no_repeat_ngram: int = 0  # above 0: no sequence of so many tokens twice
    allow_unknown: bool = False  # may the unknown word be written
    batch_size: int | None = None  # texts decoded at a time; none: as many as bring something and fit into memory
    strict: bool = False  # always so many rows of the same width: an answer never depends on its neighbours
    # what runs the model: auto, plain (the model itself) and fast are ours; int8 and ctranslate2 are CTranslate2 (in 8
    # bits, in float32) and onnx is onnxruntime, all three on a CPU
    engine: Literal["auto", "plain", "fast", "int8", "ctranslate2", "onnx"] = "auto"
    # the numbers a GPU computes with; model: as the weights are; auto: bfloat16, where it has units for them
    precision: Literal["auto", "model", "bf16"] = "auto"

    def __post_init__(self) -> None:
        check_choices(self)
        for name in ("n_best", "groups", "num_samples"):
            if getattr(self, name) < 1:
                raise ConfigError(
                    _("decode.{name} must be at least 1, not {value}", name=name, value=getattr(self, name))
                )
        for name in ("beam", "top_k", "max_new_tokens", "batch_size"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(_("decode.{name} must be at least 1, not {value}", name=name, value=value))
        for name in ("diversity", "max_ratio", "max_extra", "min_ratio", "min_new_tokens", "temperature", "seed"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ConfigError(
                    _(
                        "decode.{name} cannot be negative or infinite, and is {value}",
                        name=name,
                        value=getattr(self, name),
                    )
                )
        check_at_most(self, "decode", MOST)
        if self.no_repeat_ngram < 0:
            raise ConfigError(
                _(
                    "decode.no_repeat_ngram cannot be negative, and is {no_repeat_ngram}",
                    no_repeat_ngram=self.no_repeat_ngram,
                )
            )
        if not abs(self.alpha) <= 10:
            raise ConfigError(_("decode.alpha must lie between -10 and 10, not {alpha}", alpha=self.alpha))
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise ConfigError(_("decode.top_p must be above 0 and at most 1, not {top_p}", top_p=self.top_p))
        if self.min_p is not None and not 0 <= self.min_p <= 1:
            raise ConfigError(_("decode.min_p must lie between 0 and 1, not {min_p}", min_p=self.min_p))
        if not 0 < self.repetition_penalty < float("inf"):
            raise ConfigError(
                _(
                    "decode.repetition_penalty must be above 0, not {repetition_penalty}",
                    repetition_penalty=self.repetition_penalty,
                )
            )
        self.check_combinations()

    def check_combinations(self) -> None:
        """Refuses settings that rule each other out."""
        if self.temperature > 0:
            if self.beams > 1:
                raise ConfigError(
                    _(
                        "decode.beam={decode.beam} searches and decode.temperature={decode.temperature} draws; "
                        "choose one of them",
                        decode=self,
                    )
                )
        else:
            for name in ("top_k", "top_p", "min_p"):
                if getattr(self, name) is not None:
                    raise ConfigError(
                        _(
                            "decode.{name} chooses among which tokens to draw, and nothing is drawn; "
                            "set decode.temperature above 0",
                            name=name,
                        )
                    )
            if self.num_samples > 1:
                raise ConfigError(
                    _("decode.num_samples above 1 needs decode.temperature above 0; for a beam use n_best")
                )
        if self.n_best > self.beams:
            raise ConfigError(
                _(
                    "decode.n_best={decode.n_best} asks for more than the {decode.beams} that decode.beam={decode.beams} keeps",
                    decode=self,
                )
            )
        if self.beams % self.groups:
            raise ConfigError(
                _(
                    "decode.beam={decode.beams} cannot be parted into decode.groups={decode.groups} equal groups",
                    decode=self,
                )
            )
        if (self.groups > 1) != (self.diversity > 0):
            raise ConfigError(
                _(
                    "diverse n-best needs both decode.groups above 1 and decode.diversity above 0; "
                    "they are {decode.groups} and {decode.diversity}",
                    decode=self,
                )
            )
        if self.strict and self.engine in ("int8", "ctranslate2", "onnx"):
            raise ConfigError(
                _(
                    "decode.engine={decode.engine} is another program, where an answer may depend on its neighbours; "
                    "strict mode needs decode.engine=auto, fast or plain",
                    decode=self,
                )
            )
        if self.max_new_tokens is not None and self.min_new_tokens > self.max_new_tokens:
            raise ConfigError(
                _(
                    "decode.min_new_tokens={decode.min_new_tokens} is above decode.max_new_tokens={decode.max_new_tokens}",
                    decode=self,
                )
            )
        if self.max_new_tokens is None and self.min_ratio > self.max_ratio:
            raise ConfigError(
                _(
                    "decode.min_ratio={decode.min_ratio} is above decode.max_ratio={decode.max_ratio}",
                    decode=self,
                )
            )

    @property
    def beams(self) -> int:
        """Hypotheses kept at a time; 1 where one draws or takes the likeliest."""
        if self.beam is not None:
            return self.beam
        return 1 if self.temperature > 0 else 4
