"""Decoding on a CPU: ours (plain, fast, int8) beside Hugging Face's MarianMTModel and CTranslate2, one set of weights.

    python3 bench/decode.py                            # the table of sentences a second, two threads
    python3 bench/decode.py --data multi30k            # a folder with test_2016_flickr.en: its first sentences' lengths
    python3 bench/decode.py --rounds 3 --only fast ct2 # some of the contestants
    python3 bench/decode.py --threads 1 --cpu-time     # on a machine that has other things to do
    python3 bench/decode.py flat                       # time per token as a text grows: with a cache, and without

The model is the paper's base size with 8,000 words and random weights; the same numbers are written as a Marian checkpoint
and converted by CTranslate2's own loader. Sixty-four sentences are forced to 24 new tokens each, so everyone does the same
work whatever the weights say. Each contestant is a process of its own with its own threads; they are called one after the
other, round after round, with a pause in between for idle threads to fall asleep. The median round counts. `same` is how
many of the 64 answers are token for token those of our plain engine; memory is the process's own peak.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.decode_peers import (
    BOS,
    EOS,
    NEW,
    SENTENCES,
    WORDS,
    Run,
    config,
    ctranslate2,
    hugging_face,
    save_ctranslate2,
    to_marian,
)
from glassformer.config import DecodeConfig
from glassformer.decode import SpecialTokens, generate_batch, translate_batch
from glassformer.models import GPT, Transformer, preset

# All three may write anything: what is never written would have to be said to each in its own way.
CONTROLS = SpecialTokens(bos=BOS, eos=EOS, unknown=None, never=())
WORK: dict[str, dict[str, int]] = {
    "beam 4, batch 32": {"beam": 4, "batch": 32},
    "greedy, batch 32": {"beam": 1, "batch": 32},
    "greedy, batch 1": {"beam": 1, "batch": 1},
}
OURS = ("plain", "fast", "int8")
CONTESTANTS = (*OURS, "hf", "ct2", "ct2-int8")


def some_sentences(data: Path | None) -> list[list[int]]:
    """Random words in sentences as long as Multi30k's (about 13 words and EOS), or exactly as long as those of `data`."""
    draw = random.Random(1)
    if data is not None:
        lines = (data / "test_2016_flickr.en").read_text(encoding="utf-8").splitlines()[:SENTENCES]
        lengths = [len(line.split()) + 1 for line in lines]
    else:
        lengths = [max(6, round(draw.gauss(14, 4))) for _ in range(SENTENCES)]
    return [[*[draw.randrange(5, WORDS) for _ in range(length - 1)], EOS] for length in lengths]


def write_models(folder: Path) -> None:
    torch.manual_seed(1)
    model = Transformer(config()).eval()
    torch.save(model.state_dict(), folder / "ours.pt")
    marian = to_marian(model)
    marian.save_pretrained(folder / "marian")
    save_ctranslate2(marian, folder / "ct2")


# The contestants: each gives the 64 answers as ids.


def ours(engine: str, folder: Path, sentences: list[list[int]]) -> Run:
    model = Transformer(config()).eval()
    model.load_state_dict(torch.load(folder / "ours.pt", weights_only=True))
    model.handed_out = False  # as `glassformer.load` leaves it: nobody holds the weights

    def run(beam: int, batch: int) -> list[list[int]]:
        # first-k, as everyone else stops (with a fixed length it is the same).
        how = DecodeConfig(
            beam=beam,
            batch_size=batch,
            max_new_tokens=NEW,
            min_new_tokens=NEW,
            engine=engine,  # type: ignore[arg-type]
            stop_rule="first-k",
        )
        if batch == 1:
            return [translate_batch(model, [s], how, special=CONTROLS)[0][0].ids for s in sentences]
        return [found[0].ids for found in translate_batch(model, sentences, how, special=CONTROLS)]

    return run


def peak_memory() -> float:
    """MB. (Not getrusage: a new process inherits its parent's mark there.)"""
    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024


def serve(name: str, folder: Path, threads: int, clock: Callable[[], float]) -> None:
    """A contestant's process: a line in names the work, a line out says how it went."""
    torch.set_num_threads(threads)
    sentences = json.loads((folder / "sentences.json").read_text())
    if name in OURS:
        run = ours(name, folder, sentences)
    elif name == "hf":
        run = hugging_face(folder, sentences)
    else:
        run = ctranslate2("int8" if name == "ct2-int8" else "float32", folder, sentences, threads)
    print("ready", flush=True)
    for line in sys.stdin:
        work = WORK[line.strip()]
        gc.collect()
        began = clock()
        answers = run(work["beam"], work["batch"])
        seconds = clock() - began
        print(json.dumps({"seconds": seconds, "peak": peak_memory(), "answers": answers}), flush=True)


