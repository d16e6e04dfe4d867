"""The live page in a real Chromium: from a key to the picture that answers it.

    python3 bench/page.py runs/dates "3 mai 1979"      # a trained run, with a text it knows
    python3 bench/page.py base gpt2                    # 6+6 layers of 512 and GPT-2's 12 of 768, with random weights
    python3 bench/page.py long --keys 6                # the same 6+6 layers with a source of 512 tokens
    python3 bench/page.py base --keys 10 --view maps
    python3 bench/page.py base gpt2 long --no-browser --device cuda

For each model `glassformer open` runs as a process of its own, and one character after the other is typed, the next a tenth of a
second after the last has its picture. Told are the median and the 95th percentile of the time from the key to the painted view,
the server's processor time a key (which other work on the machine does not lengthen), and the weight: of the modules, styles and
words of the page, and of one such answer. (Attribution, saliency and the beam's tree come after it, when the typing rests; they
are not in these times.) With `--no-browser`, for a machine without Chromium, it is the server's part alone: from the request to
the last byte of its answer.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.serve import VOCABULARY, make_run

BASE = {"n_layer": 6, "n_head": 8, "n_embd": 512, "n_hidden": 2048}
GPT2 = {"family": "gpt", "n_layer": 12, "n_head": 12, "n_embd": 768, "n_hidden": 3072, "positions": "learned"}
LONG = 512  # words
REST = 0.1  # seconds between a picture and the next key, in which what is around it is drawn: nobody types faster
MADE: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "base": (BASE, {"beam": 1, "min_new_tokens": 12, "max_new_tokens": 12}),
    "long": (BASE | {"block_size": 1024}, {"beam": 1, "min_new_tokens": 12, "max_new_tokens": 12}),
    "gpt2": (GPT2, {"beam": 1, "min_new_tokens": 0, "max_new_tokens": None}),
}
TYPE = """text => new Promise((done, fail) => {
  const before = live.data;
  const input = document.getElementById("text");
  const view = document.getElementById("view");
  const watch = new MutationObserver(() => {
    const failed = document.querySelector("#state.failed");
    if (failed) fail(new Error(failed.textContent));
    if (live.data === before || live.data.text !== text || view.ariaBusy !== "false") return;
    watch.disconnect();
    requestAnimationFrame(() => { // the frame that has the picture, and the task after it: it is painted
      const { port1, port2 } = new MessageChannel();
      port1.onmessage = () => done(performance.now() - begun);
      port2.postMessage(null);
    });
  });
  watch.observe(view, { attributes: true, attributeFilter: ["aria-busy"] });
  watch.observe(document.getElementById("state"), { attributes: true });
  const begun = performance.now();
  input.value = text;
  input.dispatchEvent(new Event("input"));
})"""
WEIGHTS = """() => {
  const all = performance.getEntriesByType("resource");
  const sizes = (part) => all.filter((one) => one.name.includes(part)).map((one) => one.decodedBodySize);
  return { page: sizes("/page/").reduce((a, b) => a + b, 0), answer: sizes("/look").pop() };
}"""


@contextmanager
def opened(run: Path, device: str) -> Iterator[tuple[str, int]]:
    """The address of `glassformer open` on a run, and its process."""
    command = [sys.executable, "-m", "glassformer", "open", str(run), "--no-browser", "--device", device]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=Path(__file__).parents[1])
    assert server.stderr is not None
    try:
        told = (re.search(r"open (http://\S+) in a browser", line) for line in server.stderr)
        yield next(found[1] for found in told if found), server.pid
    except Exception:
        server.terminate()
        print(server.stderr.read(), file=sys.stderr)  # what the server says of it
        raise
    finally:
        server.terminate()
        server.wait()


def processor_seconds(process: int) -> float:
    """What a process has computed so far; 0 where the system does not tell."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def page_weight(address: str) -> int:
    """The bytes of all that the page loads: from its HTML by what is named in each file."""
    wanted, seen = {"/open"}, dict[str, int]()
    while wanted:
        path = wanted.pop()
        with urlopen(address.removesuffix("/open") + path, timeout=60) as answer:
            text = answer.read()
        seen[path] = len(text)
        found = re.findall(rb'"(?:/page|\.)/(\w+\.(?:js|css))"', text)
        wanted |= {f"/page/{name.decode()}" for name in found} - seen.keys()
    return sum(seen.values())


