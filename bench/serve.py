"""Serving on a CPU: `glassformer serve` beside LibreTranslate's own way (CTranslate2 behind Flask and waitress), same weights.

    python3 bench/serve.py                          # requests a second, p50 and p99 at 1, 8, 32 and 128 clients
    python3 bench/serve.py --clients 32 --seconds 5
    python3 bench/serve.py overload                 # ten times too much: how soon it is told, and what is still answered

The model has 3+3 layers of 256, 8,000 words and random weights; every answer is made to have 24 tokens, by a beam of 4, so all do
the same work. Contestants: `ours`, the command as it comes; `one by one`, the same with `decode.batch_size=1`; `ct2 float32` and
`ct2 int8`: a Flask application under waitress with four threads, as LibreTranslate starts it, that calls CTranslate2 for each
request. Each is a process of its own; the clients are in another, each with one connection, asking as fast as they are
answered. The contestants take turns, so what else the machine does falls on all alike.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

NEW, BEAM, WORDS, THREADS = 24, 4, 8000, 4
CONTESTANTS = ("ours", "one by one", "ct2 float32", "ct2 int8")


def make_run(folder: Path, model: dict[str, Any] | None = None, words: int = WORDS, **decode: Any) -> Path:
    """A run of that size, or as `model` has it, with `words` words of its own and random weights."""
    import torch

    from glassformer.config import VERSION, Recipe
    from glassformer.data.prepare import complete_model
    from glassformer.models import build_model
    from glassformer.models.weights import model_tensors
    from glassformer.runs.checkpoint import write_checkpoint
    from glassformer.runs.folder import RunFolder
    from glassformer.text.tokenizer import Tokenizer
    from glassformer.text.tokenizers import Tokenizers

    sizes = {"n_layer": 3, "n_head": 8, "n_embd": 256, "n_hidden": 1024, "block_size": 128, "dropout": 0.0}
    how = {"beam": BEAM, "min_new_tokens": NEW, "max_new_tokens": NEW, "stop_rule": "first-k", **decode}
    codes = {"source_languages": ["en"], "target_language": "de"}
    if model and model.get("family") == "gpt":
        codes = {"task": "text"}
    recipe = Recipe.from_dict({"model": sizes | (model or {}), "data": {"tokenizer": "word", **codes}, "decode": how})
    tokenizer = Tokenizer.train("word", [" ".join(word(n) for n in range(words))], words)
    recipe = complete_model(recipe, Tokenizers(tokenizer, tokenizer, []))
    run = RunFolder.create(folder, recipe, VERSION)
    Tokenizers(tokenizer, tokenizer, []).save(folder)
    run.write_recipe(recipe, VERSION, run.prepared_files())
    torch.manual_seed(0)
    net = build_model(recipe.model)
    write_checkpoint(RunFolder(folder).final, {"model": model_tensors(net)}, {"step": 0})
    return folder


def word(n: int) -> str:
    """A word of letters alone for each number."""
    letters = "abcdefghij"
    return "w" + "".join(letters[int(digit)] for digit in str(n))


VOCABULARY = [word(n) for n in range(WORDS - 10)]


def peer(run: Path, compute: str) -> None:
    """LibreTranslate's way: Flask, waitress, and a call of CTranslate2 for each request."""
    import ctranslate2
    import waitress
    from flask import Flask, jsonify, request

    import glassformer
    from glassformer.formats.ctranslate2 import spec as conversion

    model = glassformer.load(run, device="cpu")
    folder = Path(tempfile.mkdtemp())
    conversion.save(model.model, folder, conversion.Vocabularies(bos=1, eos=2, unknown=3), n_positions=256)
    translator = ctranslate2.Translator(
        str(folder), device="cpu", compute_type=compute, intra_threads=os.cpu_count() or 1
    )
    shutil.rmtree(folder)
    app, tokenizers = Flask("peer"), model.tokenizers

    @app.post("/translate")
    def translate() -> Any:
        text = request.get_json()["q"]
        ids = [[str(i) for i in [*tokenizers.source.encode(text), 2]]]
        found = translator.translate_batch(ids, beam_size=BEAM, min_decoding_length=NEW, max_decoding_length=NEW)
        return jsonify({"translatedText": tokenizers.target.decode([int(i) for i in found[0].hypotheses[0]])})

    server = waitress.create_server(app, host="127.0.0.1", port=0, threads=THREADS)
    print(f"listening on http://127.0.0.1:{server.effective_port}", file=sys.stderr, flush=True)
    server.run()


