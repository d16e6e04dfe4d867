"""The settings of a training: how long, how fast, in which precision, what is measured and what is kept."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from glassformer.config.fields import check_choices
from glassformer.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    steps: int = 2000
    seed: int = 1
    device: Literal["auto", "cpu", "cuda"] = "auto"
    precision: Literal["auto", "fp32", "bf16", "fp8"] = (
        "auto"  # auto: bf16 autocast on CUDA, fp32 elsewhere; fp8: bf16, most matrix products in 8 bits (accel/fp8.py)
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
    history: bool | None = None  # keep the weights at steps 0, 10, 30, 100 …; None: of a small model (16 MB or less)
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
