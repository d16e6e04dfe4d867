"""`glassformer score`: how likely a run finds texts that it is given."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from glassformer.cli import options
from glassformer.errors import UserError
from glassformer.language import _
from glassformer.screen import warn

AT_ONCE = 256


@options.documented
def score(
    run: options.Run,
    overrides: list[str] | None = None,
    file: Path | None = None,
    target: Path | None = None,
    out: Path | None = None,
    as_json: bool = False,
    device: options.Device = "auto",
    step: options.Step = None,
) -> None:
    """The log-probability of given pairs (or of texts, by a GPT): a line each, in nats, then a tab and over how many tokens it
    is a sum. A pair that is longer than the model reads has an empty line."""
    if file is None:
        raise UserError("score needs --file: a file of pairs, such as a TSV")
    from glassformer.api import load
    from glassformer.api.evaluation import pairs_of_files
    from glassformer.cli.evaluate import new_file

    write = new_file(out) if out is not None else None
    model = load(run, device=device, step=step)
    examples = pairs_of_files(model, [file, *([target] if target is not None else [])], overrides or [])
    found: list[str] = []
    total = tokens = left_out = 0.0
    group: list[Any] = []

    def answer(group: Sequence[Any]) -> None:
        nonlocal total, tokens, left_out
        from glassformer.tasks.score import score as scores_of

        for example, own in zip(group, scores_of(model, group), strict=True):
            if own is None:
                left_out += 1
            else:
                total, tokens = total + own.log_probability, tokens + own.tokens
            if as_json:
                sides = (
                    {"source": example[0], "target": example[1]} if not isinstance(example, str) else {"text": example}
                )
                number = None if own is None else own.log_probability
                facts = {"log_probability": number, "tokens": 0 if own is None else own.tokens}
                found.append(json.dumps(sides | facts, ensure_ascii=False))
            else:
                found.append("" if own is None else f"{own.log_probability:.6f}\t{own.tokens}")
            if write is None:
                print(found.pop())

    for example in examples:
        group.append(example)
        if len(group) == AT_ONCE:
            answer(group)
            group = []
    answer(group)
    if write is not None:
        write("".join(line + "\n" for line in found))
    if left_out:
        most = model.model.config.block_size
        warn(_("{count:,.0f} pairs have more than {most} tokens and no score", left_out, most))
    if tokens:
        told = _(
            "loss {mean:.4f} nats a token, perplexity {perplexity:.2f}, over {tokens:,.0f} tokens",
            **summary(total, tokens),
        )
        warn(told)


def summary(total: float, tokens: float) -> dict[str, float]:
    """The mean loss and its perplexity, of a sum of log-probabilities."""
    mean = -total / tokens
    return {"mean": mean, "perplexity": math.exp(min(50.0, mean)), "tokens": tokens}
