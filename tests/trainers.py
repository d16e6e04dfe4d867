"""Small trainers of every task, and the steps they take."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from glassformer.config import DataConfig, ModelConfig, TrainConfig
from glassformer.data.batches import Batch, Batches, EpochPlan, SentenceBatches, examples_for
from glassformer.data.tokens import TokenFile
from glassformer.evaluation.teacher_forced import batch_loss
from glassformer.models import build_model
from glassformer.nn.loss import IGNORE
from glassformer.text.tokenizer import CONTROL
from glassformer.training.optim import make_optimizers, schedule
from glassformer.training.progress import StepReport
from glassformer.training.trainer import Trainer

WORDS = 31
CPU = torch.device("cpu")
SMALL = ModelConfig(vocab_size=WORDS, block_size=64, n_layer=2, n_head=2, n_embd=16, n_hidden=32, dropout=0.0)
TASKS: dict[str, tuple[ModelConfig, DataConfig]] = {
    "transformer": (SMALL, DataConfig()),
    "gpt prompt and answer": (replace(SMALL, family="gpt"), DataConfig(prompt_answer=True)),
    "bert classify": (replace(SMALL, family="bert", head="classify", n_label=4), DataConfig(task="classify")),
    "bert tag": (replace(SMALL, family="bert", head="tag", n_label=4), DataConfig(task="tag")),
}


def lines(n: int, seed: int, longest: int = 17) -> list[list[int]]:
    """Ragged: some are empty, some are long."""
    draw = random.Random(seed)
    return [[draw.randrange(CONTROL, WORDS) for _ in range(draw.randint(0, longest))] for _ in range(n)]


def files_of(data: DataConfig, n: int, seed: int = 0) -> dict[str, Any]:
    text = lines(n, seed)
    if data.task == "pairs":
        return {"source": TokenFile.of(text, WORDS), "target": TokenFile.of(lines(n, seed + 1), WORDS)}
    if data.task == "classify":
        return {"text": TokenFile.of(text, WORDS), "labels": np.array([len(line) % 4 for line in text])}
    tags = [[t % 4 if place % 3 else IGNORE for place, t in enumerate(line)] for line in text]
    return {"text": TokenFile.of(text, WORDS), "labels": TokenFile.of(tags)}


def batches_of(task: str, n: int = 40, *, layout: str = "padded", budget: int = 120, seed: int = 1) -> SentenceBatches:
    model, data = TASKS[task]
    examples = examples_for(data, model.family, model.head, files_of(data, n))
    return SentenceBatches(examples, budget=budget, limit=64, layout=layout, row_width=48, seed=seed)


class Given(Batches):
    """These batches in this order, again and again."""

    def __init__(self, made: Iterable[Batch]) -> None:
        super().__init__(seed=0)
        self.made = tuple(made)

    def plan(self, epoch: int) -> EpochPlan:
        return EpochPlan(len(self.made), self.made.__getitem__)

    def in_order(self, budget: int | None = None, *, limit: int | None = None) -> Iterator[Batch]:
        yield from self.made


class Notes:
    """Keeps what the trainer tells."""

    def __init__(self) -> None:
        self.reports: list[StepReport] = []
        self.messages: list[str] = []

    def on_log(self, report: StepReport) -> None:
        self.reports.append(report)

    def on_message(self, text: str) -> None:
        self.messages.append(text)


def make_trainer(
    shape: ModelConfig, batches: Batches, *, dtype: torch.dtype = torch.float64, **settings: Any
) -> Trainer:
    config = TrainConfig(**{"steps": 50, "log_every": 1, "warmup": 2, "learning_rate": 1e-2, **settings})
    torch.manual_seed(3)
    model = build_model(shape).to(dtype)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p), alpha=0.05)  # no parameter is at a special value
    if config.checkpoint_activations:
        model.checkpoint_activations()
    return Trainer(
        model,
        lambda batch: batch_loss(model, batch, config.label_smoothing),
        batches,
        make_optimizers(model, config),
        schedule(config, shape.n_embd),
        config,
        callbacks=[Notes()],
        device=CPU,
    )


def reports(trainer: Trainer) -> list[StepReport]:
    return trainer.callbacks[0].reports  # type: ignore[attr-defined]


def weights(trainer: Trainer) -> dict[str, Tensor]:
    return {n: p.detach().clone() for n, p in trainer.model.named_parameters()}


def gradient(trainer: Trainer, micro: list[Batch]) -> tuple[Tensor, dict[str, Tensor]]:
    """Loss a token and the gradients a step would use."""
    trainer.model.zero_grad()
    total = sum(b.target_tokens for b in micro)
    summed = trainer.gradients(micro, total)
    named = trainer.model.named_parameters()
    return summed / total, {n: p.grad.clone() for n, p in named if p.grad is not None}


def assert_close(one: dict[str, Tensor], other: dict[str, Tensor], most: float) -> None:
    assert one.keys() == other.keys()
    for name in one:
        assert (one[name] - other[name]).abs().max() <= most, name
