"""Decoding on one CUDA device, as people ask for it: the public call, a run's own settings, start-up told apart.

    python3 bench/decode_gpu.py                              # all rows
    python3 bench/decode_gpu.py recipe file --run RUN        # some of them; a run that is trained already
    python3 bench/decode_gpu.py gpt64 --profile 20           # where the device's time goes, and the host's, in place of a table

    recipe   Translator.translate of all training sentences (Multi30k: 29,000) by `--recipe`, trained first, its own settings
    file     the same lines by `glassformer translate --file`, a process of its own; start-up (a file of one line) apart
    base     Translator.translate of 10,000 sentences: the paper's base size, beam 4
    gpt64    Generator.generate, GPT-2 124M, 64 texts of 256 new tokens, greedy;   gpt1   one text

Nothing of the last three's size can be trained in a benchmark: their weights are random, so translations are told to be about as
long as their source (decode.min_ratio, decode.max_ratio), and sentences are drawn, as long as Multi30k's. `first` is the first
answer after loading: kernels compiled, steps captured; `warm` the best of the later calls. Tokens are those of the best answers.
`same`: how many of 256 texts the captured lane answers as the plain model does, token for token, in float32 and in its bfloat16.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

import glassformer
from glassformer.api.models import Generator, Translator
from glassformer.config import Recipe
from glassformer.models import build_model, preset
from glassformer.runs.folder import RunFolder
from glassformer.text.tokenizer import Tokenizer
from glassformer.text.tokenizers import Tokenizers

LENGTHS = {"min_ratio": 0.9, "max_ratio": 1.05, "max_extra": 1}
WORK = ("recipe", "file", "base", "gpt64", "gpt1")


def drawn_sentences(count: int) -> list[str]:
    """Lines of words as frequent as in text, as many as in a caption."""
    draw = random.Random(1)
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ["".join(draw.choice(letters) for _ in range(draw.randrange(2, 9))) for _ in range(9000)]
    odds = [1 / (rank + 1) for rank in range(len(words))]
    return [" ".join(draw.choices(words, odds, k=max(4, round(draw.gauss(12, 4))))) for _ in range(count)]


def trained_run(recipe: str, folder: Path) -> Path:
    """The recipe, trained by the command that a person gives."""
    began = time.perf_counter()
    command = [sys.executable, "-m", "glassformer", "train", recipe, "--out", str(folder / "run"), "--quiet"]
    subprocess.run(command, check=True)
    print(f"{recipe} trained in {time.perf_counter() - began:.0f} s", flush=True)
    return folder / "run"


def sources_of(run: Path) -> list[str]:
    """The training sentences of a run's recipe, as their file has them."""
    data = RunFolder.open(run).recipe.data
    files = [data.train] if isinstance(data.train, str) else [file.path for file in data.train or ()]
    lines = [
        line for file in files for line in (Path(data.path or ".") / file).read_text(encoding="utf-8").splitlines()
    ]
    return [text for line in lines if (text := line.split("\t")[0].strip())]


