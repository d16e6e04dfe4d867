"""An engine for encoder-decoders over HTTP, on a GPU: a thousand clients of `glassformer serve`, beside the same size in
CTranslate2 and Hugging Face.

    python3 bench/engine.py                              # 1,000 clients, beam 4, the paper's base size
    python3 bench/engine.py --seconds 10
    python3 bench/engine.py --device cpu --size small --clients 32

Random weights, 32,000 words; every answer is made to have 24 tokens, by a beam of 4. Clients have a connection each and ask for
one sentence as soon as the last is answered; they are processes of their own. `half load`: requests come at half the rate of
the peak, whatever becomes of those before. The peers are given all sentences at once by their own Python call, without HTTP:
transformers' `generate` and CTranslate2's `translate_batch` in float16, each with the best of some batch sizes.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1]))

from serve import BEAM, NEW, VOCABULARY, make_run, quantile

SIZES: dict[str, dict[str, Any]] = {
    "base": {"n_layer": 6, "n_head": 8, "n_embd": 512, "n_hidden": 2048},
    "small": {"n_layer": 3, "n_head": 8, "n_embd": 256, "n_hidden": 1024},
}
WORDS = 32000


class Served:
    """`glassformer serve` as a person starts it."""

    def __init__(self, run: Path, device: str, clients: int) -> None:
        limits = ["--limit", f"queue={2 * clients}", "--limit", f"connections={2 * clients}"]
        command = [
            sys.executable,
            "-m",
            "glassformer",
            "serve",
            str(run),
            "--port",
            "0",
            "--device",
            device,
            *limits,
        ]
        path = os.pathsep.join([str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])])
        self.process = subprocess.Popen(
            command, stderr=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": path}
        )
        assert self.process.stderr is not None
        self.port, said = 0, []
        for line in self.process.stderr:
            said.append(line)
            if found := re.search(r"listening on http://[\d.]+:(\d+)", line):
                self.port = int(found[1])
                break
        assert self.port, "".join(said)
        threading.Thread(target=lambda: [None for _ in self.process.stderr or ()], daemon=True).start()

    def end(self) -> None:
        """Stop it."""
        self.process.terminate()
        self.process.wait(60)


def asked(port: int, seconds: float, processes: int, **how: float) -> tuple[list[float], float, int]:
    """Seconds of each answer, answers a second, and how many were refused; by clients in so many processes."""
    ((kind, value),) = how.items()
    share = value / processes if kind == "rate" else int(value) // processes
    command = [sys.executable, str(Path(__file__).with_name("serve.py")), "clients", "--port", str(port)]
    command += [f"--{kind}", str(share), "--seconds", str(seconds)]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(processes)]
    results = [json.loads(process.communicate()[0]) for process in started]
    good = [took for times, _, _ in results for took in times]
    return good, sum(len(times) / took for times, _, took in results), sum(len(refused) for _, refused, _ in results)


def sentences(count: int) -> list[str]:
    """What the clients ask for."""
    draw = random.Random(0)
    return [" ".join(draw.choices(VOCABULARY, k=draw.randrange(6, 18))) for _ in range(count)]


def best_speed(translate: Callable[[int], int], sizes: tuple[int, ...]) -> str:
    """The most tokens a second over some batch sizes; a call returns how many sentences it translated."""
    speeds = {}
    for size in sizes:
        translate(size)
        began = time.monotonic()
        speeds[size] = translate(size) * NEW / (time.monotonic() - began)
    size = max(speeds, key=speeds.__getitem__)
    return f"{speeds[size]:,.0f} target tokens a second (batches of {size})"


def hugging_face(run: Path, device: str) -> str:
    """The same run, exported, in transformers."""
    import torch
    from transformers import MarianMTModel

    from glassformer import load
    from glassformer.formats.export import write

    model = load(run, device="cpu")
    with tempfile.TemporaryDirectory() as folder:
        write(model, "hf", Path(folder), "fp32", "bench")
        net = MarianMTModel.from_pretrained(folder, dtype=torch.float16 if device == "cuda" else torch.float32)
    net = net.to(device).eval()
    ids = [[*model.tokenizers.source.encode(text), 2] for text in sentences(256)]

    def translate(size: int) -> int:
        for start in range(0, len(ids), size):
            rows = ids[start : start + size]
            longest = max(map(len, rows))
            tokens = torch.tensor([[*row, *[0] * (longest - len(row))] for row in rows], device=device)
            mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows], device=device)
            net.generate(tokens, attention_mask=mask, num_beams=BEAM, min_new_tokens=NEW, max_new_tokens=NEW)
        return len(ids)

    return best_speed(translate, (32, 256))


def ctranslate2(run: Path, device: str) -> str:
    """The same run in CTranslate2."""
    import ctranslate2 as peer

    from glassformer import load
    from glassformer.formats.ctranslate2 import spec

    model = load(run, device="cpu")
    with tempfile.TemporaryDirectory() as folder:
        spec.save(model.model, Path(folder), spec.Vocabularies(bos=1, eos=2, unknown=3), n_positions=256)
        kind = "float16" if device == "cuda" else "float32"
        translator = peer.Translator(folder, device=device, compute_type=kind)
    tokens = [[str(i) for i in [*model.tokenizers.source.encode(text), 2]] for text in sentences(1024)]

    def translate(size: int) -> int:
        how = {"beam_size": BEAM, "min_decoding_length": NEW, "max_decoding_length": NEW}
        translator.translate_batch(tokens, max_batch_size=size, **how)
        return len(tokens)

    return best_speed(translate, (64, 256, 1024))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    parser.add_argument("--size", choices=list(SIZES), default="base")
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument(
        "--warm", type=float, default=15.0, help="seconds of load before: shapes are captured as they come"
    )
    parser.add_argument("--askers", type=int, default=4, help="processes in which the clients live")
    parser.add_argument("--no-peers", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run = make_run(Path(folder) / "run", SIZES[args.size], words=WORDS)
        began = time.monotonic()
        server = Served(run, args.device, args.clients)
        ready = time.monotonic() - began
        try:
            asked(server.port, args.warm, args.askers, clients=args.clients)
            good, rate, refused = asked(server.port, args.seconds, args.askers, clients=args.clients)
            middle, late = quantile(good, 0.5), quantile(good, 0.99)
            print(
                f"{args.clients} clients: {rate:,.0f} answers and {rate * NEW:,.0f} target tokens a "
                f"second, p50 {middle:.0f} ms, p99 {late:.0f} ms, {refused} refused; ready after {ready:.0f} s",
                flush=True,
            )
            good, half, refused = asked(server.port, args.seconds, args.askers, rate=rate / 2)
            middle, late = quantile(good, 0.5), quantile(good, 0.99)
            print(
                f"  half load: {half:,.0f} answers a second, p50 {middle:.0f} ms, p99 {late:.0f} ms, {refused} refused",
                flush=True,
            )
        finally:
            server.end()
        from glassformer import load

        model, texts = load(run, device=args.device), sentences(20000 if args.device == "cuda" else 200)
        print(
            f"model.translate of a list: {best_speed(lambda _: len(model.translate(texts)), (len(texts),))}", flush=True
        )
        del model
        for name, peer in () if args.no_peers else (("Hugging Face", hugging_face), ("CTranslate2", ctranslate2)):
            try:
                print(f"{name}: {peer(run, args.device)}", flush=True)
            except (ImportError, RuntimeError, ValueError, OSError) as error:
                print(f"{name} does not run here: {str(error).splitlines()[0]}", flush=True)


if __name__ == "__main__":
    main()
