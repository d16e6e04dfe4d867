"""What `train` says before its first step: what will be trained, on what, for how long, what was left out of the data, and where
it will probably not work; and after its last one: which weights it leaves, and why. `plan` shows the same beside its figures.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import torch

from glassformer.config import DecodeConfig, Recipe
from glassformer.data.batches import Batches, SentenceBatches
from glassformer.data.examples import Examples
from glassformer.data.report import DataReport
from glassformer.evaluation.generated import metric_of
from glassformer.evaluation.metrics import BETTER_WHEN_LOWER, NOISE, measure_name, measure_value
from glassformer.language import _, localized, padded, width
from glassformer.models.costs import costs
from glassformer.runs.checkpoint import Damaged, read_state
from glassformer.runs.folder import RunFolder
from glassformer.runs.session import Session
from glassformer.screen import short

MANY_EPOCHS = 200
WORTH_SAYING = 0.01  # the share of val targets that are too long to be written
SEEN_ENOUGH = 20  # times a token of the vocabulary is met in the training data, on average
SINGLE_BYTES = 256  # a vocabulary of pieces has these anyway
FAMILIES = {"transformer": _("encoder-decoder"), "gpt": "GPT", "bert": "BERT"}


def too_long(batches: Batches, split: str, recipe: Recipe) -> Iterator[str]:
    """How many examples are longer than what a model can read or was told to learn, and what would keep them whole."""
    if not isinstance(batches, SentenceBatches):
        return
    windowed = int((np.diff(np.flatnonzero(np.diff(batches.numbers, prepend=-1, append=-2))) > 1).sum())
    count, total = batches.dropped or windowed, batches.dropped + len(batches.distinct)
    if not count:
        return
    lengths = np.maximum(batches.examples.source_lengths, batches.examples.row_lengths)
    given = recipe.data.max_length
    asked = given is not None and given < recipe.model.block_size and split == "train"
    setting, limit = ("data.max_length", given) if asked else ("model.block_size", recipe.model.block_size)
    counts = {
        "count": count,
        "total": total,
        "split": split,
        "share": count / total,
        "setting": setting,
        "limit": limit,
    }
    if windowed:
        yield _(
            "{count:,} of {total:,} {split} examples ({share:.1%}) have more than {setting}={limit} tokens and are read in "
            "overlapping windows",
            **counts,
        )
        return
    yield _(
        "{count:,} of {total:,} {split} examples ({share:.1%}) have more than {setting}={limit} tokens and are left "
        "out; 99% have at most {most}",
        **counts | {"most": int(np.quantile(lengths, 0.99, method="higher"))},
    )


def data_notes(session: Session) -> Iterator[str]:
    """A sentence for each thing that was left out of the data, or was hardly meant."""
    report = DataReport.read(session.run.path / "data")
    if report is not None:
        yield from report.notes()
    yield from too_long(session.trainer.batches, "train", session.recipe)
    yield from too_long(session.val_batches, "val", session.recipe)


def cpu_in_words() -> str:
    """The processor, and how many threads of it are used."""
    threads = torch.get_num_threads()
    return _("CPU, {threads} thread{plural}", threads, "" if threads == 1 else "s")


def device_in_words(session: Session) -> str:
    """The device and the precision."""
    trainer, config, size = session.trainer, session.config, session.trainer.processes.size
    precision = config.precision if config.precision != "auto" else ("bf16" if trainer.autocast else "fp32")
    if trainer.device.type == "cuda":
        compiled = ", compiled" if config.compile is not False else ""
        device = f"{torch.cuda.get_device_name(trainer.device)}, {precision}{compiled}"
    else:
        device = f"{localized(cpu_in_words())}, {precision}"
    return device if size == 1 else _("{count} processes, each: {device}", size, device)


def model_in_words(session: Session) -> str:
    """The model's family and size."""
    config = session.recipe.model
    layers = f"{config.encoder_layers}+{config.n_layer}" if config.family == "transformer" else str(config.n_layer)
    count, inner = session.model.num_params(), session.model.num_params(non_embedding=True)
    what = FAMILIES[config.family], layers, "" if layers == "1" else "s", config.n_embd, count, inner
    return _(
        "{families}, {layers} layer{plural} of {n_embd}, {count:,} parameters ({inner:,} without embeddings)", *what
    )


