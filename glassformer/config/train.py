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

    Attributes:
        steps: updates of the weights
        seed: of the first weights, of dropout and of the order of batches; the same seed repeats the run
        device: auto: CUDA where there is one; mps: a GPU of Apple's, which may work and is not tested
        precision: auto: bf16 autocast on CUDA, fp32 elsewhere; fp8: bf16, and most matrix products in 8 bits (see
            accel/fp8.py)
        compile: compile the loss with torch.compile; none: on CUDA only
        capture: replay the whole step as one CUDA graph; none: on CUDA, if compiled and batches have one shape
        deterministic: the same numbers to the bit on CUDA too, at some cost of speed (on a CPU they are anyway)
        threads: threads on a CPU; none: as many as torch finds
        optimizer: adamw; muon: Newton-Schulz steps for the matrices inside blocks, AdamW for the rest
        learning_rate: the highest rate of the schedule (for noam, see noam_factor)
        muon_learning_rate: for the matrices, where the optimizer is muon
        betas: AdamW's decay rates of the mean of the gradient and of its square
        eps: AdamW's guard against division by zero
        weight_decay: how much of a matrix is taken off a step, times the rate; biases, norms and embeddings are
            spared
        decay_embeddings: let weight decay touch the embeddings too
        schedule: the rate after warm-up: as one over root of the step (noam), half a cosine, flat and then down
            (wsd), constant
        warmup: steps in which the rate rises from nothing
        decay_fraction: wsd: the last part of the run, in which the rate falls to zero
        min_rate: cosine: where it ends, as a fraction of learning_rate
        noam_factor: noam: times the paper's rate, which follows from n_embd and warmup
        label_smoothing: the share of probability that the right token gives away to all others
        r_drop: above 0: every batch twice, and so much weight on what the two passes disagree in (see
            training/r_drop.py)
        freeze: what does not learn, by patterns of parameters' names, such as ["encoder.*", "*embedding*"]
        lora_rank: above 0: LoRA, all matrices stay and learn a correction of this rank each, and little else learns
            (see nn/lora.py)
        lora_alpha: a correction counts alpha / rank
        lora_targets: which linear layers, by patterns of their names
        clip: the largest norm of the gradient; "none": no limit
        accumulate: pieces in which a step goes through its batch: less memory, the same gradient (dropout aside)
        checkpoint_activations: keep little for the backward pass and compute it again: less memory, a third slower
        shard: split weights, gradients and optimizer over the processes (FSDP2), for a model that does not fit one
            device; one process has all of it
        ema: decay of a moving average of the weights, such as 0.999, which is then what is validated and used; none:
            no average
        average_last: the final weights are the mean of the last so many snapshots; 0: those of the best checkpoint
        snapshot_every: steps between snapshots; none: save_every
        validate_every: steps between validations
        validate_examples: at most so many examples are decoded (greedily) for a score; 0: only the loss is measured
        metric: what "best" means; auto: bleu for pairs (exact_match where most targets have fewer than four words),
            accuracy for labels, else loss. The lower loss is better where scores are equal or below 1 of 100
        bleu_tokenize: how sacrebleu cuts words; auto: zh for Chinese, else 13a
        patience: stop early after so many validations without a better metric; none: never
        save_every: steps between checkpoints; the best one and the last are kept as well
        keep_last: how many checkpoints are kept
        history: keep the weights at steps 0, 10, 30, 100 …; none: of a small model (16 MB or less)
        log_every: steps between lines of metrics.jsonl
        log_layers: the gradient norm of every layer in these lines, as "grad_norm/decoder.0"
        tensorboard: write for TensorBoard as well, into the run's folder (extra: tensorboard)
        wandb: report to Weights & Biases as well (extra: wandb)
        bad_steps: so many steps in a row whose loss or gradient is not finite end the run; before that they are
            skipped
        hang_seconds: several processes: where one does not answer for so long, or a step takes so much longer than
            any before it, all end; go on with --resume
    """

    steps: int = setting(2000, ge=1, le=10**12)
    seed: int = 1
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    precision: Literal["auto", "fp32", "bf16", "fp8"] = "auto"
    compile: bool | None = None
    capture: bool | None = None
    deterministic: bool = False
    threads: int | None = setting(None, ge=1, le=1024)
    optimizer: Literal["adamw", "muon"] = "adamw"
    # At most 1e100 is beyond float32, so that what happens then can be tried.
    learning_rate: float = setting(1e-3, gt=0, le=1e100)
    muon_learning_rate: float = setting(0.02, gt=0, le=1e6)
    betas: tuple[float, float] = (0.9, 0.98)
    eps: float = setting(1e-9, gt=0, le=1)
    weight_decay: float = setting(0.0, ge=0, le=1e6)
    decay_embeddings: bool = False
    schedule: Literal["noam", "cosine", "wsd", "constant"] = "cosine"
    warmup: int = setting(100, ge=0, le=10**12)
    decay_fraction: float = setting(0.2, ge=0, le=1)
    min_rate: float = setting(0.0, ge=0, le=1)
    noam_factor: float = setting(1.0, gt=0, le=1e9)
    label_smoothing: float = setting(0.0, ge=0, lt=1)
    r_drop: float = setting(0.0, ge=0, le=1e9)
    freeze: tuple[str, ...] = ()
    lora_rank: int = setting(0, ge=0, le=10**4)
    lora_alpha: float = setting(16.0, gt=0, le=1e6)
    lora_targets: tuple[str, ...] = ("encoder.*", "decoder.*")
    clip: float | None = setting(1.0, le=1e30)
    accumulate: int = setting(1, ge=1, le=10**6)
    checkpoint_activations: bool = False
    shard: bool = False
    ema: float | None = setting(None, gt=0, lt=1)
    average_last: int = setting(0, ge=0, le=10**4)
    snapshot_every: int | None = setting(None, ge=1)
    validate_every: int = setting(500, ge=1)
    validate_examples: int = setting(1000, ge=0)
    metric: Literal["auto", "loss", "exact_match", "bleu", "chrf", "accuracy", "f1"] = "auto"
    bleu_tokenize: Literal["auto", "13a", "zh", "intl", "char", "none"] = "auto"
    patience: int | None = setting(None, ge=1)
    save_every: int = setting(500, ge=1)
    keep_last: int = setting(2, ge=1, le=10**6)
    history: bool | None = None
    log_every: int = setting(10, ge=1)
    log_layers: bool = False
    tensorboard: bool = False
    wandb: bool = False
    bad_steps: int = setting(5, ge=1)

    hang_seconds: float = setting(600.0, ge=1, le=1e9)

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
