"""Every operation of the table by kernels, against torch's own: whole steps of small models, on the device or interpreted; there
of so many models, and so many steps of each, as the two arguments say."""

from __future__ import annotations

import itertools
import sys

import torch

from glassformer.accel.decoding.block import decoding_copy
from glassformer.accel.decoding.operations import TorchOps
from glassformer.accel.decoding.triton import TritonOps
from glassformer.config import ModelConfig
from glassformer.models import build_model
from glassformer.nn.rows import Rows

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@torch.no_grad()
def steps(model: torch.nn.Module, ops: TorchOps, beams: int, n: int, count: int) -> list[torch.Tensor]:
    """The scores of so many steps of n slots, tokens and parents drawn alike for everyone."""
    model = decoding_copy(model, ops)
    source = 6 if hasattr(model, "encoder") else 0
    cache = model.make_cache(n, 40, beams=beams, source=source, static=True)
    model.grow_tables(20)
    cache.last_position = 19
    draw = torch.Generator().manual_seed(1)

    def drawn(most: int, *shape: int) -> torch.Tensor:
        return torch.randint(5 if most > 5 else 0, most, shape, generator=draw)

    cache.begin(0, n)
    first = drawn(70, n, 1).to(DEVICE)
    if source:
        model.prefill(Rows.padded(drawn(70, n, 6), [6 - i % 3 for i in range(n)]).to(DEVICE), cache)
    else:
        model.prefill(drawn(70, n, 3).to(DEVICE), [1 + i % 3 for i in range(n)], cache, range(n))
    cache.tokens[:n] = first
    found = []
    for step in range(count):
        tokens = cache.tokens[:n].view(-1, 1)
        found.append(model.step(tokens, cache, n_keys=16 + 8 * step, n_source=source)[:, -1].float().cpu())
        cache.tokens[:n] = drawn(70, n, beams).to(DEVICE)
        if beams > 1:
            cache.reorder(drawn(beams, n, beams).to(DEVICE), 40)
    return found


def main() -> None:
    many = DEVICE == "cuda"
    count = 3 if many else int(sys.argv[2])
    if not many:
        from tests.programs import quick_interpreter  # noqa: F401
    kinds = [
        ("transformer", 2, 1),
        ("transformer", 1, 1),  # a source of so few rows that norms are left to the products after them
        ("gpt", 1, 2),
        ("gpt", 1, 20),
        ("gpt", 3, 2),
        ("transformer", 1, 2),
        ("transformer", 4, 2),
        ("transformer", 5, 40),
    ]
    models = [
        ("relu", "layer", True), ("gelu_tanh", "rms", False), ("swiglu", "layer", True), ("gelu", "layer", False),
        ("relu", "rms", True),
    ]  # fmt: skip
    cases = (
        list(itertools.product(kinds, models))
        if many
        else list(zip(kinds, itertools.cycle(models)))[: int(sys.argv[1])]
    )
    for (family, beams, n), (activation, norm, pre_norm) in cases:
        for dtype in (torch.float32, torch.bfloat16) if many else (torch.float32,):
            torch.manual_seed(beams + n)
            sizes = (
                {"n_layer": 2, "n_head": 2, "n_embd": 64, "n_hidden": 128}
                if many
                else {"n_layer": 1, "n_head": 2, "n_embd": 16}
            )
            config = ModelConfig(
                family=family, vocab_size=70, block_size=32, dropout=0.0, activation=activation, norm=norm,
                pre_norm=pre_norm, **sizes,
            )  # fmt: skip
            model = build_model(config).to(DEVICE, dtype).eval()
            plain, ours = (steps(model, ops, beams, n, count) for ops in (TorchOps(), TritonOps(config)))
            worst = max(float((a - b).abs().max()) for a, b in zip(plain, ours, strict=True))
            scale = max(float(a.abs().max()) for a in plain)
            print(
                f"{family} {beams} beams {n} slots {activation} {norm} pre={pre_norm} {dtype}: {worst:.2e} of {scale:.2f}",
                flush=True,
            )
            assert worst < (1e-3 if dtype == torch.float32 else 0.05) * max(1.0, scale)


if __name__ == "__main__":
    main()