def examples_in_words(session: Session, report: DataReport | None) -> str:
    """How many examples each split has, and how the splits came about."""
    if report is None:
        return _("{batches:,} to learn from", size_of(session.trainer.batches))
    splits = [split for split in ("train", "val", "test") if split in report.examples]
    counts = ", ".join(f"{split} {report.examples[split]:,}" for split in splits)
    if session.recipe.data.task == "text":
        blocks, size = size_of(session.trainer.batches), session.recipe.model.block_size
        counts = localized(
            _("{blocks:,} blocks of {size} tokens to learn from; documents: {counts}", blocks, size, counts)
        )
    origin = report.splits_in_words(session.recipe.data)
    return f"{counts}; {localized(origin)}" if origin else counts


def left_out_in_words(session: Session, report: DataReport | None) -> str:
    """The number of examples left out of training, by reason; empty where none were."""
    reasons = {_("too long"): getattr(session.trainer.batches, "dropped", 0)}
    if report is not None:
        reasons |= {_("with an empty side"): sum(report.empty.values()), _("unreadable"): report.skipped}
        reasons |= {_("that would give away held-out ones"): report.left_out}
    return ", ".join(f"{count:,} {localized(reason)}" for reason, count in reasons.items() if count)


def vocabulary_in_words(session: Session) -> str:
    """The kind of tokens and how many there are."""
    tokenizers = session.tokenizers
    sizes = dict.fromkeys([tokenizers.source.vocab_size, tokenizers.target.vocab_size])
    return _("{tokenizer}, {counts} tokens", tokenizers.target.kind, " + ".join(f"{size:,}" for size in sizes))


def size_of(batches: Batches) -> int:
    """Examples an epoch, or blocks of a text."""
    return len(batches.distinct) if isinstance(batches, SentenceBatches) else int(getattr(batches, "blocks", 0))


def tokens_an_epoch(batches: Batches) -> int:
    """Tokens that are learned from once all examples have been seen."""
    if isinstance(batches, SentenceBatches):
        return int(batches.target.sum())
    return size_of(batches) * int(getattr(batches, "stride", getattr(batches, "block_size", 0)))


def steps_an_epoch(session: Session) -> float:
    """Updates until every example has been seen once as it was given, however often the training data has it cut or changed
    otherwise."""
    return session.trainer.batches.epoch_length(session.trainer.progress.epoch) / session.recipe.data.copies


def bytes_a_parameter(recipe: Recipe) -> int:
    """Bytes that do not depend on the batch: weights, gradients, two moments (Adam's; Muon has one for its matrices, which is
    counted as if it were two) and the moving average, in float32."""
    return 4 * (4 + (recipe.train.ema is not None))


def cost_in_words(session: Session) -> str:
    """Arithmetic and memory, counted."""
    recipe, config = session.recipe, session.config
    tokens = tokens_an_epoch(session.trainer.batches) / steps_an_epoch(session) / recipe.data.copies * config.steps
    flops = costs(recipe.model).training_flops * tokens * (2 if config.r_drop else 1)
    fixed = session.model.num_params() * bytes_a_parameter(recipe)
    return _(
        "{tokens} target tokens, {flops}FLOP; {bytes}B for weights, gradients and optimizer",
        *map(short, (tokens, flops, fixed)),
    )


def rows_of(session: Session) -> dict[str, str]:
    """The table, by its labels."""
    config, epoch = session.config, steps_an_epoch(session)
    report = DataReport.read(session.run.path / "data")
    epochs = f"{config.steps / epoch:,.{1 if config.steps < 10 * epoch else 0}f}"
    measure = measure_name(metric_of(session.recipe))
    rows = {
        _("device"): device_in_words(session),
        _("model"): model_in_words(session),
        _("changed by"): session.run.facts.get("build", ""),
        _("examples"): examples_in_words(session, report),
        _("left out"): left_out_in_words(session, report),
        _("vocabulary"): vocabulary_in_words(session),
        _("steps"): _("{steps:,}, {epoch:,.0f} an epoch: {epochs} epochs", config.steps, max(1.0, epoch), epochs),
        _("best is by"): _("{measure} on val, every {validate_every:,} steps", measure, config.validate_every),
        _("cost"): cost_in_words(session),
    }
    return {localized(label): localized(text) for label, text in rows.items() if text}


