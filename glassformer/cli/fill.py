"""`glassformer fill`: the words behind the masks, by a BERT."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated

import typer

from glassformer.cli import lines, options


def fill(
    run: options.Run,
    texts: options.Texts = None,
    file: options.InputFile = None,
    out: options.OutputFile = None,
    resume: options.Resume = False,
    top: Annotated[int, typer.Option(help="So many words for each mask.")] = 1,
    as_json: options.AsJson = False,
    batch_size: options.BatchSize = None,
    device: options.Device = "auto",
    step: options.Step = None,
) -> None:
    """Fill in texts, or each line of stdin or of a file: \\[MASK] or ___ stands for a word.

    A line for each line: the text with the likeliest words; with --top above 1, then a tab and the likeliest words and
    their probabilities for each mask. A line break that was found behind a mask is written as \\n.
    """
    given = lines.Input(texts, file, out, resume)
    given.check()
    lines.check_counts(top=top, batch_size=batch_size)

    from glassformer import tasks
    from glassformer.api import load

    model = load(run, device=device, step=step)
    model.require("fill")
    unknown = lines.Unknown(lambda text: tasks.unknown(model, text))

    def answer(texts: Sequence[str]) -> list[lines.Output]:
        found = []
        for text, filled in zip(texts, tasks.fill(model, texts, top=top), strict=True):
            if as_json:
                found.append(lines.Output([lines.as_line({"source": text, **asdict(filled), **unknown.fact(text)})]))
                continue
            columns = [
                ", ".join(f"{word.label.strip(' ')} {word.probability:.3f}" for word in mask) for mask in filled.masks
            ]
            found.append(lines.Output(["\t".join([filled.text, *(columns if top > 1 else [])])]))
        return found

    job = lines.TextJob(
        "fill",
        lines.run_fingerprint(run, step) if out is not None else "",
        {"top": top, "json": as_json},
        answer,
        as_json,
        {"masks": []},
        batch=batch_size or lines.BATCH,
        group=8 * (batch_size or lines.BATCH),
        escape=lines.escaped,
        unknown=unknown,
    )
    lines.reply(given, job)
