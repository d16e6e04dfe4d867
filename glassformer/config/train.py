"""The settings of a training: how long, how fast, in which precision, what is measured and what is kept."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from glassformer.config.fields import check_at_most, check_choices
from glassformer.errors import ConfigError
from glassformer.language import _

# Beyond these nothing sensible is meant, and some of it would bring the machine down.
MOST = {
    "threads": 1024,
    "steps": 10**12,
    "accumulate": 10**6,
    "average_last": 10**4,
    "keep_last": 10**6,
    "warmup": 10**12,
    "learning_rate": 1e100,  # beyond float32, so that what happens then can be tried
    "muon_learning_rate": 1e6,
    "eps": 1.0,
    "min_rate": 1.0,
    "decay_fraction": 1.0,
    "noam_factor": 1e9,
    "weight_decay": 1e6,
    "clip": 1e30,
    "r_drop": 1e9,
}


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """How a model is trained: what a recipe's [train] holds. The comments beside the fields are their documentation.

    >>> TrainConfig(steps=200).steps
    200
    """

    steps: int = 2000  # updates of the weights
    seed: int = 1  # of the first weights, of dropout and of the order of batches; the same seed repeats the run
    device: Literal["auto", "cpu", "cuda"] = "auto"  # auto: CUDA where there is one
    # auto: bf16 autocast on CUDA, fp32 elsewhere; fp8: bf16, and most matrix products in 8 bits (see accel/fp8.py)
    precision: Literal["auto", "fp32", "bf16", "fp8"] = "auto"
    compile: bool | None = None  # compile the loss with torch.compile; none: on CUDA only
    # replay the whole step as one CUDA graph; none: on CUDA, if compiled and batches have one shape
    capture: bool | None = None
    # the same numbers to the bit on CUDA too, at some cost of speed (on a CPU they are anyway)
    deterministic: bool = False
    threads: int | None = None  # threads on a CPU; none: as many as torch finds
    # adamw; muon: Newton-Schulz steps for the matrices inside blocks, AdamW for the rest
    optimizer: Literal["adamw", "muon"] = "adamw"
    learning_rate: float = 1e-3  # the highest rate of the schedule (for noam, see noam_factor)
    muon_learning_rate: float = 0.02  # for the matrices, where the optimizer is muon
    betas: tuple[float, float] = (0.9, 0.98)  # AdamW's decay rates of the mean of the gradient and of its square
    eps: float = 1e-9  # AdamW's guard against division by zero
    # how much of a matrix is taken off a step, times the rate; biases, norms and embeddings are spared
    weight_decay: float = 0.0
    decay_embeddings: bool = False  # let weight decay touch the embeddings too
    # the rate after warm-up: as one over root of the step (noam), half a cosine, flat and then down (wsd),
    # constant
    schedule: Literal["noam", "cosine", "wsd", "constant"] = "cosine"
    warmup: int = 100  # steps in which the rate rises from nothing
    decay_fraction: float = 0.2  # wsd: the last part of the run, in which the rate falls to zero
    min_rate: float = 0.0  # cosine: where it ends, as a fraction of learning_rate
    noam_factor: float = 1.0  # noam: times the paper's rate, which follows from n_embd and warmup
    label_smoothing: float = 0.0  # the share of probability that the right token gives away to all others
    # above 0: every batch twice, and so much weight on what the two passes disagree in (see training/r_drop.py)
    r_drop: float = 0.0
    # what does not learn, by patterns of parameters' names, such as ["encoder.*", "*embedding*"]
    freeze: tuple[str, ...] = ()
    # above 0: LoRA, all matrices stay and learn a correction of this rank each, and little else learns (see nn/lora.py)
    lora_rank: int = 0
    lora_alpha: float = 16.0  # a correction counts alpha / rank
    lora_targets: tuple[str, ...] = ("encoder.*", "decoder.*")  # which linear layers, by patterns of their names
    clip: float | None = 1.0  # the largest norm of the gradient; "none": no limit
    # pieces in which a step goes through its batch: less memory, the same gradient (dropout aside)
    accumulate: int = 1
    # keep little for the backward pass and compute it again: less memory, a third slower
    checkpoint_activations: bool = False
    # decay of a moving average of the weights, such as 0.999, which is then what is validated and used; none:
    # no average
    ema: float | None = None
    # the final weights are the mean of the last so many snapshots; 0: those of the best checkpoint
    average_last: int = 0
    snapshot_every: int | None = None  # steps between snapshots; none: save_every
    validate_every: int = 500  # steps between validations
    # at most so many examples are decoded (greedily) for a score; 0: only the loss is measured
    validate_examples: int = 1000
    # what "best" means; auto: bleu for pairs (exact_match where most targets have fewer than four words), accuracy
    # for labels, else loss. The lower loss is better where scores are equal or below 1 of 100
    metric: Literal["auto", "loss", "exact_match", "bleu", "chrf", "accuracy", "f1"] = "auto"
    # how sacrebleu cuts words; auto: zh for Chinese, else 13a
    bleu_tokenize: Literal["auto", "13a", "zh", "intl", "char", "none"] = "auto"
    patience: int | None = None  # stop early after so many validations without a better metric; none: never
    save_every: int = 500  # steps between checkpoints; the best one and the last are kept as well
    keep_last: int = 2  # how many checkpoints are kept
    history: bool | None = None  # keep the weights at steps 0, 10, 30, 100 …; none: of a small model (16 MB or less)
    log_every: int = 10  # steps between lines of metrics.jsonl
    log_layers: bool = False  # the gradient norm of every layer in these lines, as "grad_norm/decoder.0"
    tensorboard: bool = False  # write for TensorBoard as well, into the run's folder (extra: tensorboard)
    wandb: bool = False  # report to Weights & Biases as well (extra: wandb)
    # so many steps in a row whose loss or gradient is not finite end the run; before that they are skipped
    bad_steps: int = 5

    def __post_init__(self) -> None:
        check_choices(self)
        for name in ("steps", "accumulate", "validate_every", "save_every", "keep_last", "log_every", "bad_steps"):
            if getattr(self, name) < 1:
                raise ConfigError(
                    _("train.{name} must be at least 1, not {value}", name=name, value=getattr(self, name))
                )
        for name in ("threads", "snapshot_every", "patience"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(_("train.{name} must be at least 1, not {value}", name=name, value=value))
        for name in ("average_last", "validate_examples", "weight_decay", "min_rate", "decay_fraction"):
            if getattr(self, name) < 0:
                raise ConfigError(
                    _("train.{name} cannot be negative, and is {value}", name=name, value=getattr(self, name))
                )
        for name in ("learning_rate", "muon_learning_rate", "eps", "noam_factor"):
            if not getattr(self, name) > 0:
                raise ConfigError(_("train.{name} must be above 0, not {value}", name=name, value=getattr(self, name)))
        if not all(0 <= beta < 1 for beta in self.betas):
            raise ConfigError(
                _(
                    "train.betas must both be at least 0 and below 1, not {betas}, {betas_2}",
                    betas=self.betas[0],
                    betas_2=self.betas[1],
                )
            )
        check_at_most(self, "train", MOST)
        if not 0 <= self.label_smoothing < 1:
            raise ConfigError(
                _(
                    "train.label_smoothing must be at least 0 and below 1, not {label_smoothing}",
                    label_smoothing=self.label_smoothing,
                )
            )
        if not 0 <= self.r_drop < math.inf:
            raise ConfigError(_("train.r_drop must be 0 or above, not {r_drop}", r_drop=self.r_drop))
        if self.r_drop and self.precision == "fp8":
            raise ConfigError(_("train.r_drop and train.precision=fp8 do not go together; set train.precision=auto"))
        if not 0 <= self.lora_rank <= 10**4 or not 0 < self.lora_alpha < 1e6:
            raise ConfigError(
                _(
                    "train.lora_rank is at least 0 and train.lora_alpha above 0, not {lora_rank} and {lora_alpha}",
                    lora_rank=self.lora_rank,
                    lora_alpha=self.lora_alpha,
                )
            )
        if self.lora_rank and (self.precision == "fp8" or self.optimizer == "muon"):
            raise ConfigError(_("LoRA goes with train.precision=auto and train.optimizer=adamw; set those"))
        if self.warmup < 0:
            raise ConfigError(_("train.warmup cannot be negative"))
        if self.ema is not None and not 0 < self.ema < 1:
            raise ConfigError(_("train.ema must lie between 0 and 1, not {ema}", ema=self.ema))
        if self.clip is not None and self.clip <= 0:
            raise ConfigError(_('train.clip must be above 0; write "none" to switch clipping off'))
