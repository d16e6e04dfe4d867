"""Decoding on one CUDA device, as people ask for it: the public call, default settings, start-up told apart.

    python3 bench/decode_gpu.py                              # all rows
    python3 bench/decode_gpu.py recipe file --data multi30k  # some of them; a folder with train.en and train.de
    python3 bench/decode_gpu.py gpt64 --profile 20           # where the device's time goes, and the host's, in place of a table

    recipe   Translator.translate of 29,000 sentences: 4+4 layers, 256 wide, beam 5, the model of a run that is loaded
    file     the same lines by `glassformer translate --file`, a process of its own; start-up (a file of one line) apart
    base     Translator.translate of 10,000 sentences: the paper's base size, beam 4
    gpt64    Generator.generate, GPT-2 124M, 64 texts of 256 new tokens, greedy;   gpt1   one text

Weights are random, so an end of sentence would come at random too: translations are told to be about as long as their source
(decode.min_ratio, decode.max_ratio). Without data, sentences are drawn, as long as Multi30k's. `first` is the first answer after
loading: kernels compiled, steps captured; `warm` the best of the later calls. Tokens are those of the best answers. `same`: how
many of 256 texts the captured lane answers as the plain model does, token for token, in float32 and in its own bfloat16.
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
from glassformer.text.tokenizer import Tokenizer
from glassformer.text.tokenizers import Tokenizers

LENGTHS = {"min_ratio": 0.9, "max_ratio": 1.05, "max_extra": 1}
WORK = ("recipe", "file", "base", "gpt64", "gpt1")


def sentences(data: Path | None, count: int) -> tuple[list[str], list[str]]:
    """Pairs of lines, of Multi30k or drawn: words as frequent as in text, as many as in a caption."""
    if data is not None:
        sides = [(data / f"train.{side}").read_text(encoding="utf-8").splitlines()[:count] for side in ("en", "de")]
        return sides[0], sides[1]
    draw = random.Random(1)
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ["".join(draw.choice(letters) for _ in range(draw.randrange(2, 9))) for _ in range(9000)]
    odds = [1 / (rank + 1) for rank in range(len(words))]

    def line() -> str:
        return " ".join(draw.choices(words, odds, k=max(4, round(draw.gauss(12, 4)))))

    return [line() for _ in range(count)], [line() for _ in range(count)]


def make_run(folder: Path, pairs: tuple[list[str], list[str]]) -> Path:
    """A run of the recipe model, of one step: what is timed does not ask what was learned."""
    lines = "".join(f"{a}\t{b}\n" for a, b in zip(*pairs, strict=True) if a.strip() and b.strip())
    (folder / "pairs.tsv").write_text(lines, encoding="utf-8")
    (folder / "bench.toml").write_text(
        '[model]\npreset = "transformer-tiny"\nn_embd = 256\nn_hidden = 1024\nblock_size = 256\n'
        '[data]\ntask = "pairs"\ntrain = "pairs.tsv"\ntokenizer = "bpe"\nvocab_size = 10000\nbatch_tokens = 2048\n'
        '[train]\nsteps = 1\nvalidate_every = 1\nsave_every = 1\nvalidate_examples = 1\ndevice = "cpu"\n'
    )
    command = [sys.executable, "-m", "glassformer", "train", str(folder / "bench.toml"), "--out", str(folder / "run")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"the run could not be made: {done.stderr[-500:]}\nits model is made in memory", flush=True)
    return folder / "run"


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


def same_answers(model: Translator, texts: list[str], beam: int) -> str:
    """How many answers are those of the plain model."""
    plain = model.translate(texts, beam=beam, engine="plain", batch_size=64, **LENGTHS)
    found = []
    for precision in ("model", "auto"):
        ours = model.translate(texts, beam=beam, precision=precision, **LENGTHS)
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


def recipe_row(folder: Path, args: argparse.Namespace, texts: list[str]) -> dict[str, Any]:
    """The run is loaded, the first sentence answered, then all of them."""
    began = time.perf_counter()
    if (folder / "run").exists():
        model: Any = glassformer.load(folder / "run", device="cuda")
    else:
        model = random_model("transformer-tiny", texts, Translator, n_embd=256, n_hidden=1024, block_size=256)
    loaded = time.perf_counter() - began
    began = time.perf_counter()
    model.translate(texts[0], beam=5)
    one = time.perf_counter() - began
    began = time.perf_counter()
    model.translate(texts[1], beam=5)
    again = time.perf_counter() - began
    row = timed("recipe", lambda: model.translate(texts, beam=5, **LENGTHS), args, loaded=loaded)
    row |= {"first_sentence_s": round(one, 2), "next_sentence_s": round(again, 3)}
    return row | {"same": same_answers(model, texts[:256], 5)}


def translate_file(folder: Path, texts: list[str]) -> tuple[float, str]:
    """The command line, a process of its own: its seconds and what it wrote."""
    (folder / "lines.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")
    settings = [part for name, value in LENGTHS.items() for part in ("--set", f"{name}={value}")]
    command = [sys.executable, "-m", "glassformer", "translate", str(folder / "run")]
    command += ["--file", str(folder / "lines.txt"), "--beam", "5", "--device", "cuda", *settings]
    began = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-500:])
    return time.perf_counter() - began, done.stdout


def file_row(folder: Path, texts: list[str]) -> dict[str, Any]:
    """A file of one line is the start-up; the same with all lines after it is the work."""
    startup = min(translate_file(folder, texts[:1])[0] for _ in range(2))
    seconds, written = translate_file(folder, texts)
    tokenizer = glassformer.load(folder / "run", device="cpu").tokenizers.target  # type: ignore[union-attr]
    tokens = sum(map(len, tokenizer.encode_batch(written.splitlines())))
    return {
        "work": "file",
        "tokens": tokens,
        "startup_s": round(startup, 2),
        "seconds": round(seconds, 2),
        "tokens_per_second": round(tokens / (seconds - startup)),
        "tokens_per_second_of_all": round(tokens / seconds),
    }


def run_row(work: str, folder: Path, args: argparse.Namespace) -> dict[str, Any]:
    """One line of the table."""
    texts = [text for text in sentences(args.data, 29000)[0] if text.strip()]
    if work == "recipe":
        return recipe_row(folder, args, texts)
    if work == "file":
        return file_row(folder, texts)
    if work == "base":
        model = random_model("transformer-base", texts, Translator)
        row = timed(work, lambda: model.translate(texts[:10000], beam=4, **LENGTHS), args)
        return row | {"same": same_answers(model, texts[:256], 4)}
    model = random_model("gpt2", texts, Generator)
    prompts = [" ".join(texts[i : i + 3]) for i in range(64 if work == "gpt64" else 1)]
    how = {"beam": 1, "max_new_tokens": 256, "min_new_tokens": 256}
    return timed(work, lambda: model.generate(prompts, **how), args)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", nargs="*", default=list(WORK))
    parser.add_argument("--data", type=Path, help="a folder with train.en and train.de")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--profile", type=int, default=0)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    print(
        f"{torch.cuda.get_device_name()}, torch {torch.__version__}, {'data' if args.data else 'drawn sentences'}",
        flush=True,
    )
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if {"recipe", "file"} & set(args.work):
            make_run(folder, sentences(args.data, 29000))
        for work in args.work:
            try:
                rows.append(run_row(work, folder, args))
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