def profiled(call: Any, rows: int) -> None:
    """Where the time of a call goes, on the device and on the host."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as found:
        call()
        torch.cuda.synchronize()
    for row in sorted(found.key_averages(), key=lambda e: -e.self_device_time_total)[:rows]:
        print(f"  {row.self_device_time_total / 1000:9.2f} ms  x{row.count:6d}  {row.key[:100]}")
    watch = cProfile.Profile()
    watch.runcall(call)
    pstats.Stats(watch).sort_stats("tottime").print_stats(rows)


def timed(name: str, call: Any, args: argparse.Namespace, *, loaded: float = 0.0) -> dict[str, Any]:
    """`call` gives answers; its first time, and the best of the rounds."""
    torch.cuda.synchronize()
    began = time.perf_counter()
    answers = call()
    first = time.perf_counter() - began
    tokens = sum(len(answer.best.ids) for answer in answers)
    if args.profile:
        profiled(call, args.profile)
    times = []
    for _ in range(args.rounds):
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    row = {"work": name, "tokens": tokens, "load_s": round(loaded, 2), "first_s": round(first, 2)}
    return row | {"warm_s": round(min(times), 3), "tokens_per_second": round(tokens / min(times))}


def same_answers(model: Translator, texts: list[str], **how: Any) -> str:
    """How many answers are those of the plain model."""
    plain = model.translate(texts, engine="plain", batch_size=64, **how)
    found = []
    for precision in ("model", "auto"):
        ours = model.translate(texts, precision=precision, **how)
        found.append(f"{sum(a.best.ids == b.best.ids for a, b in zip(ours, plain, strict=True))} ({precision})")
    return f"{', '.join(found)} of {len(texts)}"


def random_model(name: str, texts: list[str], kind: type, **changes: Any) -> Any:
    """A model of a preset with random weights, and a tokenizer for it."""
    torch.manual_seed(0)
    config = replace(preset(name), **changes)
    # As many words as the model has, so that whatever it says can be written.
    letters = "abcdefghijklmnopqrstuvwxyz"
    more = (a + b + c + d for a in letters for b in letters for c in letters for d in letters)
    tokenizer = Tokenizer.train("word", [*texts, *more], config.vocab_size)
    assert tokenizer.vocab_size == config.vocab_size
    family: dict[str, Any] = {"task": "text"} if config.family == "gpt" else {"task": "pairs"}
    recipe = Recipe.from_dict({"name": name, "model": {"family": config.family}, "data": family})
    return kind(build_model(config).cuda().eval(), Tokenizers(tokenizer, tokenizer, []), recipe)


def recipe_row(run: Path, args: argparse.Namespace) -> dict[str, Any]:
    """The run is loaded, the first sentence answered, then all of them."""
    texts = sources_of(run)
    began = time.perf_counter()
    model: Any = glassformer.load(run, device="cuda")
    times = [time.perf_counter()]
    for text in texts[:2]:
        model.translate(text)
        times.append(time.perf_counter())
    row = timed("recipe", lambda: model.translate(texts), args, loaded=times[0] - began)
    row |= {"first_sentence_s": round(times[1] - times[0], 2), "next_sentence_s": round(times[2] - times[1], 3)}
    return row | {"same": same_answers(model, texts[:256])}


def translate_file(run: Path, texts: list[str], folder: Path) -> tuple[float, str]:
    """The command line, a process of its own: its seconds and what it wrote."""
    (folder / "lines.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")
    command = [sys.executable, "-m", "glassformer", "translate", str(run), "--file", str(folder / "lines.txt")]
    began = time.perf_counter()
    done = subprocess.run([*command, "--device", "cuda"], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-500:])
    return time.perf_counter() - began, done.stdout


def file_row(run: Path, folder: Path) -> dict[str, Any]:
    """A file of one line is the start-up; the same with all lines after it is the work."""
    texts = sources_of(run)
    startup = min(translate_file(run, texts[:1], folder)[0] for _ in range(2))
    seconds, written = translate_file(run, texts, folder)
    tokenizer = glassformer.load(run, device="cpu").tokenizers.target  # type: ignore[union-attr]
    tokens = sum(map(len, tokenizer.encode_batch(written.splitlines())))
    return {
        "work": "file",
        "tokens": tokens,
        "startup_s": round(startup, 2),
        "seconds": round(seconds, 2),
        "tokens_per_second": round(tokens / (seconds - startup)),
        "tokens_per_second_of_all": round(tokens / seconds),
    }


def run_row(work: str, run: Path, folder: Path, args: argparse.Namespace) -> dict[str, Any]:
    """One line of the table."""
    if work == "recipe":
        return recipe_row(run, args)
    if work == "file":
        return file_row(run, folder)
    texts = drawn_sentences(10_000)
    if work == "base":
        model = random_model("transformer-base", texts, Translator)
        row = timed(work, lambda: model.translate(texts, beam=4, **LENGTHS), args)
        return row | {"same": same_answers(model, texts[:256], beam=4, **LENGTHS)}
    model = random_model("gpt2", texts, Generator)
    prompts = [" ".join(texts[i : i + 3]) for i in range(64 if work == "gpt64" else 1)]
    how = {"beam": 1, "max_new_tokens": 256, "min_new_tokens": 256}
    return timed(work, lambda: model.generate(prompts, **how), args)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", nargs="*", default=list(WORK))
    parser.add_argument("--recipe", default="multi30k-en-de-best")
    parser.add_argument("--run", type=Path, help="a run of it, in place of training one")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--profile", type=int, default=0)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}", flush=True)
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run = args.run or folder / "run"
        if {"recipe", "file"} & set(args.work) and args.run is None:
            run = trained_run(args.recipe, folder)
        for work in args.work:
            try:
                rows.append(run_row(work, run, folder, args))
            except Exception as error:  # a row that fails is told, and the others go on
                import traceback

                traceback.print_exc()
                rows.append({"work": work, "failed": f"{type(error).__name__}: {str(error)[:300]}"})
            print(json.dumps(rows[-1]), flush=True)
            torch.cuda.empty_cache()
    if args.out:
        args.out.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
