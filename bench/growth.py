"""How cost grows: tokens a second and memory of a GPT's training step, against the length of a row, the size of the model
and the batch. One table and one picture each.

    python3 bench/growth.py                       # all that this device can do: length, size and batch on CUDA, length on a CPU
    python3 bench/growth.py length --device cpu
    python3 bench/growth.py size --out docs/figures
    python3 bench/growth.py --draw docs/figures/growth-cuda.json --out docs/figures   # again, from the numbers

A step is a whole one: forward, backward, clipping, AdamW; on CUDA in bf16 with each block and the loss compiled (a block
compiles once for all layers, in seconds) and the step recorded as one graph, on a CPU in float32 as it is. Speed is taken with
as many rows as make up a fixed number of tokens, so that only the length changes (the median step; on a CPU, which others may
be using, the fastest); memory is also taken with a single row (not compiled: a shape of its own would have to be), which shows
how it grows.

Peak memory: on CUDA what torch had allocated at most during a step that was not recorded; on a CPU the peak resident size of a
process that does nothing else. `step` is what a step needs beyond weights and optimizer. A configuration that does not fit
says so in its row, and one that would begin after --budget seconds is not begun. MFU is model FLOPs (see models/costs.py: three
forward passes, hidden keys not counted) over the device's peak: the data sheet's where the device is in the table, else a
measured product.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.growth_tables import keep, tell
from bench.growth_work import Work, cpu_work, cuda_work
from glassformer.accel import accelerate
from glassformer.config import ModelConfig, TrainConfig
from glassformer.models import GPT, build_model
from glassformer.models.costs import costs
from glassformer.nn.block import Block, BlockInputs
from glassformer.nn.rows import Rows
from glassformer.training import memory
from glassformer.training.optim import make_optimizers

PEAKS = {  # bf16 FLOP/s without sparsity, from the makers' data sheets
    "H200": 989e12,
    "H100 PCIe": 756e12,
    "H100": 989e12,
    "B200": 2250e12,
    "A100": 312e12,
    "L40S": 362e12,
    "RTX 4090": 165e12,
}


def peak_flops(device: torch.device) -> tuple[float, str]:
    if device.type == "cuda":
        name = torch.cuda.get_device_name()
        known = next((peak for part, peak in PEAKS.items() if part in name), None)
        if known is not None:
            return known, "data sheet"
    size, dtype = (8192, torch.bfloat16) if device.type == "cuda" else (1024, torch.float32)
    a = torch.randn(size, size, device=device, dtype=dtype)
    best = 0.0
    for _ in range(5):
        wait(device)
        began = time.perf_counter()
        a @ a
        wait(device)
        best = max(best, 2 * size**3 / (time.perf_counter() - began))
    return best, "measured"


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def one_block(layer: Block, x: torch.Tensor, inputs: BlockInputs) -> torch.Tensor:
    return layer(x, inputs)


class Training:
    """A model with its optimizer, and a step on random tokens."""

    side: torch.cuda.Stream | None = None  # one for all: torch keeps some memory for each stream that ever was

    def __init__(self, config: ModelConfig, device: torch.device) -> None:
        self.device = device
        torch.manual_seed(0)
        with device:
            model = build_model(config).train()
        assert isinstance(model, GPT)
        self.model = model
        self.optimizers = make_optimizers(model, TrainConfig(weight_decay=0.1))
        self.block: Callable[..., torch.Tensor] = one_block
        self.head: Callable[..., torch.Tensor] = model.cross_entropy

    def compile(self) -> None:
        accelerate(self.model, compiled=True)
        self.block = torch.compile(one_block, dynamic=False)
        self.head = torch.compile(self.model.cross_entropy, dynamic=False)

    def hidden(self, rows: Rows) -> torch.Tensor:
        """As GPT.hidden, with every block called in the same way, so that all share what was compiled for the first."""
        inputs = self.model.block_inputs(rows, causal=True)
        x = self.model.decoder_input(rows.tokens, rows.broadcast_positions, rows.shape[1], inputs.real)
        for layer in self.model.decoder.layers:
            x = self.block(layer, x, inputs)
        return x if self.model.decoder.norm is None else self.model.decoder.norm(x, inputs.real)

    def step(self, rows: Rows, labels: torch.Tensor) -> None:
        on_cuda = self.device.type == "cuda"
        with torch.autocast("cuda", torch.bfloat16, enabled=on_cuda):
            loss = self.head(self.hidden(rows), self.model.output_weight, labels)
        (loss / labels.numel()).backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

    def batch(self, rows: int, length: int) -> tuple[Rows, torch.Tensor]:
        drawn = torch.randint(0, self.model.config.vocab_size, (rows, length + 1), device=self.device)
        return Rows.whole(drawn[:, :-1].contiguous()), drawn[:, 1:].contiguous()

    def recorded(self, batch: tuple[Rows, torch.Tensor]) -> Callable[[], None]:
        """The whole step as one CUDA graph, as the trainer has it (training/graph.py)."""
        side = Training.side = Training.side or torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self.step(*batch)
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.step(*batch)
        return graph.replay

    def speed(self, rows: int, length: int, seconds: float) -> float:
        """Tokens a second."""
        batch = self.batch(rows, length)
        on_cuda = self.device.type == "cuda"
        step = self.recorded(batch) if on_cuda else lambda: self.step(*batch)
        step()
        wait(self.device)
        began, took = time.perf_counter(), list[float]()
        while len(took) < 3 or (time.perf_counter() - began < seconds and len(took) < 40):
            start = time.perf_counter()
            step()
            wait(self.device)
            took.append(time.perf_counter() - start)
        usual = statistics.median(took) if on_cuda else min(took)
        return rows * length / usual

    def peak(self, rows: int, length: int) -> tuple[int, int]:
        """Bytes at most during a step, and those of them that lie there between steps. On a CPU it must be the very first step
        of a process: what is freed later stays with the process."""
        batch = self.batch(rows, length)
        if self.device.type == "cuda":
            self.step(*batch)  # makes the optimizer's moments
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
            resting = torch.cuda.memory_allocated()
            torch.cuda.reset_peak_memory_stats()
            self.step(*batch)
            torch.cuda.synchronize()
            return torch.cuda.max_memory_allocated(), resting
        weights = sum(p.numel() * p.element_size() for p in self.model.parameters())
        memory.forget_peak()
        before = memory.resident()
        self.step(*batch)
        return (memory.peak_resident() or 0) - before + weights, 3 * weights


def measure(work: Work, device: torch.device, peak: float) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "table": work.table,
        "label": work.label,
        "length": work.length,
        "rows": work.rows,
        "layers": work.config.n_layer,
        "width": work.config.n_embd,
        "parameters": costs(work.config).parameters,
        "non_embedding": costs(work.config).non_embedding,
    }
    on_cuda = device.type == "cuda"
    training = None
    try:
        training = Training(work.config, device)
        if work.table == "length":
            most, resting = training.peak(1, work.length)
            facts |= {"one_row_peak": most, "one_row_step": most - resting}
        if on_cuda:
            training.compile()
        began = time.perf_counter()
        if on_cuda:
            most, resting = training.peak(work.rows, work.length)
            facts |= {"peak": most, "step": most - resting}
        speed = training.speed(work.rows, work.length, 0.5 if on_cuda else 1.0)
        facts["seconds"] = time.perf_counter() - began
        facts["tokens_per_second"] = speed
        facts["mfu"] = speed * costs(work.config, work.length).training_flops / peak
    except Exception as error:  # a row that cannot be measured must not cost the others
        full = memory.is_out_of_memory(error) or "out of memory" in str(error).lower()
        facts["problem"] = "does not fit" if full else f"{type(error).__name__}: {str(error).splitlines()[0][:80]}"
    del training
    gc.collect()
    if on_cuda:
        torch.compiler.reset()
        torch.cuda.empty_cache()
    return facts


def in_a_child(work: Work, threads: int, peak: float) -> dict[str, Any]:
    """On a CPU: in a process of its own, whose peak is the work's."""
    order = json.dumps({**dataclasses.asdict(work), "threads": threads, "peak": peak})
    done = subprocess.run(
        [sys.executable, __file__, "--child", order], capture_output=True, text=True, check=False, timeout=300
    )
    if done.returncode != 0:
        wanted = {"table": work.table, "label": work.label, "length": work.length, "rows": work.rows}
        last = done.stderr.strip().splitlines()[-1:] or [f"ended with {done.returncode}"]
        killed = done.returncode < 0  # by the system, which has no more memory to give
        return wanted | {"problem": "does not fit" if killed else last[0]}
    return dict(json.loads(done.stdout))


