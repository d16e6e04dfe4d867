"""Tokens and scores of small random models in every kind of search, to the last bit: run it at two commits and compare.

    python bench/tokens.py > before.txt

36 models (18 of each family that writes: positions, heads, norms, activations, windows drawn at random) answer batches of texts
of different lengths by greedy search, beams and sampling. Each line is a digest of all ids,
scores and log-probabilities of one model and one search. `--engine` and `--device` say what answers.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import struct
import warnings
from typing import Any

import torch

from glassformer.config import DecodeConfig, ModelConfig
from glassformer.decode import translate_batch
from glassformer.models import build_model

SEARCHES: dict[str, dict[str, Any]] = {
    "greedy": {"beam": 1},
    "beam": {"beam": 4, "n_best": 3},
    "early": {"beam": 3, "n_best": 2, "stop_rule": "first-k"},
    "sample": {"beam": 1, "temperature": 0.9, "top_k": 20, "num_samples": 2},
    "filters": {"beam": 2, "no_repeat_ngram": 2, "repetition_penalty": 1.2, "min_new_tokens": 3},
    "one by one": {"beam": 2, "batch_size": 1},
    "small batches": {"beam": 2, "batch_size": 3},
}


def random_config(family: str, draw: random.Random) -> ModelConfig:
    """A small model of this family."""
    heads = draw.choice([2, 4])
    return ModelConfig(
        family=family,  # type: ignore[arg-type]
        n_layer=draw.choice([1, 2, 3]), n_head=heads, n_embd=32 if heads == 2 else 48, vocab_size=draw.choice([61, 700]),
        n_kv_head=draw.choice([None, None, 1, heads // 2]), block_size=40,
        positions=draw.choice(["sinusoidal", "learned", "rotary", "alibi", "none"]),
        norm=draw.choice(["layer", "layer", "rms", "batch"]), pre_norm=draw.random() < 0.6,
        activation=draw.choice(["relu", "gelu", "gelu_tanh", "swiglu"]), bias=draw.random() < 0.7,
        tie_output=draw.random() < 0.5, qk_norm=draw.random() < 0.2,
        window=draw.choice([None, None, 6]), share_layers=draw.random() < 0.1,
    )  # fmt: skip


def digest(answers: Any, *, scores: bool) -> str:
    """16 letters that stand for every id, and every score."""
    parts = []
    for hypotheses in answers:
        for h in hypotheses:
            parts.append(struct.pack(f"<{len(h.ids)}q", *h.ids))
            if scores:
                parts.append(struct.pack(f"<{len(h.token_logprobs) + 1}d", h.score, *h.token_logprobs))
    return hashlib.sha256(b"".join(parts)).hexdigest()[:16]


def main() -> None:
    """One line for each model and search."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", default="auto")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--ids", action="store_true", help="the ids alone, not their scores")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    for number in range(36):
        draw = random.Random(number)
        config = random_config("transformer" if number % 2 else "gpt", draw)
        torch.manual_seed(number)
        model = build_model(config).eval()
        with torch.no_grad():  # fresh weights answer the same whatever they are asked
            for parameter in model.parameters():
                parameter.mul_(3) if parameter.dim() > 1 else parameter.add_(0.1 * torch.randn_like(parameter))
        model.to(given.device)
        longest = 24 if config.family == "transformer" else 30
        texts = [[draw.randrange(5, config.vocab_size) for _ in range(draw.randrange(1, longest))] for _ in range(11)]
        for name, search in SEARCHES.items():
            answers = translate_batch(model, texts, DecodeConfig(max_new_tokens=14, engine=given.engine, **search))
            print(f"{number:2} {config.family:12} {name:14} {digest(answers, scores=not given.ids)}", flush=True)


if __name__ == "__main__":
    main()
