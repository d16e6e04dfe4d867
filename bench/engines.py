"""One model in every engine that runs it on a CPU: ours, transformers, CTranslate2 and onnxruntime, in float32 and 8 bits.

    python3 bench/engines.py                     # the paper's base size with 8,000 words and random weights
    python3 bench/engines.py --run runs/dates    # a run of yours, on its own test split
    python3 bench/engines.py --threads 1 --cpu-time   # on a machine that has other things to do

Everyone is given the same texts, all at once, and writes at most the same number of tokens; each is exported as `glassformer
export` does it and loaded from its folder. The median round counts. A token is one that was written, the ending one included;
`same` is the share of answers that are token for token ours under that engine's rules of length and stopping.
"""

from __future__ import annotations

import argparse
import platform
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from glassformer.config import DataConfig, DecodeConfig, Recipe
from glassformer.formats.export import write
from glassformer.formats.parity import share_of_same
from glassformer.formats.runtime import Case, OurRuntime, Runtime, make_cases
from glassformer.formats.targets import target_of
from glassformer.models import build_model, preset
from glassformer.tasks import TextModel
from glassformer.text.tokenizer import EOS, Tokenizer
from glassformer.text.tokenizers import Tokenizers

ENGINES = (("hf", "fp32"), ("ct2", "fp32"), ("ct2", "int8"), ("onnx", "fp32"), ("onnx", "int8"))
WORDS, NEW = 8000, 24


def base_model() -> TextModel:
    """The paper's base size, random weights, a tokenizer of made-up words."""
    torch.manual_seed(0)
    words = [f"w{i}" for i in range(WORDS)]
    tokenizer = Tokenizer.train("word", [" ".join(words)], WORDS)
    config = replace(preset("transformer-base"), vocab_size=tokenizer.vocab_size, block_size=128, dropout=0.0)
    model = build_model(config).eval()
    recipe = Recipe(model=config, data=DataConfig(task="pairs"), decode=DecodeConfig(alpha=1.0))
    return TextModel(model, Tokenizers(tokenizer, tokenizer, []), recipe)


def made_up_cases(model: TextModel, count: int) -> list[Case]:
    """Sentences of about 13 words."""
    draw, words = random.Random(1), model.model.config.vocab_size
    lengths = [max(6, round(draw.gauss(14, 4))) for _ in range(count)]
    return [Case((*(draw.randrange(5, words) for _ in range(n - 1)), EOS)) for n in lengths]


Clock = Callable[[], float]


def pace(
    runtime: Runtime, prompts: Sequence[Any], beam: int, limit: int, rounds: int, clock: Clock
) -> tuple[float, list[list[int]]]:
    """Tokens a second, the median of some rounds after one that does not count, and the answers."""
    found, times = runtime.write(prompts, beam=beam, limit=limit), []
    for _ in range(rounds):
        began = clock()
        found = runtime.write(prompts, beam=beam, limit=limit)
        times.append(clock() - began)
    tokens = sum(min(limit, len(ids) + 1) for ids in found)
    return tokens / statistics.median(times), found


def measure(model: TextModel, cases: list[Case], limit: int, rounds: int, clock: Clock) -> None:
    """The table, a row at a time."""
    prompts = [case.prompt for case in cases]
    print(f"{platform.machine()}, {torch.get_num_threads()} threads, torch {torch.__version__}, {len(prompts)} texts")
    print(
        "\n| engine | weights | MB on disk | s to load | greedy tokens/s | beam-4 tokens/s | same greedy | same beam-4 |"
    )
    print("| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    size = sum(p.numel() * p.element_size() for p in model.model.parameters()) / 1e6
    ours = OurRuntime(model, DecodeConfig(alpha=model.recipe.decode.alpha))
    paces = [pace(ours, prompts, beam, limit, rounds, clock)[0] for beam in (1, 4)]
    print(f"| glassformer | fp32 | {size:.1f} | | {paces[0]:,.0f} | {paces[1]:,.0f} | | |", flush=True)
    for to, weights in ENGINES:
        with tempfile.TemporaryDirectory(prefix="glassformer-") as place:
            folder = Path(place)
            write(model, to, folder, weights, "bench")
            began = time.perf_counter()
            runtime = target_of(to).writer.open_folder(model, folder)
            loading = time.perf_counter() - began
            size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6
        same_rules: dict[str, Any] = {"cut_competes": runtime.cut_competes, "prefix": runtime.prefix}
        twin, row = OurRuntime(model, runtime.rules, runtime.special, **same_rules), []
        for beam in (1, 4):
            speed, found = pace(runtime, prompts, beam, limit, rounds, clock)
            row.append((speed, share_of_same(twin.write(prompts, beam=beam, limit=limit), found)))
        (greedy, same), (searched, alike) = row
        print(
            f"| {runtime.name} | {weights} | {size:.1f} | {loading:.2f} | {greedy:,.0f} | {searched:,.0f} | "
            f"{100 * same:.0f}% | {100 * alike:.0f}% |",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path)
    parser.add_argument("--texts", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--cpu-time", action="store_true", help="seconds of the processor's work, not of the clock")
    given = parser.parse_args()
    clock = time.process_time if given.cpu_time else time.perf_counter
    torch.set_num_threads(given.threads)
    if given.run is None:
        model = base_model()
        measure(model, made_up_cases(model, given.texts), NEW, given.rounds, clock)
        return
    from glassformer.api import load
    from glassformer.formats.runtime import own_sample

    run = load(given.run, device="cpu")
    cases = make_cases(run, own_sample(run.recipe.data, given.run)[1], given.texts)
    measure(run, cases, max(len(case.answer) for case in cases) + 8, given.rounds, clock)


if __name__ == "__main__":
    main()
