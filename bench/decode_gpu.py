"""Decoding on one CUDA device, bf16: ours beside Hugging Face's `generate`, the same weights on both sides.

    python3 bench/decode_gpu.py                              # all rows
    python3 bench/decode_gpu.py gpt1 gpt64                   # GPT-2 124M, 256 new tokens, one text and 64
    python3 bench/decode_gpu.py beam --data multi30k         # the paper's base size, beam 4; lengths of train.en, train.de
    python3 bench/decode_gpu.py beam --profile 20            # where the time goes, in place of a table
    python3 bench/decode_gpu.py --without hf                 # ours alone

Weights are random, so an end of sentence would come at random too, and lengths are forced: texts get 256 new tokens, and
each of the 10,000 translations has exactly as many tokens as the target sentence of its pair (drawn, about as long as the
source, where there is no data). Sentences end at different steps, as they would by themselves, and the engine learns of it
only step by step. Target tokens are those of the best hypotheses. Hugging Face knows no length of a single sentence: its
batches, sorted by length, all run to the longest of the batch, and the tokens asked for are counted.

Each side is warmed up (ours twice: a graph is recorded at the second visit of a bucket), then timed; the median of the
rounds counts. Memory is the peak of what torch had allocated while it was timed, weights included. `same` compares the graph
engine with the plain one, token by token: in fp32, where they must agree, and in bf16, where a tie between words may fall
either way and all that follows differs. A side that fails is reported and the others go on.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import statistics
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.decode import to_marian
from glassformer.config import DecodeConfig
from glassformer.decode import Hypothesis, SpecialTokens, boards, generate_batch, translate_batch
from glassformer.models import GPT, Transformer, preset

WORDS = 10_000
NEW = 256
CONTROLS = SpecialTokens(bos=1, eos=2, unknown=None, never=())
NO_END = SpecialTokens(bos=1, eos=None, unknown=None, never=())
Answers = list[list[int]]


def measure(run: Callable[[], Any], tokens: int, *, warm: int, rounds: int) -> dict[str, Any]:
    """`run` returns what a user gets; to throw it away again is not timed."""
    for _ in range(warm):
        run()
    torch.cuda.synchronize()
    gc.collect()
    torch.cuda.reset_peak_memory_stats()
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        kept = run()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
        del kept
    return {
        "tokens/s": round(tokens / statistics.median(times)),
        "seconds": [round(t, 4) for t in times],
        "peak MB": round(torch.cuda.max_memory_allocated() / 2**20),
        "reserved MB": round(torch.cuda.max_memory_reserved() / 2**20),
    }


def show_profile(run: Callable[[], Any], rows: int) -> None:
    from torch.profiler import ProfilerActivity, profile

    for _ in range(3):
        run()
    torch.cuda.synchronize()
    began = time.perf_counter()
    run()
    torch.cuda.synchronize()
    print(f"wall {1000 * (time.perf_counter() - began):.1f} ms")
    with profile(activities=[ProfilerActivity.CUDA]) as found:
        run()
        torch.cuda.synchronize()
    events = sorted(found.key_averages(), key=lambda e: -e.self_device_time_total)
    print(
        f"device {sum(e.self_device_time_total for e in events) / 1000:.1f} ms, {sum(e.count for e in events)} kernels"
    )
    for e in events[:rows]:
        print(f"  {e.self_device_time_total / 1000:9.2f} ms  x{e.count:6d}  {e.key[:120]}", flush=True)


def agreement(run: Callable[[str], Answers]) -> str:
    """How many of the plain engine's tokens the graph engine has written too, up to the first difference."""
    plain, graph = run("plain"), run("graph")
    graph = run("graph") if torch.cuda.is_available() else graph  # the second time from recorded graphs
    same = sum(next((i for i, (a, b) in enumerate(zip(p, g)) if a != b), len(p)) for p, g in zip(plain, graph))
    texts = sum(p == g for p, g in zip(plain, graph))
    return f"{texts}/{len(plain)} texts, {same}/{sum(map(len, plain))} tokens"


