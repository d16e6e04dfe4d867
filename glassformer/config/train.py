"""The settings of a training: how long, how fast, in which precision, what is measured and what is kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from glassformer.config.fields import check, setting
from glassformer.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """How a model is trained: what a recipe's [train] holds. `glassformer info --settings train` shows them all.

    >>> TrainConfig(steps=200).steps
    200
    """

    steps: int = setting(2000, "updates of the weights", ge=1, le=10**12)
    seed: int = setting(
        1, "of the first weights, of dropout and of the order of batches; the same seed repeats the run"
    )
    device: Literal["auto", "cpu", "cuda", "mps"] = setting(
        "auto", "auto: CUDA where there is one; mps: a GPU of Apple's, which may work and is not tested"
    )
    precision: Literal["auto", "fp32", "bf16", "fp8"] = setting(
        "auto",
        "auto: bf16 autocast on CUDA, fp32 elsewhere; fp8: bf16, and most matrix products in 8 bits (see accel/fp8.py)",
    )
    compile: bool | None = setting(None, "compile the loss with torch.compile; none: on CUDA only")
    capture: bool | None = setting(
        None, "replay the whole step as one CUDA graph; none: on CUDA, if compiled and batches have one shape"
    )
    deterministic: bool = setting(
        False, "the same numbers to the bit on CUDA too, at some cost of speed (on a CPU they are anyway)"
    )
    threads: int | None = setting(None, "threads on a CPU; none: as many as torch finds", ge=1, le=1024)
    optimizer: Literal["adamw", "muon"] = setting(
        "adamw",
        "adamw; muon: Newton-Schulz steps for the matrices inside blocks, AdamW for the rest",
    )
    # At most 1e100 is beyond float32, so that what happens then can be tried.
    learning_rate: float = setting(1e-3, "the highest rate of the schedule (for noam, see noam_factor)", gt=0, le=1e100)
    muon_learning_rate: float = setting(0.02, "for the matrices, where the optimizer is muon", gt=0, le=1e6)
    betas: tuple[float, float] = setting(
        (0.9, 0.98), "AdamW's decay rates of the mean of the gradient and of its square"
    )
    eps: float = setting(1e-9, "AdamW's guard against division by zero", gt=0, le=1)
    weight_decay: float = setting(
        0.0,
        "how much of a matrix is taken off a step, times the rate; biases, norms and embeddings are spared",
        ge=0,
        le=1e6,
    )
    decay_embeddings: bool = setting(False, "let weight decay touch the embeddings too")
    schedule: Literal["noam", "cosine", "wsd", "constant"] = setting(
        "cosine",
        "the rate after warm-up: as one over root of the step (noam), half a cosine, flat and then down (wsd), constant",
    )
    warmup: int = setting(100, "steps in which the rate rises from nothing", ge=0, le=10**12)
    decay_fraction: float = setting(0.2, "wsd: the last part of the run, in which the rate falls to zero", ge=0, le=1)
    min_rate: float = setting(0.0, "cosine: where it ends, as a fraction of learning_rate", ge=0, le=1)
    noam_factor: float = setting(
        1.0, "noam: times the paper's rate, which follows from n_embd and warmup", gt=0, le=1e9
    )
    label_smoothing: float = setting(
        0.0, "the share of probability that the right token gives away to all others", ge=0, lt=1
    )
    r_drop: float = setting(
        0.0,
        "above 0: every batch twice, and so much weight on what the two passes disagree in (see training/r_drop.py)",
        ge=0,
        le=1e9,
    )
    freeze: tuple[str, ...] = setting(
        (), 'what does not learn, by patterns of parameters\' names, such as ["encoder.*", "*embedding*"]'
    )
    lora_rank: int = setting(
        0,
        "above 0: LoRA, all matrices stay and learn a correction of this rank each, and little else learns (see nn/lora.py)",
        ge=0,
        le=10**4,
    )
    lora_alpha: float = setting(16.0, "a correction counts alpha / rank", gt=0, le=1e6)
    lora_targets: tuple[str, ...] = setting(
        ("encoder.*", "decoder.*"), "which linear layers, by patterns of their names"
    )
    clip: float | None = setting(1.0, 'the largest norm of the gradient; "none": no limit', le=1e30)
    accumulate: int = setting(
        1,
        "pieces in which a step goes through its batch: less memory, the same gradient (dropout aside)",
        ge=1,
        le=10**6,
    )
    checkpoint_activations: bool = setting(
        False, "keep little for the backward pass and compute it again: less memory, a third slower"
    )
    shard: bool = setting(
        False,
        "split weights, gradients and optimizer over the processes (FSDP2), for a model that does not fit one device; one "
        "process has all of it",
    )
    ema: float | None = setting(
        None,
        "decay of a moving average of the weights, such as 0.999, which is then what is validated and used; none: no average",
        gt=0,
        lt=1,
    )
    average_last: int = setting(
        0,
        "the final weights are the mean of the last so many snapshots; 0: those of the best checkpoint",
        ge=0,
        le=10**4,
    )
    snapshot_every: int | None = setting(None, "steps between snapshots; none: save_every", ge=1)
    validate_every: int = setting(500, "steps between validations", ge=1)
    validate_examples: int = setting(
        1000, "at most so many examples are decoded (greedily) for a score; 0: only the loss is measured", ge=0
    )
    metric: Literal["auto", "loss", "exact_match", "bleu", "chrf", "accuracy", "f1"] = setting(
        "auto",
        'what "best" means; auto: bleu for pairs (exact_match where most targets have fewer than four words), accuracy for '
        "labels, else loss. The lower loss is better where scores are equal or below 1 of 100",
    )
    bleu_tokenize: Literal["auto", "13a", "zh", "intl", "char", "none"] = setting(
        "auto", "how sacrebleu cuts words; auto: zh for Chinese, else 13a"
    )
    patience: int | None = setting(
        None, "stop early after so many validations without a better metric; none: never", ge=1
    )
    save_every: int = setting(500, "steps between checkpoints; the best one and the last are kept as well", ge=1)
    keep_last: int = setting(2, "how many checkpoints are kept", ge=1, le=10**6)
    history: bool | None = setting(
        None, "keep the weights at steps 0, 10, 30, 100 …; none: of a small model (16 MB or less)"
    )
    log_every: int = setting(10, "steps between lines of metrics.jsonl", ge=1)
    log_layers: bool = setting(False, 'the gradient norm of every layer in these lines, as "grad_norm/decoder.0"')
    tensorboard: bool = setting(False, "write for TensorBoard as well, into the run's folder (extra: tensorboard)")
    wandb: bool = setting(False, "report to Weights & Biases as well (extra: wandb)")
    bad_steps: int = setting(
        5, "so many steps in a row whose loss or gradient is not finite end the run; before that they are skipped", ge=1
    )

    hang_seconds: float = setting(
        600.0,
        "several processes: where one does not answer for so long, or a step takes so much longer than any before it, all end; "
        "go on with --resume",
        ge=1,
        le=1e9,
    )

    def __post_init__(self) -> None:
        if self.clip is not None and self.clip <= 0:
            raise ConfigError('train.clip must be above 0; write "none" to switch clipping off')
        check(self, "train")
        if not all(0 <= beta < 1 for beta in self.betas):
            raise ConfigError(
                "train.betas must both be at least 0 and below 1, not {beta1}, {beta2}", self.betas[0], self.betas[1]
            )
        if self.r_drop and self.precision == "fp8":
            raise ConfigError("train.r_drop and train.precision=fp8 do not go together; set train.precision=auto")
        if self.shard and self.optimizer == "muon":
            raise ConfigError(
                "train.shard cuts the matrices that train.optimizer={optimizer} needs whole; set train.optimizer=adamw",
                self.optimizer,
            )
        if self.lora_rank and (self.precision == "fp8" or self.optimizer != "adamw"):
            raise ConfigError("LoRA goes with train.precision=auto and train.optimizer=adamw; set those")
