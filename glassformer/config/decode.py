"""The settings of decoding: search or sampling, lengths, and what runs it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from glassformer.config.fields import check, setting
from glassformer.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class DecodeConfig:
    """How a model's scores become text. Temperature 0 searches (a beam; greedy where it is 1), above 0 draws.

    >>> DecodeConfig().beams, DecodeConfig(temperature=0.8).beams
    (4, 1)

    Attributes:
        beam: hypotheses searched side by side; 1 is greedy; none: 4, or 1 where tokens are drawn
        n_best: how many answers of the search are returned, best first
        length_rule: what a finished hypothesis' log-probability is divided by: GNMT's ((5+n)/6)^alpha, n^alpha, or
            that without EOS
        alpha: the strength of the length rule; 0: none, which favours short answers
        stop_rule: exact: until no unfinished hypothesis can win; first-k: when as many are finished as the beam is
            wide; best-now: when, besides, none unfinished would win if it ended as long as it is (transformers'
            early_stopping=false); auto: exact, and first-k with CTranslate2 (engine=int8 or ctranslate2), which has
            no other
        max_ratio: translation: at most max_ratio * source length + max_extra new tokens
        max_extra: see max_ratio
        min_ratio: translation: at least so many new tokens a token of the source
        max_new_tokens: at most so many new tokens, instead of max_ratio's limit; none for a GPT: block_size
        min_new_tokens: no answer ends before so many tokens
        temperature: the sampling temperature, the flatter the higher; 0 searches
        top_k: draw among the k likeliest tokens; none: all
        top_p: draw among the likeliest tokens that together have this probability; none: all
        min_p: draw among tokens at least so likely, as a share of the likeliest; none: all
        num_samples: so many draws a text
        seed: the same seed draws the same text
        repetition_penalty: above 1: tokens that are there already become less likely
        no_repeat_ngram: above 0: no sequence of so many tokens twice
        allow_unknown: may the unknown word be written
        shortlist: int8 and ctranslate2: write only tokens of the sentence's shortlist, frequent ones and likely
            translations of its source tokens; probabilities are then among these; none: where the run has one (distill
            makes it where it pays)
        batch_size: texts decoded at a time; none: as many as bring something and fit into memory; with 1 not even the
            last digits of an answer depend on other texts
        engine: what runs the model: plain (the model itself) and fast are ours; int8 and ctranslate2 are CTranslate2
            (in 8 bits, in float32) and onnx is onnxruntime, all three on a CPU; auto is fast
        precision: the numbers a GPU computes with; model: as the weights are; auto: bfloat16, where it has units for
            them
    """

    beam: int | None = setting(None, ge=1, le=10**4)
    n_best: int = setting(1, ge=1)
    length_rule: Literal["gnmt", "power", "power-no-eos"] = "gnmt"
    alpha: float = setting(0.6, ge=-10, le=10)
    stop_rule: Literal["auto", "exact", "first-k", "best-now"] = "auto"
    max_ratio: float = setting(2.0, ge=0, le=1000)
    max_extra: int = setting(20, ge=0, le=10**6)
    min_ratio: float = setting(0.0, ge=0, le=1000)
    max_new_tokens: int | None = setting(None, ge=1, le=10**6)
    min_new_tokens: int = setting(0, ge=0)
    temperature: float = setting(0.0, ge=0, le=1e6)
    top_k: int | None = setting(None, ge=1)
    top_p: float | None = setting(None, gt=0, le=1)
    min_p: float | None = setting(None, ge=0, le=1)
    num_samples: int = setting(1, ge=1, le=10**5)
    seed: int = setting(1, ge=0)
    repetition_penalty: float = setting(1.0, gt=0, le=1e6)
    no_repeat_ngram: int = setting(0, ge=0, le=10**6)
    allow_unknown: bool = False
    shortlist: bool | None = None
    batch_size: int | None = setting(None, ge=1, le=10**5)
    engine: Literal["auto", "plain", "fast", "int8", "ctranslate2", "onnx"] = "auto"
    precision: Literal["auto", "model", "bf16"] = "auto"

    def __post_init__(self) -> None:
        check(self, "decode")
        self.check_combinations()

    def check_combinations(self) -> None:
        """Refuses settings that rule each other out."""
        if self.temperature > 0:
            if self.beams > 1:
                raise ConfigError(
                    "decode.beam={decode.beam} searches and decode.temperature={decode.temperature} draws; "
                    "choose one of them",
                    decode=self,
                )
        else:
            for name in ("top_k", "top_p", "min_p"):
                if getattr(self, name) is not None:
                    raise ConfigError(
                        "decode.{name} chooses among which tokens to draw, and nothing is drawn; "
                        "set decode.temperature above 0",
                        name=name,
                    )
            if self.num_samples > 1:
                raise ConfigError("decode.num_samples above 1 needs decode.temperature above 0; for a beam use n_best")
        if self.n_best > self.beams:
            raise ConfigError(
                "decode.n_best={decode.n_best} asks for more than the {decode.beams} that decode.beam={decode.beams} keeps",
                decode=self,
            )
        if self.max_new_tokens is not None and self.min_new_tokens > self.max_new_tokens:
            raise ConfigError(
                "decode.min_new_tokens={decode.min_new_tokens} is above decode.max_new_tokens={decode.max_new_tokens}",
                decode=self,
            )
        if self.max_new_tokens is None and self.min_ratio > self.max_ratio:
            raise ConfigError(
                "decode.min_ratio={decode.min_ratio} is above decode.max_ratio={decode.max_ratio}", decode=self
            )

    @property
    def beams(self) -> int:
        """Hypotheses kept at a time; 1 where one draws or takes the likeliest."""
        if self.beam is not None:
            return self.beam
        return 1 if self.temperature > 0 else 4