class Contestant:
    """A server in a process of its own."""

    def __init__(self, name: str, runs: dict[str, Path], *extra: str) -> None:
        here = [sys.executable, str(Path(__file__)), "peer", "--run", str(runs["ours"])]
        ours = [sys.executable, "-m", "glassformer", "serve", "--port", "0", *extra]
        command = {
            "ours": [*ours, str(runs["ours"])],
            "one by one": [*ours, str(runs["one by one"])],
            "ct2 float32": [*here, "--compute", "float32"],
            "ct2 int8": [*here, "--compute", "int8"],
        }[name]
        environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
        assert self.process.stderr is not None
        self.port = 0
        for line in self.process.stderr:
            if found := re.search(r"listening on http://[\d.]+:(\d+)", line):
                self.port = int(found[1])
                break
        assert self.port, f"{name} did not start"
        # Nobody reads the rest, and a full pipe would stop it.
        threading.Thread(target=lambda: [None for _ in self.process.stderr or ()], daemon=True).start()

    def end(self) -> None:
        """Stop it."""
        self.process.terminate()
        self.process.wait(30)


class Client(asyncio.Protocol):
    """One connection, in the few lines of HTTP that asking needs: what a client costs, the servers do not get."""

    def __init__(self, port: int, draw: random.Random) -> None:
        self.port, self.draw = port, draw
        self.received = b""
        self.transport: Any = None
        self.answer: Any = None

    async def connect(self) -> Client:
        """Before the first request."""
        self.transport, _ = await asyncio.get_running_loop().create_connection(lambda: self, "127.0.0.1", self.port)
        return self

    def data_received(self, data: bytes) -> None:
        self.received += data
        head, there, body = self.received.partition(b"\r\n\r\n")
        if there and len(body) >= int(re.findall(rb"(?i)content-length: (\d+)", head)[0]):
            self.received = b""
            self.answer.set_result(head)

    def connection_lost(self, error: Exception | None) -> None:
        if self.answer is not None and not self.answer.done():
            self.answer.set_exception(error or ConnectionError("hung up"))

    async def ask(self) -> tuple[int, float, float]:
        """Status, seconds to the whole answer, and in how many seconds to come again."""
        self.answer = asyncio.get_running_loop().create_future()
        text = " ".join(self.draw.choices(VOCABULARY, k=self.draw.randrange(6, 18)))
        body = json.dumps({"q": text, "source": "en", "target": "de"}).encode()
        head = b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        began = time.monotonic()
        self.transport.write(head % len(body))  # as most libraries do it: the body apart
        self.transport.write(body)
        answer = await self.answer
        took, status = time.monotonic() - began, int(answer.split(b" ", 2)[1])
        assert status in (200, 429), answer
        again = re.search(rb"(?i)retry-after: (\d+)", answer)
        return status, took, float(again[1]) if again else 0.0

    def close(self) -> None:
        """Hang up."""
        self.transport.close()


Times = dict[int, list[float]]  # of answers (200) and of refusals (429)


async def in_turn(port: int, clients: int, seconds: float) -> tuple[Times, float]:
    """So many clients who ask again as soon as they are answered, or when they are told to come again."""
    times: Times = {200: [], 429: []}
    connected = [await Client(port, random.Random(seed)).connect() for seed in range(clients)]
    began = time.monotonic()

    async def one(client: Client) -> None:
        while time.monotonic() - began < seconds:
            status, took, again = await client.ask()
            times[status].append(took)
            await asyncio.sleep(min(again, max(0.0, began + seconds - time.monotonic())))
        client.close()

    await asyncio.gather(*map(one, connected))
    return times, time.monotonic() - began


async def on_time(port: int, rate: float, seconds: float) -> tuple[Times, float]:
    """So many requests a second, come what may of those before; nobody comes again."""
    times: Times = {200: [], 429: []}
    draw, idle, tasks = random.Random(0), [], []
    began = due = time.monotonic()

    async def one(client: Client | None) -> None:
        client = client or await Client(port, draw).connect()
        status, took, _ = await client.ask()
        times[status].append(took)
        idle.append(client)

    while due - began < seconds:
        due += draw.expovariate(rate)
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        tasks.append(asyncio.ensure_future(one(idle.pop() if idle else None)))
    await asyncio.gather(*tasks)
    for client in idle:
        client.close()
    return times, time.monotonic() - began


