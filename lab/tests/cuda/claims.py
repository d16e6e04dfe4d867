"""Trials of the claims on a GPU: steps replayed as graphs give the losses of steps that are launched one by one.

python3 lab/tests/cuda/claims.py [PART OF PARTS]
"""

from __future__ import annotations

import sys
import time
from typing import Any

import torch

from glassformer_lab.claims import all_claims, training
from glassformer_lab.claims.claim import Budget
from glassformer_lab.claims.steps import GraphSteps, Steps

SMALL = Budget("quick", 1, 0.04)
OTHERS = ("optimizers", "parallel", "cache", "fused", "batching")  # no training of this kind
TIMED = {"serial", "speed", "cost", "projection", "products", "order", "base"}


def losses_of(kind: type[Steps], claim: Any, settings: dict[str, Any]) -> tuple[list[list[float]], float]:
    """The losses of every training of a trial, and its seconds."""
    seen: list[list[float]] = []

    class Recording(kind):  # type: ignore[misc, valid-type]
        def finish(self) -> list[float]:
            seen.append(super().finish())
            return seen[-1]

    training.GraphSteps = Recording  # type: ignore[misc]
    torch.manual_seed(0)
    began = time.perf_counter()
    with torch.device("cuda"):
        claim.run_trial(SMALL, **settings)
        torch.cuda.synchronize()
    return seen, time.perf_counter() - began


def main(part: int = 0, parts: int = 1) -> int:
    bad = number = 0
    for claim in all_claims():
        if claim.name in OTHERS:
            continue
        for settings in claim.plan(SMALL):
            number += 1
            if number % parts != part or TIMED & {str(value) for value in settings.values()}:
                continue
            try:
                (plain, slow), (ours, fast) = (losses_of(kind, claim, settings) for kind in (Steps, GraphSteps))
            except Exception as error:
                bad += 1
                print("FAILED", claim.name, settings, repr(error)[:300], flush=True)
                continue
            pairs = [(a, b) for one, other in zip(plain, ours, strict=True) for a, b in zip(one, other, strict=True)]
            far = max((abs(a - b) / max(abs(a), 0.1) for a, b in pairs), default=0.0)
            bad += far > 0.03
            print(
                "ok" if far <= 0.03 else "FAR",
                f"{far:.1e}",
                claim.name,
                settings,
                f"{slow:.1f} s, {fast:.1f} s",
                flush=True,
            )
    print(f"{bad} of {number} differ")
    return bad


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])) > 0)
