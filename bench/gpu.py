"""Training speed on one GPU: useful target tokens a second, compilation stated apart.

    python3 bench/gpu.py gpt2                      # GPT-2 124M, batch 64 x 1024
    python3 bench/gpu.py base tiny big --data DIR  # encoder-decoder on Multi30k sentences (DIR has train.en, train.de)
    python3 bench/gpu.py gpt2 --precision fp8      # as train.precision=fp8 has it
    python3 bench/gpu.py gpt2 --curve 500          # loss curves side by side: bf16, bf16 from other weights, fp8

The step is the trainer's own, whole, as `glassformer train` takes it on a GPU by default (compiled, captured as one graph):
batch made and moved to the device, forward, backward, clipping, AdamW. Counted are the labels learned from, never
padding. `mfu` is model FLOPs (three forward passes, causal attention counted once) over the device's peak.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import json
import sys
import time
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from glassformer.config import TrainConfig
from glassformer.data.batches import BlockBatches, SentenceBatches
from glassformer.data.examples import Pairs
from glassformer.data.tokens import TokenFile
from glassformer.models import build_model, preset
from glassformer.runs.setup import compiled_loss, make_fast, set_up
from glassformer.text.tokenizer import Tokenizer
from glassformer.training.optim import make_optimizers
from glassformer.training.trainer import Trainer


def peak_flops() -> float:
    """Measured: the largest bf16 matrix product this device does."""
    a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    for _ in range(3):
        a @ a
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(10):
        a @ a
    torch.cuda.synchronize()
    return 10 * 2 * 8192**3 / (time.perf_counter() - start)


def measure(trainer: Trainer, args: argparse.Namespace, *, warm: int = 8, timed: int = 30) -> dict[str, float]:
    """Compile and warm up, then time the trainer's own steps, batches made as they go."""
    began = time.perf_counter()
    trainer.step()
    torch.cuda.synchronize()
    compiled = time.perf_counter() - began
    for _ in range(1, warm):
        trainer.step()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before, began = trainer.progress.tokens, time.perf_counter()
    for _ in range(timed):
        trainer.step()
    torch.cuda.synchronize()
    seconds = time.perf_counter() - began
    learned = trainer.progress.tokens - before
    report, _, _, values = trainer.pending[-1]
    if args.profile:
        from torch.profiler import ProfilerActivity, profile

        with profile(activities=[ProfilerActivity.CUDA]) as found:
            for _ in range(3):
                trainer.step()
            torch.cuda.synchronize()
        rows = sorted(found.key_averages(), key=lambda e: -e.self_device_time_total)
        print(f"  {sum(row.self_device_time_total for row in rows) / 3000:8.3f} ms  in all kernels of a step")
        for row in rows[: args.profile]:
            print(f"  {row.self_device_time_total / 3000:8.3f} ms  x{row.count / 3:6.1f}  {row.key[:110]}")
    return {
        "tokens_per_second": learned / seconds,
        "ms_a_step": 1000 * seconds / timed,
        "compile_s": compiled,
        "memory_gb": torch.cuda.max_memory_allocated() / 2**30,
        "loss": float(values[0]) / report.tokens,
    }


def trainer_of(model, batches, smoothing: float, args: argparse.Namespace, **settings) -> Trainer:
    device = torch.device("cuda")
    config = TrainConfig(log_every=10**9, **settings)
    model = model.to(device).train()
    make_fast(model, device, compiled=True, precision=args.precision)
    return Trainer(
        model,
        compiled_loss(model, smoothing),
        batches,
        make_optimizers(model, config),
        lambda step: config.learning_rate * min(1.0, step / 100),
        config,
        callbacks=[],
        device=device,
        autocast=torch.bfloat16,
        capture=True,
    )