# GPT-2


def gpt2() -> GPT:
    torch.manual_seed(1)
    config = replace(preset("gpt2"), dropout=0.0, attention_dropout=0.0)
    return GPT(config).eval().cuda()


def some_prompts(number: int, length: int = 16) -> list[list[int]]:
    draw = random.Random(1)
    return [[draw.randrange(5, 50000) for _ in range(length)] for _ in range(number)]


def write(model: GPT, prompts: list[list[int]], engine: str, new: int = NEW) -> Answers:
    how = DecodeConfig(beam=1, max_new_tokens=new, min_new_tokens=new, engine=engine, batch_size=len(prompts))  # type: ignore[arg-type]
    return [found[0].ids for found in generate_batch(model, prompts, how, controls=NO_END)]


def to_hf_gpt2(model: GPT) -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    hf = GPT2LMHeadModel(GPT2Config(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0))
    state = {"transformer.wte.weight": model.embedding.weight, "lm_head.weight": model.embedding.weight}
    state["transformer.wpe.weight"] = model.positions.weight  # type: ignore[union-attr, assignment]
    norms = {"ln_f": model.decoder.norm}
    for i, layer in enumerate(model.decoder.layers):
        place, a = f"transformer.h.{i}", layer.attention
        norms |= {f"h.{i}.ln_1": layer.attention_norm, f"h.{i}.ln_2": layer.mlp_norm}
        state[f"{place}.attn.c_attn.weight"] = torch.cat([a.query.weight, a.key.weight, a.value.weight]).t()  # type: ignore[assignment]
        state[f"{place}.attn.c_attn.bias"] = torch.cat([a.query.bias, a.key.bias, a.value.bias])  # type: ignore[assignment]
        for name, part in (("attn.c_proj", a.out), ("mlp.c_fc", layer.mlp.up), ("mlp.c_proj", layer.mlp.down)):
            state[f"{place}.{name}.weight"] = part.weight.t()  # type: ignore[union-attr, assignment]
            state[f"{place}.{name}.bias"] = part.bias  # type: ignore[union-attr, assignment]
    for name, norm in norms.items():
        state[f"transformer.{name}.weight"], state[f"transformer.{name}.bias"] = norm.weight, norm.bias  # type: ignore[union-attr, assignment]
    hf.load_state_dict({name: tensor.detach().cpu() for name, tensor in state.items()}, strict=False)
    return hf.eval()


def gpt_row(rows: int, args: argparse.Namespace) -> dict[str, Any]:
    model, prompts = gpt2(), some_prompts(rows)
    result: dict[str, Any] = {}
    if "same" in args.sides:
        attempt(result, "same fp32", lambda: agreement(lambda engine: write(model, prompts, engine, 64)))
    hf = to_hf_gpt2(model) if "hf" in args.sides else None
    model = model.bfloat16()
    if args.profile:
        show_profile(lambda: write(model, prompts, "graph"), args.profile)
        return result
    if "same" in args.sides:
        attempt(result, "same bf16", lambda: agreement(lambda engine: write(model, prompts, engine)))
    if "graph" in args.sides:
        attempt(result, "graph", lambda: measure(lambda: write(model, prompts, "graph"), rows * NEW, warm=3, rounds=7))
    if "plain" in args.sides:
        attempt(result, "plain", lambda: measure(lambda: write(model, prompts, "plain"), rows * NEW, warm=1, rounds=1))
    if hf is not None:
        del model
        torch.cuda.empty_cache()
        other = hf.to(torch.bfloat16).cuda()
        tokens = torch.tensor(prompts, device="cuda")

        @torch.inference_mode()
        def run() -> Answers:
            found = other.generate(
                tokens,
                attention_mask=torch.ones_like(tokens),
                max_new_tokens=NEW,
                min_new_tokens=NEW,
                do_sample=False,
                pad_token_id=0,
            )
            return found[:, tokens.size(1) :].tolist()

        attempt(result, "hf", lambda: measure(run, rows * NEW, warm=1, rounds=2))
    return result