def schedule_warnings(recipe: Recipe, epoch: float, count: int) -> Iterator[str]:
    """Where the number of steps will probably not do, a sentence each, with what to change. `epoch`: the steps in which `count`
    examples, or blocks of text, are seen once."""
    config, epochs = recipe.train, recipe.train.steps / epoch
    if epochs > MANY_EPOCHS and config.patience is None:
        what = _("blocks of text") if recipe.data.task == "text" else _("examples")
        yield _(
            "{epochs:,.0f} epochs of {count:,} {what}: the model will know them by heart long before; fewer steps "
            "(train.steps={epoch} is 50 epochs), or train.patience=5 to stop when it gets no better",
            *(epochs, count, what, max(1, round(50 * epoch))),
        )
    if config.warmup >= config.steps and config.schedule != "constant":
        yield _(
            "train.warmup={warmup} is not over when the run is (train.steps={steps}): the learning rate never "
            "reaches its height; train.warmup={value} would",
            *(config.warmup, config.steps, max(1, config.steps // 10)),
        )
    if config.validate_every > config.steps:
        yield _(
            "train.validate_every={validate_every} is more than all {steps:,} steps: the only validation is "
            "the last, so there is no best one to choose",
            *(config.validate_every, config.steps),
        )


def cut_targets(examples: Examples, config: DecodeConfig) -> Iterator[str]:
    """How many targets of val are longer than an answer to their source may be, so that no training makes them right."""
    sources, targets = examples.source_lengths, examples.row_lengths - 1  # BOS is not written
    most = np.floor(config.max_ratio * sources + config.max_extra)
    if config.max_new_tokens is not None or np.mean(targets > most) < WORTH_SAYING:
        return
    yield _(
        "{count:,} of {total:,} val targets are longer than decode.max_ratio={ratio:g} and decode.max_extra={extra} allow, and "
        "cannot be written; decode.max_ratio={better} would do",
        count=int((targets > most).sum()),
        total=len(targets),
        ratio=config.max_ratio,
        extra=config.max_extra,
        better=math.ceil(np.max((targets - config.max_extra) / np.maximum(1, sources))),
    )


def warnings(session: Session) -> Iterator[str]:
    """Where it will probably not work, a sentence each, with what to change."""
    batches, config = session.trainer.batches, session.recipe.data
    count = size_of(batches) // config.copies
    yield from schedule_warnings(session.recipe, steps_an_epoch(session), count)
    val = session.val_batches
    if config.task == "pairs" and isinstance(val, SentenceBatches) and val.examples.has_source:
        yield from cut_targets(val.examples, session.recipe.decode)
    size = session.tokenizers.target.vocab_size
    if config.tokenizer not in ("bpe", "unigram") or config.tokenizer_file is not None or config.multiplied:
        return  # the size is what occurs anyway, or somebody's choice
    tokens = tokens_an_epoch(batches)
    if config.task == "pairs" and session.tokenizers.shared and isinstance(batches, SentenceBatches):
        tokens += 0 if batches.source is None else int(batches.source.sum())
    met = tokens / max(1, size)
    if met < SEEN_ENOUGH and size > 2 * SINGLE_BYTES:
        better = max(2 * SINGLE_BYTES, int(size * met / (2 * SEEN_ENOUGH)) // 100 * 100)
        yield _(
            "a vocabulary of {size:,} for {count:,} examples: a token is met {met:.1f} times on average, too few to learn "
            "what it means; data.vocab_size={better} gives shorter pieces that are met more often",
            *(size, count, met, better),
        )


def overview(session: Session) -> Iterator[str]:
    """The first screen of a training, line by line."""
    rows = rows_of(session)
    wide = max(map(width, rows))
    yield f"{session.recipe.name}: {session.run.path}"
    for label, text in rows.items():
        yield f"  {padded(label, wide)}  {text}"
    for text in warnings(session):
        yield _("warning: {text}", text)


def which_weights(run: RunFolder, recipe: Recipe) -> str:
    """Which step became the final model, and why, in a sentence."""
    state: dict[str, Any] = {}
    with suppress(Damaged):
        state = read_state(run.final)
    weights, metric = state.get("weights", {}), metric_of(recipe)
    averaged = weights.get("averaged", [])
    if len(averaged) > 1:
        return _(
            "the mean of the weights at {n_steps} steps, {first:,} to {last:,} (train.average_last={average_last})",
            *(len(averaged), averaged[0], averaged[-1], recipe.train.average_last),
        )
    step = averaged[0] if averaged else weights.get("step", state.get("step"))
    scores = {line["step"]: line[f"val_{metric}"] for line in run.metrics() if f"val_{metric}" in line}
    if step not in scores:
        return _("the weights of step {step:,}", step)
    if metric not in BETTER_WHEN_LOWER and scores[step] < NOISE:
        return _(
            "the weights of step {step:,}, with the lowest loss on val ({measure} never reached {noise:.0f})",
            *(step, measure_name(metric), NOISE),
        )
    return _(
        "the weights of step {step:,}, with the best {measure} on val ({best}, of {count} validation{plural})",
        *(
            step,
            measure_name(metric),
            measure_value(metric, scores[step]),
            len(scores),
            "s" if len(scores) != 1 else "",
        ),
    )