def measured(port: int, seconds: float, **how: float) -> tuple[list[float], list[float], float]:
    """Times of answers and of refusals and how long it took: with `clients` in turn, or requests at a `rate`; in a process of
    its own."""
    ((kind, value),) = how.items()
    command = [sys.executable, str(Path(__file__)), "clients", "--port", str(port), f"--{kind}", str(value)]
    done = subprocess.run([*command, "--seconds", str(seconds)], capture_output=True, text=True, check=True)
    good, refused, took = json.loads(done.stdout)
    return good, refused, took


def quantile(values: list[float], share: float) -> float:
    """In milliseconds."""
    return 1000 * sorted(values)[min(len(values) - 1, int(share * len(values)))] if values else float("nan")


def make_runs(folder: Path) -> dict[str, Path]:
    """The run, and the same with one text at a time."""
    return {"ours": make_run(folder / "ours"), "one by one": make_run(folder / "one", batch_size=1)}


def table(counts: list[int], seconds: float, rounds: int, only: list[str]) -> None:
    """Every contestant at every number of clients, by turns; the median round counts."""
    with tempfile.TemporaryDirectory() as folder:
        runs = make_runs(Path(folder))
        servers = {name: Contestant(name, runs) for name in only}
        try:
            for one in servers.values():
                measured(one.port, 1.0, clients=4)
            print(
                f"{platform.machine()}, {os.cpu_count()} cores; {NEW} tokens an answer, beam {BEAM}; "
                "requests a second (p50, p99 ms)"
            )
            print("| clients | " + " | ".join(servers) + " |\n| ---: |" + " ---: |" * len(servers))
            for clients in counts:
                found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in servers}
                for _ in range(rounds):
                    for name, one in servers.items():
                        good, _, took = measured(one.port, seconds, clients=clients)
                        found[name].append((len(good) / took, quantile(good, 0.5), quantile(good, 0.99)))
                cells = [[statistics.median(v) for v in zip(*found[name], strict=True)] for name in servers]
                print(
                    f"| {clients} | " + " | ".join(f"{a:.1f} ({b:.0f}, {c:.0f})" for a, b, c in cells) + " |",
                    flush=True,
                )
        finally:
            for one in servers.values():
                one.end()


def overload(seconds: float) -> None:
    """Peak, then ten times as many clients as the queue holds, who come again when they are told to, then ten times the peak's
    requests a second: how soon refusals come, and what is still answered."""
    with tempfile.TemporaryDirectory() as folder:
        server = Contestant("ours", make_runs(Path(folder)), "--limit", "queue=32")
        try:
            measured(server.port, 1.0, clients=4)
            good, _, took = measured(server.port, seconds, clients=32)
            peak = len(good) / took
            print(f"peak, 32 clients: {peak:.1f} answers a second")
            for what, how in (
                ("320 clients", {"clients": 320}),
                (f"{10 * peak:.0f} requests a second", {"rate": 10 * peak}),
            ):
                good, refused, took = measured(server.port, seconds, **how)
                soon, late = quantile(refused, 0.5), quantile(refused, 0.99)
                kept = len(good) / took / peak
                print(f"{what}: {kept:.0%} of the peak; {len(refused)} refused, p50 {soon:.0f} ms, p99 {late:.0f} ms")
        finally:
            server.end()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", default="table", choices=["table", "overload", "peer", "clients"])
    parser.add_argument("--clients", type=int, nargs="*", default=[1, 8, 32, 128])
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--only", nargs="*", default=list(CONTESTANTS), choices=CONTESTANTS)
    parser.add_argument("--run", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--compute", default="float32", help=argparse.SUPPRESS)
    parser.add_argument("--rate", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, default=0, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.what == "peer":
        peer(args.run, args.compute)
    elif args.what == "clients":
        load = (
            on_time(args.port, args.rate, args.seconds)
            if args.rate
            else in_turn(args.port, args.clients[0], args.seconds)
        )
        times, took = asyncio.run(load)
        print(json.dumps([times[200], times[429], took]))
    elif args.what == "overload":
        overload(args.seconds)
    else:
        table(args.clients, args.seconds, args.rounds, args.only)


if __name__ == "__main__":
    main()