def typed(text: str, keys: int) -> list[str]:
    """The same text, its last character taken away and typed again: every time is that of an answer of one length."""
    return [text[: len(text) - (n + 1) % 2] for n in range(keys + 2)]


def ask_only(address: str, process: int, name: str, texts: list[str]) -> dict[str, Any]:
    """Seconds of each answer as a program gets it, and its bytes: the server's part alone."""
    times, size, used, draft = [], 0, 0.0, list[int]()
    for number, text in enumerate(texts):
        used = processor_seconds(process) if number == 2 else used
        fields = {"model": name, "text": text, "data": True, "binary": True, "explained": False, "draft": draft}
        body = json.dumps(fields).encode()
        asked = Request(address.removesuffix("/open") + "/look", body, {"Content-Type": "application/json"})
        begun = time.perf_counter()
        with urlopen(asked, timeout=300) as answer:
            found = answer.read()
        times.append(time.perf_counter() - begun)
        size = len(found)
        draft = json.loads(found[4 : 4 + int.from_bytes(found[:4], "little")])["outputs"]["ids"]
    used = (processor_seconds(process) - used) / (len(texts) - 2)
    return {"times": times[2:], "weights": {"page": page_weight(address), "answer": size}, "used": used}


def measure(address: str, process: int, texts: list[str], view: str) -> dict[str, Any]:
    """Seconds from each key to its picture, and bytes."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"] if os.geteuid() == 0 else []
        )
        page = browser.new_page(viewport={"width": 1400, "height": 900})
        page.set_default_timeout(300_000)
        page.goto(f"{address}?text={texts[1]}#view={view}")
        page.wait_for_selector("html[data-ready=yes]")
        for text in texts[:2]:
            page.evaluate(TYPE, text)
        used = processor_seconds(process)
        times = []
        for text in texts[2:]:
            time.sleep(REST)
            times.append(page.evaluate(TYPE, text) / 1000)
        used = (processor_seconds(process) - used) / len(times)
        weights = page.evaluate(WEIGHTS)
        browser.close()
    return {"times": times, "weights": weights, "used": used}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="+", help="base, gpt2, or a run folder followed by a text")
    parser.add_argument("--keys", type=int, default=20)
    parser.add_argument("--view", default="maps")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--no-browser", action="store_true", help="time the server's part alone")
    asked = parser.parse_args()
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    print("| model | median | p95 | server's processor time | page | one answer |\n| --- |" + " ---: |" * 5)
    names = list(asked.what)
    with tempfile.TemporaryDirectory() as folder:
        while names:
            name = names.pop(0)
            if name in MADE:
                model, decode = MADE[name]
                run, text = (
                    make_run(Path(folder) / name, model, **decode),
                    " ".join(VOCABULARY[:10][n % 10] for n in range(LONG - 1) if name == "long")
                    or " ".join(VOCABULARY[7:19]),
                )
            else:
                run, text = Path(name).resolve(), names.pop(0)
            with opened(run, asked.device) as (address, process):
                texts = typed(text, asked.keys)
                if asked.no_browser:
                    found = ask_only(address, process, run.name, texts)
                else:
                    found = measure(address, process, texts, asked.view)
            times = sorted(found["times"])
            p95 = times[min(len(times) - 1, int(0.95 * len(times)))]
            page, answer = (found["weights"][part] / 1e3 for part in ("page", "answer"))
            print(
                f"| {name} | {1000 * statistics.median(times):.0f} ms | {1000 * p95:.0f} ms | {1000 * found['used']:.0f} ms "
                f"| {page:.0f} kB | {answer:.0f} kB |",
                flush=True,
            )


if __name__ == "__main__":
    main()
