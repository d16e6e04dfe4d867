"""Training speed on a CPU: target tokens a second of ours beside Hugging Face Marian and torch.nn.Transformer.

    python3 bench/train.py dates multi30k --data DIR     # DIR has train.en and train.de

Two pieces of work:

    dates      the built-in dates by the character; 2+2 layers, width 64, 4 heads, 256 hidden, about 2,816 tokens a batch
    multi30k   the first 5,000 pairs of Multi30k, English to German, 8,000 BPE pieces; a quarter-size base: half the width
               of the paper's base and half its layers (3+3 layers, width 256, 4 heads, 1,024 hidden), 2,048 tokens a batch

All three have the same sizes (pre-norm, ReLU, sinusoids, one table for source, target and output; Marian is post-norm, as
it always is), the same ids, AdamW fused, clipping to 1, label smoothing 0.1, float32. Ours is the trainer's own step on
its own batches. The others are fed the same sentences, one to a row, as many to a batch as ours has on average: (a) at
random, padded to the longest, and (b) sorted by target and source length first, the batches then shuffled. All make their
tensors from ids as they go. A target token is one that is learned from; padding never counts.

The five take turns in one process, in an order that rotates, so that whatever else the machine does falls on all of them;
a turn is several batches, and the median over the turns is reported.
"""

from __future__ import annotations

import argparse
import itertools
import math
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parents[1]))

from glassformer.config import DataConfig, ModelConfig, TrainConfig
from glassformer.data.batches import Batch, SentenceBatches
from glassformer.data.builtin import open_builtin
from glassformer.data.examples import Pairs
from glassformer.data.tokens import TokenFile
from glassformer.evaluation.teacher_forced import batch_loss
from glassformer.models import build_model
from glassformer.nn.loss import IGNORE
from glassformer.nn.positions import sinusoids
from glassformer.runs.setup import make_fast
from glassformer.text.tokenizer import BOS, EOS, PAD, Tokenizer
from glassformer.training.optim import make_optimizers, schedule
from glassformer.training.trainer import Trainer

SMOOTHING, CLIP, RATE = 0.1, 1.0, 1e-3
clock = time.perf_counter
Turn = Callable[[int], tuple[int, float]]  # so many batches -> target tokens, seconds


@dataclass(frozen=True)
class Work:
    name: str
    pairs: list[tuple[list[int], list[int]]]  # ids without control tokens
    words: int
    layers: int
    width: int
    heads: int
    hidden: int
    budget: int

    def files(self) -> Pairs:
        return Pairs(*(TokenFile.of([pair[side] for pair in self.pairs], self.words) for side in (0, 1)))


def waste(batches: Iterable[Batch]) -> float:
    """The part of all positions, source and target, that is padding."""
    real = total = 0
    for batch in batches:
        for rows in (batch.source, batch.rows):
            if rows is not None:
                real += int(rows.real.sum())
                total += rows.tokens.numel()
    return 1 - real / total if total else 0.0


def dates(args: argparse.Namespace) -> Work:
    texts = list(itertools.islice(open_builtin(DataConfig(builtin="dates"), "train"), args.sentences or 8000))
    tokenizer = Tokenizer.train("char", [t for pair in texts for t in pair], 1000)
    pairs = list(zip(*(tokenizer.encode_batch([p[side] for p in texts]) for side in (0, 1)), strict=True))
    return Work("dates", pairs, tokenizer.vocab_size, 2, 64, 4, 256, 2816)


def multi30k(args: argparse.Namespace) -> Work:
    if args.data is None:
        raise SystemExit("multi30k needs --data DIR, a folder with train.en and train.de")
    count = args.sentences or 5000
    sides = [
        (Path(args.data) / f"train.{side}").read_text(encoding="utf-8").splitlines()[:count] for side in ("en", "de")
    ]
    tokenizer = Tokenizer.train("bpe", sides[0] + sides[1], 8000)
    pairs = list(zip(*(tokenizer.encode_batch(side) for side in sides), strict=True))
    return Work("multi30k", pairs, tokenizer.vocab_size, args.layers, 256, 4, 1024, 2048)


# Ours -------------------------------------------------------------------------------------------------------------------


