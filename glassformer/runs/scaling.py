"""What N GPUs need for a training, computed from what one does: time, memory and traffic of a step, and what binds first.

A step on one GPU takes, for each of its `accumulate` micro-batches, a floor and the tokens' own time: T(n) = floor + n / rate.
On N GPUs the batch stays what it is, and each has 1/N of it. DDP (Li et al. 2020) keeps everything on every GPU and sums the
gradients once a step by a ring, which sends 2 (N-1)/N of their bytes from each GPU (Patarasuk & Yuan 2009), behind the
backward pass of the last micro-batch, two thirds of it. FSDP (Zhao et al. 2023), taken where that does not fit, keeps 1/N of
weights, gradients and moments, and two blocks whole; it sends (N-1)/N of the weights' bytes twice and of the gradients' once
for each micro-batch, behind everything. All is float32, as the trainer keeps it. Left out: the latency of messages, slow
machines, validation, reading data.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from glassformer.config import Recipe
from glassformer.language import _
from glassformer.models.costs import count_parameters
from glassformer.runs.plan import SAFE, TrainingPlan, bytes_a_parameter
from glassformer.screen import roughly

FLOOR = 3.7e-3 / 124.4e6
"""Seconds a parameter of a micro-batch however small: GPT-2 124M on one H200, captured, by its steps of 16 and 64 rows
(docs/results.md); taken in proportion to parameters for others."""
BLOCK_BYTES, CROSS_BYTES, LOGIT_BYTES = 34, 13, 2
"""Kept for the backward pass in bf16 with fused attention: bytes a token, a layer and a number of its width (Korthikanti et al.
2022, the terms without scores), those of a cross-attention, and those of each word's logit. For GPT-2 124M and 1.5B this is
within 3% of what was measured (docs/results.md)."""


@dataclass(frozen=True)
class Cluster:
    """What a cluster has: an H200's memory, eight GPUs a machine, NVLink in one direction and 400 Gbit/s of network for each."""

    memory: float = 141e9
    gpus_per_machine: int = 8
    inside: float = 450e9  # bytes a second
    network: float = 50e9

    def bandwidth(self, gpus: int) -> float:
        """Of the slowest link of a ring of so many."""
        return self.inside if gpus <= self.gpus_per_machine else self.network


@dataclass(frozen=True)
class OneGpu:
    """What one GPU does with a training, measured or stated."""

    parameters: int
    blocks: int
    fixed: float  # bytes of weights, gradients and the optimizer's state
    token_bytes: float  # of activations, a target token
    micro_tokens: float
    tokens_per_second: float  # in micro-batches of that size
    floor: float  # seconds of a micro-batch however small
    accumulate: int
    steps: int

    @property
    def rate(self) -> float:
        """Tokens a second beyond the floor."""
        return self.micro_tokens / (self.micro_tokens / self.tokens_per_second - self.floor)


@dataclass(frozen=True)
class Need:
    """What a training needs on so many GPUs; seconds and bytes are those of one step on each."""

    gpus: int
    accumulate: int
    micro_tokens: float
    shard: bool
    memory: float
    traffic: float
    work: float  # seconds for its tokens
    floor: float  # for being a step at all
    wait: float  # for the network, beyond what hides behind work
    seconds: float  # the whole training
    fits: bool

    @property
    def step(self) -> float:
        """Seconds of a step."""
        return self.work + self.floor + self.wait

    @property
    def binds(self) -> str:
        """What more of would help first."""
        if not self.fits:
            return _("memory")
        parts = ((self.work, _("compute")), (self.floor, _("batch")), (self.wait, _("network")))
        return max(parts, key=lambda part: part[0])[1]