# The encoder-decoder


def some_pairs(args: argparse.Namespace) -> tuple[list[list[int]], list[int]]:
    """Sources of random words, and how many tokens each translation has."""
    draw = random.Random(1)
    lengths: list[tuple[int, int]] = []
    if args.data is not None and (args.data / "train.en").exists():
        sides = [(args.data / f"train.{s}").read_text(encoding="utf-8").splitlines() for s in ("en", "de")]
        lengths = [(len(a.split()) + 1, len(b.split()) + 1) for a, b in zip(*sides) if a.strip() and b.strip()]
        lengths = lengths[: args.sentences]
    else:
        for _ in range(args.sentences):
            source = max(5, round(draw.gauss(14, 4)))
            lengths.append((source, max(4, round(source * draw.gauss(1.0, 0.15)))))
    return [[*[draw.randrange(5, WORDS) for _ in range(n - 1)], 2] for n, _ in lengths], [t for _, t in lengths]


def beam_row(args: argparse.Namespace) -> dict[str, Any]:
    torch.manual_seed(1)
    config = replace(preset("transformer-base"), vocab_size=WORDS, block_size=256, dropout=0.0)
    model = Transformer(config).eval()
    hf = to_marian(model) if "hf" in args.sides else None
    model = model.cuda()
    sources, lengths = some_pairs(args)
    tokens = sum(lengths)
    result: dict[str, Any] = {"sentences": len(sources), "target tokens": tokens}

    def translate(engine: str, number: int, batch: int) -> list[list[Hypothesis]]:
        how = DecodeConfig(beam=4, engine=engine, batch_size=batch)  # type: ignore[arg-type]
        limits = [(n, n) for n in lengths[:number]]
        return translate_batch(model, sources[:number], how, controls=CONTROLS, limits=limits)

    def ids(engine: str, number: int) -> Answers:
        return [found[0].ids for found in translate(engine, number, 64)]

    if "same" in args.sides:
        attempt(result, "same fp32", lambda: agreement(lambda engine: ids(engine, 128)))
    model = model.bfloat16()
    if args.profile:
        show_profile(lambda: translate("graph", len(sources), args.batch), args.profile)
        return result
    if "same" in args.sides:
        attempt(result, "same bf16", lambda: agreement(lambda engine: ids(engine, 256)))
    if "graph" in args.sides:

        def ours() -> dict[str, Any]:
            return measure(lambda: translate("graph", len(sources), args.batch), tokens, warm=3, rounds=5)

        attempt(result, "graph", ours)
    if "plain" in args.sides:
        some = min(512, len(sources))
        part = sum(lengths[:some])
        attempt(result, "plain", lambda: measure(lambda: translate("plain", some, 256), part, warm=1, rounds=1))
    if hf is not None:
        del model
        torch.cuda.empty_cache()
        other = hf.to(torch.bfloat16).cuda()
        some = min(1024, len(sources))
        order = sorted(range(some), key=lambda i: -len(sources[i]))

        @torch.inference_mode()
        def run() -> Answers:
            answers: Answers = []
            for start in range(0, some, 256):
                here = order[start : start + 256]
                width, new = max(len(sources[i]) for i in here), max(lengths[i] for i in here)
                ids = torch.tensor([[*sources[i], *[0] * (width - len(sources[i]))] for i in here], device="cuda")
                sizes = torch.tensor([len(sources[i]) for i in here], device="cuda")
                real = (torch.arange(width, device="cuda") < sizes[:, None]).long()
                answers += other.generate(
                    input_ids=ids,
                    attention_mask=real,
                    num_beams=4,
                    do_sample=False,
                    min_new_tokens=new,
                    max_new_tokens=new,
                ).tolist()
            return answers

        attempt(result, "hf", lambda: measure(run, sum(lengths[:some]), warm=1, rounds=1))
    return result