def ours(work: Work, batches: SentenceBatches, dropout: float) -> tuple[nn.Module, Turn]:
    longest = max(len(side) for pair in work.pairs for side in pair) + 1
    config = TrainConfig(learning_rate=RATE, label_smoothing=SMOOTHING, clip=CLIP, schedule="constant", log_every=10**9)
    model = build_model(
        ModelConfig(
            vocab_size=work.words,
            block_size=longest,
            n_layer=work.layers,
            n_head=work.heads,
            n_embd=work.width,
            n_hidden=work.hidden,
            dropout=dropout,
        )
    ).train()
    make_fast(model, torch.device("cpu"), compiled=False)
    trainer = Trainer(
        model,
        lambda batch: batch_loss(model, batch, SMOOTHING),
        batches,
        make_optimizers(model, config),
        schedule(config, work.width),
        config,
        callbacks=[],
        device=torch.device("cpu"),
    )

    def turn(count: int) -> tuple[int, float]:
        before, start = trainer.progress.tokens, clock()
        for _ in range(count):
            trainer.step()
        return trainer.progress.tokens - before, clock() - start

    return model, turn


# The others -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Padded:
    source: Tensor
    real: Tensor  # of the source
    target: Tensor
    labels: Tensor
    tokens: int


def filled(rows: list[list[int]], empty: int) -> Tensor:
    width = max(map(len, rows))
    return torch.tensor([row + [empty] * (width - len(row)) for row in rows])


def padded(pairs: list[tuple[list[int], list[int]]]) -> Padded:
    source, labels = filled([[*s, EOS] for s, _ in pairs], PAD), filled([[*t, EOS] for _, t in pairs], IGNORE)
    lengths = torch.tensor([len(s) + 1 for s, _ in pairs])
    real = torch.arange(source.size(1)) < lengths[:, None]
    return Padded(source, real, filled([[BOS, *t] for _, t in pairs], PAD), labels, int((labels != IGNORE).sum()))


Sentences = list[tuple[list[int], list[int]]]


def random_batches(work: Work, size: int) -> list[Sentences]:
    order = random.Random(1).sample(work.pairs, len(work.pairs))
    return [order[a : a + size] for a in range(0, len(order), size)]


def bucketed_batches(work: Work, size: int) -> list[Sentences]:
    order = sorted(work.pairs, key=lambda pair: (len(pair[1]), len(pair[0])))
    made = [order[a : a + size] for a in range(0, len(order), size)]
    random.Random(1).shuffle(made)
    return made


def padding(given: list[Sentences]) -> float:
    batches = [padded(sentences) for sentences in given]
    real = sum(int(b.real.sum()) + b.tokens for b in batches)
    return 1 - real / sum(b.source.numel() + b.target.numel() for b in batches)


class TorchTransformer(nn.Module):
    """torch.nn.Transformer with what it leaves to its user: embeddings, positions, masks, the tied output."""

    def __init__(self, work: Work, dropout: float) -> None:
        super().__init__()
        self.embedding = nn.Embedding(work.words, work.width)
        nn.init.normal_(self.embedding.weight, std=work.width**-0.5)
        self.register_buffer("positions", sinusoids(512, work.width).float())
        self.drop = nn.Dropout(dropout)
        self.scale = math.sqrt(work.width)
        self.body = nn.Transformer(
            work.width, work.heads, work.layers, work.layers, work.hidden, dropout, batch_first=True, norm_first=True
        )

    def embed(self, tokens: Tensor) -> Tensor:
        return self.drop(self.embedding(tokens) * self.scale + self.positions[: tokens.size(1)])

    def forward(self, batch: Padded) -> Tensor:
        causal = nn.Transformer.generate_square_subsequent_mask(batch.target.size(1))
        x = self.body(
            self.embed(batch.source),
            self.embed(batch.target),
            tgt_mask=causal,
            tgt_is_causal=True,
            src_key_padding_mask=~batch.real,
            memory_key_padding_mask=~batch.real,
        )
        return F.linear(x, self.embedding.weight)


class Marian(nn.Module):
    def __init__(self, work: Work, dropout: float) -> None:
        super().__init__()
        from transformers import MarianConfig, MarianMTModel

        self.body = MarianMTModel(
            MarianConfig(
                vocab_size=work.words,
                d_model=work.width,
                encoder_layers=work.layers,
                decoder_layers=work.layers,
                encoder_attention_heads=work.heads,
                decoder_attention_heads=work.heads,
                encoder_ffn_dim=work.hidden,
                decoder_ffn_dim=work.hidden,
                activation_function="relu",
                dropout=dropout,
                attention_dropout=0.0,
                activation_dropout=0.0,
                scale_embedding=True,
                max_position_embeddings=512,
                pad_token_id=PAD,
                bos_token_id=BOS,
                eos_token_id=EOS,
                decoder_start_token_id=BOS,
                forced_eos_token_id=None,
                attn_implementation="sdpa",
                use_cache=False,
            )
        )

    def forward(self, batch: Padded) -> Tensor:
        return self.body(
            input_ids=batch.source, attention_mask=batch.real.long(), decoder_input_ids=batch.target
        ).logits