class Contestant:
    def __init__(self, name: str, folder: Path, threads: int, cpu_time: bool) -> None:
        command = [sys.executable, __file__, "--serve", name, "--folder", str(folder), "--threads", str(threads)]
        command += ["--cpu-time"] if cpu_time else []
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )
        self.times: dict[str, list[float]] = {}
        self.answers: dict[str, list[list[int]]] = {}
        self.peak = 0.0
        self.hear()

    def hear(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"{' '.join(self.process.args)} ended early")  # type: ignore[arg-type]
        return line

    def work(self, name: str, *, counts: bool) -> None:
        assert self.process.stdin is not None
        print(name, file=self.process.stdin, flush=True)
        result = json.loads(self.hear())
        if counts:
            self.times.setdefault(name, []).append(result["seconds"])
        self.answers[name] = result["answers"]
        self.peak = result["peak"]

    def speed(self, name: str) -> float:
        return SENTENCES / statistics.median(self.times[name])

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def table(args: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_models(folder)
        (folder / "sentences.json").write_text(json.dumps(some_sentences(args.data)))
        contestants = {name: Contestant(name, folder, args.threads, args.cpu_time) for name in args.only}
        try:
            for round_number in range(args.rounds + 1):  # the first warms up
                for work in WORK:
                    for contestant in contestants.values():
                        contestant.work(work, counts=round_number > 0)
                        time.sleep(0.3)
        finally:
            for contestant in contestants.values():
                contestant.end()
    result: dict[str, Any] = {}
    for name, contestant in contestants.items():
        result[name] = {"peak MB": round(contestant.peak)}
        for work in WORK:
            result[name][work] = {"sentences/s": round(contestant.speed(work), 2)}
            if "plain" in contestants:
                pairs = zip(contestant.answers[work], contestants["plain"].answers[work])
                result[name][work]["same"] = sum(a == b for a, b in pairs)
    show(result, args)
    return result


def show(result: dict[str, Any], args: argparse.Namespace) -> None:
    unit = "Sentences per processor second" if args.cpu_time else "Sentences/s"
    print(
        f"\n{unit}, median of {args.rounds} rounds, {args.threads} threads, {processor()}, torch {torch.__version__}."
    )
    print(f"Command: python3 bench/decode.py {' '.join(sys.argv[1:])}".rstrip() + "\n")
    print("| | " + " | ".join(f"{work} | same" for work in WORK) + " | peak MB |")
    print("| --- |" + " ---: |" * (2 * len(WORK) + 1))
    for name, values in result.items():
        against = "ct2-int8" if name == "int8" else "ct2"
        cells = []
        for work in WORK:
            speed = values[work]["sentences/s"]
            ratio = f" ({speed / result[against][work]['sentences/s']:.2f}x)" if against in result else ""
            cells += [f"{speed:.2f}{ratio}", str(values[work].get("same", ""))]
        print(f"| {name} | " + " | ".join(cells) + f" | {values['peak MB']} |")
    print("\nIn brackets: against CTranslate2 of the same kind (int8 against its int8).")


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.machine()


# Does a token cost more, the longer the text?


@torch.no_grad()
def recompute(model: GPT, tokens: int) -> None:
    """The tutorials' way: the whole text through the model for each token."""
    ids = torch.tensor([[BOS]])
    for _ in range(tokens):
        ids = torch.cat([ids, model(ids)[:, -1:].argmax(-1)], 1)


def flat(args: argparse.Namespace) -> dict[str, Any]:
    """Milliseconds per token of a GPT-2 small for texts of so many new tokens, one row, greedy."""
    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    small = replace(preset("gpt2"), block_size=1088, dropout=0.0, attention_dropout=0.0)
    model = GPT(small).eval()
    result: dict[str, Any] = {}
    for name, engine, lengths in (
        ("recomputing everything", None, args.recompute),
        ("cached, plain", "plain", (64, 256, 1024)),
        ("cached, fast", "fast", (64, 256, 1024)),
    ):
        result[name] = {}
        for new in lengths:
            for tokens in (4, new):  # the first ones to warm up
                how = DecodeConfig(beam=1, max_new_tokens=tokens, min_new_tokens=tokens, engine=engine or "plain")  # type: ignore[arg-type]
                began = time.perf_counter()
                if engine is None:
                    recompute(model, tokens)
                else:
                    generate_batch(model, [[BOS]], how, special=CONTROLS)
            result[name][new] = round(1000 * (time.perf_counter() - began) / new, 2)
            print(f"{name}: {new} new tokens, {result[name][new]} ms each", flush=True)
    lengths = [64, 256, 1024]
    print(f"\nMilliseconds per new token, GPT-2 small, one row, greedy, {args.threads} threads, {processor()}.")
    print(f"Command: python3 bench/decode.py {' '.join(sys.argv[1:])}\n")
    print("| | " + " | ".join(f"{n} new tokens" for n in lengths) + " |\n| --- |" + " ---: |" * len(lengths))
    for name, values in result.items():
        print(f"| {name} | " + " | ".join(str(values.get(n, "")) for n in lengths) + " |")
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=["table", "flat"], default="table")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--cpu-time", action="store_true", help="processor seconds, not the clock's; with --threads 1")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--data", type=Path, help="a folder with test_2016_flickr.en, for its sentences' lengths")
    parser.add_argument("--only", nargs="+", choices=CONTESTANTS, default=list(CONTESTANTS))
    parser.add_argument(
        "--recompute", nargs="*", type=int, default=[64, 256, 1024], help="flat: lengths for the slow way"
    )
    parser.add_argument("--out", type=Path, help="write the numbers as JSON")
    parser.add_argument("--serve", choices=CONTESTANTS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        serve(args.serve, args.folder, args.threads, time.process_time if args.cpu_time else time.perf_counter)
        return
    result = flat(args) if args.what == "flat" else table(args)
    if args.out:
        args.out.write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