def child(order: str) -> None:
    facts = json.loads(order)
    torch.set_num_threads(facts.pop("threads"))
    peak = facts.pop("peak")
    config = {k: tuple(v) if isinstance(v, list) else v for k, v in facts.pop("config").items()}
    print(json.dumps(measure(Work(config=ModelConfig(**config), **facts), torch.device("cpu"), peak)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="*", help="length, size, batch; without any, all of them")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="on a CPU")
    parser.add_argument("--budget", type=float, default=210.0, help="seconds after which nothing more is begun")
    parser.add_argument("--out", type=Path, help="a folder for the numbers (JSON) and the pictures")
    parser.add_argument("--draw", type=Path, help="numbers of an earlier run")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        child(args.child)
        return
    if args.out is not None:
        args.out.mkdir(parents=True, exist_ok=True)
    if args.draw:
        tell(json.loads(args.draw.read_text(encoding="utf-8")), args.out)
        return
    device = torch.device(args.device)
    torch.set_num_threads(args.threads)
    torch.set_float32_matmul_precision("high")
    if device.type == "cuda":
        torch._dynamo.config.recompile_limit = 64  # should some layer differ from the others, compile it too
    peak, how = peak_flops(device)
    work = [
        w for w in (cuda_work() if device.type == "cuda" else cpu_work()) if not args.tables or w.table in args.tables
    ]
    if not work:
        parser.error("on a CPU there is only: length" if device.type == "cpu" else "tables are length, size and batch")
    found: dict[str, Any] = {
        "device": torch.cuda.get_device_name()
        if device.type == "cuda"
        else f"CPU, {args.threads} thread{'s' * (args.threads > 1)}",
        "kind": device.type,
        "torch": torch.__version__,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "peak": peak,
        "peak_is": how,
        "window": WINDOW,
        "results": [],
    }
    began, results = time.perf_counter(), found["results"]
    known: dict[tuple[Any, ...], dict[str, Any]] = {}
    for one in work:
        same = known.get((one.config, one.length, one.rows))
        if same is not None:
            facts = {**same, "table": one.table, "label": one.label}
        elif time.perf_counter() - began > args.budget:
            wanted = {"parameters": costs(one.config).parameters, "non_embedding": costs(one.config).non_embedding}
            wanted |= {"layers": one.config.n_layer, "width": one.config.n_embd, "problem": "not measured: out of time"}
            facts = {"table": one.table, "label": one.label, "length": one.length, "rows": one.rows} | wanted
        else:
            facts = measure(one, device, peak) if device.type == "cuda" else in_a_child(one, args.threads, peak)
        facts["date"] = found["date"]
        results.append(facts)
        known[one.config, one.length, one.rows] = facts
        spent = time.perf_counter() - began
        shown = {k: round(v, 4) if isinstance(v, float) else v for k, v in facts.items()}
        print(f"[{spent:5.1f} s] {json.dumps(shown)}", file=sys.stderr, flush=True)
        if args.out is not None:  # after each: a run that is cut short keeps what it has
            keep(found, args.out / f"growth-{device.type}.json")
    tell(found, args.out)


if __name__ == "__main__":
    main()