def chain(size: int, words: int = 50257, followers: int = 16, lines: int = 4096) -> np.ndarray:
    """Words each of which may be followed by sixteen others, rare and frequent ones as in text (Zipf): first how frequent
    words are can be learned, then what follows what."""
    draw = np.random.default_rng(1)
    frequency = 1 / np.arange(1, words + 1)
    after = draw.choice(words, (words, followers), p=frequency / frequency.sum())
    odds = np.cumsum(1 / np.arange(1, followers + 1))
    text = np.empty((lines, -(-size // lines)), dtype=np.uint16)
    now = draw.integers(0, words, lines)
    for i in range(text.shape[1]):
        text[:, i] = now
        now = after[now, np.searchsorted(odds / odds[-1], draw.random(lines))]
    return text.reshape(-1)[:size]


def blocks(tokens: np.ndarray, rows: int, length: int) -> BlockBatches:
    text = TokenFile(tokens.astype(np.uint16), np.array([0, len(tokens)]), 50257)
    return BlockBatches(text, block_size=length, budget=rows * length, task="next", seed=1, one_shape=True, workers=2)


def gpt2(args: argparse.Namespace) -> dict[str, float]:
    config = dataclasses.replace(preset("gpt2"), dropout=0.0, attention_dropout=0.0)
    model = build_model(config)
    rows, length = args.rows, 1024
    # One token more than whole batches: every batch has all its rows.
    batches = blocks(np.random.default_rng(1).integers(0, 50257, 48 * rows * length + 1), rows, length)
    result = measure(trainer_of(model, batches, 0.0, args, weight_decay=0.1), args)
    matrices = model.num_params(non_embedding=True) + model.embedding.weight.numel()
    flops = 3 * (2 * matrices + 2 * 2 * config.n_layer * config.n_embd * length / 2)
    return result | {"shape": str(batches.shape), "flops_a_token": flops}


def free() -> None:
    gc.collect()
    torch.cuda.empty_cache()


def curve(args: argparse.Namespace, seed: int) -> tuple[np.ndarray, float]:
    """The loss of each step of GPT-2 on a chain of words, and tokens a second once it is compiled; batches are the same
    whatever the seed of the weights."""
    torch.manual_seed(seed)
    torch._dynamo.reset()
    model = build_model(dataclasses.replace(preset("gpt2"), dropout=0.0, attention_dropout=0.0))
    rows, length = args.rows, 1024
    batches = blocks(chain((args.curve * rows + 2) * length), rows, length)
    settings = {"weight_decay": 0.1, "learning_rate": 6e-4, "betas": (0.9, 0.95), "eps": 1e-8}
    trainer = trainer_of(model, batches, 0.0, args, **settings)
    began, before = 0.0, 0
    for step in range(args.curve):
        if step == min(20, args.curve // 2):
            torch.cuda.synchronize()
            began, before = time.perf_counter(), trainer.progress.tokens
        trainer.step()
    torch.cuda.synchronize()
    speed = (trainer.progress.tokens - before) / (time.perf_counter() - began)
    return np.array([float(values[0]) / report.tokens for report, _, _, values in trainer.pending]), speed


def curves(args: argparse.Namespace) -> dict[str, list[float]]:
    found = {}
    for name, precision, seed in (("bf16", "bf16", 0), ("bf16, other weights", "bf16", 1), ("fp8", "fp8", 0)):
        args.precision = precision
        found[name], speed = curve(args, seed)
        print(f"{name}: {speed / 1000:.1f}k tokens/s", flush=True)
        free()
    stretch = max(1, args.curve // 10)
    print("mean loss of the steps up to " + "  ".join(found))
    for end in range(stretch, args.curve + 1, stretch):
        means = [losses[end - stretch : end].mean() for losses in found.values()]
        print(f"{end:6d}  " + "  ".join(f"{mean:.4f}" for mean in means) + f"  fp8 - bf16 {means[2] - means[0]:+.4f}")
    return {name: losses.tolist() for name, losses in found.items()}


def seq2seq(name: str, args: argparse.Namespace) -> dict[str, float]:
    folder = Path(args.data)
    lines = [(folder / f"train.{side}").read_text(encoding="utf-8").splitlines() for side in ("en", "de")]
    tokenizer = Tokenizer.train("bpe", lines[0] + lines[1], 10000)
    files = [TokenFile.of(tokenizer.encode_batch(side), tokenizer.vocab_size) for side in lines]
    table = 10000 if name == "tiny" else 32000
    config = dataclasses.replace(preset(f"transformer-{name}"), vocab_size=table)
    batches = SentenceBatches(Pairs(*files), budget=32768, limit=128, layout="packed", seed=1, row_width=128, workers=2)
    result = measure(trainer_of(build_model(config), batches, 0.1, args), args)
    return result | {"shape": str(batches.shape)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", nargs="+", choices=["gpt2", "base", "tiny", "big"])
    parser.add_argument("--data", help="a folder with train.en and train.de")
    parser.add_argument("--rows", type=int, default=64, help="of 1,024 tokens a batch, of GPT-2")
    parser.add_argument("--profile", type=int, default=0, help="print so many of the most expensive kernels")
    parser.add_argument("--precision", choices=["bf16", "fp8"], default="bf16")
    parser.add_argument("--curve", type=int, default=0, help="GPT-2's loss curve over so many steps, bf16 and fp8")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    set_up(TrainConfig(), torch.device("cuda"))
    peak = peak_flops()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, measured peak {peak / 1e12:.0f} TFLOP/s")
    results: dict[str, object] = {}
    if args.curve:
        results = dict(curves(args))
        args.work = []
    for name in args.work:
        torch.manual_seed(0)
        torch._dynamo.reset()
        result = gpt2(args) if name == "gpt2" else seq2seq(name, args)
        if "flops_a_token" in result:
            result["mfu"] = result["flops_a_token"] * result["tokens_per_second"] / peak
        results[name] = result
        print(name, json.dumps({k: round(v, 4) if isinstance(v, float) else v for k, v in result.items()}), flush=True)
        free()
    if args.out:
        args.out.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