def other(model: nn.Module, batches: list[Sentences]) -> Turn:
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.98), weight_decay=0.0, fused=True)
    stream: Iterator[Sentences] = itertools.cycle(batches)

    def turn(count: int) -> tuple[int, float]:
        tokens, start = 0, clock()
        for sentences in itertools.islice(stream, count):
            batch = padded(sentences)
            tokens += batch.tokens
            scores = model(batch).flatten(0, 1)
            F.cross_entropy(scores, batch.labels.flatten(), label_smoothing=SMOOTHING).backward()
            nn.utils.clip_grad_norm_(model.parameters(), CLIP)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        return tokens, clock() - start

    return turn


# The race ---------------------------------------------------------------------------------------------------------------


def race(work: Work, args: argparse.Namespace) -> None:
    torch.manual_seed(1)
    longest = max(len(side) for pair in work.pairs for side in pair) + 1
    batches = SentenceBatches(work.files(), budget=work.budget, limit=longest, layout="padded", seed=1)
    epoch = [batches.planned(0).build(k) for k in range(batches.epoch_length())]
    size = round(len(work.pairs) / len(epoch))
    at_random, bucketed = random_batches(work, size), bucketed_batches(work, size)
    model, our_turn = ours(work, batches, args.dropout)
    turns: dict[str, Turn] = {"glassformer": our_turn}
    models: dict[str, nn.Module] = {"glassformer": model}
    fed = {"glassformer": waste(epoch)}
    for name, kind in (("HF Marian", Marian), ("torch.nn.Transformer", TorchTransformer)):
        for how, given in (("random", at_random), ("bucketed", bucketed)):
            label = f"{name}, {how}"
            models[label] = kind(work, args.dropout).train()
            turns[label] = other(models[label], given)
            fed[label] = padding(given)
    for turn in turns.values():
        turn(2)  # warm up
    speeds: dict[str, list[float]] = {name: [] for name in turns}
    names = list(turns)
    for number in range(args.turns):
        for name in names[number % len(names) :] + names[: number % len(names)]:
            tokens, seconds = turns[name](args.batches)
            speeds[name].append(tokens / seconds)
    medians = {name: statistics.median(values) for name, values in speeds.items()}
    lengths = np.array([[len(s), len(t)] for s, t in work.pairs])
    threads = "1 thread" if args.threads == 1 else f"{args.threads} threads"
    print(
        f"\n`python3 bench/train.py {work.name}{' --cpu-time' if args.cpu_time else ''}`: {len(work.pairs):,} pairs (mean "
        f"length {lengths[:, 0].mean():.1f} to {lengths[:, 1].mean():.1f}), {work.words:,} words, "
        f"{work.layers}+{work.layers} layers, width {work.width}, {work.hidden:,} hidden, {work.heads} heads, dropout "
        f"{args.dropout:g}, about {size} sentences a batch; float32, {threads}{', processor time' if args.cpu_time else ''}, "
        f"torch {torch.__version__}; median of {args.turns} turns of {args.batches} batches.\n"
    )
    print("| | parameters | padding | target tokens/s | spread (quartiles) | ours beside it |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for name in names:
        parameters = sum(p.numel() for p in models[name].parameters() if p.requires_grad)
        low, _, high = statistics.quantiles(speeds[name], n=4) if len(speeds[name]) > 1 else [medians[name]] * 3
        print(
            f"| {name} | {parameters:,} | {100 * fed[name]:.1f}% | {medians[name]:,.0f} | {low:,.0f} to {high:,.0f} "
            f"| {medians['glassformer'] / medians[name]:.2f}x |"
        )
    goals = {"random": 1.5, "bucketed": 1.15}
    for how, goal in goals.items():
        least = min(medians["glassformer"] / medians[n] for n in names if n.endswith(how))
        print(f"\n{how}: at least {least:.2f}x (goal {goal}x{'' if least >= goal else ', not reached'})", end="")
    print()


WORKS = {"dates": dates, "multi30k": multi30k}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", nargs="*", choices=list(WORKS), default=["dates"])
    parser.add_argument("--data", help="a folder with Multi30k's train.en and train.de")
    parser.add_argument("--sentences", type=int, help="so many pairs (dates: 8,000, multi30k: 5,000)")
    parser.add_argument("--layers", type=int, default=3, help="multi30k: layers a side")
    parser.add_argument("--turns", type=int, default=11)
    parser.add_argument("--batches", type=int, default=8, help="a turn")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--cpu-time", action="store_true", help="one thread, processor time: for a busy machine")
    args = parser.parse_args()
    if args.cpu_time:
        global clock
        clock, args.threads = time.process_time, 1
    torch.set_num_threads(args.threads)
    for name in args.work:
        race(WORKS[name](args), args)


if __name__ == "__main__":
    main()
