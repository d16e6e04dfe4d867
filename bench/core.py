"""Forward and backward pass of the paper's base model: ours, torch.nn.Transformer and Hugging Face Marian, side by side.

    python3 bench/core.py                  # dropout off: the same arithmetic for all three
    python3 bench/core.py --dropout 0.1    # as the paper trains; each drops where its own code drops

The same sizes for all: 6+6 layers, width 512, 8 heads, 2048 hidden, ReLU, post-norm, sinusoids, one table of 37,000 words
for source, target and output; cross-entropy; float32; no padding. A step is loss and gradients, without the optimizer.
The three take turns in one process, in an order that rotates, so that whatever else the machine does falls on all of them;
medians are reported, by the clock and of processor time (all threads together), which a busy machine distorts less, and
the median of the ratios within each turn. Memory is measured apart, each in a process of its own: how far the process
grows over two steps beyond the model already built.
"""

from __future__ import annotations

import argparse
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parents[1]))

from glassformer.models import Transformer, preset
from glassformer.nn import Rows, sinusoids

WORDS, WIDTH = 37000, 512
Step = Callable[[Tensor, Tensor, Tensor], Tensor]


def ours(dropout: float) -> tuple[nn.Module, Step]:
    model = Transformer(replace(preset("transformer-base"), dropout=dropout))

    def step(source: Tensor, target: Tensor, labels: Tensor) -> Tensor:
        return model.loss(Rows.whole(source), Rows.whole(target), labels) / labels.numel()

    return model, step


class TorchTransformer(nn.Module):
    """torch.nn.Transformer with what it leaves to its user: embeddings, positions, the causal mask, the tied output."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        nn.init.normal_(self.embedding.weight, std=WIDTH**-0.5)
        self.register_buffer("positions", sinusoids(512, WIDTH).float())
        self.drop = nn.Dropout(dropout)
        self.body = nn.Transformer(WIDTH, 8, 6, 6, 2048, dropout, batch_first=True)

    def embed(self, tokens: Tensor) -> Tensor:
        return self.drop(self.embedding(tokens) * math.sqrt(WIDTH) + self.positions[: tokens.size(1)])

    def forward(self, source: Tensor, target: Tensor, labels: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(target.size(1))
        x = self.body(self.embed(source), self.embed(target), tgt_mask=mask, tgt_is_causal=True)
        return F.cross_entropy(F.linear(x, self.embedding.weight).flatten(0, 1), labels.flatten())


def torch_nn(dropout: float) -> tuple[nn.Module, Step]:
    model = TorchTransformer(dropout)
    return model, model


def marian(dropout: float) -> tuple[nn.Module, Step]:
    from transformers import MarianConfig, MarianMTModel

    config = MarianConfig(
        vocab_size=WORDS,
        d_model=WIDTH,
        encoder_layers=6,
        decoder_layers=6,
        encoder_attention_heads=8,
        decoder_attention_heads=8,
        encoder_ffn_dim=2048,
        decoder_ffn_dim=2048,
        activation_function="relu",
        dropout=dropout,
        attention_dropout=0.0,
        activation_dropout=0.0,
        scale_embedding=True,
        max_position_embeddings=512,
        pad_token_id=WORDS - 1,
        decoder_start_token_id=WORDS - 1,
        attn_implementation="sdpa",
        use_cache=False,
    )
    model = MarianMTModel(config)

    def step(source: Tensor, target: Tensor, labels: Tensor) -> Tensor:
        return model(input_ids=source, decoder_input_ids=target, labels=labels).loss

    return model, step


CONTESTANTS: dict[str, Callable[[float], tuple[nn.Module, Step]]] = {
    "glassformer": ours,
    "torch.nn.Transformer": torch_nn,
    "HF MarianMTModel": marian,
}


def batch(rows: int, length: int) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(1)
    source, target, labels = (torch.randint(1, WORDS - 1, (rows, length)) for _ in range(3))
    return source, target, labels


def run(model: nn.Module, step: Step, inputs: tuple[Tensor, Tensor, Tensor]) -> tuple[float, float]:
    """Seconds by the clock, and seconds of processor time of all threads together."""
    model.zero_grad(set_to_none=True)
    start, start_of_work = time.perf_counter(), time.process_time()
    step(*inputs).backward()
    return time.perf_counter() - start, time.process_time() - start_of_work


def peak_memory() -> int:
    """Of this process since it began, in bytes. (Linux; `getrusage` would tell the parent's peak where that was higher.)"""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1])


def peak_growth(name: str, args: argparse.Namespace) -> None:
    """In a process of its own: prints by how many bytes two steps raise its peak."""
    model, step = CONTESTANTS[name](args.dropout)
    model.train()
    before = peak_memory()
    for _ in range(2):
        run(model, step, batch(args.rows, args.length))
    print(peak_memory() - before)


def measure_peak(name: str) -> int:
    done = subprocess.run([sys.executable, *sys.argv, "--peak-of", name], capture_output=True, text=True, check=True)
    return int(done.stdout.split()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--length", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--peak-of", choices=list(CONTESTANTS), help=argparse.SUPPRESS)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    if args.peak_of:
        peak_growth(args.peak_of, args)
        return
    inputs = batch(args.rows, args.length)
    built = {name: make(args.dropout) for name, make in CONTESTANTS.items()}
    for model, step in built.values():
        model.train()
        run(model, step, inputs)
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in built}
    names = list(built)
    for turn in range(args.repeats):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            times[name].append(run(*built[name], inputs))
    for model, _ in built.values():
        model.zero_grad(set_to_none=True)
    print(
        f"`python3 bench/core.py --dropout {args.dropout:g}`: batch {args.rows}, source and target {args.length}, "
        f"{WORDS:,} tied words, float32, {args.threads} threads, torch {torch.__version__}, "
        f"medians of {args.repeats} turns.\n"
    )
    print(
        "| | parameters | by the clock | beside ours | fastest turn | processor time | beside ours | memory of a step |"
    )
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for name, (model, _) in built.items():
        parameters = sum(p.numel() for p in model.parameters() if p.requires_grad)
        clock, work = (statistics.median(column) for column in zip(*times[name], strict=True))
        # Within a turn the machine is much the same for all, so the ratio is taken there.
        turns = list(zip(times[name], times["glassformer"], strict=True))
        beside = [statistics.median(theirs[i] / our[i] for theirs, our in turns) for i in (0, 1)]
        fastest = min(seconds for seconds, _ in times[name])
        print(
            f"| {name} | {parameters:,} | {clock:.2f} s | {beside[0]:.2f} | {fastest:.2f} s "
            f"| {work:.2f} s | {beside[1]:.2f} | {measure_peak(name) / 2**20:,.0f} MiB |"
        )


if __name__ == "__main__":
    main()