def needs(one: OneGpu, gpus: int, cluster: Cluster) -> Need:
    """The training on so many GPUs, by DDP where it fits, else by FSDP."""
    pieces = math.ceil(one.accumulate / gpus)
    tokens = one.micro_tokens * one.accumulate / (gpus * pieces)
    work, floor = pieces * tokens / one.rate, pieces * one.floor
    ring, activations = 4 * one.parameters * (gpus - 1) / gpus, one.token_bytes * tokens
    memory, traffic, behind = one.fixed + activations, 2 * ring, 2 / 3 * (work + floor) / pieces
    shard = gpus > 1 and memory > SAFE * cluster.memory
    if shard:
        memory = one.fixed / gpus + activations + 2 * 4 * one.parameters / one.blocks
        traffic, behind = 3 * pieces * ring, work + floor
    wait = max(0.0, traffic / cluster.bandwidth(gpus) - behind)
    seconds = one.steps * (work + floor + wait)
    fits = memory <= SAFE * cluster.memory
    return Need(gpus, pieces, tokens, shard, memory, traffic, work, floor, wait, seconds, fits)


def n_blocks(recipe: Recipe) -> int:
    """The blocks of all stacks."""
    model = recipe.model
    return model.n_layer + (model.encoder_layers if model.family == "transformer" else 0)


def stated(recipe: Recipe, tokens_per_second: float) -> OneGpu:
    """One GPU of which the speed is stated; nothing is measured, and no data is read: the vocabulary is as large as it may be."""
    recipe = recipe.with_model(vocab_size=recipe.data.vocab_size)
    config, accumulate = recipe.model, recipe.train.accumulate
    parameters = count_parameters(config)
    crossing = config.n_layer if config.family == "transformer" else 0
    blocks = n_blocks(recipe)
    micro = recipe.data.batch_tokens / accumulate
    token_bytes = (BLOCK_BYTES * blocks + CROSS_BYTES * crossing) * config.n_embd + LOGIT_BYTES * config.vocab_size
    memory = parameters * bytes_a_parameter(recipe), token_bytes
    speed = micro, tokens_per_second, min(FLOOR * parameters, 0.5 * micro / tokens_per_second)
    return OneGpu(parameters, blocks, *memory, *speed, accumulate, recipe.train.steps)


def measured(recipe: Recipe, plan: TrainingPlan) -> OneGpu:
    """One GPU as `make_plan` found it."""
    accumulate = recipe.train.accumulate
    assert plan.tokens_per_second is not None
    micro = plan.step_tokens / accumulate
    memory = plan.fixed, (plan.memory - plan.fixed) / micro
    floor = min(plan.floor, 0.5 * micro / plan.tokens_per_second)
    speed = micro, plan.tokens_per_second, floor
    return OneGpu(plan.parameters, n_blocks(recipe), *memory, *speed, accumulate, plan.steps)


def rows(need: Need, alone: Need, cluster: Cluster) -> list[tuple[str, str]]:
    """As a table: what, how much; `alone` is the same on one GPU."""
    pieces = need.micro_tokens, need.accumulate
    memory = need.memory / 1e9, cluster.memory / 1e9, "train.shard=true" if need.shard else _("a copy each")
    step = [1e3 * seconds for seconds in (need.step, need.work, need.floor, need.wait)]
    spent = roughly(need.seconds), alone.seconds / need.seconds
    told = {
        _("batch"): _("{tokens:,.0f} target tokens a GPU and micro-batch, with train.accumulate={pieces}", *pieces),
        _("memory"): _(
            "{needed:.1f} GB of {available:.0f} GB a GPU, {sharded}; it {fits}",
            *memory,
            _("fits") if need.fits else _("does not fit"),
        ),
        _("traffic"): _("{gigabytes:.2f} GB a step from each GPU", need.traffic / 1e9),
        _("a step"): _(
            "{step:.1f} ms: {work:.1f} for its tokens, {floor:.1f} for being a step at all, {wait:.1f} for the network",
            *step,
        ),
        _("time"): _("{duration}, {times:.1f} times as fast as one GPU", *spent),
        _("binds first"): need.binds,
    }
    return list(told.items())