def attempt(result: dict[str, Any], name: str, work: Callable[[], Any]) -> None:
    try:
        result[name] = work()
    except Exception as error:
        traceback.print_exc()
        result[name] = f"failed: {type(error).__name__}: {error}"
    print(f"  {name}: {result[name]}", flush=True)


ROWS: dict[str, tuple[str, int, Callable[[argparse.Namespace], dict[str, Any]]]] = {
    "gpt1": ("GPT-2 124M, batch 1, 256 new tokens", 4_000, lambda args: gpt_row(1, args)),
    "gpt64": ("GPT-2 124M, batch 64, 256 new tokens", 150_000, lambda args: gpt_row(64, args)),
    "beam": ("Transformer base, beam 4, 10,000 sentences", 500_000, beam_row),
}
SIDES = ("same", "graph", "plain", "hf")


def show(results: dict[str, Any]) -> None:
    print(f"\nNew tokens/s, bf16, {torch.cuda.get_device_name()}, torch {torch.__version__}.")
    print(f"Command: python3 bench/decode_gpu.py {' '.join(sys.argv[1:])}".rstrip() + "\n")
    print("| | goal | graph | MB | plain | MB | Hugging Face | MB | same, fp32 | same, bf16 |")
    print("| --- |" + " ---: |" * 9)
    for name, result in results.items():
        title, goal, _ = ROWS[name]
        cells = []
        for side in ("graph", "plain", "hf"):
            found = result.get(side, "")
            good = isinstance(found, dict)
            cells += [f"{found['tokens/s']:,}", f"{found['peak MB']:,}"] if good else ["failed" if found else "", ""]
        cells += [str(result.get("same fp32", "")), str(result.get("same bf16", ""))]
        print(f"| {title} | {goal:,} | " + " | ".join(cells) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", help=f"some of: {', '.join(ROWS)}")
    parser.add_argument("--data", type=Path, help="a folder with train.en and train.de, for its sentences' lengths")
    parser.add_argument("--sentences", type=int, default=10_000)
    parser.add_argument("--batch", type=int, default=2048, help="sentences decoded together by the graph engine")
    parser.add_argument("--without", nargs="+", choices=SIDES, default=[])
    parser.add_argument("--profile", type=int, default=0, help="print so many of the most expensive kernels instead")
    parser.add_argument("--out", type=Path, help="write the numbers as JSON")
    parser.add_argument(
        "--torch-beam", action="store_true", help="the beam's step by torch's operations, not one kernel"
    )
    parser.add_argument("--late-start", action="store_true", help="no kernel before the one before it has ended")
    args = parser.parse_args()
    boards.BEAM_KERNEL = not args.torch_beam
    unknown = [row for row in args.rows if row not in ROWS]
    if unknown:
        parser.error(f"there is no row {unknown[0]!r}; choose from {', '.join(ROWS)}")
    if not torch.cuda.is_available():
        raise SystemExit("this table is about a CUDA device, and torch sees none here")
    if args.late_start:
        from glassformer.decode import kernel_start

        kernel_start.early_start = False
    args.sides = [side for side in SIDES if side not in args.without]
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    results: dict[str, Any] = {}
    for name in args.rows or list(ROWS):
        print(ROWS[name][0], flush=True)
        try:
            results[name] = ROWS[name][2](args)
        except Exception as error:
            traceback.print_exc()
            results[name] = {"graph": f"failed: {type(error).__name__}: {error}"}
        gc.collect()
        torch.cuda.empty_cache()
        if args.out:
            args.out.write_text(json.dumps(results, indent=1))
    if not args.profile:
        show(results)


if __name__ == "__main__":
    main()
