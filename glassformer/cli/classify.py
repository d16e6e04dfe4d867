"""`glassformer classify`: the label of each text, by a BERT."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated

import typer

from glassformer.cli import lines, options


def classify(
    run: options.Run,
    texts: options.Texts = None,
    file: options.InputFile = None,
    out: options.OutputFile = None,
    resume: options.Resume = False,
    top: Annotated[int, typer.Option(help="So many labels, the likeliest first.")] = 1,
    as_json: options.AsJson = False,
    batch_size: options.BatchSize = None,
    device: options.Device = "auto",
    step: options.Step = None,
) -> None:
    """Classify texts, or each line of stdin or of a file: a label, a tab and its probability for each."""
    given = lines.Input(texts, file, out, resume)
    given.check()
    lines.check_counts(top=top, batch_size=batch_size)

    from glassformer import tasks
    from glassformer.api import load

    model = load(run, device=device, step=step)
    model.require("classify")
    unknown = lines.Unknown(lambda text: tasks.unknown(model, text))

    def answer(texts: Sequence[str]) -> list[lines.Output]:
        found = []
        for text, labels in zip(texts, tasks.classify(model, texts), strict=True):
            best = labels[:top]
            if as_json:
                found.append(
                    lines.Output(
                        [lines.as_line({"source": text, "labels": [asdict(b) for b in best], **unknown.fact(text)})]
                    )
                )
            else:
                found.append(lines.Output(["\t".join(f"{b.label}\t{b.probability:.4f}" for b in best)]))
        return found

    job = lines.TextJob(
        "classify",
        lines.run_fingerprint(run, step) if out is not None else "",
        {"top": top, "json": as_json},
        answer,
        as_json,
        {"labels": []},
        batch=batch_size or lines.BATCH,
        group=8 * (batch_size or lines.BATCH),
        escape=lines.escaped,
        unknown=unknown,
    )
    lines.reply(given, job)
